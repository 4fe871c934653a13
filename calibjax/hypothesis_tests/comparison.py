"""Differences of SKCEs, and SKCEs against a margin, by the variance of U-statistics."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jax.typing import ArrayLike

from calibjax import pairwise
from calibjax._core import checks
from calibjax._core.compilation import jit
from calibjax._core.pytree import PyTree
from calibjax._core.sharding import follows_data
from calibjax.distances import Features
from calibjax.distributions import with_features
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.sampling import draw, sample_targets
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.exact import exact_skce_test
from calibjax.hypothesis_tests.kernel_scales import distance_of_predictions, typical_distance
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel, SquaredExponential, TensorProduct
from calibjax.kernels.base import without_draws

ALTERNATIVES = ("two-sided", "greater", "less")
_MINIMUM = 5  # samples, of which the variance of a U-statistic has an unbiased estimate


class _Moments(NamedTuple):
    """A U-statistic, and the root of an estimate of its variance."""

    estimate: jax.Array
    error: jax.Array


def _difference(kernels: tuple[Kernel, ...], x: Any, y: Any) -> jax.Array:
    """H of the first model less that of the second, if there is one."""
    values = [sample_pair(k, *pair) for k, *pair in zip(kernels, x, y, strict=True)]
    return values[0] if len(values) == 1 else values[0] - values[1]


def _square(args: tuple[Any, jax.Array], x: Any, y: Any) -> jax.Array:
    kernels, size = args
    return jnp.square(_difference(kernels, x, y) / size)


@jit
def _moments(kernels: tuple[Kernel, ...], samples: PyTree) -> _Moments:
    """In units of the largest row mean: squares of very small numbers vanish."""
    n = jax.tree.leaves(samples)[0].shape[0]
    diagonal = jax.vmap(_difference, (None, 0, 0))(kernels, samples, samples)
    ones = jnp.ones((n, 1), diagonal.dtype)
    sums = pairwise.weighted_sums(_difference, kernels, samples, samples, ones)[:, 0]
    rows = (sums - diagonal) / (n - 1)
    size = jnp.max(jnp.abs(rows))
    size = jnp.where(size > 0, size, 1)
    estimate = jnp.mean(rows / size)
    squares = pairwise.mean_over_pairs(_square, (kernels, size), samples)
    of_pairs = jnp.maximum(squares - jnp.square(estimate), 0)
    spread = jnp.var(rows / size, ddof=1) * ((n - 1) ** 2 / (n - 2))
    of_rows = jnp.maximum(spread - of_pairs, 0) / (n - 4)
    variance = (4 * (n - 2) * of_rows + 2 * of_pairs) / (n * (n - 1.0))
    return _Moments(size * estimate, size * jnp.sqrt(variance))


def checked_model(name: str, others: Any, predictions: Any) -> Any:
    """Another batch of distributions, as many as the predictions."""
    others, predictions = checks.batch(others, name=name), checks.batch(predictions)
    found, n = (jax.tree.leaves(x)[0].shape[0] for x in (others, predictions))
    if found != n:
        raise ValueError(
            f"{name}: expected {n} distributions, one for each prediction, got {found}"
        )
    return others


def _pvalue(statistic: jax.Array, alternative: str = "greater") -> jax.Array:
    if alternative == "two-sided":
        value = 2 * norm.sf(jnp.abs(statistic))
    else:
        value = norm.sf(statistic if alternative == "greater" else -statistic)
    return jnp.maximum(value, jnp.finfo(statistic.dtype).tiny)  # never zero


@follows_data
def compare_skce(
    kernel: Kernel,
    predictions: Distribution,
    others: Distribution,
    targets: ArrayLike,
    *,
    alternative: str = "two-sided",
) -> CalibrationTestResult:
    """Asymptotic test of whether two models of the same targets have the same SKCE.

    With the calibration kernels h and h' of the two models and g = h − h',

        U = mean of g_ij over i ≠ j,   z = U / √v,
        v = 4 (n − 2) ζ₁ / (n (n − 1)) + 2 σ² / (n (n − 1)),
        σ² = mean of g_ij² over i ≠ j − U²,   ζ₁ = max(((n − 1)² S² / (n − 2) − σ²) / (n − 4), 0),

    S² being the variance of the row means; without the maximum v is unbiased. z is close to
    standard normal if one of the models is miscalibrated. If both are calibrated, it is not, and
    the test rejects too rarely (1 to 3 % at level 5 %).

    The SKCE depends on the predictions that a model makes: of two models that are wrong in the same
    way, the one with predictions that are more alike has the larger one. Compare a proper score,
    too: a model can be the better calibrated one since it says less.

    Args:
        kernel: kernel on pairs (prediction, target), the same for both models.
        predictions: batch of n ≥ 5 distributions of the first model.
        others: those of the second model for the same targets; they may be of another family.
        targets: [n] or [n, d].
        alternative: "two-sided"; "greater" if the first model is the worse calibrated one, or
            "less" if it is the better one.

    Returns:
        The result; `statistic` is z, `estimate` is U = SKCE_u − SKCE'_u.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or the option are wrong, or n < 5.
        NotImplementedError: if the expectations have no closed form.

    Cost: 1.5 n² evaluations of each h, O(n + tile²) memory.

    References: none of the four papers has it; Hoeffding (1948) for the variance of U-statistics.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> targets = jax.random.normal(jax.random.key(0), (200,))
    >>> good = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> biased = distributions.Normal(jnp.full(200, 0.5), jnp.ones(200))
    >>> test = hypothesis_tests.compare_skce(kernel, biased, good, targets)
    >>> print(f"{test.estimate:.3f} {test.pvalue < 0.01}")
    0.043 True
    """
    checks.same_rows(predictions=predictions, others=others, targets=targets)
    alternative = checks.choice("alternative", alternative, ALTERNATIVES)
    others = checked_model("others", others, predictions)
    models = (checked_samples(kernel, x, targets, minimum=_MINIMUM) for x in (predictions, others))
    kernels, samples = zip(*models, strict=True)
    found = _moments(kernels, samples)
    statistic = jnp.where(found.estimate == 0, 0, found.estimate / found.error)
    return CalibrationTestResult(statistic, _pvalue(statistic, alternative), found.estimate)


@follows_data
@checks.key_first
def cross_calibration_test(
    key: jax.Array,
    kernel: TensorProduct,
    predictions: Distribution,
    given: Distribution,
    targets: ArrayLike,
    *,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of whether predictions P are right given those of another model, too.

    The null hypothesis is Y | P, Q ~ P: whoever knows P learns nothing from the other model's
    prediction Q. A calibrated model is wrong given a sharper one; if each of two models is wrong
    given the other, combine them. It is `exact_skce_test` with the kernel
    k_P(p, p') k_Q(q, q') k_Y(y, y'), where k_Q(q, q') = exp(−d(q, q')² / (2 ℓ²)) has the distance
    of `default_kernels` and its median among the other predictions.

    Args:
        key: a JAX random key.
        kernel: tensor product of kernels on predictions, which may be `Constant()`, and targets.
        predictions: batch of n ≥ 2 distributions without features.
        given: n distributions of the other model.
        targets: [n] or [n, d].
        num_draws: B, number of redraws of all targets from `predictions`.

    Returns:
        The result of `exact_skce_test`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, or `predictions` have features.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of `exact_skce_test` and the median heuristic.

    References: Strähl and Ziegel (2017), Cross-calibration of probabilistic forecasts; none of the
    four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> known, unknown = jax.random.normal(jax.random.key(0), (2, 200))
    >>> coarse = distributions.Normal(jnp.zeros(200), jnp.full(200, 2**0.5))
    >>> sharp = distributions.Normal(known, jnp.ones(200))
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernels.SquaredExponential(1.0))
    >>> for models in (coarse, sharp), (sharp, coarse):
    ...     test = hypothesis_tests.cross_calibration_test(
    ...         jax.random.key(1), kernel, *models, known + unknown
    ...     )
    ...     print(test.pvalue <= 0.05)
    True
    False
    """
    checks.same_rows(predictions=predictions, given=given, targets=targets)
    if not isinstance(kernel, TensorProduct):
        found = checks.described(kernel)
        raise TypeError(f"kernel: expected a kernels.TensorProduct, got {found}")
    given = checked_model("given", given, predictions)
    distance = distance_of_predictions(given)
    scale = typical_distance(distance, given)
    nearness = SquaredExponential(scale, Features(distance))
    both = TensorProduct(kernel.prediction * nearness, kernel.target)
    predictions = with_features(predictions, without_draws(bare(given)))
    return exact_skce_test(key, both, predictions, targets, num_draws=num_draws)


def _against_margin(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, margin: Any
) -> CalibrationTestResult:
    """Z = (√U₊ − δ) / se(√U₊), which is approximately normal at SKCE = δ²; p for large z."""
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=_MINIMUM)
    found = _moments((kernel,), (samples,))
    margin = checks.positive_number("margin", margin, found.estimate.dtype)
    root = jnp.sqrt(jnp.maximum(found.estimate, 0))
    # Close to zero the derivative of the root is that at half of the margin.
    error = found.error / (2 * jnp.maximum(root, margin / 2))
    statistic = (root - margin) / error
    return CalibrationTestResult(statistic, _pvalue(statistic), found.estimate)


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
    return _against_margin(kernel, predictions, targets, margin)


@follows_data
def equivalence_skce_test(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike, *, margin: float
) -> CalibrationTestResult:
    """Asymptotic test of whether a model is known to be calibrated well enough.

    The null hypothesis is SKCE ≥ δ² with the margin δ: a small p-value is evidence that the model
    is closer to calibration than that, which a large p-value of a test of calibration is not. The
    statistic is −z of `tolerant_skce_test`.

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
    found = _against_margin(kernel, predictions, targets, margin)
    statistic = -found.statistic
    return CalibrationTestResult(statistic, _pvalue(statistic), found.estimate)


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
    0.21
    """
    num_draws = checks.number_of_draws("num_draws", num_draws)
    checks.same_rows(predictions=predictions, truth=truth)
    truth = checked_model("truth", truth, predictions)
    targets = sample_targets(key, truth)
    kernel, (predictions, _) = checked_samples(kernel, predictions, targets, minimum=2)
    values = _skces(jax.random.split(key, num_draws), kernel, predictions, truth)
    return jnp.sqrt(jnp.maximum(jnp.mean(values), 0))


@jit
def _skces(keys: jax.Array, kernel: Kernel, predictions: Any, truth: Any) -> jax.Array:
    """SKCE_u of data sets with drawn targets, [B]."""

    def skce(key: jax.Array) -> jax.Array:
        samples = predictions, draw(key, truth)
        return pairwise.mean_over_pairs(sample_pair, kernel, samples)

    return jax.lax.map(skce, keys)
