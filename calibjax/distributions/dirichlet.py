"""Dirichlet distribution of a vector of proportions."""

import dataclasses

import jax
import jax.numpy as jnp

from calibjax._core.pytree import parameter, record
from calibjax._core.special import log_dirichlet_density
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, simplex


@record
class Dirichlet(Distribution):
    """Dirichlet distribution on the simplex, density ∝ Π_k y_k^(concentration_k − 1).

    As for `Beta`, the targets are points of the closed simplex. The expectations of target
    kernels have no closed form: `distributions.monte_carlo` estimates them.

    Attributes:
        concentration: positive, [d], or [n, d] for a batch; d ≥ 2.

    >>> import jax.numpy as jnp
    >>> p = Dirichlet(concentration=jnp.array([1.0, 1.0, 2.0]))
    >>> print(p.mean())
    [0.25 0.25 0.5 ]
    """

    support = simplex

    concentration: jax.Array = parameter(positive.with_axes("d", min_size=2))

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one point [d], from logarithms of gamma variables, which do not underflow."""
        dtype = jnp.result_type(self.concentration)
        return jax.random.dirichlet(key, self.concentration, dtype=dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y, [d]; its limit where a coordinate is zero, NaN if there is none."""
        return log_dirichlet_density(jnp.asarray(self.concentration), y)

    def mean(self) -> jax.Array:
        """Expectation, [d]."""
        return self.concentration / jnp.sum(self.concentration, -1, keepdims=True)

    def variance(self) -> jax.Array:
        """Variance of each coordinate, [d]."""
        concentration = jnp.asarray(self.concentration)
        total = jnp.sum(concentration, -1, keepdims=True)
        # The sum of the others. As a difference it has no digits beside a large coordinate.
        is_large = concentration > 0.5 * total
        others = jnp.sum(jnp.where(is_large, 0, concentration), -1, keepdims=True)
        others = jnp.where(is_large, others, total - concentration)
        return (concentration / total) * (others / total) / (1 + total)

    def tempered(self, temperature: jax.Array) -> "Dirichlet":
        """The Dirichlet distribution with density ∝ p^{1/T} with respect to dy / Π_k y_k."""
        return dataclasses.replace(self, concentration=self.concentration / temperature)
