"""Sums and means of a pair function, computed in tiles."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul, on_cpu
from calibjax._core.environment import Result, jit_long, map_shared
from calibjax._core.pytree import PyTree, T, varying_as

Args = TypeVar("Args")
Point = TypeVar("Point")
Other = TypeVar("Other")
PairFunction = Callable[[Args, Point, Point], jax.Array]
_Pair = tuple[jax.Array, jax.Array]

TILE_SIZE = 128  # a tile of float64 fits the cache of a core
_MANY = 16 * TILE_SIZE  # samples, of whose tiles the halves on the diagonal are few
_ACCELERATOR_TILE_SIZE = 2048
_ACCELERATOR_ENTRIES = 2**26  # components of all pairs of a tile, in case none of them is fused
_LANES = 16  # lengths of tiles are multiples of it, or loops are not vectorised to the end


def length_of(xs: PyTree) -> int:
    """Number of samples: the length of the leading axis."""
    return jax.tree.leaves(xs)[0].shape[0]


def size_of(xs: PyTree, tile_size: int | None) -> int:
    """Largest number of rows and columns of a tile: what the user has chosen, or a default.

    On CPUs the values of a tile stay in the caches: 128, and for many samples 256. Accelerators
    want few large steps: 2048, and less if samples have so many components that a tile of all of
    them takes more than half a gigabyte. The size does not depend on the precision, so that both
    evaluate the same sums.
    """
    if tile_size is not None:
        return checks.size_in_range("tile_size", tile_size, 1)
    if on_cpu():
        return TILE_SIZE if checks.is_below(length_of(xs), _MANY) else 2 * TILE_SIZE
    num_components = sum(math.prod(jnp.shape(leaf)[1:]) for leaf in jax.tree.leaves(xs))
    fitting = math.isqrt(_ACCELERATOR_ENTRIES // max(1, num_components))
    fitting = max(TILE_SIZE, min(_ACCELERATOR_TILE_SIZE, fitting))
    return 2 ** (fitting.bit_length() - 1)


def split(xs: T, tile_size: int) -> T:
    """Cuts n samples into tiles of equal length, [n, ...] → [tiles, ..., length].

    Samples come last, so that each component of a tile is contiguous. The last tile is filled up
    with copies of the last sample, so that pair functions are only evaluated where they are
    defined.
    """
    num_samples = length_of(xs)
    num_tiles = -(-num_samples // tile_size)
    length: Any = tile_size
    if not export.is_symbolic_dim(num_samples):
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
    """Numbers i ≤ j of all pairs of tiles, [groups, pairs, 2], with as many pairs in each group.

    Of a number that is a symbol they are all pairs.
    """
    if export.is_symbolic_dim(num_tiles):
        each = jnp.arange(num_tiles, dtype=jnp.int32)
        return jnp.stack(jnp.meshgrid(each, each, indexing="ij"), -1)
    numbers = np.stack(np.triu_indices(num_tiles), 1)
    return jnp.asarray(numbers.reshape((num_tiles + 1) // 2, -1, 2), jnp.int32)


def add(total: _Pair, term: jax.Array) -> _Pair:
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
        args: pytree that is passed to each call.
        xs: samples, a pytree with leading axis n ≥ 2.
        weights: w ≥ 0, [n], or None.
        include_diagonal: whether to take the mean over all n² pairs (i, j), the V-statistic, for n
            ≥ 1.
        tile_size: largest number of rows and columns of a tile; None to choose it for the device.

    Returns:
        A scalar.

    Cost: n²/2 evaluations, O(n + tile²) memory; the gradient takes three to ten times as long.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import mean_over_pairs
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(mean_over_pairs(product, 3.0, jnp.array([1.0, 2.0, 3.0])))  # 2 + 3 + 6
    11.0
    >>> print(mean_over_pairs(product, 1.0, jnp.array([1.0, 3.0]), include_diagonal=True))
    4.0
    """
    # Ones of this type leave that of f.
    each = jnp.ones(length_of(xs), jnp.int8) if weights is None else weights
    forms = quadratic_forms(function, args, xs, each[:, None], tile_size=tile_size)
    (off_diagonal,), (diagonal,) = forms
    n = length_of(xs) if weights is None else weights.sum()
    if include_diagonal:
        return (off_diagonal + diagonal) / n / n
    return off_diagonal / (n * (n - 1.0) if weights is None else 2 * _mass_of_pairs(weights))


@_reduction
def quadratic_forms(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array,
    *,
    tile_size: int | None = None,
) -> _Pair:
    """Quadratic forms Σ_ij w_ic f(x_i, x_j) w_jc of a symmetric f, for all c at once.

    Args:
        function: pair function, (args, x, y) → scalar, symmetric in x and y.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n.
        weights: w, [n, c].
        tile_size: largest number of rows and columns of a tile; None: chosen for the device.

    Returns:
        The sums over i ≠ j, and over i = j, [c] each.

    Cost: n²/2 evaluations, n² c / 2 multiplications in matrix products, O(n c + tile²) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import quadratic_forms
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(*quadratic_forms(product, 1.0, jnp.array([1.0, 2.0]), jnp.ones((2, 1))))
    [4.] [5.]
    """
    diagonal = jax.vmap(function, in_axes=(None, 0, 0))(args, xs, xs)
    dtype = jnp.result_type(diagonal, weights)
    dtype = dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float)
    size = size_of(xs, tile_size)
    rows = split(xs, size), split_weights(weights.astype(dtype), size)
    length = rows[1].shape[1]
    above = np.triu(np.ones((length, length), bool), 1)

    def sums(data: tuple[Any, PyTree], pairs: jax.Array) -> jax.Array:
        args, rows = data

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def add_pair(total: _Pair, pair: jax.Array) -> tuple[Any, None]:
            (x, v), (y, w) = (lax.optimization_barrier(take(rows, index)) for index in pair)
            values = evaluate(function, args, x, y)
            is_pair = (pair[0] < pair[1]) | ((pair[0] == pair[1]) & above)
            values = jnp.where(is_pair, values, 0)
            return add(total, jnp.sum(v * product(values, w), 0)), None

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def of_group(pairs: jax.Array) -> jax.Array:
            zero = varying_as(jnp.zeros(weights.shape[1], dtype), (args, rows, pairs))
            value, lost = lax.scan(add_pair, (zero, zero), pairs)[0]
            return value + lost

        return lax.map(of_group, pairs)

    off_diagonal = 2 * jnp.sum(map_shared(sums, (args, rows), pairs(length_of(rows))), 0)
    return off_diagonal, matmul(diagonal, jnp.square(weights))


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
    """Weighted sums Σ_j f(x_i, y_j) w_jc at each x_i, without storing the matrix.

    Args:
        function: pair function, (args, x, y) → scalar; no symmetry is assumed.
        args: pytree that is passed to each call.
        xs: n points, a pytree with leading axis n.
        ys: n' samples, a pytree with leading axis n'.
        weights: w, [n', c].
        tile_size: largest number of rows and columns of a tile; None to choose it for the device.

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
    size = size_of(ys, tile_size)
    columns = split(ys, size), split_weights(weights, size)

    def sums_at(data: tuple[Args, tuple[Other, jax.Array]], x: Point) -> jax.Array:
        args, columns = data
        values_of = jax.vmap(functools.partial(function, args, x), in_axes=-1)

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def add_tile(total: _Pair, index: jax.Array) -> tuple[_Pair, None]:
            samples, w = lax.optimization_barrier(take(columns, index))
            return add(total, product(values_of(samples), w)), None

        dtype = jax.eval_shape(values_of, take(columns[0], 0)).dtype
        zero = jnp.zeros(weights.shape[1], jnp.result_type(dtype, weights))
        zero = varying_as(zero, (args, x, columns))
        (value, lost), _ = lax.scan(add_tile, (zero, zero), jnp.arange(length_of(columns)))
        return value + lost

    return map_rows(sums_at, (args, columns), xs, tile_size=size)


@functools.partial(jit_long, static_argnames=("function", "block_size"))
def block_means(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array | None = None,
    *,
    block_size: int,
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
            return mean_over_pairs(function, args, xs)
        (total,), _ = quadratic_forms(function, args, xs, weights[:, None])
        mass = 2 * _mass_of_pairs(weights)
        return total / jnp.where(mass == 0, 1, mass)

    def means(args: Args, blocks: tuple[Point, jax.Array | None]) -> jax.Array:
        number, size = length_of(blocks), max(1, _BLOCK_ENTRIES // block_size**2)
        at_once = None if export.is_symbolic_dim(number) else min(number, size)
        return lax.map(functools.partial(mean, args), blocks, batch_size=at_once)

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
    number = length_of(xs) // block_size
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
) -> _Pair:
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
    zeros = varying_as(zeros, (args, data))
    return lax.scan(jax.checkpoint(step), zeros, jnp.arange(num_blocks))[0]


Theta = TypeVar("Theta")


@functools.partial(jit_long, static_argnames=("function", "log_kernel", "tile_size"))
def kernel_means(
    function: PairFunction[Args, Point],
    log_kernel: Callable[[Theta, jax.Array], jax.Array],
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
    size = size_of(samples[0], tile_size)
    order, to_order = jnp.argsort(points[1]), jnp.argsort(samples[1])
    points = jax.tree.map(lambda leaf: leaf[order], points)
    samples = jax.tree.map(lambda leaf: leaf[to_order], samples)
    ones = jnp.ones((values.shape[0], 1), values.dtype)
    weights = split_weights(jnp.concatenate([values[to_order], ones], 1), size)
    columns = (*split(samples, size), weights)

    # [tiles, G, c + 1, length]
    smooth = functools.partial(_smoothed, function, log_kernel)
    sums = map_shared(smooth, (args, parameters, columns), split(points, size))
    sums = jnp.moveaxis(sums, (1, 2), (0, -1)).reshape(sums.shape[1], -1, sums.shape[2])
    sums = jnp.zeros_like(sums[:, : order.size]).at[:, order].set(sums[:, : order.size])
    totals = sums[..., -1]
    return sums[..., :-1] / jnp.where(totals == 0, 1, totals)[..., None], totals


def _smoothed(
    function: Callable[..., jax.Array], log_kernel: Callable, data: Any, tiles: PyTree
) -> jax.Array:
    """Weighted sums at the points of all tiles, [tiles, G, c + 1, rows]."""
    args, parameters, columns = data
    num_kernels = jax.tree.leaves(parameters)[0].shape[0]

    @jax.checkpoint
    def row(tile: PyTree) -> jax.Array:
        points, row_groups = tile
        values_of = functools.partial(evaluate, function, args)  # [columns, rows]
        dtype = jax.eval_shape(values_of, take(columns[0], 0), points).dtype

        def visit(carry: _Pair, column: tuple[Any, jax.Array, jax.Array]) -> _Pair:
            nearest, sums = carry
            samples, column_groups, values = column
            distance = values_of(samples, points)
            is_pair = (column_groups[:, None] == row_groups) & ~(distance == jnp.inf)
            closest = jnp.minimum(nearest, jnp.min(jnp.where(is_pair, distance, jnp.inf), 0))
            # Where there is no sample, all distances are that of the sample itself: no exponent is
            # infinite, whose derivative times zero would not be a number.
            centre = jnp.where(closest == jnp.inf, 0, closest)
            before = jnp.where(nearest == jnp.inf, centre, nearest)
            distance = jnp.where(is_pair, distance, centre)

            def of_kernel(kernel_and_sum: tuple[Any, jax.Array]) -> jax.Array:
                kernel, total = kernel_and_sum
                shift = log_kernel(kernel, centre)
                weights = jnp.where(is_pair, jnp.exp(log_kernel(kernel, distance) - shift), 0)
                rescaled = jnp.exp(log_kernel(kernel, before) - shift) * total
                return rescaled + matmul(values.T, weights)

            return closest, lax.map(of_kernel, (parameters, sums))

        @jax.checkpoint
        def step(carry: _Pair, column: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, None]:
            overlaps = (column[1][0] <= row_groups[-1]) & (column[1][-1] >= row_groups[0])
            return lax.cond(overlaps, visit, lambda carry, _: carry, carry, column), None

        shape = num_kernels, columns[2].shape[-1], row_groups.size
        zeros = jnp.zeros(shape, jnp.result_type(dtype, columns[2]))
        start = jnp.full(row_groups.shape, jnp.inf, dtype), zeros
        return lax.scan(step, varying_as(start, (data, tile)), columns)[0][1]

    return lax.map(row, tiles)
