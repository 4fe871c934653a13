"""Uniformity of PIT values: their counts in bins, and the coverage of quantiles and intervals.

If the model is calibrated then, given the predictions, the PIT values are independent and uniform
on (0, 1). The bands contain what independent uniform numbers give.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt
from calibjax._core.batches import default_batch_size, in_batches
from calibjax._core.pytree import record
from calibjax.estimators.bands import checked_ranks, is_outside, simultaneous_band

LEVELS = tuple(np.arange(1, 20) / 20)
_BYTES_PER_NUMBER = 32  # random bits, a uniform number and its cell in one redraw


@record
class PITHistogram:
    """Numbers of PIT values in bins of equal width, and a band for all of them.

    Attributes:
        edges: of the bins, from 0 to 1; a bin contains its upper edge, [K + 1].
        counts: number of values in each bin, integers, [K]; with weights their sum, where that of
            all values is their effective number (Σ_i w_i)² / Σ_i w_i².
        simultaneous_lower: lower end of the band of all bins at once, [K].
        simultaneous_upper: its upper end, [K].
        confidence_level: lower bound of the probability under calibration that all counts are in
            the band; a Python number.
    """

    edges: jax.Array
    counts: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})

    @property
    def is_outside(self) -> jax.Array:
        """Which bins are outside the band, [K]; see `ReliabilityCurve.is_outside`."""
        return is_outside(self.counts, self.simultaneous_lower, self.simultaneous_upper)


@record
class CoverageCurve:
    """Share of targets that predicted sets contain, over the probability of the sets.

    Attributes:
        levels: predicted probabilities of the sets, increasing, [L].
        coverage: shares of the targets that are in them, [L].
        simultaneous_lower: lower end of the band of all levels at once, [L].
        simultaneous_upper: its upper end, [L].
        confidence_level: lower bound of the probability under calibration that all shares are in
            the band; a Python number.
        kind: "quantile" if the sets are all numbers up to a quantile, "interval" if they are the
            central intervals.
    """

    levels: jax.Array
    coverage: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})
    kind: str = dataclasses.field(metadata={"static": True})

    @property
    def is_outside(self) -> jax.Array:
        """Which levels are outside the band, [L]; see `ReliabilityCurve.is_outside`."""
        return is_outside(self.coverage, self.simultaneous_lower, self.simultaneous_upper)

    def mean_absolute_calibration_error(self) -> jax.Array:
        """Mean over the levels of |coverage − level|, a scalar."""
        return jnp.mean(jnp.abs(self.coverage - self.levels), -1)

    def root_mean_squared_calibration_error(self) -> jax.Array:
        """Root of the mean over the levels of (coverage − level)², a scalar."""
        return safe_sqrt(jnp.mean(jnp.square(self.coverage - self.levels), -1))

    def miscalibration_area(self) -> jax.Array:
        """Area between the diagonal and the curve from (0, 0) over its points to (1, 1), a scalar.

        The three numbers are those of Chung et al. (2021), Uncertainty Toolbox, whose levels are
        100 equally spaced ones from 0 to 1; 0 and 1 count in the means there.
        """
        pad = [(0, 0)] * (self.levels.ndim - 1) + [(1, 1)]
        widths = jnp.diff(jnp.pad(self.levels, pad).at[..., -1].set(1))
        difference = jnp.pad(self.coverage - self.levels, pad)
        a, b = difference[..., :-1], difference[..., 1:]
        sums = jnp.abs(a) + jnp.abs(b)
        crossing = (a * a + b * b) / jnp.where(sums > 0, sums, 1)  # two triangles
        return jnp.sum(widths * jnp.where(a * b < 0, crossing, sums), -1) / 2


def pit_counts(
    key: jax.Array,
    values: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_bins: int = 10,
    num_draws: int = 999,
    confidence_level: float = 0.9,
) -> PITHistogram:
    """Numbers of PIT values in bins of equal width, with a band for all bins at once.

    The band comes from B redraws of n independent uniform numbers. With S_k the count of bin k,

        |S_k − n/K| / √(n (1 − 1/K) / K) ≤ c in every bin,

    where c is the ⌈(B + 1) γ⌉-th smallest of the B maxima of the left-hand side over the bins of
    each redraw, for the confidence level γ. Under calibration all counts are in the band with
    probability at least γ, for every n, every B and every K. With weights the redraws keep them,
    and n is the effective number of values.

    Counts that are high at both ends mean that predictions are too narrow, counts that are high in
    the middle that they are too wide, a slope that they are biased. Equal counts do not imply
    calibration, because errors may cancel over the samples. `plotting.pit_histogram` draws them.

    Args:
        key: a JAX random key.
        values: result of `pit_values`, or other numbers that should be uniform on (0, 1), [n].
        weights: w ≥ 0 of the values, [n]; None for values that count equally.
        num_bins: K.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: γ in (0, 1).

    Returns:
        The counts, their bins and their band.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too few redraws for the level.

    Cost: B n draws, O(B K + n) memory.

    References: see `pit_values`; for the band see `reliability_curve`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import estimators
    >>> histogram = estimators.pit_counts(
    ...     jax.random.key(0), jnp.linspace(0.05, 0.55, 100), num_bins=2
    ... )
    >>> print(histogram.counts, histogram.is_outside)
    [90 10] [ True  True]
    """
    num_bins = checks.size_in_range("num_bins", num_bins, 1, 2**16)
    key, values, weights, (confidence_level, num_draws, ranks) = _checked(
        key, values, weights, confidence_level, num_draws
    )
    edges = jnp.asarray(np.linspace(0, 1, num_bins + 1), values.dtype)
    options = {"num_draws": num_draws, "rank": ranks[1]}
    counts, lower, upper = _counted(key, values, weights, edges[1:], **options)
    return PITHistogram(edges, counts, lower, upper, confidence_level)


def coverage_curve(
    key: jax.Array,
    values: ArrayLike,
    *,
    kind: str = "interval",
    weights: ArrayLike | None = None,
    levels: ArrayLike | None = None,
    num_draws: int = 999,
    confidence_level: float = 0.9,
) -> CoverageCurve:
    """Share of targets in the predicted intervals, or up to the predicted quantiles, with a band.

        "interval": coverage(γ) = #{i: |2 u_i − 1| ≤ γ} / n,
        "quantile": coverage(τ) = #{i: u_i ≤ τ} / n,

    with the PIT values u_i, and sums of weights instead of numbers if there are weights. The first
    is the coverage of the central interval between the predicted quantiles of the levels
    (1 − γ)/2 and (1 + γ)/2. Below the diagonal intervals are too narrow, above it too wide. If
    targets equal quantiles, u_i is random and the coverage about γ under calibration, although
    closed intervals contain more targets. The second is the empirical distribution function of the
    PIT values: u_i ≤ τ means that y_i is at most the predicted τ-quantile.

    The band is that of `pit_counts` for the numbers of values up to each level: under calibration
    all shares are in it with at least the probability `confidence_level`.

    Args:
        key: a JAX random key.
        values: result of `pit_values`, or other numbers that should be uniform, such as p-values,
            [n].
        kind: "interval" or "quantile".
        weights: w ≥ 0 of the values, [n], which the redraws keep; None for values that count
            equally.
        levels: γ or τ in (0, 1), [L]; 0.05, 0.1, ..., 0.95 by default. For `Quantiles` only their
            own levels, or the probabilities between two of them, are meaningful.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: of the band, in (0, 1).

    Returns:
        The curve, with increasing levels. Its methods summarise it in one number.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too few redraws for the level.

    Cost: B n draws, O(B L + n) memory.

    References: Gneiting, Balabdaoui and Raftery (2007), §3.1; W21 Fig. 5 for quantiles. For the
    idea of a simultaneous band of uniform numbers see Säilynoja, Bürkner and Vehtari (2022),
    Graphical test for discrete uniformity. `hypothesis_tests.coverage_test` is the test for
    `Quantiles`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import estimators
    >>> pit = jnp.linspace(0.3, 0.7, 100)
    >>> curve = estimators.coverage_curve(jax.random.key(0), pit, levels=jnp.array([0.2, 0.5]))
    >>> print(curve.coverage, curve.is_outside)
    [0.5 1. ] [ True  True]
    >>> print(f"{curve.mean_absolute_calibration_error():.2f}")
    0.40
    """
    kind = checks.choice("kind", kind, ("interval", "quantile"))
    key, values, weights, (confidence_level, num_draws, ranks) = _checked(
        key, values, weights, confidence_level, num_draws
    )
    levels = checked_levels(levels)
    options = {"num_draws": num_draws, "rank": ranks[1], "kind": kind}
    ordered, coverage, lower, upper = _shares(key, values, weights, levels, **options)
    return CoverageCurve(ordered, coverage, lower, upper, confidence_level, kind)


def checked_levels(levels: Any) -> jax.Array:
    """Levels in (0, 1), [L]; 0.05, 0.1, ..., 0.95 if they are None."""
    levels = LEVELS if levels is None else levels
    levels = checks.floating("levels", checks.as_arrays("levels", levels))
    checks.shape("levels", levels, (None,), "[L]")
    checks.leading_size("levels", levels)
    return checks.proportions("levels", levels)


def _checked(
    key: jax.Array,
    values: ArrayLike,
    weights: ArrayLike | None,
    confidence_level: ArrayLike,
    num_draws: int,
) -> tuple[jax.Array, jax.Array, jax.Array | None, tuple[float, int, tuple[int, int]]]:
    key = checks.random_key(key)
    checks.same_rows(values=values, weights=weights)
    values = checks.floating("values", checks.as_arrays("values", values))
    checks.shape("values", values, (None,), "[n]")
    checks.leading_size("values", values)
    values = jnp.asarray(checks.unit_interval("values", values))
    weights = checks.sample_weights(weights, values)
    return key, values, weights, checked_ranks(confidence_level, num_draws)


@functools.partial(jax.jit, static_argnames=("num_draws", "rank", "kind"))
def _shares(
    key: jax.Array,
    values: jax.Array,
    weights: jax.Array | None,
    levels: jax.Array,
    *,
    num_draws: int,
    rank: int,
    kind: str,
) -> tuple[jax.Array, ...]:
    """Sorted levels, coverage, and the ends of its band, [L] each."""
    ordered = jnp.sort(levels.astype(values.dtype))
    inside = jnp.abs(2 * values - 1) if kind == "interval" else values
    options = {"num_draws": num_draws, "rank": rank, "is_cumulative": True}
    counts, lower, upper = _counted(key, inside, weights, ordered, **options)
    coverage = jnp.where(jnp.isnan(lower), jnp.nan, counts)
    size = values.size if weights is None else jnp.sum(weights)
    shares = (x.astype(values.dtype) / size for x in (coverage, lower, upper))
    return checks.nan_with(ordered, ordered), *shares  # sorting puts NaN last


@functools.partial(jax.jit, static_argnames=("num_draws", "rank", "is_cumulative"))
def _counted(
    key: jax.Array,
    values: jax.Array,
    weights: jax.Array | None,
    edges: jax.Array,
    *,
    num_draws: int,
    rank: int,
    is_cumulative: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Numbers of values between the edges, or up to each, [L], and the ends of their band.

    Missing numbers if a value or an edge is NaN. With weights sums of these.
    """
    each = jnp.ones(values.size, jnp.int32) if weights is None else weights

    def count(values: jax.Array) -> jax.Array:
        cells = jnp.searchsorted(edges, values)  # the number of edges below each value
        counts = jax.ops.segment_sum(each, cells, edges.size)
        return jnp.cumsum(counts) if is_cumulative else counts

    def redraw(key: jax.Array) -> jax.Array:
        return count(1 - jax.random.uniform(key, values.shape, values.dtype))

    batch_size = default_batch_size(_BYTES_PER_NUMBER * values.size)
    redraws = in_batches(key, jax.vmap(redraw), num_draws, batch_size)
    probs = edges if is_cumulative else jnp.diff(edges, prepend=0)
    # Weights are in the units in which this is the sum of their squares, too.
    size = jnp.asarray(values.size, values.dtype) if weights is None else jnp.sum(weights)
    deviation = jnp.sqrt(size * probs * (1 - probs))
    lower, upper = simultaneous_band(
        redraws, rank, size, size * probs, deviation, has_weights=weights is not None
    )
    is_whole = ~jnp.any(jnp.isnan(values)) & ~jnp.any(jnp.isnan(edges)) & ~jnp.isnan(size)
    counts = checks.missing_where(~is_whole[None], count(values))
    return counts, jnp.where(is_whole, lower, jnp.nan), jnp.where(is_whole, upper, jnp.nan)
