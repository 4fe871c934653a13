"""Laplace distributions."""

import dataclasses

import jax
import jax.numpy as jnp

from calibjax._core.arithmetic import absolute, logarithm, ratio
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import DrawnByInversion, centred
from calibjax.distributions.constraints import positive, real


@record
class Laplace(DrawnByInversion):
    """Univariate Laplace distribution with density exp(−|y − loc| / scale) / (2 scale).

    Attributes:
        loc: mean; scalar, or [n] for a batch.
        scale: mean absolute deviation (the standard deviation is √2 scale), positive; shape of
            `loc`.

    >>> import jax.numpy as jnp
    >>> p = Laplace(loc=jnp.array(1.0), scale=jnp.array(2.0))
    >>> print(p.mean(), p.variance(), p.cdf(1.0), p.icdf(0.5))
    1.0 8.0 0.5 1.0
    """

    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def sample_at(self, level: jax.Array) -> jax.Array:
        """The draw that belongs to a uniform number in [0, 1)."""
        z = centred(level)
        return self.loc + self.scale * jnp.sign(z) * jnp.log1p(-jnp.abs(z))

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y."""
        return -absolute(ratio(y - self.loc, self.scale)) - logarithm(2 * self.scale)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance, 2 scale²."""
        return 2 * jnp.square(self.scale)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        z = ratio(y - self.loc, self.scale)
        is_below = z < 0
        # Only exponentials that cannot overflow: otherwise gradients would not be finite.
        below = 0.5 * jnp.exp(jnp.where(is_below, z, 0))
        above = 0.5 * jnp.exp(-jnp.where(is_below, 0, z))
        return jnp.where(is_below, below, 1 - above)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        level = jnp.asarray(level)
        z = jnp.where(level < 0.5, jnp.log(2 * level), -jnp.log(2 * (1 - level)))
        return self.loc + self.scale * z

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y."""
        z = absolute(ratio(y - self.loc, self.scale))
        return self.scale * (z + jnp.exp(-z) - 0.75)

    def tempered(self, temperature: jax.Array) -> "Laplace":
        """The Laplace distribution with density ∝ p^{1/T}."""
        return dataclasses.replace(self, scale=self.scale * temperature)
