"""Sums and means of a pair function."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._arithmetic import matmul
from calibjax._compilation import wide_jit
from calibjax._pytree import PyTree
from calibjax._sharding import WHOLE, Devices, Parameters, Result, devices, follows_data
from calibjax.pairwise import ring, tiles
from calibjax.pairwise.derivatives import combine, differentiable, partition

PairFunction = Callable[[Any, Any, Any], jax.Array]
_BLOCK_ENTRIES = 2**20  # pairs of blocks evaluated at once


class _Form(NamedTuple):
    """What is summed over all pairs, and how.

    Attributes:
        function: pair function.
        tile_size: size that the user has chosen, or None.
        devices: devices over which rows are split, or None for one.
    """

    function: PairFunction
    tile_size: int | None
    devices: Devices | None


def _tile_form(function: PairFunction, args: PyTree, rows: PyTree, columns: PyTree) -> jax.Array:
    """Σ_ij v_ic f(x_i, y_j) w_jc within a tile, [c].

    Matrix products keep the evaluation of the tile vectorised, which a fused sum does not.
    """
    (xs, v), (ys, w) = rows, columns
    values = tiles.evaluate(function, args, xs, ys)
    return jnp.sum(v * matmul(values, w), 0)


def _tile_diagonal_form(function: PairFunction, args: PyTree, rows: PyTree) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc within a tile, [c]."""
    xs, w = rows
    values = tiles.evaluate(function, args, xs, xs)
    return jnp.sum(w * matmul(jnp.triu(values, 1), w), 0)


def _forms_value(form: _Form, smooth: PyTree, rest: PyTree) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc over all pairs, [c].

    `smooth` and `rest` are the two parts of (args, samples, weights).
    """
    if form.devices is None:
        return _value_here(form, (), smooth, rest)
    here = functools.partial(_value_here, form, form.devices.axes)
    specs = WHOLE, form.devices.rows, form.devices.rows
    return form.devices.run(here, (specs, specs), WHOLE)(smooth, rest)


def _value_here(form: _Form, axes: ring.Axes, smooth: PyTree, rest: PyTree) -> jax.Array:
    """`_forms_value` as one device computes it, or each of those along some axes."""
    function = form.function
    args, xs, weights = combine(smooth, rest)
    one = tiles.take(xs, 0)
    dtype = jnp.result_type(jax.eval_shape(function, args, one, one), weights)

    def evaluate(size: int, args: PyTree, xs: PyTree, weights: jax.Array) -> jax.Array:
        def step(i: jax.Array, j: jax.Array, x: PyTree, y: ArrayLike, state: PyTree) -> PyTree:
            return tiles.add(state[0], _tile_form(function, args, x, y).astype(dtype)), ()

        def diagonal(i: jax.Array, x: PyTree, state: PyTree) -> PyTree:
            return tiles.add(state[0], _tile_diagonal_form(function, args, x).astype(dtype)), ()

        zero = jnp.zeros(weights.shape[-1], dtype)
        rows = tiles.split(xs, size), tiles.split_weights(weights, size)
        total, _ = ring.visit_pairs(axes, rows, diagonal, step, (zero, zero), ())
        return total[0] + total[1]

    total = tiles.by_platform(evaluate, form.tile_size, xs, args, xs, weights)
    return lax.psum(total, axes) if axes else total


def _forms_slopes(form: _Form, smooth: PyTree, rest: PyTree, cotangent: jax.Array) -> PyTree:
    """The derivative of a sum over pairs is a sum over pairs: tiles are evaluated again."""
    if form.devices is None:
        return _slopes_here(form, (), smooth, rest, cotangent)
    here = functools.partial(_slopes_here, form, form.devices.axes)
    specs = WHOLE, form.devices.rows, form.devices.rows
    return form.devices.run(here, (specs, specs, WHOLE), specs)(smooth, rest, cotangent)


def _slopes_here(
    form: _Form, axes: ring.Axes, smooth: PyTree, rest: PyTree, cotangent: jax.Array
) -> PyTree:
    """`_forms_slopes` as one device computes it, or each of those along some axes."""

    def evaluate(size: int, smooth: PyTree, rest: PyTree, cotangent: jax.Array) -> PyTree:
        def split(part: PyTree) -> PyTree:
            args, xs, weights = part
            split_weights = functools.partial(tiles.split_weights, tile_size=size)
            return args, (tiles.split(xs, size), jax.tree.map(split_weights, weights))

        (args, rows), undo = jax.vjp(split, smooth)
        slopes = _slopes_in_tiles(form.function, axes, (args, rows), split(rest), cotangent)
        return undo(slopes)[0]

    xs = combine(smooth, rest)[1]
    args, *rows = tiles.by_platform(evaluate, form.tile_size, xs, smooth, rest, cotangent)
    return lax.psum(args, axes) if axes else args, *rows


def _slopes_in_tiles(
    function: PairFunction, axes: ring.Axes, smooth: PyTree, rest: PyTree, cotangent: jax.Array
) -> PyTree:
    """Derivatives by the two parts of (args, rows), rows a pair (samples, weights) in tiles."""
    args, rows = smooth
    rest_args, rest_rows = rest

    def place(total: PyTree, index: jax.Array, tile: PyTree) -> PyTree:
        return jax.tree.map(lambda t, x: t.at[index].add(x), total, tile)

    def pull_back(form: Callable, *primals: PyTree) -> PyTree:
        value, pull = jax.vjp(form, *primals)
        return pull(cotangent.astype(value.dtype))

    def step(i: jax.Array, j: jax.Array, x: PyTree, y: PyTree, state: PyTree) -> PyTree:
        (x, rest_x), (y, rest_y) = x, y

        def form(a: PyTree, x: PyTree, y: ArrayLike) -> jax.Array:
            pair = combine(x, rest_x), combine(y, rest_y)
            return _tile_form(function, combine(a, rest_args), *pair)

        d_args, d_x, d_y = pull_back(form, args, x, y)
        (t_args, t_rows), t_columns = state
        t_args = jax.tree.map(jnp.add, t_args, d_args)
        return (t_args, place(t_rows, i, d_x)), place(t_columns, j, d_y)

    def diagonal(i: jax.Array, x: PyTree, state: PyTree) -> PyTree:
        x, rest_x = x

        def form(a: PyTree, x: PyTree) -> jax.Array:
            return _tile_diagonal_form(function, combine(a, rest_args), combine(x, rest_x))

        d_args, d_x = pull_back(form, args, x)
        (t_args, t_rows), t_columns = state
        return (jax.tree.map(jnp.add, t_args, d_args), place(t_rows, i, d_x)), t_columns

    zeros, tiled = jax.tree.map(jnp.zeros_like, smooth), (rows, rest_rows)
    (t_args, t_rows), t_columns = ring.visit_pairs(axes, tiled, diagonal, step, zeros, zeros[1])
    return t_args, jax.tree.map(jnp.add, t_rows, t_columns)


_one_form = differentiable(
    lambda form, smooth, rest: _forms_value(form, smooth, rest)[0],
    lambda form, smooth, rest: _forms_slopes(form, smooth, rest, jnp.ones(1)),
)
# The gradient of each of several would be a pass of its own, that of their sum is one.
_many_forms = jax.custom_vjp(_forms_value, nondiff_argnums=(0,))
_many_forms.defvjp(
    lambda form, *trees: (_forms_value(form, *trees), trees),
    lambda form, trees, cotangent: (_forms_slopes(form, trees[0], trees[1], cotangent), None),
)


def _upper_forms(
    function: PairFunction, args: PyTree, xs: PyTree, weights: jax.Array, tile_size: int | None
) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc, [c].

    It has derivatives: of one form in both modes, of several in reverse mode.
    """
    form = _Form(function, tile_size, devices())
    if form.devices is not None:
        xs = ring.even(xs, form.devices)
        weights = ring.even(weights, form.devices, mode="constant")
    smooth, rest = partition((args, xs, weights))
    if weights.shape[-1] == 1:
        return _one_form(form, smooth, rest)[None]
    return _many_forms(form, smooth, rest)


def _ones(function: PairFunction, args: PyTree, xs: PyTree) -> jax.Array:
    """Unit weights [n, 1] in the dtype of the values."""
    first = tiles.take(xs, 0)
    dtype = jax.eval_shape(function, args, first, first).dtype
    return jnp.ones((tiles.length_of(xs), 1), dtype)


def _reduction(
    function: Callable[Parameters, Result], rows_at: int | None = None
) -> Callable[Parameters, Result]:
    """Compiled, and where the data are."""
    compiled = wide_jit(function, static_argnames=("function", "tile_size"))
    return follows_data(compiled, rows_at=rows_at)


@_reduction
def mean_over_pairs(
    function: PairFunction, args: PyTree, xs: PyTree, *, tile_size: int | None = None
) -> jax.Array:
    """Mean of f(x_i, x_j) over the pairs i < j: the U-statistic of a symmetric f.

    Args:
        function: pair function, (args, x, y) → scalar.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n ≥ 2.
        tile_size: largest number of rows and columns of a tile; None: `default_tile_size`.

    Returns:
        A scalar.

    Cost: n²/2 evaluations, O(n + tile²) memory; the gradient about three times as much time.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import mean_over_pairs
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(mean_over_pairs(product, 3.0, jnp.array([1.0, 2.0, 3.0])))  # 2 + 3 + 6
    11.0
    """
    n = tiles.length_of(xs)
    total = _upper_forms(function, args, xs, _ones(function, args, xs), tile_size)[0]
    return total / (n * (n - 1) / 2)


@_reduction
def mean_over_all_pairs(
    function: PairFunction, args: PyTree, xs: PyTree, *, tile_size: int | None = None
) -> jax.Array:
    """Mean of a symmetric f(x_i, x_j) over all n² pairs: the V-statistic.

    Arguments, cost and memory are those of `mean_over_pairs`; n ≥ 1.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import mean_over_all_pairs
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(mean_over_all_pairs(product, 1.0, jnp.array([1.0, 3.0])))  # (4 / 2)²
    4.0
    """
    n = tiles.length_of(xs)
    ones = _ones(function, args, xs)
    return quadratic_forms(function, args, xs, ones, tile_size=tile_size)[0] / n / n


@_reduction
def quadratic_forms(
    function: PairFunction,
    args: PyTree,
    xs: PyTree,
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
        tile_size: largest number of rows and columns of a tile; None: `default_tile_size`.

    Returns:
        The values, [c].

    Cost: n²/2 evaluations, n² c / 2 multiplications in matrix products, O(n c + tile²) memory.
    Where c > 1, derivatives exist in reverse mode only.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import quadratic_forms
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(quadratic_forms(product, 1.0, jnp.array([1.0, 2.0]), jnp.array([[1.0, 1.0], [1, 0]])))
    [9. 1.]
    """
    off_diagonal, diagonal = split_quadratic_forms(function, args, xs, weights, tile_size=tile_size)
    return off_diagonal + diagonal


@_reduction
def split_quadratic_forms(
    function: PairFunction,
    args: PyTree,
    xs: PyTree,
    weights: jax.Array,
    *,
    tile_size: int | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The two parts of `quadratic_forms`: sums over i ≠ j, and over i = j, [c] each.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import split_quadratic_forms
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(*split_quadratic_forms(product, 1.0, jnp.array([1.0, 2.0]), jnp.ones((2, 1))))
    [4.] [5.]
    """
    diagonal = jax.vmap(function, in_axes=(None, 0, 0))(args, xs, xs)
    upper = _upper_forms(function, args, xs, weights, tile_size)
    return 2 * upper, matmul(diagonal, jnp.square(weights))


@functools.partial(_reduction, rows_at=0)
def weighted_sums(
    function: PairFunction,
    args: PyTree,
    xs: PyTree,
    ys: PyTree,
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
        tile_size: largest number of rows and columns of a tile; None: `default_tile_size`.

    Returns:
        The sums, [n, c].

    Cost: n n' evaluations and n n' c multiplications, O((n + n') c + tile²) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import weighted_sums
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> x = jnp.array([1.0, 2.0])
    >>> print(weighted_sums(product, 1.0, x, x, jnp.array([[1.0], [10.0]])))
    [[21.]
     [42.]]
    """
    split = devices()
    sums = functools.partial(_sums_here, function, tile_size)
    if split is None:
        return sums(args, xs, (ys, weights))
    columns = ring.even(ys, split), ring.even(weights, split, mode="constant")
    num_points = tiles.length_of(xs)
    if num_points * split.number <= tiles.length_of(ys):
        few = lambda *data: lax.psum(sums(*data), split.axes)  # noqa: E731
        return split.run(few, (WHOLE, WHOLE, split.rows), WHOLE)(args, xs, columns)
    here = functools.partial(ring.sum_over_blocks, sums, split.axes)
    specs = WHOLE, split.rows, split.rows
    found = split.run(here, (specs, specs), split.rows)
    return found(*partition((args, ring.even(xs, split), columns)))[:num_points]


def _sums_here(
    function: PairFunction,
    tile_size: int | None,
    args: PyTree,
    xs: PyTree,
    samples: tuple[Any, jax.Array],
) -> jax.Array:
    """`weighted_sums` as one device computes them, with samples (y, w)."""

    def evaluate(size: int, args: PyTree, xs: PyTree, ys: PyTree, weights: jax.Array) -> jax.Array:
        columns = tiles.split(ys, size), tiles.split_weights(weights, size)
        values = functools.partial(tiles.evaluate, function, args)

        @jax.checkpoint
        def step(rows: PyTree, total: PyTree, column: PyTree) -> tuple[Any, None]:
            samples, w = column
            return tiles.add(total, matmul(values(rows, samples), w)), None

        def row(rows: PyTree) -> jax.Array:
            tile = jax.eval_shape(values, rows, tiles.take(columns[0], 0))
            dtype = jnp.result_type(tile.dtype, weights)
            zero = jnp.zeros((tile.shape[0], weights.shape[1]), dtype)
            total, _ = lax.scan(functools.partial(step, rows), (zero, zero), columns)
            return total[0] + total[1]

        sums = lax.map(row, tiles.split(xs, size))
        return sums.reshape(-1, weights.shape[1])[: tiles.length_of(xs)]

    return tiles.by_platform(evaluate, tile_size, samples[0], args, xs, *samples)


@follows_data
@functools.partial(wide_jit, static_argnames=("function", "block_size", "tile_size"))
def block_means(
    function: PairFunction,
    args: PyTree,
    xs: PyTree,
    *,
    block_size: int,
    tile_size: int | None = None,
) -> jax.Array:
    """Mean over the pairs i < j within each of the ⌊n/B⌋ blocks of B consecutive samples.

    The last, incomplete block is dropped.

    Args:
        function: pair function, (args, x, y) → scalar.
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n.
        block_size: B, 2 ≤ B ≤ n.
        tile_size: largest number of rows and columns of a tile; None: `default_tile_size`.

    Returns:
        The means, [⌊n/B⌋].

    Cost: n B / 2 pairs, O(n) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import block_means
    >>> def product(scale, x, y):
    ...     return scale * x * y
    >>> print(block_means(product, 1.0, jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), block_size=2))
    [ 2. 12.]
    """
    num_blocks = tiles.length_of(xs) // block_size

    def cut(leaf: jax.Array) -> jax.Array:
        return leaf[: num_blocks * block_size].reshape(num_blocks, block_size, *leaf.shape[1:])

    def means(args: PyTree, blocks: PyTree) -> jax.Array:
        return lax.map(
            lambda block: mean_over_pairs(function, args, block, tile_size=tile_size),
            blocks,
            batch_size=min(tiles.length_of(blocks), max(1, _BLOCK_ENTRIES // block_size**2)),
        )

    split, blocks = devices(), jax.tree.map(cut, xs)
    if split is None:
        return means(args, blocks)
    of_devices = split.run(means, (WHOLE, split.rows), split.rows)
    return of_devices(args, ring.even(blocks, split))[:num_blocks]
