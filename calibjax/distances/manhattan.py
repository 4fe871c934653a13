"""Manhattan distance, and its mean over the coordinates."""

import jax

from calibjax._core.arithmetic import absolute, difference
from calibjax._core.pytree import PyTree, record
from calibjax.distances.base import Distance
from calibjax.distances.euclidean import (
    Euclidean,
    line_of_two_classes,
    num_coordinates,
    sum_over_coordinates,
)


@record
class Manhattan(Distance):
    """Manhattan distance ‖x − y‖₁ = Σ_k |x_k − y_k|, with the coordinates of `Euclidean`.

    Its `Exponential` kernel is the Laplacian kernel. Between class predictions it is twice the
    total variation distance.

    Cost: the number of coordinates.

    >>> import jax.numpy as jnp
    >>> print(Manhattan()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    7.0
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Manhattan distance."""
        return sum_over_coordinates(lambda x, y: absolute(difference(x, y)), p, q)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Numbers, and probabilities of two classes."""
        if (line := line_of_two_classes(points)) is not None:
            return 2 * line
        coordinates = Euclidean().embedding(points)
        return coordinates if coordinates.shape[1] == 1 else None


@record
class MeanAbsoluteDifference(Distance):
    """Mean absolute difference ‖x − y‖₁ / d of the d coordinates of `Euclidean`.

    The Manhattan distance divided by the dimension, so that length scales do not depend on it: with
    this distance, `Exponential(γ)` is the kernel of L21.

    Cost: the number of coordinates.

    >>> import jax.numpy as jnp
    >>> print(MeanAbsoluteDifference()(jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])))
    3.5
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Mean absolute difference."""
        return Manhattan()(p, q) / num_coordinates(p)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """As that of `Manhattan`."""
        line = line_of_two_classes(points)
        return Manhattan().embedding(points) if line is None else line
