"""Kernels on class labels, and kernel matrices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import arithmetic, checks
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import PyTree, T, part, record
from calibjax.distances import Distance
from calibjax.distributions import Ensemble, Mixture
from calibjax.kernels.base import Interval, Kernel


@record
class White(Kernel):
    """White kernel δ_{yz}: one if the two targets are equal, zero otherwise.

    Combined with a kernel k_P on predictions, this is W19's matrix-valued kernel k_P(p, q) I.

    >>> print(White()(1, 1), White()(0, 1))
    1.0 0.0
    """

    diagonal = 1.0

    def __call__(self, y: jax.Array, z: jax.Array) -> jax.Array:
        """Whether all entries of y and z are equal, as a number."""
        return jnp.all(jnp.equal(y, z)) * 1.0

    def label_scales(self, probs: jax.Array) -> jax.Array:
        """Factors of the entries of e_y − p in the features for classes, [..., m]."""
        return jnp.ones_like(probs)

    def value_range(self) -> Interval:
        """From 0 to 1."""
        return 0.0, 1.0


def _semidefinite(value: Any, name: str) -> Any:
    """A matrix [m, m], refused or NaN if it is not symmetric positive semi-definite."""
    matrix = checks.finite(name, checks.floating(name, checks.as_arrays(name, value)))
    checks.shape(name, matrix, matrix.shape[:1] * 2 or (None, None), "[m, m]")
    expected = "a symmetric positive semi-definite matrix"
    return checks.satisfying(name, matrix, _is_semidefinite, expected)


def _is_semidefinite(matrix: Any) -> Any:
    xp: Any = np if isinstance(matrix, np.ndarray) else jnp
    fixed = matrix if xp is np else lax.stop_gradient(matrix)
    tolerance = len(fixed) * xp.finfo(fixed.dtype).eps * xp.maximum(abs(fixed).max(), 1e-30)
    is_symmetric = abs(fixed - fixed.T).max() <= tolerance
    if xp is np:
        return is_symmetric & (np.linalg.eigvalsh(fixed)[0] >= -10 * tolerance)
    # No LAPACK: several batched calls in one program may deadlock.
    root = arithmetic.cholesky(fixed + 10 * tolerance * jnp.eye(len(fixed), dtype=fixed.dtype))
    return is_symmetric & jnp.all(jnp.diagonal(root) > 0)


@record
class LabelKernel(Kernel):
    """Kernel on class labels given by its matrix, k(y, z) = A[y, z].

    Combined with a kernel k_P on predictions, this is W19's matrix-valued kernel k_P(p, q) A.

    Attributes:
        matrix: A, symmetric positive semi-definite, [m, m].

    Calling it with traced labels outside 0, ..., m − 1 gives NaN, not a neighbouring entry.

    >>> import jax.numpy as jnp
    >>> print(LabelKernel(jnp.array([[1.0, 0.5], [0.5, 1.0]]))(0, 1))
    0.5
    """

    matrix: jax.Array = part(_semidefinite)

    def __call__(self, y: jax.Array, z: jax.Array) -> jax.Array:
        """Entry of the matrix for labels y and z."""
        matrix = jnp.asarray(self.matrix)
        y, z = (x.astype(int) if x.dtype == bool else x for x in map(jnp.asarray, (y, z)))
        return matrix.at[y, z].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)

    def value_range(self) -> Interval:
        """Smallest and largest entry."""
        return jnp.min(self.matrix), jnp.max(self.matrix)

    def squared_diameter(self) -> jax.Array:
        """Largest A[y, y] + A[z, z] − 2 A[y, z]."""
        diagonal = jnp.diagonal(self.matrix)
        return jnp.max(diagonal[:, None] + diagonal - 2 * self.matrix)


_WHOLE = LabelKernel | Distance


def checked_labels(kernel: object, name: str, points: Any) -> PyTree:
    """Points of a kernel: if it is, or contains, a kernel on labels, those that it has.

    Traced ones out of range give NaN in `LabelKernel` itself.
    """
    for kernel_part in jax.tree.leaves(kernel, is_leaf=lambda x: isinstance(x, _WHOLE)):
        is_labels = hasattr(points, "dtype") and jnp.issubdtype(points.dtype, jnp.integer)
        if isinstance(kernel_part, LabelKernel) and is_labels:
            points = checks.labels(name, points, len(kernel_part.matrix))
    return points


def _points(name: str, value: Any, seen: Seen) -> PyTree:
    """Points of a kernel, and of the kind of earlier ones."""
    value = checked_labels(seen["kernel"], name, checks.points(name, value))
    if name == "ys":  # whose numbers of components, or of draws, may differ
        num_axes = 2 if isinstance(value, Mixture | Ensemble) else 1
        checks.same_kind("ys", value, "xs", seen["xs"], num_axes=num_axes)
    return value


def _function(name: str, value: Any, seen: Seen) -> Any:
    """A function of two points, which may be a record."""
    del seen
    checks.function("kernel record", name, value)
    return checks.record_values(value, name)


@checked(kernel=_function, xs=_points, ys=_points)
def gram_matrix(kernel: Callable[[T, T], jax.Array], xs: T, ys: T | None = None) -> jax.Array:
    """Matrix of kernel values K_ij = k(x_i, y_j).

    Args:
        kernel: a kernel, or any function of two points such as a distance.
        xs: n points: an array or any pytree (a batch of distributions) with leading axis n.
        ys: n' points; `xs` by default.

    Returns:
        The matrix, [n, n'].

    Raises:
        TypeError: if the kernel is not a function of two points, or the points are not numbers.
        ValueError: if the points have no common leading axis, are not finite, or have parameters
            of no distribution, or if `ys` are of another kind.

    Cost: n n' evaluations and n n' memory. The estimators never hold this matrix.

    >>> import jax.numpy as jnp
    >>> from calibjax.kernels import SquaredExponential, gram_matrix
    >>> print(gram_matrix(SquaredExponential(), jnp.array([0.0, 1.0])))
    [[1.         0.60653067]
     [0.60653067 1.        ]]
    """
    ys = xs if ys is None else ys

    def entry(x: T, y: PyTree) -> jax.Array:
        value = checks.real("kernel(x, y)", kernel(x, y))
        checks.shape("kernel(x, y)", value, (), "() (a scalar)")
        return value

    rows = jax.vmap(entry, in_axes=(None, 0))
    return jax.vmap(rows, in_axes=(0, None))(xs, ys)
