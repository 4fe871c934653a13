"""A test and a confidence interval that hold for every distribution of the data."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.intervals import ConfidenceInterval, checked_options
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs

ESTIMATORS = ("biased", "unbiased", "block")


def calibration_kernel_bound(kernel: Kernel) -> jax.Array | float:
    """Bound B ≥ sup |h| of the calibration kernel, computed from the kernel.

        B = sup k_P sup_{y,z} [k_Y(y, y) + k_Y(z, z) − 2 k_Y(y, z)] for a tensor product,

    since h is an inner product of two elements with squared norms
    k_P(p, p) [k_Y(y, y) − 2 m_p(y) + M_{p,p}], which are convex in p and so largest for a
    prediction that is sure of another target. The second supremum is 2 for the white kernel,
    known for a label matrix, and otherwise bounded by 2 (sup k_Y − inf k_Y). Sums and multiples
    combine the bounds of their parts.

    W19's B_{p;q} = 2^{1 + 1/p − 1/q} sup ‖k(s, t)‖_{p;q} needs two exponents, which are not
    arguments here: each B_{p;q} bounds the same |h| from above, so that none is below sup |h|, and
    B equals sup |h| for a tensor product with the white kernel or a label matrix if predictions
    that are sure attain sup k_P. With the white kernel B is B_{p;p}; with more than two classes all
    others are larger (W19 Example H.1). For sums of tensor products a smaller bound may exist; the
    test and the interval take it as `bound`.

    Args:
        kernel: kernel on pairs (prediction, target).

    Returns:
        The bound, a scalar.

    Raises:
        NotImplementedError: if no bound is known for a part of the kernel.

    References: W19 Lemma H.1 for classes, where B = 2 sup k_P with the white kernel.

    >>> from calibjax import hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(3.0 * kernels.Exponential(), kernels.White())
    >>> print(hypothesis_tests.calibration_kernel_bound(kernel))
    6.0
    """
    return _bound(checks.kernel_values(kernel))


def _bound(kernel: Kernel) -> jax.Array | float:
    return combine_on_pairs(kernel, "calibration_kernel_bound", lambda bound: bound())


def _num_pairs(n: int, block_size: int | None) -> int:
    """Number of independent pairs to whose mean Hoeffding's inequality applies."""
    return n // 2 if block_size is None else (n // block_size) * (block_size // 2)


class _Bounded(NamedTuple):
    """An estimate of the SKCE and what bounds its deviations.

    Attributes:
        estimate: the estimate.
        bound: B.
        size: the number of samples for the biased estimator, of independent pairs for the others.
    """

    estimate: jax.Array
    bound: jax.Array | float
    size: int


def _bounded_estimate(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    estimator: str,
    block_size: int | None,
    bound: jax.Array | float | None,
) -> _Bounded:
    checks.choice("estimator", estimator, ESTIMATORS)
    if (block_size is None) == (estimator == "block"):
        expected = "an integer" if estimator == "block" else "None"
        raise ValueError(
            f'block_size: expected {expected} with estimator="{estimator}", got {block_size}'
        )
    minimum = 1 if estimator == "biased" else 2
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=minimum)
    n = checks.leading_size("targets", samples[1])
    if bound is None:
        bound = _bound(kernel)
        if checks.is_concrete(bound) and bound == 0:
            raise ValueError(
                "kernel: expected a calibration kernel that is not zero for all samples, got one "
                "whose target kernel is constant"
            )
    largest = checks.positive_scalar("bound", bound)
    if estimator == "biased":
        return _Bounded(operators.mean_over_all_pairs(sample_pair, kernel, samples), largest, n)
    if block_size is None:
        estimate = operators.mean_over_pairs(sample_pair, kernel, samples)
    else:
        size = checks.size_in_range("block_size", block_size, 2, n)
        estimate = operators.block_means(sample_pair, kernel, samples, block_size=size).mean()
    return _Bounded(estimate, largest, _num_pairs(n, block_size))


def distribution_free_skce_test(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    estimator: str = "biased",
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

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions (n ≥ 1 for the biased estimator).
        targets: [n] or [n, d].
        estimator: "biased", "unbiased" or "block".
        block_size: b, 2 ≤ b ≤ n, for the block estimator only; 2 is W19's linear estimator.
        bound: B, for a kernel whose bound is not known, or to use a smaller one. By default
            `calibration_kernel_bound`.

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
    estimate, largest, size = _bounded_estimate(
        kernel, predictions, targets, estimator, block_size, bound
    )
    if estimator == "biased":
        exceeded = safe_sqrt(size * jnp.maximum(estimate, 0) / largest) - 1
        exponent = jnp.square(jnp.maximum(exceeded, 0)) / 2
    else:
        exponent = size * jnp.square(jnp.maximum(estimate, 0) / largest) / 2
    pvalue = jnp.maximum(jnp.exp(-exponent), jnp.finfo(estimate.dtype).tiny)  # never zero
    return CalibrationTestResult(estimate, pvalue, estimate)


def distribution_free_skce_confidence_interval(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    estimator: str = "biased",
    block_size: int | None = None,
    bound: jax.Array | float | None = None,
    confidence_level: float = 0.95,
    side: str = "two-sided",
) -> ConfidenceInterval:
    """Confidence interval for the SKCE that holds for every n and every distribution.

    With B ≥ sup |h|, an estimate t of the SKCE and confidence level 1 − α,

        (√t ± r)²,  r = √(B / n) (1 + √(2 log(1 / α))),       biased, from 0 if √t < r,
        t ± B √(2 log(2 / α) / N),                            unbiased, N = ⌊n/2⌋,
                                                              blocks of b samples, N = ⌊n/b⌋ ⌊b/2⌋,

    with α in place of α / 2 for a lower limit of an unbiased estimate; that of the biased estimate
    is the same on both sides. Unlike `skce_confidence_interval` it covers the SKCE of calibrated
    models, too, at least as often as the level says, and it is many times wider. A lower limit is
    above zero where `distribution_free_skce_test` has p < α with the same estimator; so is that of
    the two-sided interval of the biased estimate.

    W19's Theorem H.1 has r with 2 in place of 1, from a symmetrization that is not needed: √t and
    √SKCE are the norms of the mean of n independent elements of a Hilbert space and of its
    expectation μ, and E‖mean − μ‖² ≤ B / n.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions (n ≥ 1 for the biased estimator).
        targets: [n] or [n, d].
        estimator: "biased", "unbiased" or "block".
        block_size: b, 2 ≤ b ≤ n, for the block estimator only; 2 is W19's linear estimator.
        bound: B, as for `distribution_free_skce_test`.
        confidence_level: 1 − α, in (0, 1).
        side: "two-sided", or "lower": a lower limit only.

    Returns:
        The interval, around the estimate and without a standard error.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, or there are too few samples.
        NotImplementedError: if the expectations have no closed form, or no bound is known and
            none is given.

    Cost: that of the estimator.

    References: W19 Theorems H.1, H.3 and H.4; McDiarmid (1989); Hoeffding (1963).

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> predictions = distributions.Bernoulli(jnp.full(100, 0.1))
    >>> interval = hypothesis_tests.distribution_free_skce_confidence_interval(
    ...     kernel, predictions, jnp.ones(100, int)
    ... )
    >>> print(f"{interval.low:.2f} {interval.estimate:.2f} {interval.high:.2f}")
    0.62 1.62 3.10
    """
    level, side = checked_options(confidence_level, side)
    estimate, largest, size = _bounded_estimate(
        kernel, predictions, targets, estimator, block_size, bound
    )
    is_halved = side == "two-sided" and estimator != "biased"
    tail = jnp.asarray((1 - level) / (2 if is_halved else 1), estimate.dtype)
    deviation = jnp.sqrt(-2 * jnp.log(tail))
    if estimator == "biased":
        root, reach = safe_sqrt(jnp.maximum(estimate, 0)), jnp.sqrt(largest / size)
        reach = reach * (1 + deviation)
        low, high = jnp.square(jnp.maximum(root - reach, 0)), jnp.square(root + reach)
    else:
        reach = largest * deviation / size**0.5
        low, high = estimate - reach, estimate + reach
    high = high if side == "two-sided" else jnp.full_like(estimate, jnp.inf)
    return ConfidenceInterval(low, high, estimate, None)
