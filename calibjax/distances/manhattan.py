"""Manhattan distance, and its mean over the coordinates."""

import dataclasses

import jax

from calibjax._core import checks
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

    Attributes:
        mean: take the mean over the d coordinates instead of their sum, so that length scales do
            not depend on the dimension (static). `Exponential(γ, Manhattan(mean=True))` is the
            kernel of L21.

    Cost: the number of coordinates.

    >>> import jax.numpy as jnp
    >>> x, y = jnp.array([0.0, 3.0]), jnp.array([4.0, 0.0])
    >>> print(Manhattan()(x, y), Manhattan(mean=True)(x, y))
    7.0 3.5
    """

    mean: bool = dataclasses.field(default=False, metadata={"static": True})

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Manhattan distance, or its mean over the coordinates."""
        total = sum_over_coordinates(lambda x, y: absolute(difference(x, y)), p, q)
        return total / num_coordinates(p) if self.mean else total

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Numbers, and probabilities of two classes."""
        if (line := line_of_two_classes(points)) is not None:
            return line if self.mean else 2 * line
        coordinates = Euclidean().embedding(points)
        return coordinates if coordinates.shape[1] == 1 else None

    def check_values(self, name: str) -> None:
        """Refuses a `mean` that is not True or False."""
        checks.truth_value(f"{name}.mean", self.mean)
