"""Figures of W21 §5.2 and App. A.3."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure
from paper_repro.w21.friedman_tables import Curves, Results, comparable


class Shown(NamedTuple):
    """The statistics of a figure, how many are side by side, and its first and last iteration."""

    statistics: tuple[str, ...]
    columns: int
    first: int
    last: int


# Fig. 3 is the part of Fig. 12 where the networks are best. So many points are drawn in pixels:
# leaving out enough of them for a smaller drawing would bend the lines visibly.
FIGURES = {
    "figure_3": Shown(("MSE", "NLL", "SKCE (biased)", "p-value"), 4, 10, 1500),
    "figure_12": Shown(
        ("NLL", "MSE", "pinball", "SKCE (unbiased)", "SKCE (biased)", "p-value"), 3, 0, 5000
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
    """Colours of our networks, of our ensemble and of what the authors have."""

    networks: str = COLORS[0]
    ensemble: str = COLORS[1]
    authors: str = "0.15"


STYLE = Style()
SPLITS = {"train": "training data", "test": "test data"}


def _band(iterations: np.ndarray, networks: np.ndarray) -> tuple[np.ndarray, ...]:
    """Places, lower and upper edge of the range of the networks, in a file of moderate size.

    Over several iterations it is the range of all of them, so that no value is outside.
    """
    step = -(-iterations.size // MOST_STEPS)
    starts = np.arange(0, iterations.size, step)
    low = np.minimum.reduceat(networks.min(1), starts)
    high = np.maximum.reduceat(networks.max(1), starts)
    return iterations[starts], low, high


def _draw_authors(
    axes: Axes, curves: tuple[Curves, Curves], place: tuple[str, str], shown: range
) -> None:
    split, name = place
    iterations = np.array(shown)
    networks, ensemble = (comparable(name, part[split][name][iterations]) for part in curves)
    look: dict[str, Any] = {"color": STYLE.authors, "alpha": 0.25, "linewidth": 0}
    label = f"the authors' networks 1 to {networks.shape[1]}, range"
    axes.fill_between(*_band(iterations, networks), label=label, **look)
    look = {"color": STYLE.authors, "linewidth": 0.9, "label": "the authors' ensemble"}
    axes.plot(iterations, ensemble, **look)


def _draw(axes: Axes, results: Results, place: tuple[str, str], shown: range) -> None:
    split, name = place
    iterations = np.array(shown)
    networks = results.networks[split][name][iterations]
    color, width = STYLE.networks, 0.9
    look: dict[str, Any] = {"color": color, "alpha": 0.25, "linewidth": 0}
    label = f"our {networks.shape[1]} networks, range"
    axes.fill_between(*_band(iterations, networks), label=label, **look)
    for summary, values, dashes in (
        ("mean", networks.mean(1), "-"),
        ("median", np.median(networks, 1), ":"),
    ):
        label = f"our networks, {summary}"
        axes.plot(iterations, values, dashes, color=color, linewidth=width, label=label)
    ensemble = results.ensemble[split][name][iterations]
    axes.plot(iterations, ensemble, color=STYLE.ensemble, linewidth=width, label="our ensemble")


def _finished(axes: Axes, place: tuple[str, str], shown: range) -> None:
    """Scales and title of a panel."""
    split, name = place
    label, scale, ticks = AXES[name]
    axes.set_yscale(**scale)
    if ticks:
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in ticks if low < tick < high])
    axes.set(title=f"{label}, {SPLITS[split]}", xlim=(shown[0], shown[-1]))
    if name == "p-value":
        axes.set_ylim(-0.03, 1.03)


def _plotted(
    results: Results, curves: tuple[Curves, Curves] | None, figure_of: Shown, shown: range
) -> Figure:
    """A panel for each statistic and each part of the data, which are below one another."""
    names, columns = figure_of.statistics, figure_of.columns
    rows = [names[i : i + columns] for i in range(0, len(names), columns)]
    places = [(split, name) for row in rows for split in results.splits for name in row]
    size = len(places) // columns
    figure = Figure(figsize=(2.9 * columns + 0.5, 2.4 * size + 0.6), layout="constrained")
    panels = figure.subplots(size, columns, sharex=True)
    for axes, place in zip(panels.flat, places, strict=True):
        if curves is not None:
            _draw_authors(axes, curves, place, shown)
        _draw(axes, results, place, shown)
        _finished(axes, place, shown)
    for axes in panels[-1]:
        axes.set_xlabel("iteration of training")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def plot(folder: Path, results: Results, curves: tuple[Curves, Curves] | None) -> None:
    """Fig. 3 and 12: statistics of the networks and of their ensemble over the iterations.

    Lines are means and medians of our networks and the values of our ensemble, the band is their
    range; behind them are the range of the authors' networks and their ensemble.

    Args:
        folder: where to.
        results: statistics in each iteration.
        curves: those of the authors' networks and of their ensemble, or None.
    """
    trained = results.networks["train"]["NLL"].shape[0] - 1
    for name, figure_of in FIGURES.items():
        last = min(figure_of.last, trained)
        shown = range(min(figure_of.first, last - 1), last + 1)
        save_figure(folder, name, _plotted(results, curves, figure_of, shown), dots=True)
