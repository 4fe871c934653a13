"""Expectations under Laplace, Poisson, mixed and empirical predictions, and of residuals.

Expectations of the exponential kernel under Laplace predictions.

Let x be the distance of two points and a, b the scales of two predictions, all in units of the
length scale, K(x) = exp(−x), and T_a the average over a Laplace variable of scale a. Then
m_p = T_a K and M_{p,q} = T_a T_b K are sums of K and

    u_a = (T_a − 1) K = −G[1, a⁻²],                   G(r²) = r exp(−x r),
    v_ab = (T_a − 1) (T_b − 1) K = H[1, a⁻², b⁻²],    H(r²) = r³ exp(−x r),

which also keeps the rounding errors of the centered kernel small. Divided differences of G and H
follow from those of exp(−x r) at the rates r: 1 / A ≤ 1 / B ≤ 1 / C, which have series where two or
three rates are close.

References: W21 App. D.2.

Expectations under Poisson predictions.

White kernel: m_p(z) is the probability of z, and

    M_{p,q} = exp(−(√λ − √λ')²) I₀ᵉ(2 √(λ λ')),   I₀ᵉ(x) = exp(−x) I₀(x).

Squared exponential kernel: counts are integers, on which the kernel is a Fourier integral over one
period, k(d) = (2π)⁻¹ ∫_{−π}^{π} ϑ(w) cos(w d) dw with ϑ(w) = Σ_d k(d) cos(w d), and the
characteristic function of a Poisson distribution is exp(λ (e^{iw} − 1)). Hence

    M_{p,q} = π⁻¹ ∫_0^π ϑ(w) exp(−(λ + λ') (1 − cos w)) cos((λ − λ') sin w) dw,
    m_p(z) = π⁻¹ ∫_0^π ϑ(w) exp(−λ (1 − cos w)) cos(λ sin w − w z) dw.

The trapezoidal rule for such an integral is exact up to aliasing: with N nodes per period it
gives the sum of the expectations of k(d + N m) over all integers m. N is chosen from the variance
λ + λ' + ℓ² such that probabilities beyond N / 2 are below e⁻²¹, and frequencies where the
integrand is below e⁻²¹ are left out. Then 31 nodes suffice for all rates and length scales.

Expectations under mixtures: averages over components.

For mixtures p = Σ_i w_i p_i and q = Σ_j v_j q_j

    m_p(z) = Σ_i w_i m_{p_i}(z),    M_{p,q} = Σ_i Σ_j w_i v_j M_{p_i, q_j}

over **all** pairs of components. (CalibrationErrors.jl skips the pairs with i ≥ 2 and j = 1.)

References: W21 App. D.3.

Expectations of any target kernel under draws.

For draws z_1, ..., z_m of p and z'_1, ..., z'_m of q with weights w and w'

    m_p(z) = Σ_i w_i k(z_i, z),      M_{p,q} = Σ_ij w_i w'_j k(z_i, z'_j).

If the draws of p and q are independent, these are unbiased estimates of the expectations under the
underlying distributions. A prediction that is paired with itself (on the diagonal of the biased
SKCE, of the bootstrap and of test matrices, or after resampling) also pairs each draw with itself,
which makes M_{p,p} too large. If p and q have the same index, they are the same prediction, and
these pairs are left out,

    M_{p,p} = Σ_{i≠j} w_i w_j k(z_i, z_j) / (1 − Σ_i w_i²),

which is unbiased again. But h is then not positive semi-definite: its diagonal, and the biased
SKCE, may be negative. Without indices, for example in distances between predictions,
all pairs enter: M_{p,q} belongs to the empirical distributions, whose maximum mean discrepancy is
a distance.

Cost: m² evaluations of the target kernel for each pair of samples, so n² m² / 2 for the SKCE. The
draws are processed one by one, so that a tile of pairs needs no more memory than for one draw.

Expectations of the Stein kernel, which are zero under every density.

For functions f that vanish with the density at the ends of its support E[s_p(Y) f(Y) + ∇f(Y)] = 0,
with the score s_p = ∇ log p. The rule holds for all predictions, also for users' own classes.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import absolute, floating_dtype, matmul, reciprocal
from calibjax._core.pytree import varying_as
from calibjax.distributions import Ensemble, Laplace, Mixture, Poisson, Uniform, constraints
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels.base import Kernel, White
from calibjax.kernels.expectations import (
    Features,
    centered_kernel,
    double_expectation,
    four_terms,
    length_scale,
    register_expectations,
    single_expectation,
)
from calibjax.kernels.expectations.fourier import (
    FEW_FREQUENCIES,
    FOURIER,
    FOURIER_OF_DRAWS,
    sine_rest,
)
from calibjax.kernels.residuals import Residual
from calibjax.kernels.stationary import Exponential, SquaredExponential, Stein

_CLOSE = 0.5  # distance of arguments up to which a divided difference is a series


def _series(d: jax.Array | float, e: jax.Array) -> jax.Array:
    """The divided difference of exp(−t) at 0, d and e, from d^n + d^(n−1) e + … + e^n."""
    power, symmetric, coefficient = 1.0, 1.0, 0.5
    value = jnp.full_like(e, 0.5)
    for n in range(1, 14):
        power = power * d
        symmetric = symmetric * e + power
        coefficient /= -(n + 2)
        value += coefficient * symmetric
    return value


def _once(d: jax.Array) -> jax.Array:
    """(1 − exp(−d)) / d for d ≥ 0."""
    is_close = d < _CLOSE
    near, far = jnp.where(is_close, d, 0), jnp.where(is_close, 1, d)
    return jnp.where(is_close, 1 - near * _series(0.0, near), -jnp.expm1(-far) / far)


def _twice(d: jax.Array, e: jax.Array, rest: jax.Array) -> jax.Array:
    """The divided difference of exp(−t) at 0 ≤ d ≤ e = d + rest."""
    is_close = e < _CLOSE
    near, far = (jnp.where(is_close, x, 0) for x in (d, e)), jnp.where(is_close, 1, e)
    apart = (_once(d) - jnp.exp(-d) * _once(rest)) / far
    return jnp.where(is_close, _series(*near), apart)


def _ordered(x: jax.Array, y: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """The smaller and the larger one, with the derivatives of one each where they are equal."""
    is_less = x < y
    return jnp.where(is_less, x, y), jnp.where(is_less, y, x)


def _first(a: jax.Array, x: jax.Array) -> jax.Array:
    """u_a(x)."""
    b, a = _ordered(a, 1)
    y = x / a
    slope = y * jnp.exp(-y) * _once(y * ((a - b) / b))
    return a / (a + b) * b * (slope - jnp.exp(-x / b))


def _second(s: jax.Array, t: jax.Array, x: jax.Array) -> jax.Array:
    """v_st(x), from the decreasing scales A, B and C among s, t and 1."""
    low, high = _ordered(s, t)
    c, other = _ordered(low, 1)
    b, a = _ordered(high, other)
    y, z = x / a, x / b
    d, e, rest = y * ((a - b) / b), y * ((a - c) / c), z * ((b - c) / c)
    one, two, three = b / (a + b), c / (a + c), c / (b + c)
    last = a / (a + b) * (b / (a + c)) * three
    total = jnp.square(y) * one * two * jnp.exp(-y) * _twice(d, e, rest)
    total -= y * (two + a / (a + b) * (a / (a + c)) * three) * jnp.exp(-z) * _once(rest)
    return a * (total + (one * two + last) * jnp.exp(-x / c))


def _distance(rate: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Distance in units of the length scale, clipped so that its powers do not overflow."""
    largest = float(jnp.finfo(rate.dtype).max) ** 0.4
    return jnp.minimum(absolute(x - y) * rate, largest)


def _mean(kernel: Exponential, p: Laplace, z: jax.Array) -> jax.Array:
    rate = reciprocal(length_scale(kernel, p))
    x = _distance(rate, z, p.loc)
    return jnp.exp(-x) + _first(p.scale * rate, x)


def _inner(kernel: Exponential, p: Laplace, q: Laplace) -> jax.Array:
    rate = reciprocal(length_scale(kernel, p))
    s, t = p.scale * rate, q.scale * rate
    x = _distance(rate, p.loc, q.loc)
    return jnp.exp(-x) + (_first(s, x) + _first(t, x)) + _second(s, t, x)


def _centered(kernel: Exponential, p: Laplace, y: jax.Array, q: Laplace, z: jax.Array) -> jax.Array:
    """Centered kernel whose rounding errors have almost mean zero.

    Write x_k, x_p, x_q and x_m for the distances in the four terms. Then

        k − m_p − m_q + M = [K(x_k) − K(x_p) − K(x_q) + K(x_m)]
                            + [u_a(x_m) − u_a(x_p)] + [u_b(x_m) − u_b(x_q)] + v_ab(x_m).

    Rounded functions of the scales enter each bracket twice, so that their mean effect is small,
    of order a b.
    """
    rate = reciprocal(length_scale(kernel, p))
    s, t = p.scale * rate, q.scale * rate
    k, m_p, m_q, m = (
        _distance(rate, left, right)
        for left, right in ((y, z), (z, p.loc), (y, q.loc), (p.loc, q.loc))
    )
    values = (jnp.exp(-k) - jnp.exp(-m_p)) - (jnp.exp(-m_q) - jnp.exp(-m))
    firsts = (_first(s, m) - _first(s, m_p)) + (_first(t, m) - _first(t, m_q))
    return values + firsts + _second(s, t, m)


register_expectations(Exponential, Laplace, mean=_mean, inner=_inner, centered=_centered)


_NUM_NODES = 31
_EXPONENT = 21.0  # e⁻²¹ bounds the omitted part


def _mean_white(kernel: White, p: Poisson, z: jax.Array) -> jax.Array:
    del kernel
    return jnp.exp(p.log_prob(z))


def _inner_white(kernel: White, p: Poisson, q: Poisson) -> jax.Array:
    del kernel
    one, two = jnp.sqrt(p.rate), jnp.sqrt(q.rate)
    return jnp.exp(-jnp.square(one - two)) * jax.scipy.special.i0e(2 * one * two)


def _reach(ell: jax.Array, variance: jax.Array) -> jax.Array:
    """Half a period, N / 2, by Bernstein's inequality for sums of Poisson variables."""
    total = lax.stop_gradient(variance + jnp.square(ell))
    third = _EXPONENT / 3
    return jnp.ceil(third + jnp.sqrt(third**2 + 2 * _EXPONENT * total))


def _spectrum(ell: jax.Array, w: jax.Array) -> jax.Array:
    """ϑ(w), as the sum that defines it for ℓ < 2, as √(2π) ℓ exp(−ℓ² w² / 2) for ℓ ≥ 2."""
    is_short = ell < 2
    short, long = jnp.where(is_short, ell, 1), jnp.where(is_short, 0, ell)
    terms = 2 * jnp.exp(-0.5 * jnp.square(jnp.arange(1, 13) / short))
    cosine = jnp.cos(w)
    following, current = 0, 0  # Clenshaw's recurrence
    for term in terms[::-1]:
        following, current = current, term + 2 * cosine * current - following
    gaussian = math.sqrt(2 * math.pi) * long * jnp.exp(-0.5 * jnp.square(long * w))
    return jnp.where(is_short, 1 + cosine * current - following, gaussian)


def _over_frequencies(
    kernel: SquaredExponential, p: Poisson, variance: jax.Array, skew: jax.Array, shift: jax.Array
) -> jax.Array:
    """π⁻¹ ∫_0^π ϑ(w) exp(−variance (1 − cos w)) cos(shift w − skew (w − sin w)) dw."""
    ell = length_scale(kernel, p)
    reach = _reach(ell, variance)
    is_near = jnp.abs(shift) <= reach
    shift = jnp.where(is_near, shift, 0)

    def add(node: jax.Array, total: jax.Array) -> jax.Array:
        w = jnp.minimum(node / reach, 1) * math.pi
        decay = jnp.exp(-2 * variance * jnp.square(jnp.sin(0.5 * w)))
        share = jnp.where((node == 0) | (node == reach), 0.5, 1) / reach
        weight = jnp.where(node <= reach, share, 0) * decay * _spectrum(ell, w)
        return total + weight * jnp.cos(shift * w - skew * sine_rest(w))

    total = lax.fori_loop(0, _NUM_NODES, add, jnp.zeros_like(shift))
    return jnp.where(is_near, total, 0)


def _mean_poisson(kernel: SquaredExponential, p: Poisson, z: jax.Array) -> jax.Array:
    return _over_frequencies(kernel, p, p.rate, p.rate, p.rate - z)


def _inner_poisson(kernel: SquaredExponential, p: Poisson, q: Poisson) -> jax.Array:
    difference = p.rate - q.rate
    return _over_frequencies(kernel, p, p.rate + q.rate, difference, difference)


register_expectations(White, Poisson, mean=_mean_white, inner=_inner_white)
register_expectations(
    SquaredExponential, Poisson, mean=_mean_poisson, inner=_inner_poisson, features=FEW_FREQUENCIES
)


def _average(function: Callable[..., jax.Array], weights: jax.Array, *points: Any) -> jax.Array:
    """Σ_k w_k f(x_k), one by one; gradients evaluate each term again instead of storing it."""

    def term(part: tuple[jax.Array, Any]) -> jax.Array:
        weight, point = part
        return weight * function(*point)

    parts = (weights, points)
    first = jax.tree.map(lambda leaf: leaf[0], parts)
    zero = jnp.zeros((), jax.eval_shape(term, first).dtype)
    add = jax.checkpoint(lambda total, part: (total + term(part), None), prevent_cse=False)
    return lax.scan(add, varying_as(zero, lambda: term(first)), parts)[0]


def _over(function: Callable[[Any], jax.Array], p: Mixture) -> jax.Array:
    return _average(function, p.mixing_probs, p.components)


def _mean_mixture(kernel: Kernel, p: Mixture, z: ArrayLike) -> jax.Array:
    return _over(lambda component: single_expectation(kernel, component, z), p)


def _inner_mixture(kernel: Kernel, p: Mixture, q: Mixture) -> jax.Array:
    return _over(lambda a: _over(lambda b: double_expectation(kernel, a, b), q), p)


def _centered_mixture(
    kernel: Kernel, p: Mixture, y: ArrayLike, q: Mixture, z: ArrayLike
) -> jax.Array:
    """Four terms in float64; in float32 the average of the components' centered kernels.

    The latter, Σ_ij w_i v_j [k(y, z) − m_{p_i}(z) − m_{q_j}(y) + M_{p_i, q_j}], costs up to five
    times as much, but cancels within the components, which have forms that are accurate there.
    """
    if p.mixing_probs.dtype == jnp.float64:
        return four_terms(kernel, p, y, q, z)
    return _over(lambda a: _over(lambda b: centered_kernel(kernel, a, y, b, z), q), p)


for _kernel, _features in ((Kernel, None), (SquaredExponential, FOURIER)):
    register_expectations(
        _kernel,
        Mixture,
        mean=_mean_mixture,
        inner=_inner_mixture,
        centered=_centered_mixture,
        features=_features,
    )


def _of_draws(function: Callable[[Any], jax.Array], p: Ensemble) -> jax.Array:
    """Expectation of function(z), a scalar, over the draws z of p; NaN if one is missing."""
    # Integers are not NaN, but may stand for it.
    is_missing = jnp.any(checks.is_missing(p.values))
    return jnp.where(is_missing, jnp.nan, _average(function, p.probs, p.values))


def _mean_ensemble(kernel: Kernel, p: Ensemble, z: ArrayLike) -> jax.Array:
    return _of_draws(lambda x: kernel(x, z), p)


def _inner_ensemble(kernel: Kernel, p: Ensemble, q: Ensemble) -> jax.Array:
    """M_{p,q}; without pairs of a draw with itself if the two are the same prediction."""
    every = _of_draws(lambda x: _mean_ensemble(kernel, q, x), p)
    if p.index is None or q.index is None or jnp.shape(p.values) != jnp.shape(q.values):
        return every
    is_same, products = p.index == q.index, p.probs * q.probs
    paired = _average(kernel, products, p.values, q.values)
    # The denominator is kept away from zero where it is not used.
    share = jnp.where(is_same, jnp.sum(products), 0)
    return jnp.where(is_same, (every - paired) / (1 - share), every)


def _draws(kernel: Kernel, p: MonteCarlo) -> Ensemble:
    """The draws, of which those of classes are labels."""
    if has_class_probs(p):
        single_expectation(kernel, p.distribution, 0)  # which refuses distances between them
    return p.draws


for _kernel, _features in ((Kernel, None), (SquaredExponential, FOURIER_OF_DRAWS)):
    register_expectations(
        _kernel, Ensemble, mean=_mean_ensemble, inner=_inner_ensemble, features=_features
    )
    register_expectations(
        _kernel,
        MonteCarlo,
        mean=lambda kernel, p, z: _mean_ensemble(kernel, _draws(kernel, p), z),
        inner=lambda kernel, p, q: _inner_ensemble(kernel, _draws(kernel, p), q.draws),
        features=_features,
    )


register_expectations(
    Residual,
    object,
    mean=lambda kernel, p, z: jnp.zeros((), floating_dtype(p)),
    inner=lambda kernel, p, q: jnp.zeros((), floating_dtype(p)),
    features=Features(lambda kernel, prepared, p, y: kernel.residual(p, y)),
)


def _end(p: Distribution) -> float | None:
    """The upper end of the support, None for real numbers and vectors; refuses other supports."""
    support = getattr(p, "support", constraints.real)
    is_positive = support in (constraints.positive, constraints.nonnegative)
    is_known = is_positive or support is constraints.unit_interval
    is_known |= getattr(support, "words", None) == constraints.real.words
    if not is_known or isinstance(p, Uniform | MonteCarlo) or not hasattr(p, "log_prob"):
        raise NotImplementedError(
            f"no Stein kernel for {type(p).__name__} predictions; expected a density without steps "
            "at the ends of its support, which is one of calibjax.distributions.constraints"
        )
    if is_positive:
        return math.inf
    return 1.0 if support is constraints.unit_interval else None


def _weight_stein(p: Distribution, y: jax.Array) -> jax.Array | float:
    """A smooth factor that is zero at the ends of the support."""
    if (end := _end(p)) is None:
        return 1.0
    return y * (1 - y) if end == 1 else y


def _inside(p: Distribution, y: jax.Array) -> jax.Array:
    """The nearest point inside of the support, where draws and targets were rounded to its ends.

    The density may be infinite or zero there. Its slope times the weight has a limit, which is
    taken as close to the end as the slope, for concentrations up to 1e4, does not overflow.
    """
    if (end := _end(p)) is None:
        return y
    info = jnp.finfo(y.dtype)
    least = float(info.tiny) * 1e6
    # What is outside of the support stays there.
    inner = jnp.where((y >= 0) & (y < least), least, y)
    return jnp.where((y <= end) & (y > end - info.epsneg), end - info.epsneg, inner)


def _zero_stein(kernel: Stein, p: Distribution, *others: object) -> jax.Array:
    del kernel, others
    _end(p)
    return jnp.zeros((), jnp.result_type(*jax.tree.leaves(p)))


def _centered_stein(kernel: Stein, p: Any, y: ArrayLike, q: Any, z: ArrayLike) -> jax.Array:
    # Inside of `shard_map` the gradient by what all devices share would be the sum over them.
    y, z = varying_as((jnp.asarray(y), jnp.asarray(z)), (kernel, p, q, y, z))
    y, z = _inside(p, y), _inside(q, z)

    def value(y: jax.Array, z: jax.Array) -> jax.Array:
        return _weight_stein(p, y) * _weight_stein(q, z) * kernel.kernel(y, z)

    in_y, in_z = jax.grad(value, 0), jax.grad(value, 1)
    score_y, score_z = jax.grad(p.log_prob)(y), jax.grad(q.log_prob)(z)
    mixed = jax.jacfwd(in_z)(y, z)
    if jnp.ndim(y) == 0:
        # The slopes are large where the weights are small: their product would overflow.
        slope_y, slope_z = score_y * _weight_stein(p, y), score_z * _weight_stein(q, z)
        both = slope_y * slope_z * kernel.kernel(y, z)
        return both + score_y * in_z(y, z) + score_z * in_y(y, z) + mixed
    both = matmul(score_y, score_z) * value(y, z)
    return both + matmul(score_y, in_z(y, z)) + matmul(score_z, in_y(y, z)) + jnp.trace(mixed)


register_expectations(Stein, object, mean=_zero_stein, inner=_zero_stein, centered=_centered_stein)
