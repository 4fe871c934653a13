"""Upper bounds of the p-value that hold for every distribution of the data."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import _checks, pairwise
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs

ESTIMATORS = ("biased", "unbiased", "block")


def calibration_kernel_bound(kernel: Kernel) -> jax.Array | float:
    """Bound B ≥ sup |h| of the calibration kernel, computed from the kernel.

        B = 2 sup k_P (sup k_Y − inf k_Y) for a tensor product,

    since h is an inner product of two elements with squared norms
    k_P(p, p) [k_Y(y, y) − 2 m_p(y) + M_{p,p}]. So B ≤ 2 sup k_P sup k_Y for a non-negative target
    kernel, and at most twice as much for any other. Sums and multiples combine the bounds of their
    parts.

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
    return _bound(_checks.kernel_values(kernel))


def _bound(kernel: Kernel) -> jax.Array | float:
    return combine_on_pairs(kernel, "calibration_kernel_bound", lambda bound: bound())


def _num_pairs(n: int, block_size: int | None) -> int:
    """Number of independent pairs to whose mean Hoeffding's inequality applies."""
    return n // 2 if block_size is None else (n // block_size) * (block_size // 2)


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
    that the test has little power (none in `experiments.test_power`). `exact_skce_test` holds its
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
    _checks.choice("estimator", estimator, ESTIMATORS)
    if (block_size is None) == (estimator == "block"):
        expected = "an integer" if estimator == "block" else "None"
        raise ValueError(
            f'block_size: expected {expected} with estimator="{estimator}", got {block_size}'
        )
    minimum = 1 if estimator == "biased" else 2
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=minimum)
    n = _checks.leading_size("targets", samples[1])
    largest = _bound(kernel) if bound is None else bound
    largest = _checks.positive_scalar("bound", largest)
    if estimator == "biased":
        estimate = pairwise.mean_over_all_pairs(sample_pair, kernel, samples)
        exceeded = jnp.sqrt(n * jnp.maximum(estimate, 0) / largest) - 1
        exponent = jnp.square(jnp.maximum(exceeded, 0)) / 2
    else:
        if block_size is None:
            estimate = pairwise.mean_over_pairs(sample_pair, kernel, samples)
        else:
            size = _checks.size_in_range("block_size", block_size, 2, n)
            estimate = pairwise.block_means(sample_pair, kernel, samples, block_size=size).mean()
        num_pairs = _num_pairs(n, block_size)
        exponent = num_pairs * jnp.square(jnp.maximum(estimate, 0) / largest) / 2
    pvalue = jnp.maximum(jnp.exp(-exponent), jnp.finfo(estimate.dtype).tiny)  # never zero
    return CalibrationTestResult(estimate, pvalue, estimate)
