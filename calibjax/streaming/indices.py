"""Indices of samples that occur only once, as far as plain sums can tell."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.streaming.base import State

_BITS = 3  # leading bits, after the first, that tell intervals apart
_HALF = 2**_BITS
_NUM_INTERVALS = _HALF * (32 - _BITS)  # of indices below 2³¹

SHAPES = {"indices": (), "intervals": (_NUM_INTERVALS,)}


@functools.cache
def _intervals() -> tuple[np.ndarray, np.ndarray]:
    """First index and size of each interval: single ones below 16, eighths of octaves beyond."""
    intervals = np.arange(_NUM_INTERVALS)
    shifts = np.maximum(intervals // _HALF - 1, 0)
    first = np.where(intervals < _HALF, intervals, (intervals % _HALF + _HALF) << shifts)
    return first.astype(np.int32), (1 << shifts).astype(np.int32)


@jax.jit
def counts_of(indices: jax.Array) -> dict[str, jax.Array]:
    """The sum of the indices modulo 2³², and how many of them are in each interval."""
    length = 32 - jax.lax.clz(indices)
    shifts = jnp.maximum(length - (_BITS + 1), 0)
    intervals = _HALF * shifts + (indices >> shifts)
    found = jnp.zeros(_NUM_INTERVALS, jnp.int32).at[intervals].add(1, mode="drop")
    return {"indices": jnp.sum(indices, dtype=jnp.int32), "intervals": found}


def checked_indices(state: State, indices: ArrayLike | None, n: int) -> jax.Array:
    """Indices of n more samples; negative for traced ones that are refused.

    Raises:
        ValueError: if they are no integers that are allowed, if one occurs twice among them, or if
            they are numbered by default although those in the state are not 0, …, n − 1.
    """
    if indices is None:
        number, are_consecutive = state.counts["samples"], _are_consecutive(state)
        if checks.is_concrete(are_consecutive) and not np.all(are_consecutive):
            raise ValueError(
                f"indices: expected those of the batch, got None, and a state of {number} samples "
                f"whose indices are not 0, ..., {number - 1}; either hand over indices with every "
                "batch or with none"
            )
        return jnp.where(are_consecutive, number + jnp.arange(n, dtype=jnp.int32), -1)
    found = checks.group_ids("indices", indices, n, kind="number")
    if checks.is_concrete(found):
        values, counts = np.unique(np.asarray(found), return_counts=True)
        if len(values) < n:
            twice = values[np.argmax(counts)]
            raise ValueError(
                f"indices: expected a number of its own for each sample, got {twice} twice"
            )
    return found


def _are_consecutive(state: State) -> jax.Array:
    """Whether the sums are those of the indices 0, …, n − 1."""
    number = state.counts["samples"]
    first, sizes = _intervals()
    is_odd = number % 2
    total = jnp.where(is_odd, number, number - 1) * (jnp.where(is_odd, number - 1, number) // 2)
    return (state.counts["indices"] == total) & jnp.all(  # both modulo 2³²
        state.counts["intervals"] == jnp.clip(number - first, 0, sizes)
    )


def may_be_different(state: State) -> jax.Array:
    """Whether no interval has more indices than it has room for.

    Raises:
        ValueError: if one has.
    """
    found = state.counts["intervals"]
    first, sizes = _intervals()
    has_room = found <= sizes
    if checks.is_concrete(has_room) and not np.all(has_room):
        worst = np.argmin(has_room)
        last = first[worst] + sizes[worst] - 1
        raise ValueError(
            f"state: expected samples with different indices, got {found[worst]} samples with "
            f"indices from {first[worst]} to {last}; hand over indices to update where several "
            "states are merged, and every sample once"
        )
    return jnp.all(has_room)
