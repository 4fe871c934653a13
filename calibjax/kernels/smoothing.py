"""Kernels as weights of local means."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, reciprocal
from calibjax._core.pytree import T, record
from calibjax.distances.base import Distance
from calibjax.kernels.base import Kernel
from calibjax.kernels.line import distance_of_exponentials, line_of, power
from calibjax.kernels.stationary import Stationary


def smoothed_means(
    kernel: Kernel,
    points: T,
    samples: T,
    values: jax.Array,
    groups: tuple[jax.Array, jax.Array],
    *,
    powers: Sequence[int] = (1,),
) -> tuple[jax.Array, jax.Array]:
    """Means of values over samples in the group of a point, weighted by powers of a kernel.

    Args:
        kernel: kernel record with values ≥ 0. Its field `length_scale` may be of shape [G].
        points: n points, a pytree with leading axis n.
        samples: n' samples, a pytree with leading axis n'.
        values: values of the samples, [n', c].
        groups: group of each point, [n], and of each sample, [n'], integers.
        powers: exponents of the kernel, P of them.

    Returns:
        The means [P, n, c], and the sums of the weights divided by the largest weight, [P, n], both
        zero where there is no sample; [P, G, n, c] and [P, G, n] for G length scales.

    Cost: that of `operators.kernel_means` for P G kernels. Distances are computed once for kernels
    of a distance (`SquaredExponential`, `Exponential`, …), otherwise G times.
    """
    dtype = jnp.result_type(floating_dtype((points, samples)), values)
    exponents = jnp.asarray(powers, dtype)
    data = (points, groups[0]), (samples, groups[1]), values
    scales = getattr(kernel, "length_scale", 0.0)
    is_curve = jnp.ndim(scales) == 1
    if isinstance(kernel, Stationary):
        kernels = _batched(kernel, dtype)
        pairs = jax.vmap(lambda e: jax.vmap(lambda k: (e, k))(kernels))(exponents)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), pairs)
        result = operators.kernel_means(_distance, _log_kernel, kernel.distance, flat, *data)
        shape = exponents.size, -1
        result = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), result)
        return result if is_curve else jax.tree.map(lambda x: x[:, 0], result)

    def smoothed(kernel: Kernel) -> tuple[jax.Array, jax.Array]:
        return operators.kernel_means(_surprisal, _negative_multiple, kernel, exponents, *data)

    if not is_curve:
        return smoothed(kernel)
    one = lambda scale: smoothed(dataclasses.replace(kernel, length_scale=scale))  # noqa: E731
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), lax.map(one, scales))


@record
class Row:
    """Samples in the order of their groups, and of their places on a line within each of them.

    Attributes:
        order: [n].
        groups: in this order, [n].
        positions: on the line, in this order, [n].
    """

    order: jax.Array
    groups: jax.Array
    positions: jax.Array


def row_of(kernel: Kernel, samples: object, groups: jax.Array) -> Row | None:
    """The samples in a row, if they are known and means over them take linear time."""
    if not isinstance(kernel, Stationary):
        return None
    if not checks.is_concrete(kernel.distance, samples, groups):
        return None
    if (line := line_of(distance_of_exponentials(kernel), samples)) is None:
        return None
    along, x = np.asarray(line.order), np.asarray(line.positions)
    order = np.argsort(np.asarray(groups)[along], kind="stable")
    return Row(*map(jnp.asarray, (along[order], np.asarray(groups)[along[order]], x[order])))


@functools.partial(jax.jit, static_argnames="powers")
def means_in_row(
    kernel: Any, row: Row, values: jax.Array, *, powers: tuple[int, ...] = (1,)
) -> tuple[jax.Array, jax.Array]:
    """`smoothed_means` at the samples themselves, in O(n P G c) time and memory.

    With `Matern(nu=2.5)` a million samples take about three times as long as with `Exponential`.
    """
    dtype = jnp.result_type(row.positions, values)
    scales = _scales(kernel, dtype)
    units, polynomials = zip(*(power(kernel, exponent) for exponent in powers), strict=True)
    rates = (jnp.asarray(units, dtype)[:, None] * reciprocal(scales)).ravel()
    coefficients = tuple(q for q in polynomials for _ in range(scales.size))
    columns = jnp.append(values, jnp.ones_like(values[:, :1]), 1)[row.order].astype(dtype)
    groups, x, flipped = (jnp.flip(each, 0) for each in (row.groups, row.positions, columns))
    sums_of_earlier = functools.partial(
        operators.sums_of_earlier, rates=rates, polynomials=coefficients
    )
    later = jnp.flip(sums_of_earlier(flipped, groups, -x), 1)
    sums = sums_of_earlier(columns, row.groups, row.positions) + later + columns
    sums = jnp.zeros_like(sums).at[:, row.order].set(sums)
    shape = (len(powers), *jnp.shape(kernel.length_scale), len(values))
    means, totals = sums[..., :-1] / sums[..., -1:], sums[..., -1]
    return means.reshape(*shape, -1), totals.reshape(shape)


def _scales(kernel: Stationary, dtype: DTypeLike) -> jax.Array:
    """Length scales, [G], or [1] for a single one.

    Narrower kernels, whose exponents would overflow, still select the nearest sample.
    """
    scales = jnp.atleast_1d(jnp.asarray(kernel.length_scale, dtype))
    return jnp.maximum(scales, jnp.finfo(dtype).tiny ** 0.5)


def _batched(kernel: Stationary, dtype: DTypeLike) -> Stationary:
    """Kernels without their distance, with leading axis [G], or [1] for a single length scale."""
    scales = _scales(kernel, dtype)
    one = dataclasses.replace(kernel, length_scale=scales[0], distance=None)
    kernels = jax.tree.map(
        lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), (scales.size, *jnp.shape(x))), one
    )
    return dataclasses.replace(kernels, length_scale=scales)


def _distance(distance: Distance, x: T, y: T) -> jax.Array:
    return distance(x, y)


def _log_kernel(power_and_kernel: tuple[jax.Array, Stationary], distance: jax.Array) -> jax.Array:
    power, kernel = power_and_kernel
    return power * kernel.log_value(distance)


def _surprisal(kernel: Kernel, x: T, y: T) -> jax.Array:
    """−log k(x, y), infinite where the kernel is zero."""
    value = jnp.asarray(kernel(x, y))
    is_zero = value == 0  # where the logarithm has no finite derivative
    return jnp.where(is_zero, jnp.inf, -jnp.log(jnp.where(is_zero, 1, value)))


def _negative_multiple(power: jax.Array, surprisal: jax.Array) -> jax.Array:
    return -power * surprisal
