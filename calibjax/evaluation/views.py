"""What is searched for errors: views and how to redraw them, and words and calls of ranges."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from calibjax.evaluation.marginals import Marginals
from calibjax.evaluation.places import View, spans
from calibjax.evaluation.table import number

Outcome = np.ndarray
Cells = Callable[[Outcome], np.ndarray]


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
