"""Expectations of the exponential kernel under Laplace predictions.

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
"""

import jax
import jax.numpy as jnp

from calibjax._core.arithmetic import absolute, reciprocal
from calibjax._core.pytree import record
from calibjax.distances import Euclidean
from calibjax.distributions import Laplace
from calibjax.kernels.expectations import missing, register_expectations
from calibjax.kernels.stationary import Exponential, refuse_far_length_scale

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
    if not isinstance(kernel.distance, Euclidean):
        raise missing(kernel, p, f" with distance {type(kernel.distance).__name__}")
    rate = reciprocal(jnp.asarray(kernel.length_scale, jnp.result_type(p.loc)))
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


def _single(kernel: Exponential, p: Laplace, z: jax.Array) -> jax.Array:
    rate, s = _scaled(kernel, p)
    x = _distance(rate, z, p.loc)
    return jnp.exp(-x) + _first(s, x)


def _double(kernel: Exponential, p: Laplace, q: Laplace) -> jax.Array:
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


def _check(kernel: Exponential, predictions: Laplace) -> None:
    refuse_far_length_scale(kernel, predictions.scale)


register_expectations(
    Exponential, Laplace, single=_single, double=_double, centered=_centered, check=_check
)
