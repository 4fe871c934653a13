"""Generalised normal distributions."""

import jax
import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaln

from calibjax._arithmetic import absolute
from calibjax._pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, real
from calibjax.distributions.gamma import Gamma


@record
class GeneralizedNormal(Distribution):
    """Generalised normal distribution, density ∝ exp(−|(y − loc) / scale|^power).

    The power exponential distribution of W21 App. F: Laplace for power 1, normal with the standard
    deviation scale / √2 for 2, and close to uniform for large powers.

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
        z = absolute(y - self.loc) / self.scale
        return jnp.where(z > 0, jnp.where(z > 0, z, 1) ** self.power, 0)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.loc, self.scale, self.power)
        shape = jnp.shape(self.loc)
        noise = jax.random.generalized_normal(
            key,
            self.power,  # pyright: ignore[reportArgumentType]  # JAX says float, but takes arrays
            shape,
            dtype,
        )
        return self.loc + self.scale * noise

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; Γ(1 + 1/power) does not overflow."""
        return -self._distance(y) - jnp.log(2 * self.scale) - gammaln(1 + 1 / self.power)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance, scale² Γ(3 / power) / Γ(1 / power)."""
        ratio = jnp.exp(gammaln(3 / self.power) - gammaln(1 / self.power))
        return jnp.square(self.scale) * ratio

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        half = 0.5 * gammainc(1 / self.power, self._distance(y))
        return 0.5 + jnp.sign(y - self.loc) * half

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level; not differentiable."""
        gamma = Gamma(1 / self.power, jnp.ones_like(self.power))
        distance = gamma.icdf(jnp.abs(2 * level - 1)) ** (1 / self.power)
        return self.loc + jnp.sign(level - 0.5) * self.scale * distance

    def tempered(self, temperature: jax.Array) -> "GeneralizedNormal":
        """Density ∝ p^{1/T}."""
        scale = self.scale * temperature ** (1 / self.power)
        return GeneralizedNormal(self.loc, scale, self.power)
