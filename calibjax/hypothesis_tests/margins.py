"""SKCEs against a margin: is a model known to be good enough, or worse than can be tolerated?"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, safe_sqrt
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import checked_samples
from calibjax.hypothesis_tests.centering import diagonal, row_means, squared_pair
from calibjax.hypothesis_tests.comparison import MINIMUM, pvalue_of
from calibjax.hypothesis_tests.intervals import ALTERNATIVES
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel
from calibjax.kernels.defaults import default_kernel

_LARGEST = 1e4  # margin in units of the root of the largest h, whose powers do not overflow


@jax.jit
def _standardised(kernel: Kernel, samples: Any, margin: jax.Array) -> tuple[jax.Array, jax.Array]:
    """SKCE_u, and the root of SKCE_b in standard deviations from its mean at the margin."""
    entries, rows = diagonal(kernel, samples), row_means(kernel, samples)
    n, digit = entries.size, 100 * jnp.finfo(entries.dtype).eps
    size = jnp.max(jnp.abs(entries))
    size = jnp.where(size > 0, size, 1)  # squares in units of it neither vanish nor overflow
    trace, rows = jnp.mean(entries) / size, rows / size
    margin = jnp.minimum(margin / jnp.sqrt(size), _LARGEST)
    biased = jnp.mean(rows)
    is_zero = biased <= 0.08 * digit * trace  # rounding: no direction in which the model is wrong
    biased = jnp.where(is_zero, 0, biased)
    root = safe_sqrt(biased)
    influences = jnp.where(is_zero, 0, rows - biased) / jnp.where(is_zero, 1, root)
    squared = jnp.square(influences)
    spread = (jnp.sum(squared) + jnp.max(squared)) / n
    spread = jnp.where(spread > digit * biased, spread, 0)
    skewness = jnp.mean(influences**3) / jnp.square(jnp.where(spread > 0, spread, 1))
    squares = operators.mean_over_pairs(
        squared_pair, (kernel, size), samples, include_diagonal=True
    )
    centred = squares - 2 * jnp.mean(jnp.square(rows)) + jnp.square(biased)
    centred = jnp.where(centred > digit * squares, centred, 0)
    spread = jnp.where(is_zero, safe_sqrt(centred), spread)
    # Where the distribution is skewed, the variance at the margin is another than that observed.
    inflation = jnp.where(spread > 0, jnp.maximum(1 + skewness * (margin - root), 1), 1)
    variance = inflation * (4 * jnp.square(margin) * spread + 2 * centred / n) / n
    typical = jnp.sqrt(jnp.square(margin) * (1 - 1 / n) + trace / n)
    mean = typical - variance / (8 * typical**3)
    z = 2 * typical * (root - mean) / jnp.sqrt(jnp.where(variance > 0, variance, 1))
    estimate = size * (n * jnp.mean(rows) - trace) / (n - 1)
    return estimate, jnp.where(variance > 0, z, -jnp.inf)


def skce_margin_test(
    kernel: Kernel | None,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    margin: float,
    alternative: str = "less",
) -> CalibrationTestResult:
    """Asymptotic test of whether a model is known to be calibrated well enough, or known not to be.

    The null hypothesis is SKCE ≥ δ² with the margin δ. A small p-value is evidence that the model
    is closer to calibration than that, which a large p-value of a test of calibration is not. With
    `alternative="greater"` the null hypothesis is SKCE ≤ δ², and p = P(N(0, 1) ≥ −z): with very
    many samples every test of calibration rejects every model, and this one asks for more. With
    the biased estimate V, the mean h̄_i of row i of h, the mean D of the diagonal, and h centred in
    rows and columns,

        z = 2e (e − √V − v / 8e³) / √v,   e² = (1 − 1/n) δ² + D/n,   p = P(N(0, 1) ≥ z),
        v = f (4δ² s² + 2 mean(h_c²)/n) / n,   f = max(1 + (δ − √V) m₃/s⁴, 1),

    where s² = (Σ a² + max(a²))/n, m₃ = mean(a³) with a_i = h̄_i/√V − √V, and means of h_c are over
    all n² pairs. The variance counts one more sample like the most extreme one: with few errors the
    next one is not known yet. If V is 0 up to rounding, s² = √mean(h_c²), which it cannot exceed,
    and f = 1. z is the distance of √V from its mean in standard deviations, both to second order
    *at the margin*: samples with few errors look better calibrated than they are, and their
    observed scatter is too small.

    Of 16 kinds of predictions, over- and underconfident, it rejected models that are as wrong as
    the margin says in at most 6.1 % of 2000 data sets with n = 64 and 256. Of equal predictions and
    frequencies between ½ % and 90 % it is at most 6.6 % for n ≥ 64, and 8.5 % for n = 16 (predicted
    6.5 %, true 22 %). Where so few errors are expected that chance may hide them, it proves
    nothing: 2 % predicted, 5 % at the margin, n = 64. With "greater" it is at most 6 % for n = 16
    and 64, and 8 % for n = 128 (`tests/hypothesis_tests/test_comparison.py`). If all h_ij are
    equal, p is 1.

    `exact_test` holds its level for every n, against one model that would be too far off: give it
    this model's distributions in place of the predictions, whose targets it then draws, and the
    statistic −`estimators.skce(kernel, predictions, targets)`.

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 5 distributions.
        targets: [n] or [n, d].
        margin: δ > 0, in units of the root of the SKCE, such as the root of `estimators.skce` of
            targets that are drawn from tempered predictions.
        alternative: "less" for SKCE < δ² (equivalence), "greater" for SKCE > δ².

    Returns:
        The result; `statistic` is z, or −z for "greater", `estimate` is the unbiased SKCE.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, the margin is not positive, or n < 5.
        NotImplementedError: if the expectations have no closed form.

    Cost: 1.5 n² evaluations of h, O(n + tile²) memory.

    References: none of the four papers has it; Wellek (2010), Testing Statistical Hypotheses of
    Equivalence and Noninferiority.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = jax.random.normal(jax.random.key(0), (200,))
    >>> test = hypothesis_tests.skce_margin_test(kernel, predictions, targets, margin=0.2)
    >>> print(test.pvalue < 0.01)
    True
    """
    checks.choice("alternative", alternative, ALTERNATIVES[1:])
    kernel = default_kernel(predictions) if kernel is None else kernel
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=MINIMUM)
    limit = checks.positive_number("margin", margin, floating_dtype(samples))
    estimate, z = _standardised(kernel, samples, limit)
    signed = -z if alternative == "less" else z
    statistic = checks.nan_with(jnp.where(jnp.isinf(z), z, signed), estimate, limit)
    return CalibrationTestResult(statistic, pvalue_of(statistic), estimate)
