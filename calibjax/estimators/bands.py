"""Bands for counts under calibration, from redraws of the whole data set.

Under calibration the observed counts are exchangeable with the redrawn ones.
"""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks


def checked_ranks(
    confidence_level: ArrayLike, num_draws: int
) -> tuple[float, int, tuple[int, int]]:
    """Level, number of redraws, and the ranks of the ends of the bands: pointwise, simultaneous."""
    level = checks.proportion("confidence_level", confidence_level)
    if not checks.is_concrete(level):
        expected = "expected a number that is known when compiling"
        raise TypeError(f"confidence_level: {expected}, got {level}")
    level = float(level)
    num_draws = checks.number_of_draws("num_draws", num_draws)
    share = Fraction(str(level))  # 1 − 0.9 is 0.1 here, for which 19 redraws suffice
    least = math.ceil(2 / (1 - share)) - 1
    if num_draws < least:
        raise ValueError(
            f"num_draws: expected at least {least} redraws for a band of level {level}, "
            f"got {num_draws}"
        )
    pointwise = math.floor((num_draws + 1) * (1 - share) / 2)
    return level, num_draws, (pointwise, math.ceil((num_draws + 1) * share))


def pointwise_band(redraws: jax.Array, rank: int) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest number of ones in the band of each bin, [K] each."""
    redraws = jnp.sort(redraws, 0)
    return redraws[rank - 1], redraws[-rank]


def simultaneous_band(
    redraws: jax.Array,
    rank: int,
    counts: jax.Array,
    expected: jax.Array,
    deviation: jax.Array,
    *,
    has_weights: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest number of ones, or sum of their weights, in the band of all bins.

    [K] each; numbers are integers, sums of weights are not.
    """
    # Where the deviation is zero, predictions are 0 or 1 and the difference is zero, too.
    divisors = jnp.where(deviation > 0, deviation, 1)
    largest = jnp.max(jnp.abs(redraws - expected) / divisors, 1)
    half = jnp.sort(largest)[rank - 1] * deviation
    # The redraw that defines the critical value is in the band despite rounding errors.
    rounding = rounding_of_sums(counts, expected)
    lower, upper = expected - half - rounding, expected + half + rounding
    if has_weights:  # of which all together may be more than their sum in another order
        return jnp.maximum(lower, 0), jnp.minimum(upper, counts + rounding)
    return jnp.maximum(jnp.ceil(lower), 0), jnp.minimum(jnp.floor(upper), counts)


def rounding_of_sums(counts: jax.Array, expected: jax.Array) -> jax.Array:
    """Differences of sums in bins of these sizes that are rounding errors."""
    return 16 * jnp.finfo(expected.dtype).eps * counts


def is_outside(values: jax.Array, lower: jax.Array, upper: jax.Array) -> jax.Array:
    """Which values are outside their band; NaN is."""
    return ~((values >= lower) & (values <= upper))
