"""Nyström approximation of kernels on predictions, by pivoted Cholesky decomposition.

Kernels that are smooth on the scale of the predictions have matrices whose eigenvalues decay
geometrically. A few columns of such a matrix then determine it up to rounding.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.gate import checked
from calibjax._core.pytree import PyTree, T, record, varying_as
from calibjax.distributions.base import Distribution
from calibjax.kernels.base import Interval, Kernel, without_draws

KernelFunction = Callable[[T, T], jax.Array]

# Entries of kernel matrices have rounding errors: smaller errors are meaningless.
TOLERANCE = {4: 1e-6, 8: 1e-14}  # by item size
_FEW, _MANY = 64, 2048  # largest ranks to try in turn
_STEP = 8  # ranks are rounded up to multiples, so that similar data share compiled code


class PivotedCholesky(NamedTuple):
    """Approximation K ≈ F Fᵀ of a kernel matrix, exact in the rows and columns of the pivots.

    Attributes:
        features: F, [n, R]; unused columns are zero. Its rows at the pivots are lower triangular.
        pivots: indices of the chosen points, [R].
        rank: number of pivots used, at most R.
        residual: largest error of an entry, attained on the diagonal, relative to the largest
            entry of K.
    """

    features: jax.Array
    pivots: jax.Array
    rank: jax.Array
    residual: jax.Array


@jax.jit
def kernel_values(kernel: KernelFunction[T], xs: T, ys: T) -> jax.Array:
    """Kernel values k(x_i, y_j), [n, n'], in the precision of the points."""
    values = jax.vmap(jax.vmap(kernel, (None, 0)), (0, None))(xs, ys)
    return values.astype(floating_dtype((xs, ys)))


@functools.partial(jax.jit, static_argnames="size")
def decompose(
    kernel: KernelFunction[T], points: T, tolerance: jax.Array | float, *, size: int
) -> PivotedCholesky:
    """Pivoted Cholesky decomposition of the matrix of a positive semi-definite kernel.

    It repeatedly adds the point with the largest error, until no entry of K has an error above
    `tolerance` times the largest entry, or there are `size` pivots.

    Cost: n kernel values and n · size multiplications for each pivot, O(n · size) memory.

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
        row -= matmul(features[:, pivot], features)
        root = jnp.sqrt(rest[pivot])
        # Up to rounding, no feature exceeds the remaining diagonal: earlier pivots stay zero.
        feature = jnp.clip(row / root, -jnp.sqrt(rest), jnp.sqrt(rest)).at[pivot].set(root)
        rest = jnp.maximum(rest - jnp.square(feature), 0).at[pivot].set(0)
        return rank + 1, pivots.at[rank].set(pivot), features.at[rank].set(feature), rest

    features = jnp.zeros((size, diagonal.size), diagonal.dtype)
    start = jnp.zeros((), jnp.int32), jnp.zeros(size, jnp.int32), features, diagonal
    start = varying_as(start, (kernel, points))
    rank, pivots, features, rest = lax.while_loop(unfinished, step, start)
    return PivotedCholesky(features.T, pivots, rank, jnp.max(rest) / largest)


def factor_at_pivots(approximation: PivotedCholesky) -> jax.Array:
    """Cholesky factor L of the kernel matrix of the pivots, [R, R].

    Features of any point p are L⁻¹ k(pivots, p). Rows of unused pivots are those of the identity.
    """
    is_used = jnp.arange(len(approximation.pivots)) < approximation.rank
    identity = jnp.eye(len(approximation.pivots), dtype=approximation.features.dtype)
    return jnp.where(is_used[:, None], approximation.features[approximation.pivots], identity)


def numerical_rank(
    kernel: KernelFunction[T], points: T, tolerance: jax.Array | float, limit: int
) -> int | None:
    """Rank, rounded up, that brings all errors below a tolerance; None above a limit."""
    approximation = sufficient(kernel, points, tolerance, limit)
    if approximation is None:
        return None
    # Slightly more, for subsets of the data and similar data.
    return _STEP * -(-int(1.05 * int(approximation.rank) + 1) // _STEP)


def sufficient(
    kernel: KernelFunction[T], points: T, tolerance: jax.Array | float, limit: int
) -> PivotedCholesky | None:
    """Decomposition with all errors below a tolerance; None if it has more than `limit` pivots."""
    largest = min(limit, _MANY)
    for size in (_FEW, largest) if largest > 4 * _FEW else (largest,):
        approximation = decompose(kernel, points, tolerance, size=size)
        if float(approximation.residual) <= tolerance:
            return approximation
    return None


_ROUNDING = 10  # in units of the last place, times the number of landmarks


@record
class Nystrom(Kernel):
    """Approximation of a kernel on predictions by its values at r landmarks.

        k̃(p, q) = ⟨φ(p), φ(q)⟩,   φ(p) = L⁻¹ (k(l_1, p), ..., k(l_r, p)),   L Lᵀ = (k(l_a, l_b))_ab,

    which equals k if p or q is a landmark. It is positive semi-definite: tests with it are exact
    and estimates are unbiased, for the SKCE of *this* kernel. Together with a target kernel that
    has features, `skce`, `skce_biased` and `exact_skce_test` take linear instead of quadratic time.
    Kernels that are smooth on the scale of the predictions lose nothing; others lose errors between
    landmarks.

    Attributes:
        kernel: k, positive semi-definite.
        landmarks: batch of r predictions. They must not be chosen with the targets.

    `Nystrom.from_predictions(kernel, predictions, num_landmarks)` chooses the landmarks.

    Cost: r values of k and r² multiplications for the features of a prediction. The same for each
    pair if the target kernel has no features, as in traced programs.

    References: Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances, distributions, estimators, kernels
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.1, 0.9, 9))
    >>> smooth = kernels.SquaredExponential(0.5, distances.TotalVariation())
    >>> labels = jnp.array([0, 0, 1, 0, 1, 1, 0, 1, 1])
    >>> for kernel in (smooth, kernels.Nystrom.from_predictions(smooth, predictions, 5)):
    ...     product = kernels.TensorProduct(kernel, kernels.White())
    ...     print(f"{estimators.skce(product, predictions, labels):.4f}")
    -0.0388
    -0.0388
    """

    kernel: Kernel
    landmarks: Distribution

    @classmethod
    @checked
    def from_predictions(
        cls,
        kernel: Kernel,
        predictions: Distribution,
        num_landmarks: int,
    ) -> "Nystrom":
        """Kernel with landmarks chosen from n predictions, by pivoted Cholesky decomposition.

        Each landmark is the prediction with the largest error of the earlier ones.

        Args:
            kernel: k, positive semi-definite.
            predictions: batch of n distributions.
            num_landmarks: r, from 1 to n. Fewer are chosen if they determine the kernel at all
                predictions up to rounding (not under `jit`).

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.

        Cost: n r values of the kernel and n r² multiplications, O(n r) memory.

        References: Harbrecht, Peters and Schneider (2012), On the low-rank approximation by the
        pivoted Cholesky decomposition.

        >>> import jax.numpy as jnp
        >>> from calibjax import distances, distributions, kernels
        >>> predictions = distributions.Bernoulli(jnp.array([0.1, 0.11, 0.5, 0.9]))
        >>> kernel = kernels.Exponential(1.0, distances.TotalVariation())
        >>> print(kernels.Nystrom.from_predictions(kernel, predictions, 3).landmarks.probs)
        [0.1 0.9 0.5]
        """
        predictions = without_draws(predictions)
        n = checks.leading_size("predictions", predictions)
        checks.size_in_range("num_landmarks", num_landmarks, 1, n)
        tolerance = TOLERANCE[floating_dtype(predictions).itemsize]
        approximation = decompose(kernel, predictions, tolerance, size=num_landmarks)
        is_known = checks.is_concrete(approximation.rank)
        needed = int(approximation.rank) if is_known else num_landmarks
        chosen = lax.slice_in_dim(approximation.pivots, 0, needed)
        landmarks = jax.tree.map(lambda leaf: jnp.take(leaf, chosen, 0), predictions)
        return cls(kernel, checks.nan_with(landmarks, predictions))

    def factor(self, predictions: Distribution) -> jax.Array:
        """Features φ of a batch of predictions, [n, r]."""
        landmarks = without_draws(self.landmarks)
        values = kernel_values(self.kernel, without_draws(predictions), landmarks)
        whitening = _inverse_root(kernel_values(self.kernel, landmarks, landmarks))
        return matmul(values, whitening.T)

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Value at one pair of predictions."""
        both = jax.tree.map(lambda a, b: jnp.stack([jnp.asarray(a), jnp.asarray(b)]), x, y)
        first, second = self.factor(both)
        return matmul(first, second)

    def value_range(self) -> Interval:
        """Bounds from the Cauchy–Schwarz inequality, as k̃(p, p) ≤ k(p, p)."""
        _, upper = self.kernel.value_range()
        return -upper, upper

    def check_values(self, name: str) -> "Nystrom":
        """Check the kernel and the landmarks."""
        kernel = checks.kernel_or_function(self.kernel, f"{name}.kernel")
        checked = Nystrom(kernel, checks.points(f"{name}.landmarks", self.landmarks))
        expected = "a kernel that is positive semi-definite at the landmarks"
        features: Any = checked.factor(checked.landmarks)
        checks.satisfying(name, features, lambda x: abs(x) < np.inf, expected)
        return checked


@jax.jit
def _inverse_root(matrix: jax.Array) -> jax.Array:
    """L⁻¹ for the Cholesky factor L of a kernel matrix, [r, r]."""
    identity = jnp.eye(len(matrix), dtype=matrix.dtype)
    # Otherwise rounding errors could make the matrix of close landmarks indefinite.
    rounding = _ROUNDING * len(matrix) * jnp.finfo(matrix.dtype).eps
    root = arithmetic.cholesky(matrix + rounding * jnp.max(jnp.diagonal(matrix)) * identity)
    return lax.linalg.triangular_solve(root, identity, left_side=True, lower=True)
