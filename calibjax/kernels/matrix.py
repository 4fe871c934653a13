"""Kernel matrices."""

from typing import Any

import jax

from calibjax import _checks
from calibjax.kernels.base import Kernel


def gram_matrix(kernel: Kernel, xs: Any, ys: Any = None) -> jax.Array:
    """Matrix of kernel values K_ij = k(x_i, y_j).

    Args:
        kernel: a kernel, or any function of two points such as a distance.
        xs: n points: an array or any pytree (a batch of distributions) with leading axis n.
        ys: n' points; `xs` by default.

    Returns:
        The matrix, [n, n'].

    Raises:
        TypeError: if the kernel is not callable.
        ValueError: if the points have no common leading axis.

    Cost: n n' evaluations and n n' memory. The estimators never hold this matrix.

    >>> import jax.numpy as jnp
    >>> from calibjax.kernels import SquaredExponential, gram_matrix
    >>> print(gram_matrix(SquaredExponential(), jnp.array([0.0, 1.0])))
    [[1.         0.60653067]
     [0.60653067 1.        ]]
    """
    ys = xs if ys is None else ys
    _checks.kernel_values(kernel)
    _checks.leading_size("xs", xs)
    _checks.leading_size("ys", ys)
    rows = jax.vmap(kernel, in_axes=(None, 0))
    return jax.vmap(rows, in_axes=(0, None))(xs, ys)
