"""Dirichlet distribution of a vector of proportions."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from calibjax import _checks
from calibjax._pytree import record
from calibjax._special import log_dirichlet_density


@record
class Dirichlet:
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

    parameter_axes: ClassVar = {"concentration": 1}

    concentration: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one point [d], from logarithms of gamma variables, which do not underflow."""
        dtype = jnp.result_type(self.concentration)
        return jax.random.dirichlet(key, self.concentration, dtype=dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y, [d]; its limit where a coordinate is zero, NaN if it has none."""
        return log_dirichlet_density(jnp.asarray(self.concentration), y)

    def mean(self) -> jax.Array:
        """Expectation, [d]."""
        return self.concentration / jnp.sum(self.concentration, -1, keepdims=True)

    def variance(self) -> jax.Array:
        """Variance of each coordinate, [d]."""
        mean = self.mean()
        return mean * (1 - mean) / (1 + jnp.sum(self.concentration, -1, keepdims=True))

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose concentrations are no floating-point array [n, d], d ≥ 2."""
        place = f"{name}.concentration"
        _checks.floating(place, self.concentration)
        _checks.shape(place, self.concentration, (None, None), "[n, d]")
        if jnp.shape(self.concentration)[1] < 2:
            raise ValueError(
                f"{place}: expected at least two coordinates, "
                f"got shape {jnp.shape(self.concentration)}"
            )

    def check_values(self, name: str) -> "Dirichlet":
        """Refuses concentrations that are not positive."""
        checked = _checks.positive(f"{name}.concentration", self.concentration)
        return _checks.replaced(self, concentration=checked)

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not points of the simplex, [n, d]."""
        targets = _checks.floating(name, targets, jnp.result_type(self.concentration))
        expected = jnp.shape(self.concentration)
        _checks.shape(name, targets, expected, "[n, d], as the predictions' concentration")
        return _checks.simplex(name, targets)
