"""Expectations of the squared exponential kernel under multivariate normal predictions.

With D = loc_p − loc_q and covariances S, S' in units of the squared length scale ℓ²,

    m_p(z) = det(I + S)^(−1/2) exp(−(z − loc_p)ᵀ (I + S)⁻¹ (z − loc_p) / (2 ℓ²)),
    M_{p,q} = det(I + S + S')^(−1/2) exp(−Dᵀ (I + S + S')⁻¹ D / (2 ℓ²)),

from Cholesky factors of I + S for each sample and of I + S + S' for each pair. S may be singular,
as for linear maps of other predictions.

Cost of a pair: about d³ / 6 multiplications, vectorised over the pairs for up to ten dimensions.
Beyond, one library call per pair, and memory for tile² d² numbers.

References: W21 App. D.1.
"""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks, matrices
from calibjax._core.arithmetic import fold, safe_sqrt
from calibjax._core.matrices import Factor, Matrix, Vector, dot
from calibjax.distributions import MvNormal
from calibjax.kernels.expectations import four_terms, register_expectations
from calibjax.kernels.expectations.normal import inverse_length_scale, union
from calibjax.kernels.stationary import SquaredExponential, refuse_far_length_scale


def _scaled(rate: jax.Array, p: MvNormal) -> jax.Array:
    """Covariance in units of the squared length scale, [d, d]."""
    covariance = p.cov * jnp.square(rate)
    return 0.5 * (covariance + covariance.T)  # makes derivatives symmetric, too


def _product(terms: Vector) -> jax.Array:
    return fold(jnp.multiply, terms, 1) if isinstance(terms, list) else jnp.prod(terms)


def _gaussian(factored: Factor, x: Vector) -> jax.Array:
    """det(I + A)^(−1/2) exp(−xᵀ (I + A)⁻¹ x / 2) from the Cholesky factor of I + A."""
    white = matrices.whiten(factored, x)
    if isinstance(white, list):
        terms = [s * jnp.square(w) for s, w in zip(factored.shrinkages, white, strict=True)]
        exponent = sum(terms[1:], terms[0])
    else:
        exponent = dot(factored.shrinkages, jnp.square(white))
    return safe_sqrt(_product(factored.shrinkages)) * jnp.exp(-0.5 * exponent)


@jax.custom_jvp
def _gaussian_of_pair(a: Matrix, x: Vector) -> jax.Array:
    """`_gaussian` of a matrix that belongs to a pair."""
    return _gaussian(matrices.factor(a), x)


@_gaussian_of_pair.defjvp
def _gaussian_of_pair_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    """The logarithm changes by −½ ⟨(I + A)⁻¹ − b bᵀ, dA⟩ − bᵀ dx with b = (I + A)⁻¹ x.

    Differentiating the factorisation step by step would give a program many times as long.
    """
    (a, x), (da, dx) = primals, tangents
    factored = matrices.factor(a)
    value = _gaussian(factored, x)
    b = matrices.solve(factored, x)
    inverse = matrices.inverse(factored)
    slope = -dot(b, dx) - 0.5 * (matrices.inner(inverse, da) - dot(b, matrices.multiply(da, b)))
    return value, value * slope


def _single(kernel: SquaredExponential, p: MvNormal, z: jax.Array) -> jax.Array:
    rate = inverse_length_scale(kernel, p)
    factored = matrices.factor_sample(_scaled(rate, p))
    return _gaussian(factored, matrices.vector((z - p.loc) * rate))


def _double(kernel: SquaredExponential, p: MvNormal, q: MvNormal) -> jax.Array:
    rate = inverse_length_scale(kernel, p)
    s, t = (matrices.matrix(_scaled(rate, x)) for x in (p, q))
    difference = matrices.vector((p.loc - q.loc) * rate)
    return _gaussian_of_pair(matrices.add(s, t), difference)


def _centered(
    kernel: SquaredExponential, p: MvNormal, y: jax.Array, q: MvNormal, z: jax.Array
) -> jax.Array:
    is_double = jnp.result_type(p.loc) == jnp.float64  # where the four terms are accurate enough
    return (four_terms if is_double else _centered_in_low_precision)(kernel, p, y, q, z)


@jax.custom_jvp
def _centered_in_low_precision(
    kernel: SquaredExponential, p: MvNormal, y: jax.Array, q: MvNormal, z: jax.Array
) -> jax.Array:
    """The four terms for wide predictions, where they are accurate, and for derivatives."""
    square = jnp.square(inverse_length_scale(kernel, p))
    is_wide = (jnp.trace(p.cov) + jnp.trace(q.cov)) * square > 1
    arguments = kernel, p, y, q, z
    return jnp.where(is_wide, four_terms(*arguments), centered_without_offset(*arguments))


@_centered_in_low_precision.defjvp
def _centered_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    return _centered_in_low_precision(*primals), jax.jvp(four_terms, primals, tangents)[1]


def _shrinkage(a: jax.Array, factored: Factor) -> jax.Array:
    """A (I + A)⁻¹ = I − (I + A)⁻¹, which is small if A is, for the array A of one sample."""
    solve = jax.vmap(lambda x: matrices.solve(factored, matrices.vector(x)))
    columns = solve(a)
    return jnp.stack(columns) if isinstance(columns, list) else columns


def _one_minus_root(factored: Factor) -> jax.Array:
    """1 − det(I + A)^(−1/2), without cancellation."""
    shrinkages = factored.shrinkages
    if isinstance(shrinkages, list):
        gap = union([e * s for e, s in zip(factored.excess, shrinkages, strict=True)])
    else:
        gap = -jnp.expm1(jnp.sum(jnp.log(shrinkages)))
    return gap / (1 + safe_sqrt(1 - gap))


def centered_without_offset(
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
    rate = inverse_length_scale(kernel, p)
    arrays = _scaled(rate, p), _scaled(rate, q)
    factors = [matrices.factor_sample(a) for a in arrays]
    u, v = (matrices.matrix(_shrinkage(*af)) for af in zip(arrays, factors, strict=True))
    s, t = map(matrices.matrix, arrays)
    joint = matrices.factor(matrices.add(s, t))
    a, b, c = map(_one_minus_root, (*factors, joint))

    def exponential(difference: Vector, *corrections: jax.Array) -> jax.Array:
        return jnp.exp(-0.5 * (dot(difference, difference) - sum(corrections)))

    def quadratic(a: Matrix, x: Vector) -> jax.Array:
        return dot(x, matrices.multiply(a, x))

    yz, zp, yq, pq = (
        matrices.vector((one - two) * rate)
        for one, two in ((y, z), (z, p.loc), (y, q.loc), (p.loc, q.loc))
    )
    x = matrices.solve(joint, pq)
    ud, vd = (matrices.multiply(shrinkage, pq) for shrinkage in (u, v))
    second = dot(ud, matrices.multiply(t, x)) + dot(vd, matrices.multiply(s, x))
    big_k = exponential(yz)
    big_p = exponential(zp, quadratic(u, zp))
    big_q = exponential(yq, quadratic(v, yq))
    # The small terms are added first; otherwise they would be lost.
    big_m = exponential(pq, dot(pq, ud) + (dot(pq, vd) - second))
    return ((big_k - big_p) - (big_q - big_m)) + (a * big_p + b * big_q - c * big_m)


def _check(kernel: SquaredExponential, predictions: MvNormal) -> None:
    if checks.is_concrete(predictions.cov):
        variances = np.asarray(predictions.cov).diagonal(0, -2, -1)
        refuse_far_length_scale(kernel, variances**0.5)


register_expectations(
    SquaredExponential, MvNormal, single=_single, double=_double, centered=_centered, check=_check
)
