"""Length scales chosen from the predictions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax import _checks, pairwise
from calibjax.kernels.base import without_draws
from calibjax.pairwise.tiles import evaluate, length_of, split

# The distances of so few points are held, in O(n · tile) memory, instead of computed in each pass.
_MANY_POINTS = 8 * pairwise.TILE_SIZE

Fold = Callable[[Callable, Any, Any], Any]


def _pair_distance(distance: Callable, x: Any, y: Any) -> jax.Array:
    return distance(x, y)


def _as_integers(values: jax.Array) -> jax.Array:
    """Bit patterns of non-negative floats, which are ordered as the floats are."""
    integer = jnp.int64 if values.dtype == jnp.float64 else jnp.int32
    return lax.bitcast_convert_type(jnp.abs(values), integer)


def _keys(distance: Callable, xs: Any, ys: Any, mask: jax.Array) -> jax.Array:
    """Distances of a tile as integers; the largest one where a pair does not count."""
    keys = _as_integers(evaluate(_pair_distance, distance, xs, ys))
    return jnp.where(mask, keys, jnp.iinfo(keys.dtype).max)


def _count_upto(thresholds: jax.Array, counts: jax.Array, keys: jax.Array) -> jax.Array:
    upto = jax.vmap(lambda t: jnp.sum(keys <= t, dtype=jnp.int32))(thresholds)
    return counts + upto.astype(counts.dtype)


def _smallest_above(limit: jax.Array, smallest: jax.Array, keys: jax.Array) -> jax.Array:
    largest = jnp.iinfo(keys.dtype).max
    return jnp.minimum(smallest, jnp.min(jnp.where(keys > limit, keys, largest)))


def _fold_of(distance: Callable, xs: Any, integer: Any) -> tuple[Fold, int]:
    """How to go through all pairs, and how many thresholds to count in each pass.

    The former is a function (step, args, carry) that folds step(args, carry, keys) over the
    pairs. Three thresholds find two bits of the median; fifteen find four, which is worth it
    where the distances have to be computed again.
    """

    def fold_computed(step: Callable, args: Any, carry: Any) -> Any:
        def visit(args: Any, carry: Any, xs: Any, ys: Any, mask: jax.Array) -> Any:
            distance, args = args
            return step(args, carry, _keys(distance, xs, ys, mask))

        return pairwise.fold_pairs(visit, (distance, args), carry, xs)

    if length_of(xs) > _MANY_POINTS:
        return fold_computed, 15

    def store(args: Any, carry: Any, keys: jax.Array) -> Any:
        held, index = carry
        return lax.dynamic_update_index_in_dim(held, keys, index, 0), index + 1

    num_tiles, length = split(jnp.arange(length_of(xs)), pairwise.TILE_SIZE).shape
    held = jnp.zeros((num_tiles * (num_tiles + 1) // 2, length, length), integer)
    held, _ = fold_computed(store, (), (held, 0))
    return (lambda step, args, carry: step(args, carry, held)), 3


def _select(
    fold: Fold, num_thresholds: int, num_pairs: int, rank: int, integer: Any, largest: int
) -> Any:
    """Key of the distance of a given rank ≥ 1 among all pairs, and how many are not above it.

    Each pass counts the pairs below thresholds that divide the bracket of the answer. It ends
    when the bracket holds one pair, or one value.
    """

    def count(thresholds: jax.Array) -> jax.Array:
        return fold(_count_upto, thresholds, jnp.zeros(thresholds.shape, jnp.asarray(0).dtype))

    def narrow(bracket: Any) -> Any:
        low, high, below, upto = bracket
        step = (high - low) // (num_thresholds + 1) + 1
        inner = jnp.arange(num_thresholds, dtype=integer)
        # Written so that nothing exceeds the largest integer.
        thresholds = jnp.where(inner <= (high - low) // step, low + inner * step, high)
        edges = jnp.concatenate([low[None] - 1, thresholds, high[None]])
        counts = jnp.concatenate([below[None], count(thresholds), upto[None]])
        first = jnp.argmax(counts >= rank)  # at least 1, since fewer than `rank` are below
        return edges[first - 1] + 1, edges[first], counts[first - 1], counts[first]

    def undecided(bracket: Any) -> jax.Array:
        low, high, below, upto = bracket
        return (low < high) & (upto - below > 1)

    below, upto = jnp.asarray(0), jnp.asarray(num_pairs)
    start = jnp.array(0, integer), jnp.array(largest, integer), below, upto
    low, _, _, upto = lax.while_loop(undecided, narrow, start)
    return fold(_smallest_above, low - 1, jnp.array(jnp.iinfo(integer).max, integer)), upto


@functools.partial(jax.jit, static_argnames="ranks")
def _mean_of_order_statistics(distance: Callable, xs: Any, ranks: tuple[int, int]) -> jax.Array:
    """Mean of the distances of two ranks that differ by at most one; rank 0 is a zero."""
    first = jax.tree.map(lambda leaf: leaf[0], xs)
    dtype = jax.eval_shape(distance, first, first).dtype
    integer = jnp.int64 if dtype == jnp.float64 else jnp.int32
    if ranks[1] == 0:
        return jnp.zeros((), dtype)
    infinity = {jnp.int64: 0x7FF0000000000000, jnp.int32: 0x7F800000}[integer]
    n = length_of(xs)
    fold, num_thresholds = _fold_of(distance, xs, integer)
    rank = max(ranks[0], 1)
    key, upto = _select(fold, num_thresholds, n * (n - 1) // 2, rank, integer, infinity)
    following = fold(_smallest_above, key, jnp.array(jnp.iinfo(integer).max, integer))
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

    Cost: selection by counting in passes over n²/2 distances, which are computed once for n ≤ 1024
    and in every one of some 10 passes for larger n. O(n · tile) memory; up to 9 MB for each of many
    data sets under `vmap`. Not differentiable.

    References: W19 §7 and App. J.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances
    >>> print(median_heuristic(distances.Euclidean(), jnp.array([0.0, 1.0, 3.0])))  # of 1, 2, 3
    2.0
    """
    _checks.function("distance record", "distance", distance, "p", "q")
    _checks.no_plain_objects("distance", distance)
    _checks.truth_value("include_diagonal", include_diagonal)
    xs = _checks.as_arrays("xs", without_draws(xs))
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
