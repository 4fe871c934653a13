"""Logistic distributions."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logit

from calibjax._core.arithmetic import absolute, logarithm, ratio
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import DrawnByInversion, centred
from calibjax.distributions.constraints import positive, real


@record
class Logistic(DrawnByInversion):
    """Univariate logistic distribution with the distribution function 1 / (1 + e^(−z)).

    Here z = (y − loc) / scale. Its powers are not logistic, so that it has no `tempered`.

    Attributes:
        loc: mean; scalar, or [n] for a batch.
        scale: positive (the standard deviation is π / √3 scale); shape of `loc`.

    >>> import jax.numpy as jnp
    >>> p = Logistic(loc=jnp.array(1.0), scale=jnp.array(2.0))
    >>> print(f"{p.mean()} {p.variance():.4f} {p.cdf(1.0)} {p.icdf(0.5)}")
    1.0 13.1595 0.5 1.0
    """

    loc: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def sample_at(self, level: jax.Array) -> jax.Array:
        """The draw that belongs to a uniform number in [0, 1)."""
        return self.loc + 2 * self.scale * jnp.arctanh(centred(level))

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y."""
        z = absolute(ratio(y - self.loc, self.scale))
        return -z - 2 * jnp.log1p(jnp.exp(-z)) - logarithm(self.scale)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.loc

    def variance(self) -> jax.Array:
        """Variance, π² scale² / 3."""
        return jnp.square(math.pi * self.scale) / 3

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y."""
        return jax.nn.sigmoid(ratio(y - self.loc, self.scale))

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level."""
        return self.loc + self.scale * logit(jnp.asarray(level))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of y, Jordan et al. (2019), App. A."""
        z = absolute(ratio(y - self.loc, self.scale))
        return self.scale * (z + 2 * jnp.log1p(jnp.exp(-z)) - 1)
