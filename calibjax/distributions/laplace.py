"""Laplace distributions."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from calibjax import _checks
from calibjax._arithmetic import absolute
from calibjax._pytree import record
from calibjax.distributions.normal import Normal


@record
class Laplace:
    """Univariate Laplace distribution with density exp(−|y − loc| / scale) / (2 scale).

    Attributes:
        loc: mean; scalar, or [n] for a batch.
        scale: mean absolute deviation (the standard deviation is √2 scale), positive; shape of
            `loc`.

    >>> import jax.numpy as jnp
    >>> p = Laplace(loc=jnp.array(1.0), scale=jnp.array(2.0))
    >>> print(p.mean(), p.variance(), p.cdf(1.0), p.quantile(0.5))
    1.0 8.0 0.5 1.0
    """

    parameter_axes: ClassVar = {"loc": 0, "scale": 0}

    loc: jax.Array
    scale: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        dtype = jnp.result_type(self.loc, self.scale)
        return self.loc + self.scale * jax.random.laplace(key, jnp.shape(self.loc), dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y."""
        return -absolute(y - self.loc) / self.scale - jnp.log(2 * self.scale)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance, 2 scale²."""
        return 2 * jnp.square(self.scale)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        z = (y - self.loc) / self.scale
        is_below = z < 0
        # Only exponentials that cannot overflow, or their gradients would not be finite.
        below = 0.5 * jnp.exp(jnp.where(is_below, z, 0))
        above = 0.5 * jnp.exp(-jnp.where(is_below, 0, z))
        return jnp.where(is_below, below, 1 - above)

    def quantile(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        level = jnp.asarray(level)
        z = jnp.where(level < 0.5, jnp.log(2 * level), -jnp.log(2 * (1 - level)))
        return self.loc + self.scale * z

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose parameters are not floating-point arrays [n]."""
        Normal(self.loc, self.scale).check_structure(name)

    def check_values(self, name: str) -> "Laplace":
        """Refuses non-finite means and non-positive scales."""
        return _checks.replaced(
            self,
            loc=_checks.finite(f"{name}.loc", self.loc),
            scale=_checks.positive(f"{name}.scale", self.scale),
        )

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not finite numbers [n]."""
        return Normal(self.loc, self.scale).check_targets(name, targets)
