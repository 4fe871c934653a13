"""What all distances share."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._arithmetic import safe_sqrt
from calibjax._pytree import PyTree, compile_methods


class Distance:
    """A distance between two predictions or two targets.

    Subclasses are records that define `__call__` or `squared`; the other one follows.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        compile_methods(cls, {"__call__", "squared"})

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Distance between p and q, a scalar."""
        if type(self).squared is Distance.squared:
            raise NotImplementedError(
                f"distance {type(self).__name__} defines neither __call__(p, q) nor squared(p, q)"
            )
        return safe_sqrt(self.squared(p, q))

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared distance between p and q, a scalar."""
        return jnp.square(self(p, q))
