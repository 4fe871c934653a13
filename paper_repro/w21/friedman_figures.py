"""Figures of W21 §5.2 and App. A.3, in the axes and the layout of the paper."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from experiments.harness.figures import COLORS, add_legend, panels, save_figure
from paper_repro.w21.friedman_networks import NUM_NETWORKS
from paper_repro.w21.friedman_published import Curves


class Shown(NamedTuple):
    """The statistics of a figure in rows, and its first and last iteration."""

    statistics: tuple[tuple[str, ...], ...]
    first: int
    last: int


FIGURES = {
    "figure_3": Shown((("MSE", "NLL"), ("SKCE (biased)", "p-value")), 10, 1500),
    "figure_12": Shown(
        (("MSE", "SKCE (unbiased)"), ("NLL", "SKCE (biased)"), ("pinball", "p-value")), 0, 5000
    ),
}
# The authors draw log₁₀ x, asinh x and asinh 1000 x.
SCALES: dict[str, dict[str, Any]] = {
    "NLL": {"value": "asinh", "linear_width": 1},
    "MSE": {"value": "log"},
    "pinball": {"value": "log"},
    "SKCE (unbiased)": {"value": "asinh", "linear_width": 0.001},
    "SKCE (biased)": {"value": "log"},
    "p-value": {"value": "linear"},
}
TICKS = {
    "NLL": (-10, 0, 10, 100, 1e4, 1e6, 1e8, 1e10, 1e12),
    "SKCE (unbiased)": (-0.01, -0.001, 0, 0.001, 0.01, 0.1, 1),
}
TITLES = {"train": "training data", "test": "test data"}
LINE: dict[str, Any] = {"linewidth": 0.9}


def _part(curves: Curves, shown: Shown) -> np.ndarray:
    """Places of the iterations of a figure."""
    first, last = np.searchsorted(curves.iterations, (shown.first, shown.last + 1))
    return np.arange(first, last)


def _draw(axes: Axes, ours: Curves, published: Curves, shown: Shown, name: str) -> None:
    """One statistic on training and test data: mean and range of networks, and the ensemble.

    Lines are ours, markers are the published values.
    """
    here, there = _part(ours, shown), _part(published, shown)
    x, their_x = ours.iterations[here], published.iterations[there]
    marks: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4, "zorder": 1}
    axes.plot([], [], color="0.4", label="published", **marks)
    for i, (split, title) in enumerate(TITLES.items()):
        networks = ours.networks[split][name][here]
        count = networks.shape[1]
        color, ensemble_color = COLORS[2 * i : 2 * i + 2]
        band = {"color": color, "alpha": 0.2, "linewidth": 0}
        axes.fill_between(x, networks.min(1), networks.max(1), **band)
        axes.plot(x, networks.mean(1), color=color, label=f"{title}: {count} networks", **LINE)
        ensemble = ours.ensemble[split][name][here]
        axes.plot(x, ensemble, color=ensemble_color, label=f"{title}: ensemble", **LINE)
        theirs = published.networks[split][name][there][:, :count]
        axes.plot(their_x, theirs.mean(1), color=color, **marks)
        if count == NUM_NETWORKS:
            theirs = published.ensemble[split][name][there]
            axes.plot(their_x, theirs, color=ensemble_color, **marks)
    axes.set_yscale(**SCALES[name])
    if name in TICKS:
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in TICKS[name] if low < tick < high])
    axes.set(title=name, xlim=(x[0], x[-1]))


def plot(folder: Path, ours: Curves, published: Curves) -> None:
    """Fig. 3 and 12: statistics of the networks and of their ensemble over the iterations.

    Args:
        folder: where to.
        ours: at the evaluated iterations.
        published: those of the authors, at some iterations.
    """
    for figure_name, shown in FIGURES.items():
        rows, columns = len(shown.statistics), len(shown.statistics[0])
        figure, grid = panels(rows, columns, 1.9, sharex=True)
        for axes, name in zip(grid.flat, sum(shown.statistics, ()), strict=True):
            _draw(axes, ours, published, shown, name)
        for axes in grid[-1]:
            axes.set_xlabel("iteration")
        add_legend(figure, 3)
        save_figure(folder, figure_name, figure, dots=True)
