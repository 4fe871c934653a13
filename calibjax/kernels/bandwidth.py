"""Length scales chosen from the predictions."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import T
from calibjax.distances import Distance
from calibjax.kernels.base import without_draws
from calibjax.kernels.line import Line, line_of, pair_distance
from calibjax.operators.selection import order_statistics

Metric = Callable[[T, T], jax.Array]
_FEW_POINTS = 1024  # whose distances are held
_BATCH = 4096  # pairs at once


def median_of_distances(
    distance: Metric[T], xs: T, *, include_diagonal: bool = False
) -> tuple[jax.Array, Any, tuple[int, int]]:
    """`median_heuristic` of checked points, NaN if all are equal, the number of zeros, and ranks.

    The ranks are those of the median among the pairs, where rank 0 is a zero. The distances of few
    points that are known are ordered by NumPy: the program that counts them, a tile at a time,
    takes longer to compile.
    """
    n = checks.leading_size("xs", xs)
    total = n * n if include_diagonal else n * (n - 1) // 2
    ranks = (total + 1) // 2, total // 2 + 1
    if include_diagonal:  # each pair counts twice, after the n zeros
        ranks = max(0, -(-(ranks[0] - n) // 2)), max(0, -(-(ranks[1] - n) // 2))
    if n > _FEW_POINTS and (line := known_line(distance, xs)) is not None:
        low, high, zeros = _of_line(np.asarray(line.positions), ranks)
    elif n <= _FEW_POINTS and checks.is_outermost(distance, xs):
        values = np.sort(_distances(distance, xs, np.triu_indices(n, 1)))  # NaN are the last ones
        zeros = np.sum(values == 0)
        places = list(_ranks_of_positive(ranks, zeros, values.size))
        low, high = np.pad(values, 1, constant_values=(0, np.nan))[places]
        low = values[-1] if np.isnan(values[-1]) else low
    else:
        low, high, zeros = _counted(distance, xs, tuple(map(jnp.asarray, ranks)))
    return jax.device_put(low / 2 + high / 2), zeros, ranks  # without a program


def _ranks_of_positive(ranks: tuple[int, int], zeros: int, total: int) -> tuple[int, int]:
    """The ranks, or those of the median of the positive distances if the values of both are 0."""
    half = zeros + (total - zeros + 1) // 2, zeros + (total - zeros) // 2 + 1
    return half if zeros >= ranks[1] else ranks


def known_line(distance: Any, xs: object) -> Line | None:
    """The line on which concrete points lie, if they do."""
    is_known = isinstance(distance, Distance) and checks.is_outermost(distance, xs)
    return line_of(distance, xs) if is_known else None


def _of_line(positions: np.ndarray, ranks: tuple[int, int]) -> tuple[Any, Any, int]:
    """Distances of two ranks, and the number of zeros, of ascending points on a line.

    By halving an interval of distances, in O(n log n) each time.
    """
    x, n, dtype = positions.astype(np.float64), len(positions), positions.dtype.type

    def ends(distance: float) -> np.ndarray:
        """Up to which point the pairs of each with later ones have at most this distance."""
        return np.maximum(np.searchsorted(x, x + distance, side="right"), np.arange(1, n + 1))

    def number(stops: np.ndarray) -> int:
        return int(np.sum(stops)) - n * (n + 1) // 2

    zeros = number(ends(0.0))
    ranks = _ranks_of_positive(ranks, zeros, n * (n - 1) // 2)
    low, high = 0.0, 2 * (x[-1] - x[0]) * (zeros < ranks[0])
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (low, middle) if number(ends(middle)) >= ranks[0] else (middle, high)
    stops = ends(high)
    first, following = np.max(x[stops - 1] - x), np.append(x, np.nan)[stops] - x
    second = first if number(stops) >= ranks[1] else np.fmin.reduce(following)  # NaN if none is
    return dtype(first), dtype(second), zeros


@jax.jit
def _distances(distance: Metric[T], xs: T, pairs: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Those of the pairs of points with these indices."""

    def of_pair(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        return distance(*(jax.tree.map(lambda leaf, i=i: leaf[i], xs) for i in pair))

    return jax.lax.map(of_pair, pairs, batch_size=_BATCH)


@jax.jit
def _counted(
    distance: Metric[T], xs: T, ranks: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Distances of two ranks, and the number of zeros, by counting."""
    positive = jnp.maximum(ranks[0], 1), ranks[1]
    low, high, zeros = order_statistics(pair_distance, distance, xs, positive)
    low = jnp.where(ranks[0] == 0, 0, low)
    # Distances from a NaN point are NaN, which the ranks of the other distances do not show.
    is_nan = [jnp.any(jnp.isnan(leaf)) for leaf in jax.tree.leaves(xs)]
    return jnp.where(functools.reduce(jnp.logical_or, is_nan), jnp.nan, low), high, zeros


def _metric(name: str, value: Any, _: Seen) -> Any:
    checks.no_plain_objects(name, value)
    return checks.distance_values(value, name)


@checked(
    distance=_metric, xs=lambda name, value, seen: checks.points(name, without_draws(value), 2)
)
def median_heuristic(distance: Metric[T], xs: T, *, include_diagonal: bool = False) -> jax.Array:
    """Median of the pairwise distances in a sample, a common choice of the length scale.

    A test stays exact with a length scale chosen from the predictions. One chosen with the
    targets must be chosen again in every redraw.

    If most pairs of points are equal, such as the predictions of a decision tree, the median is
    zero, which no kernel accepts. Then the median of the positive distances is returned, with a
    warning. (The mean of all distances is positive, too, but vanishes with the proportion of
    distinct points.)

    Args:
        distance: a distance (symmetric, non-negative).
        xs: n ≥ 2 points: a batch of distributions, an array, or any pytree with leading axis n.
        include_diagonal: take the median over all n² entries of the distance matrix, the n zeros
            of its diagonal included, as W19's published experiments do, instead of over the
            n (n − 1) / 2 pairs.

    Returns:
        A positive scalar. Traced points give the same value without the warning, and NaN if all
        of them are equal.

    Raises:
        ValueError: if there are fewer than two points, the points are not finite, all are equal,
            or there are more pairs than the integers of this JAX configuration can count.

    Cost: selection by counting in about 5, at most 16, passes over n²/2 distances, each about as
    expensive as `skce` with that distance, and O(n · tile) memory. Of n ≤ 1024 points whose values
    are known the distances are stored; on a line it takes O(n log² n) in total. Not differentiable.

    References: W19 §7 and App. J.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances
    >>> print(median_heuristic(distances.Euclidean(), jnp.array([0.0, 1.0, 3.0])))  # of 1, 2, 3
    2.0
    """
    n = checks.leading_size("xs", xs)
    if n > 65536 and not checks.has_64_bits() and known_line(distance, xs) is None:
        raise ValueError(f"xs: expected at most 65536 points without jax_enable_x64, got {n}")
    value, zeros, ranks = median_of_distances(distance, xs, include_diagonal=include_diagonal)
    value = checks.nan_with(value, distance, xs)  # ranks do not propagate NaN
    if not checks.is_concrete(value, zeros):
        return value
    if zeros == n * (n - 1) // 2:
        raise ValueError("xs: expected points that differ, got distances of zero")
    checks.refuse_where(np.isnan(value), "distance", "numbers for these points", value)
    if zeros >= ranks[1]:
        warnings.warn(
            f"xs: {zeros} of {n * (n - 1) // 2} pairs of points have a distance of zero; taking "
            f"the median of the positive distances instead, {value:.4g}",
            stacklevel=3,
        )
    return value
