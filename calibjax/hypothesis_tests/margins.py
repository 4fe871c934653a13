"""SKCEs against a margin: is a model good enough, or worse than can be tolerated?"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import pairwise
from calibjax._core import checks
from calibjax._core.compilation import jit
from calibjax._core.sharding import follows_data
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw, sample_targets
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.comparison import MINIMUM, moments, pvalue_of
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.score_differences import checked_model
from calibjax.kernels import Kernel


def _against_margin(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, margin: Any, sign: int
) -> CalibrationTestResult:
    """± (√U₊ − δ) / se(√U₊), approximately normal at SKCE = δ²; −∞ if there is no scatter."""
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=MINIMUM)
    found = moments((kernel,), (samples,))
    margin = checks.positive_number("margin", margin, found.estimate.dtype)
    root = jnp.sqrt(jnp.maximum(found.estimate, 0))
    # Close to zero the derivative of the root is that at half of the margin.
    error = found.error / (2 * jnp.maximum(root, margin / 2))
    statistic = sign * (root - margin) / jnp.where(error > 0, error, 1)
    statistic = jnp.where(error == 0, -jnp.inf, statistic)
    statistic = checks.nan_with(statistic, found)
    return CalibrationTestResult(statistic, pvalue_of(statistic), found.estimate)


@follows_data
def tolerant_skce_test(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, *, margin: float
) -> CalibrationTestResult:
    """Asymptotic test of whether a model is worse calibrated than can be tolerated.

    The null hypothesis is SKCE ≤ δ² with the margin δ. Of very many samples every test of
    calibration rejects every model; this one asks for more than that. With the moments U and v of
    `compare_skce`, for one model,

        z = 2 max(√U₊, δ/2) (√U₊ − δ) / √v,   U₊ = max(U, 0),   p = P(N(0, 1) ≥ z).

    The root of the SKCE is closer to normal than the SKCE itself.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 5 distributions.
        targets: [n] or [n, d].
        margin: δ > 0, in units of the root of the SKCE; `calibration_margin` computes it for models
            that are known to be wrong.

    Returns:
        The result; `statistic` is z, `estimate` is the unbiased SKCE.

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
    >>> targets = jax.random.normal(jax.random.key(0), (200,)) + 1
    >>> for margin in 0.1, 0.3, 0.5:
    ...     test = hypothesis_tests.tolerant_skce_test(kernel, predictions, targets, margin=margin)
    ...     print(f"{test.pvalue:.2f}")
    0.00
    0.00
    0.98
    """
    return _against_margin(kernel, predictions, targets, margin, 1)


@follows_data
def equivalence_skce_test(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, *, margin: float
) -> CalibrationTestResult:
    """Asymptotic test of whether a model is known to be calibrated well enough.

    The null hypothesis is SKCE ≥ δ² with the margin δ: a small p-value is evidence that the model
    is closer to calibration than that, which a large p-value of a test of calibration is not. The
    statistic is −z of `tolerant_skce_test`.

    It is no test for predictions that are almost certain: of samples with few errors the scatter of
    h says too little, and the test rejects too often where the model is as wrong as the margin
    says: with probabilities of 0.99 and 6 % of errors 25 % of the samples with n = 64, and 15 %
    with n = 256; 10 % with n = 256 and 10 % of errors (equal predictions, 2000 data sets each). If
    all h_ij are equal, p is 1. Where fewer than some 30 errors are expected, take
    `exact_equivalence_test`, which holds its level for every n.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 5 distributions.
        targets: [n] or [n, d].
        margin: δ > 0, as in `tolerant_skce_test`.

    Returns:
        The result; `statistic` is large for small SKCEs, `estimate` is the unbiased SKCE.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, the margin is not positive, or n < 5.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of `tolerant_skce_test`.

    References: those of `tolerant_skce_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = jax.random.normal(jax.random.key(0), (200,))
    >>> test = hypothesis_tests.equivalence_skce_test(kernel, predictions, targets, margin=0.2)
    >>> print(test.pvalue < 0.01)
    True
    """
    return _against_margin(kernel, predictions, targets, margin, -1)


@follows_data
@checks.key_first
def calibration_margin(
    key: jax.Array,
    kernel: Kernel,
    predictions: Distribution,
    truth: Distribution,
    *,
    num_draws: int = 99,
) -> jax.Array:
    """Root of the SKCE of predictions whose targets have another law, such as a tempered one.

    It translates "5 % too sure" or "shifted by 0.1 standard deviations" into the `margin` of
    `equivalence_skce_test` for the predictions at hand.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        truth: the n distributions of the targets, such as
            `recalibration.TemperatureScaling().apply(1.05, predictions)`.
        num_draws: number of draws of all targets; the margin is the root of their mean SKCE_u.

    Returns:
        A scalar; zero if the mean SKCE_u is negative.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or n < 2.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of `num_draws` calls of `skce`.

    References: none of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> truth = distributions.Normal(jnp.full(200, 0.5), jnp.ones(200))
    >>> margin = hypothesis_tests.calibration_margin(jax.random.key(0), kernel, predictions, truth)
    >>> print(f"{margin:.2f}")
    0.22
    """
    return jnp.sqrt(jnp.maximum(jnp.mean(_skces(key, kernel, predictions, truth, num_draws)), 0))


@follows_data
@checks.key_first
def exact_equivalence_test(
    key: jax.Array,
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    truth: Distribution,
    *,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of whether a model is closer to calibration than one that would be too far off.

    The null hypothesis is that the targets come from `truth`, at the boundary of what is tolerated,
    such as tempered predictions. The unbiased SKCE of the predictions is ranked among those of
    targets that are redrawn from the truth; a small p-value is evidence that the model is better.
    It is exact for every n, unlike `equivalence_skce_test`, but for this one boundary: of targets
    that are wrong in other ways it says what their SKCE says.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        truth: the n distributions of the targets at the boundary, as in `calibration_margin`.
        num_draws: B, number of redraws of all targets from the truth.

    Returns:
        The result; `statistic` is −SKCE_u, `estimate` is SKCE_u.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or n < 2.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of B calls of `skce`.

    References: none of the four papers has it; Wellek (2010), as `tolerant_skce_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels, recalibration
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = jax.random.normal(jax.random.key(0), (200,))
    >>> wide = recalibration.TemperatureScaling().apply(3.0, predictions)
    >>> test = hypothesis_tests.exact_equivalence_test(
    ...     jax.random.key(1), kernel, predictions, targets, wide, num_draws=99
    ... )
    >>> print(f"{test.pvalue:.2f}")
    0.01
    """
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=2)
    values = _skces(key, kernel, predictions, truth, num_draws)
    observed = pairwise.mean_over_pairs(sample_pair, kernel, samples)
    statistic = checks.nan_with(-observed, values)  # ranks do not propagate NaN
    return simulated_result(statistic, -values, observed, draws="targets redrawn from the truth")


def _skces(
    key: jax.Array, kernel: Kernel, predictions: Any, truth: Any, num_draws: int
) -> jax.Array:
    """SKCE_u of data sets whose targets are drawn from the truth, [B]."""
    num_draws = checks.number_of_draws("num_draws", num_draws)
    checks.same_rows(predictions=predictions, truth=truth)
    truth = checked_model("truth", truth, predictions)
    targets = sample_targets(key, truth)
    kernel, (predictions, _) = checked_samples(kernel, predictions, targets, minimum=2)
    return _of_draws(jax.random.split(key, num_draws), kernel, predictions, truth)


@jit
def _of_draws(keys: jax.Array, kernel: Kernel, predictions: Any, truth: Any) -> jax.Array:
    """SKCE_u of data sets with drawn targets, [B]."""

    def skce(key: jax.Array) -> jax.Array:
        samples = predictions, draw(key, truth)
        return pairwise.mean_over_pairs(sample_pair, kernel, samples)

    return jax.lax.map(skce, keys)
