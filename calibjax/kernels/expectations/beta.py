"""Expectations of smooth kernels under beta predictions, by projection on Chebyshev polynomials.

On [0, 1] a smooth kernel is, up to an error that falls faster than every power of r, a polynomial
of degree < r in each argument, k(y, z) = Σ_ij T_i(y) K_ij T_j(z) with shifted Chebyshev
polynomials T_i(y) = cos(i arccos(2y − 1)). The moments τ_i = E T_i(Z) of Z ~ Beta(α, β) follow
exactly from

    (α + β + i) τ_{i+1} = 2 (α − β) τ_i − (α + β − i) τ_{i−1},   τ_0 = 1,  τ_1 = (α − β)/(α + β),

so that m_p(z) = ⟨τ_p, K T(z)⟩, M_{p,q} = ⟨τ_p, K τ_q⟩, and the centered kernel is the bilinear
form of the differences T(y) − τ_p and T(z) − τ_q: within a tile, a product of matrices.

The recurrence is exact up to rounding, so the projection is the only error, whatever the
parameters. With r = 96 it is below 1e-9 for squared exponential kernels of length scale ≥ 0.04.
Narrower kernels are refused; if they are traced, the expectations are NaN.

References: Piessens and Branders (1973), The evaluation and application of some modified moments.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax.distances import Euclidean
from calibjax.distributions import Beta
from calibjax.kernels.base import Kernel
from calibjax.kernels.expectations import missing, register_expectations
from calibjax.kernels.matrix import gram_matrix
from calibjax.kernels.stationary import SquaredExponential

_SIZE = 96
_ANGLES = (np.arange(_SIZE) + 0.5) * (math.pi / _SIZE)
_NODES = 0.5 + 0.5 * np.cos(_ANGLES)
# Coefficients of T_i from values at the nodes, [r, r].
_TRANSFORM = np.cos(np.outer(np.arange(_SIZE), _ANGLES)) * (2 / _SIZE)
_TRANSFORM[0] *= 0.5
_UNRESOLVED = 1e-9  # relative size of the last coefficients above which the projection is refused


def _coefficients(kernel: Kernel, p: Beta) -> jax.Array:
    """Matrix K of the kernel in Chebyshev polynomials, [r, r]; NaN if r is too small."""
    distance = getattr(kernel, "distance", Euclidean())
    if not isinstance(distance, Euclidean):
        raise missing(kernel, p, f" with distance {type(distance).__name__}")
    dtype = jnp.result_type(p.alpha, p.beta)
    values = gram_matrix(kernel, jnp.asarray(_NODES, dtype)).astype(dtype)
    transform = jnp.asarray(_TRANSFORM, dtype)
    coefficients = matmul(transform, matmul(values, transform.T))
    last = jnp.max(jnp.abs(coefficients[-4:]))
    limit = max(_UNRESOLVED, 10 * float(jnp.finfo(dtype).eps)) * jnp.max(jnp.abs(coefficients))
    return jnp.where(last <= limit, coefficients, jnp.nan)


def _recurrence(first: jax.Array, total: jax.Array | float) -> jax.Array:
    """Sequence τ_0 = 1, τ_1 = first of the recurrence above, divided by α + β; [r].

    With 1 / (α + β) → 0 these are the polynomials themselves.
    """

    def step(pair: tuple, index: jax.Array) -> tuple[tuple, jax.Array]:
        before, current = pair
        small = index * total
        following = (2 * first * current - (1 - small) * before) / (1 + small)
        return (current, following), before

    index = jnp.arange(1, _SIZE + 1, dtype=jnp.result_type(first))
    return lax.scan(step, (jnp.ones_like(first), first), index)[1]


def _polynomials(y: jax.Array) -> jax.Array:
    """T_i(y), [r]."""
    return _recurrence(2 * y - 1, 0.0)


def _moments(p: Beta) -> jax.Array:
    """E T_i(Z), [r]."""
    total = p.alpha + p.beta
    return _recurrence((p.alpha - p.beta) / total, 1 / total)


def single(kernel: Kernel, p: Beta, z: jax.Array) -> jax.Array:
    """Expectation m_p(z) of a kernel that is smooth on [0, 1]."""
    return matmul(matmul(_coefficients(kernel, p), _moments(p)), _polynomials(z))


def double(kernel: Kernel, p: Beta, q: Beta) -> jax.Array:
    """Expectation M_{p,q} of a kernel that is smooth on [0, 1]."""
    return matmul(_moments(p), matmul(_coefficients(kernel, p), _moments(q)))


def centered(kernel: Kernel, p: Beta, y: jax.Array, q: Beta, z: jax.Array) -> jax.Array:
    """Centered kernel of a kernel that is smooth on [0, 1]."""
    one, two = _polynomials(y) - _moments(p), _polynomials(z) - _moments(q)
    return matmul(one, matmul(_coefficients(kernel, p), two))


def check(kernel: Kernel, predictions: Beta) -> None:
    """Refuses kernels that the polynomials cannot resolve."""
    if not checks.is_outermost(kernel, predictions):
        return  # its values are NaN then
    if bool(jnp.any(jnp.isnan(_coefficients(kernel, predictions)))):
        raise ValueError(
            f"kernel.target: expected a kernel that polynomials of degree {_SIZE - 1} resolve on "
            "[0, 1], such as SquaredExponential with a length scale >= 0.04, for Beta predictions, "
            f"got {kernel}; use distributions.monte_carlo for narrower ones"
        )


register_expectations(
    SquaredExponential, Beta, single=single, double=double, centered=centered, check=check
)
