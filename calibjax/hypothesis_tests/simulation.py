"""Draws under the null hypothesis, in batches."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from calibjax import _checks, pairwise

_BATCH_BYTES = 2**24  # what the draws in one batch hold at once by default: about a cache
_BATCH_COUNTS = 2**24  # resampling counts that are held at once


def default_batch_size(bytes_per_draw: int) -> int:
    """Number of draws that are evaluated at once unless the user says otherwise."""
    return max(1, _BATCH_BYTES // bytes_per_draw)


def bytes_of_tile(num_samples: int) -> int:
    """What one statistic holds that works on tiles of pairs."""
    return 16 * min(num_samples, pairwise.TILE_SIZE) ** 2


def in_batches(
    key: jax.Array, evaluate: Callable[[jax.Array], Any], num_samples: int, batch_size: int
) -> Any:
    """Values of `evaluate` for as many keys as there are draws, `batch_size` of them at once.

    Args:
        key: a JAX random key.
        evaluate: keys of a batch, [b], to a pytree of values, [b, ...] each.
        num_samples: number of draws.
        batch_size: largest b.

    Returns:
        The same pytree, [num_samples, ...] each.
    """
    keys = jax.random.split(key, num_samples)
    num_batches = -(-num_samples // batch_size)
    size = -(-num_samples // num_batches)
    keys = jnp.concatenate([keys, keys[: num_batches * size - num_samples]])
    values = lax.map(evaluate, keys.reshape(num_batches, size))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_samples], values)


def multinomial_counts(keys: jax.Array, num_samples: int) -> jax.Array:
    """How often each sample occurs in a resample of n with replacement, for each key, [n, keys]."""

    def count(key: jax.Array) -> jax.Array:
        draws = jax.random.randint(key, (num_samples,), 0, num_samples)
        return jnp.zeros(num_samples, jnp.int32).at[draws].add(1)

    return jax.vmap(count, out_axes=1)(keys)


def resamples_at_once(num_samples: int) -> int:
    """Number of resamples whose counts are held at once by default."""
    return max(1, _BATCH_COUNTS // num_samples)


def checked_statistic(statistic: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The statistic, its values checked to be real and turned into floating-point numbers."""
    _checks.function(
        "function (predictions, targets) -> numbers",
        "statistic",
        statistic,
        "predictions",
        "targets",
    )

    def value(predictions: Any, targets: Any) -> Any:
        def checked(path: Any, leaf: Any) -> jax.Array:
            place = f"statistic(predictions, targets){jax.tree_util.keystr(path)}"
            _checks.real(place, leaf)
            leaf = jnp.asarray(leaf)
            return leaf.astype(jnp.result_type(leaf, jnp.float32))  # counts are numbers too

        values = jax.tree_util.tree_map_with_path(checked, statistic(predictions, targets))
        if not any(map(jnp.size, jax.tree.leaves(values))):
            raise ValueError("statistic(predictions, targets): expected numbers, got none")
        return values

    return value
