"""Two models: the difference of their SKCEs."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions import StudentT
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.clusters import (
    Clusters,
    apart,
    checked_clusters,
    cluster_means,
)
from calibjax.hypothesis_tests.intervals import ALTERNATIVES
from calibjax.hypothesis_tests.result import CalibrationTestResult, _is_number
from calibjax.hypothesis_tests.score_differences import better, checked_model
from calibjax.kernels import Kernel

MINIMUM = 5  # samples, of which the variance of a U-statistic has an unbiased estimate


@record
class SKCEDifference(CalibrationTestResult):
    """Result of `skce_difference`, which prints which model is better calibrated."""

    def __repr__(self) -> str:
        """That of other tests, and the better model if p ≤ 0.05."""
        is_clear = _is_number(self.pvalue) and self.pvalue <= 0.05
        return f"{super().__repr__()}{better('is better calibrated', self.estimate, is_clear)}"


class Moments(NamedTuple):
    """A U-statistic, and the root of an estimate of its variance.

    Attributes:
        estimate: U.
        error: √v.
        freedom: degrees of freedom of Student's distribution of U / √v; None for the normal one.
    """

    estimate: jax.Array
    error: jax.Array
    freedom: jax.Array | None = None


def _difference(
    kernels: tuple[Kernel, ...], x: tuple[DataSet, ...], y: tuple[DataSet, ...]
) -> jax.Array:
    """H of the first model less that of the second, if there is one."""
    values = [sample_pair(k, *pair) for k, *pair in zip(kernels, x, y, strict=True)]
    return values[0] if len(values) == 1 else values[0] - values[1]


_difference_apart = functools.partial(apart, _difference)


def _square(args: tuple[Any, jax.Array, jax.Array], x: tuple, y: tuple) -> jax.Array:
    """Square of the weighted deviation from U, in units of a size."""
    kernels, size, estimate = args
    (one, weight), (other, its) = x, y
    return jnp.square(weight * its * (_difference(kernels, one, other) / size - estimate))


@jax.jit
def _size(kernels: tuple[Kernel, ...], samples: tuple[DataSet, ...]) -> jax.Array:
    """Size of the values of H of both models, in which their difference has rounding errors."""
    return jnp.mean(
        sum(
            jnp.abs(jax.vmap(functools.partial(sample_pair, kernel))(data, data))
            for kernel, data in zip(kernels, samples, strict=True)
        )
    )


@jax.jit
def moments(
    kernels: tuple[Kernel, ...],
    samples: tuple[DataSet, ...],
    weights: jax.Array | None = None,
    clusters: Clusters | None = None,
) -> Moments:
    """In units of the largest row mean: squares of very small numbers vanish."""
    if clusters is not None:
        return _moments_of_clusters(kernels, samples, clusters)
    diagonal = jax.vmap(_difference, (None, 0, 0))(kernels, samples, samples)
    masses = jnp.ones_like(diagonal) if weights is None else weights
    n = jnp.sum(masses)
    sums = operators.weighted_sums(_difference, kernels, samples, samples, masses[:, None])[:, 0]
    rows = (sums - masses * diagonal) / (n - 1)
    size = _unit(jnp.where(masses > 0, rows, 0))
    rows = rows / size
    estimate = jnp.sum(masses * rows) / n
    rounding = 100 * jnp.finfo(rows.dtype).eps * jnp.square(estimate)
    args, points = (kernels, size, estimate), (samples, masses)
    shares = masses.size * (masses.size - 1.0) / (n * (n - 1))
    of_pairs = shares * operators.mean_over_pairs(_square, args, points)
    of_pairs = jnp.where(of_pairs > rounding, of_pairs, 0)
    # Row i has all samples but i.
    deviations = masses * (rows - estimate * (n - masses) / (n - 1))
    spread = jnp.sum(jnp.square(deviations)) / (n - 1)
    spread = jnp.where(spread > rounding, spread, 0) * ((n - 1) ** 2 / (n - 2))
    of_rows = jnp.maximum(spread - of_pairs, 0) / (n - 4)
    variance = (4 * (n - 2) * of_rows + 2 * of_pairs) / (n * (n - 1.0))
    return Moments(size * estimate, size * jnp.sqrt(variance))


def _moments_of_clusters(
    kernels: tuple[Kernel, ...], samples: tuple[DataSet, ...], clusters: Clusters
) -> Moments:
    """Those of clusters, with the variance of the jackknife."""
    rows, is_row = cluster_means(_difference_apart, kernels, samples, clusters)
    n = clusters.number.astype(rows.dtype)
    size = _unit(rows)
    rows = rows / size
    estimate = jnp.sum(rows) / n
    squares = jnp.sum(jnp.where(is_row, jnp.square(rows - estimate), 0))
    rounding = 100 * jnp.finfo(rows.dtype).eps * jnp.square(estimate)
    squares = jnp.where(squares > n * rounding, squares, 0)
    error = jnp.sqrt(4 * (n - 1) / n * squares) / (n - 2)
    return Moments(size * estimate, size * error, n - 1)


def _unit(rows: jax.Array) -> jax.Array:
    size = jnp.max(jnp.abs(rows))
    return jnp.where(size > 0, size, 1)


def pvalue_of(
    statistic: jax.Array, alternative: str = "greater", freedom: jax.Array | None = None
) -> jax.Array:
    """That of a standard normal statistic, or one of Student's distribution."""
    if alternative != "greater":
        statistic = jnp.abs(statistic) if alternative == "two-sided" else -statistic
    if freedom is None:
        value = norm.sf(statistic)
    else:
        zero = jnp.zeros_like(statistic)
        value = StudentT(freedom, zero, zero + 1).cdf(-statistic)
    value = 2 * value if alternative == "two-sided" else value
    return jnp.maximum(value, jnp.finfo(statistic.dtype).tiny)  # never zero


def skce_difference(
    kernel: Kernel,
    predictions: Distribution,
    others: Distribution,
    targets: ArrayLike,
    *,
    alternative: str = "two-sided",
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
) -> SKCEDifference:
    """Asymptotic test of whether two models of the same targets have the same SKCE.

    With the calibration kernels h and h' of the two models and g = h − h',

        U = mean of g_ij over i ≠ j,   z = U / √v,
        v = 4 (n − 2) ζ₁ / (n (n − 1)) + 2 σ² / (n (n − 1)),
        σ² = mean of g_ij² over i ≠ j − U²,   ζ₁ = max(((n − 1)² S² / (n − 2) − σ²) / (n − 4), 0),

    S² being the variance of the row means; without the maximum v is unbiased. z is close to
    standard normal if one of the models is miscalibrated. If both are calibrated, it is not, and
    the test rejects too rarely (1 to 3 % at level 5 %). z is zero where U is but a rounding error,
    and where all g_ij are equal, whose scatter is unknown.

    With weights U is the weighted mean over pairs i ≠ j. With n = (Σ_i w_i)² / Σ_i w_i², and w in
    units in which that is Σ_i w_i, too,

        σ² = Σ_{i≠j} w_i² w_j² (g_ij − U)² / (n (n − 1)),
        S² = Σ_i w_i² (Σ_{j≠i} w_j (g_ij − U))² / (n − 1)³.

    With clusters g_ab is the mean of g over the pairs of a sample from cluster a and one from b, U
    the mean of g_ab over a ≠ b, and v = 4 (G − 1)² S² / (G (G − 2)²) that of the jackknife over G
    clusters, of which z has Student's distribution with G − 1 degrees of freedom. It counts twice
    what does not come from row means: with two calibrated models it rejects still more rarely.

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
        weights: w ≥ 0 of the samples, [n], effectively at least 5; they may have to do with errors.
        clusters: for dependent samples, integers that are equal within clusters, as in
            `cluster_skce_test`, [n]; weights then count within clusters.

    Returns:
        The result; `statistic` is z, `estimate` is U = SKCE_u − SKCE'_u. It prints which model is
        better calibrated.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or the option are wrong, n < 5, or there are fewer than 10
            clusters (traced weights or clusters that are not enough: NaN).
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
    >>> test = hypothesis_tests.skce_difference(kernel, biased, good, targets)
    >>> print(test)
    SKCEDifference(pvalue=0.0028, statistic=2.99, estimate=0.0429): the second model is better ...
    """
    rows = {"weights": weights, "clusters": clusters}
    checks.same_rows(predictions=predictions, others=others, targets=targets, **rows)
    alternative = checks.choice("alternative", alternative, ALTERNATIVES)
    others = checked_model("others", others, predictions)
    models = (checked_samples(kernel, x, targets, minimum=MINIMUM) for x in (predictions, others))
    kernels, samples = zip(*models, strict=True)
    weights, groups = checks.sample_weights(weights, samples), None
    if clusters is not None:
        groups = checked_clusters(clusters, kernels[0], samples[0], weights)
    elif weights is not None:
        weights = _enough(weights)
    difference = moments(kernels, samples, weights, groups)
    rounding = 32 * jnp.finfo(difference.estimate.dtype).eps * _size(kernels, samples)
    is_known = (jnp.abs(difference.estimate) > rounding) & (difference.error > 0)
    statistic = jnp.where(
        is_known, difference.estimate / jnp.where(is_known, difference.error, 1), 0
    )
    statistic = checks.nan_with(statistic, difference)
    pvalue = pvalue_of(statistic, alternative, difference.freedom)
    return SKCEDifference(statistic, pvalue, difference.estimate)


def _enough(weights: jax.Array) -> jax.Array:
    """Weights of effectively `MINIMUM` samples."""
    number = jnp.sum(weights)
    least = MINIMUM * (1 - 8 * jnp.finfo(weights.dtype).eps)
    if checks.is_concrete(weights) and number < least:
        raise ValueError(
            f"weights: expected effectively at least {MINIMUM} samples, (Σ w)² / Σ w², got "
            f"{number:.3g}"
        )
    return jnp.where(number >= least, weights, jnp.nan)
