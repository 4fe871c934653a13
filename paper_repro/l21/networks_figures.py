"""Figures of L21 §3 and 5 and App. B for image classifiers, numbered as in the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from calibjax import plotting
from experiments.harness.figures import COLORS, STYLES, add_legend, panels, save_figure
from paper_repro.data.classifiers import Classifier
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import CURVE_LENGTH_SCALES, GLOBAL, LOCAL, ORIGINAL
from paper_repro.l21.networks_tables import RATIOS

METHODS = (*LOCAL, *GLOBAL[1:], ORIGINAL)  # by their colours
LENGTH_SCALE = "length scale $\\gamma$ of the kernel"
_NAMES = {
    "resnet50": "ResNet-50",
    "resnet110": "ResNet-110",
    "densenet121": "DenseNet-121",
    "focal_resnet50": "ResNet-50, focal loss",
    "focal_densenet121": "DenseNet-121, focal loss",
}
TITLES = {
    **{
        f"cifar100_{x}": f"{_NAMES[x]}, CIFAR-100" for x in ("resnet50", "resnet110", "densenet121")
    },
    **{f"cifar10_logits_{x}": f"{name}, CIFAR-10" for x, name in _NAMES.items()},
    "cifar10_densenet121": "DenseNet-121 (W19), CIFAR-10",
    "cifar10_googlenet": "GoogLeNet (W19), CIFAR-10",
    "cifar10_resnet18": "ResNet-18 (W19), CIFAR-10",
    "cifar10_vgg16_bn": "VGG-16 (W19), CIFAR-10",
}
MIN_BIN_SIZE = 100  # of the bins of Fig. 2
MAP_RESOLUTION = 90  # of its points, in dots per inch


class Panel(NamedTuple):
    """Curves of all methods for one classifier.

    Attributes:
        title: of the panel.
        methods: results by method.
        quantity: "MLCE", "mean LCE", or "reward".
        embedding: features of the errors.
    """

    title: str
    methods: dict[str, dict[str, Any]]
    quantity: str = "MLCE"
    embedding: str = "t-SNE"


def draw_curves(axes: Axes, x: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """A line for each method, broad for LoRe; means of runs [runs, k] ± their standard error."""
    for color, style, (name, runs) in zip(COLORS, STYLES, curves.items(), strict=False):
        runs = np.atleast_2d(np.asarray(runs, np.float64))
        mean = runs.mean(0)
        width = 2.4 if name in LOCAL else 1.3
        axes.plot(x, mean, color=color, linestyle=style, linewidth=width, label=name)
        if len(runs) > 1:
            half = runs.std(0, ddof=1) / np.sqrt(len(runs))
            axes.fill_between(x, mean - half, mean + half, color=color, alpha=0.3, linewidth=0)
    axes.set_xscale("log")


def _draw(axes: Axes, panel: Panel) -> None:
    is_reward = panel.quantity == "reward"
    name = "gain curve" if is_reward else f"{panel.quantity} curve ({panel.embedding})"
    curves = {x: np.array(panel.methods[x][name]) for x in METHODS if x in panel.methods}
    draw_curves(axes, RATIOS if is_reward else CURVE_LENGTH_SCALES, curves)
    if is_reward:
        axes.set(xlabel="cost ratio $w/u$", ylabel="reward gained")
    else:
        axes.set(xlabel=LENGTH_SCALE, ylabel=panel.quantity)
        axes.set_ylim(bottom=0)


def _plot_panels(folder: Path, name: str, shown: Sequence[Panel]) -> None:
    """Two panels beside each other, or three of many, with one legend."""
    columns = min(len(shown), 2 if len(shown) <= 6 else 3)
    figure, grid = panels(-(-len(shown) // columns), columns, 2.0)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, shown, strict=False):
        _draw(axes, panel)
        network_and_data = panel.title.rpartition(", ")[::2]
        axes.set_title(panel.title if columns < 3 else ",\n".join(network_and_data))
    if len({panel.quantity for panel in shown}) == 1:  # labels at the margins are enough
        for axes in grid.flat[: len(shown) - columns]:
            axes.set_xlabel("")
        for axes in grid[:, 1:].flat:
            axes.set_ylabel("")
    add_legend(figure, 3)
    save_figure(folder, name, figure)


def plot(folder: Path, results: dict[str, dict[str, Any]]) -> None:
    """Fig. 4, 8, 9 and 16 of the networks, and all four quantities of each file of the user's."""
    methods = {name: result["methods"] for name, result in results.items()}
    networks = [name for name in methods if name in TITLES]
    cifar100, cifar10 = (
        [name for name in networks if name.startswith(data)] for data in ("cifar100_", "cifar10_")
    )
    figures = {
        "figure_4": [Panel(TITLES[x], methods[x], "reward") for x in networks],
        "figure_8": [
            Panel(f"{TITLES[x]}, {embedding}", methods[x], embedding=embedding)
            for x in cifar100
            for embedding in LENGTH_SCALES
        ],
        "figure_9": [Panel(TITLES[x], methods[x]) for x in cifar10],
        "figure_16": [Panel(TITLES[x], methods[x], "mean LCE") for x in networks],
    }
    for name in [name for name in methods if name not in TITLES]:
        kinds = (("MLCE", "t-SNE"), ("MLCE", "PCA"), ("mean LCE", "t-SNE"))
        figures[name] = [Panel(f"{x[1]} features", methods[name], *x) for x in kinds]
        figures[name].append(Panel("decisions", methods[name], "reward"))
    for name, shown in figures.items():
        if shown:
            _plot_panels(folder, name, shown)


def plot_across(folder: Path, found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Fig. 14 and 15."""
    for name, methods in found.items():
        panels = [Panel(f"{x} features", methods, embedding=x) for x in LENGTH_SCALES]
        _plot_panels(folder, name, panels)


def plot_features(
    folder: Path, classifier: Classifier, result: dict[str, Any], identity: list[float]
) -> None:
    """Fig. 1: MLCE without recalibration by three kinds of features."""
    metrics = result["methods"][ORIGINAL]
    dimension = classifier.evaluation.features.shape[1]
    curves = {
        f"{embedding} features": np.array(metrics[f"MLCE curve ({embedding})"])
        for embedding in LENGTH_SCALES
    }
    curves[f"the features themselves (d = {dimension})"] = np.array(identity)
    figure, ((axes,),) = panels(1, 1, 2.6)
    draw_curves(axes, CURVE_LENGTH_SCALES, curves)
    axes.set(xlabel=LENGTH_SCALE, ylabel="MLCE", ylim=(0, None))
    add_legend(figure, 3, TITLES.get(classifier.name, classifier.name))
    save_figure(folder, "figure_1", figure)


class Map(NamedTuple):
    """Local errors of a classifier in two dimensions.

    Attributes:
        name: of the classifier.
        embedding: features of the points, [n, 2].
        found: what `networks_map.local_errors` returns.
        sizes: number of samples of each bin.
        errors: error of each bin.
    """

    name: str
    embedding: np.ndarray
    found: dict[str, np.ndarray]
    sizes: dict[int, int]
    errors: dict[int, float]

    def bins(self) -> list[int]:
        """The bins of smallest and largest error, of those that are not small."""
        large = [number for number, size in self.sizes.items() if size >= MIN_BIN_SIZE]
        ends = [f(large or self.sizes, key=lambda x: abs(self.errors[x])) for f in (min, max)]
        return [*dict.fromkeys(ends)]


def plot_maps(folder: Path, maps: Sequence[Map], level: float) -> None:
    """Fig. 2: signed local errors in the bins of smallest and largest error.

    That of the first classifier is figure_2; the others share a figure for each data set.

    Args:
        folder: where to.
        maps: of the classifiers.
        level: of the tests of the points.
    """
    _plot_maps(folder, "figure_2", maps[:1], level)
    for data in dict.fromkeys(x.name.partition("_")[0] for x in maps[1:]):
        chosen = [x for x in maps[1:] if x.name.partition("_")[0] == data]
        _plot_maps(folder, f"figure_2_{data}", chosen, level)


def _plot_maps(folder: Path, name: str, maps: Sequence[Map], level: float) -> None:
    places = [(x, number) for x in maps for number in x.bins()]
    figure, grid = panels(len(places), 2, 2.6, width_ratios=(1.2, 1), gridspec_kw={"wspace": 0.15})
    legend = {}
    for (left, right), (shown, number) in zip(grid, places, strict=True):
        found, error = shown.found, abs(shown.errors[number])
        chosen = found["bin"] == number - 1
        plotting.local_error_map(
            shown.embedding[chosen],
            found["error"][chosen],
            signed=True,
            effective_sizes=found["effective_size"][chosen],
            pvalues=found["adjusted_pvalue"][chosen],
            significance_level=level,
            ax=left,
        )
        title = TITLES.get(shown.name, shown.name).rpartition(",")[0] or shown.name
        left.set_title(f"{title},\nbin {number}, {shown.sizes[number]} samples")
        values = np.sort(_quantiles(np.abs(found["error"][chosen])))
        steps, shares = np.r_[values[:1], values], np.linspace(0, 1, values.size + 1)
        right.plot(steps, shares, drawstyle="steps-post", color=COLORS[0], linewidth=1.5)
        right.axvline(error, color="black", linewidth=1.5, linestyle="--")
        right.set(xlabel="local calibration error", ylabel="share of samples", ylim=(0, 1.02))
        right.set_title(f"distribution of the\nlocal errors of bin {number}")
        if np.any(found["adjusted_pvalue"][chosen] <= level):
            legend[f"adjusted $p \\leq {level:g}$"] = left.collections[1]
        legend["local errors of the samples"], legend["error of the bin"] = right.get_lines()[:2]
    figure.legend(legend.values(), legend.keys(), loc="outside upper center", ncols=3)
    save_figure(folder, name, figure, resolution=MAP_RESOLUTION)


def _quantiles(values: np.ndarray) -> np.ndarray:
    """The values, or 200 of their quantiles, which draw the same curve in less space."""
    return values if values.size <= 200 else np.quantile(values, np.linspace(0, 1, 200))
