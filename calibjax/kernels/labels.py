"""Kernels on class labels, and kernel matrices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks, matrices
from calibjax._core.pytree import PyTree, T, record
from calibjax.distances import Distance
from calibjax.distributions import Ensemble, Mixture
from calibjax.kernels.base import Interval, Kernel


def _refuse_other_points(
    kernel: str, expected: str, y: object, z: object, kind: type = jnp.number
) -> None:
    """Refuses points that are not numbers of a kind, or truth values."""
    for point in (y, z):
        is_array = isinstance(point, int | float | jax.Array | np.ndarray | np.generic)
        dtype = jnp.result_type(point) if is_array else type(point)
        if not (is_array and (jnp.issubdtype(dtype, kind) or dtype == jnp.bool_)):
            got = f"numbers of {dtype}" if is_array else checks.described(point)
            raise TypeError(f"kernel {kernel}: expected {expected} as points, got {got}")


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
        _refuse_other_points("White", "arrays of labels or numbers", y, z)
        return jnp.all(jnp.equal(y, z)) * 1.0

    def label_scales(self, probs: jax.Array) -> jax.Array:
        """Factors of the entries of e_y − p in the features for classes, [..., m]."""
        return jnp.ones_like(probs)

    def value_range(self) -> Interval:
        """From 0 to 1."""
        return 0.0, 1.0


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

    matrix: jax.Array

    def __call__(self, y: jax.Array, z: jax.Array) -> jax.Array:
        """Entry of the matrix for labels y and z."""
        _refuse_other_points("LabelKernel", "class labels", y, z, jnp.integer)
        matrix = jnp.asarray(self.matrix)
        return matrix.at[y, z].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)

    def value_range(self) -> Interval:
        """Smallest and largest entry."""
        return jnp.min(self.matrix), jnp.max(self.matrix)

    def squared_diameter(self) -> jax.Array:
        """Largest A[y, y] + A[z, z] − 2 A[y, z]."""
        diagonal = jnp.diagonal(self.matrix)
        return jnp.max(diagonal[:, None] + diagonal - 2 * self.matrix)

    def check_values(self, name: str) -> "LabelKernel":
        """Refuses matrices that are not symmetric positive semi-definite."""
        place = f"{name}.matrix"
        values = checks.floating(place, checks.as_arrays(place, self.matrix))
        shape = jnp.shape(values)
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
            raise ValueError(f"{name}.matrix: expected shape [m, m], got {shape}")
        values = checks.finite(place, values)
        if checks.is_concrete(values):
            matrix = np.asarray(values)
            tolerance = shape[0] * np.finfo(matrix.dtype).eps * max(np.abs(matrix).max(), 1e-30)
            if np.abs(matrix - matrix.T).max() > tolerance:
                raise ValueError(f"{name}.matrix: expected a symmetric matrix, got {matrix}")
            smallest = np.linalg.eigvalsh(matrix)[0]
            if smallest < -10 * tolerance:
                raise ValueError(
                    f"{name}.matrix: expected a positive semi-definite matrix, "
                    f"got smallest eigenvalue {smallest}"
                )
        else:
            fixed = lax.stop_gradient(values)
            size = jnp.maximum(jnp.max(jnp.abs(fixed)), 1e-30)
            tolerance = shape[0] * jnp.finfo(values.dtype).eps * size
            is_symmetric = jnp.max(jnp.abs(fixed - fixed.T)) <= tolerance
            # No LAPACK: several batched calls in one program may deadlock.
            root = matrices.cholesky(fixed + 10 * tolerance * jnp.eye(shape[0], dtype=fixed.dtype))
            is_semidefinite = jnp.all(jnp.diagonal(root) > 0)
            values = checks.nan_unless(is_symmetric & is_semidefinite, values)
        return self if values is self.matrix else LabelKernel(values)


def checked_labels(kernel: object, name: str, points: Any) -> PyTree:
    """Points of a kernel: if it is, or contains, a kernel on labels, those that it has.

    Traced ones out of range give NaN in `LabelKernel` itself.
    """

    def is_whole(part: object) -> bool:
        return isinstance(part, LabelKernel | Distance)

    for part in jax.tree.leaves(kernel, is_leaf=is_whole):
        is_labels = hasattr(points, "dtype") and jnp.issubdtype(points.dtype, jnp.integer)
        if isinstance(part, LabelKernel) and is_labels:
            points = checks.labels(name, points, len(part.matrix))
    return points


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
    checks.function("kernel record", "kernel", kernel, "x", "y")
    kernel = checks.record_values(kernel, "kernel")
    xs = checked_labels(kernel, "xs", checks.points("xs", xs))
    if ys is None:
        ys = xs
    else:
        ys = checked_labels(kernel, "ys", checks.points("ys", ys))
        # Numbers of components, or of draws, may differ.
        num_axes = 2 if isinstance(xs, Mixture | Ensemble) else 1
        checks.same_kind("ys", ys, "xs", xs, num_axes=num_axes)

    def entry(x: T, y: PyTree) -> jax.Array:
        value = checks.real("kernel(x, y)", kernel(x, y))
        checks.shape("kernel(x, y)", value, (), "() (a scalar)")
        return value

    rows = jax.vmap(entry, in_axes=(None, 0))
    return jax.vmap(rows, in_axes=(0, None))(xs, ys)
