"""Expectations of any target kernel under draws.

For draws z_1, ..., z_m of p and z'_1, ..., z'_m of q with weights w and w'

    m_p(z) = Σ_i w_i k(z_i, z),      M_{p,q} = Σ_ij w_i w'_j k(z_i, z'_j).

If the draws of p and q are independent, these are unbiased estimates of the expectations under the
underlying distributions. A prediction that is paired with itself (on the diagonal of the biased
SKCE, of the bootstrap and of test matrices, or after resampling) pairs each draw with itself, too,
which makes M_{p,p} too large. So if p and q have the same index and hence are the same prediction,
these pairs are left out,

    M_{p,p} = Σ_{i≠j} w_i w_j k(z_i, z_j) / (1 − Σ_i w_i²),

which is unbiased again. The price is that h is no longer positive semi-definite: its diagonal, and
the biased SKCE, may be negative. Without indices, for example in distances between predictions,
all pairs enter: M_{p,q} is that of the empirical distributions, whose maximum mean discrepancy is
a distance.

Cost: m² evaluations of the target kernel for each pair of samples, so n² m² / 2 for the SKCE. The
draws are processed one by one, so that a tile of pairs needs no more memory than for one draw.

If few draws determine the kernel at all others, as they do for smooth kernels, the centered kernel
has few features: L⁻¹ k(pivots, ·), with the Cholesky factor L of the kernel matrix of these draws,
centered by their mean over the draws of the prediction. These are the features of the empirical
distributions, so that only predictions without indices have them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, tensordot
from calibjax.distributions import Ensemble
from calibjax.distributions.draws import MonteCarlo
from calibjax.kernels import pivoted_cholesky
from calibjax.kernels.base import Kernel
from calibjax.kernels.expectations import (
    check_expectations,
    register_expectations,
)

_MAX_RANK = 512  # with more features the pairs of draws are as cheap


def _sum_over(function: Callable[..., jax.Array], draws: tuple) -> jax.Array:
    """Sum of function(draw) over the leading axis of a pytree of draws, one by one."""
    one = jax.eval_shape(function, *jax.tree.map(lambda leaf: leaf[0], draws))
    # Weakly typed numbers (those of `White`) stay weakly typed.
    zero = jnp.asarray(0.0) if one.weak_type else jnp.zeros((), one.dtype)

    def add(total: jax.Array, draw: tuple) -> tuple[jax.Array, None]:
        return total + function(*draw), None

    # Gradients evaluate each term again instead of storing all m² of them.
    return lax.scan(jax.checkpoint(add, prevent_cse=False), zero, draws)[0]


def _expectation(function: Callable[[Any], jax.Array], p: Ensemble) -> jax.Array:
    """Expectation of function(z), a scalar, over the draws z of p; NaN if one is missing."""
    if p.weights is None:
        mean = _sum_over(function, (p.values,)) / jnp.shape(p.values)[0]
    else:
        mean = _sum_over(lambda z, w: w * function(z), (p.values, p.probs))
    # Integers are not NaN, but may stand for it.
    return jnp.where(jnp.any(checks.is_missing(p.values)), jnp.nan, mean)


def _single(kernel: Kernel, p: Ensemble, z: ArrayLike) -> jax.Array:
    return _expectation(lambda x: kernel(x, z), p)


def _double(kernel: Kernel, p: Ensemble, q: Ensemble) -> jax.Array:
    """M_{p,q}; without pairs of a draw with itself if the two are the same prediction."""
    every = _expectation(lambda x: _single(kernel, q, x), p)
    if p.index is None or q.index is None or jnp.shape(p.values) != jnp.shape(q.values):
        return every
    is_same = p.index == q.index
    if p.weights is None:
        share = 1 / jnp.shape(p.values)[0]
        paired = _sum_over(kernel, (p.values, q.values)) * share**2
    else:
        share = matmul(p.probs, q.probs)
        draws = p.values, q.values, p.probs * q.probs
        paired = _sum_over(lambda x, z, w: w * kernel(x, z), draws)
    # The denominator is kept away from zero where it is not used.
    return jnp.where(is_same, (every - paired) / (1 - jnp.where(is_same, share, 0)), every)


def _diagonal(kernel: Kernel, p: Ensemble) -> jax.Array:
    return _expectation(lambda x: kernel(x, x), p)


def _prepare_features(
    kernel: Kernel, predictions: Ensemble, targets: jax.Array
) -> tuple[jax.Array, jax.Array] | None:
    """Some of the draws and targets, and the inverse Cholesky factor of their kernel matrix."""
    if predictions.index is not None or not checks.is_outermost(kernel, predictions, targets):
        return None
    values = jnp.asarray(predictions.values)
    points = jnp.concatenate([values.reshape(-1, *values.shape[2:]), jnp.asarray(targets)])
    limit = min(values.shape[1] ** 2, len(points), _MAX_RANK)
    tolerance = pivoted_cholesky.TOLERANCE[floating_dtype(points).itemsize]
    rank = pivoted_cholesky.numerical_rank(kernel, points, tolerance, limit)
    if rank is None:
        return None
    approximation = pivoted_cholesky.decompose(kernel, points, tolerance, size=min(rank, limit))
    factor = pivoted_cholesky.factor_at_pivots(approximation)
    is_used = jnp.arange(len(factor)) < approximation.rank
    inverse = lax.linalg.triangular_solve(
        factor, jnp.diag(is_used.astype(factor.dtype)), left_side=True, lower=True
    )
    return points[approximation.pivots], inverse


def _features(
    kernel: Kernel, prepared: tuple[jax.Array, jax.Array], p: Ensemble, y: jax.Array
) -> jax.Array:
    """Features of one target, centered by their mean over the draws, [r]."""
    pivots, inverse = prepared

    def values(z: jax.Array) -> jax.Array:
        return jax.vmap(lambda pivot: kernel(pivot, z))(pivots).astype(inverse.dtype)

    mean = tensordot(p.probs.astype(inverse.dtype), jax.vmap(values)(p.values), 1)
    return matmul(inverse, values(y) - mean)


def _check(kernel: Kernel, predictions: MonteCarlo) -> None:
    """Draws of classes are labels, so the check for class predictions applies."""
    if hasattr(predictions, "class_probs"):
        check_expectations(kernel, predictions.distribution)


register_expectations(
    Kernel,
    Ensemble,
    single=_single,
    double=_double,
    features=(_prepare_features, _features),
    diagonal=_diagonal,
)
register_expectations(
    Kernel,
    MonteCarlo,
    single=lambda kernel, p, z: _single(kernel, p.draws, z),
    double=lambda kernel, p, q: _double(kernel, p.draws, q.draws),
    diagonal=lambda kernel, p: _diagonal(kernel, p.draws),
    check=_check,
)
