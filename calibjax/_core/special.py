"""Parts of log-densities that stay accurate where log-gamma functions cancel, and quantiles.

The logarithm of a Poisson or beta density is a difference of log-gamma functions and logarithms.
For parameters of 10⁴ these terms are about 10⁵ times as large as the result, and float32 loses all
digits. Written with the deviance and the error of Stirling's formula, every term is as small as the
result.

References: Loader (2000), Fast and accurate computation of binomial probabilities.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammainc, gammaincc, gammaln
from jax.typing import ArrayLike

from calibjax._core.arithmetic import logarithm, ratio
from calibjax._core.pytree import Pair, varying_as

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# Coefficients B_2k / (2k (2k − 1)) of Stirling's series, from the highest power on.
_STIRLING = (-3617 / 122400, 1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260)
_STIRLING += (-1 / 360, 1 / 12)
_NUM_TERMS = 100  # of the continued fraction; enough for parameters up to 1e4
SERIES_FROM = 9.0  # the first omitted term is below 1e-17 from here on


def stirling_error(x: jax.Array) -> jax.Array:
    """Difference log Γ(x) − (x − ½) log x + x − ½ log 2π for x > 0, elementwise."""
    is_large = x >= SERIES_FROM
    large, small = jnp.where(is_large, x, SERIES_FROM), jnp.where(is_large, 1, x)
    direct = gammaln(small) - (small - 0.5) * jnp.log(small) + small - _HALF_LOG_TWO_PI
    return jnp.where(is_large, stirling_series(large), direct)


def stirling_series(x: jax.Array) -> jax.Array:
    """The same difference for x ≥ `SERIES_FROM`."""
    inverse = jnp.square(1 / x)
    series = jnp.zeros_like(x)
    for coefficient in _STIRLING:
        series = series * inverse + coefficient
    return series / x


def log_gamma_step(x: jax.Array) -> jax.Array:
    """Difference log Γ(x + ½) − log Γ(x) − ½ log x for x > 0, by Stirling's formula."""
    half = x + 0.5
    return x * jnp.log1p(0.5 / x) - 0.5 + stirling_error(half) - stirling_error(x)


def log_ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """Logarithm of x / y for x, y > 0, whose derivatives contain no squares that overflow."""
    return logarithm(ratio(x, y))


def deviance(x: jax.Array, mean: jax.Array) -> jax.Array:
    """Half of the Poisson deviance, x log(x / mean) − x + mean ≥ 0, elementwise; x ≥ 0, mean > 0.

    With r = (x − mean) / (x + mean) it is (x − mean) r + 2 x (artanh r − r).
    """
    contrast = (x - mean) / (x + mean)
    is_near = jnp.abs(contrast) < 0.1
    near = jnp.where(is_near, contrast, 0)
    square = jnp.square(near)
    series = jnp.zeros_like(near)
    for k in range(9, 0, -1):
        series = series * square + 1 / (2 * k + 1)
    rest = 2 * x * near * square * series
    is_far = ~is_near & (x > 0)
    logarithm = log_ratio(jnp.where(is_far, x, 1), jnp.where(is_far, mean, 1))
    far = x * logarithm - x + mean
    return jnp.where(is_near, (x - mean) * near + rest, far)


def log_dirichlet_density(concentration: jax.Array, y: jax.Array) -> jax.Array:
    """Log-density of a Dirichlet distribution on the closed simplex, [..., d] → [...].

    At a coordinate of zero the value is the limit: infinite unless the concentration is one.
    """
    total = jnp.sum(concentration, -1, keepdims=True)
    is_inner = y > 0
    inner = jnp.where(is_inner, y, 1)
    edge = jnp.where(concentration < 1, jnp.inf, -jnp.inf)
    # (concentration − 1) log 0 is zero with an infinite derivative; the largest number makes no NaN
    # of samples that do not count.
    steep = (concentration - 1) * jnp.finfo(total.dtype).max
    edge = jnp.where(concentration == 1, 1 + jnp.log(total) - steep, edge)
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


def gamma_tails(y: jax.Array, rate: jax.Array) -> Pair:
    """P(Z > y) and P(Z ≤ y) of a Poisson variable, y ≥ 0, by quadrature of ∫ tʸ e^(−t) / y! dt.

    They are the probabilities that a gamma variable with concentration y + 1 is below and above
    the rate. The smaller one is accurate.

    The integrand is log-concave with its mode at y. It is integrated from the rate away from the
    mode, until it has fallen by e⁻⁴⁰.
    """
    is_right = rate > y
    slope = jnp.abs(1 - y / rate)
    length = jnp.minimum(9 * jnp.sqrt(y + 1) + 40, 40 / slope)
    length = lax.stop_gradient(length)
    length = jnp.where(is_right, length, jnp.minimum(length, rate))  # whose end at zero stays there
    steps = 0.5 * length[..., None] * jnp.asarray(1 + _NODES, rate.dtype)
    points = rate[..., None] + jnp.where(is_right[..., None], steps, -steps)
    densities = jnp.exp(log_poisson_density(y[..., None], points))
    tail = 0.5 * length * jnp.sum(densities * jnp.asarray(_WEIGHTS, rate.dtype), -1)
    return jnp.where(is_right, 1 - tail, tail), jnp.where(is_right, tail, 1 - tail)


def incomplete_gamma(a: jax.Array, x: jax.Array) -> Pair:
    """Regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 − P for x ≥ 0."""
    a, x = jnp.broadcast_arrays(a, jnp.minimum(x, jnp.finfo(jnp.result_type(x)).max))
    is_large = a > 10  # where the quadrature is more accurate, and (√tiny)ᵃ is zero
    is_zero = (x <= jnp.where(is_large, jnp.finfo(x.dtype).tiny ** 0.5, 0)) & ~jnp.isnan(a)
    tails = gamma_tails(jnp.where(is_large, a, 11) - 1, jnp.where(is_large & ~is_zero, x, 1))
    few, point = jnp.where(is_large, 1, a), jnp.where(is_large | is_zero, 1, x)
    lower = jnp.where(is_large, tails[0], gammainc(few, point))
    upper = jnp.where(is_large, tails[1], gammaincc(few, point))
    return jnp.where(is_zero, 0, lower), jnp.where(is_zero, 1, upper)


@jax.custom_jvp
def incomplete_beta(a: jax.Array, b: jax.Array, x: jax.Array, rest: jax.Array) -> Pair:
    """Regularised incomplete beta functions at x and at `rest` = 1 − x: P(X ≤ x) and P(X > x).

    For X ~ Beta(a, b) and 0 < x < 1, by a continued fraction whose terms do not cancel. `rest` is
    passed because 1 − x has lost the digits of a small value. JAX's betainc computes the leading
    factor from log-gamma functions: two correct digits in float32 at parameters of 1e4.

    References: DiDonato and Morris (1992), Algorithm 708, eq. (9).
    """
    is_upper = x * (a + b + 2) > a + 1
    first, second = jnp.where(is_upper, b, a), jnp.where(is_upper, a, b)
    near, far = jnp.where(is_upper, rest, x), jnp.where(is_upper, x, rest)
    distance = 1 + (first * far - second * near)  # from the mean, in units of 1 / (a + b)

    def denominator(n: jax.Array | int) -> jax.Array:
        before = first + jnp.maximum(2 * n - 1, 0)  # for n = 0 anything but zero
        inner = n * ((first + n - 1) + second * near + n * far) / before
        return inner + (first + n) * (distance + n * (1 + far)) / (first + 2 * n + 1)

    def step(index: jax.Array, value: jax.Array) -> jax.Array:
        n = _NUM_TERMS - index
        ratio = near / (first + 2 * n - 1)
        product = (first + n - 1) * ratio * ((a + b + n - 1) * ratio)
        return denominator(n - 1) + product * (n * (second - n)) / value

    fraction = lax.fori_loop(0, _NUM_TERMS, step, denominator(_NUM_TERMS))
    density = log_beta_density(first, second, near, far)
    tail = jnp.exp(density + jnp.log(near) + jnp.log(far)) / fraction
    return jnp.where(is_upper, 1 - tail, tail), jnp.where(is_upper, tail, 1 - tail)


@incomplete_beta.defjvp
def _incomplete_beta_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    """The derivative in x is the density; differentiating the fraction overflows at small x."""
    a, b, x, rest = primals
    by_parameters = functools.partial(incomplete_beta.fun, x=x, rest=rest)
    values, slopes = jax.jvp(by_parameters, (a, b), tangents[:2])
    change = jnp.exp(log_beta_density(a, b, x, rest)) * tangents[2]
    return values, (slopes[0] + change, slopes[1] - change)


def log_beta_density(a: jax.Array, b: jax.Array, y: jax.Array, rest: jax.Array) -> jax.Array:
    """Log-density of Beta(a, b) at y, with `rest` = 1 − y."""
    return log_dirichlet_density(jnp.stack([a, b], -1), jnp.stack([y, rest], -1))


def at_levels(level: jax.Array, values: jax.Array, lowest: Any, highest: Any) -> jax.Array:
    """Quantiles at levels in (0, 1), with the ends of the support at 0 and 1, and NaN outside."""
    values = jnp.where(level <= 0, lowest, jnp.where(level >= 1, highest, values))
    return jnp.where((level >= 0) & (level <= 1), values, jnp.nan)


def symmetric_quantile(
    shares: Callable[[jax.Array], Pair], level: ArrayLike, like: jax.Array
) -> jax.Array:
    """Quantile of a symmetric variable Z of the dtype of `like`; not differentiable.

    `shares` gives the probabilities of |Z| ≤ z and of |Z| > z: near the median the first has more
    digits, and in the tails the second.
    """
    level, _ = jnp.broadcast_arrays(jnp.asarray(level, jnp.result_type(like)), like)
    is_near = jnp.abs(level - 0.5) < 0.25

    def one(z: jax.Array) -> jax.Array:
        central, outside = shares(z)
        return jnp.where(is_near, central, -outside)

    share = jnp.where(is_near, jnp.abs(2 * level - 1), -2 * jnp.minimum(level, 1 - level))
    z = inverse_of_cdf(one, share, 0, jnp.finfo(level.dtype).max)
    return at_levels(level, jnp.sign(level - 0.5) * z, -jnp.inf, jnp.inf)


def inverse_of_cdf(
    cdf: Callable[[Any], jax.Array], level: jax.Array, low: ArrayLike, high: ArrayLike
) -> jax.Array:
    """Smallest floating-point number y in [low, high] with cdf(y) ≥ level; not differentiable.

    Bisection over bit patterns, which are ordered like the numbers: 32 steps in float32, 64 in
    float64. Every digit of y is correct, for y of any size.
    """
    integer = jnp.int64 if level.dtype == jnp.float64 else jnp.int32

    def ordered(bits: jax.Array) -> jax.Array:  # its own inverse: negative numbers are reversed
        return jnp.where(bits < 0, jnp.iinfo(integer).min - bits, bits)

    def bits_of(y: ArrayLike) -> jax.Array:
        y = jnp.broadcast_to(jnp.asarray(y, level.dtype), level.shape)
        return ordered(lax.bitcast_convert_type(y, integer))

    def number(bits: jax.Array) -> jax.Array:
        return lax.bitcast_convert_type(ordered(bits), level.dtype)

    least = smallest_integer(lambda bits: cdf(number(bits)), level, bits_of(low), bits_of(high))
    return jnp.where(jnp.isnan(level), jnp.nan, number(least))


def implicit_quantile(solve: Callable[[Any, jax.Array], jax.Array]) -> Callable[..., jax.Array]:
    """A quantile function (p, level) → y with the derivatives that cdf(y) = level defines.

    The step dy = (dlevel − dF(y)) / density is zero if the density is not finite. Derivatives of
    `solve` are ignored.
    """

    @jax.custom_jvp
    def quantile(p: Any, level: jax.Array) -> jax.Array:
        return solve(p, level)

    @quantile.defjvp
    def _(primals: tuple, tangents: tuple) -> Pair:
        p, level = primals
        y = quantile(p, level)
        point = jnp.where(jnp.isfinite(y), y, 0)  # whose derivatives are finite
        _, change = jax.jvp(lambda p: p.cdf(point), (p,), (tangents[0],))
        density = jnp.exp(p.log_prob(point))
        has_density = (density > 0) & jnp.isfinite(density) & jnp.isfinite(y)
        step = (tangents[1] - change) / jnp.where(has_density, density, 1)
        return y, jnp.where(has_density, step, 0).astype(y.dtype)

    # JAX takes no arrays of NumPy that are mapped by `vmap` inside of `jit`; copies are its own.
    return lambda p, level: quantile(*jax.tree.map(jnp.copy, (p, level)))


def smallest_integer(
    cdf: Callable, level: jax.Array, *bracket: jax.Array, guesses: tuple[jax.Array, ...] = ()
) -> jax.Array:
    """Smallest integer y in [low, high] with cdf(y) ≥ level, by bisection; not differentiable."""

    def halve(bracket: tuple[Any, ...], guess: jax.Array | None = None) -> tuple[Any, ...]:
        low, high = bracket
        mean = (low & high) + ((low ^ high) >> 1)  # which does not overflow
        middle: Any = mean if guess is None else jnp.clip(guess, low, high)
        is_reached = cdf(middle) >= level
        low = jnp.where(is_reached, low, jnp.minimum(middle + 1, high))
        return low, jnp.where(is_reached, middle, high)

    bracket = varying_as(bracket, lambda: (level, guesses, cdf(bracket[0])))
    bracket = functools.reduce(halve, guesses, bracket)
    return lax.while_loop(lambda bracket: jnp.any(bracket[0] < bracket[1]), halve, bracket)[0]
