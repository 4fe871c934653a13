"""Figures of W21 §5.2 and App. A.3."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure
from paper_repro.w21.friedman_tables import Published, Results


class Shown(NamedTuple):
    """The statistics of a figure, its first and last iteration, and whether it is a picture."""

    statistics: tuple[str, ...]
    first: int
    last: int
    dots: bool


# Fig. 3 is the part of Fig. 12 where the networks are best. Lines of 5001 points are drawn in
# pixels: leaving out so many points that a drawing is smaller would bend them visibly.
FIGURES = {
    "figure_3": Shown(("MSE", "NLL", "SKCE (biased)", "p-value"), 10, 1500, dots=False),
    "figure_12": Shown(
        ("NLL", "MSE", "pinball", "SKCE (unbiased)", "SKCE (biased)", "p-value"), 0, 5000, dots=True
    ),
}
MOST_STEPS = 400  # of the edges of a band: shorter ones could hardly be seen


class Axis(NamedTuple):
    """What is written beside a statistic, the scale of its values, and chosen ticks."""

    label: str
    scale: dict[str, Any]
    ticks: tuple[float, ...] = ()


# The NLL and the unbiased SKCE have both signs and many orders of magnitude.
AXES = {
    "NLL": Axis(
        "average NLL",
        {"value": "asinh", "linear_width": 2},
        (-10, 0, 10, 100, 1e4, 1e6, 1e8, 1e10, 1e12),
    ),
    "MSE": Axis("MSE", {"value": "log"}),
    "pinball": Axis("average pinball loss", {"value": "log"}),
    "SKCE (unbiased)": Axis(
        "SKCE$_{k,n}$ (unbiased)",
        {"value": "asinh", "linear_width": 0.003},
        (-0.01, 0, 0.01, 0.1, 1),
    ),
    "SKCE (biased)": Axis("SKCE$_k$ (biased)", {"value": "log"}),
    "p-value": Axis("$p$-value (bootstrap)", {"value": "linear"}),
}


class Style(NamedTuple):
    """Colours of the networks and of their ensemble, and what the data are called."""

    networks: str
    ensemble: str
    label: str


# The colours of the paper, as far as the palette has them: green and orange, blue and purple.
STYLES = {
    "train": Style(COLORS[2], COLORS[1], "training data"),
    "test": Style(COLORS[0], COLORS[8], "test data"),
}


def _band(iterations: np.ndarray, networks: np.ndarray) -> tuple[np.ndarray, ...]:
    """Places, lower and upper edge of the range of the networks, in a file of moderate size.

    Over several iterations it is the range of all of them, so that no value is outside.
    """
    step = -(-iterations.size // MOST_STEPS)
    starts = np.arange(0, iterations.size, step)
    low = np.minimum.reduceat(networks.min(1), starts)
    high = np.maximum.reduceat(networks.max(1), starts)
    return iterations[starts], low, high


def _draw(
    axes: Axes, results: Results, name: str, split: str, published: Published, shown: range
) -> None:
    style, iterations = STYLES[split], np.array(shown)
    networks = results.networks[split][name][iterations]
    ensemble = results.ensemble[split][name][iterations]
    color, width = style.networks, 0.9
    places, low, high = _band(iterations, networks)
    axes.fill_between(
        *(places, low, high),
        color=color,
        alpha=0.2,
        linewidth=0,
        label=f"range of the networks, {style.label}",
    )
    label = f"mean of the networks, {style.label}"
    axes.plot(iterations, networks.mean(1), color=color, linewidth=width, label=label)
    label = f"ensemble, {style.label}"
    axes.plot(iterations, ensemble, color=style.ensemble, linewidth=width, label=label)
    points = [
        (int(row["iteration"]), float(row["estimate"]))
        for row in published or []
        if (row["dataset"], row["statistic"]) == (split, name) and int(row["iteration"]) in shown
    ]
    if points:
        label = f"published networks, {style.label}"
        look = {"color": color, "markersize": 4, "zorder": 3, "label": label, "clip_on": False}
        axes.plot(*zip(*points, strict=True), "x", **look)


def _plotted(
    results: Results, published: Published, names: tuple[str, ...], shown: range
) -> Figure:
    """A panel for each statistic."""
    columns = len(names) // 2
    figure = Figure(figsize=(3.6 * columns, 6.4), layout="constrained")
    panels = figure.subplots(2, columns, sharex=True)
    for axes, name in zip(panels.flat, names, strict=True):
        for split in results.splits:
            _draw(axes, results, name, split, published, shown)
        label, scale, ticks = AXES[name]
        axes.set_yscale(**scale)
        if ticks:
            low, high = axes.get_ylim()
            axes.set_yticks([tick for tick in ticks if low < tick < high])
        axes.set(ylabel=label, xlim=(shown[0], shown[-1]))
        if name == "p-value":
            axes.set_ylim(-0.03, 1.03)
    for axes in panels[-1]:
        axes.set_xlabel("iteration of training")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def plot(folder: Path, results: Results, published: Published) -> None:
    """Fig. 3 and 12: statistics of the networks and of their ensemble over the iterations.

    Lines are means of the networks and values of the ensemble, bands the range of the networks,
    crosses the three published networks.

    Args:
        folder: where to.
        results: statistics in each iteration.
        published: rows of the published table, or None.
    """
    trained = results.networks["train"]["NLL"].shape[0] - 1
    for name, (statistics, first, last, dots) in FIGURES.items():
        last = min(last, trained)
        shown = range(min(first, last - 1), last + 1)
        save_figure(folder, name, _plotted(results, published, statistics, shown), dots=dots)
