"""Tests with the asymptotic null distribution of the unbiased SKCE, from its weights or moments.

Under calibration n SKCE_u → Σ_i λ_i (z_i² − 1), z_i ~ N(0, 1), where the λ_i are the eigenvalues of
the integral operator of the calibration kernel h. They are estimated by the eigenvalues of H̃ / n,
with the centered matrix H̃ of h. The bootstrap test draws from the same distribution by resampling.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import checked_samples, sample_matrix, sample_pair
from calibjax.hypothesis_tests import chi_squared
from calibjax.hypothesis_tests.centering import (
    centered_diagonal,
    centered_mean_square,
    centered_product,
    diagonal,
    row_means,
)
from calibjax.hypothesis_tests.chi_squared import ChiSquaredSum
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.kernels import Kernel

NUM_EIGENVALUES = 64
_DENSE = 8  # with fewer than this many samples per eigenvalue all of them are computed
_ITERATIONS = 3  # products with the matrix in the search for the leading eigenvalues
METHODS = ("simulation", "numerical")


def _orthonormal(vectors: jax.Array) -> jax.Array:
    """Orthonormal basis of the columns of a tall matrix [n, r], padded with zeros below full rank.

    Uses the r × r matrix of inner products, which is much faster than a QR factorization.
    """
    values, basis = jnp.linalg.eigh(matmul(vectors.T, vectors))
    least = vectors.shape[1] * jnp.finfo(vectors.dtype).eps * values[-1]
    inverse = jnp.where(values > least, lax.rsqrt(jnp.maximum(values, least)), 0)
    return matmul(vectors, basis * inverse)


def _leading_eigenvalues(
    kernel: Kernel, samples: DataSet, num_eigenvalues: int, dtype: DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """Leading eigenvalues [r] of H̃ / n by subspace iteration, and the row means [n].

    The remainder of the sum of squares goes into the normal variable, so convergence matters
    little.
    """
    n = checks.leading_size("samples", samples)
    vectors = jax.random.normal(jax.random.key(0), (n, num_eigenvalues), dtype)
    for _ in range(_ITERATIONS - 1):
        product, _ = centered_product(kernel, samples, vectors)
        vectors = _orthonormal(_orthonormal(product))  # the second time to full precision
    product, rows = centered_product(kernel, samples, vectors)
    return jnp.linalg.eigvalsh(matmul(vectors.T, product))[::-1] / n, rows


def _all_eigenvalues(kernel: Kernel, samples: DataSet) -> tuple[jax.Array, jax.Array]:
    """All eigenvalues [n] of H̃ / n from the matrix itself, and the row means [n]."""
    matrix = sample_matrix(kernel, samples)
    rows = matrix.mean(0)
    centered = matrix - rows - rows[:, None] + rows.mean()
    return jnp.linalg.eigvalsh(centered)[::-1] / rows.shape[0], rows


@functools.partial(jax.jit, static_argnames="num_eigenvalues")
def _null(
    kernel: Kernel, samples: DataSet, *, num_eigenvalues: int
) -> tuple[jax.Array, jax.Array, ChiSquaredSum]:
    """Statistic n SKCE_u, estimate SKCE_u, and the null distribution of the statistic."""
    n = checks.leading_size("samples", samples)
    entries = diagonal(kernel, samples)
    if num_eigenvalues == 0:
        weights, rows = jnp.zeros(0, entries.dtype), row_means(kernel, samples)
    elif n < _DENSE * num_eigenvalues:
        weights, rows = _all_eigenvalues(kernel, samples)
    else:
        weights, rows = _leading_eigenvalues(kernel, samples, num_eigenvalues, entries.dtype)
    estimate = (n * rows.mean() - entries.mean()) / (n - 1)
    total = jnp.mean(centered_diagonal(entries, rows))
    squares = centered_mean_square(kernel, samples, rows)
    # Only kernels that are not positive semi-definite have negative weights, which go to the rest.
    weights = jnp.maximum(weights, 0)
    # Without variance there is no null distribution.
    rounding = 100 * jnp.finfo(squares.dtype).eps * jnp.square(jnp.max(jnp.abs(entries))) / n
    squares = jnp.where(squares > rounding, squares, jnp.nan)
    statistic = jnp.where(jnp.isnan(squares), jnp.nan, n * estimate)
    return statistic, estimate, ChiSquaredSum(weights, total, squares)


@functools.partial(jax.jit, static_argnames="block_size")
def _of_blocks(kernel: Kernel, samples: DataSet, *, block_size: int) -> tuple[jax.Array, jax.Array]:
    """Statistic s B SKCE_{k,B} of s blocks of B samples, and estimate SKCE_{k,B}."""
    blocks = operators.block_means(sample_pair, kernel, samples, block_size=block_size)
    return block_size * blocks.sum(), blocks.mean()


def _checked_null(
    kernel: Kernel, samples: DataSet, num_eigenvalues: int
) -> tuple[jax.Array, jax.Array, ChiSquaredSum]:
    """`_null` of checked samples; raises a ValueError where there is no null distribution."""
    statistic, estimate, law = _null(kernel, samples, num_eigenvalues=num_eigenvalues)
    if checks.is_concrete(law.squares) and np.isnan(law.squares):
        raise ValueError(
            "predictions, targets: expected samples that differ, got a calibration kernel that "
            f"is constant on all pairs up to rounding (SKCE {estimate})"
        )
    return statistic, estimate, law


def _analytic_result(
    statistic: jax.Array, estimate: jax.Array, law: ChiSquaredSum, tail: Callable
) -> CalibrationTestResult:
    # A p-value that underflows is not zero.
    pvalue = jnp.maximum(tail(law, statistic), jnp.finfo(statistic.dtype).tiny)
    return CalibrationTestResult(statistic, pvalue, estimate)


def spectrum_skce_test(
    key: jax.Array,
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_draws: int = 999,
    num_eigenvalues: int = NUM_EIGENVALUES,
    method: str = "simulation",
    block_size: int | None = None,
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the unbiased SKCE and the spectrum of its kernel.

    Under calibration n SKCE_u → Σ_i λ_i (z_i² − 1), z_i ~ N(0, 1). The λ_i are estimated by the
    leading eigenvalues of the centered matrix H̃ / n; the others are represented by one normal
    variable of the same variance, which is known exactly from the sum of all squares, ‖H̃‖² / n².
    Compared with all eigenvalues, this changes p-values by less than 1e-4 at the default of r = 64.
    With n < 8 r all eigenvalues are computed.

    Its p-values are close to those of the bootstrap, within 0.03 for n = 300. Like every
    asymptotic test it is off its level for small n, and like the bootstrap, gamma and Pearson tests
    it hardly detects predictions that are too narrow or too wide; prefer `exact_skce_test`.

    With blocks of B samples, the mean SKCE_{k,B} of their s = ⌊n/B⌋ unbiased estimates takes the
    place of SKCE_u. For a fixed number of them, under calibration

        s B SKCE_{k,B} → Σ_i λ_i (Z_i − s),   Z_i ~ χ²_s,

    with the λ_i of all n samples. It has s times the variance for nearly the same cost, so that it
    has less power. Unlike `block_skce_test` it needs large blocks and not many of them. Of 2000
    calibrated data sets of W21's model with d = 1, it rejects 4.2, 4.5 and 6.7 % at level 5 % with
    2, 4 and 16 blocks of n = 64 samples, 5.1, 4.5 and 5.2 % of n = 256; with d = 10 it rejects 1.5,
    1.3 and 1.7 %, and 4.3, 4.0 and 3.8 % (one block: 4.5, 4.8, 1.7, 4.3 %), with standard errors
    of 0.3 to 0.6 %.

    Args:
        key: a JAX random key; without effect if the method is "numerical".
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        num_draws: B, number of draws from the null distribution; without effect if the method
            is "numerical".
        num_eigenvalues: r ≥ 1, number of leading eigenvalues.
        method: "simulation", p = (1 + #{T_b ≥ T}) / (B + 1), or "numerical": the tail probability
            itself, by inversion of the characteristic function, with an absolute error of about
            1e-9 (1e-5 in float32), and a small relative error even for small probabilities.
        block_size: B, 2 ≤ B ≤ n, number of samples in a block; None for one block of all samples.

    Returns:
        The result; `statistic` is n SKCE_u, `estimate` is SKCE_u (of blocks s B SKCE_{k,B} and
        SKCE_{k,B}), `null_samples` is None if the method is "numerical".

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, n < 2, or h is constant on all pairs
            (then the result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: 3.5 n² evaluations of h and 6 n² r operations in matrix products, memory O(n r + tile²);
    with n < 8 r the matrix itself, n² numbers, and O(n³). Then s r draws for each of the null
    distribution.

    References: W21 Remark B.2 and Corollary B.4 (s > 1); Gretton, Fukumizu, Harchaoui and
    Sriperumbudur (2009).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.arange(64.0) / 8, jnp.full(64, 0.1))
    >>> test = hypothesis_tests.spectrum_skce_test(
    ...     jax.random.key(0), kernel, predictions, predictions.loc + 0.5
    ... )
    >>> print(f"{test.pvalue:.3f} ± {test.pvalue_standard_error:.3f}")
    0.001 ± 0.001
    """
    key = checks.random_key(key)
    num_draws = checks.number_of_draws("num_draws", num_draws)
    num_eigenvalues = checks.size_in_range("num_eigenvalues", num_eigenvalues, 1)
    method = checks.choice("method", method, METHODS)
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=2)
    statistic, estimate, law = _checked_null(kernel, samples, num_eigenvalues)
    copies = 1
    if block_size is not None:
        n = checks.leading_size("predictions", samples[0])
        block_size = checks.size_in_range("block_size", block_size, 2, n)
        of_blocks, estimate = _of_blocks(kernel, samples, block_size=block_size)
        statistic, copies = jnp.where(jnp.isnan(statistic), jnp.nan, of_blocks), n // block_size
    if method == "numerical":
        tail = functools.partial(chi_squared.numerical_tail, copies=copies)
        return _analytic_result(statistic, estimate, law, tail)
    null_samples = chi_squared.sample(key, law, num_draws, copies=copies)
    return simulated_result(statistic, null_samples, estimate, draws="weighted chi-squared sums")


def gamma_skce_test(
    kernel: Kernel, predictions: Distribution, targets: ArrayLike
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the unbiased SKCE and a gamma distribution.

    In the null distribution Σ_i λ_i z_i² − Σ_i λ_i of n SKCE_u, the first sum is replaced by a
    gamma variable of the same mean and variance,

        Σ_i λ_i = tr(H̃) / n,   2 Σ_i λ_i² = 2 ‖H̃‖² / n².

    It needs no draws and no eigenvalues, but has the wrong skewness. Compared with the bootstrap
    with n = 200 to 2000, its p-values are off by up to 0.035 with ten classes and, if one
    eigenvalue dominates as in W21's models, by up to 0.075: too small for p > 0.6, mostly near
    p = 0.9, and too large by up to 0.03 between 0.1 and 0.5. Very small p-values are too small by
    orders of magnitude. `spectrum_skce_test` is more accurate at twice the cost.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].

    Returns:
        The result; `statistic` is n SKCE_u, `estimate` is SKCE_u.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, or h is constant on all pairs (then the
            result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: 1.5 n² evaluations of h, O(n + tile²) memory.

    References: W21 Remark B.2; Johnson, Kotz and Balakrishnan (1994, pp. 343, 359).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.arange(64.0) / 8, jnp.full(64, 0.1))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> test = hypothesis_tests.gamma_skce_test(kernel, predictions, targets)
    >>> print(f"{test.pvalue:.2f}")
    0.53
    """
    null = _checked_null(*checked_samples(kernel, predictions, targets, minimum=2), 0)
    return _analytic_result(*null, chi_squared.gamma_tail)


def pearson_skce_test(
    kernel: Kernel,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_eigenvalues: int = NUM_EIGENVALUES,
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the unbiased SKCE and a Pearson curve.

    The null distribution Σ_i λ_i (z_i² − 1) of n SKCE_u is replaced by a shifted gamma
    distribution (Pearson's type III) of the same mean 0, variance 2 Σ_i λ_i² and third cumulant
    8 Σ_i λ_i³. The sum of cubes is that of the leading eigenvalues.

    Compared with the bootstrap with n = 200 to 2000, its p-values are within 0.01 with ten classes
    and, in W21's models, within 0.025 for p < 0.5 and 0.03 for p < 0.8. For larger p it is worse
    than the gamma approximation in these models, off by up to 0.11 near p = 0.9: the support of the
    Pearson curve starts 2 / skewness standard deviations below zero, and p = 1 below.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        num_eigenvalues: number of leading eigenvalues, ≥ 1.

    Returns:
        The result; `statistic` is n SKCE_u, `estimate` is SKCE_u.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n < 2, or h is constant on all pairs (then the
            result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: that of `spectrum_skce_test` without the draws.

    References: W21 Remark B.2; Gretton, Borgwardt, Rasch, Schölkopf and Smola (2007), who also
    bound the kurtosis.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.arange(64.0) / 8, jnp.full(64, 0.1))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> test = hypothesis_tests.pearson_skce_test(kernel, predictions, targets)
    >>> print(f"{test.pvalue:.2f}")
    0.51
    """
    num_eigenvalues = checks.size_in_range("num_eigenvalues", num_eigenvalues, 1)
    kernel, samples = checked_samples(kernel, predictions, targets, minimum=2)
    null = _checked_null(kernel, samples, num_eigenvalues)
    return _analytic_result(*null, chi_squared.pearson_tail)
