"""Sums of features of single samples, which take linear time."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul
from calibjax._core.batches import jit_long
from calibjax._core.pytree import PyTree
from calibjax.operators.tiles import Args, Point

BLOCK_SIZE = 2032  # samples held at once; rows of 2048 would compete for the same part of a cache


@functools.partial(jit_long, static_argnames=("function", "block_size"))
def feature_sums(
    function: Callable[[Args, Point], jax.Array],
    args: Args,
    xs: Point,
    weights: jax.Array,
    square_weights: jax.Array,
    *,
    block_size: int = BLOCK_SIZE,
) -> tuple[jax.Array, jax.Array]:
    """Sums Σ_i w_is f_c(x_i) of features, and Σ_i v_it f_c(x_i)² of their squares.

    If w are features of a kernel on predictions and f those of a target kernel, the squares of the
    first sums add up to the sum of their product over all pairs; the second sums, with v = ‖w‖²,
    are its part on the diagonal.

    Args:
        function: features of m samples, (args, xs) → [c, m].
        args: pytree that is handed to each call.
        xs: samples, a pytree with leading axis n.
        weights: w, [n, S].
        square_weights: v, [n, T].
        block_size: number of samples whose features are held at once.

    Returns:
        Both sums, [S, c] and [T, c].

    Cost: n evaluations and n (S + T) c multiplications, O(n (S + T) + block_size c) memory.

    >>> import jax.numpy as jnp
    >>> from calibjax.operators import feature_sums
    >>> def powers(scale, xs):
    ...     return jnp.stack([scale * xs, xs**2])
    >>> ones = jnp.ones((3, 1))
    >>> print(*feature_sums(powers, 2.0, jnp.array([1.0, 2.0, 3.0]), ones, ones))
    [[12. 14.]] [[56. 98.]]
    """
    data = xs, weights, square_weights
    n = data[1].shape[0]
    num_blocks = -(-n // block_size)
    size = -(-n // num_blocks)

    def step(total: tuple, index: jax.Array) -> tuple[PyTree, None]:
        # The last block starts earlier, so that it is full; samples of the one before are left out.
        start = jnp.minimum(index * size, n - size)
        is_own = (start + jnp.arange(size) >= index * size)[:, None]
        block = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, size), data)
        values = function(args, block[0]).T
        w, v = (jnp.where(is_own, part, 0) for part in block[1:])
        terms = matmul(w.T, values), matmul(v.T, jnp.square(values))
        return jax.tree.map(jnp.add, total, terms), None

    first = jax.eval_shape(lambda index: step((0, 0), index)[0], 0)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), first)
    return lax.scan(jax.checkpoint(step), zeros, jnp.arange(num_blocks))[0]
