"""Isotonic regression: of means by pooling adjacent violators, of quantiles by bisection."""

import functools
from fractions import Fraction

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


def isotonic_quantiles(
    inputs: jax.Array, outputs: jax.Array, level: float, weights: jax.Array | None = None
) -> jax.Array:
    """The non-decreasing function of the inputs with the least pinball loss to the outputs.

    Of several it is the lowest, max_{j ≤ i} min_{k ≥ i} of the lower quantile of outputs j, ..., k.
    It is at most z up to the last place at which Σ w (1{y ≤ z} − level) is largest. Such places
    increase with z, so that all values are found at once by bisection among the outputs, of which
    each round adds up within the segments that it has not told apart yet: log₂ n rounds, O(n) each.

    Args:
        inputs: increasing, [n]; equal ones share a value.
        outputs: [n].
        level: of the quantile.
        weights: of the errors, [n].

    Returns:
        Values at the inputs, [n]; each is one of the outputs.
    """
    n, dtype = inputs.size, outputs.dtype
    ordered = jnp.sort(outputs)
    ranks = jnp.searchsorted(ordered, outputs)
    is_end = jnp.append(inputs[1:] != inputs[:-1], True)
    places = jnp.arange(n)
    # In these units sums are exact of levels such as 0.1 and 1/3, so that ties are ties.
    share = Fraction(level).limit_denominator(10_000)
    share = share if float(share) == level else Fraction(str(level))
    gain, loss = float(share.denominator - share.numerator), float(share.numerator)
    used = jnp.ones(n, dtype) if weights is None else weights.astype(dtype)

    def halve(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = state
        middle = (low + high) // 2
        is_start = jnp.pad(low[1:] != low[:-1], (1, 0), constant_values=True)
        segment = jnp.cumsum(is_start) - 1
        terms = used * jnp.where(ranks <= middle, gain, -loss)
        sums = jnp.cumsum(terms)
        before = (sums - terms)[lax.cummax(jnp.where(is_start, places, 0))]
        largest = functools.partial(
            jax.ops.segment_max, segment_ids=segment, num_segments=n, indices_are_sorted=True
        )
        at_ends = jnp.where(is_end, sums, -jnp.inf)
        best = largest(at_ends)[segment]
        last = largest(jnp.where(at_ends == best, places, -1))[segment]
        is_below = (places <= last) & (best >= before)
        is_known = low == high
        return (
            jnp.where(is_known | is_below, low, middle + 1),
            jnp.where(is_known | ~is_below, high, middle),
        )

    start = jnp.zeros(n, places.dtype), jnp.full(n, n - 1, places.dtype)
    low, _ = lax.fori_loop(0, n.bit_length(), halve, start)
    return ordered[low]


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
