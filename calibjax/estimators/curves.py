"""Reliability curves, binned and isotonic, with consistency bands under calibration.

If the model is calibrated then, given the predictions, the targets are independent draws y_i ~ p_i.
So the observed counts and the counts of redrawn data sets are exchangeable. The bands are computed
from the redraws.
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import segment_sums
from calibjax._core.environment import default_batch_size, map_batches
from calibjax._core.fitting import isotonic_means
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, record
from calibjax.binnings import Binning, bins_of
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution, check_draws, draw, has_class_probs
from calibjax.distributions.composed import bare


def ranks_of_band(confidence_level: float, num_draws: int) -> tuple[int, int]:
    """Ranks of the ends of the bands among redraws: pointwise, simultaneous."""
    share = Fraction(str(confidence_level))  # exact 1 − 0.9 = 0.1, for which 19 redraws suffice
    least = math.ceil(2 / (1 - share)) - 1
    if num_draws < least:
        expected = f"at least {least} redraws for a band of level {confidence_level}"
        raise ValueError(f"num_draws: expected {expected}, got {num_draws}")
    pointwise = math.floor((num_draws + 1) * (1 - share) / 2)
    return pointwise, math.ceil((num_draws + 1) * share)


def pointwise_band(redraws: jax.Array, rank: int) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest number of ones in the band of each bin, [K] each."""
    redraws = jnp.sort(redraws, 0)
    return redraws[rank - 1], redraws[-rank]


def simultaneous_band(
    redraws: jax.Array, rank: int, counts: jax.Array, expected: jax.Array, deviation: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Smallest and largest number of ones, or sum of their weights, in the band of all bins.

    [K] each; integers without weights.
    """
    # If the deviation is zero, predictions are 0 or 1 and the difference is zero.
    divisors = jnp.where(deviation > 0, deviation, 1)
    largest = jnp.max(jnp.abs(redraws - expected) / divisors, 1)
    half = jnp.sort(largest)[rank - 1] * deviation
    # The redraw that defines the critical value is in the band despite rounding errors.
    rounding = rounding_of_sums(counts, expected)
    lower, upper = expected - half - rounding, expected + half + rounding
    if jnp.issubdtype(redraws.dtype, jnp.floating):
        # Sums of weights depend on their order.
        return jnp.maximum(lower, 0), jnp.minimum(upper, counts + rounding)
    return jnp.maximum(jnp.ceil(lower), 0), jnp.minimum(jnp.floor(upper), counts)


def rounding_of_sums(counts: jax.Array, expected: jax.Array) -> jax.Array:
    """Size of rounding errors of differences of sums in bins of these sizes."""
    return 16 * jnp.finfo(expected.dtype).eps * counts


class WithBand:
    """Base class of results with a simultaneous band."""

    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    _observed = "frequency"

    @property
    def is_outside(self) -> jax.Array:
        """Mask of the observed values outside the simultaneous band, including NaN, [K].

        Rejecting calibration if there is one is an exact test at the significance level 1 −
        confidence_level.
        """
        values = getattr(self, self._observed)
        return ~((values >= self.simultaneous_lower) & (values <= self.simultaneous_upper))


_BYTES_PER_LABEL = 64  # of one sample in one redraw: random bits, numbers, labels, regression


@record
class ReliabilityCurve(WithBand):
    """Frequencies of label 1 in bins of the predictions, and consistency bands for them.

    The non-empty bins are sorted by confidence. They are padded to K = min(n, max_bins) with empty
    entries, whose values are all 0; `counts > 0` selects the non-empty bins.

    Attributes:
        counts: number of samples, integers, [K]; with weights the sum of weights, scaled to a total
            of the effective number (Σ_i w_i)² / Σ_i w_i².
        confidence: mean predicted probability of label 1, [K].
        frequency: observed frequency of label 1, [K].
        pointwise_lower: lower end of the band of each bin on its own, [K].
        pointwise_upper: upper end of the band of each, [K].
        simultaneous_lower: lower end of the band of all bins at once, [K].
        simultaneous_upper: upper end of the band of all at once, [K].
        confidence_level: lower bound of the coverage, under calibration, of each pointwise band and
            of the simultaneous band; a Python number.
    """

    counts: jax.Array
    confidence: jax.Array
    frequency: jax.Array
    pointwise_lower: jax.Array
    pointwise_upper: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})


@checked
def reliability_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: Numbers,
    *,
    binning: Binning,
    weights: Numbers | None = None,
    num_draws: int = 999,
    confidence_level: float = 0.9,
    max_bins: int = 100,
) -> ReliabilityCurve:
    """Frequencies of label 1 in bins of its predicted probability, with consistency bands.

        confidence = Σ_{i ∈ bin} p_i / |bin|,    frequency = S / |bin| with S = Σ_{i ∈ bin} y_i.

    The bands come from B redraws y_i ~ p_i of all targets; predictions in a bin may differ. With
    the number S_b of ones in a bin of redraw b:

        pointwise: S_(k) ≤ S ≤ S_(B+1−k), the order statistics of rank k = ⌊(B + 1)(1 − γ)/2⌋;
        simultaneous: |S − Σ p_i| / √(Σ p_i (1 − p_i)) ≤ c in every bin,

    where c is the ⌈(B + 1) γ⌉-th smallest of the maxima of the left-hand side over the bins of each
    redraw. Under calibration S is exchangeable with the S_b. So both bands have a coverage of at
    least γ (over targets and redraws, given the predictions), for every n, every B and every
    binning. Frequencies are discrete, so the coverage in small bins is larger; without weights the
    bands end at possible frequencies. Bins whose predictions are all 0 or 1 have bands of width
    zero. All bins share one c: small bins with an improbable label widen the simultaneous band of
    the others.

    Weights multiply p_i and y_i by w_i, and p_i (1 − p_i) by w_i²; |bin| is Σ w_i. The redraws keep
    the weights, so the bands are still exact.

    Bröcker and Smith (2007) also resample the predictions, which changes the bins, and give
    pointwise bands only. Here the predictions are kept, as in `hypothesis_tests.exact_test`.

    Args:
        key: a JAX random key.
        predictions: batch of n binary predictions, `Bernoulli`. For more classes, choose binary
            predictions with a reduction: `estimators.top_label`, `estimators.class_wise`.
        targets: labels 0 or 1, [n].
        binning: function of the predictions that returns the bin of each, integers in 0, ..., n −
            1, [n]: `estimators.UniformBins(10)` or your own. It must not depend on the targets; for
            weights see `ece`.
        weights: w ≥ 0 of the samples, [n]; None for equal weights. Bins without a positive weight
            are empty.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: γ in (0, 1).
        max_bins: largest number of non-empty bins.

    Returns:
        The curve; its arrays have min(n, max_bins) entries, also under `jit`.

    Raises:
        TypeError: if an argument is of the wrong kind; in particular if predictions are not binary.
        ValueError: if shapes or values are wrong, if there are too few redraws for the level, or
            more than `max_bins` bins.

    Cost: B n draws; O(B max_bins + n) memory, with redraws in batches of about 16 MB.

    References: Bröcker and Smith (2007), Increasing the reliability of reliability diagrams, for
    the pointwise band; Davison and Hinkley (1997), §4.2.4, and Myllymäki et al. (2017), Global
    envelope tests for spatial processes, for the simultaneous band.

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
    ranks = ranks_of_band(confidence_level, num_draws)
    predictions = binary(predictions)
    bins = bins_of(binning, predictions, weights=weights)
    if checks.is_concrete(bins, weights):
        is_used = slice(None) if weights is None else np.asarray(weights) > 0
        number = len(np.unique(np.asarray(bins)[is_used]))
        if number > max_bins:
            expected = f"at most max_bins = {max_bins} different bins"
            raise ValueError(f"binning(predictions): expected {expected}, got {number}")
    data = predictions.probs, targets, bins, weights
    size = min(targets.size, max_bins)
    values = _curve(jax.random.split(key, num_draws), data, size, ranks)
    return ReliabilityCurve(*values, confidence_level=confidence_level)


def binary(predictions: Distribution) -> Bernoulli:
    """Predictions of two classes, without features."""
    predictions = bare(predictions)
    if not isinstance(predictions, Bernoulli):
        got = (
            f"{checks.described(predictions)}; a reduction such as estimators.top_label makes them"
        )
        raise TypeError(f"predictions: expected Bernoulli, got {got}")
    return predictions


@functools.partial(jax.jit, static_argnames=("size", "ranks"))
def _curve(keys: jax.Array, data: Any, size: int, ranks: tuple[int, int]) -> tuple[jax.Array, ...]:
    """Arrays of the curve, in the order of its fields."""
    probs, targets, bins, weights = data
    n, dtype = targets.size, probs.dtype
    each = jnp.ones(n, jnp.int32) if weights is None else weights
    # Bins are sorted by confidence, empty ones last.
    sizes = jax.ops.segment_sum(each, bins, n)
    means = jax.ops.segment_sum(each * probs, bins, n) / jnp.where(sizes == 0, 1, sizes)
    order = jnp.argsort(jnp.where(sizes > 0, means, jnp.inf))
    positions = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))[bins]
    is_possible = jnp.all((bins >= 0) & (bins < n)) & (jnp.sum(sizes > 0) <= size)
    is_possible &= ~jnp.any(jnp.isnan(probs))

    def sums(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, positions, size)

    def redrawn(key: jax.Array) -> jax.Array:
        return sums(each * draw(key, Bernoulli(probs)))

    counts, ones = sums(each), sums(each * targets.astype(jnp.int32))
    # Residuals nearly cancel: their sum has small rounding errors.
    residuals = segment_sums(probs - targets, positions, counts, weights)
    expected = jnp.clip(ones + residuals, 0, counts)
    deviation = jnp.sqrt(sums(jnp.square(each) * (probs * (1 - probs))))
    redraws = map_batches(keys, jax.vmap(redrawn), default_batch_size(_BYTES_PER_LABEL * n))
    pointwise = pointwise_band(redraws, ranks[0])
    if weights is not None:  # sums of equal labels depend on their order by rounding
        rounding = rounding_of_sums(counts, expected)
        pointwise = pointwise[0] - rounding, pointwise[1] + rounding
    simultaneous = simultaneous_band(redraws, ranks[1], counts, expected, deviation)
    divisors = jnp.where(counts == 0, 1, counts).astype(dtype)
    shares = (x.astype(dtype) / divisors for x in (expected, ones, *pointwise, *simultaneous))
    # A bin out of range gives NaN under `jit`.
    return counts, *(jnp.where(is_possible, share, jnp.nan) for share in shares)


@record
class IsotonicCurve(WithBand):
    """Isotonic regression of targets on predictions, with consistency bands.

    Attributes:
        confidence: predicted probabilities of label 1, or means, in increasing order, [K]: all of
            them, or K of equally spaced ranks.
        frequency: values of the regression, [K].
        pointwise_lower: lower end of the band of each point on its own, [K].
        pointwise_upper: upper end of the band of each, [K].
        simultaneous_lower: lower end of the band of all points at once, [K].
        simultaneous_upper: upper end of the band of all at once, [K].
        confidence_level: lower bound of the coverage, under calibration, of each pointwise band and
            of the simultaneous band; a Python number.
        functional: predicted functional, "probability" or "mean".
    """

    confidence: jax.Array
    frequency: jax.Array
    pointwise_lower: jax.Array
    pointwise_upper: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})
    functional: str = dataclasses.field(default="probability", metadata={"static": True})


@checked(compiled=True, static=("num_draws", "confidence_level", "max_points"))
def isotonic_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
    confidence_level: float = 0.9,
    max_points: int = 200,
) -> IsotonicCurve:
    """Reliability curve without bins (CORP), with consistency bands.

    The frequency of label 1 given its probability p is estimated by isotonic regression r of the
    labels on the probabilities: the non-decreasing function with the smallest Σ_i w_i (r(p_i) −
    y_i)². The mean of numbers given their predicted mean is estimated likewise.

    The bands come from the regressions r_b of B redraws y_i ~ p_i. At each point

        pointwise: r_(k) ≤ r ≤ r_(B+1−k), the order statistics of rank k = ⌊(B + 1)(1 − γ)/2⌋;
        simultaneous: |r − m| / s ≤ c at every point,

    with mean m and standard deviation s over all B + 1 regressions (for probabilities, s is at
    least a quarter of its maximum). c is the ⌈(B + 1) γ⌉-th smallest of the B + 1 maxima of the
    left-hand side. Under calibration these are exchangeable, so both bands have a coverage of at
    least γ, for every n and every B.

    `scores.brier_decomposition` uses this regression for miscalibration, discrimination and
    uncertainty.

    Args:
        key: a JAX random key.
        predictions: batch of n binary predictions, `Bernoulli`, such as from
            `estimators.top_label`, `estimators.class_wise` or the `cdf` of numbers at a threshold.
            Or distributions of numbers with `sample` and `mean`.
        targets: labels 0 or 1, or numbers, [n].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for equal weights.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: γ in (0, 1).
        max_points: largest number of points K.

    Returns:
        The curve with min(n, max_points) points.

    Raises:
        TypeError: if an argument is of the wrong kind; in particular if predictions are of several
            classes, or lack a method.
        ValueError: if shapes or values are wrong, or there are too few redraws for the level.

    Cost: a sort of n, and B + 1 isotonic regressions of O(n log n); O(B K + n) memory.

    References: Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for
    probabilistic classifiers, with pointwise bands; `reliability_curve` for the simultaneous band.
    Gneiting and Resin (2023), Regression diagnostics meets forecast evaluation, for means.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators
    >>> curve = estimators.isotonic_curve(
    ...     jax.random.key(0),
    ...     distributions.Bernoulli(jnp.repeat(jnp.array([0.25, 0.75]), 100)),
    ...     jnp.arange(200) % 2,
    ...     max_points=2,
    ... )
    >>> print(curve.confidence, curve.frequency, curve.is_outside)
    [0.25 0.75] [0.5 0.5] [ True  True]
    """
    ranks = ranks_of_band(confidence_level, num_draws)
    is_binary = has_class_probs(bare(predictions))
    if is_binary:
        predictions = binary(predictions)
        forecasts = predictions.probs
    else:
        forecasts = forecasts_of(predictions, targets, None)
        check_draws(predictions, targets)
    received = forecasts, targets, weights
    samples = checks.counted(weights, (predictions, forecasts, targets))
    order = jnp.argsort(samples[1])
    samples, weights = jax.tree.map(lambda x: x[order], (samples, weights))
    predictions, forecasts, targets = samples
    # Ranks among samples of positive weight.
    size = min(targets.size, max_points)
    counts = jnp.cumsum(jnp.ones(forecasts.size, int) if weights is None else weights > 0)
    shares = np.linspace(0, 1, size)
    ranks_of_places = jnp.round(1 + shares * (counts[-1] - 1)).astype(counts.dtype)
    places = jnp.searchsorted(counts, ranks_of_places)

    def regression(key: jax.Array, is_observed: jax.Array) -> jax.Array:
        drawn = draw(key, predictions).astype(targets.dtype)
        outputs = jnp.where(is_observed, targets, drawn).astype(forecasts.dtype)
        return isotonic_means(forecasts, outputs, weights)[places]

    # One program for all: equal targets have equal regressions.
    keys = jax.random.split(key, num_draws + 1), jnp.arange(num_draws + 1) == 0
    evaluate = lambda items: jax.vmap(regression)(*items)  # noqa: E731
    pool = map_batches(keys, evaluate, default_batch_size(_BYTES_PER_LABEL * forecasts.size))
    middle, spread = jnp.mean(pool, 0), jnp.std(pool, 0)
    if is_binary:
        # Near 0 and 1, rare values of few labels would widen the band everywhere.
        spread = jnp.maximum(spread, jnp.max(spread) / 4)
    # Regressions that agree up to rounding are inside.
    rounding = 16 * jnp.finfo(pool.dtype).eps * jnp.max(jnp.abs(pool))
    divisors = jnp.where(spread > rounding, spread, jnp.inf)
    largest = jnp.max(jnp.abs(pool - middle) / divisors, 1)
    half = jnp.sort(largest)[ranks[1] - 1] * spread + rounding
    limits = *pointwise_band(pool[1:], ranks[0]), middle - half, middle + half
    limits = (jnp.clip(x, 0, 1) for x in limits) if is_binary else limits
    values = checks.nan_with((forecasts[places], pool[0], *limits), received)
    functional = "probability" if is_binary else "mean"
    return IsotonicCurve(*values, confidence_level=confidence_level, functional=functional)


def forecasts_of(predictions: Distribution, targets: jax.Array, level: float | None) -> jax.Array:
    """Mean, or quantile of a level, of each prediction of a number, [n].

    Raises:
        TypeError: if the predictions have no such method.
        ValueError: if they, or the targets, are not numbers.
    """
    checks.method("predictions", predictions, "mean" if level is None else "icdf")
    forecasts = jax.vmap(lambda p: p.mean() if level is None else p.icdf(level))(predictions)
    if (targets.ndim, forecasts.ndim) != (1, 1):
        raise ValueError(f"predictions: expected one number each, got shape {forecasts.shape}")
    return forecasts.astype(jnp.result_type(forecasts, jnp.float32))  # counts are integers
