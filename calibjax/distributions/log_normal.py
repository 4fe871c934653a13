"""Log-normal distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm

from calibjax._arithmetic import ratio
from calibjax._pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, real


@record
class LogNormal(Distribution):
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

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.loc, self.scale)
        return jnp.exp(self.loc + self.scale * jax.random.normal(key, jnp.shape(self.loc), dtype))

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
        # The partial mean of the values below y, and half the mean difference of two draws.
        below = jnp.where(y > 0, ndtr(self._standardised(y) - self.scale), 0)
        return y * (2 * self.cdf(y) - 1) - 2 * self.mean() * (
            below - ndtr(-self.scale / math.sqrt(2))
        )

    def tempered(self, temperature: jax.Array) -> "LogNormal":
        """Density ∝ p^{1/T} with respect to dy / y."""
        return dataclasses.replace(self, scale=self.scale * jnp.sqrt(temperature))
