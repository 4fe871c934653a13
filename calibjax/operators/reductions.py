"""Sums and means of a pair function."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul
from calibjax._core.batches import jit_long, map_shared
from calibjax._core.pytree import T
from calibjax.operators import tiles
from calibjax.operators.forms import upper_forms
from calibjax.operators.tiles import Args, Other, PairFunction, Point

_BLOCK_ENTRIES = 2**20  # pairs of blocks evaluated at once


_reduction = functools.partial(jit_long, static_argnames=("function", "tile_size"))


@functools.partial(jit_long, static_argnames=("function", "include_diagonal", "tile_size"))
def mean_over_pairs(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array | None = None,
    *,
    include_diagonal: bool = False,
    tile_size: int | None = None,
) -> jax.Array:
    """Mean of f(x_i, x_j) over the pairs i < j: the U-statistic of a symmetric f.

    With weights it is Σ_{i<j} w_i w_j f(x_i, x_j) / Σ_{i<j} w_i w_j.

    Args:
        function: pair function, (args, x, y) → scalar.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n ≥ 2.
        weights: w ≥ 0, [n], or None.
        include_diagonal: take the mean over all n² pairs (i, j) instead, those with i = j
            included: the V-statistic, for n ≥ 1.
        tile_size: largest number of rows and columns of a tile; None: chosen for the device.

    Returns:
        A scalar.

    Cost: n²/2 evaluations, O(n + tile²) memory; the gradient three to ten times as much time.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import mean_over_pairs
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(mean_over_pairs(product, 3.0, jnp.array([1.0, 2.0, 3.0])))  # 2 + 3 + 6
    11.0
    >>> print(mean_over_pairs(product, 1.0, jnp.array([1.0, 3.0]), include_diagonal=True))
    4.0
    """
    n = tiles.length_of(xs) if weights is None else weights.sum()
    columns = None if weights is None else weights[:, None]
    total = upper_forms(function, args, xs, columns, tile_size)[0]
    if not include_diagonal:
        return total / (n * (n - 1) / 2 if weights is None else _mass_of_pairs(weights))
    diagonal = jax.vmap(function, in_axes=(None, 0, 0))(args, xs, xs)
    if weights is not None:
        diagonal *= jnp.square(weights)
    return (2 * total + jnp.sum(diagonal)) / n / n


@_reduction
def quadratic_forms(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array,
    *,
    tile_size: int | None = None,
) -> jax.Array:
    """Quadratic forms Σ_ij w_ic f(x_i, x_j) w_jc of a symmetric f, for all c at once.

    Args:
        function: pair function, (args, x, y) → scalar, symmetric in x and y.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n.
        weights: w, [n, c].
        tile_size: largest number of rows and columns of a tile; None: chosen for the device.

    Returns:
        The values, [c].

    Cost: n²/2 evaluations, n² c / 2 multiplications in matrix products, O(n c + tile²) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import quadratic_forms
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(quadratic_forms(product, 1.0, jnp.array([1.0, 2.0]), jnp.array([[1.0, 1.0], [1, 0]])))
    [9. 1.]
    """
    off_diagonal, diagonal = split_quadratic_forms(function, args, xs, weights, tile_size=tile_size)
    return off_diagonal + diagonal


@_reduction
def split_quadratic_forms(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array,
    *,
    tile_size: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The two parts of `quadratic_forms`: sums over i ≠ j, and over i = j, [c] each.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import split_quadratic_forms
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(*split_quadratic_forms(product, 1.0, jnp.array([1.0, 2.0]), jnp.ones((2, 1))))
    [4.] [5.]
    """
    diagonal = jax.vmap(function, in_axes=(None, 0, 0))(args, xs, xs)
    upper = upper_forms(function, args, xs, weights, tile_size)
    return 2 * upper, matmul(diagonal, jnp.square(weights))


@_reduction
def weighted_sums(
    function: Callable[[Args, Point, Other], jax.Array],
    args: Args,
    xs: Point,
    ys: Other,
    weights: jax.Array,
    *,
    tile_size: int | None = None,
) -> jax.Array:
    """Weighted sums Σ_j f(x_i, y_j) w_jc at each x_i: the product of a matrix that is never held.

    Args:
        function: pair function, (args, x, y) → scalar; no symmetry is assumed.
        args: pytree that is handed to each call.
        xs: n points, a pytree with leading axis n.
        ys: n' samples, a pytree with leading axis n'.
        weights: w, [n', c].
        tile_size: largest number of rows and columns of a tile; None: chosen for the device.

    Returns:
        The sums, [n, c].

    Cost: n n' evaluations and n n' c multiplications, O((n + n') c + tile²) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import weighted_sums
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> x = jnp.array([1.0, 2.0])
    >>> print(weighted_sums(product, 1.0, x, x, jnp.array([[1.0], [10.0]])))
    [[21.]
     [42.]]
    """
    size = tiles.size_of(ys, tile_size)
    columns = tiles.split(ys, size), tiles.split_weights(weights, size)

    values_of = functools.partial(tiles.evaluate, function)

    def sums_at(data: tuple[Args, tuple[Other, jax.Array]], xs: Point) -> jax.Array:
        args, columns = data

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def add(
            rows: Point, total: tuple[jax.Array, jax.Array], index: jax.Array
        ) -> tuple[Any, None]:
            samples, w = lax.optimization_barrier(tiles.take(columns, index))
            return tiles.add(total, tiles.product(values_of(args, rows, samples), w)), None

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def row(rows: Point) -> jax.Array:
            tile = jax.eval_shape(values_of, args, rows, tiles.take(columns[0], 0))
            dtype = jnp.result_type(tile.dtype, weights)
            zero = jnp.zeros((tile.shape[0], weights.shape[1]), dtype)
            indices = jnp.arange(tiles.length_of(columns))
            total, _ = lax.scan(functools.partial(add, rows), (zero, zero), indices)
            return total[0] + total[1]

        return lax.map(row, xs)

    sums = map_shared(sums_at, (args, columns), tiles.split(xs, size))
    return sums.reshape(-1, weights.shape[1])[: tiles.length_of(xs)]


@functools.partial(jit_long, static_argnames=("function", "block_size", "tile_size"))
def block_means(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array | None = None,
    *,
    block_size: int,
    tile_size: int | None = None,
) -> jax.Array:
    """Mean over the pairs i < j within each of the ⌊n/B⌋ blocks of B consecutive samples.

    The last, incomplete block is dropped. With weights the means are
    Σ_{i<j} w_i w_j f(x_i, x_j) / Σ_{i<j} w_i w_j, and 0 where the divisor, see `block_masses`, is.

    Args:
        function: pair function, (args, x, y) → scalar.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n.
        weights: w, [n], or None.
        block_size: B, 2 ≤ B ≤ n.
        tile_size: largest number of rows and columns of a tile; None: chosen for the device.

    Returns:
        The means, [⌊n/B⌋].

    Cost: n B / 2 pairs, O(n) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import block_means
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(block_means(product, 1.0, jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), block_size=2))
    [ 2. 12.]
    """

    def mean(args: Args, block: tuple[Point, jax.Array | None]) -> jax.Array:
        xs, weights = block
        if weights is None:
            return mean_over_pairs(function, args, xs, tile_size=tile_size)
        total = upper_forms(function, args, xs, weights[:, None], tile_size)[0]
        mass = _mass_of_pairs(weights)
        return total / jnp.where(mass == 0, 1, mass)

    def means(args: Args, blocks: tuple[Point, jax.Array | None]) -> jax.Array:
        return lax.map(
            functools.partial(mean, args),
            blocks,
            batch_size=min(tiles.length_of(blocks), max(1, _BLOCK_ENTRIES // block_size**2)),
        )

    return map_shared(means, args, _blocks((xs, weights), block_size))


@functools.partial(jit_long, static_argnames="block_size")
def block_masses(weights: jax.Array, *, block_size: int) -> jax.Array:
    """Σ_{i<j} w_i w_j over the pairs within each block of `block_means`, [⌊n/B⌋].

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import block_masses
    >>> print(block_masses(jnp.array([1.0, 2.0, 3.0, 0.0, 5.0]), block_size=2))
    [2. 0.]
    """
    return jax.vmap(_mass_of_pairs)(_blocks(weights, block_size))


def _blocks(xs: T, block_size: int) -> T:
    """Rows in whole blocks, [⌊n/B⌋, B, ...]."""
    number = tiles.length_of(xs) // block_size
    return jax.tree.map(
        lambda leaf: leaf[: number * block_size].reshape(number, block_size, *leaf.shape[1:]), xs
    )


def _mass_of_pairs(weights: jax.Array) -> jax.Array:
    """Σ_{i<j} w_i w_j, by positive terms only: just zero without any pair."""
    return jnp.sum(weights[1:] * jnp.cumsum(weights)[:-1])
