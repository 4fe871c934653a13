"""Confidence intervals of the SKCE, and its distribution-free bounds."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, safe_sqrt
from calibjax._core.environment import jit_long
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import StudentT
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import linear_row_sums
from calibjax.hypothesis_tests import ensembles
from calibjax.hypothesis_tests.asymptotic import diagonal, refuse_constant
from calibjax.hypothesis_tests.redraws import number_of
from calibjax.hypothesis_tests.result import CalibrationTestResult, _shown
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs
from calibjax.kernels.defaults import default_kernel
from calibjax.operators.plan import sample_pair

Estimator = Literal["biased", "unbiased", "block"]
Alternative = Literal["two-sided", "less", "greater"]


def _bound(kernel: Kernel) -> jax.Array | float:
    """Bound B ≥ sup |h| of the calibration kernel, computed from the kernel."""
    return combine_on_pairs(kernel, "calibration_kernel_bound", lambda bound: bound())


def _bounded(
    kernel: Kernel, samples: DataSet, estimator: Estimator, block_size: int | None, bound: Any
) -> tuple[jax.Array, jax.Array, int]:
    """The estimate, and what Hoeffding's or McDiarmid's inequality needs.

    That is B, and the number of samples for the biased estimator, of independent pairs for others.
    """
    if (block_size is None) == (estimator == "block"):
        expected = 'an integer with estimator="block", and None with others'
        raise ValueError(f"block_size: expected {expected}, got {block_size}")
    n = checks.leading_size("targets", samples[1])
    largest = checks.positive_scalar("bound", _bound(kernel) if bound is None else bound)
    if estimator == "biased":
        estimate = operators.mean_over_pairs(sample_pair, kernel, samples, include_diagonal=True)
        return estimate, largest, n
    if block_size is None:
        return operators.mean_over_pairs(sample_pair, kernel, samples), largest, n // 2
    size = checks.size_in_range("block_size", block_size, 2, n)
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
    that the test has little power (none in `experiments.sensitivity`). `exact_skce_test` holds its
    level, too.

    For a tensor product B = sup k_P sup_{y,z} [k_Y(y, y) + k_Y(z, z) − 2 k_Y(y, z)], because h is
    an inner product of two elements with squared norms k_P(p, p) [k_Y(y, y) − 2 m_p(y) + M_{p,p}],
    which are convex in p and so largest for a prediction that is sure of another target. The second
    supremum is 2 for the white kernel, known for a label matrix, and otherwise bounded by
    2 (sup k_Y − inf k_Y). Sums and multiples combine the bounds of their parts; a smaller one may
    exist. W19's B_{p;q} = 2^{1 + 1/p − 1/q} sup ‖k(s, t)‖_{p;q} bound the same |h|, and none of
    them is smaller than B for the white kernel or a label matrix (W19 Lemma H.1, Example H.1).

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        estimator: "biased", "unbiased" or "block".
        block_size: b, 2 ≤ b ≤ n, for the block estimator only; 2 is W19's linear estimator.
        bound: B, for a kernel whose bound is not known, or to use a smaller one. By default it is
            computed from the kernel as above.

    Returns:
        The result; `statistic` and `estimate` are the estimate of the SKCE, and `pvalue` is the
        bound of the p-value.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, or there are too few samples.
        NotImplementedError: if the expectations have no closed form, or no bound is known or
            given.

    Cost: that of the estimator.

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
    pvalue = jnp.maximum(jnp.exp(-exponent), jnp.finfo(estimate.dtype).tiny)  # never zero
    return CalibrationTestResult(estimate, pvalue, estimate)


def _limits(
    bounded: tuple[jax.Array, jax.Array, int], estimator: str, level: ArrayLike, alternative: str
) -> tuple[jax.Array, jax.Array]:
    """Both limits of the SKCE at a confidence level, or at the level of each alone."""
    estimate, largest, size = bounded
    is_halved = alternative == "two-sided" and estimator != "biased"
    deviation = jnp.sqrt(-2 * jnp.log(jnp.asarray((1 - level) / (1 + is_halved), estimate.dtype)))
    if estimator == "biased":
        root, reach = safe_sqrt(jnp.maximum(estimate, 0)), jnp.sqrt(largest / size)
        reach = reach * (1 + deviation)
        return jnp.square(jnp.maximum(root - reach, 0)), jnp.square(root + reach)
    reach = largest * deviation / size**0.5
    return estimate - reach, estimate + reach


@record
class ConfidenceInterval:
    """Confidence interval for the SKCE.

    Attributes:
        low: lower limit; it may be negative, like the estimate.
        high: upper limit; infinity if only a lower limit was requested.
        estimate: estimate of the SKCE, unbiased unless another one was asked for.
        standard_error: estimate of the standard deviation of the estimate; None for a
            distribution-free interval, which has none.
        effective_size: number of samples (or clusters) that the standard error rests on: n, and
            (Σ_i w_i)² / Σ_i w_i² with weights; None where it is not of the SKCE.

    It prints as one line.
    """

    low: jax.Array
    high: jax.Array
    estimate: jax.Array
    standard_error: jax.Array | None
    effective_size: jax.Array | int | None = None

    def __repr__(self) -> str:
        """The numbers; arrays are shown by their shapes."""
        error = "" if self.standard_error is None else f" ± {_shown(self.standard_error)}"
        limits = f"low={_shown(self.low)}, high={_shown(self.high)}"
        return f"{type(self).__name__}({_shown(self.estimate)}{error}, {limits})"


@jit_long
def _jackknife(
    kernel: Kernel, samples: DataSet, weights: Any, clusters: ensembles.Clusters | None, sums: Any
) -> tuple[jax.Array, jax.Array]:
    """SKCE_u, without pairs within clusters if there are any, and its jackknife standard error.

    The sums are those of h over the other samples, [n], if they are known.
    """
    if clusters is None:
        n = number_of(samples[0], weights)
        if sums is None:
            entries = diagonal(kernel, samples)
            masses = jnp.ones_like(entries) if weights is None else weights
            data = kernel, samples, samples, masses[:, None]
            sums = operators.weighted_sums(sample_pair, *data)[:, 0] - masses * entries
        masses = jnp.ones_like(sums) if weights is None else weights
        others = n - masses
        rows = sums / others  # means over the other samples
        # Of n (n − 1) pairs, with weights, those of sample i are its own twice.
        share = masses * others / (n * (n - 1.0))
        estimate = jnp.sum(share * rows)
    else:
        n = clusters.number.astype(clusters.weights.dtype)  # its square overflows as an integer
        rows, is_row = ensembles.cluster_means(ensembles.pair_apart, kernel, samples, clusters)
        estimate = jnp.sum(rows) / n
        share = jnp.where(is_row, 1 / n, 0)
    # Without row i the estimate is (U − 2 s_i r_i) / (1 − 2 s_i), with its share s_i of all pairs.
    deviations = 2 * share * (estimate - rows) / (1 - 2 * share)
    error = jnp.sqrt((n - 1) / n * jnp.sum(jnp.square(deviations)))
    # A rounding error, because all samples are equal, is no standard error.
    rounding = 100 * jnp.finfo(error.dtype).eps * jnp.max(jnp.abs(rows))
    return estimate, jnp.where(error > rounding, error, jnp.nan)


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
    alternative: Alternative = "two-sided",
) -> ConfidenceInterval:
    """Confidence interval for the SKCE.

    - "asymptotic", the default, for models that are not calibrated: under misspecification
      √n (SKCE_u − SKCE) → N(0, 4 ζ_1) with ζ_1 the variance of E[h(X, X') | X], and the interval is
      SKCE_u ± z √(4 ζ̂_1 / n) with the jackknife estimate

          4 ζ̂_1 / n = (n − 1) / n Σ_i (U_{−i} − mean)²,   U_{−i} = SKCE_u without sample i.

      For a calibrated model ζ_1 = 0, the estimate is of order 1 / n and not normal, and the
      interval does not have its nominal coverage: to decide whether there is any miscalibration,
      use a test.

    - "distribution_free", for every n and every distribution, calibrated or not: it covers the SKCE
      at least as often as the level says, and is many times wider. With B ≥ sup |h|, an estimate t
      and confidence level 1 − α,

          (√t ± r)²,  r = √(B / n) (1 + √(2 log(1 / α))),     biased, from 0 if √t < r,
          t ± B √(2 log(2 / α) / N),                          unbiased, N = ⌊n/2⌋,
                                                              blocks of b samples, N = ⌊n/b⌋ ⌊b/2⌋,

      with α in place of α / 2 for one limit of an unbiased estimate; those of the biased estimate
      do not change. A lower limit is above zero where `distribution_free_skce_test` has p < α with
      the same estimator. W19's Theorem H.1 has r with 2 in place of 1, from a symmetrization that
      is not needed: √t and √SKCE are the norms of the mean of n independent elements of a Hilbert
      space and of its expectation μ, and E‖mean − μ‖² ≤ B / n.

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 3 distributions.
        targets: [n] or [n, d].
        method: "asymptotic" or "distribution_free"; each takes its own options only.
        weights: for "asymptotic" w ≥ 0 of the samples, [n]; U_{−i} is then without the weight of
            sample i, which is right for weights that have to do with the values as well, and n in
            the factor is the effective number of samples (Σ_i w_i)² / Σ_i w_i².
        clusters: for "asymptotic" and dependent samples, integers that are equal within clusters,
            as in `cluster_skce_test`, [n]: the estimate then leaves out pairs within clusters,
            clusters take the place of samples in the jackknife, and z is the quantile of Student's
            distribution with G − 1 degrees of freedom. Of shifted normals in clusters of 4 with
            correlation 0.5 the 95 % interval covers the SKCE in 90 % of the data sets with 10
            clusters, in 93 % with 30 and in 95 % with 100.
        estimator: for "distribution_free": "biased", "unbiased" or "block".
        block_size: b, 2 ≤ b ≤ n, for the block estimator only; 2 is W19's linear estimator.
        bound: B for "distribution_free", as for `distribution_free_skce_test`.
        confidence_level: 1 − α, in (0, 1).
        alternative: "two-sided"; "greater" for a lower limit only, "less" for an upper one.

    Returns:
        The interval, around the estimate; a distribution-free one has no standard error.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, an option is not one of the method,
            there are too few samples or fewer than 10 clusters, or all samples are equal, so that
            there is no standard error (then the result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form, or no bound is known and
            none is given.

    Cost: n² evaluations of h, O(n + tile²) memory; of known values (outside of `jit`) linear
    time where `estimators.skce` has it, and O(n r) memory for r features of the target kernel. For
    "distribution_free" that of the estimator.

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
        raise ValueError(f'method: expected "{method}" without options of the other one')
    kernel, samples = kernel or default_kernel(predictions), (predictions, targets)
    if method == "distribution_free":
        bounded = _bounded(kernel, samples, estimator, block_size, bound)
        limits = _limits(bounded, estimator, confidence_level, alternative)
        return _interval(*limits, bounded[0], None, alternative)
    groups = None
    if clusters is not None:
        groups = ensembles.clusters_of(clusters, floating_dtype(samples), weights)
    sums = linear_row_sums(kernel, samples, weights) if groups is None else None
    estimate, error = _jackknife(kernel, samples, weights, groups, sums)
    refuse_constant(error, estimate)
    data = estimate, error, confidence_level, groups
    interval = asymptotic_interval(*data, alternative=alternative)
    size = number_of(predictions, weights) if groups is None else groups.number
    return dataclasses.replace(interval, effective_size=size)


def _interval(
    low: jax.Array, high: jax.Array, estimate: jax.Array, error: Any, alternative: str
) -> ConfidenceInterval:
    """The interval from its limits, of which one-sided ones have only one."""
    low = jnp.full_like(estimate, -jnp.inf) if alternative == "less" else low
    high = jnp.full_like(estimate, jnp.inf) if alternative == "greater" else high
    return ConfidenceInterval(low, high, estimate, error)


@functools.partial(jax.jit, static_argnames="alternative")
def asymptotic_interval(
    estimate: jax.Array,
    error: jax.Array,
    level: ArrayLike,
    clusters: ensembles.Clusters | None = None,
    *,
    alternative: str = "two-sided",
) -> ConfidenceInterval:
    """The interval of a normal estimate, for G clusters of Student's with G − 1 degrees."""
    tail = jnp.asarray((1 - level) / (2 if alternative == "two-sided" else 1), estimate.dtype)
    if clusters is None:
        reach = -ndtri(tail) * error
    else:
        freedom = (clusters.number - 1).astype(tail.dtype)
        student = StudentT(freedom, jnp.zeros_like(tail), jnp.ones_like(tail))
        reach = -student.icdf(tail) * error
    return _interval(estimate - reach, estimate + reach, estimate, error, alternative)
