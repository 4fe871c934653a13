"""Order statistics of a non-negative pair function, by counting."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core.arithmetic import on_cpu
from calibjax.operators.tiles import (
    TILE_SIZE,
    Args,
    PairFunction,
    Point,
    evaluate,
    length_of,
    pairs,
    size_of,
    split,
    take,
)

_NUM_KEPT = 8  # values that the last pass collects
_NUM_DRAWN = 2**14  # pairs that are looked at first
# Where to look within a bracket, in standard deviations of a rank.
_OFFSETS = (-4.0, -2.0, -1.0, -0.3, 0.3, 1.0, 2.0, 4.0)
_NUM_PARTS = 6  # each pass narrows a bracket by at least this factor

Carry = TypeVar("Carry")
Bracket = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def _as_keys(values: jax.Array) -> jax.Array:
    """Bit patterns of non-negative floats, which are ordered as the floats are."""
    integer: Any = jnp.int64 if values.dtype == jnp.float64 else jnp.int32
    return lax.bitcast_convert_type(jnp.abs(values), integer)


def _fold_keys(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    tile_size: int,
    step: Callable[[Carry, jax.Array], Carry],
    carry: Carry,
) -> Carry:
    """Folds step(carry, keys) over tiles of pairs; where i ≥ j keys are the largest integer."""
    tiles = split(xs, tile_size)
    local = jnp.arange(jax.tree.leaves(tiles)[0].shape[-1])

    def visit(carry: Carry, pair: jax.Array) -> tuple[Carry, None]:
        x, y = (lax.optimization_barrier(take(tiles, index)) for index in pair)
        rows, columns = (index * local.size + local for index in pair)
        is_pair = (rows[:, None] < columns) & (columns < length_of(xs))
        keys = _as_keys(evaluate(function, args, x, y))
        keys = jnp.where(is_pair, keys, jnp.iinfo(keys.dtype).max)
        return step(carry, lax.optimization_barrier(keys)), None

    return lax.scan(visit, carry, pairs(length_of(tiles)).reshape(-1, 2))[0]


def _quantiles(
    function: PairFunction[Args, Point], args: Args, xs: Point, number: int
) -> jax.Array:
    """Zero, and keys that cut some pairs from all over the data into parts of equal numbers."""
    n = length_of(xs)
    number_drawn = np.arange(min(_NUM_DRAWN, n * n))
    i = number_drawn * 104729 % n
    j = (i + 1 + number_drawn * 7919 % (n - 1)) % n
    one, two = (jax.tree.map(lambda leaf, k=k: leaf[k], xs) for k in (i, j))
    keys = jnp.sort(_as_keys(jax.vmap(function, (None, 0, 0))(args, one, two)))
    places = np.linspace(0, i.size - 1, number - 1).astype(int)
    return jnp.concatenate([jnp.zeros_like(keys[:1]), keys[places]])


def _thresholds_within(bracket: Bracket, rank: jax.Array, dtype: Any) -> jax.Array:
    """Keys around the place of a rank if the pairs were spread evenly over a bracket.

    The ends find a value that many pairs share; equal parts bound the number of passes.
    """
    low, high, below, upto = bracket
    width = high - low
    count = (upto - below).astype(dtype)
    offsets = jnp.asarray(_OFFSETS, dtype) * (0.5 * jnp.sqrt(count))
    place = jnp.clip(((rank - below).astype(dtype) - 0.5 + offsets) / count, 0, 1)
    # Rounding may exceed the largest integer.
    inner = jnp.minimum(place * width.astype(dtype), 0.99 * jnp.iinfo(low.dtype).max)
    parts = jnp.arange(_NUM_PARTS, dtype=low.dtype) * (width // _NUM_PARTS)
    return low + jnp.sort(jnp.minimum(jnp.append(inner.astype(low.dtype), parts), width - 1))


@functools.partial(jax.jit, static_argnames="function")
def order_statistics(
    function: PairFunction[Args, Point], args: Args, xs: Point, ranks: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Values of two ranks among those of all pairs, or among the positive ones.

    Each pass over all pairs counts those that are not above some thresholds, until a bracket of the
    answer holds few pairs, or one value. The last pass collects them.

    Args:
        function: symmetric pair function, (args, x, y) → scalar, without negative values.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n ≥ 2.
        ranks: (r, r) or (r, r + 1), counted from 1. If the values of both are zero, the ranks of
            the median of the positive values take their place.

    Returns:
        The two values, scalars (NaN if both are zero and none is positive), and the number of
        pairs whose value is zero.

    Cost: some 6 passes over n²/2 pairs, at most 16 for float32; O(n + tile²) memory.
    """
    tile_size = TILE_SIZE if on_cpu() else size_of(xs, None)
    fold = functools.partial(_fold_keys, function, args, xs, tile_size)
    thresholds = _quantiles(function, args, xs, len(_OFFSETS) + _NUM_PARTS)
    dtype = jnp.dtype(f"f{thresholds.itemsize}")
    infinity, largest = _as_keys(jnp.array(jnp.inf, dtype)), jnp.iinfo(thresholds.dtype).max
    num_pairs = length_of(xs) * (length_of(xs) - 1) // 2

    def wanted(zeros: jax.Array) -> jax.Array:
        positive = (num_pairs - zeros + 1) // 2, (num_pairs - zeros) // 2 + 1
        return jnp.where(zeros >= ranks[1], zeros + jnp.stack(positive), jnp.stack(ranks))

    def undecided(state: tuple[Bracket, jax.Array, jax.Array]) -> jax.Array:
        (low, high, below, upto), _, zeros = state
        return (zeros < 0) | (low < high) & (upto - below >= _NUM_KEPT)

    def narrow(state: tuple[Bracket, jax.Array, jax.Array]) -> Any:
        (low, high, below, upto), thresholds, zeros = state

        def add(counts: jax.Array, keys: jax.Array) -> jax.Array:
            columns = lax.map(lambda end: jnp.sum(keys <= end, 0, dtype=keys.dtype), thresholds)
            return counts + jnp.sum(columns, 1)

        counts = fold(add, jnp.zeros(thresholds.size, below.dtype))
        zeros = jnp.where(zeros < 0, counts[0], zeros)  # the first threshold at the first time
        rank = wanted(zeros)[0]
        ends = jnp.concatenate([low[None] - 1, thresholds, high[None]])
        counts = jnp.concatenate([below[None], counts, upto[None]])
        place = jnp.argmax(counts >= rank)  # at least 1, since fewer than `rank` are below
        bracket = ends[place - 1] + 1, ends[place], counts[place - 1], counts[place]
        return bracket, _thresholds_within(bracket, rank, dtype), zeros

    def smallest(kept: jax.Array, keys: jax.Array) -> jax.Array:
        def insert(kept: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            row = jnp.where(row > limit, row, largest)
            before = jnp.concatenate([jnp.full_like(row, -1)[None], kept[:-1]])
            return jnp.minimum(kept, jnp.maximum(before, row)), None

        return lax.scan(insert, kept, keys)[0]

    everything = jnp.zeros_like(infinity), infinity, jnp.asarray(0), jnp.asarray(num_pairs)
    start = everything, thresholds, jnp.asarray(-1)
    (low, high, below, upto), _, zeros = lax.while_loop(undecided, narrow, start)
    is_few = upto - below < _NUM_KEPT  # otherwise all of the bracket have the value low = high
    limit = jnp.where(is_few, low - 1, high)
    length = split(jnp.arange(length_of(xs)), tile_size).shape[1]
    kept = jnp.sort(fold(smallest, jnp.full((_NUM_KEPT, length), largest)).ravel())
    exists = (zeros < num_pairs) | (zeros < ranks[1])

    def value(rank: jax.Array) -> jax.Array:
        tied = jnp.where(upto >= rank, low, kept[0])
        key = jnp.where(is_few, kept[jnp.where(is_few, rank - below - 1, 0)], tied)
        return jnp.where(exists, lax.bitcast_convert_type(key, dtype), jnp.nan)

    lower, upper = wanted(zeros)
    return value(lower), value(upper), zeros
