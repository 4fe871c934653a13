"""Tests that rely on the large-sample distribution of an estimator."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.batches import in_batches
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.centering import centered_diagonal, diagonal, row_means, squared_pair
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.simulation import checked_batch_size, multinomial_counts
from calibjax.kernels import Kernel

VARIANCES = ("blocks", "pairs")


@functools.partial(jax.jit, static_argnames=("num_draws", "batch_size"))
def _bootstrap(
    key: jax.Array, kernel: Kernel, samples: DataSet, *, num_draws: int, batch_size: int
) -> tuple[jax.Array, jax.Array]:
    """Unbiased SKCE, and bootstrap draws of n SKCE, [num_draws]."""
    estimate = operators.mean_over_pairs(sample_pair, kernel, samples)
    n = checks.leading_size("samples", samples)
    centered = centered_diagonal(diagonal(kernel, samples), row_means(kernel, samples))

    def batch(keys: jax.Array) -> jax.Array:
        counts = multinomial_counts(keys, n).astype(estimate.dtype)
        # Σ_kl c_k c_l h̃_kl = Σ_kl (c_k − 1) (c_l − 1) h_kl, since the counts add up to n.
        forms = operators.quadratic_forms(sample_pair, kernel, samples, counts - 1)
        return (forms - matmul(centered, counts)) / n

    return estimate, in_batches(key, batch, num_draws, batch_size)


def bootstrap_skce_test(
    key: jax.Array,
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the unbiased SKCE and a bootstrap null distribution.

    The null distribution of n SKCE_u is approximated by resampling the data with replacement,

        T_b = (2 / n) Σ_{i<j} h̃(X*_i, X*_j),
        h̃(x, x') = h(x, x') − n⁻¹ Σ_k h(x, X_k) − n⁻¹ Σ_k h(X_k, x') + n⁻² Σ_kl h(X_k, X_l).

    For small n the test is far off its level: in W21's models with n = 4 it rejects about 14 %
    (d = 1) or 0.2 % (d = 10) of calibrated data sets at level 5 %; with d = 10 still only 1 % at
    n = 64. It detects shifted predictions, but hardly any that are too narrow or too wide: it
    rejects 5 to 7 % of these where `exact_skce_test` rejects 93 to 99 %
    (`experiments.sensitivity`). Prefer `exact_skce_test`, which holds its level for every n.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        num_draws: B, number of resamples; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of resamples that are evaluated at once, which bounds the memory
            (n numbers each). By default all of them if they need at most 128 MB.

    Returns:
        The result; `statistic` is n SKCE_u, `estimate` is SKCE_u, p = (1 + #{T_b ≥ T}) / (B + 1).

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or n < 2.
        NotImplementedError: if the expectations have no closed form.

    Cost: per batch n²/2 evaluations of h; B n² / 2 multiplications in matrix products; memory
    O(n batch_size + tile²).

    References: W19 App. G (the formula, with 2/n in T_b but 2/(n − 1) in n SKCE_u, as here); W21
    Remark B.2; Arcones and Giné (1992).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.arange(64.0) / 8, jnp.full(64, 0.1))
    >>> test = hypothesis_tests.bootstrap_skce_test(
    ...     jax.random.key(0), kernel, predictions, predictions.loc + 0.5
    ... )
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """
    key = checks.random_key(key)
    num_draws = checks.number_of_draws("num_draws", num_draws)
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=2)
    n = checks.leading_size("predictions", samples[0])
    batch_size = checked_batch_size(batch_size, n)
    estimate, null_samples = _bootstrap(
        key, kernel, samples, num_draws=num_draws, batch_size=batch_size
    )
    return simulated_result(n * estimate, null_samples, estimate, draws="resamples")


def block_skce_test(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    block_size: int,
    variance: str = "blocks",
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the block estimator of the SKCE.

    With m = ⌊n/B⌋ blocks and their unbiased estimates η_b, under calibration z = √m mean(η) / σ̂ is
    approximately standard normal, and p = P(N(0, 1) ≥ z). There are two estimates of the standard
    deviation σ of a block estimate; the second holds for calibrated models only:

        "blocks"  σ̂² = Σ_b (η_b − mean(η))² / (m − 1),
        "pairs"   σ̂² = mean of h² over the pairs within blocks / (B (B − 1) / 2).

    The approximation requires many blocks. With two blocks of two, "blocks" rejects 10 to 13 % of
    calibrated data sets at level 5 % in W21's models, and "pairs" none, since z ≤ √2. With large
    blocks, B = √n, "blocks" rejects too rarely, 2 to 3 % at n = 1024; "pairs", which averages over
    more numbers, is closer to the level. Both detect the same errors as `bootstrap_skce_test`, with
    much less power. Prefer `exact_skce_test` unless more than n B / 2 pairs are too expensive.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        block_size: B, 2 ≤ B ≤ n / 2.
        variance: "blocks" or "pairs", the estimate of σ².

    Returns:
        The result; `statistic` is z, `estimate` the block estimate of the SKCE.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or the option are wrong, there are fewer than two blocks, or
            all block estimates are equal up to rounding, which says nothing about their variance,
            with either estimate of it (then the result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: n B / 2 evaluations of h, twice as many with "pairs"; O(n + tile²) memory.

    References: W21 Remark B.1; W19 Corollary G.1 (B = 2).

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.5, 0.9, 8))
    >>> targets = jnp.array([0, 0, 1, 0, 0, 1, 0, 0])
    >>> test = hypothesis_tests.block_skce_test(kernel, predictions, targets, block_size=2)
    >>> print(f"{test.statistic:.3f} {test.pvalue:.3f}")
    0.669 0.252
    """
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=4)
    num_samples = checks.leading_size("predictions", samples[0])
    block_size = checks.size_in_range("block_size", block_size, 2, num_samples // 2)
    variance = checks.choice("variance", variance, VARIANCES)
    blocks = operators.block_means(sample_pair, kernel, samples, block_size=block_size)
    estimate = blocks.mean()
    # Squares of very large or small numbers overflow or vanish.
    size = jnp.max(jnp.abs(blocks))
    size = jnp.where(size > 0, size, 1)
    spread = jnp.std(blocks / size, ddof=1)
    spread = jnp.where(spread > 100 * jnp.finfo(blocks.dtype).eps, spread, jnp.nan)
    if checks.is_concrete(spread) and np.isnan(spread):
        raise ValueError(
            f"predictions, targets: expected block estimates that differ, got {blocks.shape[0]} "
            f"blocks that are all {estimate} up to rounding"
        )
    if variance == "pairs":
        args = kernel, size
        squares = operators.block_means(squared_pair, args, samples, block_size=block_size).mean()
        # The blocks still say whether there is any variance at all.
        spread = jnp.where(jnp.isnan(spread), spread, jnp.sqrt(squares / math.comb(block_size, 2)))
    statistic = jnp.sqrt(blocks.shape[0]) * (estimate / size) / spread
    pvalue = jnp.maximum(norm.sf(statistic), jnp.finfo(statistic.dtype).tiny)  # never zero
    return CalibrationTestResult(statistic, pvalue, estimate)
