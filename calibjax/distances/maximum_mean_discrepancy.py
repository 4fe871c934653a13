"""Maximum mean discrepancy between predicted distributions."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.pytree import PyTree, part, record
from calibjax.distances.base import Distance


@record
class MaximumMeanDiscrepancy(Distance):
    """Maximum mean discrepancy between two predicted distributions under a target kernel.

        d(p, q)² = M_{p,p} − 2 M_{p,q} + M_{q,q},    M_{p,q} = E_{Z~p, Z'~q} k(Z, Z'),

    the distance of their kernel mean embeddings in the Hilbert space of k. Hence
    exp(−(d / ℓ)^ν) with 0 < ν ≤ 2 is positive semi-definite for every family of distributions,
    including mixtures. This need not hold for `MixtureWasserstein`, nor for `Wasserstein` between
    normal distributions whose covariances do not commute. It is a metric if k is characteristic.
    For `Ensemble` it is the distance of the empirical distributions. Distances do not see the draws
    of `distributions.monte_carlo`.

    Attributes:
        kernel: target kernel k with expectations under the predictions.

    The three terms cancel between similar predictions: the squared distance is accurate to
    the rounding errors of the terms, d to their square root (1e-8, in float32 3e-4).

    Raises:
        NotImplementedError: if the expectations of the kernel have no closed form.

    Cost: one M for each pair of predictions, and two for each prediction.

    References: Gretton et al. (2012), Lemma 6. None of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import White
    >>> p, q = Categorical(jnp.array([1.0, 0.0])), Categorical(jnp.array([0.5, 0.5]))
    >>> print(MaximumMeanDiscrepancy(White()).squared(p, q))  # the squared Euclidean distance
    0.5
    """

    kernel: Any = part(checks.kernel_values)

    def squared(self, p: PyTree, q: PyTree) -> jax.Array:
        """Squared maximum mean discrepancy."""
        double = self.kernel.double_expectation
        square = double(p, p) - 2 * double(p, q) + double(q, q)
        return square + jax.lax.stop_gradient(jnp.maximum(-square, 0))  # derivatives also at zero
