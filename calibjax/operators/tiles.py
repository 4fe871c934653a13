"""Tiles of pairs: cutting, visiting, adding up."""

import functools
import math
import os
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul, on_cpu
from calibjax._core.environment import Result, map_shared
from calibjax._core.pytree import PyTree, T

Args = TypeVar("Args")
Point = TypeVar("Point")
Other = TypeVar("Other")
PairFunction = Callable[[Args, Point, Point], jax.Array]

TILE_SIZE = 128  # a tile of float64 fits the cache of a core
_MANY_TILES = 8  # as many in a row before they grow: half of each tile on the diagonal is lost
_CORES = 4  # that a tile of twice that length keeps busy
_ACCELERATOR_TILE_SIZE = 2048
_ACCELERATOR_ENTRIES = 2**26  # components of all pairs of a tile, in case none of them is fused
_LANES = 16  # lengths of tiles are multiples of it, or loops are not vectorised to the end


def length_of(xs: PyTree) -> int:
    """Number of samples: the length of the leading axis."""
    return jax.tree.leaves(xs)[0].shape[0]


def size_of(xs: PyTree, tile_size: int | None) -> int:
    """Largest number of rows and columns of a tile: what the user has chosen, or a default.

    On CPUs the values of a tile stay in the caches, and its rows are shared among the cores: 128,
    and for many samples 256, or more on more than four cores. Accelerators want few large steps:
    2048, and less if samples have so many components that a tile of all of them takes more than
    half a gigabyte. The size does not depend on the precision, so that both evaluate the same sums.
    """
    if tile_size is not None:
        return checks.size_in_range("tile_size", tile_size, 1)
    if on_cpu():
        is_known = hasattr(os, "sched_getaffinity")  # how many cores this process may use
        cores = len(os.sched_getaffinity(0)) if is_known else os.cpu_count() or 1
        busy = max(1.0, cores / _CORES)
        largest = 2 * TILE_SIZE * 2 ** math.ceil(math.log2(busy) / 2)
        largest = min(largest, length_of(xs) // _MANY_TILES)
    else:
        num_components = sum(math.prod(jnp.shape(leaf)[1:]) for leaf in jax.tree.leaves(xs))
        fitting = math.isqrt(_ACCELERATOR_ENTRIES // max(1, num_components))
        largest = min(_ACCELERATOR_TILE_SIZE, fitting)
    return 2 ** (max(TILE_SIZE, largest).bit_length() - 1)


def split(xs: T, tile_size: int) -> T:
    """Cuts n samples into tiles of equal length, [n, ...] → [tiles, ..., length].

    Samples come last, so that each component of a tile is contiguous. The last tile is filled up
    with copies of the last sample, so that pair functions are only evaluated where they are
    defined.
    """
    num_samples = length_of(xs)
    num_tiles = -(-num_samples // tile_size)
    length = -(-num_samples // num_tiles)
    if num_tiles > 1:
        length = -(-length // _LANES) * _LANES
        num_tiles = -(-num_samples // length)

    def cut(leaf: jax.Array) -> jax.Array:
        missing = ((0, num_tiles * length - num_samples), *((0, 0) for _ in leaf.shape[1:]))
        filled = jnp.pad(leaf, missing, mode="edge")
        return jnp.moveaxis(filled.reshape(num_tiles, length, *leaf.shape[1:]), 1, -1)

    return jax.tree.map(cut, xs)


def split_weights(weights: jax.Array, tile_size: int) -> jax.Array:
    """Cuts weights [n, c] in the same way, filled up with zeros: [tiles, length, c]."""
    tiles = jnp.moveaxis(split(weights, tile_size), -1, 1)
    valid = jnp.arange(tiles.shape[0] * tiles.shape[1]) < weights.shape[0]
    return jnp.where(valid.reshape(*tiles.shape[:2], 1), tiles, 0)


def take(tiles: T, index: jax.Array | int) -> T:
    """One tile."""
    return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, keepdims=False), tiles)


def evaluate(
    function: Callable[[Args, Point, Other], jax.Array], args: Args, xs: Point, ys: Other
) -> jax.Array:
    """All values function(args, x_i, y_j) of a tile, [rows, columns]."""
    columns = jax.vmap(function, in_axes=(None, None, -1))
    return jax.vmap(columns, in_axes=(None, -1, None))(args, xs, ys)


def product(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Product of the values of a tile with weights of its columns, [rows, c].

    A matrix product keeps the evaluation of the tile vectorised, which a fused sum does not. For
    accelerators XLA would spend a minute on products that evaluate the tile on their way.
    """
    return matmul(lax.optimization_barrier(values), weights)


def pairs(num_tiles: int) -> jax.Array:
    """Numbers i ≤ j of all pairs of tiles, [groups, pairs, 2], with as many pairs in each group."""
    numbers = np.stack(np.triu_indices(num_tiles), 1)
    return jnp.asarray(numbers.reshape((num_tiles + 1) // 2, -1, 2), jnp.int32)


def add(total: tuple[jax.Array, jax.Array], term: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Adds a term to a compensated sum (value, lost) as Neumaier does, elementwise."""
    value, lost = total
    new = value + term
    large = jnp.abs(value) >= jnp.abs(term)
    more = jnp.where(large, (value - new) + term, (term - new) + value)
    return new, lost + lax.stop_gradient(more)


def map_rows(
    function: Callable[[Args, Point], Result], args: Args, xs: Point, *, tile_size: int = TILE_SIZE
) -> Result:
    """Values function(args, x_j) at all points x_j, for functions that need a whole row of pairs.

    Ratios of sums over samples, nearest neighbours and the like need the row of one point with
    all samples, which come in `args`. Products of matrices [n, c] in `args` with a vector of the
    point become products of matrices in a tile.

    Args:
        function: function of one point, (args, x) → pytree of arrays.
        args: pytree that is handed to each call; everything that is traced or differentiated
            must come in here or in the points.
        xs: points, a pytree with leading axis n.
        tile_size: number of points that are evaluated at once.

    Returns:
        The values, a pytree with leading axis n.

    Cost: n calls, the memory of `tile_size` of them, also for the gradient, which calls the
    function again.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import map_rows
    >>> def nearest(samples, x):
    ...     return jnp.min(jnp.abs(samples - x))
    >>> print(map_rows(nearest, jnp.array([0.0, 5.0]), jnp.array([1.0, 3.0, 7.0]), tile_size=2))
    [1. 2. 2.]
    """
    # The loop keeps the second evaluation apart from the first without barriers.
    row = jax.checkpoint(jax.vmap(function, in_axes=(None, -1)), prevent_cse=False)
    run = lambda args, xs: lax.map(functools.partial(row, args), xs)  # noqa: E731
    values, num_points = map_shared(run, args, split(xs, tile_size)), length_of(xs)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num_points], values)


def upper_forms(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array | None,
    tile_size: int | None,
) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc, [c], or the plain sum over pairs, [1], without weights."""
    first = take(xs, 0)
    dtype = jax.eval_shape(function, args, first, first).dtype
    if weights is None:
        weights = jnp.ones((length_of(xs), 1), dtype)
    dtype = jnp.result_type(dtype, weights)
    size = size_of(xs, tile_size)
    rows = split(xs, size), split_weights(weights, size)
    length = rows[1].shape[1]
    above = np.triu(np.ones((length, length), bool), 1)

    def sums(data: tuple[Any, PyTree], pairs: jax.Array) -> jax.Array:
        args, rows = data

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def add_pair(total: tuple[jax.Array, jax.Array], pair: jax.Array) -> tuple[Any, None]:
            (x, v), (y, w) = (lax.optimization_barrier(take(rows, index)) for index in pair)
            values = evaluate(function, args, x, y)
            values = jnp.where(above | (pair[0] < pair[1]), values, 0)
            return add(total, jnp.sum(v * product(values, w), 0).astype(dtype)), None

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def of_group(pairs: jax.Array) -> jax.Array:
            zero = jnp.zeros(weights.shape[1], dtype)
            value, lost = lax.scan(add_pair, (zero, zero), pairs)[0]
            return value + lost

        return lax.map(of_group, pairs)

    return jnp.sum(map_shared(sums, (args, rows), pairs(length_of(rows))), 0)
