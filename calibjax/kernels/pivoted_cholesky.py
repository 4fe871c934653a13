"""Pivoted Cholesky decomposition of kernel matrices, and choice of its rank.

Kernels that are smooth on the scale of the predictions have matrices whose eigenvalues decay
geometrically. A few columns of such a matrix then determine it up to rounding.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.pytree import T

Kernel = Callable[[T, T], jax.Array]

# Entries of kernel matrices have rounding errors: smaller errors are meaningless.
TOLERANCE = {4: 1e-6, 8: 1e-14}  # by item size
_PROBED_RANKS = (32, 128, 512, 2048)  # sizes that are tried one after the other
_BLOCK = 64  # features that are subtracted at once; those not yet computed are not read
_STEP = 8  # ranks are rounded up to multiples, so that similar data share compiled code


class PivotedCholesky(NamedTuple):
    """The approximation K ≈ F Fᵀ of a kernel matrix, exact in the rows and columns of the pivots.

    Attributes:
        features: F, [n, R]; columns that were not needed are zero. Its rows at the pivots are
            lower triangular.
        pivots: indices of the chosen points, [R].
        rank: number of pivots that were needed, at most R.
        residual: largest error of an entry, attained on the diagonal, relative to the largest
            entry of K.
    """

    features: jax.Array
    pivots: jax.Array
    rank: jax.Array
    residual: jax.Array


@jax.jit
def kernel_values(kernel: Kernel[T], xs: T, ys: T) -> jax.Array:
    """Kernel values k(x_i, y_j), [n, n'], in the precision of the points."""
    values = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(xs, ys)
    return values.astype(floating_dtype((xs, ys)))


@functools.partial(jax.jit, static_argnames="size")
def decompose(
    kernel: Kernel[T], points: T, tolerance: jax.Array | float, *, size: int
) -> PivotedCholesky:
    """Pivoted Cholesky decomposition of the matrix of a positive semi-definite kernel.

    It repeatedly adds the point that the pivots approximate worst, until no entry of K has an error
    above `tolerance` times the largest entry, or there are `size` pivots.

    Cost: n kernel values and n · size operations for each pivot, O(n · size) memory.

    References: Harbrecht, Peters and Schneider (2012), On the low-rank approximation by the
    pivoted Cholesky decomposition; Fine and Scheinberg (2001).
    """
    diagonal = jax.vmap(kernel)(points, points).astype(floating_dtype(points))
    largest = jnp.max(diagonal)

    def unfinished(state: tuple[jax.Array, ...]) -> jax.Array:
        return (state[0] < size) & (jnp.max(state[-1]) > tolerance * largest)

    def step(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        rank, pivots, features, rest = state
        pivot = lax.argmax(rest, 0, jnp.int32)
        point = jax.tree.map(lambda leaf: leaf[pivot], points)
        row = jax.vmap(kernel, (None, 0))(point, points).astype(diagonal.dtype)

        def subtract(block: jax.Array, row: jax.Array) -> jax.Array:
            return row - matmul(features[block, :, pivot], features[block])

        row = lax.fori_loop(0, -(-rank // _BLOCK), subtract, row)
        root = jnp.sqrt(rest[pivot])
        # Up to rounding, no feature exceeds the remaining diagonal: earlier pivots stay zero.
        feature = jnp.clip(row / root, -jnp.sqrt(rest), jnp.sqrt(rest)).at[pivot].set(root)
        rest = jnp.maximum(rest - jnp.square(feature), 0).at[pivot].set(0)
        features = features.at[rank // _BLOCK, rank % _BLOCK].set(feature)
        return rank + 1, pivots.at[rank].set(pivot), features, rest

    blocks = jnp.zeros((-(-size // _BLOCK), _BLOCK, diagonal.size), diagonal.dtype)
    start = jnp.zeros((), jnp.int32), jnp.zeros(size, jnp.int32), blocks, diagonal
    rank, pivots, blocks, rest = lax.while_loop(unfinished, step, start)
    features = blocks.reshape(-1, diagonal.size)[:size].T
    return PivotedCholesky(features, pivots, rank, jnp.max(rest) / largest)


def factor_at_pivots(approximation: PivotedCholesky) -> jax.Array:
    """Cholesky factor L of the kernel matrix of the pivots, [R, R].

    Features of any point p are L⁻¹ k(pivots, p). Rows of pivots that were not needed are those of
    the identity.
    """
    is_used = jnp.arange(len(approximation.pivots)) < approximation.rank
    identity = jnp.eye(len(approximation.pivots), dtype=approximation.features.dtype)
    return jnp.where(is_used[:, None], approximation.features[approximation.pivots], identity)


def numerical_rank(
    kernel: Kernel[T], points: T, tolerance: jax.Array | float, limit: int
) -> int | None:
    """Rank, rounded up, that brings all errors below a tolerance; None above a limit."""
    approximation = sufficient(kernel, points, tolerance, limit)
    if approximation is None:
        return None
    # Slightly more, for parts of the data, or other data of the same kind.
    return _STEP * -(-int(1.05 * int(approximation.rank) + 1) // _STEP)


def sufficient(
    kernel: Kernel[T], points: T, tolerance: jax.Array | float, limit: int
) -> PivotedCholesky | None:
    """A decomposition with all errors below a tolerance; None if it has more than `limit` pivots.

    The search ends early if the limit would be exceeded even if errors kept decreasing as fast as
    they did last, which they hardly ever do.
    """
    before, error = 0, 1.0
    for size in _PROBED_RANKS:
        size = min(size, limit)
        approximation = decompose(kernel, points, tolerance, size=size)
        residual = float(approximation.residual)
        if residual <= tolerance:
            return approximation
        if size == limit or not 0 < residual < error:
            break
        speed = math.log(error / residual) / (size - before)
        if size + math.log(residual / tolerance) / speed > limit:
            break
        before, error = size, residual
    return None
