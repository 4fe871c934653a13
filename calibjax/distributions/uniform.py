"""Uniform distributions on intervals."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import ratio
from calibjax._core.pytree import parameter, record
from calibjax._core.special import at_levels
from calibjax.distributions.base import DrawnByInversion
from calibjax.distributions.constraints import real


@record
class Uniform(DrawnByInversion):
    """Uniform distribution on the interval [low, high].

    Targets may lie outside: then the prediction is wrong, but not necessarily the data.

    Attributes:
        low: lower end; scalar, or [n] for a batch.
        high: upper end, larger; shape of `low`.

    >>> import jax.numpy as jnp
    >>> p = Uniform(low=jnp.array(1.0), high=jnp.array(3.0))
    >>> print(p.mean(), p.cdf(1.5), p.icdf(0.5))
    2.0 0.25 2.0
    """

    low: jax.Array = parameter(real)
    high: jax.Array = parameter(real)

    def sample_at(self, level: jax.Array) -> jax.Array:
        """The draw that belongs to a uniform number in [0, 1)."""
        return self.icdf(level)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y; −inf outside of the interval."""
        is_inside = (y >= self.low) & (y <= self.high)
        return jnp.where(is_inside, -jnp.log(self.high - self.low), -jnp.inf)

    def mean(self) -> jax.Array:
        """Expectation."""
        return 0.5 * (self.low + self.high)

    def variance(self) -> jax.Array:
        """Variance."""
        return jnp.square(self.high - self.low) / 12

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return jnp.clip(ratio(y - self.low, self.high - self.low), 0, 1)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        level = jnp.asarray(level)
        values = self.low + (self.high - self.low) * level
        return at_levels(level, values, self.low, self.high)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y."""
        level = self.cdf(y)
        inside = (self.high - self.low) * (jnp.square(level) - level + 1 / 3)
        return jnp.abs(y - jnp.clip(y, self.low, self.high)) + inside

    def tempered(self, temperature: jax.Array) -> "Uniform":
        """The same distribution: powers of a constant density are constant."""
        del temperature
        return self

    def check_values(self, name: str) -> "Uniform":
        """Refuses ends that are not finite, and empty intervals."""
        checked = super().check_values(name)
        low, high = checked.low, checked.high
        smallest, _ = checks.smallest_normal(high)
        if not checks.is_concrete(low, high):
            return checks.replaced(checked, high=checks.nan_unless(high - low >= smallest, high))
        is_wrong = ~(np.asarray(high) - np.asarray(low) >= smallest)
        checks.refuse_where(is_wrong, f"{name}.high", "values above low", high)
        return checked
