"""Length scales chosen from the predictions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax import _checks, pairwise
from calibjax.pairwise.tiles import evaluate

_NUM_THRESHOLDS = 15  # thresholds counted in each pass over the pairs: four bits of the answer


def _pair_distance(distance: Callable, x: Any, y: Any) -> jax.Array:
    return distance(x, y)


def _as_integers(values: jax.Array) -> jax.Array:
    """Bit patterns of non-negative floats, which are ordered as the floats are."""
    integer = jnp.int64 if values.dtype == jnp.float64 else jnp.int32
    return lax.bitcast_convert_type(jnp.abs(values), integer)


def _count_below(args: Any, counts: jax.Array, xs: Any, ys: Any, mask: jax.Array) -> jax.Array:
    distance, thresholds = args
    keys = _as_integers(evaluate(_pair_distance, distance, xs, ys))
    return counts + jax.vmap(lambda t: jnp.sum(mask & (keys <= t)))(thresholds)


def _order_statistic(distance: Callable, xs: Any, rank: int, dtype: Any) -> jax.Array:
    """Smallest distance d with at least `rank` pairs i < j at distances up to d."""
    integer = jnp.int64 if dtype == jnp.float64 else jnp.int32
    largest = lax.bitcast_convert_type(jnp.array(jnp.inf, dtype), integer)

    def narrow(bracket: Any) -> Any:
        low, high = bracket
        step = (high - low) // (_NUM_THRESHOLDS + 1) + 1
        inner = jnp.arange(_NUM_THRESHOLDS, dtype=integer)
        # Written so that nothing exceeds the largest integer.
        thresholds = jnp.where(inner <= (high - low) // step, low + inner * step, high)
        counts = jnp.zeros(_NUM_THRESHOLDS, integer if integer == jnp.int64 else int)
        counts = pairwise.fold_pairs(_count_below, (distance, thresholds), counts, xs)
        reached = counts >= rank
        first = jnp.argmax(reached)
        last_below = jnp.where(reached[0], low, thresholds[jnp.maximum(first - 1, 0)] + 1)
        found = jnp.any(reached)
        new_low = jnp.where(found, last_below, thresholds[-1] + 1)
        return new_low, jnp.where(found, thresholds[first], high)

    bracket = jnp.array(0, integer), largest
    low, _ = lax.while_loop(lambda b: b[0] < b[1], narrow, bracket)
    return lax.bitcast_convert_type(low, dtype)


@functools.partial(jax.jit, static_argnames="ranks")
def _mean_of_order_statistics(distance: Callable, xs: Any, ranks: tuple[int, ...]) -> jax.Array:
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    dtype = jax.eval_shape(distance, first, first).dtype
    values = [_order_statistic(distance, xs, rank, dtype) for rank in sorted(set(ranks))]
    return sum(values) / len(values)


def median_heuristic(
    distance: Callable[[Any, Any], jax.Array], xs: Any, *, include_diagonal: bool = False
) -> jax.Array:
    """Median of the pairwise distances of a sample, a common choice of the length scale.

    A test stays exact with a length scale chosen from the predictions. One chosen with the
    targets must be chosen again in every redraw.

    Args:
        distance: a distance (symmetric, non-negative).
        xs: n ≥ 2 points: a batch of distributions, an array, or any pytree with leading axis n.
        include_diagonal: take the median over all n² entries of the distance matrix, the n zeros
            of its diagonal included, as W19's published experiments do, instead of over the
            n (n − 1) / 2 pairs.

    Returns:
        A scalar; zero if most of the points are equal, which no kernel accepts.

    Raises:
        ValueError: if there are fewer than two points, the points are not finite, or there are
            more pairs than the integers of this JAX configuration can count.

    Cost: selection by counting: 8 passes (float32; 16 in float64) over n²/2 distances,
    O(n + tile²) memory. Not differentiable.

    References: W19 §7 and App. J.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances
    >>> print(median_heuristic(distances.Euclidean(), jnp.array([0.0, 1.0, 3.0])))  # of 1, 2, 3
    2.0
    """
    if not callable(distance):
        raise TypeError(f"distance: expected a distance record, got {type(distance).__name__}")
    xs = _checks.as_arrays("xs", xs)
    n = _checks.leading_size("xs", xs, 2)
    _checks.record_values(xs, "xs")
    if n > 65536 and not jax.config.jax_enable_x64:
        raise ValueError(
            f"xs: expected at most 65536 points unless jax_enable_x64 is set, got {n}; "
            "the median of a random subset will do"
        )
    total = n * n if include_diagonal else n * (n - 1) // 2
    ranks = (total + 1) // 2, total // 2 + 1
    if include_diagonal:  # each pair counts twice, after the n zeros
        ranks = tuple(max(0, -(-(rank - n) // 2)) for rank in ranks)
    return _mean_of_order_statistics(distance, xs, ranks)
