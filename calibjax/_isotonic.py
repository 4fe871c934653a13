"""Isotonic regression, by pooling adjacent violators."""

import jax
import jax.numpy as jnp
from jax import lax


def isotonic_means(inputs: jax.Array, outputs: jax.Array) -> jax.Array:
    """The non-decreasing function of the inputs with the least squared error to the outputs.

    All adjacent violators are pooled at once, until none are left: about log n rounds for
    independent data.

    Args:
        inputs: increasing, [n]; equal ones share a value.
        outputs: 0 or 1, [n], of which sums, and their differences, are exact.

    Returns:
        Values at the inputs, [n].
    """
    sums = jnp.pad(jnp.cumsum(outputs), (1, 0))

    def pool(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        is_start, _ = state
        means, first = _block_means(lax.stop_gradient(sums), is_start)
        rises = (first == 0) | (means[first - 1] < means)
        return is_start & rises, jnp.any(is_start & ~rises)

    is_start = jnp.pad(inputs[1:] != inputs[:-1], (1, 0), constant_values=True)
    is_start, _ = lax.while_loop(lambda state: state[1], pool, (is_start, jnp.array(True)))
    return _block_means(sums, is_start)[0]


def _block_means(sums: jax.Array, is_start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean over the block of each position, and the first position of the block, [n] each."""
    n = is_start.size
    positions = jnp.arange(n, dtype=jnp.int32)
    first = lax.cummax(jnp.where(is_start, positions, 0))
    starts_after = jnp.append(jnp.where(is_start, positions, n)[1:], n)
    end = lax.cummin(starts_after, reverse=True)
    return (sums[end] - sums[first]) / (end - first), first
