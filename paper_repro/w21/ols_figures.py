"""Figures of W21 App. A.1."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from experiments.harness.figures import COLORS, HEAT, WIDTH, save_figure

NUM_CELLS = 200  # of a heat map, along each axis
LIMIT = 2.0  # of the targets that are shown, on both sides
# As in the paper; the density of the data is unbounded where their variance is zero, at X = −1.
DENSITIES = Normalize(0, 1)
DATA_COLOR = COLORS[1]


def grid(number: int, limit: float) -> np.ndarray:
    """Midpoints of equal cells between −limit and limit, [number]."""
    return limit * ((2 * np.arange(number) + 1) / number - 1)


class Conditional(NamedTuple):
    """A distribution of the target given the feature, with its name.

    Attributes:
        title: what is written above it.
        density: p(y | x) on the grids of features and targets, [features, targets].
    """

    title: str
    density: np.ndarray


def _plot_density(axes: Axes, conditional: Conditional, training: Any) -> Any:
    """A heat map of p(y | x), with the training data."""
    picture = axes.imshow(
        conditional.density.T,
        origin="lower",
        extent=(-1, 1, -LIMIT, LIMIT),
        aspect="auto",
        cmap=HEAT,
        interpolation="none",  # the cells themselves are a smaller file than what is drawn of them
        norm=DENSITIES,
    )
    style: dict[str, Any] = {"color": DATA_COLOR, "markeredgecolor": "black"}
    axes.plot(*training, "o", markersize=3.5, markeredgewidth=0.4, label="training data", **style)
    axes.set(xlabel="feature $x$", title=conditional.title, box_aspect=1)
    return picture


def _plot_densities(figure: Figure | SubFigure, conditionals: Any, training: Any) -> None:
    """Both heat maps, side by side, with one colour bar."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, conditional in zip(panels, conditionals, strict=True):
        picture = _plot_density(axes, conditional, training)
    panels[0].set(ylabel="target $y$")
    figure.colorbar(picture, ax=panels, label="density $p(y | x)$", extend="max", shrink=0.75)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center")


def _plot_quantiles(figure: Figure | SubFigure, levels: np.ndarray) -> None:
    """Empirical distribution function of the predicted probabilities P(Y ≤ y)."""
    axes = figure.subplots()
    heights = np.arange(1, levels.size + 1) / levels.size
    axes.plot([0, 1], [0, 1], color=COLORS[2], label="calibrated")
    steps = np.concatenate([[0], np.sort(levels), [1]]), np.concatenate([[0], heights, [1]])
    axes.step(*steps, where="post", color=DATA_COLOR, label="validation data")
    axes.set(xlabel=r"quantile level $\tau$", ylabel="cumulative probability", box_aspect=1)
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center")


def plot(
    folder: Path, conditionals: Sequence[Conditional], training: Any, levels: np.ndarray
) -> None:
    """Fig. 4, Fig. 5, and both side by side as Fig. 1.

    Args:
        folder: where to.
        conditionals: the distribution of the data and the predicted one.
        training: features and targets, [n] each.
        levels: predicted probabilities P(Y ≤ y) of the validation data.
    """
    both = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    left, right = both.subfigures(1, 2, width_ratios=(1.9, 1))
    wide = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    narrow = Figure(figsize=(WIDTH / 2, 3.8), layout="constrained")
    for figure in (left, wide):
        _plot_densities(figure, conditionals, training)
    for figure in (right, narrow):
        _plot_quantiles(figure, levels)
    for name, figure in (("figure_1", both), ("figure_4", wide), ("figure_5", narrow)):
        save_figure(folder, name, figure)
