"""Kernel smoothing: means over the samples near a point, for many bandwidths at once."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul, on_cpu
from calibjax._core.batches import jit_long, map_shared
from calibjax._core.pytree import PyTree
from calibjax.operators import tiles
from calibjax.operators.tiles import Args, PairFunction, Point

Theta = TypeVar("Theta")
LogKernel = Callable[[Theta, jax.Array], jax.Array]
_Pair = tuple[jax.Array, jax.Array]
_Columns = tuple[Point, jax.Array, jax.Array]  # samples, their groups, values
_CPU_TILE_SIZE = 384  # as much work as it takes to occupy several threads


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
        tile_size: largest number of rows and columns of a tile; None: 384 on CPUs.

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
    size = (
        _CPU_TILE_SIZE if tile_size is None and on_cpu() else tiles.size_of(samples[0], tile_size)
    )
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
