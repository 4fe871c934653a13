"""Exponential kernels on a line, and smoothing with kernels."""

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, on_cpu
from calibjax._core.pytree import T, record
from calibjax.distances.elementary import Distance
from calibjax.kernels.base import Constant, Kernel, without_draws
from calibjax.kernels.expectations import terms
from calibjax.kernels.stationary import Exponential, Stationary, rate
from calibjax.operators.kernel_matrix import Exponentials


def pair_distance(distance: Callable[[T, T], jax.Array], x: T, y: T) -> jax.Array:
    """Distance of a pair, for `operators`."""
    return distance(x, y)


@record
class Line:
    """Order of points on a line, and their positions in this order, [n] each."""

    order: jax.Array
    positions: jax.Array


def distance_of_exponentials(kernel: Kernel) -> Distance | None:
    """Distance of a sum of multiples of exponential kernels and constants, or None.

    None also if they have no distance, different distances, or distances with parameters.
    """
    each = [term for _, term in terms(kernel)]
    if not all(type(term) in (Exponential, Constant) for term in each):
        return None
    distances = [term.distance for term in each if type(term) is not Constant]
    if len(distances) > 1 and jax.tree.leaves(distances):
        return None  # parameters may be traced
    is_one = len(set(map(jax.tree.structure, distances))) == 1
    return distances[0] if is_one else None


def exponentials(kernel: Kernel, dtype: DTypeLike) -> Exponentials:
    """Terms of a kernel with a `distance_of_exponentials`."""
    xp: Any = np if checks.is_concrete(kernel) else jnp  # runs no program
    factors, rates = [], []
    for factor, term in terms(kernel):
        is_constant = isinstance(term, Constant)
        factors.append((1.0 if factor is None else factor) * (term.value if is_constant else 1.0))
        rates.append(0.0 if is_constant else rate(term.length_scale, dtype))
    return Exponentials(*(xp.stack([xp.asarray(x, dtype) for x in y]) for y in (factors, rates)))


def line_of(distance: Distance | None, points: object) -> Line | None:
    """Ordered points, if the distance embeds them in a line, else None.

    Vectors of which all components but one are equal lie on a line; this is found for concrete ones
    only.
    """
    dtypes = map(jnp.result_type, jax.tree.leaves(points))
    # Integers may be rounded to positions.
    if distance is None or any(jnp.issubdtype(dtype, jnp.integer) for dtype in dtypes):
        return None
    x = _embedding(distance, without_draws(points))
    if x is None:
        return None
    is_known = checks.is_outermost(distance, points)
    xp: ModuleType = np if is_known and on_cpu() else jnp  # faster than JAX
    x = xp.asarray(x)
    if is_known and x.shape[1] > 1:
        x = x[:, np.any(np.asarray(x != x[0]), 0)]
    if x.shape[1] != 1:
        return None
    order: Any = xp.argsort(x[:, 0], stable=True)
    return Line(order, x[order, 0])


@jax.jit
def _embedding(distance: Distance, points: object) -> jax.Array | None:
    return distance.embedding(points)


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
        kernel: kernel record with values ≥ 0. If it is a function of a distance
            (`SquaredExponential`, `Exponential`, …), its length scale may be of shape [G].
        points: n points, a pytree with leading axis n.
        samples: n' samples, a pytree with leading axis n'.
        values: values of the samples, [n', c].
        groups: group of each point, [n], and of each sample, [n'], integers.
        powers: exponents of the kernel, P of them.

    Returns:
        The means [P, n, c], and the sums of the weights divided by the largest weight, [P, n], both
        zero without samples; [P, G, n, c] and [P, G, n] for G length scales.

    Cost: `operators.kernel_means` for P G kernels, whose distances are computed once.
    """
    dtype = jnp.result_type(floating_dtype((points, samples)), values)
    exponents = jnp.asarray(powers, dtype)
    data = (points, groups[0]), (samples, groups[1]), values
    if not isinstance(kernel, Stationary):
        return operators.kernel_means(_surprisal, _negative_multiple, kernel, exponents, *data)
    kernels = jax.tree.map(lambda x: jnp.tile(x, exponents.size), _batched(kernel, dtype))
    several = jnp.repeat(exponents, jnp.size(kernel.length_scale)), kernels
    result = operators.kernel_means(pair_distance, _log_kernel, kernel.distance, several, *data)
    shape = exponents.size, *jnp.shape(kernel.length_scale)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), result)


def _batched(kernel: Stationary, dtype: DTypeLike) -> Stationary:
    """Kernels without their distance, with leading axis [G], or [1] for a single length scale."""
    scales = jnp.atleast_1d(jnp.asarray(kernel.length_scale, dtype))
    # Too narrow kernels, whose exponents would overflow, still select the nearest sample.
    scales = jnp.maximum(scales, jnp.finfo(dtype).tiny ** 0.5)
    several = dataclasses.replace(kernel, length_scale=scales, distance=None)
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), scales.shape), several)


def _log_kernel(power_and_kernel: tuple[jax.Array, Stationary], distance: jax.Array) -> jax.Array:
    power, kernel = power_and_kernel
    return power * kernel.log_value(distance)


def _surprisal(kernel: Kernel, x: T, y: T) -> jax.Array:
    """−log k(x, y), infinite if the kernel is zero."""
    value = jnp.asarray(kernel(x, y))
    is_zero = value == 0  # the logarithm has no finite derivative
    return jnp.where(is_zero, jnp.inf, -jnp.log(jnp.where(is_zero, 1, value)))


def _negative_multiple(power: jax.Array, surprisal: jax.Array) -> jax.Array:
    return -power * surprisal
