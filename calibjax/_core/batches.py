"""Draws under calibration, in batches."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.devices import Result
from calibjax._core.pytree import T

BATCH_BYTES = 2**24  # what the draws in one batch hold at once by default: about a cache


def default_batch_size(bytes_per_draw: int) -> int:
    """Number of draws that are evaluated at once unless the user says otherwise."""
    return max(1, BATCH_BYTES // bytes_per_draw)


def in_batches(
    key: jax.Array, evaluate: Callable[[jax.Array], Result], num_draws: int, batch_size: int
) -> Result:
    """Values of `evaluate` for as many keys as there are draws, `batch_size` of them at once.

    Args:
        key: a JAX random key.
        evaluate: keys of a batch, [b], to a pytree of values, [b, ...] each.
        num_draws: number of draws.
        batch_size: largest b.

    Returns:
        The same pytree, [num_draws, ...] each.
    """
    return map_batches(jax.random.split(key, num_draws), evaluate, batch_size)


def map_batches(items: T, evaluate: Callable[[T], Result], batch_size: int) -> Result:
    """Values of `evaluate` for all items, a pytree with leading axis, `batch_size` of them at once.

    Args:
        items: pytree of arrays, [N, ...] each.
        evaluate: items of a batch, [b, ...] each, to a pytree of values, [b, ...] each.
        batch_size: largest b.

    Returns:
        The pytree of values, [N, ...] each.
    """
    number = jax.tree.leaves(items)[0].shape[0]
    num_batches = -(-number // batch_size)
    size = -(-number // num_batches)

    def split(x: jax.Array) -> jax.Array:
        padded = jnp.concatenate([x, x[: num_batches * size - number]])
        return padded.reshape(num_batches, size, *x.shape[1:])

    values = lax.map(evaluate, jax.tree.map(split, items))
    shape = (num_batches * size,)
    return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[2:])[:number], values)
