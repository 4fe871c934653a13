"""Sums and means of a pair function."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._arithmetic import matmul
from calibjax._compilation import wide_jit
from calibjax._pytree import PyTree
from calibjax.pairwise import tiles
from calibjax.pairwise.derivatives import differentiable

PairFunction = Callable[[Any, Any, Any], jax.Array]
_BLOCK_ENTRIES = 2**20  # pairs of blocks evaluated at once


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


def _partition(tree: PyTree) -> tuple[Any, Any]:
    """The tree twice: with None for leaves without derivatives (labels), and the other way."""

    def is_smooth(leaf: ArrayLike) -> bool:
        return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)

    smooth = jax.tree.map(lambda leaf: leaf if is_smooth(leaf) else None, tree)
    return smooth, jax.tree.map(lambda leaf: None if is_smooth(leaf) else leaf, tree)


def _combine(smooth: PyTree, rest: PyTree) -> PyTree:
    """Undoes `_partition`."""
    choose = lambda s, r: r if s is None else s  # noqa: E731
    return jax.tree.map(choose, smooth, rest, is_leaf=lambda leaf: leaf is None)


def _forms_value(
    function: PairFunction, tile_size: int | None, smooth: PyTree, rest: PyTree
) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc over all pairs, [c].

    `smooth` and `rest` are the two parts of (args, samples, weights).
    """
    args, xs, weights = _combine(smooth, rest)
    one = tiles.take(xs, 0)
    dtype = jnp.result_type(jax.eval_shape(function, args, one, one), weights)

    def evaluate(size: int, args: PyTree, xs: PyTree, weights: jax.Array) -> jax.Array:
        def step(i: jax.Array, j: jax.Array, x: PyTree, y: ArrayLike, total: PyTree) -> PyTree:
            return tiles.add(total, _tile_form(function, args, x, y).astype(dtype))

        def diagonal(i: jax.Array, x: PyTree, total: PyTree) -> PyTree:
            return tiles.add(total, _tile_diagonal_form(function, args, x).astype(dtype))

        zero = jnp.zeros(weights.shape[-1], dtype)
        rows = tiles.split(xs, size), tiles.split_weights(weights, size)
        total = tiles.visit_upper(rows, diagonal, step, (zero, zero))
        return total[0] + total[1]

    return tiles.by_platform(evaluate, tile_size, xs, args, xs, weights)


def _forms_slopes(
    function: PairFunction,
    tile_size: int | None,
    smooth: PyTree,
    rest: PyTree,
    cotangent: jax.Array,
) -> PyTree:
    """The derivative of a sum over pairs is a sum over pairs: tiles are evaluated again."""

    def evaluate(size: int, smooth: PyTree, rest: PyTree, cotangent: jax.Array) -> PyTree:
        def split(part: PyTree) -> PyTree:
            args, xs, weights = part
            split_weights = functools.partial(tiles.split_weights, tile_size=size)
            return args, (tiles.split(xs, size), jax.tree.map(split_weights, weights))

        (args, rows), undo = jax.vjp(split, smooth)
        slopes = _slopes_in_tiles(function, (args, rows), split(rest), cotangent)
        return undo(slopes)[0]

    xs = _combine(smooth, rest)[1]
    return tiles.by_platform(evaluate, tile_size, xs, smooth, rest, cotangent)


def _slopes_in_tiles(
    function: PairFunction, smooth: PyTree, rest: PyTree, cotangent: jax.Array
) -> PyTree:
    """Derivatives by the two parts of (args, rows), rows a pair (samples, weights) in tiles."""
    args, rows = smooth
    rest_args, rest_rows = rest

    def place(total: PyTree, index: jax.Array, tile: PyTree) -> PyTree:
        return jax.tree.map(lambda t, x: t.at[index].add(x), total, tile)

    def pull_back(form: Callable, *primals: PyTree) -> PyTree:
        value, pull = jax.vjp(form, *primals)
        return pull(cotangent.astype(value.dtype))

    def step(i: jax.Array, j: jax.Array, x: PyTree, y: PyTree, total: PyTree) -> PyTree:
        (x, rest_x), (y, rest_y) = x, y

        def form(a: PyTree, x: PyTree, y: ArrayLike) -> jax.Array:
            pair = _combine(x, rest_x), _combine(y, rest_y)
            return _tile_form(function, _combine(a, rest_args), *pair)

        d_args, d_x, d_y = pull_back(form, args, x, y)
        t_args, t_rows = total
        t_rows = place(place(t_rows, i, d_x), j, d_y)
        return jax.tree.map(jnp.add, t_args, d_args), t_rows

    def diagonal(i: jax.Array, x: PyTree, total: PyTree) -> PyTree:
        x, rest_x = x

        def form(a: PyTree, x: PyTree) -> jax.Array:
            return _tile_diagonal_form(function, _combine(a, rest_args), _combine(x, rest_x))

        d_args, d_x = pull_back(form, args, x)
        t_args, t_rows = total
        return jax.tree.map(jnp.add, t_args, d_args), place(t_rows, i, d_x)

    zeros = jax.tree.map(jnp.zeros_like, smooth)
    return tiles.visit_upper((rows, rest_rows), diagonal, step, zeros)


_one_form = differentiable(
    lambda form, smooth, rest: _forms_value(form[0], form[1], smooth, rest)[0],
    lambda form, smooth, rest: _forms_slopes(form[0], form[1], smooth, rest, jnp.ones(1)),
)
# The gradient of each of several would be a pass of its own, that of their sum is one.
_many_forms = jax.custom_vjp(_forms_value, nondiff_argnums=(0, 1))
_many_forms.defvjp(
    lambda function, size, smooth, rest: (
        _forms_value(function, size, smooth, rest),
        (smooth, rest),
    ),
    lambda function, size, trees, cotangent: (
        _forms_slopes(function, size, trees[0], trees[1], cotangent),
        None,
    ),
)


def _upper_forms(
    function: PairFunction, args: PyTree, xs: PyTree, weights: jax.Array, tile_size: int | None
) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc, [c].

    It has derivatives: of one form in both modes, of several in reverse mode.
    """
    smooth, rest = _partition((args, xs, weights))
    if weights.shape[-1] == 1:
        return _one_form((function, tile_size), smooth, rest)[None]
    return _many_forms(function, tile_size, smooth, rest)


def _ones(function: PairFunction, args: PyTree, xs: PyTree) -> jax.Array:
    """Unit weights [n, 1] in the dtype of the values."""
    first = tiles.take(xs, 0)
    dtype = jax.eval_shape(function, args, first, first).dtype
    return jnp.ones((tiles.length_of(xs), 1), dtype)


_jit_reduction = functools.partial(wide_jit, static_argnames=("function", "tile_size"))


@_jit_reduction
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


@_jit_reduction
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


@_jit_reduction
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


@_jit_reduction
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


@_jit_reduction
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

    return tiles.by_platform(evaluate, tile_size, ys, args, xs, ys, weights)


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

    return lax.map(
        lambda block: mean_over_pairs(function, args, block, tile_size=tile_size),
        jax.tree.map(cut, xs),
        batch_size=min(num_blocks, max(1, _BLOCK_ENTRIES // block_size**2)),
    )
