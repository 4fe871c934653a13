"""Differences of two models, and comparisons with a margin."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, mean_and_error, safe_sqrt
from calibjax._core.gate import Seen, checked, inner
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import StudentT
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import ready
from calibjax.hypothesis_tests.asymptotic import diagonal, row_means, squared_pair
from calibjax.hypothesis_tests.ensembles import (
    Clusters,
    apart,
    cluster_means,
    clusters_of,
)
from calibjax.hypothesis_tests.result import CalibrationTestResult, _is_number, _shown
from calibjax.kernels import Kernel
from calibjax.kernels.defaults import default_kernel
from calibjax.operators.plan import sample_pair
from calibjax.recalibration.base import cross_fitted
from calibjax.recalibration.gain import default_score
from calibjax.scores.proper import per_sample


@record
class ScoreDifference:
    """A mean of paired differences.

    Attributes:
        estimate: the mean.
        standard_error: of the mean.
        low: lower end of the confidence interval.
        high: upper end.
        pvalue: two-sided, of the hypothesis that the expected difference is zero.
        of_gains: whether these are differences of gains, which are better the larger they are.

    It prints as one line, which names the better model if the interval does not contain zero.
    """

    estimate: jax.Array
    standard_error: jax.Array
    low: jax.Array
    high: jax.Array
    pvalue: jax.Array
    of_gains: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        """The numbers; arrays are shown by their shapes."""
        parts = f"{_shown(self.estimate)} ± {_shown(self.standard_error)}"
        for name in ("low", "high", "pvalue"):
            parts += f", {name}={_shown(getattr(self, name))}"
        verb, sign = ("has more to gain", -1) if self.of_gains else ("has the better score", 1)
        is_clear = all(map(_is_number, (self.low, self.high))) and (self.low > 0) | (self.high < 0)
        return f"{type(self).__name__}({parts}){better(verb, self.estimate, is_clear, sign)}"


def better(verb: str, difference: Any, is_clear: bool | jax.Array, sign: int = 1) -> str:
    """Which of two models is better: the first if the difference has the other sign."""
    if not _is_number(difference):
        return ""
    if not is_clear:
        return f": which model {verb} is not clear"
    return f": the {'second' if sign * difference > 0 else 'first'} model {verb}"


def _mean_of(
    differences: jax.Array, weights: jax.Array | None, clusters: Any, level: ArrayLike
) -> ScoreDifference:
    """Mean, error, interval and p-value of Student's distribution."""
    if checks.is_concrete(differences, weights):
        values = np.asarray(differences)
        counts = True if weights is None else np.asarray(weights) > 0
        bad = ~np.isfinite(values) & counts
        checks.refuse_where(bad, "score", "finite scores of both models", values)
    if clusters is not None:
        clusters = clusters_of(clusters, differences.dtype, weights)
    return _summarised(differences, weights, clusters, level)


@jax.jit
def _summarised(
    differences: jax.Array, weights: jax.Array | None, clusters: Clusters | None, level: ArrayLike
) -> ScoreDifference:
    ids = None if clusters is None else clusters.ids
    mean, error = mean_and_error(differences, weights, ids)
    number = len(differences) if weights is None else jnp.sum(weights)
    freedom = jnp.asarray((number if clusters is None else clusters.number) - 1, mean.dtype)
    student = StudentT(freedom, jnp.zeros_like(mean), jnp.ones_like(mean))
    # Differences that are all equal, but for rounding, have an unknown scatter.
    is_known = error > 16 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    reach = -student.icdf(jnp.asarray((1 - level) / 2, mean.dtype)) * error
    reach = jnp.where(is_known | (mean == 0), reach, jnp.inf)
    pvalue = 2 * student.cdf(-jnp.abs(mean) / jnp.where(error > 0, error, 1))
    pvalue = jnp.where(is_known, pvalue, 1)
    pvalue = jnp.maximum(pvalue, jnp.finfo(mean.dtype).tiny)  # never zero
    pvalue = checks.nan_with(pvalue, mean)
    return ScoreDifference(mean, error, mean - reach, mean + reach, pvalue)


@checked(minimum=2)
def score_difference(
    predictions: Distribution,
    others: Distribution,
    targets: Numbers,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: Numbers | None = None,
    clusters: Numbers | None = None,
    confidence_level: float = 0.95,
) -> ScoreDifference:
    """Paired difference of the mean scores of two models of the same targets.

        d_i = S(p_i, y_i) − S(q_i, y_i),   d̄ = n⁻¹ Σ_i d_i,   se² = Σ_i (d_i − d̄)² / (n (n − 1)),

    with the interval and the p-value of the paired t-test. It is negative where the first model is
    better. With weights d̄ is the weighted mean, n = (Σ_i w_i)² / Σ_i w_i², and
    se² = n / (n − 1) Σ_i w_i² (d_i − d̄)² / (Σ_i w_i)². If all differences are equal, their scatter
    is unknown: the interval is infinite, and p is 1. With clusters

        se² = G / (G − 1) Σ_g (Σ_{i ∈ g} w_i (d_i − d̄))² / (Σ_i w_i)²,

    and Student's distribution has G − 1 degrees of freedom. This is a z-test where n is large, the
    test of Diebold and Mariano for independent differences. Forecasts of several steps have
    dependent ones: put what overlaps into one cluster.

    Args:
        predictions: batch of n ≥ 2 distributions of the first model.
        others: those of the second one, which may be of another family.
        targets: [n] or [n, d].
        score: function (predictions, targets) → mean, smaller for better predictions; by default
            what both models have of the negative log-likelihood, the CRPS and the pinball loss.
        weights: w ≥ 0 of the samples, [n].
        clusters: for dependent samples, integers that are equal within clusters, as in
            `cluster_skce_test`, [n].
        confidence_level: of the interval.

    Returns:
        The difference, in the unit of the score. It prints which model has the better score.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a score is infinite, or there are fewer than 10
            clusters.

    Cost: 2 n scores.

    References: Diebold and Mariano (1995), Comparing predictive accuracy; Liang and Zeger (1986)
    for clusters. None of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> known, unknown = jax.random.normal(jax.random.key(0), (2, 200))
    >>> coarse = distributions.Normal(jnp.zeros(200), jnp.full(200, 2**0.5))
    >>> sharp = distributions.Normal(known, jnp.ones(200))
    >>> print(hypothesis_tests.score_difference(coarse, sharp, known + unknown))  # log(2) / 2
    ScoreDifference(0.385 ± 0.0428, low=0.301, high=0.469, pvalue=1.84e-16): the second model ...
    """
    score = score or default_score(predictions, others)
    one, other = (per_sample(score, p, targets) for p in (predictions, others))
    return _mean_of(_without_rounding(one, other), weights, clusters, confidence_level)


@jax.jit
def _without_rounding(one: jax.Array, other: jax.Array) -> jax.Array:
    """Differences of scores, zero where they are but rounding errors: of one model in two forms."""
    sizes = jnp.abs(one) + jnp.abs(other)
    sizes = sizes + jnp.mean(jnp.where(jnp.isfinite(sizes), sizes, 0))
    difference = one - other
    is_rounding = jnp.abs(difference) <= 32 * jnp.finfo(one.dtype).eps * sizes
    return jnp.where(is_rounding & jnp.isfinite(sizes), 0, difference)


@checked(minimum=2)
def gain_difference(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    others: Distribution,
    targets: Numbers,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: Numbers | None = None,
    clusters: Numbers | None = None,
    num_folds: int = 5,
    confidence_level: float = 0.95,
) -> ScoreDifference:
    """Paired difference of what two models gain from recalibration, in units of a proper score.

        d_i = [S(p_i, y_i) − S(T(p_i), y_i)] − [S(q_i, y_i) − S(T'(q_i), y_i)],

    where T and T' were fitted to samples of other folds, the same for both models. It is the part
    of `score_difference` that recalibration takes away: the difference of both remains.

    Args:
        key: a JAX random key.
        recalibration: record with methods `fit(predictions, targets, weights)` and
            `apply(params, predictions)`, see `recalibration.recalibration_gain`.
        predictions: batch of n distributions of the first model.
        others: those of the second one, which may be of another family.
        targets: [n] or [n, d].
        score: as in `score_difference`.
        weights: w ≥ 0 of the samples, [n].
        clusters: as in `score_difference`; folds do not keep them together.
        num_folds: number of folds.
        confidence_level: of the interval, which leaves out the errors of the fits.

    Returns:
        The difference, positive where the first model has more to gain. It prints which one has.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a score is infinite, there are fewer than 10
            clusters, or the recalibration cannot be fitted outside of some fold.

    Cost: that of `Recalibrator.cross_fitted` for each model.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, recalibration
    >>> targets = jax.random.normal(jax.random.key(0), (400,))
    >>> biased = distributions.Normal(jnp.ones(400), jnp.ones(400))
    >>> good = distributions.Normal(jnp.zeros(400), jnp.ones(400))
    >>> method = recalibration.AffineScaling()
    >>> data = biased, good, targets
    >>> gain = hypothesis_tests.gain_difference(jax.random.key(1), method, *data)
    >>> print(gain)  # ½ · 1² on average
    ScoreDifference(0.504 ± 0.0486, low=0.408, high=0.599, pvalue=1.87e-22): the first model ...
    """
    score = score or default_score(predictions, others)

    def gains(p: Distribution) -> jax.Array:
        q = cross_fitted(key, recalibration, p, targets, weights=weights, num_folds=num_folds)
        return per_sample(score, p, targets) - per_sample(score, q, targets)

    gain = _mean_of(gains(predictions) - gains(others), weights, clusters, confidence_level)
    return dataclasses.replace(gain, of_gains=True)


MINIMUM = 5  # samples, of which the variance of a U-statistic has an unbiased estimate


@record
class SKCEDifference(CalibrationTestResult):
    """Result of `skce_difference`, which prints which model is better calibrated."""

    def __repr__(self) -> str:
        """That of other tests, and the better model if p ≤ 0.05."""
        is_clear = _is_number(self.pvalue) and self.pvalue <= 0.05
        return f"{super().__repr__()}{better('is better calibrated', self.estimate, is_clear)}"


def _difference(
    kernels: tuple[Kernel, ...], x: tuple[DataSet, ...], y: tuple[DataSet, ...]
) -> jax.Array:
    """H of the first model less that of the second, if there is one."""
    one, other = map(sample_pair, kernels, x, y)
    return one - other


_difference_apart = functools.partial(apart, _difference)


def _square(args: tuple[Any, jax.Array, jax.Array], x: tuple, y: tuple) -> jax.Array:
    """Square of the weighted deviation from U, in units of a size."""
    kernels, size, estimate = args
    (one, weight), (other, its) = x, y
    return jnp.square(weight * its * (_difference(kernels, one, other) / size - estimate))


@jax.jit
def _size(kernels: tuple[Kernel, ...], samples: tuple[DataSet, ...]) -> jax.Array:
    """Size of the values of H of both models, in which their difference has rounding errors."""
    pairs = zip(kernels, samples, strict=True)
    values = [jax.vmap(functools.partial(sample_pair, kernel))(x, x) for kernel, x in pairs]
    return jnp.mean(sum(map(jnp.abs, values)))


@jax.jit
def moments(
    kernels: tuple[Kernel, ...],
    samples: tuple[DataSet, ...],
    weights: jax.Array | None = None,
    clusters: Clusters | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """The mean U of g over pairs, √v, and the degrees of freedom of U / √v; None for a normal one.

    In units of the largest row mean: squares of very small numbers vanish.
    """
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
    return size * estimate, size * jnp.sqrt(variance), None


def _moments_of_clusters(
    kernels: tuple[Kernel, ...], samples: tuple[DataSet, ...], clusters: Clusters
) -> tuple[jax.Array, jax.Array, jax.Array]:
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
    return size * estimate, size * error, n - 1


def _unit(rows: jax.Array) -> jax.Array:
    size = jnp.max(jnp.abs(rows))
    return jnp.where(size > 0, size, 1)


def pvalue_of(
    statistic: jax.Array, alternative: str = "greater", freedom: jax.Array | None = None
) -> jax.Array:
    """That of a standard normal statistic, or one of Student's distribution."""
    if alternative != "greater":
        statistic = jnp.abs(statistic) if alternative == "two-sided" else -statistic
    standard = jnp.zeros_like(statistic), jnp.ones_like(statistic)
    law = norm if freedom is None else StudentT(freedom, *standard)
    value = law.cdf(-statistic) * (2 if alternative == "two-sided" else 1)
    return jnp.maximum(value, jnp.finfo(statistic.dtype).tiny)  # never zero


def _kernel(name: str, kernel: Kernel, seen: Seen) -> Kernel:
    """A kernel that does not know the predictions of the first model yet."""
    return checks.kernel_values(kernel, name)


@checked(minimum=MINIMUM, kernel=_kernel)
def skce_difference(
    kernel: Kernel,
    predictions: Distribution,
    others: Distribution,
    targets: Numbers,
    *,
    alternative: Literal["two-sided", "less", "greater"] = "two-sided",
    weights: Numbers | None = None,
    clusters: Numbers | None = None,
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
    models = [ready(kernel, p, targets) for p in (predictions, others)]
    kernels, samples = tuple(k for k, *_ in models), tuple((p, y) for _, p, y in models)
    groups = None
    if clusters is not None:
        groups = clusters_of(clusters, floating_dtype(samples), weights)
    elif weights is not None:
        weights = _enough(weights)
    estimate, error, freedom = moments(kernels, samples, weights, groups)
    rounding = 32 * jnp.finfo(estimate.dtype).eps * _size(kernels, samples)
    is_known = (jnp.abs(estimate) > rounding) & (error > 0)
    z = estimate / jnp.where(is_known, error, 1)
    statistic = checks.nan_with(jnp.where(is_known, z, 0), (estimate, error))
    return SKCEDifference(statistic, pvalue_of(statistic, alternative, freedom), estimate)


def _enough(weights: jax.Array) -> jax.Array:
    """Weights of effectively `MINIMUM` samples."""
    number = jnp.sum(weights)
    least = MINIMUM * (1 - 8 * jnp.finfo(weights.dtype).eps)
    if checks.is_concrete(weights) and number < least:
        expected = f"effectively at least {MINIMUM} samples, (Σ w)² / Σ w²"
        raise ValueError(f"weights: expected {expected}, got {number:.3g}")
    return jnp.where(number >= least, weights, jnp.nan)


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


def _margin(name: str, value: Any, seen: Seen) -> jax.Array:
    samples = seen["predictions"], seen["targets"]
    return checks.positive_scalar(name, value, floating_dtype(samples))


@checked(minimum=MINIMUM, margin=_margin)
def skce_margin_test(
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    *,
    margin: float,
    alternative: Literal["less", "greater"] = "less",
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
    kernel = kernel or inner(default_kernel)(predictions)
    estimate, z = _standardised(kernel, (predictions, targets), margin)
    signed = -z if alternative == "less" else z
    statistic = checks.nan_with(jnp.where(jnp.isinf(z), z, signed), estimate, margin)
    return CalibrationTestResult(statistic, pvalue_of(statistic), estimate)
