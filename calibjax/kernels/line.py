"""Exponential kernels of points on a line, whose sums over all pairs take linear time."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.compilation import jit, outside_of_traces
from calibjax._core.lengths import of_rows
from calibjax._core.pytree import record
from calibjax._core.sharding import devices, is_spread
from calibjax.distances import Distance
from calibjax.kernels.base import Constant, Kernel, without_draws
from calibjax.kernels.expectations import terms
from calibjax.kernels.stationary import Exponential, rate


@record
class Line:
    """Points on a line: their order, and their positions in that order, [n] each."""

    order: jax.Array
    positions: jax.Array


@record
class Exponentials:
    """The terms of a kernel Σ_t c_t exp(−r_t d): factors c and rates r, [T] each."""

    factors: jax.Array
    rates: jax.Array


def distance_of_exponentials(kernel: Kernel) -> Distance | None:
    """The distance d of a kernel Σ_t c_t exp(−d / ℓ_t) and constants; None for other kernels."""
    found = None
    for _, term in terms(kernel):
        if type(term) is Exponential:
            if found is not None and not is_same_distance(found, term.distance):
                return None
            found = term.distance
        elif type(term) is not Constant:
            return None
    return found


def is_same_distance(one: Distance, other: Distance) -> bool:
    """Whether two distances are equal, and have no numbers."""
    is_plain = not jax.tree.leaves((one, other))
    return is_plain and jax.tree.structure(one) == jax.tree.structure(other)


def exponentials(kernel: Kernel, dtype: DTypeLike) -> Exponentials:
    """The terms of a kernel that has a distance of exponentials."""

    def of_term(factor: jax.Array | float | None, term: Constant | Exponential) -> tuple[Any, Any]:
        zero, factor = jnp.zeros((), dtype), 1.0 if factor is None else factor
        if isinstance(term, Constant):
            return factor * term.value, zero
        return factor, rate(term.length_scale, zero)

    columns = zip(*(of_term(*each) for each in terms(kernel)), strict=True)
    return Exponentials(*(jnp.stack([jnp.asarray(x, dtype) for x in xs]) for xs in columns))


def line_of(distance: Distance | None, points: object) -> Line | None:
    """The points in order, if the distance is that of points on a line; on one device.

    Whether vectors lie on a line, since all but one of their components are equal, is known of
    concrete ones only.
    """
    if distance is None or devices() is not None or any(map(is_spread, jax.tree.leaves(points))):
        return None
    if not checks.is_concrete(distance, points):
        found = _embedding(distance, without_draws(points))
        if found is None or found.shape[1] != 1:
            return None
        order = jnp.argsort(found[:, 0])
        return Line(order, found[order, 0])
    with outside_of_traces():  # they may be known while a random key is traced
        found = of_rows(functools.partial(_embedding, distance), without_draws(points))
        if found is None:
            return None
        found = np.asarray(found)
        if found.shape[1] > 1:
            found = found[:, np.any(found != found[0], 0)]
        if found.shape[1] != 1:
            return None
        order = np.argsort(found[:, 0], kind="stable")  # in less time than by JAX
        return Line(*jax.device_put((order, found[order, 0])))


@jit
def _embedding(distance: Distance, points: object) -> jax.Array | None:
    return distance.embedding(points)
