"""Kernel matrices of low numerical rank: pivoted Cholesky decomposition, and what rank it needs.

Kernels that are smooth on the scale of the predictions have matrices whose eigenvalues fall
geometrically. A few columns of such a matrix then hold all of it up to rounding.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._arithmetic import floating_dtype, matmul

Kernel = Callable[[Any, Any], jax.Array]

_PROBED_RANKS = (32, 128, 512, 2048)  # sizes that the rank is looked for with, one after the other
_STEP = 8  # ranks are rounded up to multiples, so that similar data share compiled code


class PivotedCholesky(NamedTuple):
    """The approximation K ≈ F Fᵀ of a kernel matrix, exact in the rows and columns of the pivots.

    Attributes:
        features: F, [n, R]; columns that were not needed are zero. Its rows at the pivots are
            lower triangular.
        pivots: indices of the points that were chosen, [R].
        rank: number of pivots that were needed, at most R.
        residual: largest error of an entry, which is one of the diagonal; relative to the largest
            entry of K.
    """

    features: jax.Array
    pivots: jax.Array
    rank: jax.Array
    residual: jax.Array


def kernel_values(kernel: Kernel, xs: Any, ys: Any) -> jax.Array:
    """Kernel values k(x_i, y_j), [n, n'], in the precision of the points."""
    values = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(xs, ys)
    return values.astype(floating_dtype((xs, ys)))


@functools.partial(jax.jit, static_argnames="size")
def pivoted_cholesky(
    kernel: Kernel, points: Any, tolerance: jax.Array, *, size: int
) -> PivotedCholesky:
    """Pivoted Cholesky decomposition of the matrix of a positive semi-definite kernel.

    It takes the point that the earlier ones describe worst, until the error of no entry of K is
    larger than `tolerance` times the largest entry, or there are `size` pivots.

    Cost: n kernel values and n · size operations for each pivot, O(n · size) memory.

    References: Harbrecht, Peters and Schneider (2012), On the low-rank approximation by the
    pivoted Cholesky decomposition; Fine and Scheinberg (2001).
    """
    diagonal = jax.vmap(kernel)(points, points).astype(floating_dtype(points))
    largest = jnp.max(diagonal)

    def unfinished(state: PivotedCholesky) -> jax.Array:
        return (state[0] < size) & (jnp.max(state[-1]) > tolerance * largest)

    def step(state: Any) -> Any:
        rank, pivots, features, rest = state
        pivot = lax.argmax(rest, 0, jnp.int32)
        point = jax.tree.map(lambda leaf: leaf[pivot], points)
        row = jax.vmap(kernel, (None, 0))(point, points).astype(diagonal.dtype)
        root = jnp.sqrt(rest[pivot])
        feature = (row - matmul(features[:, pivot], features)) / root
        # No feature is larger than what is left, but for rounding: earlier pivots stay zero.
        feature = jnp.clip(feature, -jnp.sqrt(rest), jnp.sqrt(rest)).at[pivot].set(root)
        rest = jnp.maximum(rest - jnp.square(feature), 0).at[pivot].set(0)
        return rank + 1, pivots.at[rank].set(pivot), features.at[rank].set(feature), rest

    empty = jnp.zeros(size, jnp.int32), jnp.zeros((size, diagonal.size), diagonal.dtype)
    rank, pivots, features, rest = lax.while_loop(unfinished, step, (0, *empty, diagonal))
    return PivotedCholesky(features.T, pivots, rank, jnp.max(rest) / largest)


def numerical_rank(kernel: Kernel, points: Any, tolerance: jax.Array, limit: int) -> float:
    """Rank, rounded up, that brings all errors below a tolerance; infinite above a limit.

    A search ends early where errors that go on falling as fast as before, which they hardly ever
    do, would need more than the limit.
    """
    for size in _PROBED_RANKS:
        size = min(size, limit)
        found = pivoted_cholesky(kernel, points, tolerance, size=size)
        residual = float(found.residual)
        if residual <= tolerance:
            # Some more, for parts of the data, or other data of the same kind.
            return _STEP * -(-int(1.05 * found.rank + 1) // _STEP)
        needed = size * math.log(tolerance) / math.log(residual) if 0 < residual < 1 else math.inf
        if size == limit or needed > limit:
            break
    return math.inf


class Spectrum(NamedTuple):
    """Eigenvalues and eigenvectors K ≈ Q diag(s) Qᵀ of a kernel matrix, and how to go on from it.

    Attributes:
        eigenvalues: s, [r], zero for what is only rounding.
        vectors: Q, [n, r].
        basis: B, [R, r], such that k(p, pivots)ᵀ B is the row of Q that belongs to a point p,
            k(p, x)ᵀ Q / s. It is zero where s is.
    """

    eigenvalues: jax.Array
    vectors: jax.Array
    basis: jax.Array


def low_rank_spectrum(found: PivotedCholesky) -> Spectrum:
    """The spectrum of F Fᵀ, with the precision of F rather than that of the product."""
    features, size = found.features, len(found.pivots)
    vectors, roots, rotation = jnp.linalg.svd(features, full_matrices=False)
    is_kept = roots > jnp.finfo(roots.dtype).eps * len(features) * roots[0]
    inverse = jnp.where(is_kept, 1 / jnp.where(is_kept, roots, 1), 0)
    # Features of any point p are L⁻¹ k(pivots, p), with the rows L of F at the pivots.
    is_used = jnp.arange(size) < found.rank
    root = jnp.where(is_used[:, None], features[found.pivots], jnp.eye(size, dtype=roots.dtype))
    basis = lax.linalg.triangular_solve(
        root, rotation.T * inverse, left_side=True, lower=True, transpose_a=True
    )
    return Spectrum(jnp.where(is_kept, jnp.square(roots), 0), vectors, basis)


def full_spectrum(matrix: jax.Array) -> Spectrum:
    """The spectrum of a matrix; what is smaller than its rounding errors is dropped."""
    vectors, eigenvalues = lax.linalg.eigh(matrix, symmetrize_input=False)
    rounding = jnp.finfo(matrix.dtype).eps * math.sqrt(len(matrix)) * eigenvalues[-1]
    is_kept = eigenvalues > rounding
    inverse = jnp.where(is_kept, 1 / jnp.where(is_kept, eigenvalues, 1), 0)
    return Spectrum(jnp.where(is_kept, eigenvalues, 0), vectors, vectors * inverse)
