"""Order statistics of a non-negative pair function, by counting."""

import functools
import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from calibjax._core.arithmetic import on_cpu
from calibjax._core.pytree import PyTree
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
_NUM_DRAWN = 2**16  # pairs that are looked at first
_BATCH = 1024  # of them at once
# Where to look, in standard deviations of a rank: in the drawn pairs, and within a bracket.
_DRAWN_OFFSETS = (-4.5, -2.5, -1.7, -1.2, -0.8, -0.45, -0.15, 0.15, 0.45, 0.8, 1.2, 1.7, 2.5, 4.5)
_OFFSETS = (-3.0, -1.5, -0.8, -0.25, 0.25, 0.8, 1.5, 3.0)
_NUM_PARTS = 6  # each pass narrows a bracket by at least this factor

Carry = TypeVar("Carry")
Bracket = tuple[jax.Array, jax.Array, jax.Array, jax.Array]
_State = tuple[Bracket, jax.Array, jax.Array]


def _integer_of(dtype: DTypeLike) -> DTypeLike:
    return jnp.int64 if dtype == jnp.float64 else jnp.int32


def _as_keys(values: jax.Array) -> jax.Array:
    """Bit patterns of non-negative floats, which are ordered as the floats are."""
    return lax.bitcast_convert_type(jnp.abs(values), _integer_of(values.dtype))


def _count_upto(thresholds: jax.Array, counts: jax.Array, keys: jax.Array) -> jax.Array:
    """Adds how many keys [rows, columns] are not above each threshold, [T, columns]."""

    def by_rows(keys: jax.Array) -> jax.Array:
        def add(i: jax.Array, counts: jax.Array) -> jax.Array:
            row = lax.dynamic_index_in_dim(keys, i, keepdims=False)
            return counts + (row <= thresholds[:, None])

        return lax.fori_loop(0, keys.shape[0], add, jnp.zeros(counts.shape, jnp.int32))

    def at_once(keys: jax.Array) -> jax.Array:
        return jnp.sum(keys <= thresholds[:, None, None], 1, dtype=jnp.int32)

    # A CPU evaluates a fused sum five times as slowly as the loop.
    return counts + (by_rows if on_cpu() else at_once)(keys)


def _keep_smallest(limit: jax.Array, kept: jax.Array, keys: jax.Array) -> jax.Array:
    """The smallest keys above a limit of each column, ascending, [kept, columns]."""
    largest = jnp.iinfo(keys.dtype).max
    keys = jnp.where(keys > limit, keys, largest)

    def by_rows(kept: jax.Array, keys: jax.Array) -> jax.Array:
        def insert(i: jax.Array, kept: jax.Array) -> jax.Array:
            row = lax.dynamic_index_in_dim(keys, i, keepdims=False)
            before = jnp.concatenate([jnp.full_like(row, -1)[None], kept[:-1]])
            return jnp.minimum(kept, jnp.maximum(before, row))

        return lax.fori_loop(0, keys.shape[0], insert, kept)

    def at_once(kept: jax.Array, keys: jax.Array) -> jax.Array:
        return jnp.sort(jnp.concatenate([kept, keys]), 0)[: kept.shape[0]]

    return (by_rows if on_cpu() else at_once)(kept, keys)


def _fold_keys(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    tile_size: int,
    step: Callable[..., Carry],
    limits: jax.Array,
    carry: Carry,
) -> Carry:
    """Folds step(limits, carry, keys) over the tiles of the pairs i < j.

    Keys are the largest integer where a pair does not count.
    """
    tiles = split(xs, tile_size)
    length = jax.tree.leaves(tiles)[0].shape[-1]
    local = jnp.arange(length)

    def visit(carry: Carry, pair: jax.Array) -> tuple[Carry, None]:
        x, y = (lax.optimization_barrier(take(tiles, index)) for index in pair)
        rows, columns = (index * length + local for index in pair)
        mask = (rows[:, None] < columns) & (columns < length_of(xs))
        keys = _as_keys(evaluate(function, args, x, y))
        return step(limits, carry, jnp.where(mask, keys, jnp.iinfo(keys.dtype).max)), None

    return lax.scan(visit, carry, pairs(length_of(tiles)).reshape(-1, 2))[0]


def _scrambled(x: jax.Array) -> jax.Array:
    """Integers that look random, the last steps of MurmurHash3."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * jnp.uint32(factor)
    return x ^ (x >> 16)


def _drawn_keys(
    function: PairFunction[Args, Point], args: Args, xs: Point, num_pairs: int
) -> jax.Array:
    """Keys of some pairs i ≠ j from all over the data, ascending."""
    n = length_of(xs)
    size = min(_NUM_DRAWN, -(-num_pairs // 16))
    shape = -(-size // _BATCH), min(size, _BATCH)
    numbers = _scrambled(jnp.arange(math.prod(shape), dtype=jnp.uint32)).reshape(shape)
    i = numbers % n
    j = (i + 1 + _scrambled(~numbers) % (n - 1)) % n

    def values(index: tuple[jax.Array, jax.Array]) -> jax.Array:
        one, two = (jax.tree.map(functools.partial(jnp.take, indices=i, axis=0), xs) for i in index)
        return _as_keys(jax.vmap(function, (None, 0, 0))(args, one, two))

    return jnp.sort(lax.map(values, (i, j)).reshape(-1))


def _thresholds_of_drawn(drawn: jax.Array, rank: jax.Array, num_pairs: int) -> jax.Array:
    """Zero, and keys around the rank's place in a sample: among the positive ones if it is zero."""
    size = drawn.size
    zeros = jnp.searchsorted(drawn, 0, side="right")
    place = jnp.asarray(rank / num_pairs * size, float)
    place = jnp.where(zeros > place, (zeros + size) / 2, place)
    offsets = jnp.asarray(_DRAWN_OFFSETS) * (0.5 * size**0.5)
    index = jnp.clip(place + offsets, 0, size - 1).astype(jnp.int32)
    return jnp.concatenate([jnp.zeros_like(drawn[:1]), drawn[index]])


def _thresholds_within(bracket: Bracket, rank: jax.Array, dtype: DTypeLike) -> jax.Array:
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
    parts = jnp.arange(1, _NUM_PARTS, dtype=low.dtype) * (width // _NUM_PARTS)
    inner = jnp.concatenate([jnp.zeros_like(low)[None], inner.astype(low.dtype), parts])
    return low + jnp.sort(jnp.append(jnp.minimum(inner, width - 1), width - 1))


def _narrowed(bracket: PyTree, thresholds: jax.Array, counts: jax.Array, rank: jax.Array) -> PyTree:
    low, high, below, upto = bracket
    edges = jnp.concatenate([low[None] - 1, thresholds, high[None]])
    counts = jnp.concatenate([below[None], counts, upto[None]])
    place = jnp.argmax(counts >= rank)  # at least 1, since fewer than `rank` are below
    return edges[place - 1] + 1, edges[place], counts[place - 1], counts[place]


@functools.partial(jax.jit, static_argnames="function")
def order_statistics(
    function: PairFunction[Args, Point], args: Args, xs: Point, ranks: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Values of two ranks among those of all pairs, or among the positive ones.

    A sample of the pairs says where to look. Each pass over all pairs then counts those that are
    not above some thresholds, until a bracket of the answer holds few pairs, or one value. The
    last pass collects them.

    Args:
        function: symmetric pair function, (args, x, y) → scalar, without negative values.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n ≥ 2.
        ranks: (r, r) or (r, r + 1), counted from 1. If the values of both are zero, the ranks of
            the median of the positive values take their place.

    Returns:
        The two values, scalars (NaN if both are zero and none is positive), and the number of
        pairs whose value is zero.

    Cost: some 5 passes over n²/2 pairs, at most 16 for float32; O(n · tile) memory.
    """
    tile_size = TILE_SIZE if on_cpu() else size_of(xs, None)
    one = take(xs, 0)
    dtype = jax.eval_shape(function, args, one, one).dtype
    n = length_of(xs)
    num_pairs = n * (n - 1) // 2
    length = split(jnp.arange(n), tile_size).shape[1]
    fold = functools.partial(_fold_keys, function, args, xs, tile_size)

    def wanted(zeros: jax.Array) -> tuple[jax.Array, jax.Array]:
        positive = (num_pairs - zeros + 1) // 2, (num_pairs - zeros) // 2 + 1
        is_zero = zeros >= ranks[1]
        first, second = (
            jnp.where(is_zero, zeros + p, r) for p, r in zip(positive, ranks, strict=True)
        )
        return first, second

    def undecided(state: _State) -> jax.Array:
        (low, high, below, upto), _, zeros = state
        return (zeros < 0) | (low < high) & (upto - below >= _NUM_KEPT)

    def narrow(state: _State) -> _State:
        bracket, thresholds, zeros = state
        counts = jnp.zeros((thresholds.size, length), jnp.asarray(0).dtype)
        counts = jnp.sum(fold(_count_upto, thresholds, counts), 1)
        zeros = jnp.where(zeros < 0, counts[0], zeros)  # the first threshold at the first time
        rank = wanted(zeros)[0]
        bracket = _narrowed(bracket, thresholds, counts, rank)
        return bracket, _thresholds_within(bracket, rank, dtype), zeros

    thresholds = _thresholds_of_drawn(
        _drawn_keys(function, args, xs, num_pairs), ranks[0], num_pairs
    )
    integer = thresholds.dtype
    infinity = lax.bitcast_convert_type(jnp.array(jnp.inf, dtype), integer)
    everything = jnp.zeros((), integer), infinity, jnp.asarray(0), jnp.asarray(num_pairs)
    start = everything, thresholds, jnp.asarray(-1)
    (low, high, below, upto), _, zeros = lax.while_loop(undecided, narrow, start)
    is_few = upto - below < _NUM_KEPT  # otherwise all of the bracket have the value low = high
    kept = jnp.full((_NUM_KEPT, length), jnp.iinfo(integer).max, integer)
    kept = jnp.sort(fold(_keep_smallest, jnp.where(is_few, low - 1, high), kept).reshape(-1))

    def value(rank: jax.Array) -> jax.Array:
        tied = jnp.where(upto >= rank, low, kept[0])
        key = jnp.where(is_few, kept[jnp.where(is_few, rank - below - 1, 0)], tied)
        exists = (zeros < num_pairs) | (zeros < ranks[1])
        return jnp.where(exists, lax.bitcast_convert_type(key, dtype), jnp.nan)

    lower, upper = wanted(zeros)
    return value(lower), value(upper), zeros
