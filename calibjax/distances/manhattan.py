"""Manhattan distance."""

from typing import Any

import jax

from calibjax._arithmetic import absolute
from calibjax._pytree import record
from calibjax.distances.base import Distance
from calibjax.distances.euclidean import sum_over_coordinates

_UNROLLED = 128  # a sum of absolute values compiles quickly


@record
class Manhattan(Distance):
    """Manhattan distance ‖x − y‖₁ = Σ_k |x_k − y_k|, with the coordinates of `Euclidean`.

    Its `Exponential` kernel is the Laplacian kernel. Of class predictions it is twice the total
    variation distance.

    Cost: the number of coordinates.

    >>> import jax.numpy as jnp
    >>> print(Manhattan()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    7.0
    """

    def __call__(self, p: Any, q: Any) -> jax.Array:
        """Manhattan distance."""
        # Differences of integers become floats, which do not overflow.
        return sum_over_coordinates(lambda x, y: absolute((x - y) * 1.0), p, q, limit=_UNROLLED)
