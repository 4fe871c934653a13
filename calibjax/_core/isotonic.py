"""Isotonic regression of means, by pooling adjacent violators."""

import jax
import jax.numpy as jnp
from jax import lax


def isotonic_means(
    inputs: jax.Array, outputs: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """The non-decreasing function of the inputs with the least squared error to the outputs.

    All adjacent violators are pooled at once, until none are left: about log n rounds for
    independent data.

    Args:
        inputs: increasing, [n]; equal ones share a value.
        outputs: 0 or 1, [n], of which sums, and their differences, are exact.
        weights: of the errors, [n], none of them 0 but for copies of inputs with other weights.

    Returns:
        Values at the inputs, [n].
    """
    block_means, sums = _block_means, jnp.pad(jnp.cumsum(outputs), (1, 0))
    if weights is not None:
        block_means, sums = _weighted_means, jnp.stack([weights * outputs, weights], 1)

    def pool(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        is_start, _ = state
        means, first = block_means(lax.stop_gradient(sums), is_start)
        rises = (first == 0) | (means[first - 1] < means)
        return is_start & rises, jnp.any(is_start & ~rises)

    is_start = jnp.pad(inputs[1:] != inputs[:-1], (1, 0), constant_values=True)
    is_start, _ = lax.while_loop(lambda state: state[1], pool, (is_start, jnp.array(True)))
    return block_means(sums, is_start)[0]


def _block_means(sums: jax.Array, is_start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean over the block of each position, and the first position of the block, [n] each."""
    n = is_start.size
    positions = jnp.arange(n, dtype=jnp.int32)
    first = lax.cummax(jnp.where(is_start, positions, 0))
    starts_after = jnp.append(jnp.where(is_start, positions, n)[1:], n)
    end = lax.cummin(starts_after, reverse=True)
    return (sums[end] - sums[first]) / (end - first), first


def _weighted_means(columns: jax.Array, is_start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same for weighted outputs and weights, [n, 2], whose differences are not exact."""
    n = is_start.size
    first = lax.cummax(jnp.where(is_start, jnp.arange(n, dtype=jnp.int32), 0))
    sums, totals = jax.ops.segment_sum(columns, first, n, indices_are_sorted=True)[first].T
    return sums / jnp.where(totals == 0, 1, totals), first
