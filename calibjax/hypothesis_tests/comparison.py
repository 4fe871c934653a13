"""Two models: the difference of their SKCEs, and whether one is right given the other."""

import functools
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
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.clusters import cluster_skce_test
from calibjax.hypothesis_tests.exact import exact_skce_test
from calibjax.hypothesis_tests.kernel_scales import distance_of_predictions, typical_distance
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.hypothesis_tests.score_differences import checked_model
from calibjax.kernels import Kernel, SquaredExponential, TensorProduct
from calibjax.kernels.base import without_draws

ALTERNATIVES = ("two-sided", "greater", "less")
MINIMUM = 5  # samples, of which the variance of a U-statistic has an unbiased estimate


class Moments(NamedTuple):
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
def _size(kernels: tuple[Kernel, ...], samples: PyTree) -> jax.Array:
    """Size of the values of H of both models, in which their difference has rounding errors."""
    return jnp.mean(
        sum(
            jnp.abs(jax.vmap(functools.partial(sample_pair, kernel))(data, data))
            for kernel, data in zip(kernels, samples, strict=True)
        )
    )


@jit
def moments(kernels: tuple[Kernel, ...], samples: PyTree) -> Moments:
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
    rounding = 100 * jnp.finfo(rows.dtype).eps * jnp.square(estimate)
    of_pairs = squares - jnp.square(estimate)
    of_pairs = jnp.where(of_pairs > rounding, of_pairs, 0)
    spread = jnp.var(rows / size, ddof=1)
    spread = jnp.where(spread > rounding, spread, 0) * ((n - 1) ** 2 / (n - 2))
    of_rows = jnp.maximum(spread - of_pairs, 0) / (n - 4)
    variance = (4 * (n - 2) * of_rows + 2 * of_pairs) / (n * (n - 1.0))
    return Moments(size * estimate, size * jnp.sqrt(variance))


def pvalue_of(statistic: jax.Array, alternative: str = "greater") -> jax.Array:
    """That of a standard normal statistic."""
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
    the test rejects too rarely (1 to 3 % at level 5 %). z is zero where U is but a rounding error,
    and where all g_ij are equal, whose scatter is unknown.

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
    models = (checked_samples(kernel, x, targets, minimum=MINIMUM) for x in (predictions, others))
    kernels, samples = zip(*models, strict=True)
    found = moments(kernels, samples)
    rounding = 32 * jnp.finfo(found.estimate.dtype).eps * _size(kernels, samples)
    is_known = (jnp.abs(found.estimate) > rounding) & (found.error > 0)
    statistic = jnp.where(is_known, found.estimate / jnp.where(is_known, found.error, 1), 0)
    statistic = checks.nan_with(statistic, found)
    return CalibrationTestResult(statistic, pvalue_of(statistic, alternative), found.estimate)


@follows_data
@checks.key_first
def cross_calibration_test(
    key: jax.Array,
    kernel: TensorProduct,
    predictions: Distribution,
    given: Distribution,
    targets: ArrayLike,
    *,
    clusters: ArrayLike | None = None,
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
        clusters: for dependent samples, integers that are equal within clusters, [n]: the test is
            then `cluster_skce_test` with this kernel, which is asymptotic.
        num_draws: B, number of redraws of all targets from `predictions`, or of random signs.

    Returns:
        The result of `exact_skce_test`, or `cluster_skce_test`.

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
    if clusters is not None:
        return cluster_skce_test(key, both, predictions, targets, clusters, num_draws=num_draws)
    return exact_skce_test(key, both, predictions, targets, num_draws=num_draws)
