"""Distributions of counts: Poisson and negative binomial."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import i0e, i1e, ndtri

from calibjax._core import checks
from calibjax._core.pytree import PyTree, parameter, record
from calibjax._core.special import (
    beta_tails,
    gamma_tails,
    incomplete_beta,
    log_poisson_density,
    smallest_integer,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import Constraint, interval, nonnegative_integer

# Above these rates, counts come close to the largest integers that the dtype resolves.
_LARGEST_RATE = {4: 1e6, 8: 1e9}


def _checked_rate(name: str, rate: Any) -> PyTree:
    """Refuses rates that are not positive, or too large for exact counts."""
    rate = checks.positive(name, rate)
    limit = _LARGEST_RATE[rate.dtype.itemsize]
    expected = f"rates up to {limit:g} in {rate.dtype}"
    return checks.satisfying(name, rate, lambda x: x <= limit, expected)


@record
class Poisson(Distribution):
    """Poisson distribution of a count 0, 1, 2, ...

    For rates from 1e-3 to 1e6, relative errors of log-probabilities and absolute errors of the
    distribution function are below 1e-13 in float64, 3e-6 and 1e-5 in float32.

    Attributes:
        rate: expected count, positive; scalar, or [n] for a batch.

    >>> import jax.numpy as jnp
    >>> p = Poisson(rate=jnp.array(2.5))
    >>> print(f"{p.cdf(2):.4f} {p.icdf(0.6)}")
    0.5438 3
    """

    support = nonnegative_integer

    rate: jax.Array = parameter(Constraint("rates", _checked_rate))

    def _as_float(self, y: jax.Array) -> jax.Array:
        return jnp.asarray(y, jnp.result_type(self.rate))

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one count, by inversion of the distribution function.

        `jax.random.poisson` computes in float32 and is wrong for large rates.
        """
        dtype = jnp.result_type(self.rate)
        level = jax.random.uniform(key, jnp.shape(self.rate), dtype)
        return self.icdf(level + 0.5 * jnp.finfo(dtype).eps)  # never zero

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of count y; −inf below zero."""
        value = self._as_float(y)
        density = log_poisson_density(jnp.maximum(value, 0), jnp.asarray(self.rate))
        return jnp.where(value < 0, -jnp.inf, density)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.rate

    def variance(self) -> jax.Array:
        """Variance."""
        return self.rate

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of counts up to y."""
        return self._tails(y)[0]

    def _tails(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Probabilities of counts up to y and of those above, of which the smaller is exact."""
        value, rate = jnp.broadcast_arrays(jnp.floor(self._as_float(y)), self.rate)
        above, below = gamma_tails(jnp.maximum(value, 0), rate)
        return jnp.where(value < 0, 0, below), jnp.where(value < 0, 1, above)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest count y with cdf(y) ≥ level, an integer.

        Wrong rates and levels, and counts beyond the largest integer, give the smallest integer.

        Bisection between Chernoff's bounds, started at the Cornish-Fisher approximation: a handful
        of steps, at most log₂(50 √rate + 30).
        """
        level, rate = jnp.broadcast_arrays(self._as_float(level), self.rate)
        root = jnp.sqrt(rate)
        low = jnp.maximum(jnp.floor(rate - 38 * root), 0)
        high = jnp.ceil(rate + 9 * root + 30)
        z = jnp.clip(ndtri(level), -38, 9)
        guess = jnp.floor(rate + root * z + (jnp.square(z) - 1) / 6)
        low = smallest_integer(lambda y: gamma_tails(y, rate)[1], level, low, high, guess)
        largest = float(jnp.iinfo(jnp.result_type(int)).max)
        is_known = (rate >= jnp.finfo(rate.dtype).tiny) & (low < largest) & ~jnp.isnan(level)
        return checks.missing_unless(is_known, jnp.where(level > 0, low, 0).astype(int))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of a count y; rate > 0.

        References: Wei and Held (2014), Calibration tests for count data, eq. (8).
        """
        y, rate = jnp.broadcast_arrays(self._as_float(y), self.rate)
        density = jnp.exp(log_poisson_density(y, rate))
        distance = (y - rate) * (2 * self.cdf(y) - 1) + 2 * rate * density
        return distance - rate * (i0e(2 * rate) + i1e(2 * rate))


_NUM_NODES, _DECAY = 512, 38.0  # e^(−38) is below the rounding of float64
_LARGEST_COUNT = 2 * 10**9  # in 32 bits
_LARGE = 1e4  # parameters of incomplete beta functions, from which on quadrature is exact


@record
class NegativeBinomial(Distribution):
    """Negative binomial distribution: counts with the variance mean + mean² / concentration.

    It is numpyro's `NegativeBinomial2`: a Poisson distribution whose rate is multiplied by a gamma
    variable of mean 1 and variance 1 / concentration.

    Attributes:
        mean_: expected count, the argument `mean`, from 1e-3 to 1e6; scalar, or [n] for a batch.
        concentration: k, not necessarily an integer, from 1e-2 to 1e6; shape of `mean`.

    >>> import jax.numpy as jnp
    >>> p = NegativeBinomial(mean=jnp.array(2.0), concentration=jnp.array(1.0))
    >>> print(f"{p.cdf(1):.4f} {p.icdf(0.5)}")  # 1 − (2/3)²
    0.5556 1
    """

    support = nonnegative_integer

    mean_: jax.Array = parameter(interval(1e-3, 1e6))
    concentration: jax.Array = parameter(interval(1e-2, 1e6))

    def __init__(self, mean: Any = None, concentration: Any = None, *, mean_: Any = None) -> None:
        """Takes the mean; copies name the field `mean_`, because `mean` is a method."""
        object.__setattr__(self, "mean_", mean if mean_ is None else mean_)
        object.__setattr__(self, "concentration", concentration)

    @property
    def _is_valid(self) -> jax.Array:
        return jnp.logical_and(self.mean_ > 0, self.concentration > 0)

    @property
    def _success(self) -> jax.Array:
        return self.concentration / (self.mean_ + self.concentration)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one count."""
        gamma_key, key = jax.random.split(key)
        dtype = jnp.result_type(self.mean_, self.concentration)
        factor = jax.random.gamma(gamma_key, self.concentration, jnp.shape(self.mean_), dtype)
        rate = jnp.clip(self.mean_ * factor / self.concentration, jnp.finfo(dtype).tiny)
        rate = jnp.where(self._is_valid, jnp.minimum(rate, _LARGEST_COUNT), jnp.nan)
        return Poisson(rate).sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of count y; −inf below zero. Loader's form avoids cancellation."""
        k = jnp.asarray(self.concentration)
        count = jnp.asarray(jnp.maximum(y, 0)).astype(jnp.result_type(self.mean_))
        n = k + count
        density = log_poisson_density(k, n * self._success) - log_poisson_density(n, n)
        density += log_poisson_density(count, n * (self.mean_ / (self.mean_ + k)))
        return jnp.where(y < 0, -jnp.inf, density + jnp.log(k / n))

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.mean_

    def variance(self) -> jax.Array:
        """Variance."""
        return self.mean_ + jnp.square(self.mean_) / self.concentration

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of counts up to y."""
        return self._tails(y)[0]

    def _tails(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Probabilities of counts up to y and of those above, of which the smaller is exact."""
        count = jnp.floor(jnp.maximum(y, 0)).astype(jnp.result_type(self.mean_))
        k, success, count = jnp.broadcast_arrays(self.concentration, self._success, count)
        # Close to one, the probability of success does not have the digits of that of failure.
        failure = self.mean_ / (self.mean_ + k)
        is_large = (k > _LARGE) & (count > _LARGE)
        a, b = jnp.where(is_large, jnp.stack([k, count + 1]), 2 * _LARGE)
        x, rest = jnp.where(is_large, jnp.stack([success, failure]), 0.5)
        tails = incomplete_beta(k, count + 1, success, failure), beta_tails(a, b, x, rest)
        below, above = (
            jnp.where(is_large, large, usual) for usual, large in zip(*tails, strict=True)
        )
        return jnp.where(y < 0, 0, below), jnp.where(y < 0, 1, above)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest count y with cdf(y) ≥ level, an integer, by bisection.

        Wrong parameters and levels give the smallest integer.
        """
        level, _ = jnp.broadcast_arrays(jnp.asarray(level, jnp.result_type(self.mean_)), self.mean_)
        low = jnp.zeros(level.shape, jnp.int32)
        count = smallest_integer(self.cdf, level, low, low + _LARGEST_COUNT)
        is_known = self._is_valid & ~jnp.isnan(level)
        return checks.missing_unless(is_known, count.astype(int))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of a count y.

        The mean distance of two counts, ½ E|Z − Z'| = ∫₀^π (1 − |φ(t)|²) / (1 − cos t) dt / (2π)
        with the characteristic function φ, is computed by a trapezoidal rule with 512 nodes, which
        is exact up to rounding.

        References: Wei and Held (2014), Calibration tests for count data, §2.2.
        """
        k, mean = jnp.broadcast_arrays(self.concentration, self.mean_)
        y = jnp.asarray(y).astype(mean.dtype)
        density = jnp.exp(self.log_prob(y))
        distance = (y - mean) * (2 * self.cdf(y) - 1) + 2 * mean * (1 + y / k) * density
        return distance - _half_mean_distance(mean / k, k)


def _half_mean_distance(odds: jax.Array, k: jax.Array) -> jax.Array:
    """½ E|Z − Z'|, with |φ(t)|² = (1 + c² s²)^(−k) and the variable v in s² = 1 / (1 + e^(−2v))."""
    square = 4 * odds * (1 + odds)
    low, high = -jnp.log1p(jnp.sqrt(square * (1 + k))) - _DECAY, _DECAY
    step = (high - low) / (_NUM_NODES - 1)
    v = low[..., None] + step[..., None] * jnp.arange(_NUM_NODES, dtype=odds.dtype)
    losses = -jnp.expm1(-k[..., None] * jnp.log1p(square[..., None] * jax.nn.sigmoid(2 * v)))
    return step * jnp.sum(losses * jnp.exp(-v), -1) / (2 * jnp.pi)
