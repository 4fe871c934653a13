"""Parts of log-densities that stay accurate where log-gamma functions cancel, and quantiles.

The logarithm of a Poisson or beta density is the difference of log-gamma functions and logarithms
that are some 10⁵ times as large for parameters of 10⁴; in float32 nothing is left of it. Written
with the deviance and the error of Stirling's formula every term is as small as the result.

References: Loader (2000), Fast and accurate computation of binomial probabilities.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# Coefficients B_2k / (2k (2k − 1)) of Stirling's series, from the highest power on.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260)
_STIRLING += (-1 / 360, 1 / 12)
_SERIES_FROM = 9.0  # where the first term that is left out is below 1e-17


def stirling_error(x: jax.Array) -> jax.Array:
    """Difference log Γ(x) − (x − ½) log x + x − ½ log 2π for x > 0, elementwise."""
    is_large = x >= _SERIES_FROM
    large, small = jnp.where(is_large, x, _SERIES_FROM), jnp.where(is_large, 1, x)
    inverse = jnp.square(1 / large)
    series = jnp.zeros_like(large)
    for coefficient in _STIRLING:
        series = series * inverse + coefficient
    direct = gammaln(small) - (small - 0.5) * jnp.log(small) + small - _HALF_LOG_TWO_PI
    return jnp.where(is_large, series / large, direct)


def deviance(x: jax.Array, mean: jax.Array) -> jax.Array:
    """Half of the Poisson deviance, x log(x / mean) − x + mean ≥ 0, elementwise; x ≥ 0, mean > 0.

    With r = (x − mean) / (x + mean) it is (x − mean) r + 2 x (artanh r − r).
    """
    ratio = (x - mean) / (x + mean)
    is_near = jnp.abs(ratio) < 0.1
    near = jnp.where(is_near, ratio, 0)
    square = jnp.square(near)
    series = jnp.zeros_like(near)
    for k in range(9, 0, -1):
        series = series * square + 1 / (2 * k + 1)
    rest = 2 * x * near * square * series
    far = xlogy(x, jnp.where(is_near, 1, x / mean)) - x + mean
    return jnp.where(is_near, (x - mean) * near + rest, far)


def log_dirichlet_density(concentration: jax.Array, y: jax.Array) -> jax.Array:
    """Log-density of a Dirichlet distribution on the closed simplex, [..., d] → [...].

    Where a coordinate is zero it is the limit: infinite unless its concentration is one.
    """
    total = jnp.sum(concentration, -1, keepdims=True)
    is_inner = y > 0
    inner = jnp.where(is_inner, y, 1)
    edge = jnp.where(concentration < 1, jnp.inf, -jnp.inf)
    edge = jnp.where(concentration == 1, 1 + jnp.log(total), edge)
    powers = jnp.where(is_inner, -deviance(concentration, total * inner) - jnp.log(inner), edge)
    terms = powers + 0.5 * jnp.log(concentration) - stirling_error(concentration)
    rest = stirling_error(total) - 0.5 * jnp.log(total)
    constant = (concentration.shape[-1] - 1) * _HALF_LOG_TWO_PI
    return jnp.sum(terms, -1) + rest[..., 0] - constant


def log_poisson_density(y: jax.Array, rate: jax.Array) -> jax.Array:
    """Log-probability of y ≥ 0, y log rate − rate − log Γ(y + 1), elementwise; rate > 0."""
    positive = jnp.where(y > 0, y, 1)
    density = -stirling_error(positive) - deviance(positive, rate) - 0.5 * jnp.log(positive)
    return jnp.where(y > 0, density - _HALF_LOG_TWO_PI, -rate)


def upper_gamma(y: jax.Array, rate: jax.Array) -> jax.Array:
    """Probability of counts up to y ≥ 0, by quadrature of P(Z ≤ y) = ∫_rate^∞ tʸ e^(−t) / y! dt.

    It is the probability that a gamma variable with concentration y + 1 exceeds the rate.

    The integrand is log-concave with its mode at y. It is integrated from the rate away from the
    mode, until it has fallen by e⁻⁴⁰.
    """
    is_right = rate > y
    slope = jnp.abs(1 - y / rate)
    length = jnp.minimum(9 * jnp.sqrt(y + 1) + 40, 40 / slope)
    length = lax.stop_gradient(jnp.where(is_right, length, jnp.minimum(length, rate)))
    steps = 0.5 * length[..., None] * jnp.asarray(1 + _NODES, rate.dtype)
    points = rate[..., None] + jnp.where(is_right[..., None], steps, -steps)
    densities = jnp.exp(log_poisson_density(y[..., None], points))
    tail = 0.5 * length * jnp.sum(densities * jnp.asarray(_WEIGHTS, rate.dtype), -1)
    return jnp.where(is_right, tail, 1 - tail)


def at_levels(level: jax.Array, values: jax.Array, lowest: Any, highest: Any) -> jax.Array:
    """Quantiles at levels in (0, 1), with the ends of the support at 0 and 1, and NaN outside."""
    values = jnp.where(level <= 0, lowest, jnp.where(level >= 1, highest, values))
    return jnp.where((level >= 0) & (level <= 1), values, jnp.nan)


def inverse_of_cdf(
    cdf: Callable[[Any], jax.Array], level: jax.Array, largest: ArrayLike
) -> jax.Array:
    """Smallest floating-point number y in [0, largest] with cdf(y) ≥ level; not differentiable.

    Bisection of the bit patterns, which are ordered as the floats are: 31 steps in float32, 63 in
    float64.
    """
    is_double = level.dtype == jnp.float64
    integer = jnp.int64 if is_double else jnp.int32
    high = lax.bitcast_convert_type(jnp.full_like(level, largest), integer)

    def halve(_: jax.Array, bracket: tuple) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = low + (high - low) // 2
        is_upper = cdf(lax.bitcast_convert_type(middle, level.dtype)) >= level
        low = jnp.where(is_upper, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(is_upper, middle, high)

    low, _ = lax.fori_loop(0, 63 if is_double else 31, halve, (jnp.zeros_like(high), high))
    return jnp.where(jnp.isnan(level), jnp.nan, lax.bitcast_convert_type(low, level.dtype))
