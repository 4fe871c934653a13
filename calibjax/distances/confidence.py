"""Difference of the confidences of two class predictions."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.arithmetic import absolute
from calibjax._core.pytree import PyTree, record
from calibjax.distances.base import Distance


@record
class Confidence(Distance):
    """Difference |max_c p_c − max_c q_c| of the largest probabilities of two class predictions.

    With it, kernels on predictions see how sure a model is, and not of what. Predictions lie on a
    line, so that sums over pairs with `kernels.Exponential` take linear time.

    Cost: m.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> p, q = (Categorical(jnp.array(probs)) for probs in ([0.5, 0.25, 0.25], [0.0, 0.25, 0.75]))
    >>> print(Confidence()(p, q))
    0.25
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Difference of the confidences."""
        return absolute(_confidence(p) - _confidence(q))

    def embedding(self, points: PyTree) -> jax.Array:
        """The confidences."""
        return _confidence(points)[:, None]


def _confidence(p: Any) -> jax.Array:
    if not hasattr(p, "class_probs"):
        raise NotImplementedError(
            f"distance Confidence is defined for class predictions, got {checks.described(p)}"
        )
    return jnp.max(p.class_probs, -1)
