"""Expectations under Laplace, Poisson, mixed and empirical predictions, and of residuals.

Expectations of the exponential kernel under Laplace predictions.

Let x be the distance of two points and a, b the scales of two predictions, all in units of the
length scale, K(x) = exp(−x), and T_a the average over a Laplace variable of scale a. Then
m_p = T_a K and M_{p,q} = T_a T_b K, with removable singularities at a = 1, b = 1 and a = b. They
are sums of K and

    u_a = T_a K − K = [a² K(x) − a K(x/a)] / (1 − a²),
    v_ab = (T_a − 1) (T_b − 1) K = (b² u_a − a² u_b) / (a² − b²),

which also keeps the rounding errors of the centered kernel small. Near a singularity, u and v are
written with divided differences of exp(−t) at t = x, x/a, x/b, such as

    Φ(s, t) = [exp(−s) − exp(−t)] / (t − s) = T(t − s) [exp(−s) + exp(−t)] / 2,
    T(d) = tanh(d/2) / (d/2).

The arguments must be close, not the scales: where the scales are almost equal but x is large, the
exponentials make up for the digits that the quotients lose.

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

Expectations under mixtures, which are averages over components.

For mixtures p = Σ_i w_i p_i and q = Σ_j v_j q_j

    m_p(z) = Σ_i w_i m_{p_i}(z),    M_{p,q} = Σ_i Σ_j w_i v_j M_{p_i, q_j}

over **all** pairs of components. (CalibrationErrors.jl skips the pairs with i ≥ 2 and j = 1.)

References: W21 App. D.3.

Expectations of any target kernel under draws.

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

The Stein kernel, whose expectations are zero under every density that it is defined for.

For functions f that vanish with the density at the ends of its support E[s_p(Y) f(Y) + ∇f(Y)] = 0,
with the score s_p = ∇ log p. The rule is for all classes of predictions, those of a user, too.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import absolute, floating_dtype, matmul, reciprocal, tensordot
from calibjax._core.pytree import record
from calibjax.distributions import Ensemble, Laplace, Mixture, Poisson, Uniform, constraints
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.kernels import nystrom
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
    has_different_draws,
)
from calibjax.kernels.residuals import Residual
from calibjax.kernels.stationary import Exponential, SquaredExponential, Stein

_CLOSE = 0.5  # largest difference of arguments whose divided difference is a Taylor series


@record
class _Scale:
    """Quantities that depend on one prediction only.

    Attributes:
        a: its scale in units of the length scale.
        rate: 1 / a.
        excess: 1/a − 1, so that x/a = x + x excess.
        share: 1 / (1 + a).
        slope: 1 / (1 − a²); set to 1 at a = 1, where it is not used.
    """

    a: jax.Array
    rate: jax.Array
    excess: jax.Array
    share: jax.Array
    slope: jax.Array


def _scaled(kernel: Exponential, p: Laplace) -> tuple[jax.Array, _Scale]:
    """Inverse length scale, and the scale of a prediction in units of the length scale."""
    rate = reciprocal(length_scale(kernel, p))
    a = p.scale * rate
    gap = (1 - a) * (1 + a)
    slope = 1 / jnp.where(gap == 0, 1, gap)
    return rate, _Scale(a, 1 / a, (1 - a) / a, 1 / (1 + a), slope)


def _taylor_of_ratio(num_terms: int) -> list[float]:
    """Coefficients of T in d²/4, from tanh' = 1 − tanh²."""
    coefficients = [1.0]
    for k in range(1, num_terms):
        square = sum(coefficients[i] * coefficients[k - 1 - i] for i in range(k))
        coefficients.append(-square / (2 * k + 1))
    return coefficients


_RATIO = {4: _taylor_of_ratio(5), 8: _taylor_of_ratio(11)}  # by item size, to its precision


def _is_close(shift: jax.Array) -> jax.Array:
    return jnp.abs(shift) < _CLOSE


def _if_close(shift: jax.Array) -> jax.Array:
    """The shift, replaced by zero where the gradient of the series would not be finite."""
    return jnp.where(_is_close(shift), shift, 0)


def _ratios(d: jax.Array, e: jax.Array) -> tuple[jax.Array, jax.Array]:
    """T(d) and [T(d) − T(e)] / (d − e), by Horner's scheme with synthetic division."""
    v, w = 0.25 * jnp.square(d), 0.25 * jnp.square(e)
    value = slope = jnp.zeros((), d.dtype)
    for coefficient in reversed(_RATIO[d.dtype.itemsize]):
        slope = slope * w + value
        value = value * v + coefficient
    return value, 0.25 * (d + e) * slope


def _divided(left: jax.Array, right: jax.Array, shift: jax.Array) -> jax.Array:
    """Φ(s, t) of close arguments, from exp(−s), exp(−t) and the shift t − s."""
    shift = _if_close(shift)
    return 0.5 * (left + right) * _ratios(shift, shift)[0]


def _first(s: _Scale, x: jax.Array) -> jax.Array:
    """u_a(x), where a is the scale of s; near the singularity [x Φ(x, x/a) − a K] / (1 + a)."""
    k, k_s = jnp.exp(-x), jnp.exp(-x * s.rate)
    shift = x * s.excess
    close = s.share * (x * _divided(k, k_s, shift) - s.a * k)
    apart = s.a * s.slope * (s.a * k - k_s)
    return jnp.where(_is_close(shift), close, apart)


def _second(s: _Scale, t: _Scale, x: jax.Array) -> jax.Array:
    """v_ab(x), where a and b are the scales of s and t."""
    shift_s, shift_t = x * s.excess, x * t.excess
    shift = shift_t - shift_s
    all_close = _is_close(shift_s) & _is_close(shift_t) & _is_close(shift)
    # If not all are close, at least one of the other differences exceeds half the limit.
    scales_close = _is_close(2 * shift)
    gap = jnp.where(all_close | scales_close, 1, (s.a - t.a) / (s.a + t.a))
    c, d = s.a / (s.a + t.a), t.a / (s.a + t.a)
    apart = (jnp.square(d) * _first(s, x) - jnp.square(c) * _first(t, x)) / gap
    value = jnp.where(scales_close, _second_of_close_scales(s, t, x), apart)
    return jnp.where(all_close, _second_of_close_arguments(s, t, x, all_close), value)


def _second_of_close_scales(s: _Scale, t: _Scale, x: jax.Array) -> jax.Array:
    """v_ab(x) if x/a and x/b are close to each other, but not to x.

    v = a² b² K(x) / [(1 − a²) (1 − b²)]
        + a b [(1 − a² − b² − a b) K(x/b) − (1 − b²) Φ(x/a, x/b) x/a]
          / [(a + b) (1 − a²) (1 − b²)]
    """
    k, k_s, k_t = jnp.exp(-x), jnp.exp(-x * s.rate), jnp.exp(-x * t.rate)
    phi = _divided(k_s, k_t, x * t.excess - x * s.excess)
    local = t.a / (s.a + t.a) * (s.a * t.slope * k_t - s.slope * x * phi)
    both = s.slope * t.slope * jnp.square(t.a)
    return both * (jnp.square(s.a) * k - s.a * k_t) + local


def _second_of_close_arguments(s: _Scale, t: _Scale, x: jax.Array, valid: jax.Array) -> jax.Array:
    """v_ab(x) if x, x/a and x/b are close.

    v = {a b (1 + a + b) K(x) − [(a + b) (1 + a + b) − a b] x Φ(x, x/b) + b (1 + b) (x²/a) Ψ}
        / [(a + b) (1 + a) (1 + b)]

    with Ψ = [Φ(x, x/b) − Φ(x, x/a)] / (x/a − x/b), by the product rule of divided differences.
    """
    k, k_s, k_t = jnp.exp(-x), jnp.exp(-x * s.rate), jnp.exp(-x * t.rate)
    shift_s, shift_t = x * s.excess, x * t.excess
    ratio_s, _ = _ratios(*2 * [_if_close(shift_s)])
    ratio_t, slope = _ratios(_if_close(shift_t), _if_close(shift_s))
    phi = 0.5 * (k + k_t) * ratio_t
    psi = 0.5 * (_divided(k_s, k_t, shift_t - shift_s) * ratio_s - (k + k_t) * slope)
    x = jnp.where(valid, x, 0)  # otherwise the square of a large distance is infinite
    share = t.a / (s.a + t.a)
    total, part = 1 + s.a + t.a, s.a * share
    lower = t.share * (part * total * k - (total - part) * x * phi)
    return s.share * (lower + share * x * (x * s.rate) * psi)


def _distance(rate: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Distance in units of the length scale, clipped so that its powers do not overflow."""
    largest = float(jnp.finfo(rate.dtype).max) ** 0.4
    return jnp.minimum(absolute(x - y) * rate, largest)


def _mean(kernel: Exponential, p: Laplace, z: jax.Array) -> jax.Array:
    rate, s = _scaled(kernel, p)
    x = _distance(rate, z, p.loc)
    return jnp.exp(-x) + _first(s, x)


def _inner(kernel: Exponential, p: Laplace, q: Laplace) -> jax.Array:
    (rate, s), (_, t) = _scaled(kernel, p), _scaled(kernel, q)
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
    (rate, s), (_, t) = _scaled(kernel, p), _scaled(kernel, q)
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


def _weight(
    ell: jax.Array, variance: jax.Array, reach: jax.Array, node: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Frequency w = node π / reach, sin(w / 2), and the weight ϑ(w) exp(−variance (1 − cos w)).

    ϑ(w) is computed as the sum that defines it for ℓ < 2, as √(2π) ℓ exp(−ℓ² w² / 2) for ℓ ≥ 2.
    """
    is_short = ell < 2
    short, long = jnp.where(is_short, ell, 1), jnp.where(is_short, 0, ell)
    w = jnp.minimum(node / reach, 1) * math.pi
    half_sine = jnp.sin(0.5 * w)
    cosine = 1 - 2 * jnp.square(half_sine)
    terms = 2 * jnp.exp(-0.5 * jnp.square(jnp.arange(1, 13) / short))
    following, current = 0, 0  # Clenshaw's recurrence
    for term in terms[::-1]:
        following, current = current, term + 2 * cosine * current - following
    factor = jnp.where(is_short, 1 + cosine * current - following, math.sqrt(2 * math.pi) * long)
    decay = jnp.exp((cosine - 1) * variance - 0.5 * jnp.square(long * w))
    ends = jnp.where((node == 0) | (node == reach), 0.5, 1)
    return w, half_sine, jnp.where(node <= reach, ends / reach, 0) * decay * factor


def _sine_rest(w: jax.Array) -> jax.Array:
    """The difference w − sin w, without cancellation for small w."""
    square = jnp.square(jnp.where(w < 1, w, 0))
    series = jnp.zeros_like(w)
    for k in range(8, 0, -1):
        series = (1 - series) * square / (2 * k * (2 * k + 1))
    return jnp.where(w < 1, w * series, w - jnp.sin(w))


def _mean_poisson(kernel: SquaredExponential, p: Poisson, z: jax.Array) -> jax.Array:
    """Σ_j a_j cos(w_j (λ − z) − λ (w_j − sin w_j)), as a polynomial in exp(i w_1 (λ − z))."""
    ell = length_scale(kernel, p)
    reach = _reach(ell, p.rate)
    w, _, weights = _weight(ell, p.rate, reach, jnp.arange(_NUM_NODES))
    phases = p.rate * _sine_rest(w)
    coefficients = weights * jnp.cos(phases), -weights * jnp.sin(phases)
    difference = p.rate - z
    is_near = jnp.abs(difference) <= reach
    angle = jnp.where(is_near, difference, 0) * (math.pi / reach)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)

    def horner(value: tuple, coefficient: tuple) -> tuple[tuple, None]:
        (real, imag), (a, b) = value, coefficient
        return (real * cosine - imag * sine + a, real * sine + imag * cosine + b), None

    zero = jnp.zeros_like(angle)
    (real, _), _ = lax.scan(horner, (zero, zero), coefficients, reverse=True)
    return jnp.where(is_near, real, 0)


def _inner_poisson(kernel: SquaredExponential, p: Poisson, q: Poisson) -> jax.Array:
    ell, variance = length_scale(kernel, p), p.rate + q.rate
    reach = _reach(ell, variance)
    difference = p.rate - q.rate
    is_near = jnp.abs(difference) <= reach
    difference = jnp.where(is_near, difference, 0)

    def add(node: jax.Array, total: jax.Array) -> jax.Array:
        _, half_sine, weight = _weight(ell, variance, reach, node)
        sine = 2 * half_sine * jnp.sqrt(1 - jnp.square(half_sine))
        return total + weight * jnp.cos(difference * sine)

    total = lax.fori_loop(0, _NUM_NODES, add, jnp.zeros_like(difference))
    return jnp.where(is_near, total, 0)


register_expectations(White, Poisson, mean=_mean_white, inner=_inner_white)
register_expectations(
    SquaredExponential, Poisson, mean=_mean_poisson, inner=_inner_poisson, features=FEW_FREQUENCIES
)


_UNROLLED = 4  # components; a loop over more of them holds as many tiles of pairs at a time


def _average(function: Callable[[Any], jax.Array | float], p: Mixture) -> jax.Array:
    """Σ_k w_k f(p_k)."""

    def term(part: tuple[jax.Array, Any]) -> jax.Array:
        weight, component = part
        return weight * function(component)

    parts = (p.mixing_probs, p.components)
    first, rest = (jax.tree.map(lambda leaf, i=i: leaf[i], parts) for i in (0, slice(1, None)))
    add = jax.checkpoint(lambda total, part: (total + term(part), None))
    return lax.scan(add, term(first), rest, unroll=_UNROLLED)[0]


def _mean_mixture(kernel: Kernel, p: Mixture, z: ArrayLike) -> jax.Array:
    return _average(lambda component: single_expectation(kernel, component, z), p)


def _inner_mixture(kernel: Kernel, p: Mixture, q: Mixture) -> jax.Array:
    return _average(lambda a: _average(lambda b: double_expectation(kernel, a, b), q), p)


def _centered_mixture(
    kernel: Kernel, p: Mixture, y: ArrayLike, q: Mixture, z: ArrayLike
) -> jax.Array:
    """Four terms in float64; in float32 the average of the components' centered kernels.

    The latter, Σ_ij w_i v_j [k(y, z) − m_{p_i}(z) − m_{q_j}(y) + M_{p_i, q_j}], costs up to five
    times as much, but cancels within the components, which have forms that are accurate there.
    """
    if p.mixing_probs.dtype == jnp.float64:
        return four_terms(kernel, p, y, q, z)
    return _average(lambda a: _average(lambda b: centered_kernel(kernel, a, y, b, z), q), p)


for _kernel, _features in ((Kernel, None), (SquaredExponential, FOURIER)):
    register_expectations(
        _kernel,
        Mixture,
        mean=_mean_mixture,
        inner=_inner_mixture,
        centered=_centered_mixture,
        features=_features,
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


def _mean_ensemble(kernel: Kernel, p: Ensemble, z: ArrayLike) -> jax.Array:
    return _expectation(lambda x: kernel(x, z), p)


def _inner_ensemble(kernel: Kernel, p: Ensemble, q: Ensemble) -> jax.Array:
    """M_{p,q}; without pairs of a draw with itself if the two are the same prediction."""
    every = _expectation(lambda x: _mean_ensemble(kernel, q, x), p)
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


def _prepare_features_ensemble(
    kernel: Kernel, predictions: Ensemble, targets: jax.Array
) -> tuple[jax.Array, jax.Array] | None:
    """Some of the draws and targets, and the inverse Cholesky factor of their kernel matrix."""
    is_known = checks.is_outermost(kernel, predictions, targets)
    if not is_known or not has_different_draws(predictions):
        return None
    values = jnp.asarray(predictions.values)
    points = jnp.concatenate([values.reshape(-1, *values.shape[2:]), jnp.asarray(targets)])
    limit = min(values.shape[1] ** 2, len(points), _MAX_RANK)
    tolerance = nystrom.TOLERANCE[floating_dtype(points).itemsize]
    rank = nystrom.numerical_rank(kernel, points, tolerance, limit)
    if rank is None:
        return None
    approximation = nystrom.decompose(kernel, points, tolerance, size=min(rank, limit))
    factor = nystrom.factor_at_pivots(approximation)
    is_used = jnp.arange(len(factor)) < approximation.rank
    inverse = lax.linalg.triangular_solve(
        factor, jnp.diag(is_used.astype(factor.dtype)), left_side=True, lower=True
    )
    return points[approximation.pivots], inverse


def _values_at_pivots(kernel: Kernel, prepared: tuple[jax.Array, jax.Array], z: Any) -> jax.Array:
    """Features of one target, whose inner products are the kernel, [r]."""
    pivots, inverse = prepared
    values = jax.vmap(lambda pivot: kernel(pivot, z))(pivots)
    return matmul(inverse, values.astype(inverse.dtype))


def _mean_at_pivots(kernel: Kernel, prepared: tuple, p: Ensemble) -> jax.Array:
    """Mean of the features over the draws, [r]."""
    each = jax.vmap(lambda z: _values_at_pivots(kernel, prepared, z))(p.values)
    return tensordot(p.probs.astype(each.dtype), each, 1)


def _offset(kernel: Kernel, prepared: tuple, p: Ensemble, mean: jax.Array) -> jax.Array:
    """What leaving out the pairs of a draw with itself adds to M_{p,p}."""
    del prepared
    if p.index is None:
        return jnp.zeros((), mean.dtype)
    share, squares = matmul(p.probs, p.probs), jnp.square(p.probs)
    paired = matmul(squares, jax.vmap(kernel)(p.values, p.values).astype(mean.dtype))
    return (share * matmul(mean, mean) - paired) / (1 - share)


def _draws(kernel: Kernel, p: MonteCarlo) -> Ensemble:
    """The draws, of which those of classes are labels."""
    if has_class_probs(p):
        single_expectation(kernel, p.distribution, 0)  # which refuses distances between them
    return p.draws


register_expectations(
    Kernel,
    Ensemble,
    mean=_mean_ensemble,
    inner=_inner_ensemble,
    features=Features(
        lambda kernel, prepared, mean, y: _values_at_pivots(kernel, prepared, y) - mean,
        _prepare_features_ensemble,
        view=_mean_at_pivots,
        offset=_offset,
    ),
)
register_expectations(
    SquaredExponential,
    Ensemble,
    mean=_mean_ensemble,
    inner=_inner_ensemble,
    features=FOURIER_OF_DRAWS,
)
for _kernel, _features in ((Kernel, None), (SquaredExponential, FOURIER_OF_DRAWS)):
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
    y, z = _inside(p, jnp.asarray(y)), _inside(q, jnp.asarray(z))

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
