"""Data sets filled up to one of few lengths, so that many of them share their programs."""

from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._core.arithmetic import floating_dtype

# At most a quarter apart, and each of them a length that is often met as it is.
_UP_TO_80 = (8, 9, 11, 13, 16, 19, 23, 28, 34, 42, 52, 64, 80)
_DECADE = (100, 120, 150, 185, 230, 285, 350, 430, 530, 650, 800)
_LONGEST = 20_000  # beyond, computing takes longer than compiling


def rounded_up(n: int) -> int:
    """The smallest of few lengths that is at least n ≥ 8; smaller ones, and powers of two, stay."""
    if n.bit_count() == 1:  # sizes of batches and benchmarks
        return n
    if n <= _UP_TO_80[-1]:
        return next(length for length in _UP_TO_80 if length >= n) if n >= _UP_TO_80[0] else n
    unit = 1
    while n > 8 * _DECADE[0] * unit:
        unit *= 10
    lengths = (*_DECADE, 10 * _DECADE[0])
    return unit * next(length for length in lengths if length * unit >= n)


def filled(samples: tuple[Any, ...], weights: jax.Array | None) -> tuple[Any, jax.Array | None]:
    """Samples and weights, filled up with samples without weight to one of few lengths.

    Random numbers of the first samples do not depend on the length, so that neither do redraws.
    NumPy does it, which has no programs.

    Args:
        samples: checked predictions and more, with leading axis n.
        weights: what `checks.sample_weights` returned for them.
    """
    leaves = jax.tree.leaves((samples, weights))
    n = leaves[0].shape[0]
    if n > _LONGEST:
        return samples, weights
    length = rounded_up(n)

    places = np.pad(np.arange(n), (0, length - n))

    def fill(leaf: ArrayLike) -> ArrayLike:
        return leaf if n == length else np.asarray(leaf)[places]

    used = np.zeros(length, floating_dtype(samples[0]))
    used[:n] = 1 if weights is None else weights
    # Unlike `jnp.asarray` this has no program for each shape.
    return jax.device_put((jax.tree.map(fill, samples), used))
