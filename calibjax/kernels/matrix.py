"""Kernel matrices."""

from collections.abc import Callable

import jax

from calibjax._core import checks
from calibjax._core.pytree import PyTree, T
from calibjax.distributions import Ensemble, Mixture
from calibjax.kernels.labels import checked_labels


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
