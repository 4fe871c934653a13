"""Bins of predictions that come from splits at medians, see `binnings.MedianVarianceBins`."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike


@functools.partial(jax.jit, static_argnums=(1, 2))
def median_cells(
    probs: jax.Array, num_samples: int, min_size: int, weights: jax.Array | None
) -> jax.Array:
    """Bins of the samples, followed by those of other points, after all possible splits, int32."""
    max_bins, size = num_samples // min_size, min_size
    if weights is not None:  # whose sums are rounded
        max_bins, size = max_bins + 1, min_size * (1 - relative_rounding(num_samples, probs.dtype))
    start = jnp.zeros(len(probs), jnp.int32), jnp.int32(1), jnp.arange(max_bins) == 0
    data = lax.stop_gradient((probs, weights))
    split = functools.partial(_split_once, *data, num_samples, size)
    bins, _, _ = lax.while_loop(lambda state: jnp.any(state[-1]), split, start)
    return bins


def _split_once(
    probs: jax.Array,
    weights: jax.Array | None,
    num_samples: int,
    min_size: float,
    state: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Splits all bins that may still be split, once.

    Args:
        probs: class probabilities of the samples, followed by those of other points, [n + n', m].
        weights: of the samples, [n], or None.
        num_samples: n.
        min_size: smallest size of a part.
        state: bins [n + n'], number of bins, and which bins may be split [max_bins].

    Returns:
        The new state.
    """
    bins, num_bins, is_open = state
    max_bins = is_open.size
    samples, theirs = probs[:num_samples], bins[:num_samples]
    used = jnp.ones_like(theirs) if weights is None else weights
    sizes = jax.ops.segment_sum(used, theirs, max_bins)
    classes = _most_variable_classes(samples, theirs, sizes, weights)
    values = jnp.take_along_axis(probs, classes[bins][:, None], 1)[:, 0]
    if weights is None:
        medians = _medians(values[:num_samples], theirs, sizes)
    else:
        medians = _weighted_medians(values[:num_samples], theirs, sizes, weights)
    is_below = values < medians[bins]
    below = jax.ops.segment_sum(is_below[:num_samples] * used, theirs, max_bins)
    above = sizes - below
    is_split = is_open & (below >= min_size) & (above >= min_size)
    new_bins = num_bins - 1 + jnp.cumsum(is_split, dtype=jnp.int32)  # the parts above
    bins = jnp.where(is_split[bins] & ~is_below, new_bins[bins], bins)
    new_bins = jnp.where(is_split, new_bins, max_bins)
    is_open = is_split & (below >= 2 * min_size)
    is_open = is_open.at[new_bins].set(above >= 2 * min_size, mode="drop")
    return bins, num_bins + jnp.sum(is_split, dtype=jnp.int32), is_open


def relative_rounding(n: int, dtype: DTypeLike) -> float:
    """Size of the relative rounding errors of sums of n numbers."""
    return 4 * math.sqrt(n) * float(jnp.finfo(dtype).eps)


def _most_variable_classes(
    probs: jax.Array, bins: jax.Array, sizes: jax.Array, weights: jax.Array | None
) -> jax.Array:
    """The first class with the largest variance in each bin, [number of bins]."""
    n, max_bins = len(probs), sizes.size
    # Differences from one member are exactly zero for constant classes, and exact for nearly
    # constant ones: variances of saturated predictions are of the size of rounding errors.
    places = jnp.arange(n, dtype=jnp.int32)
    if weights is not None:
        places = jnp.where(weights > 0, places, -1)
    members = jax.ops.segment_max(places, bins, max_bins)
    shifted = probs - probs[members[bins]]
    if weights is not None:
        shifted = jnp.where(weights[:, None] > 0, shifted, 0)
    # Squares of tiny differences would underflow.
    spreads = jax.ops.segment_max(jnp.max(jnp.abs(shifted), 1), bins, max_bins)
    shifted = shifted / jnp.where(spreads > 0, spreads, 1)[bins][:, None]
    used = 1 if weights is None else weights[:, None]
    divisors = jnp.where(sizes == 0, 1, sizes)[:, None]
    means = jax.ops.segment_sum(used * shifted, bins, max_bins) / divisors
    sums = jax.ops.segment_sum(used * jnp.square(shifted - means[bins]), bins, max_bins)
    # Rounding depends on the order of the samples, but the bins must not. Two classes have equal
    # variances, unless one of them lost its digits in 1 − p.
    rounding = relative_rounding(n, probs.dtype) if probs.shape[1] > 2 else 0.5
    return jnp.argmax(sums >= (1 - rounding) * jnp.max(sums, 1, keepdims=True), 1)


def _medians(values: jax.Array, bins: jax.Array, sizes: jax.Array) -> jax.Array:
    """Medians of the values in each bin, [number of bins]."""
    _, values = lax.sort((bins, values), num_keys=2, is_stable=False)
    first = jnp.cumsum(sizes, dtype=jnp.int32) - sizes
    return (values[first + (sizes - 1) // 2] + values[first + sizes // 2]) / 2


def _weighted_medians(
    values: jax.Array, bins: jax.Array, sizes: jax.Array, weights: jax.Array
) -> jax.Array:
    """Medians of the values in each bin, with weights whose sums are the sizes."""
    bins, values, weights = lax.sort((bins, values, weights), num_keys=2, is_stable=False)

    def add(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[Any, Any]:
        same = first[0] == second[0]
        return second[0], second[1] + jnp.where(same, first[1], 0)

    _, mass = lax.associative_scan(add, (bins, weights))  # up to each value of a bin
    half, rounding = sizes[bins] / 2, relative_rounding(len(values), mass.dtype)
    places = jnp.arange(len(values), dtype=jnp.int32)

    def first_where(condition: jax.Array) -> jax.Array:
        found = jnp.where(condition, places, len(values) - 1)
        return values[jax.ops.segment_min(found, bins, sizes.size)]

    # The same value twice, unless just half of the weights are up to the first one.
    lower = first_where(mass >= (1 - rounding) * half)
    return (lower + first_where(mass > (1 + rounding) * half)) / 2
