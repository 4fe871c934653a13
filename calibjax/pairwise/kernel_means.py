"""Kernel smoothing: means over the samples near a point, for many bandwidths at once."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul
from calibjax._core.compilation import jit
from calibjax._core.pytree import PyTree
from calibjax._core.sharding import WHOLE, Devices, devices, follows_data
from calibjax.pairwise import ring, tiles
from calibjax.pairwise.derivatives import combine, partition
from calibjax.pairwise.tiles import Args, PairFunction, Point

Theta = TypeVar("Theta")
LogKernel = Callable[[Theta, jax.Array], jax.Array]
_Pair = tuple[jax.Array, jax.Array]
_Trees = tuple[Any, Any, Any]
_Columns = tuple[Point, jax.Array, jax.Array]  # samples, their groups, values
_CPU_TILE_SIZE = 384  # as much work as it takes to occupy several threads


@functools.partial(follows_data, rows_at=1)
@functools.partial(jit, static_argnames=("function", "log_kernel", "tile_size"))
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
        tile_size: largest number of rows and columns of a tile; None: 384 on CPUs, otherwise
            `default_tile_size`.

    Returns:
        The means [G, n, c], and the sums of the weights over the largest of them, [G, n]. Where
        a group has no samples, both are zero.

    Cost: for the pairs within groups, one distance, G exponentials and G (c + 1) multiplications
    each; O((n + n') c + G n c + tile²) memory, also for the gradient.

    References: Nadaraya (1964); Watson (1964).

    >>> import jax.numpy as jnp
    >>> from calibjax.pairwise import kernel_means
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
    engine = functools.partial(_sums_here, function, log_kernel, tile_size)
    data = (args, parameters), points, (*samples, values)
    split = devices()
    _, sums = engine(*data) if split is None else _sums_of_devices(engine, log_kernel, split, data)
    totals = sums[..., -1]
    return sums[..., :-1] / jnp.where(totals == 0, 1, totals)[..., None], totals


def _sums_here(
    function: Callable,
    log_kernel: Callable,
    tile_size: int | None,
    kernels: tuple[Any, Any],
    points: tuple[Any, jax.Array],
    samples: _Columns[Any],
) -> _Pair:
    """Distance of the nearest sample [n], and sums of weighted values and of weights [G, n, c + 1].

    The latter are divided by the weight of the former, as one device computes them.
    """
    evaluate = functools.partial(_sums_in_tiles, function, log_kernel)
    operands = kernels, points, samples
    return tiles.by_platform(evaluate, tile_size, samples, *operands, cpu=_CPU_TILE_SIZE)


def _sums_in_tiles(
    function: Callable,
    log_kernel: Callable,
    tile_size: int,
    kernels: tuple[Any, Any],
    points: tuple[Any, jax.Array],
    samples: PyTree,
) -> _Pair:
    """`_sums_here` for tiles of some size."""
    *samples, values = samples
    order, to_order = jnp.argsort(points[1]), jnp.argsort(samples[1])
    points = jax.tree.map(lambda leaf: leaf[order], points)
    samples = jax.tree.map(lambda leaf: leaf[to_order], samples)
    ones = jnp.ones((values.shape[0], 1), values.dtype)
    weights = tiles.split_weights(jnp.concatenate([values[to_order], ones], 1), tile_size)
    columns = (*tiles.split(samples, tile_size), weights)
    smooth = functools.partial(_smoothed_row, function, log_kernel)
    smooth = jax.checkpoint(functools.partial(smooth, *kernels, columns))
    # [tiles, length] and [tiles, G, c + 1, length]
    nearest, sums = lax.map(smooth, tiles.split(points, tile_size))
    sums = jnp.moveaxis(sums, (1, 2), (0, -1)).reshape(sums.shape[1], -1, sums.shape[2])
    nearest, sums = nearest.reshape(-1)[: order.size], sums[:, : order.size]
    sums = jnp.zeros_like(sums).at[:, order].set(sums)
    return jnp.zeros_like(nearest).at[order].set(nearest), sums


def _sums_of_devices(
    engine: Callable, log_kernel: LogKernel[Any], devices: Devices, data: _Trees
) -> _Pair:
    """The same where points and samples are split over devices, and samples travel.

    Samples that fill the rows up are in a group of their own, which has no points.
    """
    kernels, points, (samples, groups, values) = data
    num_points, num_samples = tiles.length_of(points), tiles.length_of(samples)
    points, samples, groups = (ring.even(x, devices) for x in (points, samples, groups))
    groups = jnp.where(jnp.arange(groups.size) < num_samples, groups, jnp.iinfo(groups.dtype).max)
    values = ring.even(values, devices, mode="constant")

    def here(smooth: _Trees, rest: _Trees) -> _Pair:
        return _sums_round(engine, log_kernel, devices.axes, smooth, rest)

    specs = WHOLE, devices.rows, devices.rows
    columns = jax.sharding.PartitionSpec(None, devices.axes)
    found = devices.run(here, (specs, specs), (devices.rows, columns))
    nearest, sums = found(*partition((kernels, points, (samples, groups, values))))
    return nearest[:num_points], sums[:, :num_points]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _sums_round(
    engine: Callable, log_kernel: Callable, axes: ring.Axes, smooth: _Trees, rest: _Trees
) -> _Pair:
    """What `engine` finds among the samples of all devices."""
    kernels, points, samples = combine(smooth, rest)

    def step(_: jax.Array, state: _Columns[Any]) -> _Columns[Any]:
        samples, nearest, sums = state
        other, more = engine(kernels, points, samples)
        closest = jnp.minimum(nearest, other)
        rescale = functools.partial(_rescaled, log_kernel, kernels[1], closest)
        return ring.shift(samples, axes), closest, rescale(nearest, sums) + rescale(other, more)

    shapes: Any = jax.eval_shape(engine, kernels, points, samples)
    start = [
        jnp.full(leaf.shape, value, leaf.dtype)
        for leaf, value in zip(shapes, (jnp.inf, 0), strict=True)
    ]
    return lax.fori_loop(0, lax.axis_size(axes), step, (samples, *start))[1:]


def _rescaled(
    log_kernel: Callable, parameters: PyTree, nearest: jax.Array, own: jax.Array, sums: jax.Array
) -> jax.Array:
    """Sums that were divided by the weight of an own distance, by that of the nearest instead."""
    is_known = own < jnp.inf
    nearest, own = (jnp.where(is_known, distance, 0) for distance in (nearest, own))

    def rescaled(parameter: PyTree, sums: jax.Array) -> jax.Array:
        factors = jnp.exp(log_kernel(parameter, own) - log_kernel(parameter, nearest))
        return jnp.where(is_known, factors, 0)[:, None] * sums

    return jax.vmap(rescaled)(parameters, sums)


def _forward(
    engine: Callable, log_kernel: Callable, axes: ring.Axes, smooth: _Trees, rest: _Trees
) -> tuple[Any, Any]:
    found: _Pair = _sums_round(engine, log_kernel, axes, smooth, rest)
    return found, (smooth, rest, found[0])


def _backward(
    engine: Callable, log_kernel: Callable, axes: ring.Axes, residuals: _Trees, cotangents: _Pair
) -> tuple[Any, None]:
    """Given the smallest distance, everything is a sum over devices, whose derivative is known."""
    smooth, rest, closest = residuals

    def block(kernels: tuple, own: tuple, samples: PyTree) -> tuple:
        points, closest = own
        other, more = engine(kernels, points, samples)
        is_closest = (other == closest) & (other < jnp.inf)
        sums = _rescaled(log_kernel, kernels[1], closest, other, more)
        return is_closest.astype(other.dtype), jnp.where(is_closest, other, 0), sums

    def value(smooth: _Trees) -> _Pair:
        (kernels, points, samples), (rest_kernels, rest_points, rest_samples) = smooth, rest
        found: tuple[jax.Array, jax.Array, jax.Array] = ring.sum_over_blocks(
            block,
            axes,
            (kernels, (points, closest), samples),
            (rest_kernels, (rest_points, None), rest_samples),
        )
        number, total, sums = found
        change = total / jnp.where(number == 0, 1, number)
        nearest = closest + (change - lax.stop_gradient(change))
        parameters = combine(kernels[1], rest_kernels[1])
        return nearest, _rescaled(log_kernel, parameters, nearest, closest, sums)

    return *jax.vjp(value, smooth)[1](cotangents), None


_sums_round.defvjp(_forward, _backward)


def _smoothed_row(
    function: PairFunction[Args, Point],
    log_kernel: LogKernel[Theta],
    args: Args,
    parameters: Theta,
    columns: _Columns[Point],
    row: tuple[Point, jax.Array],
) -> _Pair:
    """Nearest distances [rows] and weighted sums [G, c + 1, rows] at the points of a tile."""
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
    return lax.scan(step, start, columns)[0]
