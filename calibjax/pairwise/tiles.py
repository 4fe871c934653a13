"""Tiles of pairs: cutting, visiting, adding up."""

import functools
import math
import os
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.compilation import jit, platform_dependent
from calibjax._core.pytree import PyTree, T
from calibjax._core.sharding import Result

Args = TypeVar("Args")
Point = TypeVar("Point")
Other = TypeVar("Other")
Carry = TypeVar("Carry")
PairFunction = Callable[[Args, Point, Point], jax.Array]
OnDiagonal = Callable[[jax.Array, T, Carry], Carry]  # number of a tile, tile, carry
OffDiagonal = Callable[[jax.Array, jax.Array, T, T, Carry], Carry]  # both numbers, both tiles

TILE_SIZE = 128  # a tile of float64 fits the cache of a core
_MANY_TILES = 8  # as many in a row before they grow: half of each tile on the diagonal is lost
_CORES = 4  # that a tile of twice that length keeps busy
_ACCELERATOR_TILE_SIZE = 4096
_ACCELERATOR_ENTRIES = 2**26  # components of all pairs of a tile, in case none of them is fused
_CPU_ENTRIES = 2**19  # numbers of all pairs of a tile that are held at once
_LANES = 16  # lengths of tiles are multiples of it, or loops are not vectorised to the end


def length_of(xs: PyTree) -> int:
    """Number of samples: the length of the leading axis."""
    return jax.tree.leaves(xs)[0].shape[0]


def sample_size(xs: PyTree) -> int:
    """Number of components of one sample."""
    return sum(math.prod(jnp.shape(leaf)[1:]) for leaf in jax.tree.leaves(xs))


def num_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_tile_size(
    platform: str,
    num_samples: int,
    sample_size: int = 1,
    *,
    kept: int = 0,
    cores: int | None = None,
) -> int:
    """Largest number of rows and columns of a tile, as `pairwise` chooses it.

    On CPUs the values of a tile stay in the caches, and its rows are shared among the cores: 128,
    and for many samples 256, or more on more than four cores. Accelerators want few large steps:
    4096, and less if samples have many components, so that up to 4000 of these need less than
    half a gigabyte in double precision even if the compiler fuses nothing. What derivatives hold
    of all pairs makes tiles smaller. The size does not depend on the precision, so that both
    evaluate the same sums.

    Args:
        platform: "cpu", or any other name that JAX has for a platform.
        num_samples: n.
        sample_size: number of components of a sample; accelerators only.
        kept: numbers that are held of each pair.
        cores: cores that share a tile, all that the process may use if None; CPUs only.

    >>> from calibjax.pairwise import default_tile_size
    >>> default_tile_size("cpu", 1000), default_tile_size("cpu", 10**5, cores=64)
    (128, 1024)
    >>> default_tile_size("cuda", 10**5), default_tile_size("cuda", 10**5, sample_size=1000)
    (4096, 256)
    """
    if platform == "cpu":
        busy = max(1.0, (num_cores() if cores is None else cores) / _CORES)
        largest = 2 * TILE_SIZE * 2 ** math.ceil(math.log2(busy) / 2)
        largest, entries = min(largest, num_samples // _MANY_TILES), _CPU_ENTRIES
    else:
        fitting = math.isqrt(_ACCELERATOR_ENTRIES // max(1, sample_size))
        largest, entries = min(_ACCELERATOR_TILE_SIZE, fitting), _ACCELERATOR_ENTRIES
    largest = max(TILE_SIZE, largest)
    if kept:
        largest = min(largest, max(_LANES, math.isqrt(entries // kept)))
    return 2 ** (largest.bit_length() - 1)


def by_platform(
    evaluate: Callable[..., Result],
    tile_size: int | None,
    xs: PyTree,
    *operands: PyTree,
    kept: int = 0,
    cpu: int | None = None,
) -> Result:
    """Value evaluate(tile size, *operands) with the size for the platform where it is computed.

    Args:
        evaluate: what to compute, with the same result for every size.
        tile_size: size that the user has chosen, or None.
        xs: samples that are cut into tiles.
        *operands: arguments of `evaluate`.
        kept: numbers that are held of each pair of a tile, for `default_tile_size`.
        cpu: the size on CPUs in its place, or None.
    """
    shape = length_of(xs), sample_size(xs)
    sizes = {
        platform: default_tile_size(platform, *shape, kept=kept) for platform in ("cpu", "cuda")
    }
    sizes["cpu"] = sizes["cpu"] if cpu is None else cpu
    if tile_size is not None:
        return evaluate(tile_size, *operands)
    if shape[0] <= min(sizes.values()):  # one tile anyway
        return evaluate(min(sizes.values()), *operands)
    forms = {name: functools.partial(evaluate, size) for name, size in sizes.items()}
    return platform_dependent(*operands, cpu=forms["cpu"], default=forms["cuda"])


def split(xs: T, tile_size: int) -> T:
    """Cuts n samples into tiles of equal length, [n, ...] → [tiles, ..., length].

    Samples come last, so that each component of a tile is contiguous. The last tile is filled up
    with copies of the last sample, so that pair functions are only evaluated where they are
    defined.
    """
    if not jax.tree.leaves(xs):
        return xs
    tile_size = checks.size_in_range("tile_size", tile_size, 1)
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


def first(tiles: T) -> T:
    """The first sample."""
    return jax.tree.map(lambda leaf: leaf[0, ..., 0], tiles)


def sweep(
    tiles: T, low: jax.Array | int, high: jax.Array | int, step: OnDiagonal[T, Carry], carry: Carry
) -> Carry:
    """Folds step(j, tile j, carry) over low ≤ j < high.

    Each tile is handed over from the step before. Cut within its own step, it would be cut anew
    by every pair in the innermost loop, which is then not vectorised.
    """

    def body(j: jax.Array, state: tuple[T, Carry]) -> tuple[T, Carry]:
        tile, carry = state
        return take(tiles, j + 1), step(j, tile, carry)

    return lax.fori_loop(low, high, body, (take(tiles, low), carry))[1]


def visit_upper(
    tiles: T, diagonal: OnDiagonal[T, Carry], upper: OffDiagonal[T, Carry], carry: Carry
) -> Carry:
    """Folds over the pairs of tiles on the diagonal and above it.

    Args:
        tiles: a pytree with leading axis [tiles].
        diagonal: (i, tile i, carry) → carry.
        upper: (i, j, tile i, tile j, carry) → carry, called for i < j.
        carry: initial value.
    """
    num_tiles = length_of(tiles)

    def row(i: jax.Array, x: T, carry: Carry) -> Carry:
        def column(j: jax.Array, y: T, carry: Carry) -> Carry:
            return upper(i, j, x, y, carry)

        return sweep(tiles, i + 1, num_tiles, column, diagonal(i, x, carry))

    return sweep(tiles, 0, num_tiles, row, carry)


def add(total: tuple[jax.Array, jax.Array], term: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Adds a term to a compensated sum (value, lost) as Neumaier does, elementwise."""
    value, lost = total
    new = value + term
    large = jnp.abs(value) >= jnp.abs(term)
    return new, lost + jnp.where(large, (value - new) + term, (term - new) + value)


@functools.partial(jit, static_argnames=("step", "tile_size"))
def fold_pairs(
    step: Callable[[Args, Carry, Point, Point, jax.Array], Carry],
    args: Args,
    init: Carry,
    xs: Point,
    *,
    tile_size: int = TILE_SIZE,
) -> Carry:
    """Folds over all pairs i < j, a tile at a time.

    Args:
        step: (args, carry, x tile, y tile, mask) → carry; the mask [rows, columns] is true where
            the pair counts.
        args: pytree that is handed to each step.
        init: initial value of the carry.
        xs: samples, a pytree with leading axis n.
        tile_size: largest number of rows and columns of a tile.

    Returns:
        The last carry.

    Cost: n²/2 pairs, O(n) memory beside that of a step. Not differentiable.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import fold_pairs
    >>> def count(limit, carry, x, y, mask):
    ...     return carry + jnp.sum(mask & (jnp.abs(x[:, None] - y) < limit))
    >>> print(fold_pairs(count, 1.5, jnp.array(0), jnp.array([1.0, 3.0, 2.0]), tile_size=2))
    2
    """
    num_samples = length_of(xs)
    tiles = split(xs, tile_size)
    length = jax.tree.leaves(tiles)[0].shape[-1]
    local = jnp.arange(length)

    def upper(i: jax.Array, j: jax.Array, x: Point, y: Point, carry: Carry) -> Carry:
        rows, columns = i * length + local, j * length + local
        mask = (rows[:, None] < columns) & (columns < num_samples)
        return step(args, carry, x, y, mask)

    def diagonal(i: jax.Array, x: Point, carry: Carry) -> Carry:
        return upper(i, i, x, x, carry)

    return visit_upper(tiles, diagonal, upper, init)
