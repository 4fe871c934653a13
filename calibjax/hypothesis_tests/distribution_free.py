"""A test and limits of the SKCE that hold for every distribution of the data."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel
from calibjax.kernels.base import combine_on_pairs
from calibjax.kernels.defaults import default_kernel

ESTIMATORS = ("biased", "unbiased", "block")


def _bound(kernel: Kernel) -> jax.Array | float:
    """Bound B ≥ sup |h| of the calibration kernel, computed from the kernel."""
    return combine_on_pairs(kernel, "calibration_kernel_bound", lambda bound: bound())


def _num_pairs(n: int, block_size: int | None) -> int:
    """Number of independent pairs to whose mean Hoeffding's inequality applies."""
    return n // 2 if block_size is None else (n // block_size) * (block_size // 2)


class Bounded(NamedTuple):
    """An estimate of the SKCE and what bounds its deviations.

    Attributes:
        estimate: the estimate.
        bound: B.
        size: the number of samples for the biased estimator, of independent pairs for the others.
    """

    estimate: jax.Array
    bound: jax.Array | float
    size: int


def bounded_estimate(
    kernel: Kernel | None,
    predictions: Distribution,
    targets: ArrayLike,
    estimator: str,
    block_size: int | None,
    bound: jax.Array | float | None,
) -> Bounded:
    """The checked estimate, and what Hoeffding's or McDiarmid's inequality needs."""
    checks.choice("estimator", estimator, ESTIMATORS)
    kernel = default_kernel(predictions) if kernel is None else kernel
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
        estimate = operators.mean_over_pairs(sample_pair, kernel, samples, include_diagonal=True)
        return Bounded(estimate, largest, n)
    if block_size is None:
        estimate = operators.mean_over_pairs(sample_pair, kernel, samples)
    else:
        size = checks.size_in_range("block_size", block_size, 2, n)
        estimate = operators.block_means(sample_pair, kernel, samples, block_size=size).mean()
    return Bounded(estimate, largest, _num_pairs(n, block_size))


def distribution_free_skce_test(
    kernel: Kernel | None,
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

    For a tensor product B = sup k_P sup_{y,z} [k_Y(y, y) + k_Y(z, z) − 2 k_Y(y, z)], because h is
    an inner product of two elements with squared norms k_P(p, p) [k_Y(y, y) − 2 m_p(y) + M_{p,p}],
    which are convex in p and so largest for a prediction that is sure of another target. The second
    supremum is 2 for the white kernel, known for a label matrix, and otherwise bounded by
    2 (sup k_Y − inf k_Y). Sums and multiples combine the bounds of their parts; a smaller one may
    exist. W19's B_{p;q} = 2^{1 + 1/p − 1/q} sup ‖k(s, t)‖_{p;q} bound the same |h|, and none of
    them is smaller than B for the white kernel or a label matrix (W19 Lemma H.1, Example H.1).

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 2 distributions (n ≥ 1 for the biased estimator).
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
    estimate, largest, size = bounded_estimate(
        kernel, predictions, targets, estimator, block_size, bound
    )
    if estimator == "biased":
        exceeded = safe_sqrt(size * jnp.maximum(estimate, 0) / largest) - 1
        exponent = jnp.square(jnp.maximum(exceeded, 0)) / 2
    else:
        exponent = size * jnp.square(jnp.maximum(estimate, 0) / largest) / 2
    pvalue = jnp.maximum(jnp.exp(-exponent), jnp.finfo(estimate.dtype).tiny)  # never zero
    return CalibrationTestResult(estimate, pvalue, estimate)


def distribution_free_limits(
    bounded: Bounded, estimator: str, level: ArrayLike, *, two_sided: bool
) -> tuple[jax.Array, jax.Array]:
    """Both limits of the SKCE at a confidence level, or at the level of each alone."""
    estimate, largest, size = bounded
    is_halved = two_sided and estimator != "biased"
    deviation = jnp.sqrt(-2 * jnp.log(jnp.asarray((1 - level) / (1 + is_halved), estimate.dtype)))
    if estimator == "biased":
        root, reach = safe_sqrt(jnp.maximum(estimate, 0)), jnp.sqrt(largest / size)
        reach = reach * (1 + deviation)
        return jnp.square(jnp.maximum(root - reach, 0)), jnp.square(root + reach)
    reach = largest * deviation / size**0.5
    return estimate - reach, estimate + reach
