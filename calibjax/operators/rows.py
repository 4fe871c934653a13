"""Functions of one point and all samples, a tile of points at a time."""

import functools
from collections.abc import Callable

import jax
from jax import lax

from calibjax._core.batches import Result, map_shared
from calibjax.operators import tiles
from calibjax.operators.tiles import TILE_SIZE, Args, Point


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
    values, num_points = map_shared(run, args, tiles.split(xs, tile_size)), tiles.length_of(xs)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:num_points], values)
