"""Sums over all pairs i < j, a tile at a time."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core.batches import map_shared
from calibjax._core.pytree import PyTree
from calibjax.operators import tiles
from calibjax.operators.tiles import Args, PairFunction, Point


def upper_forms(
    function: PairFunction[Args, Point],
    args: Args,
    xs: Point,
    weights: jax.Array | None,
    tile_size: int | None,
) -> jax.Array:
    """Σ_{i<j} w_ic f(x_i, x_j) w_jc, [c], or the plain sum over pairs, [1], without weights."""
    first = tiles.take(xs, 0)
    dtype = jax.eval_shape(function, args, first, first).dtype
    if weights is None:
        weights = jnp.ones((tiles.length_of(xs), 1), dtype)
    dtype = jnp.result_type(dtype, weights)
    size = tiles.size_of(xs, tile_size)
    rows = tiles.split(xs, size), tiles.split_weights(weights, size)
    length = rows[1].shape[1]
    above = np.triu(np.ones((length, length), bool), 1)

    def sums(data: tuple[Any, PyTree], pairs: jax.Array) -> jax.Array:
        args, rows = data

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def add(total: tuple[jax.Array, jax.Array], pair: jax.Array) -> tuple[Any, None]:
            (x, v), (y, w) = (lax.optimization_barrier(tiles.take(rows, index)) for index in pair)
            values = tiles.evaluate(function, args, x, y)
            values = jnp.where(above | (pair[0] < pair[1]), values, 0)
            return tiles.add(total, jnp.sum(v * tiles.product(values, w), 0).astype(dtype)), None

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def of_group(pairs: jax.Array) -> jax.Array:
            zero = jnp.zeros(weights.shape[1], dtype)
            value, lost = lax.scan(add, (zero, zero), pairs)[0]
            return value + lost

        return lax.map(of_group, pairs)

    return jnp.sum(map_shared(sums, (args, rows), tiles.pairs(tiles.length_of(rows))), 0)
