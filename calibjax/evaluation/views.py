"""What is searched for errors: views and how to redraw them, ranges in words, and classes."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from calibjax.evaluation.data import Data, shown_classes
from calibjax.evaluation.places import NUM_CELLS, View, cells_of, spans, unions
from calibjax.evaluation.shown import number

Outcome = np.ndarray
Cells = Callable[[Outcome], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Search:
    """Views of one data set.

    Attributes:
        views: where to look.
        draw: draws what `View.redrawn` takes.
    """

    views: tuple[View, ...]
    draw: Callable[[np.random.Generator], Outcome]


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
    n = data.size
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

    return Search(tuple(views), lambda random: redrawn(random.uniform(size=n)))


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
