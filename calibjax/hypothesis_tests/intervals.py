"""Confidence intervals and distribution-free bounds of the SKCE, and comparisons of models."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, mean_and_error, safe_sqrt
from calibjax._core.environment import jit_long
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, record
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import linear_row_sums, ready
from calibjax.hypothesis_tests.asymptotic import diagonal, refuse_constant, unit_of
from calibjax.hypothesis_tests.ensembles import Clusters, cluster_means, clusters_of
from calibjax.hypothesis_tests.redraws import number_of
from calibjax.hypothesis_tests.result import (
    CalibrationTestResult,
    ConfidenceInterval,
    _is_number,
    _shown,
    asymptotic_interval,
    positive,
    pvalue_of,
)
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs
from calibjax.kernels.defaults import default_kernel
from calibjax.operators.plan import sample_pair
from calibjax.recalibration.base import cross_fitted
from calibjax.recalibration.local import default_score
from calibjax.scores.proper import per_sample

Estimator = Literal["biased", "unbiased", "block"]


def _bound(kernel: Kernel) -> jax.Array | float:
    """Bound B ≥ sup |h| of the calibration kernel, computed from the kernel."""
    return combine_on_pairs(kernel, "calibration_kernel_bound", lambda bound: bound())


def _bounded(
    kernel: Kernel, samples: DataSet, estimator: Estimator, block_size: int | None, bound: Any
) -> tuple[jax.Array, jax.Array, int]:
    """The estimate, B, and a number for Hoeffding's or McDiarmid's inequality.

    The number counts samples for the biased estimator, and independent pairs for the others.
    """
    if (block_size is None) == (estimator == "block"):
        expected = 'an integer with estimator="block", and None with others'
        raise ValueError(f"block_size: expected {expected}, got {block_size}")
    n = checks.leading_size("targets", samples[1])
    largest = checks.positive_scalar("bound", _bound(kernel) if bound is None else bound)
    if estimator == "biased":
        estimate = operators.mean_over_pairs(sample_pair, kernel, samples, include_diagonal=True)
        return estimate, largest, n
    size = n if block_size is None else checks.size_in_range("block_size", block_size, 2, n)
    means = operators.block_means(sample_pair, kernel, samples, block_size=size)
    return means.mean(), largest, n // size * (size // 2)


@checked(minimum=2)
def distribution_free_skce_test(
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    *,
    estimator: Estimator = "biased",
    block_size: int | None = None,
    bound: jax.Array | float | None = None,
) -> CalibrationTestResult:
    """Test of calibration with an upper bound of the p-value for every n and every distribution.

    With B ≥ sup |h| and an estimate t of the SKCE,

        p = exp(−½ max(0, √(n t / B) − 1)²)            biased,
        p = exp(−⌊n/2⌋ t² / (2 B²))                     unbiased, t > 0,
        p = exp(−⌊n/b⌋ ⌊b/2⌋ t² / (2 B²))               blocks of b samples, t > 0,

    and p = 1 for an unbiased estimate t ≤ 0 (squaring it, as CalibrationTests.jl does, rejects
    estimates that are far *below* zero). The true p-value is at most p and usually much smaller, so
    the test has little power. Prefer `exact_skce_test`, which also holds its level for every n.

    For a tensor product B = sup k_P sup_{y,z} [k_Y(y, y) + k_Y(z, z) − 2 k_Y(y, z)], because h is
    an inner product of two elements with squared norms k_P(p, p) [k_Y(y, y) − 2 m_p(y) + M_{p,p}].
    These are convex in p and so largest for a prediction that is certain of another target. The
    second supremum is 2 for the white kernel, known for a label matrix, and otherwise bounded by 2
    (sup k_Y − inf k_Y). Sums and multiples combine the bounds of their parts; smaller bounds may
    exist. W19's bounds B_{p;q} = 2^{1 + 1/p − 1/q} sup ‖k(s, t)‖_{p;q} of |h| are never smaller
    than B for the white kernel or a label matrix (W19 Lemma H.1, Example H.1).

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        estimator: "biased", "unbiased" or "block".
        block_size: b, 2 ≤ b ≤ n, for the block estimator only; 2 is W19's linear estimator.
        bound: B, for a kernel without a known bound, or a smaller bound. By default it is computed
            from the kernel as above.

    Returns:
        The result; `statistic` and `estimate` are the estimate of the SKCE, and `pvalue` is p.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, or there are too few samples.
        NotImplementedError: if the expectations have no closed form, or no bound is known or
            given.

    Cost: one evaluation of the estimator.

    References: W19 Lemma 2, Theorems H.2 to H.4; Hoeffding (1963).

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> predictions = distributions.Bernoulli(jnp.full(100, 0.1))
    >>> test = hypothesis_tests.distribution_free_skce_test(kernel, predictions, jnp.ones(100, int))
    >>> print(f"{test.estimate:.2f} {test.pvalue:.1e}")
    1.62 1.3e-14
    """
    kernel, samples = kernel or default_kernel(predictions), (predictions, targets)
    estimate, largest, size = _bounded(kernel, samples, estimator, block_size, bound)
    if estimator == "biased":
        exceeded = safe_sqrt(size * jnp.maximum(estimate, 0) / largest) - 1
        exponent = jnp.square(jnp.maximum(exceeded, 0)) / 2
    else:
        exponent = size * jnp.square(jnp.maximum(estimate, 0) / largest) / 2
    return CalibrationTestResult(estimate, positive(jnp.exp(-exponent)), estimate)


def _limits(
    bounded: tuple[jax.Array, jax.Array, int], estimator: str, level: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Both limits of the SKCE, at a joint confidence level."""
    estimate, largest, size = bounded
    tail = (1 - level) / (1 if estimator == "biased" else 2)
    deviation = jnp.sqrt(-2 * jnp.log(jnp.asarray(tail, estimate.dtype)))
    if estimator == "biased":
        root, reach = safe_sqrt(jnp.maximum(estimate, 0)), jnp.sqrt(largest / size)
        reach = reach * (1 + deviation)
        return jnp.square(jnp.maximum(root - reach, 0)), jnp.square(root + reach)
    reach = largest * deviation / size**0.5
    return estimate - reach, estimate + reach


@jit_long
def _jackknife(
    kernel: Kernel, samples: DataSet, weights: Any, clusters: Clusters | None, sums: Any
) -> tuple[jax.Array, jax.Array]:
    """SKCE_u, without pairs within clusters, and its jackknife standard error.

    The sums of h over the other samples, [n], are passed if known.
    """
    if clusters is None:
        n = number_of(samples[0], weights)
        if sums is None:
            sums, _ = _sums_of_others(sample_pair, kernel, samples, weights)
        masses = jnp.ones_like(sums) if weights is None else weights
        rows = sums / (n - masses)  # means over the other samples
        # Share of the pairs with sample i; the factor 2 is in `_jackknife_error`.
        share = masses * (n - masses) / (n * (n - 1.0))
    else:
        rows, share, n = cluster_means(sample_pair, kernel, samples, clusters)
    estimate = jnp.sum(share * rows)
    error = _jackknife_error(rows, share, n, estimate)
    # For equal samples, only a rounding error is left.
    rounding = 100 * jnp.finfo(error.dtype).eps * jnp.max(jnp.abs(rows))
    return estimate, jnp.where(error > rounding, error, jnp.nan)


def _sums_of_others(
    pair: Any, args: Any, samples: Any, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Weighted sums of a function of pairs over the other samples, [n], and the weights."""
    entries = jax.vmap(pair, (None, 0, 0))(args, samples, samples)
    masses = jnp.ones_like(entries) if weights is None else weights
    sums = operators.weighted_sums(pair, args, samples, samples, masses[:, None])[:, 0]
    return sums - masses * entries, masses


def _jackknife_error(rows: jax.Array, share: jax.Array, n: Any, estimate: jax.Array) -> jax.Array:
    """Jackknife error of U, which is (U − 2 s_i r_i) / (1 − 2 s_i) without row i of share s_i."""
    deviations = 2 * share * (estimate - rows) / (1 - 2 * share)
    return jnp.sqrt((n - 1) / n * jnp.sum(jnp.square(deviations)))


@checked(minimum=3)
def skce_confidence_interval(
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    *,
    method: Literal["asymptotic", "distribution_free"] = "asymptotic",
    weights: Numbers | None = None,
    clusters: Numbers | None = None,
    estimator: Estimator = "biased",
    block_size: int | None = None,
    bound: jax.Array | float | None = None,
    confidence_level: float = 0.95,
) -> ConfidenceInterval:
    """Confidence interval for the SKCE.

    - "asymptotic", the default, for models that are not calibrated: under misspecification
      √n (SKCE_u − SKCE) → N(0, 4 ζ_1) with ζ_1 the variance of E[h(X, X') | X], and the interval is
      SKCE_u ± z √(4 ζ̂_1 / n) with the jackknife estimate

          4 ζ̂_1 / n = (n − 1) / n Σ_i (U_{−i} − mean)²,   U_{−i} = SKCE_u without sample i.

      For a calibrated model ζ_1 = 0, the estimate is of order 1 / n and not normal, and the
      interval does not have its nominal coverage. Use a test to decide whether a model is
      calibrated.

    - "distribution_free", for every n and every distribution, calibrated or not: its coverage is at
      least the level, and it is many times wider. With B ≥ sup |h|, an estimate t and confidence
      level 1 − α,

          (√t ± r)²,  r = √(B / n) (1 + √(2 log(1 / α))),     biased, from 0 if √t < r,
          t ± B √(2 log(2 / α) / N),                          unbiased, N = ⌊n/2⌋,
                                                              blocks of b samples, N = ⌊n/b⌋ ⌊b/2⌋,

      The lower limit is above zero if and only if `distribution_free_skce_test` with the same
      estimator has p < α for the biased estimate, or p < α / 2 for others. W19's Theorem H.1 has 2
      instead of 1 in r, from a symmetrization that is not needed: √t is the norm of the mean of n
      independent elements of a Hilbert space, √SKCE of its expectation μ, and E‖mean − μ‖² ≤ B / n.

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 3 distributions.
        targets: [n] or [n, d].
        method: "asymptotic" or "distribution_free"; options of the other method are refused.
        weights: for "asymptotic", w ≥ 0 of the samples, [n]. U_{−i} then leaves out the weight of
            sample i, which is valid even for weights that depend on the targets. The factor has the
            effective number of samples n = (Σ_i w_i)² / Σ_i w_i².
        clusters: for "asymptotic" and dependent samples, integers that are equal within clusters,
            as in `cluster_skce_test`, [n]. The estimate then leaves out pairs within clusters, the
            jackknife leaves out clusters, and z is the quantile of Student's distribution with G −
            1 degrees of freedom. Coverage is below nominal for few clusters: 90 % for a measured 95
            % interval with 10 clusters.
        estimator: for "distribution_free": "biased", "unbiased" or "block".
        block_size: b, 2 ≤ b ≤ n, for the block estimator only; 2 is W19's linear estimator.
        bound: B for "distribution_free", as for `distribution_free_skce_test`.
        confidence_level: 1 − α, in (0, 1).

    Returns:
        The interval, around the estimate; a distribution-free one has no standard error.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, an option is not one of the method,
            there are too few samples or fewer than 10 clusters, or all samples are equal (then the
            result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form, or no bound is known and
            none is given.

    Cost: n² evaluations of h, O(n + tile²) memory. Outside of `jit`, linear time where
    `estimators.skce` has it, and O(n r) memory for r features of the target kernel.
    "distribution_free" costs one evaluation of the estimator.

    References: W21 Corollary B.3 (with one block) and Arvesen (1969) for the jackknife; W19
    Theorems H.1, H.3 and H.4, McDiarmid (1989) and Hoeffding (1963) for "distribution_free".

    >>> import jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.linspace(0.0, 1.0, 100), jnp.full(100, 0.1))
    >>> data = kernel, predictions, jnp.full(100, 0.1)
    >>> print(hypothesis_tests.skce_confidence_interval(*data))
    ConfidenceInterval(0.112 ± 0.0165, low=0.0794, high=0.144)
    >>> print(hypothesis_tests.skce_confidence_interval(*data, method="distribution_free"))
    ConfidenceInterval(0.113, low=0, high=0.678)
    """
    of_others = {"asymptotic": (block_size, bound), "distribution_free": (weights, clusters)}
    if any(option is not None for option in of_others[method]):
        raise ValueError(f'method: expected "{method}" without options of the other method')
    kernel, samples = kernel or default_kernel(predictions), (predictions, targets)
    if method == "distribution_free":
        bounded = _bounded(kernel, samples, estimator, block_size, bound)
        limits = _limits(bounded, estimator, confidence_level)
        return ConfidenceInterval(*limits, bounded[0], None)
    groups = sums = freedom = None
    if clusters is None:
        size, sums = number_of(predictions, weights), linear_row_sums(kernel, samples, weights)
    else:
        groups = clusters_of(clusters, floating_dtype(samples), weights)
        size, freedom = groups.number, groups.number - 1
    estimate, error = _jackknife(kernel, samples, weights, groups, sums)
    refuse_constant(error, estimate)
    interval = asymptotic_interval(estimate, error, confidence_level, freedom)
    return dataclasses.replace(interval, effective_size=size)


@record
class ScoreDifference(ConfidenceInterval):
    """Mean of paired differences.

    Attributes:
        low: lower end of the confidence interval.
        high: upper end.
        estimate: the mean.
        standard_error: of the mean.
        pvalue: two-sided, for the hypothesis that the expected difference is zero.
        of_gains: whether these are differences of gains.
    """

    pvalue: jax.Array | None = None
    of_gains: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        """The numbers; arrays are shown by their shapes."""
        numbers = f"{super().__repr__()[:-1]}, pvalue={_shown(self.pvalue)})"
        verb, sign = ("has more to gain", -1) if self.of_gains else ("has the better score", 1)
        is_clear = all(map(_is_number, (self.low, self.high))) and (self.low > 0) | (self.high < 0)
        return numbers + better(verb, self.estimate, is_clear, sign)


def better(verb: str, difference: Any, is_clear: bool | jax.Array, sign: int = 1) -> str:
    """Words for the better model: the second if the difference times `sign` is positive."""
    if not _is_number(difference):
        return ""
    if not is_clear:
        return f": which model {verb} is not clear"
    return f": the {'second' if sign * difference > 0 else 'first'} model {verb}"


def _mean_of(
    differences: jax.Array, weights: jax.Array | None, clusters: Any, level: ArrayLike
) -> ScoreDifference:
    """Mean, standard error, interval and p-value from Student's distribution."""
    if checks.is_concrete(differences, weights):
        values = np.asarray(differences)
        counts = True if weights is None else np.asarray(weights) > 0
        bad = ~np.isfinite(values) & counts
        checks.refuse_where(bad, "score", "finite scores of both models", values)
    groups = None if clusters is None else clusters_of(clusters, differences.dtype, weights)
    return _summarised(differences, weights, groups, level)


@jax.jit
def _summarised(
    differences: jax.Array, weights: jax.Array | None, clusters: Clusters | None, level: ArrayLike
) -> ScoreDifference:
    ids = None if clusters is None else clusters.ids
    mean, error = mean_and_error(differences, weights, ids)
    number = len(differences) if weights is None else jnp.sum(weights)
    freedom = (number if clusters is None else clusters.number) - 1
    # The scatter of differences that are equal up to rounding is unknown.
    is_known = error > 16 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    known_error = jnp.where(is_known | (mean == 0), error, jnp.inf)
    interval = asymptotic_interval(mean, known_error, level, freedom)
    pvalue = pvalue_of(mean / jnp.where(error > 0, error, 1), freedom, two_sided=True)
    pvalue = checks.nan_with(jnp.where(is_known, pvalue, 1), mean)
    return ScoreDifference(interval.low, interval.high, mean, error, pvalue=pvalue)


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

    with the interval and the p-value of the paired t-test. A negative difference means that the
    first model is better. With weights d̄ is the weighted mean, n = (Σ_i w_i)² / Σ_i w_i², and se²
    = n / (n − 1) Σ_i w_i² (d_i − d̄)² / (Σ_i w_i)². If all differences are equal, their scatter is
    unknown: the interval is infinite, and p is 1. With clusters

        se² = G / (G − 1) Σ_g (Σ_{i ∈ g} w_i (d_i − d̄))² / (Σ_i w_i)²,

    and Student's distribution has G − 1 degrees of freedom. For large n this is the test of Diebold
    and Mariano for independent differences. Forecasts over several steps have dependent
    differences: put overlapping forecasts into one cluster.

    Args:
        predictions: batch of n ≥ 2 distributions of the first model.
        others: batch of n distributions of the second model, possibly of another family.
        targets: [n] or [n, d].
        score: function (predictions, targets) → mean, smaller for better predictions. By default
            the negative log-likelihood, the CRPS (energy score for vectors of ensembles) or the
            pinball loss: the first that both models have.
        weights: w ≥ 0 of the samples, [n].
        clusters: for dependent samples, integers that are equal within clusters, as in
            `cluster_skce_test`, [n].
        confidence_level: in (0, 1).

    Returns:
        The difference, in the unit of the score. Its string names the better model if the interval
        excludes zero.

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
    """Differences of scores, zero if they are rounding errors, as for one model in two forms."""
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
    """Paired difference of the gains of two models from recalibration, in a proper score.

        d_i = [S(p_i, y_i) − S(T(p_i), y_i)] − [S(q_i, y_i) − S(T'(q_i), y_i)],

    where T and T' were fitted to samples of other folds, the same for both models. It is the part
    of `score_difference` that recalibration removes.

    Args:
        key: a JAX random key.
        recalibration: record with methods `fit(predictions, targets, weights)` and `apply(params,
            predictions)`, as in `recalibration.recalibration_gain`.
        predictions: batch of n distributions of the first model.
        others: batch of n distributions of the second model, possibly of another family.
        targets: [n] or [n, d].
        score: as in `score_difference`.
        weights: w ≥ 0 of the samples, [n].
        clusters: as in `score_difference`; folds do not keep them together.
        num_folds: number of folds.
        confidence_level: of the interval, which leaves out the errors of the fits.

    Returns:
        The difference, positive if the first model has more to gain. Its string names this model if
        the interval excludes zero.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a score is infinite, there are fewer than 10
            clusters, or the recalibration cannot be fitted outside of some fold.

    Cost: `Recalibrator.cross_fitted` for each model.

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


MINIMUM = 5  # fewest samples for an unbiased variance of a U-statistic


@record
class SKCEDifference(CalibrationTestResult):
    """Result of `skce_difference`, whose string names the better calibrated model."""

    def __repr__(self) -> str:
        """The numbers, and the better model if p ≤ 0.05."""
        is_clear = _is_number(self.pvalue) and self.pvalue <= 0.05
        return f"{super().__repr__()}{better('is better calibrated', self.estimate, is_clear)}"


def _difference(
    kernels: tuple[Kernel, ...], x: tuple[DataSet, ...], y: tuple[DataSet, ...]
) -> jax.Array:
    """Calibration kernel of the first model minus that of the second, if there is one."""
    one, other = map(sample_pair, kernels, x, y)
    return one - other


def _square(args: tuple[Any, jax.Array, jax.Array], x: tuple, y: tuple) -> jax.Array:
    """Square of the weighted deviation from U, in units of a scale."""
    kernels, size, estimate = args
    (one, weight), (other, its) = x, y
    return jnp.square(weight * its * (_difference(kernels, one, other) / size - estimate))


@jax.jit
def moments(
    kernels: tuple[Kernel, ...],
    samples: tuple[DataSet, ...],
    weights: jax.Array | None = None,
    clusters: Clusters | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Mean U of g over pairs, √v, and the degrees of freedom of U / √v; None for a normal one.

    Computed in units of the largest row mean, because squares of tiny numbers underflow.
    """
    if clusters is not None:
        rows, share, n = cluster_means(_difference, kernels, samples, clusters)
        size = unit_of(rows)
        estimate = jnp.sum(share * rows / size)
        error = _jackknife_error(rows / size, share, n, estimate)
        rounding = 100 * jnp.finfo(rows.dtype).eps * jnp.square(estimate)
        is_scattered = jnp.square(error * (n - 2)) > 4 * (n - 1) * rounding
        return size * estimate, size * jnp.where(is_scattered, error, 0), n - 1
    sums, masses = _sums_of_others(_difference, kernels, samples, weights)
    n = jnp.sum(masses)
    rows = sums / (n - 1)
    size = unit_of(jnp.where(masses > 0, rows, 0))
    rows = rows / size
    estimate = jnp.sum(masses * rows) / n
    rounding = 100 * jnp.finfo(rows.dtype).eps * jnp.square(estimate)
    args, points = (kernels, size, estimate), (samples, masses)
    shares = masses.size * (masses.size - 1.0) / (n * (n - 1))
    of_pairs = shares * operators.mean_over_pairs(_square, args, points)
    of_pairs = jnp.where(of_pairs > rounding, of_pairs, 0)
    # Row i has all samples except i.
    deviations = masses * (rows - estimate * (n - masses) / (n - 1))
    spread = jnp.sum(jnp.square(deviations)) / (n - 1)
    spread = jnp.where(spread > rounding, spread, 0) * ((n - 1) ** 2 / (n - 2))
    of_rows = jnp.maximum(spread - of_pairs, 0) / (n - 4)
    variance = (4 * (n - 2) * of_rows + 2 * of_pairs) / (n * (n - 1.0))
    return size * estimate, size * jnp.sqrt(variance), None


def _kernel(name: str, kernel: Kernel, seen: Seen) -> Kernel:
    """Kernel before it is checked against the predictions of a model."""
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

    where S² is the variance of the row means. Without the maximum v is unbiased. z is close to
    standard normal if one of the models is miscalibrated. If both are calibrated, the test rejects
    too rarely (1 to 3 % at level 5 %). z is zero if U is a rounding error, or if all g_ij are
    equal, whose scatter is unknown.

    With weights U is the weighted mean over pairs i ≠ j. With n = (Σ_i w_i)² / Σ_i w_i², and w
    scaled to n = Σ_i w_i,

        σ² = Σ_{i≠j} w_i² w_j² (g_ij − U)² / (n (n − 1)),
        S² = Σ_i w_i² (Σ_{j≠i} w_j (g_ij − U))² / (n − 1)³.

    With clusters, g_ab is the mean of g over the pairs of a sample from cluster a and one from b,
    and U the mean of g_ab over a ≠ b. The jackknife over G clusters gives v = 4 (G − 1)² S² / (G (G
    − 2)²), and z has Student's distribution with G − 1 degrees of freedom. This v counts σ² twice:
    with two calibrated models the test rejects even more rarely.

    The SKCE depends on the predictions of a model: of two models with the same errors, the one with
    more similar predictions has the larger SKCE. Compare a proper score as well: a model can be
    better calibrated because its predictions are less informative.

    Args:
        kernel: kernel on pairs (prediction, target), the same for both models.
        predictions: batch of n ≥ 5 distributions of the first model.
        others: batch of n distributions of the second model for the same targets, possibly of
            another family.
        targets: [n] or [n, d].
        alternative: "two-sided"; "greater" if the first model is worse calibrated, "less" if it is
            better calibrated.
        weights: w ≥ 0 of the samples, [n], effectively at least 5; they may be correlated with
            errors.
        clusters: for dependent samples, integers that are equal within clusters, as in
            `cluster_skce_test`, [n]; weights then count within clusters.

    Returns:
        The result; `statistic` is z, `estimate` is U = SKCE_u − SKCE'_u. Its string names the
        better calibrated model if p ≤ 0.05.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or the option are wrong, n < 5, or there are fewer than 10
            clusters; too few traced weights or clusters give NaN.
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
    groups = None if clusters is None else clusters_of(clusters, floating_dtype(samples), weights)
    weights = _enough(weights) if groups is None and weights is not None else weights
    return _tested_difference(kernels, samples, weights, groups, alternative)


@functools.partial(jax.jit, static_argnums=4)
def _tested_difference(
    kernels: tuple[Kernel, ...],
    samples: tuple[DataSet, ...],
    weights: jax.Array | None,
    groups: Clusters | None,
    alternative: str,
) -> SKCEDifference:
    """Checked `skce_difference`."""
    estimate, error, freedom = moments(kernels, samples, weights, groups)
    sizes = sum(map(jnp.abs, map(diagonal, kernels, samples)))  # of h of both models
    rounding = 32 * jnp.finfo(estimate.dtype).eps * jnp.mean(sizes)
    is_known = (jnp.abs(estimate) > rounding) & (error > 0)
    z = estimate / jnp.where(is_known, error, 1)
    statistic = checks.nan_with(jnp.where(is_known, z, 0), (estimate, error))
    towards = -statistic if alternative == "less" else statistic
    pvalue = pvalue_of(towards, freedom, two_sided=alternative == "two-sided")
    return SKCEDifference(statistic, pvalue, estimate)


def _enough(weights: jax.Array) -> jax.Array:
    """Weights of effectively at least `MINIMUM` samples."""
    number = jnp.sum(weights)
    least = MINIMUM * (1 - 8 * jnp.finfo(weights.dtype).eps)
    if checks.is_concrete(weights) and number < least:
        expected = f"effectively at least {MINIMUM} samples, (Σ w)² / Σ w²"
        raise ValueError(f"weights: expected {expected}, got {number:.3g}")
    return jnp.where(number >= least, weights, jnp.nan)
