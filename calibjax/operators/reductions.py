"""Sums and means of a pair function."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul
from calibjax._core.environment import jit_long, map_shared
from calibjax._core.pytree import PyTree, T
from calibjax.operators import tiles
from calibjax.operators.tiles import Args, Other, PairFunction, Point, upper_forms

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


BLOCK_SIZE = 2032  # samples held at once; rows of 2048 would compete for the same part of a cache


@functools.partial(jit_long, static_argnames=("function", "block_size"))
def feature_sums(
    function: Callable[[Args, Point], jax.Array],
    args: Args,
    xs: Point,
    weights: jax.Array,
    square_weights: jax.Array,
    *,
    block_size: int = BLOCK_SIZE,
) -> tuple[jax.Array, jax.Array]:
    """Sums Σ_i w_is f_c(x_i) of features, and Σ_i v_it f_c(x_i)² of their squares.

    If w are features of a kernel on predictions and f those of a target kernel, the squares of the
    first sums add up to the sum of their product over all pairs; the second sums, with v = ‖w‖²,
    are its part on the diagonal.

    Args:
        function: features of m samples, (args, xs) → [c, m].
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n.
        weights: w, [n, S].
        square_weights: v, [n, T].
        block_size: number of samples whose features are held at once.

    Returns:
        Both sums, [S, c] and [T, c].

    Cost: n evaluations and n (S + T) c multiplications, O(n (S + T) + block_size c) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import feature_sums
    >>> def powers(scale, xs):
    ...     return jnp.stack([scale * xs, xs**2])
    >>> ones = jnp.ones((3, 1))
    >>> print(*feature_sums(powers, 2.0, jnp.array([1.0, 2.0, 3.0]), ones, ones))
    [[12. 14.]] [[56. 98.]]
    """
    data = xs, weights, square_weights
    n = data[1].shape[0]
    num_blocks = -(-n // block_size)
    size = -(-n // num_blocks)

    def step(total: tuple, index: jax.Array) -> tuple[PyTree, None]:
        # The last block starts earlier, so that it is full; samples of the one before are left out.
        start = jnp.minimum(index * size, n - size)
        is_own = (start + jnp.arange(size) >= index * size)[:, None]
        block = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), data)
        values = function(args, block[0]).T
        w, v = (jnp.where(is_own, part, 0) for part in block[1:])
        terms = matmul(w.T, values), matmul(v.T, jnp.square(values))
        return jax.tree.map(jnp.add, total, terms), None

    first = jax.eval_shape(lambda index: step((0, 0), index)[0], 0)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), first)
    return lax.scan(jax.checkpoint(step), zeros, jnp.arange(num_blocks))[0]


Theta = TypeVar("Theta")
LogKernel = Callable[[Theta, jax.Array], jax.Array]
_Pair = tuple[jax.Array, jax.Array]
_Columns = tuple[Point, jax.Array, jax.Array]  # samples, their groups, values


@functools.partial(jit_long, static_argnames=("function", "log_kernel", "tile_size"))
def kernel_means(
    function: PairFunction[Args, Point],
    log_kernel: LogKernel[Theta],
    args: Args,
    parameters: Theta,
    points: tuple[Point, jax.Array],
    samples: tuple[Point, jax.Array],
    values: jax.Array,
    *,
    tile_size: int | None = None,
) -> _Pair:
    """Kernel-weighted means of values (Nadaraya and Watson), for G kernels of one distance.

        mean_gi = Σ_j w_gij v_j / Σ_j w_gij,    w_gij = exp(log_kernel(θ_g, f(x_i, y_j))),

    sums over the samples j that are in the group of point i. Distances are computed once for all
    kernels. Weights are divided by the largest before they are added, so that they do not
    underflow together, however narrow the kernel: the limit is the nearest neighbour. A pair of
    samples in different groups costs nothing, since both sets are sorted by group.

    Args:
        function: distance of a pair, (args, x, y) → scalar.
        log_kernel: logarithm of the kernel, (θ, distance) → scalar, which must not increase with
            the distance.
        args: pytree that is handed to each call of `function`.
        parameters: θ, a pytree with leading axis G.
        points: n points, a pytree with leading axis n, and integers that number their groups, [n].
        samples: n' samples, a pytree with leading axis n', and their groups, [n'].
        values: v, [n', c].
        tile_size: largest number of rows and columns of a tile; None: chosen for the device.

    Returns:
        The means [G, n, c], and the sums of the weights over the largest of them, [G, n]. Where
        a group has no samples, both are zero.

    Cost: for the pairs within groups, one distance, G exponentials and G (c + 1) multiplications
    each; O((n + n') c + G n c + tile²) memory, also for the gradient.

    References: Nadaraya (1964); Watson (1964).

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import kernel_means
    >>> def distance(args, x, y):
    ...     return jnp.abs(x - y)
    >>> def log_kernel(length_scale, distance):
    ...     return -distance / length_scale
    >>> means, totals = kernel_means(
    ...     distance,
    ...     log_kernel,
    ...     None,
    ...     jnp.array([1e-3, 1e3]),
    ...     (jnp.array([0.0]), jnp.array([0])),
    ...     (jnp.array([0.1, 1.0]), jnp.array([0, 0])),
    ...     jnp.array([[1.0], [0.0]]),
    ... )
    >>> print(means.squeeze().round(2))
    [1.  0.5]
    """
    size = tiles.size_of(samples[0], tile_size)
    order, to_order = jnp.argsort(points[1]), jnp.argsort(samples[1])
    points = jax.tree.map(lambda leaf: leaf[order], points)
    samples = jax.tree.map(lambda leaf: leaf[to_order], samples)
    ones = jnp.ones((values.shape[0], 1), values.dtype)
    weights = tiles.split_weights(jnp.concatenate([values[to_order], ones], 1), size)
    columns = (*tiles.split(samples, size), weights)

    def smooth(data: tuple[Args, Theta, _Columns[Point]], points: PyTree) -> jax.Array:
        row = functools.partial(_smoothed_row, function, log_kernel, *data)
        return lax.map(jax.checkpoint(row), points)

    # [tiles, G, c + 1, length]
    sums = map_shared(smooth, (args, parameters, columns), tiles.split(points, size))
    sums = jnp.moveaxis(sums, (1, 2), (0, -1)).reshape(sums.shape[1], -1, sums.shape[2])
    sums = jnp.zeros_like(sums[:, : order.size]).at[:, order].set(sums[:, : order.size])
    totals = sums[..., -1]
    return sums[..., :-1] / jnp.where(totals == 0, 1, totals)[..., None], totals


def _smoothed_row(
    function: PairFunction[Args, Point],
    log_kernel: LogKernel[Theta],
    args: Args,
    parameters: Theta,
    columns: _Columns[Point],
    row: tuple[Point, jax.Array],
) -> jax.Array:
    """Weighted sums [G, c + 1, rows] at the points of a tile."""
    points, row_groups = row
    low, high = row_groups[0], row_groups[-1]
    first = tiles.take(columns[0], 0)
    distances = jax.eval_shape(functools.partial(tiles.evaluate, function), args, first, points)
    dtype = jnp.result_type(distances.dtype, columns[2])
    num_kernels = jax.tree.leaves(parameters)[0].shape[0]

    def visit(carry: _Pair, column: _Columns[Point]) -> _Pair:
        nearest, sums = carry
        samples, column_groups, values = column
        distance = tiles.evaluate(function, args, samples, points)  # [columns, rows]
        is_pair = (column_groups[:, None] == row_groups) & ~(distance == jnp.inf)
        closest = jnp.minimum(nearest, jnp.min(jnp.where(is_pair, distance, jnp.inf), 0))
        # Where there is no sample, all distances are that of the sample itself: no exponent is
        # infinite, whose derivative times zero would not be a number.
        centre = jnp.where(closest == jnp.inf, 0, closest)
        before = jnp.where(nearest == jnp.inf, centre, nearest)
        distance = jnp.where(is_pair, distance, centre)

        def add(kernel_and_sum: tuple[Theta, jax.Array]) -> jax.Array:
            kernel, total = kernel_and_sum
            shift = log_kernel(kernel, centre)
            weights = jnp.where(is_pair, jnp.exp(log_kernel(kernel, distance) - shift), 0)
            rescaled = jnp.exp(log_kernel(kernel, before) - shift) * total
            return rescaled + matmul(values.T, weights)

        return closest, lax.map(add, (parameters, sums))

    @jax.checkpoint
    def step(carry: _Pair, column: _Columns[Point]) -> tuple[Any, None]:
        overlaps = (column[1][0] <= high) & (column[1][-1] >= low)
        return lax.cond(overlaps, visit, lambda carry, _: carry, carry, column), None

    start = (
        jnp.full(row_groups.shape, jnp.inf, distances.dtype),
        jnp.zeros((num_kernels, columns[2].shape[-1], row_groups.size), dtype),
    )
    return lax.scan(step, start, columns)[0][1]
