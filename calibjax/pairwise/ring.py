"""Pairs of rows that are split over devices: blocks of rows travel round the ring of devices.

Each of D devices holds n / D rows. In step s it sees, beside its own rows, those of the device s
places before it. For a sum over pairs of one set D / 2 steps are enough, since each pair is needed
once; for even D two devices see each other in the last of them, and each takes half of their pairs.
Nothing here holds more than the rows of two devices.

All functions run on each device, within `Devices.run`.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.pytree import PyTree, T
from calibjax._core.sharding import Devices
from calibjax.pairwise import tiles
from calibjax.pairwise.derivatives import combine

Own = TypeVar("Own")
Guest = TypeVar("Guest")
Axes = tuple[str, ...]


def shift(tree: T, axes: Axes, steps: int = 1) -> T:
    """Hands arrays on to the device that is some steps further."""
    size = lax.axis_size(axes)
    along = [(device, (device + steps) % size) for device in range(size)]
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, axes, along), tree)


def visit_pairs(
    axes: Axes,
    rows: T,
    diagonal: tiles.OnDiagonal[T, tuple[Own, Guest]],
    upper: tiles.OffDiagonal[T, tuple[Own, Guest]],
    own: Own,
    guest: Guest,
) -> tuple[Own, Guest]:
    """Folds over pairs of tiles of all devices, each pair of different tiles once.

    Args:
        axes: axes of the mesh over which tiles are split; none for one device.
        rows: own tiles, a pytree with leading axis [tiles].
        diagonal: (i, tile i, (own, guest)) → (own, guest) for pairs within a tile.
        upper: (i, j, tile i, tile j, (own, guest)) → (own, guest) for pairs of an own tile i and
            the tile j of the rows that visit, which may be the own ones.
        own: initial value of what stays on the device.
        guest: initial value of what travels with the rows that visit.

    Returns:
        The last values, the second one back on the device from which its rows came.
    """
    if not axes:
        return tiles.visit_upper(rows, diagonal, upper, (own, guest))
    size, index, num_tiles = lax.axis_size(axes), lax.axis_index(axes), tiles.length_of(rows)

    def step(s: jax.Array, state: tuple[T, tuple[Own, Guest]]) -> tuple[T, tuple[Own, Guest]]:
        visiting, folded = state
        following = shift(visiting, axes)  # while the pairs are evaluated
        host = (index - s) % size
        is_shared = (s > 0) & (2 * s == size)
        high = jnp.where(is_shared & (index < host), num_tiles // 2, num_tiles)
        first = jnp.where(is_shared & (index > host), num_tiles // 2, 0)

        def row(i: jax.Array, x: T, folded: tuple[Own, Guest]) -> tuple[Own, Guest]:
            folded = lax.cond(s == 0, lambda: diagonal(i, x, folded), lambda: folded)

            def column(j: jax.Array, y: T, folded: tuple[Own, Guest]) -> tuple[Own, Guest]:
                return upper(i, j, x, y, folded)

            low = jnp.where(s == 0, i + 1, first)
            return tiles.sweep(visiting, low, num_tiles, column, folded)

        own, guest = tiles.sweep(rows, 0, high, row, folded)
        return following, (own, shift(guest, axes))

    num_steps = size // 2 + 1
    _, (own, guest) = lax.fori_loop(0, num_steps, step, (rows, (own, guest)))
    return own, shift(guest, axes, -num_steps)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def sum_over_blocks(
    block: Callable[[Any, Any, Any], T],
    axes: Axes,
    smooth: tuple[Any, Any, Any],
    rest: tuple[Any, Any, Any],
) -> T:
    """Sums block(args, own rows, visiting rows), a pytree of arrays, over the rows of all devices.

    Derivatives exist in reverse mode only, by a second way round: automatic differentiation would
    hold all rows that have visited.

    Args:
        block: function of pytrees.
        axes: axes of the mesh over which rows are split.
        smooth: the three pytrees, with None in place of leaves without derivatives.
        rest: the same with None in place of leaves with derivatives.
    """
    args, own, visiting = combine(smooth, rest)
    shapes = jax.eval_shape(block, args, own, visiting)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def step(_: jax.Array, state: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        visiting, totals = state
        terms = jax.tree.leaves(block(args, own, visiting))
        totals = [tiles.add(*each) for each in zip(totals, terms, strict=True)]
        return shift(visiting, axes), totals

    totals = [(zero, zero) for zero in jax.tree.leaves(zeros)]
    _, totals = lax.fori_loop(0, lax.axis_size(axes), step, (visiting, totals))
    return jax.tree.unflatten(jax.tree.structure(shapes), [x + lost for x, lost in totals])


def _forward(
    block: Callable[..., T], axes: Axes, smooth: tuple[Any, Any, Any], rest: tuple[Any, Any, Any]
) -> tuple[T, tuple[Any, Any]]:
    return sum_over_blocks(block, axes, smooth, rest), (smooth, rest)


def _backward(
    block: Callable, axes: Axes, residuals: tuple[PyTree, PyTree], cotangents: PyTree
) -> tuple[PyTree, None]:
    (args, own, visiting), (rest_args, rest_own, rest_visiting) = residuals

    def step(_: jax.Array, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        visiting, rest, slopes = state

        def value(args: PyTree, own: PyTree, visiting: PyTree) -> PyTree:
            pairs = (args, rest_args), (own, rest_own), (visiting, rest)
            return block(*(combine(*pair) for pair in pairs))

        _, pull = jax.vjp(value, args, own, visiting)
        *here, guest = jax.tree.map(jnp.add, slopes, pull(cotangents))
        visiting, rest, guest = shift((visiting, rest, guest), axes)
        return visiting, rest, (*here, guest)

    zeros = jax.tree.map(jnp.zeros_like, (args, own, visiting))
    state = visiting, rest_visiting, zeros
    return lax.fori_loop(0, lax.axis_size(axes), step, state)[-1], None


sum_over_blocks.defvjp(_forward, _backward)


def even(rows: T, devices: Devices, mode: str = "edge") -> T:
    """Rows, filled up so that all devices have equally many; weights with mode "constant"."""
    missing = -tiles.length_of(rows) % devices.number

    def filled(leaf: jax.Array) -> jax.Array:
        return jnp.pad(leaf, ((0, missing), *((0, 0) for _ in leaf.shape[1:])), mode=mode)

    return jax.tree.map(filled, rows) if missing else rows
