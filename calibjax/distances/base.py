"""What all distances share."""

from typing import Any

import jax
import jax.numpy as jnp


@jax.custom_jvp
def safe_sqrt(x: jax.Array) -> jax.Array:
    """Square root whose derivative at zero is zero instead of infinite."""
    return jnp.sqrt(x)


@safe_sqrt.defjvp
def _safe_sqrt_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (x,), (dx,) = primals, tangents
    is_zero = x == 0
    slope = jnp.where(is_zero, 0, 0.5 / safe_sqrt(jnp.where(is_zero, 1, x)))
    return safe_sqrt(x), slope * dx


class Distance:
    """A distance between two predictions or two targets.

    Subclasses are records that define `__call__` or `squared`; the other one follows.
    """

    def __call__(self, p: Any, q: Any) -> jax.Array:
        """Distance between p and q, a scalar."""
        return safe_sqrt(self.squared(p, q))

    def squared(self, p: Any, q: Any) -> jax.Array:
        """Squared distance between p and q, a scalar."""
        return jnp.square(self(p, q))
