"""Exponential and Matérn kernels of points on a line, whose sums over pairs take linear time."""

import dataclasses
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import on_cpu
from calibjax._core.pytree import record
from calibjax.distances import Distance
from calibjax.kernels.base import Constant, Kernel, without_draws
from calibjax.kernels.expectations import terms
from calibjax.kernels.stationary import Exponential, Matern, rate


@record
class Line:
    """Points on a line: their order, and their positions in that order, [n] each."""

    order: jax.Array
    positions: jax.Array


@record
class Exponentials:
    """Terms of a kernel Σ_t c_t q_t(r_t d) exp(−r_t d) with polynomials q_t for which q_t(0) = 1.

    Attributes:
        factors: c, [T].
        rates: r, [T].
        polynomials: coefficients of q in ascending order.
    """

    factors: jax.Array
    rates: jax.Array
    polynomials: tuple[tuple[float, ...], ...] = dataclasses.field(metadata={"static": True})


_MANY = 1000  # points, from which sums on a line are quicker than those over all pairs
_MATERN_POLYNOMIALS = {1.5: (1.0, 1.0), 2.5: (1.0, 1.0, 1 / 3)}  # by smoothness


def _polynomial_and_rate(kernel: Any) -> tuple[tuple[float, ...], float]:
    """Coefficients of q, and r in units of 1 / ℓ, of a kernel q(r d) exp(−r d)."""
    if isinstance(kernel, Matern):
        return _MATERN_POLYNOMIALS[kernel.nu], (2 * kernel.nu) ** 0.5
    return (1.0,), 1.0


def distance_of_exponentials(kernel: Kernel) -> Distance | None:
    """The distance of a sum of multiples of exponential and Matérn kernels and constants, or None.

    None, too, if they have different distances, or there are constants only.
    """
    distance = None
    for _, term in terms(kernel):
        if type(term) in (Exponential, Matern):
            if distance is not None and not is_same_distance(distance, term.distance):
                return None
            distance = term.distance
        elif type(term) is not Constant:
            return None
    return distance


def is_same_distance(one: Distance, other: Distance) -> bool:
    """Whether two distances are equal, and have no numbers."""
    is_plain = not jax.tree.leaves((one, other))
    return is_plain and jax.tree.structure(one) == jax.tree.structure(other)


def power(kernel: Kernel, exponent: int) -> tuple[float, tuple[float, ...]]:
    """Of the power of an exponential or Matérn kernel: its rate in units of 1 / ℓ, and q."""
    polynomial, unit = _polynomial_and_rate(kernel)
    stretched = np.array(polynomial) / exponent ** np.arange(len(polynomial))
    return exponent * unit, tuple(np.polynomial.polynomial.polypow(stretched, exponent).tolist())


def exponentials(kernel: Kernel, dtype: DTypeLike) -> Exponentials:
    """The terms of a kernel that has a distance of exponentials."""
    rows = [_exponential(factor, term, dtype) for factor, term in terms(kernel)]
    factors, rates = (jnp.stack([jnp.asarray(row[i], dtype) for row in rows]) for i in range(2))
    return Exponentials(factors, rates, tuple(row[2] for row in rows))


def _exponential(factor: Any, term: Any, dtype: DTypeLike) -> tuple[Any, Any, tuple[float, ...]]:
    """Factor, rate and polynomial of a multiple of a kernel."""
    factor = 1.0 if factor is None else factor
    if isinstance(term, Constant):
        return factor * term.value, 0.0, (1.0,)
    polynomial, unit = _polynomial_and_rate(term)
    return factor, unit * rate(term.length_scale, dtype), polynomial


def line_of_many(kernel: Kernel, points: object, number: int) -> Line | None:
    """The points in order, if sums along their line take less time than sums over all pairs."""
    return line_of(distance_of_exponentials(kernel), points) if number >= _MANY else None


def line_of(distance: Distance | None, points: object) -> Line | None:
    """The points in order, if the distance is that of points on a line.

    Whether vectors lie on a line, since all but one of their components are equal, is known of
    concrete ones only.
    """
    leaves = jax.tree.leaves(points)
    if distance is None or any(map(_is_rounded, leaves)):
        return None
    x = _embedding(distance, without_draws(points))
    if x is None:
        return None
    is_known = checks.is_outermost(distance, points)
    xp: ModuleType = np if is_known and on_cpu() else jnp  # which takes less time than JAX
    x = xp.asarray(x)
    if is_known and x.shape[1] > 1:
        x = x[:, np.any(np.asarray(x != x[0]), 0)]
    if x.shape[1] != 1:
        return None
    order: Any = xp.argsort(x[:, 0], stable=True)
    line = Line(order, x[order, 0])
    return jax.device_put(line) if xp is np else line


def _is_rounded(values: Any) -> bool:
    """Whether integers may be none in the precision of their positions."""
    if not jnp.issubdtype(jnp.result_type(values), jnp.integer) or not jnp.size(values):
        return False
    largest = 1 / jnp.finfo(jnp.result_type(values, 1.0)).eps
    numbers = np.asarray(values, float) if checks.is_concrete(values) else np.inf
    return bool(np.max(np.abs(numbers)) > largest)


@jax.jit
def _embedding(distance: Distance, points: object) -> jax.Array | None:
    return distance.embedding(points)
