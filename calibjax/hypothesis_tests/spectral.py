"""The asymptotic null distribution of the unbiased SKCE.

Under calibration n SKCE_u → Σ_i λ_i (z_i² − 1), z_i ~ N(0, 1), where the λ_i are the eigenvalues of
the integral operator of the calibration kernel h. They are estimated by the eigenvalues of H̃ / n,
with the centered matrix H̃ of h.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax.distributions.base import DataSet
from calibjax.estimators.kernel import sample_matrix
from calibjax.hypothesis_tests.centering import (
    centered_diagonal,
    centered_mean_square,
    centered_product,
    diagonal,
    row_means,
)
from calibjax.hypothesis_tests.chi_squared import ChiSquaredSum
from calibjax.kernels import Kernel

_DENSE = 8  # with fewer than this many samples per eigenvalue all of them are computed
_ITERATIONS = 3  # products with the matrix in the search for the leading eigenvalues


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


def checked_null(
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
