"""Tests that are not exact: large-sample distributions of the SKCE, consistency resampling.

With H_ij = h(X_i, X_j), row means r_i and their mean g, the centered matrix is H̃_ij = H_ij − r_i −
r_j + g. H̃ determines the asymptotic null distribution of the SKCE, and is never stored. The spread
of the row means dominates the variance of the estimator if the model is not calibrated.

Under calibration n SKCE_u → Σ_i λ_i (z_i² − 1), z_i ~ N(0, 1), where the λ_i are the eigenvalues of
the integral operator of the calibration kernel h. They are estimated by the eigenvalues of H̃ / n,
with the centered matrix H̃ of h. `cme_test` compares the calibration mean embedding at locations.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaincc
from jax.scipy.stats import chi2, norm
from jax.tree_util import Partial
from jax.typing import DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, safe_sqrt
from calibjax._core.environment import default_batch_size, map_batches
from calibjax._core.gate import Seen, checked, inner
from calibjax._core.pytree import Numbers
from calibjax.distributions.base import DataSet, Distribution, check_draws, draw
from calibjax.estimators.kernel import location_pair, sample_matrix
from calibjax.hypothesis_tests.redraws import observed_and_redrawn, values_of
from calibjax.hypothesis_tests.result import (
    CalibrationTestResult,
    positive,
    pvalue_of,
    simulated_result,
)
from calibjax.kernels import Kernel
from calibjax.kernels.defaults import default_kernel
from calibjax.operators.plan import bytes_of_tile, sample_pair

_TILE_SIZE = 512  # matrix products of many columns dominate, and large ones are faster


def multinomial_counts(keys: jax.Array, num_samples: int) -> jax.Array:
    """Number of copies of each of n samples in a resample with replacement per key, [n, keys]."""

    def count(key: jax.Array) -> jax.Array:
        draws = jax.random.randint(key, (num_samples,), 0, num_samples)
        return jnp.zeros(num_samples, jnp.int32).at[draws].add(1)

    return jax.vmap(count, out_axes=1)(keys)


def diagonal(kernel: Kernel, samples: DataSet) -> jax.Array:
    """H_ii, [n]."""
    return jax.vmap(sample_pair, in_axes=(None, 0, 0))(kernel, samples, samples)


def row_means(kernel: Kernel, samples: DataSet) -> jax.Array:
    """r_i = n⁻¹ Σ_j H_ij, [n], in n² evaluations."""
    n = checks.leading_size("samples", samples)
    ones = jnp.ones((n, 1), jnp.int8)  # keeps the dtype of h
    return operators.weighted_sums(sample_pair, kernel, samples, samples, ones)[:, 0] / n


def centered_diagonal(entries: jax.Array, rows: jax.Array) -> jax.Array:
    """H̃_ii, [n], from the entries H_ii and the row means."""
    return entries - 2 * rows + rows.mean()


def squared_pair(args: tuple[Kernel, Any], x: DataSet, y: DataSet) -> jax.Array:
    """h² in units of a squared scale."""
    kernel, size = args
    return jnp.square(sample_pair(kernel, x, y) / size)


def unit_of(values: jax.Array) -> jax.Array:
    """Largest absolute value, or one: a unit in which squares neither underflow nor overflow."""
    size = jnp.max(jnp.abs(values))
    return jnp.where(size > 0, size, 1)


_LARGE_SHAPE = {4: 1e3, 8: 1e4}  # of gamma distributions, by item size
_NODES, _STEP = 240, 1 / 16  # of the numerical inversion, up to sinh(15) = 2e6 widths


class ChiSquaredSum(NamedTuple):
    """Distribution of Σ_i λ_i (z_i² − 1) with z_i ~ N(0, 1), which has mean zero.

    One normal variable of equal variance represents the weights that are not listed.

    Attributes:
        weights: leading λ_i, [r].
        total: Σ_i λ_i of all weights.
        squares: Σ_i λ_i² of all weights.
    """

    weights: jax.Array
    total: jax.Array
    squares: jax.Array

    @property
    def rest(self) -> jax.Array:
        """Variance of the weights that are not listed."""
        return 2 * jnp.maximum(self.squares - jnp.sum(jnp.square(self.weights)), 0)


@jax.jit
def gamma_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) for the gamma distribution on (−Σ λ_i, ∞) with the same first two moments."""
    shape = jnp.square(law.total) / (2 * law.squares)
    return _tail_of_gamma(shape, x / jnp.sqrt(2 * law.squares))


@jax.jit
def pearson_tail(law: ChiSquaredSum, x: jax.Array) -> jax.Array:
    """P(X ≥ x) for the shifted gamma distribution (Pearson type III) with three equal moments."""
    # The skewness is 8 Σ λ³ / (2 Σ λ²)^(3/2); a gamma distribution has 2 / √shape.
    cubes = jnp.sum((law.weights / jnp.sqrt(law.squares)) ** 3)
    shape = 1 / (2 * jnp.square(cubes))
    return _tail_of_gamma(shape, x / jnp.sqrt(2 * law.squares))


def _tail_of_gamma(shape: jax.Array, x: jax.Array) -> jax.Array:
    """P((G − a) / √a ≥ x) for G ~ Gamma(a, 1)."""
    root, large = jnp.sqrt(shape), _LARGE_SHAPE[shape.dtype.itemsize]
    small = jnp.minimum(shape, large)
    tail = gammaincc(small, jnp.maximum(small + x * jnp.sqrt(small), 0))
    # For larger shapes the incomplete gamma function loses its digits, and the cube root is normal
    # up to terms of order 1 / a (Wilson and Hilferty).
    cube_root = jnp.expm1(jnp.log1p(jnp.maximum(x / root, -1)) / 3)
    normal = norm.sf(3 * root * (cube_root + 1 / (9 * shape)))
    return jnp.where(shape > large, normal, tail)


@functools.partial(jax.jit, static_argnames="copies")
def numerical_tail(law: ChiSquaredSum, x: jax.Array, *, copies: int = 1) -> jax.Array:
    """P(X ≥ x) of the sum X of c copies, by numerical inversion of the characteristic function.

    With the cumulant generating function K(s) = c Σ_i [−½ log(1 − 2 λ_i s) − λ_i s] + ½ v s² (v:
    variance of the rest),

        P(X ≥ x) = (2πi)⁻¹ ∫ exp(K(s) − s x) / s ds   (+ 1 if the path is left of zero)

    along a hyperbola that crosses the real axis where the integrand is smallest there, near the
    saddle point K'(ŝ) = x, with the curvature of the path of steepest descent. With more skewness
    the path bends more around the branch cuts s ≥ 1 / (2 λ_i). So the integrand decays fast for any
    number of weights, and small probabilities have a small relative error.

    References: Rice (1980); Helstrom (1983).
    """
    sd = jnp.sqrt(2 * copies * law.squares)
    weights, rest, x = law.weights / sd, copies * law.rest / jnp.square(sd), x / sd

    def exponents(s: jax.Array) -> jax.Array:  # K(s) − s x
        scaled = 2 * weights * s[:, None]
        cumulants = copies * jnp.sum(-jnp.log1p(-scaled) - scaled, -1) / 2
        return cumulants + rest * jnp.square(s) / 2 - s * x

    # K'(s) ≥ s, so the integrand has its minimum below x + 1, and below the first branch cut.
    pole = 1 / (2 * jnp.maximum(jnp.max(weights, initial=0), jnp.finfo(x.dtype).tiny))
    shares = 2 ** (-jnp.arange(1, 241, dtype=x.dtype) / 8)
    above = jnp.minimum(pole, jnp.maximum(x, 0) + 1) * (1 - shares)
    grid = jnp.concatenate([above, -shares, -1 / shares])
    center = grid[jnp.nanargmin(exponents(grid) - jnp.log(jnp.abs(grid)))]
    ratios = weights / (1 - 2 * weights * center)
    curvature = 2 * copies * jnp.sum(jnp.square(ratios)) + rest
    width = 1 / jnp.sqrt(curvature)
    # cos α / sin² α = skewness / 3; the skewness is between 0 and 2 √2, hence α > π/4.
    bend = 8 * copies * jnp.sum(ratios**3) * width**3 / 3
    cosine = 2 * bend / (1 + jnp.sqrt(1 + 4 * jnp.square(bend)))
    sine = jnp.sqrt(1 - jnp.square(cosine))

    w = _STEP * jnp.arange(_NODES + 1, dtype=x.dtype)
    s = center + width * lax.complex(cosine * (jnp.cosh(w) - 1), sine * jnp.sinh(w))
    slope = width * lax.complex(cosine * jnp.sinh(w), sine * jnp.cosh(w))
    terms = jnp.imag(jnp.exp(exponents(s)) / s * slope)
    integral = _STEP / jnp.pi * (terms[0] / 2 + jnp.sum(terms[1:]))
    tail = jnp.where(center < 0, 1 + integral, integral)
    rounding = 100 * jnp.finfo(x.dtype).eps
    below_support = (x <= (rounding - 1) * copies * jnp.sum(weights)) & (rest <= rounding)
    return jnp.where(below_support, 1, jnp.clip(tail, 0, 1))


_DENSE = 8  # with fewer samples per eigenvalue, all eigenvalues are computed
_ITERATIONS = 3  # products with the matrix in the search for the leading eigenvalues


def _leading_eigenvalues(
    kernel: Kernel, samples: DataSet, num_eigenvalues: int, dtype: DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """Leading eigenvalues [r] of H̃ / n by subspace iteration, and the row means [n].

    The normal variable takes the remainder of the sum of squares, so convergence matters little.
    """
    n = checks.leading_size("samples", samples)
    product = jax.random.normal(jax.random.key(0), (n, num_eigenvalues), dtype)
    vectors, rows = product, product[:, 0]
    for _ in range(_ITERATIONS):
        vectors, _ = jnp.linalg.qr(product)
        weights = jnp.concatenate([vectors - vectors.mean(0), jnp.ones((n, 1), dtype)], 1)
        data = kernel, samples, samples, weights
        sums = operators.weighted_sums(sample_pair, *data, tile_size=_TILE_SIZE)
        product, rows = sums[:, :-1] - sums[:, :-1].mean(0), sums[:, -1] / n
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
    squares = operators.mean_over_pairs(squared_pair, (kernel, 1), samples, include_diagonal=True)
    squares = jnp.maximum(squares - 2 * jnp.mean(jnp.square(rows)) + jnp.square(rows.mean()), 0)
    # Negative weights, of kernels that are not positive semi-definite, go to the rest.
    weights = jnp.maximum(weights, 0)
    # Without variance there is no null distribution.
    rounding = 100 * jnp.finfo(squares.dtype).eps * jnp.square(jnp.max(jnp.abs(entries))) / n
    squares = jnp.where(squares > rounding, squares, jnp.nan)
    statistic = jnp.where(jnp.isnan(squares), jnp.nan, n * estimate)
    return statistic, estimate, ChiSquaredSum(weights, total, squares)


def refuse_constant(spread: jax.Array, value: jax.Array) -> None:
    """Refuses samples with a calibration kernel that is constant on all pairs."""
    if checks.is_concrete(spread) and np.isnan(spread):
        expected = "predictions, targets: expected samples that differ, got a calibration kernel"
        raise ValueError(f"{expected} that is {value} on all pairs up to rounding")


_TAILS = {"spectrum": numerical_tail, "gamma": gamma_tail, "pearson": pearson_tail}
_NUM_EIGENVALUES = 64


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
        return (sum(forms) - matmul(centered, counts)) / n

    return estimate, map_batches(jax.random.split(key, num_draws), batch, batch_size)


@jax.jit
def _of_blocks(blocks: jax.Array) -> CalibrationTestResult:
    """Result with the statistic √m mean(η) / σ̂ of m block estimates η."""
    size, estimate = unit_of(blocks), blocks.mean()
    spread = jnp.std(blocks / size, ddof=1)
    spread = jnp.where(spread > 100 * jnp.finfo(blocks.dtype).eps, spread, jnp.nan)
    statistic = jnp.sqrt(blocks.shape[0]) * (estimate / size) / spread
    return CalibrationTestResult(statistic, positive(norm.sf(statistic)), estimate)


@checked(minimum=2)
def asymptotic_skce_test(
    key: jax.Array | None,
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    *,
    null: Literal["bootstrap", "spectrum", "gamma", "pearson", "blocks"] = "bootstrap",
    num_draws: int = 999,
    block_size: int | None = None,
) -> CalibrationTestResult:
    """Asymptotic test of calibration with an unbiased estimate of the SKCE.

    Under calibration n SKCE_u → Σ_i λ_i (z_i² − 1), z_i ~ N(0, 1), with the eigenvalues λ_i of the
    integral operator of the calibration kernel h. They are estimated by those of H̃ / n, where H̃ is
    the matrix of h, centred in rows and columns. `null` is the approximation of this distribution:

    | null | distribution of n SKCE_u | sources | cost |
    | --- | --- | --- | --- |
    | "bootstrap" | (2/n) Σ_{i<j} h̃(X*_i, X*_j) of resamples X* | [1, 2, 3] | h: n²/2 a batch |
    | "spectrum" | the sum itself, whose tail is inverted numerically | [2, 4, 5] | h: 3.5 n² |
    | "gamma" | gamma distribution with the same two moments | [2, 6] | h: 1.5 n² |
    | "pearson" | shifted gamma distribution with the same three moments | [2, 7] | h: 3.5 n² |
    | "blocks" | the mean of many block estimates is normal | [8, 9] | h: n B / 2 |

    The default was used in the experiments of both papers; the next three approximate it without
    draws. "spectrum" rejects as often, needs no key, and has p-values below 1 / (B + 1) with a
    small relative error: use it for strongly miscalibrated models.

    None of them makes the test exact. For W21's models and n = 4, the bootstrap rejects 14 % (d =
    1) or 0.2 % (d = 10) of calibrated data sets at level 5 %. All of them detect shifted
    predictions, but have hardly any power against predictions that are too narrow or too wide.
    Prefer `exact_skce_test`, which holds its level for every n and detects these errors.

    - "spectrum": one normal variable represents the eigenvalues beyond the largest 64; its variance
      follows from ‖H̃‖² / n². This changes p-values by less than 1e-4. With n < 512 all eigenvalues
      are computed. For n = 300 p-values are within 0.03 of the bootstrap's.
    - "spectrum" with `block_size`: the mean of s = ⌊n/B⌋ unbiased block estimates replaces SKCE_u,
      and s B SKCE_{k,B} → Σ_i λ_i (Z_i − s), Z_i ~ χ²_s, for a fixed s. Its variance is s times
      larger at nearly the same cost, but a few large blocks suffice.
    - "gamma" needs no eigenvalues, Σ_i λ_i = tr(H̃) / n and Σ_i λ_i² = ‖H̃‖² / n², but has the
      wrong skewness: errors of p-values are up to 0.035 with ten classes and up to 0.075 in W21's
      models, mostly near p = 0.9. Very small p-values are too small by orders of magnitude.
    - "pearson" (type III) has the skewness of the leading eigenvalues. Errors of p-values are up to
      0.01 with ten classes. In W21's models they are up to 0.03 for p < 0.8, and up to 0.11 near p
      = 0.9.
    - "blocks", for millions of samples: z = √m mean(η) / σ̂ of the m = ⌊n/B⌋ block estimates η_b,
      with σ̂² = Σ_b (η_b − mean(η))² / (m − 1). It requires many blocks: with two blocks of two
      samples, it rejects 10 to 13 % of calibrated data sets at level 5 % in W21's models. It has
      much less power than the others.

    Args:
        key: a JAX random key for "bootstrap"; None for the others.
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 2 distributions (n ≥ 4 for "blocks").
        targets: [n] or [n, d].
        null: "bootstrap", "spectrum", "gamma", "pearson" or "blocks".
        num_draws: B, number of resamples of "bootstrap"; the smallest p-value is 1 / (B + 1).
        block_size: B, number of samples in a block: 2 ≤ B ≤ n / 2 for "blocks", which needs it,
            and 2 ≤ B ≤ n for "spectrum", which by default has one block of all samples.

    Returns:
        The result; `statistic` is n SKCE_u, or s B SKCE_{k,B} for "spectrum" with blocks, or z for
        "blocks". `estimate` estimates the SKCE. Only "bootstrap" has `null_samples`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, an option is not one of this null distribution,
            the key or the block size is missing, there are too few samples, or h, or all block
            estimates, are constant up to rounding (then the result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: evaluations of h as in the table; for "bootstrap" also B n² / 2 and for "spectrum" and
    "pearson" 400 n² multiplications in matrix products. Memory O(64 n + tile²), for "bootstrap" at
    most 128 MB of resamples at once. If n < 512, "spectrum" and "pearson" store the matrix: n²
    numbers and O(n³) operations.

    References: [1] W19 App. G (with 2/n in T_b but 2/(n − 1) in n SKCE_u, as here); [2] W21 Remark
    B.2; [3] Arcones and Giné (1992); [4] W21 Corollary B.4 (blocks); [5] Gretton, Fukumizu,
    Harchaoui and Sriperumbudur (2009); [6] Johnson, Kotz and Balakrishnan (1994, pp. 343, 359); [7]
    Gretton, Borgwardt, Rasch, Schölkopf and Smola (2007); [8] W21 Remark B.1; [9] W19 Corollary
    G.1 (B = 2).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.arange(64.0) / 8, jnp.full(64, 0.1))
    >>> samples = predictions, predictions.loc + 0.5
    >>> test = hypothesis_tests.asymptotic_skce_test(jax.random.key(0), kernel, *samples)
    >>> print(f"{test.pvalue:.3f} ± {test.pvalue_standard_error:.3f}")
    0.001 ± 0.001
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> test = hypothesis_tests.asymptotic_skce_test(
    ...     None, kernel, predictions, targets, null="gamma"
    ... )
    >>> print(f"{test.pvalue:.2f}")
    0.53
    """
    if block_size is not None and null not in ("spectrum", "blocks"):
        raise ValueError(f'block_size: expected None with null="{null}", got {block_size}')
    kernel, samples = kernel or default_kernel(predictions), (predictions, targets)
    n = checks.leading_size("predictions", predictions)
    if null == "bootstrap":
        key = checks.random_key(cast(jax.Array, key))
        draws = {"num_draws": num_draws, "batch_size": default_batch_size(n)}
        estimate, null_samples = _bootstrap(key, kernel, samples, **draws)
        return simulated_result(n * estimate, null_samples, estimate, draws="resamples")
    blocks, size = jnp.zeros(1), n
    if block_size is not None or null == "blocks":
        largest = n // 2 if null == "blocks" else n
        size = checks.size_in_range("block_size", block_size, 2, largest)
        blocks = operators.block_means(sample_pair, kernel, samples, block_size=size)
    if null == "blocks":
        result = _of_blocks(blocks)
        refuse_constant(result.statistic, result.estimate)
        return result
    rank, tail = 0 if null == "gamma" else _NUM_EIGENVALUES, _TAILS[null]
    statistic, estimate, law = _null(kernel, samples, num_eigenvalues=rank)
    refuse_constant(law.squares, estimate)
    if block_size is not None:
        estimate, tail = blocks.mean(), functools.partial(tail, copies=n // size)
        statistic = jnp.where(jnp.isnan(statistic), jnp.nan, size * blocks.sum())
    return CalibrationTestResult(statistic, positive(tail(law, statistic)), estimate)


@functools.partial(jax.jit, static_argnums=3)
def _tested_at_margin(
    kernel: Kernel, samples: DataSet, margin: jax.Array, alternative: str
) -> CalibrationTestResult:
    """Result with the root of SKCE_b in standard deviations from its mean at the margin."""
    entries, rows = diagonal(kernel, samples), row_means(kernel, samples)
    n, digit = entries.size, 100 * jnp.finfo(entries.dtype).eps
    size = unit_of(entries)
    trace, rows = jnp.mean(entries) / size, rows / size
    margin = margin / jnp.sqrt(size)
    biased = jnp.mean(rows)
    is_zero = biased <= 0.08 * digit * trace  # rounding errors only
    biased = jnp.where(is_zero, 0, biased)
    root = safe_sqrt(biased)
    influences = jnp.where(is_zero, 0, rows - biased) / jnp.where(is_zero, 1, root)
    squared = jnp.square(influences)
    spread = (jnp.sum(squared) + jnp.max(squared)) / n
    spread = jnp.where(spread > digit * biased, spread, 0)
    skewness = jnp.mean(influences**3) / jnp.square(jnp.where(spread > 0, spread, 1))
    data = squared_pair, (kernel, size), samples
    squares = operators.mean_over_pairs(*data, include_diagonal=True)
    centred = squares - 2 * jnp.mean(jnp.square(rows)) + jnp.square(biased)
    centred = jnp.where(centred > digit * squares, centred, 0)
    spread = jnp.where(is_zero, safe_sqrt(centred), spread)
    # For a skewed distribution, the variance at the margin differs from the observed variance.
    inflation = jnp.where(spread > 0, jnp.maximum(1 + skewness * (margin - root), 1), 1)
    variance = inflation * (4 * jnp.square(margin) * spread + 2 * centred / n) / n
    typical = jnp.sqrt(jnp.square(margin) * (1 - 1 / n) + trace / n)
    mean = typical - variance / (8 * typical**3)
    distance = mean - root if alternative == "less" else root - mean
    z = 2 * typical * distance / jnp.sqrt(jnp.where(variance > 0, variance, 1))
    estimate = size * (n * jnp.mean(rows) - trace) / (n - 1)
    statistic = checks.nan_with(jnp.where(variance > 0, z, -jnp.inf), estimate, margin)
    return CalibrationTestResult(statistic, pvalue_of(statistic), estimate)


def _margin(name: str, value: Any, seen: Seen) -> jax.Array:
    samples = seen["predictions"], seen["targets"]
    return checks.positive_scalar(name, value, floating_dtype(samples))


@checked(minimum=5, margin=_margin)
def skce_margin_test(
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    *,
    margin: float,
    alternative: Literal["less", "greater"] = "less",
) -> CalibrationTestResult:
    """Asymptotic equivalence test of SKCE ≥ δ² with a margin δ, or test of SKCE ≤ δ².

    By default the null hypothesis is SKCE ≥ δ². A small p-value is evidence that the model is
    closer to calibration than δ; a large p-value of a test of calibration is no such evidence. With
    `alternative="greater"` the null hypothesis is SKCE ≤ δ², and p = P(N(0, 1) ≥ −z). Use it for
    very large n, for which a test of calibration rejects every model. With the biased estimate V,
    the mean h̄_i of row i of h, the mean D of the diagonal, and h centred in rows and columns,

        z = 2e (e − √V − v / 8e³) / √v,   e² = (1 − 1/n) δ² + D/n,   p = P(N(0, 1) ≥ z),
        v = f (4δ² s² + 2 mean(h_c²)/n) / n,   f = max(1 + (δ − √V) m₃/s⁴, 1),

    where s² = (Σ a² + max(a²))/n, m₃ = mean(a³) with a_i = h̄_i/√V − √V, and means of h_c are over
    all n² pairs. The variance includes one more sample like the most extreme one, because rare
    errors may not have been observed. If V is 0 up to rounding, s² = √mean(h_c²), which it cannot
    exceed, and f = 1. z is the distance of √V from its mean in standard deviations, both to second
    order *at the margin*. The observed scatter of samples with few errors would be too small.

    At level 5 %, the measured rejection rate at the margin is at most 6.6 % for n ≥ 64, or 8 % with
    `alternative="greater"`. For n = 16 it is up to 8.5 %.

    It cannot reject if so few errors are expected that chance may hide them, as for 2 % predicted,
    5 % at the margin and n = 64. If all h_ij are equal, p is 1.

    For one specific alternative, `exact_test` holds its level for every n: call it with the
    distributions of the alternative instead of the predictions, and with the statistic
    −`estimators.skce(kernel, predictions, targets)`.

    Args:
        kernel: kernel on pairs (prediction, target); None for `default_kernel(predictions)`.
        predictions: batch of n ≥ 5 distributions.
        targets: [n] or [n, d].
        margin: δ > 0, in units of √SKCE, such as √`estimators.skce` of targets drawn from tempered
            predictions.
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
    return _tested_at_margin(kernel, (predictions, targets), margin, alternative)


@checked(minimum=2)
def cme_test(
    kernel: Kernel,
    predictions: Distribution,
    targets: Numbers,
    at_predictions: Distribution,
    at_targets: Numbers,
) -> CalibrationTestResult:
    """Asymptotic test of calibration with the mean embedding at J test locations (CME test).

        Q = n Z̄ᵀ S⁻¹ Z̄,   Z_ij = k(T_j, (p_i, y_i)) − E_{Z~p_i} k(T_j, (p_i, Z)),

    with the mean Z̄ and covariance matrix S (divisor n − 1) of the rows of Z; p = P(χ²_J ≥ Q).

    Hotelling's statistic is far from its limit unless n is much larger than J. With ten locations
    in W21's models, it rejects calibrated data sets at level 5 % as follows; classes, whose Z are
    nearly discrete, need even more samples.

    | n | 16 | 64 | 256 | 1024 |
    | --- | --- | --- | --- | --- |
    | rejected | 87 % | 36 % | 11 % | 6 % |

    `exact_test` with the same statistic holds its level for every n, see the example. For weights,
    use `exact_test` with `estimators.ucme`.

    Args:
        kernel: kernel on pairs (prediction, target).
        predictions: batch of n > J distributions.
        targets: [n] or [n, d].
        at_predictions: batch of J distributions of the same family, not chosen with the targets;
            for example some of the predictions.
        at_targets: [J] or [J, d], for example drawn from `at_predictions`.

    Returns:
        The result; `statistic` is Q, `estimate` the squared UCME at the test locations.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, n ≤ J, or the covariance is singular up to
            rounding, as with equal test locations (then the result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: n J evaluations of the kernel and the expectation, n J² operations, memory O(n J).

    References: W21 App. C.2; Chwialkowski et al. (2015). Neither refuses n ≤ J.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.linspace(0.0, 1.0, 64), jnp.full(64, 0.1))
    >>> at = distributions.Normal(jnp.array([0.2, 0.8]), jnp.full(2, 0.1)), jnp.array([0.25, 0.7])
    >>> def statistic(predictions, targets):
    ...     return hypothesis_tests.cme_test(kernel, predictions, targets, *at).statistic
    >>> exact = hypothesis_tests.exact_test(
    ...     jax.random.key(1), statistic, predictions, predictions.loc + 0.05
    ... )
    >>> print(f"{exact.pvalue:.3f}")
    0.001
    """
    n, num_locations = (checks.leading_size("targets", y) for y in (targets, at_targets))
    if n <= num_locations:
        expected = f"more than the {num_locations} test locations"
        raise ValueError(f"predictions: expected {expected}, got {n}")
    samples, locations = (predictions, targets), (at_predictions, at_targets)
    statistic, estimate = _hotelling(kernel, samples, locations)
    if checks.is_concrete(statistic) and np.isnan(statistic):
        expected = "locations with a covariance that is not singular up to rounding"
        hint = f"in {statistic.dtype} take fewer than {num_locations}, or float64"
        raise ValueError(f"at_predictions, at_targets: expected {expected}; {hint}")
    return CalibrationTestResult(statistic, positive(chi2.sf(statistic, num_locations)), estimate)


@jax.jit
def _hotelling(kernel: Kernel, samples: DataSet, locations: DataSet) -> tuple[jax.Array, jax.Array]:
    """Statistic Q, and the squared UCME; Q is NaN if the covariance is singular."""
    row = jax.vmap(location_pair, in_axes=(None, 0, None))
    z = jax.vmap(row, in_axes=(None, None, 0))(kernel, locations, samples)
    n, num_locations = z.shape
    mean = z.mean(0)
    spread = z.std(0)
    # Columns of equal predictions and targets are constant up to rounding errors.
    rounding = 100 * jnp.finfo(z.dtype).eps
    is_constant = spread <= rounding * jnp.max(jnp.abs(z), 0)
    # Scaling the columns improves the conditioning.
    spread = jnp.where(is_constant, 1, spread)
    scaled = (z - mean) / spread
    triangle = jnp.linalg.qr(scaled / jnp.sqrt(n - 1), mode="r")
    pivots = jnp.abs(jnp.diag(triangle))
    singular = (jnp.min(pivots) <= rounding * num_locations) | jnp.any(is_constant)
    root = solve_triangular(triangle.T, mean / spread, lower=True)
    return jnp.where(singular, jnp.nan, n * matmul(root, root)), jnp.mean(jnp.square(mean))


@checked
def consistency_test(
    key: jax.Array,
    statistic: Callable[..., Any],
    predictions: Distribution,
    targets: Numbers,
    *,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Consistency resampling, which rejects too often for some statistics, such as the ECE.

    In every resample, n predictions are drawn with replacement from the given ones, and a target
    from each of them; p = (1 + #{T_b ≥ T}) / (B + 1).

    Resampled predictions repeat, while the observed ones mostly differ, so the statistic has a
    different distribution. Calibrated models are rejected too often if repetitions lower the
    statistic, such as the expected calibration error with more bins than the samples can fill.
    W19's model M1 (250 predictions of ten classes, ten bins per class) is rejected in 9999 of 10
    000 data sets at level 1 %. `exact_test` keeps the predictions and holds its level; this test is
    included for comparisons with the literature. As in `exact_test`, the statistic determines which
    errors are detected.

    Args:
        key: a JAX random key.
        statistic: (predictions, targets) → scalar, array or pytree of arrays, traceable by JAX;
            large values are evidence against calibration.
        predictions: batch of n distributions. An additional leaf of the batch may store quantities
            of single predictions, such as their bins.
        targets: [n] or [n, d].
        num_draws: B, number of resamples; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of resamples that are evaluated at once. Memory is `batch_size` times
            that of one statistic; by default about 16 MB, assuming that the statistic works on
            tiles of pairs.

    Returns:
        The result; `estimate` is the statistic itself. If the statistic is a pytree, all attributes
        are such pytrees.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or a statistic is NaN.

    Cost: B evaluations of the statistic. It is compiled once for each function object and shape of
    the data, as by `jax.jit`: values that it takes from its closure must not change between two
    calls.

    References: Bröcker and Smith (2007); W19 §7.2 and Fig. 2 (C) for its over-rejection.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> def bias(predictions, targets):
    ...     return jnp.abs(jnp.mean(targets - predictions.probs))
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.2, 0.4, 50))
    >>> test = hypothesis_tests.consistency_test(
    ...     jax.random.key(0), bias, predictions, jnp.arange(50) % 2
    ... )
    >>> print(bool(test.pvalue < 0.01))
    True
    """
    check_draws(predictions, targets)
    samples, n = (predictions, targets), checks.leading_size("targets", targets)
    options = {"num_draws": num_draws, "batch_size": batch_size, "num_bytes": bytes_of_tile(n)}
    data = _of_samples, (Partial(statistic), None), samples, samples
    observed, redrawn = observed_and_redrawn(key, *data, redraw=_resampled, **options)
    draws = "resampled predictions and targets"
    return simulated_result(observed, redrawn, observed, draws=draws)


def _of_samples(data: tuple[Any, None], given: Any, samples: Any) -> Any:
    """Statistic of resampled data."""
    del given
    return values_of(data, *samples)


def _resampled(key: jax.Array, samples: tuple[Any, ...]) -> tuple[Any, ...]:
    """Predictions drawn with replacement, and targets drawn from these."""
    index_key, target_key = jax.random.split(key)
    n = checks.leading_size("targets", samples[1])
    index = jax.random.randint(index_key, (n,), 0, n)
    chosen, _ = jax.tree.map(lambda leaf: leaf[index], samples)
    return chosen, draw(target_key, chosen)
