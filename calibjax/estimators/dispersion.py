"""Spread of the targets compared with the predicted spread."""

import jax
from jax.typing import ArrayLike

from calibjax._core.arithmetic import mean_and_error
from calibjax._core.pytree import record
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import sample_pair, weighted_samples
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs


@record
class DispersionEstimate:
    """Excess of the spread of the targets over the predicted one.

    Attributes:
        value: the excess; its mean is zero for calibrated models, positive if the targets scatter
            more than predicted, negative if they scatter less.
        standard_error: its standard error, in the same units.
    """

    value: jax.Array
    standard_error: jax.Array


def _expected_diagonal(kernel: Kernel, p: Distribution) -> jax.Array:
    """E h((p, Y), (p, Y)) for Y ~ p."""
    return combine_on_pairs(kernel, "expected_diagonal", lambda expected: expected(p))


@jax.jit
def _excess(
    kernel: Kernel, predictions: Distribution, targets: jax.Array, weights: jax.Array | None
) -> DispersionEstimate:
    def of_sample(p: Distribution, y: jax.Array) -> jax.Array:
        return sample_pair(kernel, (p, y), (p, y)) - _expected_diagonal(kernel, p)

    terms = jax.vmap(of_sample)(predictions, targets)
    return DispersionEstimate(*mean_and_error(terms, weights))


def skce_dispersion(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
) -> DispersionEstimate:
    """Excess of the spread of the targets, as measured by the kernel, over the predicted spread.

        S = n⁻¹ Σ_i [h((p_i, y_i), (p_i, y_i)) − E_{Y~p_i} h((p_i, Y), (p_i, Y))],

    where for a tensor product the expectation is k_P(p, p) [E_{Z~p} k_Y(Z, Z) − M_{p,p}]. The
    first term is k_P(p, p) times the squared distance of k_Y(y, ·) from the mean embedding of p.

    Its mean is zero for calibrated models. It is positive for predictions that are too narrow
    (overconfident) and negative for those that are too wide (underconfident); errors of the means
    increase it, too. It is the excess that the diagonal contributes to n times the biased SKCE, and
    complements the unbiased SKCE, which leaves the diagonal out. For an exact test see
    `hypothesis_tests.exact_skce_test(..., statistic="dispersion")`.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        The value with its standard error sd / √n over the samples. With weights the mean is a
        weighted one, and its variance Σ_i w_i² (x_i − x̄)² / (Σ_i w_i)², which is right for weights
        that have to do with the values as well, times n / (n − 1) with n = (Σ_i w_i)² / Σ_i w_i².

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or fewer than two samples count.
        NotImplementedError: if the expectations have no closed form.

    Cost: O(n) evaluations of h and M, O(n) memory.

    References: none of the four papers has it. A kernel score minus its entropy: Gneiting and
    Raftery (2007), Strictly proper scoring rules, §5; as a test for probabilities Spiegelhalter
    (1986).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.distributions import Normal
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
    >>> predictions = Normal(jnp.zeros(100), jnp.ones(100))
    >>> targets = 0.5 * jax.random.normal(jax.random.key(0), 100)
    >>> too_wide = skce_dispersion(kernel, predictions, targets)
    >>> print(f"{too_wide.value:.3f} ± {too_wide.standard_error:.3f}")
    -0.186 ± 0.009
    """
    kernel, samples, weights = weighted_samples(kernel, predictions, targets, weights, minimum=2)
    return _excess(kernel, *samples, weights)
