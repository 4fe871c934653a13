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


def _keys(distance: Callable, xs: Any, ys: Any) -> jax.Array:
    return _as_integers(evaluate(_pair_distance, distance, xs, ys))


def _count_below(args: Any, counts: jax.Array, xs: Any, ys: Any, mask: jax.Array) -> jax.Array:
    distance, thresholds = args
    keys = jnp.where(mask, _keys(distance, xs, ys), jnp.iinfo(thresholds.dtype).max)
    below = jax.vmap(lambda t: jnp.sum(keys <= t, dtype=jnp.int32))(thresholds)
    return counts + below.astype(counts.dtype)


def _smallest_above(args: Any, smallest: jax.Array, xs: Any, ys: Any, mask: jax.Array) -> Any:
    distance, limit = args
    keys = _keys(distance, xs, ys)
    keys = jnp.where(mask & (keys > limit), keys, jnp.iinfo(keys.dtype).max)
    return jnp.minimum(smallest, jnp.min(keys))


def _select(distance: Callable, xs: Any, rank: int, integer: Any, largest: int) -> Any:
    """Key of the distance of a given rank ≥ 1 among all pairs, and how many are not above it.

    Each pass counts the pairs below thresholds that divide the bracket of the answer. It ends
    when the bracket holds one pair, or one value.
    """

    def count(thresholds: jax.Array) -> jax.Array:
        counts = jnp.zeros(thresholds.shape, jnp.asarray(0).dtype)
        return pairwise.fold_pairs(_count_below, (distance, thresholds), counts, xs)

    def narrow(bracket: Any) -> Any:
        low, high, below, upto = bracket
        step = (high - low) // (_NUM_THRESHOLDS + 1) + 1
        inner = jnp.arange(_NUM_THRESHOLDS, dtype=integer)
        # Written so that nothing exceeds the largest integer.
        thresholds = jnp.where(inner <= (high - low) // step, low + inner * step, high)
        edges = jnp.concatenate([low[None] - 1, thresholds, high[None]])
        counts = jnp.concatenate([below[None], count(thresholds), upto[None]])
        first = jnp.argmax(counts >= rank)  # at least 1, since fewer than `rank` are below
        return edges[first - 1] + 1, edges[first], counts[first - 1], counts[first]

    def undecided(bracket: Any) -> jax.Array:
        low, high, below, upto = bracket
        return (low < high) & (upto - below > 1)

    n = jax.tree.leaves(xs)[0].shape[0]
    below, upto = jnp.asarray(0), jnp.asarray(n * (n - 1) // 2)
    start = jnp.array(0, integer), jnp.array(largest, integer), below, upto
    low, _, _, upto = lax.while_loop(undecided, narrow, start)
    top = jnp.array(jnp.iinfo(integer).max, integer)
    return pairwise.fold_pairs(_smallest_above, (distance, low - 1), top, xs), upto


@functools.partial(jax.jit, static_argnames="ranks")
def _mean_of_order_statistics(distance: Callable, xs: Any, ranks: tuple[int, int]) -> jax.Array:
    """Mean of the distances of two ranks that differ by at most one; rank 0 is a zero."""
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    dtype = jax.eval_shape(distance, first, first).dtype
    integer = jnp.int64 if dtype == jnp.float64 else jnp.int32
    if ranks[1] == 0:
        return jnp.zeros((), dtype)
    infinity = {jnp.int64: 0x7FF0000000000000, jnp.int32: 0x7F800000}[integer]
    key, upto = _select(distance, xs, max(ranks[0], 1), integer, infinity)
    top = jnp.array(jnp.iinfo(integer).max, integer)
    following = pairwise.fold_pairs(_smallest_above, (distance, key), top, xs)
    lower = lax.bitcast_convert_type(key, dtype)
    upper = lax.bitcast_convert_type(jnp.where(upto >= ranks[1], key, following), dtype)
    if ranks[0] == 0:
        return lower / 2
    return (lower + upper) / 2 if ranks[0] < ranks[1] else lower


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

    Cost: selection by counting: some 10 passes over n²/2 distances, O(n + tile²) memory. Not
    differentiable.

    References: W19 §7 and App. J.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances
    >>> print(median_heuristic(distances.Euclidean(), jnp.array([0.0, 1.0, 3.0])))  # of 1, 2, 3
    2.0
    """
    _checks.function("distance record", "distance", distance)
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
