"""Sums over all pairs i < j, and their derivatives, a tile at a time."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import UNROLLED, matmul
from calibjax._core.pytree import PyTree
from calibjax._core.sharding import WHOLE, Devices, devices
from calibjax.pairwise import ring, tiles
from calibjax.pairwise.derivatives import combine, differentiable, partition
from calibjax.pairwise.tiles import Args, PairFunction, Point

_Parts = tuple[Any, Any]  # leaves with derivatives, and those without, of one pytree
_Rows = tuple[Any, jax.Array]  # samples and weights of a tile
_Slopes = tuple[_Parts, Any]  # by args and own rows; by those that visit
_Data = tuple[Any, Any, Any]  # (args, samples, weights), or one part of each
_Total = tuple[tuple[jax.Array, jax.Array], tuple[()]]  # a compensated sum; nothing travels


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


def _tile_form(function: PairFunction, args: PyTree, rows: _Rows, columns: _Rows) -> jax.Array:
    """Σ_ij v_ic f(x_i, y_j) w_jc within a tile, [c]."""
    (xs, v), (ys, w) = rows, columns
    values = tiles.evaluate(function, args, xs, ys)
    return jnp.sum(v * tiles.product(values, w), 0)


def _tile_diagonal_form(function: PairFunction, args: PyTree, rows: _Rows) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc within a tile, [c]."""
    xs, w = rows
    values = tiles.evaluate(function, args, xs, xs)
    return jnp.sum(w * tiles.product(jnp.triu(values, 1), w), 0)


def _forms_value(form: _Form, smooth: _Data, rest: _Data) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc over all pairs, [c].

    `smooth` and `rest` are the two parts of (args, samples, weights).
    """
    if form.devices is None:
        return _value_here(form, (), smooth, rest)
    here = functools.partial(_value_here, form, form.devices.axes)
    specs = WHOLE, form.devices.rows, form.devices.rows
    return form.devices.run(here, (specs, specs), WHOLE)(smooth, rest)


def _value_here(form: _Form, axes: ring.Axes, smooth: _Data, rest: _Data) -> jax.Array:
    """`_forms_value` as one device computes it, or each of those along some axes."""
    function = form.function
    args, xs, weights = combine(smooth, rest)
    one = tiles.take(xs, 0)
    dtype = jnp.result_type(jax.eval_shape(function, args, one, one), weights)

    def evaluate(size: int, args: PyTree, xs: PyTree, weights: jax.Array) -> jax.Array:
        def step(i: jax.Array, j: jax.Array, x: _Rows, y: _Rows, state: _Total) -> _Total:
            return tiles.add(state[0], _tile_form(function, args, x, y).astype(dtype)), ()

        def diagonal(i: jax.Array, x: _Rows, state: _Total) -> _Total:
            return tiles.add(state[0], _tile_diagonal_form(function, args, x).astype(dtype)), ()

        zero = jnp.zeros(weights.shape[-1], dtype)
        rows = tiles.split(xs, size), tiles.split_weights(weights, size)
        total, _ = ring.visit_pairs(axes, rows, diagonal, step, (zero, zero), ())
        return total[0] + total[1]

    total = tiles.by_platform(evaluate, form.tile_size, xs, args, xs, weights)
    return lax.psum(total, axes) if axes else total


def _forms_slopes(form: _Form, smooth: _Data, rest: _Data, cotangent: jax.Array) -> tuple[Any, ...]:
    """The derivative of a sum over pairs is a sum over pairs: tiles are evaluated again."""
    if form.devices is None:
        return _slopes_here(form, (), smooth, rest, cotangent)
    here = functools.partial(_slopes_here, form, form.devices.axes)
    specs = WHOLE, form.devices.rows, form.devices.rows
    return form.devices.run(here, (specs, specs, WHOLE), specs)(smooth, rest, cotangent)


def _slopes_here(
    form: _Form, axes: ring.Axes, smooth: _Data, rest: _Data, cotangent: jax.Array
) -> tuple[Any, ...]:
    """`_forms_slopes` as one device computes it, or each of those along some axes."""

    def evaluate(size: int, smooth: _Data, rest: _Data, cotangent: jax.Array) -> tuple[Any, ...]:
        def split(part: _Data) -> tuple[Any, tuple[Any, Any]]:
            args, xs, weights = part
            split_weights = functools.partial(tiles.split_weights, tile_size=size)
            return args, (tiles.split(xs, size), jax.tree.map(split_weights, weights))

        (args, rows), undo = jax.vjp(split, smooth)
        rest_args, rest_rows = split(rest)
        parts = (args, rest_args), (rows, rest_rows)
        return undo(_slopes_in_tiles(form.function, axes, *parts, cotangent))[0]

    args, xs, _ = smooth
    derivatives = sum(map(jnp.size, jax.tree.leaves(args))) + 2 * tiles.sample_size(xs)
    kept = min(derivatives, UNROLLED)  # those of more components come in blocks
    xs, weights = combine(xs, rest[1]), combine(smooth[2], rest[2])
    if jnp.issubdtype(weights.dtype, jnp.inexact):
        cotangent = cotangent.astype(weights.dtype)
    args, *rows = tiles.by_platform(
        evaluate, form.tile_size, xs, smooth, rest, cotangent, kept=kept
    )
    return lax.psum(args, axes) if axes else args, *rows


def _tile_slopes(
    function: PairFunction, args: _Parts, xs: _Parts, ys: _Parts, weights: jax.Array
) -> tuple[jax.Array, list[PyTree]]:
    """Values f(x_i, y_j) of a tile, and derivatives of Σ_ij weights_ij f(x_i, y_j)."""
    smooth, rest = zip(args, xs, ys, strict=True)

    def values(*given: PyTree) -> jax.Array:
        return tiles.evaluate(function, *map(combine, given, rest))

    found, pull = jax.vjp(values, *smooth)
    return found, list(pull(weights.astype(found.dtype)))


def _slopes_in_tiles(
    function: PairFunction, axes: ring.Axes, args: _Parts, rows: _Parts, cotangent: jax.Array
) -> tuple[Any, Any]:
    """Derivatives by the first part of args and of rows, pairs (samples, weights) in tiles."""
    slopes = functools.partial(_tile_slopes, function, args)

    def place(total: tuple, index: jax.Array, xs: PyTree, weights: jax.Array) -> tuple:
        new = xs, None if total[1] is None else weights * cotangent
        return jax.tree.map(lambda t, x: t.at[index].add(x.astype(t.dtype)), total, new)

    def unpack(tile: _Parts) -> tuple[_Parts, jax.Array]:
        (xs, weights), (rest_xs, rest_weights) = tile
        return (xs, rest_xs), combine(weights, rest_weights)

    def step(i: jax.Array, j: jax.Array, x: _Parts, y: _Parts, state: _Slopes) -> _Slopes:
        (t_args, t_rows), t_columns = state
        (x, v), (y, w) = unpack(x), unpack(y)
        values, (d_args, d_x, d_y) = slopes(x, y, matmul(v * cotangent, w.T))
        t_rows = place(t_rows, i, d_x, matmul(values, w))
        return (add(t_args, d_args), t_rows), place(t_columns, j, d_y, matmul(values.T, v))

    def diagonal(i: jax.Array, x: _Parts, state: _Slopes) -> _Slopes:
        (t_args, t_rows), t_columns = state
        x, w = unpack(x)
        values, (d_args, d_x, d_y) = slopes(x, x, jnp.triu(matmul(w * cotangent, w.T), 1))
        values = jnp.triu(values, 1)
        t_rows = place(t_rows, i, add(d_x, d_y), matmul(values, w) + matmul(values.T, w))
        return (add(t_args, d_args), t_rows), t_columns

    add = functools.partial(jax.tree.map, jnp.add)
    zero_args, zeros = jax.tree.map(jnp.zeros_like, (args[0], rows[0]))
    own, guest = ring.visit_pairs(axes, rows, diagonal, step, (zero_args, zeros), zeros)
    return own[0], add(own[1], guest)


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


def upper_forms(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array | None,
    tile_size: int | None,
) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc, [c], or the plain sum over pairs, [1], without weights.

    It has derivatives: of one form in both modes, of several in reverse mode.
    """
    form, used = _Form(function, tile_size, devices()), weights
    if used is None:
        first = tiles.take(xs, 0)
        dtype = jax.eval_shape(function, args, first, first).dtype
        used = jnp.ones((tiles.length_of(xs), 1), dtype)
    if form.devices is not None:
        xs = ring.even(xs, form.devices)
        used = ring.even(used, form.devices, mode="constant")
    smooth, rest = partition((args, xs, used))
    if weights is None:  # no derivatives by them: XLA does not find out that nobody needs them
        smooth, rest = (*smooth[:2], None), (*rest[:2], used)
    if used.shape[-1] == 1:
        return _one_form(form, smooth, rest)[None]
    return _many_forms(form, smooth, rest)
