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
    Matrix,
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


def _shrink(s: jax.Array, t: jax.Array) -> jax.Array:
    return 1 / (1 + s + t)


def _inverse_length_scale(kernel: SquaredExponential, p: Distribution) -> jax.Array:
    return reciprocal(length_scale(kernel, p))


def _gaussian(rate: jax.Array, x: ArrayLike, y: ArrayLike, *scales: jax.Array) -> jax.Array:
    """Π_k c_k^(1/2) exp(−c_k (x_k − y_k)² / (2 ℓ²)), 1 / c_k = 1 + variances in units of ℓ²."""

    def term(x: jax.Array, y: jax.Array, *scales: jax.Array) -> jax.Array:
        variance = sum(jnp.square(scale * rate) for scale in scales)
        return _square((x - y) * rate) * reciprocal(1 + variance) + jnp.log1p(variance)

    return jnp.exp(-0.5 * sum_over_components(term, x, y, *scales))


def _square(x: jax.Array) -> jax.Array:
    """The square, so large at most that differences are not those of infinities, which are NaN."""
    return jnp.minimum(jnp.square(x), jnp.finfo(x.dtype).max / 8)


def _mean(kernel: SquaredExponential, p: Normal | DiagNormal, z: ArrayLike) -> jax.Array:
    return _gaussian(_inverse_length_scale(kernel, p), z, p.loc, p.scale)


def _inner(kernel: SquaredExponential, p: Normal | DiagNormal, q: Normal | DiagNormal) -> jax.Array:
    return _gaussian(_inverse_length_scale(kernel, p), p.loc, q.loc, p.scale, q.scale)


def _by_precision(accurate: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """The four terms in float64, where they are accurate enough, and another form elsewhere.

    Its derivatives are those of the four terms, which take half as many operations. They are the
    same but for rounding errors, which matter less in a gradient than in a test.
    """
    in_low_precision = jax.custom_jvp(accurate)

    @in_low_precision.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
        return in_low_precision(*primals), jax.jvp(four_terms, primals, tangents)[1]

    def centered(kernel: SquaredExponential, p: Any, *others: Any) -> jax.Array:
        is_double = jnp.result_type(p.loc) == jnp.float64
        return (four_terms if is_double else in_low_precision)(kernel, p, *others)

    return centered


def centered_without_offset(
    kernel: SquaredExponential,
    p: Normal | DiagNormal,
    y: ArrayLike,
    q: Normal | DiagNormal,
    z: ArrayLike,
) -> jax.Array:
    """Centered kernel whose rounding errors have mean zero.

    Write K, P, Q, M for the four exponentials without their leading factors, and 1 − a and 1 − b
    for the factors of P and Q. Then

        k − m_p − m_q + M = (K − P) − (Q − M) + a (P − M) + b (Q − M) + c M,

    where c is the small rest. The rounded constants a, b and the shrinkage s / (1 + s) in the
    exponents enter several terms that cancel on average. So they leave no offset (1e-11 for W21's
    model in float32), in contrast to the plain sum of the four terms (2e-8).
    """
    rate = _inverse_length_scale(kernel, p)
    s, t = (jnp.square(x.scale * rate) for x in (p, q))
    a, b = (-jnp.expm1(-0.5 * sum_over_components(jnp.log1p, x)) for x in (s, t))
    u, v = s / (1 + s), t / (1 + t)

    def exponential(
        shrunk: Callable[..., jax.Array], x: ArrayLike, y: ArrayLike, *rest: jax.Array
    ) -> jax.Array:
        def term(x: jax.Array, y: jax.Array, *rest: jax.Array) -> jax.Array:
            return shrunk(_square((x - y) * rate), *rest)

        return jnp.exp(-0.5 * sum_over_components(term, x, y, *rest))

    big_k = exponential(lambda d: d, y, z)
    big_p = exponential(lambda d, u: d - u * d, z, p.loc, u)
    big_q = exponential(lambda d, v: d - v * d, y, q.loc, v)

    def shrunk_twice(
        d: jax.Array, s: jax.Array, t: jax.Array, u: jax.Array, v: jax.Array
    ) -> jax.Array:
        # w = 1 − u − v + u v (1 + w); the small terms are added first, or they would be lost.
        return d - (u * d + (v * d - u * v * (1 + _shrink(s, t)) * d))

    big_m = exponential(shrunk_twice, p.loc, q.loc, s, t, u, v)
    # Π w^(1/2) = (1 − a) (1 − b) / (1 − r), with 1 − r = Π (1 − u v)^(1/2)
    r = -jnp.expm1(0.5 * sum_over_components(lambda u, v: jnp.log1p(-u * v), u, v))
    c = a * b + jnp.exp(-0.5 * sum_over_components(lambda s, t: jnp.log1p(s + t), s, t)) * r
    small = a * (big_p - big_m) + b * (big_q - big_m) + c * big_m
    return ((big_k - big_p) - (big_q - big_m)) + small


for _distribution in (Normal, DiagNormal):
    register_expectations(
        SquaredExponential,
        _distribution,
        mean=_mean,
        inner=_inner,
        centered=_by_precision(centered_without_offset),
        features=FEW_FREQUENCIES._replace(few=_MOST_FEATURES) if _distribution is Normal else None,
    )


def _scaled(rate: jax.Array, p: MvNormal) -> jax.Array:
    """Covariance in units of the squared length scale, [d, d]."""
    covariance = p.cov * jnp.square(rate)
    return 0.5 * (covariance + covariance.T)  # makes derivatives symmetric, too


def _gaussian_multivariate(a: Matrix, x: Vector) -> jax.Array:
    """det(I + A)^(−1/2) exp(−xᵀ (I + A)⁻¹ x / 2)."""
    factored = arithmetic.factor(a)
    white = arithmetic.whiten(factored, x)
    exponent = arithmetic.dot(factored.shrinkages, jax.tree.map(jnp.square, white))
    return jnp.exp(-0.5 * (exponent + _log_determinant(factored)))


def _mean_multivariate(kernel: SquaredExponential, p: MvNormal, z: jax.Array) -> jax.Array:
    rate = _inverse_length_scale(kernel, p)
    difference = arithmetic.vector((z - p.loc) * rate)
    return _gaussian_multivariate(arithmetic.matrix(_scaled(rate, p)), difference)


def _inner_multivariate(kernel: SquaredExponential, p: MvNormal, q: MvNormal) -> jax.Array:
    rate = _inverse_length_scale(kernel, p)
    s, t = (arithmetic.matrix(_scaled(rate, x)) for x in (p, q))
    difference = arithmetic.vector((p.loc - q.loc) * rate)
    return _gaussian_multivariate(jax.tree.map(jnp.add, s, t), difference)


def _centered_in_low_precision(
    kernel: SquaredExponential, p: MvNormal, y: jax.Array, q: MvNormal, z: jax.Array
) -> jax.Array:
    """The four terms for wide predictions, where they are accurate."""
    square = jnp.square(_inverse_length_scale(kernel, p))
    is_wide = (jnp.trace(p.cov) + jnp.trace(q.cov)) * square > 1
    arguments = kernel, p, y, q, z
    return jnp.where(
        is_wide, four_terms(*arguments), centered_without_offset_multivariate(*arguments)
    )


def _shrinkage(a: jax.Array, factored: Factor) -> jax.Array:
    """A (I + A)⁻¹ = I − (I + A)⁻¹, which is small if A is, for the array A of one sample."""
    solve = jax.vmap(lambda x: arithmetic.solve(factored, arithmetic.vector(x)))
    columns = solve(a)
    return jnp.stack(columns) if isinstance(columns, list) else columns


def centered_without_offset_multivariate(
    kernel: SquaredExponential, p: MvNormal, y: jax.Array, q: MvNormal, z: jax.Array
) -> jax.Array:
    """Centered kernel whose rounding errors have mean zero, up to second order in S.

    Write K, P, Q, M for the four exponentials without the leading determinants 1 − a, 1 − b, 1 − c
    of the last three. Then

        k − m_p − m_q + M = (K − P) − (Q − M) + (a P + b Q − c M).

    With U = I − (I + S)⁻¹, V = I − (I + S')⁻¹ and x = (I + S + S')⁻¹ D their exponents are those
    of K minus dᵀ U d, d'ᵀ V d' and Dᵀ U D + Dᵀ V D − (U D)ᵀ S' x − (V D)ᵀ S x. All corrections
    are small if S and S' are, and the rounding errors of U and V cancel on average.
    """
    rate = _inverse_length_scale(kernel, p)
    arrays = _scaled(rate, p), _scaled(rate, q)
    factors = [arithmetic.factor(arithmetic.matrix(a)) for a in arrays]
    u, v = (arithmetic.matrix(_shrinkage(*af)) for af in zip(arrays, factors, strict=True))
    s, t = map(arithmetic.matrix, arrays)
    joint = arithmetic.factor(jax.tree.map(jnp.add, s, t))
    a, b, c = (-jnp.expm1(-0.5 * _log_determinant(x)) for x in (*factors, joint))

    def exponential(difference: Vector, *corrections: jax.Array) -> jax.Array:
        return jnp.exp(-0.5 * (arithmetic.dot(difference, difference) - sum(corrections)))

    def quadratic(a: Matrix, x: Vector) -> jax.Array:
        return arithmetic.dot(x, arithmetic.multiply(a, x))

    yz, zp, yq, pq = (
        arithmetic.vector((one - two) * rate)
        for one, two in ((y, z), (z, p.loc), (y, q.loc), (p.loc, q.loc))
    )
    x = arithmetic.solve(joint, pq)
    ud, vd = (arithmetic.multiply(shrinkage, pq) for shrinkage in (u, v))
    second = arithmetic.dot(ud, arithmetic.multiply(t, x)) + arithmetic.dot(
        vd, arithmetic.multiply(s, x)
    )
    big_k = exponential(yz)
    big_p = exponential(zp, quadratic(u, zp))
    big_q = exponential(yq, quadratic(v, yq))
    # The small terms are added first; otherwise they would be lost.
    big_m = exponential(pq, arithmetic.dot(pq, ud) + (arithmetic.dot(pq, vd) - second))
    return ((big_k - big_p) - (big_q - big_m)) + (a * big_p + b * big_q - c * big_m)


register_expectations(
    SquaredExponential,
    MvNormal,
    mean=_mean_multivariate,
    inner=_inner_multivariate,
    centered=_by_precision(_centered_in_low_precision),
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
