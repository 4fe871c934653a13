"""Generalised normal distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from calibjax._core.arithmetic import absolute, logarithm, ratio
from calibjax._core.pytree import parameter, record
from calibjax._core.special import incomplete_gamma, symmetric_quantile
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, real

_NEAR = 0.1  # below, the series replaces gammainc, in which powers of x underflow


def _series(share: jax.Array, x: jax.Array) -> jax.Array:
    """Γ(1 + a) x^(−a) times the regularised incomplete gamma function of a and x ≤ 0.1."""
    value = jnp.zeros_like(x)
    for k in range(10, -1, -1):
        value += (-x) ** k * share / ((share + k) * math.factorial(k))
    return value


@record
class GeneralizedNormal(Distribution):
    """Generalised normal distribution, density ∝ exp(−|(y − loc) / scale|^power).

    The power exponential distribution of W21 App. F: Laplace for power 1, normal with standard
    deviation scale / √2 for power 2, and close to uniform for large powers.

    Attributes:
        loc: mean; scalar, or [n] for a batch.
        scale: positive; shape of `loc`.
        power: exponent, positive; shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = GeneralizedNormal(jnp.array(1.0), jnp.array(2.0), jnp.array(1.0))
    >>> print(f"{p.variance():.4f} {p.cdf(1.0):.4f} {p.log_prob(1.0):.4f}")  # −log 4
    8.0000 0.5000 -1.3863
    """

    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)
    power: jax.Array = parameter(positive)

    def _distance(self, z: jax.Array) -> jax.Array:
        """|z|^power of a standardised value, whose derivative at zero is zero."""
        return jnp.where(z == 0, 0, absolute(jnp.where(z == 0, 1, z)) ** self.power)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value, from the logarithm of a gamma variable, which does not underflow."""
        dtype = jnp.result_type(self.loc, self.scale, self.power)
        sign_key, key = jax.random.split(key)
        log_gamma = jax.random.loggamma(key, 1 / self.power, jnp.shape(self.loc), dtype)
        sign = jax.random.rademacher(sign_key, jnp.shape(self.loc), dtype)
        return self.loc + sign * self.scale * jnp.exp(log_gamma / self.power)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; Γ(1 + 1/power) does not overflow."""
        return (
            -self._distance(ratio(y - self.loc, self.scale))
            - logarithm(2 * self.scale)
            - gammaln(1 + 1 / self.power)
        )

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance, scale² Γ(3 / power) / Γ(1 / power)."""
        ratio = jnp.exp(gammaln(3 / self.power) - gammaln(1 / self.power))
        return jnp.square(self.scale) * ratio

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        z = ratio(y - self.loc, self.scale)
        is_near, near, outside = self._shares(z)
        far = jnp.where(z < 0, 0.5 * outside, 1 - 0.5 * outside)
        return jnp.where(is_near, 0.5 + 0.5 * near, far)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level; not differentiable."""

        def shares(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            is_near, near, outside = self._shares(z)
            return jnp.where(is_near, near, 1 - outside), jnp.where(is_near, 1 - near, outside)

        return self.loc + self.scale * symmetric_quantile(shares, level, self.power)

    def _shares(self, z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Whether |z|^power is small; if it is, ±P(|Z| ≤ |z|), otherwise P(|Z| > |z|)."""
        share, x = 1 / jnp.asarray(self.power), self._distance(z)
        is_near = x < _NEAR
        near = z * jnp.exp(-gammaln(1 + share)) * _series(share, jnp.where(is_near, x, 0))
        return is_near, near, incomplete_gamma(share, jnp.where(is_near, 1, x))[1]

    def tempered(self, temperature: jax.Array) -> "GeneralizedNormal":
        """Density ∝ p^{1/T}."""
        scale = self.scale * temperature ** (1 / self.power)
        return dataclasses.replace(self, scale=scale)
