"""Expectations under normal predictions.

For the squared exponential kernel, with D = loc_p − loc_q and variances s, s' in units of the
squared length scale ℓ²,

    m_p(z) = (1 + s)^(−1/2) exp(−(z − loc_p)² / (2 ℓ² (1 + s))),
    M_{p,q} = (1 + s + s')^(−1/2) exp(−D² / (2 ℓ² (1 + s + s'))),

and products of these over independent components.

Under multivariate normal predictions, with D = loc_p − loc_q and covariances S, S' in units of ℓ²,

    m_p(z) = det(I + S)^(−1/2) exp(−(z − loc_p)ᵀ (I + S)⁻¹ (z − loc_p) / (2 ℓ²)),
    M_{p,q} = det(I + S + S')^(−1/2) exp(−Dᵀ (I + S + S')⁻¹ D / (2 ℓ²)),

from Cholesky factors of I + S for each sample and of I + S + S' for each pair. S may be singular,
for example after linear maps.

Cost of a pair: about d³ / 6 multiplications, vectorised over the pairs. More than ten dimensions
take memory for tile² d² numbers.

References: W21 App. D.1.

Expectations of kernels on normal scores are taken under the standard normal distribution, and as
means over the members of ensembles.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import arithmetic
from calibjax._core.arithmetic import (
    Factor,
    Vector,
    floating_dtype,
    largest_score,
    reciprocal,
    sum_over_components,
)
from calibjax._core.pytree import PyTree
from calibjax.distributions import DiagNormal, Ensemble, MvNormal, Normal
from calibjax.distributions.base import Distribution
from calibjax.kernels.expectations import (
    Features,
    centered_kernel,
    double_expectation,
    features_of_terms,
    four_terms,
    length_scale,
    prepare_features,
    register_expectations,
    single_expectation,
)
from calibjax.kernels.expectations.fourier import FEW_FREQUENCIES
from calibjax.kernels.residuals import (
    VECTORS,
    NormalScore,
    score_of_rank,
    scores,
    standard_normal,
    total,
)
from calibjax.kernels.stationary import SquaredExponential

_MOST_FEATURES = 48  # beyond, pairs are cheaper than matrix products over all of them


def _log_determinant(factored: Factor) -> jax.Array:
    """Logarithm of det(I + A), accurate for small A."""
    logarithms = (jnp.sum(jnp.log1p(e)) for e in jax.tree.leaves(factored.excess))
    return functools.reduce(jnp.add, logarithms)


def _inverse_length_scale(kernel: SquaredExponential, p: Distribution) -> jax.Array:
    return reciprocal(length_scale(kernel, p))


def _bounded(x: jax.Array) -> jax.Array:
    """So large at most that differences of squares are not those of infinities, which are NaN."""
    largest = jnp.finfo(x.dtype).max ** 0.5 / 4
    return jnp.clip(x, -largest, largest)


def _log_gaussian(rate: jax.Array, x: ArrayLike, y: ArrayLike, *scales: jax.Array) -> jax.Array:
    """Σ_k ½ (log c_k − c_k (x_k − y_k)² / ℓ²), 1 / c_k = 1 + variances in units of ℓ²."""

    def term(x: jax.Array, y: jax.Array, *scales: jax.Array) -> jax.Array:
        variance = sum(jnp.square(scale * rate) for scale in scales)
        square = jnp.square(_bounded((x - y) * rate))
        return square * reciprocal(1 + variance) + jnp.log1p(variance)

    return -0.5 * sum_over_components(term, x, y, *scales)


def _mean(kernel: SquaredExponential, p: Normal | DiagNormal, z: ArrayLike) -> jax.Array:
    return jnp.exp(_log_gaussian(_inverse_length_scale(kernel, p), z, p.loc, p.scale))


def _inner(kernel: SquaredExponential, p: Normal | DiagNormal, q: Normal | DiagNormal) -> jax.Array:
    return jnp.exp(_log_gaussian(_inverse_length_scale(kernel, p), p.loc, q.loc, p.scale, q.scale))


def _with_slopes_of_four_terms(accurate: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """A centered kernel with the derivatives of its four terms, which take half as many operations.

    Their rounding errors matter less in a gradient than in a test.
    """
    centered = jax.custom_jvp(accurate)

    @centered.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        return centered(*primals), jax.jvp(four_terms, primals, tangents)[1]

    return centered


def _difference(log_k: jax.Array, log_m: jax.Array, log_ratio: jax.Array) -> jax.Array:
    """The difference k − m, from an accurate logarithm of m / k."""
    is_larger = log_ratio > 0
    sign = jnp.where(is_larger, 1, -1)
    return sign * jnp.exp(jnp.where(is_larger, log_m, log_k)) * jnp.expm1(-sign * log_ratio)


def _centered(
    kernel: SquaredExponential,
    p: Normal | DiagNormal,
    y: ArrayLike,
    q: Normal | DiagNormal,
    z: ArrayLike,
) -> jax.Array:
    """Centered kernel as the difference of k(y, z) − m_p(z) and of its mean over Z ~ q.

    The mean is again a difference k' − m'_p at loc_q, for a kernel k' that is wider by t, the
    variance of q in units of ℓ². With x = z or loc_q, t = 0 or the variance, and s of p,

        log(m / k) = −½ [log(1 + v) − (v / (1 + v) (loc_p − x)² + (y − loc_p) (y + loc_p − 2x)) /
                     (ℓ² (1 + t))],    v = s / (1 + t).

    It is accurate for narrow predictions, since all its terms are as small as they are.
    """
    rate = _inverse_length_scale(kernel, p)

    def log_ratio(
        x: jax.Array, y: jax.Array, loc: jax.Array, scale: jax.Array, *wider: jax.Array
    ) -> jax.Array:
        shrinkage = reciprocal(1 + sum(jnp.square(scale * rate) for scale in wider))
        variance = jnp.square(scale * rate) * shrinkage
        square = variance / (1 + variance) * jnp.square(_bounded((loc - x) * rate))
        square += _bounded((y - loc) * rate) * _bounded(((y - x) + (loc - x)) * rate)
        return -0.5 * (jnp.log1p(variance) - shrinkage * square)

    def difference(x: ArrayLike, *wider: jax.Array) -> jax.Array:
        log_k = _log_gaussian(rate, y, x, *wider)
        log_m = _log_gaussian(rate, p.loc, x, p.scale, *wider)
        return _difference(
            log_k, log_m, sum_over_components(log_ratio, x, y, p.loc, p.scale, *wider)
        )

    return difference(z) - difference(q.loc, q.scale)


for _distribution in (Normal, DiagNormal):
    register_expectations(
        SquaredExponential,
        _distribution,
        mean=_mean,
        inner=_inner,
        centered=_with_slopes_of_four_terms(_centered),
        features=FEW_FREQUENCIES._replace(few=_MOST_FEATURES) if _distribution is Normal else None,
    )


def _scaled(rate: jax.Array, p: MvNormal) -> jax.Array:
    """Covariance in units of the squared length scale, [d, d]."""
    covariance = p.cov * jnp.square(rate)
    return 0.5 * (covariance + covariance.T)  # makes derivatives symmetric, too


def _log_gaussian_multivariate(factored: Factor, x: Vector) -> jax.Array:
    """−½ (log det(I + A) + xᵀ (I + A)⁻¹ x)."""
    squares = jax.tree.map(jnp.square, arithmetic.whiten(factored, x))
    return -0.5 * (arithmetic.dot(factored.shrinkages, squares) + _log_determinant(factored))


def _mean_multivariate(kernel: SquaredExponential, p: MvNormal, z: jax.Array) -> jax.Array:
    rate = _inverse_length_scale(kernel, p)
    factored = arithmetic.factor(arithmetic.matrix(_scaled(rate, p)))
    return jnp.exp(_log_gaussian_multivariate(factored, arithmetic.vector((z - p.loc) * rate)))


def _inner_multivariate(kernel: SquaredExponential, p: MvNormal, q: MvNormal) -> jax.Array:
    rate = _inverse_length_scale(kernel, p)
    factored = arithmetic.factor(arithmetic.matrix(_scaled(rate, p) + _scaled(rate, q)))
    return jnp.exp(_log_gaussian_multivariate(factored, arithmetic.vector((p.loc - q.loc) * rate)))


def _centered_multivariate(
    kernel: SquaredExponential, p: MvNormal, y: jax.Array, q: MvNormal, z: jax.Array
) -> jax.Array:
    """Centered kernel as the difference of two differences, like `_centered`.

    With T = 0 or the covariance of q in units of ℓ², S of p, and in units of ℓ

        log(m / k) = −½ [log det(I + S + T) − log det(I + T) − dᵀ (I + T)⁻¹ S (I + S + T)⁻¹ d
                     − (y − loc_p)ᵀ (I + T)⁻¹ (y + loc_p − 2x)],    d = loc_p − x.
    """
    rate = _inverse_length_scale(kernel, p)
    s = _scaled(rate, p)

    def difference(x: jax.Array, t: jax.Array) -> jax.Array:
        wide, joint = (arithmetic.factor(arithmetic.matrix(a)) for a in (t, s + t))
        d, e, far, near = (
            arithmetic.vector(v * rate)
            for v in (p.loc - x, y - p.loc, (y - x) + (p.loc - x), y - x)
        )
        shrunk = arithmetic.multiply(arithmetic.matrix(s), arithmetic.solve(joint, d))
        squares = arithmetic.dot(arithmetic.solve(wide, d), shrunk)
        squares += arithmetic.dot(e, arithmetic.solve(wide, far))
        log_ratio = -0.5 * (_log_determinant(joint) - _log_determinant(wide) - squares)
        log_k, log_m = (_log_gaussian_multivariate(*x) for x in ((wide, near), (joint, d)))
        return _difference(log_k, log_m, log_ratio)

    return difference(z, jnp.zeros_like(s)) - difference(q.loc, _scaled(rate, q))


register_expectations(
    SquaredExponential,
    MvNormal,
    mean=_mean_multivariate,
    inner=_inner_multivariate,
    centered=_with_slopes_of_four_terms(_centered_multivariate),
)


def _mean_scores(kernel: NormalScore, p: Distribution, z: ArrayLike) -> jax.Array:
    """The score is that of a target of p; expectations under ensembles are over the members."""
    if isinstance(p, Ensemble):
        return single_expectation(kernel.kernel, _of_scores(p), score_of_rank(p, z))
    standard = standard_normal(p)
    return total(scores(p, z), lambda s: single_expectation(kernel.kernel, standard, s))


def _inner_scores(kernel: NormalScore, p: Distribution, q: Distribution) -> jax.Array:
    standard = standard_normal(p), standard_normal(q)
    both = (_of_scores(p), _of_scores(q)) if isinstance(p, Ensemble) else standard
    return double_expectation(kernel.kernel, *both)


def _of_scores(p: Any) -> Ensemble:
    return dataclasses.replace(p, values=score_of_rank(p, p.values))


def _centered_scores(
    kernel: NormalScore, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    standard = standard_normal(p)

    def of_score(s: jax.Array) -> jax.Array:
        return total(
            scores(q, z), lambda t: centered_kernel(kernel.kernel, standard, s, standard, t)
        )

    return total(scores(p, y), of_score)


def _prepare_features_scores(
    kernel: NormalScore, predictions: Distribution, targets: Any
) -> PyTree:
    """Those of the inner kernel for the standard normal distribution, and all scores there are."""
    del targets
    if isinstance(predictions, VECTORS):
        return None
    dtype = np.dtype(floating_dtype(predictions))
    zeros: Any = np.zeros(2, dtype)  # of NumPy: never traced
    standard = Normal(zeros, zeros + 1)
    ends = largest_score(dtype) * np.array([-1, 1], dtype)
    return prepare_features(kernel.kernel, standard, ends)


def _features_scores(kernel: NormalScore, prepared: tuple, p: Distribution, y: jax.Array) -> PyTree:
    standard = standard_normal(p)
    return total(scores(p, y), lambda s: features_of_terms(kernel.kernel, prepared, standard, s))


register_expectations(
    NormalScore,
    object,
    mean=_mean_scores,
    inner=_inner_scores,
    centered=_centered_scores,
    features=Features(_features_scores, _prepare_features_scores),
)
