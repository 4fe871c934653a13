"""What is searched for errors: views and how to redraw them, ranges in words, and classes."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibjax.evaluation.data import Data, shown_classes
from calibjax.evaluation.places import NUM_CELLS, View, cells_of, spans, unions
from calibjax.evaluation.shown import number
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Outcome = np.ndarray
Cells = Callable[[Outcome], np.ndarray]
NUM_BANDS = 199  # redraws for the band


@dataclasses.dataclass(frozen=True)
class Marginals:
    """Shares of the targets in cells.

    Attributes:
        cells: edges of the cells, [C + 1], or names of classes, [C].
        observed: shares of the targets, [C].
        predicted: means of the predicted probabilities, [C].
        low, high: ends of a band that contains all observed shares of a calibrated model with a
            probability of 95 %, [C].
        marked: ends of a range in which too many or too few targets were observed; or None.
    """

    cells: np.ndarray | tuple[str, ...]
    observed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray
    marked: tuple[float, float] | None = None


def with_band(
    counts: Sequence[np.ndarray],
    predicted: np.ndarray,
    num_samples: int,
    cells: np.ndarray | tuple[str, ...],
) -> Marginals:
    """The record, with a band of the largest standardised error of the redraws.

    Args:
        counts: of the targets, and of redrawn ones, [1 + B, C].
        predicted: mean predicted probabilities, [C].
        num_samples: n.
        cells: see `Marginals`.
    """
    shares = np.asarray(counts, float) / num_samples
    errors = np.abs(shares[1:] - predicted)
    deviations = np.sqrt(np.mean(errors**2, 0))
    largest = np.max(errors / np.where(deviations > 0, deviations, 1), 1)
    reach = np.quantile(largest, 0.95, method="higher") * deviations
    low, high = np.clip([predicted - reach, predicted + reach], 0, 1)
    return Marginals(cells, shares[0], predicted, low, high)


def draw_marginals(shown: Marginals, *, ax: "Axes | None" = None) -> "Axes":
    """Bars of what was observed, a line for what was predicted, and the band.

    Args:
        shown: what is drawn.
        ax: matplotlib Axes to draw on; by default that of a new figure.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    names = list(shown.cells) if isinstance(shown.cells, tuple) else None
    edges = np.arange(len(shown.cells) + 1) - 0.5 if names else np.asarray(shown.cells, float)
    with figures.figure(ax, (5.4, 3.6), ncols=4) as ax:
        ax.stairs(shown.observed, edges, fill=True, color=figures.BARS, label="observed")
        style = {"color": figures.BLUE, "linewidth": 1.0, "linestyle": "--"}
        ax.stairs(shown.low, edges, label="if calibrated (95 %)", **style)
        ax.stairs(shown.high, edges, **style)
        ax.stairs(shown.predicted, edges, color=figures.BLACK, linewidth=1.8, label="predicted")
        if shown.marked is not None:
            low, high = np.clip(shown.marked, edges[0], edges[-1])
            style = {"color": figures.RED, "alpha": 0.12, "linewidth": 0}
            ax.axvspan(low, high, label="worst place", **style)
        if names is not None:
            is_long = max(map(len, names)) * len(names) > 40
            ax.set_xticks(np.arange(len(names)), names, rotation=60 if is_long else 0)
        ax.set(xlabel="targets" if names is None else "class", ylabel="share", ylim=(0, None))
    return ax


@dataclasses.dataclass(frozen=True)
class Search:
    """Views of one data set.

    Attributes:
        views: where to look.
        draw: draws what `View.redrawn` takes.
        marginals: marginal distributions with a band from redraws; None of vectors.
    """

    views: tuple[View, ...]
    draw: Callable[[np.random.Generator], Outcome]
    marginals: Callable[[np.random.Generator], Marginals] | None = None


def by_levels(levels: np.ndarray) -> Cells:
    """The cells into which uniform numbers fall, between levels that each sample has, [n, C - 1].

    Costs the logarithm of the number of cells for each sample.
    """
    n, count = levels.shape
    rows = np.arange(n)
    joined = (np.clip(levels, 0, 1) + 2 * rows[:, None]).ravel()  # ascending over all samples

    def cells(uniform: np.ndarray) -> np.ndarray:
        return np.searchsorted(joined, uniform + 2 * rows, side="left") - count * rows

    return cells


def midpoints(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Numbers between values, up to which there are about these shares of them."""
    return np.unique(np.quantile(values, shares, method="midpoint"))


def between(low: float, high: float) -> str:
    """A range in words, one end of which may be infinite."""
    if math.isinf(low):
        return f"at most {number(high)}"
    return (
        f"above {number(low)}" if math.isinf(high) else f"between {number(low)} and {number(high)}"
    )


def inside(values: str, low: float, high: float) -> str:
    """Expression of which values are in (low, high]."""
    ends = [f"({values} > {low!r})"] * math.isfinite(low)
    ends += [f"({values} <= {high!r})"] * math.isfinite(high)
    return " & ".join(ends)


def ends_of_spans(edges: np.ndarray) -> list[tuple[float, float]]:
    """Both ends of all unions of neighbouring cells between these inner edges."""
    ends = [-math.inf, *map(float, edges), math.inf]
    return [(ends[start], ends[stop]) for start, stop in spans(len(ends) - 1)]


def of_classes(data: Data) -> Search:
    """Probabilities of the top label and of each class, and classes by the most probable one."""
    probs = data.known(data.predictions.class_probs).astype(float)
    probs = probs / probs.sum(1, keepdims=True)
    labels, n = data.known(data.targets), data.size
    own = "predictions.class_probs"
    top, shown = probs.argmax(1), list(shown_classes(probs))
    redrawn = by_levels(probs.cumsum(1)[:, :-1])
    views = [
        _of_probability(
            data, probs[:, c], lambda y, c=c: (y == c).astype(int), data.class_called(c), own, c
        )
        for c in shown
    ]
    if probs.shape[1] > 2:
        right = "the most probable class"
        views.append(
            _of_probability(data, probs.max(1), lambda y: (y == top).astype(int), right, own, None)
        )
        views.append(_confusions(data, probs, top, shown))

    every = [0, 1] if probs.shape[1] == 2 else shown

    def marginals(random: np.random.Generator) -> Marginals:
        names = tuple(data.class_called(c).removeprefix("class ") for c in every)
        drawn = (redrawn(random.uniform(size=n)) for _ in range(NUM_BANDS))
        size = probs.shape[1]
        counts = [np.bincount(y, data.shares, size)[every] for y in (labels, *drawn)]
        return with_band(counts, data.average(probs)[every], n, names)

    return Search(tuple(views), lambda random: redrawn(random.uniform(size=n)), marginals=marginals)


def _of_probability(
    data: Data, probs: np.ndarray, happened: Cells, name: str, own: str, c: int | None
) -> View:
    """One event, in the samples whose probability of it is between two numbers."""
    edges = midpoints(probs, np.arange(1, NUM_CELLS) / NUM_CELLS)
    size = len(edges) + 1
    values = f"jnp.max({own}, 1)" if c is None else f"{own}[:, {c}]"
    observed = f"targets == jnp.argmax({own}, 1)" if c is None else f"targets == {c}"
    pairs, regions = ends_of_spans(edges), unions(size)
    return View(
        cells=happened(data.known(data.targets)),
        probs=np.stack([1 - probs, probs], 1),
        redrawn=happened,
        bins=cells_of(probs, edges),
        regions=np.concatenate([regions, np.ones((1, size))]),
        events=np.array([[0.0, 1.0]]),
        region_words=(*(f"where its probability is {between(*pair)}" for pair in pairs), ""),
        event_words=(name,),
        region_calls=(*(inside(values, *pair) for pair in pairs), ""),
        event_calls=((observed, values),),
        weights=data.shares,
    )


def _confusions(data: Data, probs: np.ndarray, top: np.ndarray, shown: Sequence[int]) -> View:
    """Each class where another one, or itself, is the most probable."""
    identity, own = np.eye(probs.shape[1]), "predictions.class_probs"
    names = [data.class_called(c) for c in shown]
    return View(
        cells=data.known(data.targets),
        probs=probs,
        redrawn=lambda y: y,
        bins=top,
        regions=identity[shown],
        events=identity[shown],
        region_words=tuple(f"where {name} is the most probable one" for name in names),
        event_words=tuple(names),
        region_calls=tuple(f"jnp.argmax({own}, 1) == {c}" for c in shown),
        event_calls=tuple((f"targets == {c}", f"{own}[:, {c}]") for c in shown),
        weights=data.shares,
    )
