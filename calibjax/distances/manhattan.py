"""Manhattan distance."""

from typing import Any

import jax

from calibjax._arithmetic import absolute, map_components, total
from calibjax._pytree import record
from calibjax.distances.base import Distance
from calibjax.distances.euclidean import coordinates

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
        pairs = zip(coordinates(p), coordinates(q), strict=True)
        # Differences of integers become floats, which do not overflow.
        values = (map_components(_deviation, a, b, limit=_UNROLLED) for a, b in pairs)
        return total([total(terms) for terms in values])


def _deviation(x: jax.Array, y: jax.Array) -> jax.Array:
    return absolute((x - y) * 1.0)
