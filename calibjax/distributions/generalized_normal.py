"""Generalised normal distributions."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln

from calibjax._arithmetic import absolute, logarithm, ratio
from calibjax._pytree import parameter, record
from calibjax._special import at_levels, inverse_of_cdf
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

    def _distance(self, y: jax.Array) -> jax.Array:
        """|(y − loc) / scale|^power, whose derivative at loc is zero."""
        z = absolute(ratio(y - self.loc, self.scale))
        return jnp.where(z > 0, jnp.where(z > 0, z, 1) ** self.power, 0)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value, from the logarithm of a gamma variable, which does not underflow."""
        dtype = jnp.result_type(self.loc, self.scale, self.power)
        sign_key, key = jax.random.split(key)
        log_gamma = jax.random.loggamma(key, 1 / self.power, jnp.shape(self.loc), dtype)
        sign = jax.random.rademacher(sign_key, jnp.shape(self.loc), dtype)
        return self.loc + sign * self.scale * jnp.exp(log_gamma / self.power)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; Γ(1 + 1/power) does not overflow."""
        return -self._distance(y) - logarithm(2 * self.scale) - gammaln(1 + 1 / self.power)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance, scale² Γ(3 / power) / Γ(1 / power)."""
        ratio = jnp.exp(gammaln(3 / self.power) - gammaln(1 / self.power))
        return jnp.square(self.scale) * ratio

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        share, x = 1 / self.power, self._distance(y)
        is_near = x < _NEAR
        z = ratio(y - self.loc, self.scale)
        near = z * jnp.exp(-gammaln(1 + share)) * _series(share, jnp.where(is_near, x, 0))
        far = jnp.sign(z) * gammainc(share, jnp.where(is_near, 1, x))
        return 0.5 + 0.5 * jnp.where(is_near, near, far)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level; not differentiable."""
        share, level = 1 / self.power, jnp.asarray(level)
        inner = jnp.abs(2 * jnp.clip(level, 0, 1) - 1) + 0 * share
        start = inner * jnp.exp(gammaln(1 + share))
        near = start
        for _ in range(16):  # each step gains a digit
            near = start / _series(share, jnp.minimum(near**self.power, _NEAR))
        far = inverse_of_cdf(lambda x: gammainc(share, x), inner, 1e4) ** share
        distance = jnp.where(near**self.power < _NEAR, near, far)
        values = self.loc + jnp.sign(level - 0.5) * self.scale * distance
        return at_levels(level, values, -jnp.inf, jnp.inf)

    def tempered(self, temperature: jax.Array) -> "GeneralizedNormal":
        """Density ∝ p^{1/T}."""
        scale = self.scale * temperature ** (1 / self.power)
        return dataclasses.replace(self, scale=scale)
