"""Manhattan distance."""

import jax

from calibjax._arithmetic import absolute, map_components, total
from calibjax._pytree import record
from calibjax.distances.base import Distance

_UNROLLED = 128  # a sum of absolute values compiles quickly


@record
class Manhattan(Distance):
    """Manhattan distance ‖x − y‖₁ = Σ_k |x_k − y_k| between two vectors (targets, features).

    Its `Exponential` kernel is the Laplacian kernel.

    Cost: d.

    >>> import jax.numpy as jnp
    >>> print(Manhattan()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    7.0
    """

    def __call__(self, p: jax.Array, q: jax.Array) -> jax.Array:
        """Manhattan distance."""
        # Differences of integers become floats, which do not overflow.
        return total(map_components(lambda x, y: absolute((x - y) * 1.0), p, q, limit=_UNROLLED))
