"""Total variation distance."""

import jax

from calibjax._core import checks
from calibjax._core.arithmetic import absolute, sum_over_components
from calibjax._core.pytree import PyTree, record
from calibjax.distances.base import Distance
from calibjax.distances.euclidean import line_of_two_classes


@record
class TotalVariation(Distance):
    """Total variation distance ½ Σ_c |p_c − q_c| between two class predictions.

    It takes predictions with `class_probs` (`Categorical`, `Bernoulli`) or vectors of probabilities
    [m]. Values lie in [0, 1].

    Cost: m.

    >>> import jax.numpy as jnp
    >>> print(TotalVariation()(jnp.array([0.5, 0.5]), jnp.array([0.25, 0.75])))
    0.25
    """

    def __call__(self, p: PyTree, q: PyTree) -> jax.Array:
        """Total variation distance."""
        p, q = (getattr(x, "class_probs", x) for x in (p, q))
        if not (hasattr(p, "ndim") and hasattr(q, "ndim")):
            raise NotImplementedError(
                "distance TotalVariation is defined for class predictions, got "
                f"{checks.described(p)} and {checks.described(q)}; distances.Wasserstein and "
                "MaximumMeanDiscrepancy are distances of others"
            )
        return 0.5 * sum_over_components(lambda x, y: absolute(x - y), p, q)

    def embedding(self, points: PyTree) -> jax.Array | None:
        """Points of a line if there are two classes."""
        return line_of_two_classes(points)
