"""Reliability curves: observed frequencies of a label against its predicted probabilities.

If the model is calibrated then, given the predictions, the targets are independent draws
y_i ~ p_i. The consistency bands contain the frequencies that such targets have in the bins of the
observed predictions.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import segment_sums
from calibjax._core.batches import default_batch_size, map_batches
from calibjax._core.pytree import record
from calibjax.binnings import Binning, bins_of
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.estimators.bands import (
    checked_ranks,
    is_outside,
    pointwise_band,
    rounding_of_sums,
    simultaneous_band,
)

_BYTES_PER_LABEL = 64  # random bits, uniform numbers and labels of one sample in one redraw


@record
class ReliabilityCurve:
    """Frequencies of label 1 in bins of the predictions, and consistency bands for them.

    The non-empty bins are sorted by confidence. They are padded with empty entries, whose count and
    all other values are 0 (not NaN), to K = min(n, max_bins); `counts > 0` selects the non-empty
    bins.

    Attributes:
        counts: number of samples, integers, [K]; with weights their sum, where that of all samples
            is their effective number (Σ_i w_i)² / Σ_i w_i².
        confidence: mean predicted probability of label 1, [K].
        frequency: observed frequency of label 1, [K].
        pointwise_lower: lower end of the band of each bin on its own, [K].
        pointwise_upper: its upper end, [K].
        simultaneous_lower: lower end of the band of all bins at once, [K].
        simultaneous_upper: its upper end, [K].
        confidence_level: lower bound of the probability under calibration that a frequency is in
            its pointwise band, and that all frequencies are in the simultaneous one; a Python
            number.
    """

    counts: jax.Array
    confidence: jax.Array
    frequency: jax.Array
    pointwise_lower: jax.Array
    pointwise_upper: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})

    @property
    def is_outside(self) -> jax.Array:
        """Which bins are outside the simultaneous band, [K].

        Rejecting calibration if there is such a bin is an exact test at the significance level
        1 − confidence_level.
        """
        return is_outside(self.frequency, self.simultaneous_lower, self.simultaneous_upper)


@checks.key_first
def reliability_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    binning: Binning,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    confidence_level: float = 0.9,
    max_bins: int = 100,
) -> ReliabilityCurve:
    """Frequencies of label 1 in bins of its predicted probability, with consistency bands.

        confidence = Σ_{i ∈ bin} p_i / |bin|,    frequency = S / |bin| with S = Σ_{i ∈ bin} y_i.

    The bands come from B redraws y_i ~ p_i of all targets, one per prediction, so that the
    predictions in a bin may differ. With S_b the number of ones in a bin of redraw b:

        pointwise: S_(k) ≤ S ≤ S_(B+1−k), the order statistics of rank k = ⌊(B + 1)(1 − γ)/2⌋;
        simultaneous: |S − Σ p_i| / √(Σ p_i (1 − p_i)) ≤ c in every bin,

    where c is the ⌈(B + 1) γ⌉-th smallest of the B maxima of the left-hand side over the bins
    of each redraw. Under calibration the observed S is exchangeable with the redrawn S_b. Fewer
    than S_(k) ones, or more than S_(B+1−k), occur with probability at most k / (B + 1) each, and
    the observed maximum is ≤ c with probability at least ⌈(B + 1) γ⌉ / (B + 1). Thus both bands
    hold with probability at least γ (over targets and redraws, given the predictions), for
    every n, every B and every binning. As frequencies are discrete, the bands of small bins hold
    with larger probability; they end at frequencies that |bin| labels can have. Bins whose
    predictions are all 0 or 1 have bands of width zero. All bins share one c: small bins in which
    one of the labels is improbable widen the simultaneous band of the others.

    With weights p_i and y_i are multiplied by w_i, p_i (1 − p_i) by w_i², and |bin| is Σ w_i. The
    redraws keep the weights, so that the bands are still exact.

    Bröcker and Smith (2007) also resample the predictions, which changes the bins, and give
    pointwise bands only. Here the predictions are kept, as in `hypothesis_tests.exact_test`.

    Args:
        key: a JAX random key.
        predictions: batch of n binary predictions, `Bernoulli`. For more classes, choose binary
            predictions with a lens: `estimators.top_label`, `estimators.class_wise`.
        targets: labels 0 or 1, [n].
        binning: function of the predictions that returns the bin of each, integers in
            0, ..., n − 1, [n]: `estimators.UniformBins(10)` or your own. It must not depend on
            the targets. See `ece` for what it makes of weights.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally. Bins without a
            positive one are empty.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: γ in (0, 1).
        max_bins: largest number of non-empty bins.

    Returns:
        The curve; its arrays have min(n, max_bins) entries, also under `jit`.

    Raises:
        TypeError: if an argument is of the wrong kind; in particular if predictions are not
            binary, since the class is not guessed.
        ValueError: if shapes or values are wrong, if there are too few redraws for the level, or
            more than `max_bins` bins.

    Cost: B n draws; O(B max_bins + n) memory, since redraws come in batches of about 16 MB.

    References: Bröcker and Smith (2007), Increasing the reliability of reliability diagrams, for
    the pointwise band; Davison and Hinkley (1997), §4.2.4, and Myllymäki et al. (2017), Global
    envelope tests for spatial processes, for the simultaneous one.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators
    >>> curve = estimators.reliability_curve(
    ...     jax.random.key(0),
    ...     distributions.Bernoulli(jnp.repeat(jnp.array([0.25, 0.75]), 100)),
    ...     jnp.arange(200) % 2,
    ...     binning=estimators.UniformBins(2),
    ...     max_bins=2,
    ... )
    >>> print(curve.counts, curve.confidence, curve.frequency, curve.is_outside)
    [100 100] [0.25 0.75] [0.5 0.5] [ True  True]
    """
    key = checks.random_key(key)
    confidence_level, num_draws, ranks = checked_ranks(confidence_level, num_draws)
    max_bins = checks.size_in_range("max_bins", max_bins, 1)
    checks.same_rows(predictions=predictions, targets=targets, weights=weights)
    predictions, targets = checked_binary(predictions, targets)
    weights = checks.sample_weights(weights, predictions)
    bins = bins_of(binning, predictions, weights=weights)
    if checks.is_concrete(bins, weights):
        ids = np.asarray(bins)
        number = len(np.unique(ids if weights is None else ids[np.asarray(weights) > 0]))
        if number > max_bins:
            raise ValueError(
                f"binning(predictions): expected at most max_bins = {max_bins} different bins, "
                f"got {number}"
            )
    data = predictions.probs, targets, bins, weights
    size = min(targets.size, max_bins)
    values = _curve(jax.random.split(key, num_draws), *data, size=size, ranks=ranks)
    return ReliabilityCurve(*values, confidence_level=confidence_level)


def checked_binary(predictions: Distribution, targets: ArrayLike) -> tuple[Bernoulli, jax.Array]:
    """Checks a data set of two classes."""
    predictions = bare(predictions)
    if not isinstance(predictions, Bernoulli):
        raise TypeError(
            "predictions: expected binary predictions, distributions.Bernoulli, got "
            f"{checks.described(predictions)}. Of several classes, say which binary predictions "
            "are meant: estimators.top_label(predictions, targets), the most probable class, or "
            "estimators.class_wise(predictions, targets), every class against the rest"
        )
    return checks.predictions_and_targets(predictions, targets)


@functools.partial(jax.jit, static_argnames=("size", "ranks"))
def _curve(
    keys: jax.Array,
    probs: jax.Array,
    targets: jax.Array,
    bins: jax.Array,
    weights: jax.Array | None,
    *,
    size: int,
    ranks: tuple[int, int],
) -> tuple[jax.Array, ...]:
    """The arrays of the curve, in the order of its fields."""
    n, dtype = targets.size, probs.dtype
    each = jnp.ones(n, jnp.int32) if weights is None else weights
    positions, is_possible = _positions(probs, bins, each, size)
    is_possible &= jnp.all((probs >= 0) & (probs <= 1) & ((targets == 0) | (targets == 1)))

    def sums(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, positions, size)

    # Sums within rows, each of one bin, are vector arithmetic; sums of single samples are not.
    rows, owners = _rows(jnp.where(each > 0, positions, size), size)
    laid, counting = (jnp.append(x, 0)[rows] for x in (probs, each))

    def redrawn(key: jax.Array) -> jax.Array:
        ones = jnp.sum(jnp.where(_labels(key, laid), counting, 0), 1)
        return jax.ops.segment_sum(ones, owners, size)

    counts, ones = sums(each), sums(each * targets.astype(jnp.int32))
    # The residuals nearly cancel, so that their sum has small rounding errors.
    residuals = segment_sums(probs - targets, positions, counts, weights)
    expected = jnp.clip(ones + residuals, 0, counts)
    deviation = jnp.sqrt(sums(jnp.square(each) * (probs * (1 - probs))))
    batch_size = default_batch_size(_BYTES_PER_LABEL * n)
    redraws = map_batches(keys, jax.vmap(redrawn), batch_size)
    pointwise = pointwise_band(redraws, ranks[0])
    if weights is not None:  # of equal labels in another order the sums may differ by rounding
        rounding = rounding_of_sums(counts, expected)
        pointwise = pointwise[0] - rounding, pointwise[1] + rounding
    simultaneous = simultaneous_band(
        redraws, ranks[1], counts, expected, deviation, has_weights=weights is not None
    )
    limits = *pointwise, *simultaneous
    divisors = jnp.where(counts == 0, 1, counts).astype(dtype)
    shares = (x.astype(dtype) / divisors for x in (expected, ones, *limits))
    # A label or a bin out of range, which is not refused under jit, gives NaN.
    return counts, *(jnp.where(is_possible, share, jnp.nan) for share in shares)


def _rows(positions: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Samples in rows of one position each, n where there is none, and positions of the rows.

    Samples at the position `size` are in none of them.
    """
    n = positions.size
    width = min(max(n // (8 * size), 1), 512)
    counts = jax.ops.segment_sum(jnp.ones(n, jnp.int32), positions, size)
    order, ends = jnp.argsort(positions), jnp.cumsum(-(-counts // width))
    ranks = jnp.arange(n, dtype=jnp.int32) - (jnp.cumsum(counts) - counts)[positions[order]]
    number = n // width + size  # of rows, at most
    places = (ends - -(-counts // width))[positions[order]] * width + ranks
    places = jnp.where(positions[order] < size, places, number * width)
    rows = jnp.full(number * width, n, jnp.int32)
    rows = rows.at[places].set(order.astype(jnp.int32), mode="drop")
    owners = jnp.searchsorted(ends, jnp.arange(number), side="right")
    return rows.reshape(number, width), owners


def _labels(key: jax.Array, probs: jax.Array) -> jax.Array:
    """Labels drawn with these probabilities, [k, width], in half the time of uniform numbers.

    Sixteen random bits decide all but one in 65 536. Those have a uniform number, of another 24
    bits, which they share with others of their column that these bits leave open: hardly ever one,
    unless columns are as long as that.
    """
    scaled = probs * 2**16
    whole = jnp.floor(scaled)
    number, width = -(-probs.size // 2), probs.shape[1]
    words = jax.random.bits(key, (number + width,), jnp.uint32)  # once: it takes long to compile
    halves = jnp.stack([words & 0xFFFF, words >> 16], 1).ravel()[: probs.size].reshape(probs.shape)
    halves, limits = halves.astype(jnp.int32), whole.astype(jnp.int32)
    level = (words[number:] >> 8).astype(probs.dtype) / 2**24
    return (halves < limits) | ((halves == limits) & (level < scaled - whole))


def _positions(
    probs: jax.Array, bins: jax.Array, weights: jax.Array, size: int
) -> tuple[jax.Array, jax.Array]:
    """Position of each sample's bin among all bins sorted by confidence, empty bins last, [n].

    The weights of the samples are 1 if they count equally.

    Returns:
        The positions, and whether all bins are in range and all positions below `size`.
    """
    n = bins.size
    counts = jax.ops.segment_sum(weights, bins, n)
    means = jax.ops.segment_sum(weights * probs, bins, n) / jnp.where(counts == 0, 1, counts)
    order = jnp.argsort(jnp.where(counts > 0, means, jnp.inf))
    places = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))
    is_possible = jnp.all((bins >= 0) & (bins < n)) & (jnp.sum(counts > 0) <= size)
    return places[bins], is_possible
