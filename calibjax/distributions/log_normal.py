"""Log-normal distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc, ndtr, ndtri
from jax.scipy.stats import norm

from calibjax._core.arithmetic import ratio
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import DrawnByInversion
from calibjax.distributions.constraints import positive, real
from calibjax.distributions.normal import standard_normal_at

_SHARES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_SHARES, _WEIGHTS = 0.5 * (1 + _SHARES), 0.5 * _WEIGHTS  # of the unit interval


@record
class LogNormal(DrawnByInversion):
    """Distribution of a positive number whose logarithm is N(loc, scale²).

    Attributes:
        loc: mean of the logarithm; scalar, or [n] for a batch.
        scale: standard deviation of the logarithm, positive; shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = LogNormal(loc=jnp.array(0.0), scale=jnp.array(1.0))
    >>> print(f"{p.mean():.4f} {p.cdf(1.0):.4f} {p.icdf(0.5):.4f}")
    1.6487 0.5000 1.0000
    """

    support = positive

    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def _standardised(self, y: jax.Array) -> jax.Array:
        return ratio(jnp.log(jnp.where(y > 0, y, 1)) - self.loc, self.scale)

    def sample_at(self, level: jax.Array) -> jax.Array:
        """The draw that belongs to a uniform number in [0, 1)."""
        return jnp.exp(self.loc + self.scale * standard_normal_at(level))

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; −inf where y ≤ 0."""
        density = norm.logpdf(self._standardised(y)) - jnp.log(self.scale)
        return jnp.where(y > 0, density - jnp.log(jnp.where(y > 0, y, 1)), -jnp.inf)

    def mean(self) -> jax.Array:
        """Expectation."""
        return jnp.exp(self.loc + 0.5 * jnp.square(self.scale))

    def variance(self) -> jax.Array:
        """Variance."""
        return jnp.expm1(jnp.square(self.scale)) * jnp.square(self.mean())

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return jnp.where(y > 0, ndtr(self._standardised(y)), 0)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        return jnp.exp(self.loc + self.scale * ndtri(level))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, Baran and Lerch (2015), eq. (A.1)."""
        z, scale = self._standardised(y), self.scale
        # The partial mean of the values below y, and half the mean difference of two draws.
        below = jnp.where(y > 0, ndtr(z - scale), 0) - ndtr(-scale / math.sqrt(2))
        wide = y * (2 * self.cdf(y) - 1) - 2 * self.mean() * below
        # Small scales leave nothing of these differences: y − mean, the probability of the interval
        # from z − scale to z, and the mean difference are as small as the result.
        narrow, mean = jnp.where(scale < 1, scale, 0), self.mean()
        points = z[..., None] - narrow[..., None] * jnp.asarray(_SHARES, z.dtype)
        between = narrow * jnp.sum(jnp.asarray(_WEIGHTS, z.dtype) * norm.pdf(points), -1)
        log_ratio = narrow * z - 0.5 * jnp.square(narrow)
        is_close = jnp.abs(log_ratio) < 1
        excess = jnp.where(is_close, mean * jnp.expm1(jnp.where(is_close, log_ratio, 0)), y - mean)
        close = excess * erf(z / math.sqrt(2)) + mean * (2 * between - erf(0.5 * narrow))
        close = jnp.where(y > 0, close, mean * erfc(0.5 * narrow) - y)
        return jnp.where(scale < 1, close, wide)

    def tempered(self, temperature: jax.Array) -> "LogNormal":
        """Density ∝ p^{1/T} with respect to dy / y."""
        return dataclasses.replace(self, scale=self.scale * jnp.sqrt(temperature))
