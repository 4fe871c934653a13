"""Reliability without bins: isotonic regression of what happened on what was predicted."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.batches import default_batch_size, map_batches
from calibjax._core.fitting import isotonic_means
from calibjax._core.pytree import record
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.sampling import check_draws, draw
from calibjax.estimators.bands import checked_ranks, is_outside, pointwise_band
from calibjax.estimators.reliability import checked_binary

_BYTES_PER_LABEL = 64  # of one sample in one redraw, and of the rounds of its regression


@record
class IsotonicCurve:
    """Isotonic regression of targets on what was predicted, and consistency bands for it.

    Attributes:
        confidence: predicted probabilities of label 1, or means, in increasing order, [K]:
            all of them, or as many of equally spaced ranks.
        frequency: the regression there, [K].
        pointwise_lower: lower end of the band of each point on its own, [K].
        pointwise_upper: its upper end, [K].
        simultaneous_lower: lower end of the band of all points at once, [K].
        simultaneous_upper: its upper end, [K].
        confidence_level: lower bound of the probability under calibration that a frequency is in
            its pointwise band, and that all frequencies are in the simultaneous one; a Python
            number.
        functional: what is predicted: "probability" or "mean".
    """

    confidence: jax.Array
    frequency: jax.Array
    pointwise_lower: jax.Array
    pointwise_upper: jax.Array
    simultaneous_lower: jax.Array
    simultaneous_upper: jax.Array
    confidence_level: float = dataclasses.field(metadata={"static": True})
    functional: str = dataclasses.field(default="probability", metadata={"static": True})

    @property
    def is_outside(self) -> jax.Array:
        """Which points are outside the simultaneous band, [K].

        Rejecting calibration if there is one is an exact test at the significance level
        1 − confidence_level.
        """
        return is_outside(self.frequency, self.simultaneous_lower, self.simultaneous_upper)


@checks.key_first
def isotonic_curve(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    confidence_level: float = 0.9,
    max_points: int = 200,
) -> IsotonicCurve:
    """Reliability curve without bins (CORP), with consistency bands.

    The frequency of label 1 given its probability p is the isotonic regression r of the labels on
    the probabilities, the non-decreasing function with the least Σ_i w_i (r(p_i) − y_i)²; so is the
    mean of numbers given the predicted one.

    The bands come from B redraws y_i ~ p_i, which have a regression each, r_b. At each point

        pointwise: r_(k) ≤ r ≤ r_(B+1−k), the order statistics of rank k = ⌊(B + 1)(1 − γ)/2⌋;
        simultaneous: |r − m| / s ≤ c at every point,

    with mean m and standard deviation s over all B + 1 regressions, the latter at least a quarter
    of its largest for probabilities, and c the ⌈(B + 1) γ⌉-th smallest of the largest left-hand
    sides of all B + 1. Under calibration these are exchangeable,
    so that both bands hold with at least the probability γ, for every n and every B.

    `scores.brier_decomposition` says what the curve means for the score: its miscalibration,
    discrimination and uncertainty are those of this regression.

    Args:
        key: a JAX random key.
        predictions: batch of n binary predictions, `Bernoulli`: of classes by
            `estimators.top_label` or `estimators.class_wise`, of numbers by their `cdf` at a
            threshold. Or distributions of numbers with `sample` and `mean`.
        targets: labels 0 or 1, or numbers, [n].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for samples that count
            equally.
        num_draws: B, number of redraws, at least 2 / (1 − confidence_level) − 1.
        confidence_level: γ in (0, 1).
        max_points: largest number of points K.

    Returns:
        The curve, of min(n, max_points) points.

    Raises:
        TypeError: if an argument is of the wrong kind; in particular if predictions are of several
            classes, or lack a method.
        ValueError: if shapes or values are wrong, or there are too few redraws for the level.

    Cost: a sort of n, and B + 1 isotonic regressions of O(n log n); O(B K + n) memory.

    References: Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for
    probabilistic classifiers, with pointwise bands; the simultaneous one is that of
    `reliability_curve`. Gneiting and Resin (2023), Regression diagnostics meets forecast
    evaluation, for means.

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
    key = checks.random_key(key)
    confidence_level, num_draws, ranks = checked_ranks(confidence_level, num_draws)
    max_points = checks.size_in_range("max_points", max_points, 2)
    checks.same_rows(predictions=predictions, targets=targets, weights=weights)
    functional = "mean"
    predictions, targets = checks.predictions_and_targets(predictions, targets)
    if hasattr(bare(predictions), "class_probs"):
        functional = "probability"
        predictions, targets = checked_binary(predictions, targets)
        forecasts = predictions.probs
    else:
        forecasts = forecasts_of(predictions, targets, None)
        check_draws(predictions, targets)
    weights = checks.sample_weights(weights, predictions)
    size = min(jnp.size(targets), max_points)
    data = predictions, forecasts, targets, weights
    values = _curve(key, *data, size=size, num_draws=num_draws, ranks=ranks)
    return IsotonicCurve(*values, confidence_level=confidence_level, functional=functional)


def forecasts_of(predictions: Distribution, targets: ArrayLike, level: float | None) -> jax.Array:
    """The mean, or the quantile of a level, of each prediction of a number, [n].

    Raises:
        TypeError: if the predictions have none.
        ValueError: if they, or the targets, are not numbers.
    """
    checks.method("predictions", predictions, "mean" if level is None else "icdf")
    checks.shape("targets", targets, (None,), "[n]: only numbers have a mean and quantiles")
    forecasts = _forecasts(predictions, level)
    checks.shape("predictions", forecasts, jnp.shape(targets), "predictions of one number each")
    return forecasts


@functools.partial(jax.jit, static_argnums=1)
def _forecasts(predictions: Distribution, level: float | None) -> jax.Array:
    forecasts = jax.vmap(lambda p: p.mean() if level is None else p.icdf(level))(predictions)
    return forecasts.astype(
        jnp.result_type(forecasts, jnp.float32)
    )  # quantiles of counts are integers


@functools.partial(jax.jit, static_argnames=("size", "num_draws", "ranks"))
def _curve(
    key: jax.Array,
    predictions: Distribution,
    forecasts: jax.Array,
    targets: jax.Array,
    weights: jax.Array | None,
    *,
    size: int,
    num_draws: int,
    ranks: tuple[int, int],
) -> tuple[jax.Array, ...]:
    """The arrays of the curve, in the order of its fields."""
    is_binary = isinstance(predictions, Bernoulli)
    is_bad = (targets != 0) & (targets != 1) if is_binary else checks.is_missing(targets)
    is_bad = jnp.any(jnp.isnan(forecasts) | is_bad)
    if weights is not None:
        is_bad |= jnp.any(jnp.isnan(weights))
    samples = checks.counted(weights, (predictions, forecasts, targets))
    order = jnp.argsort(samples[1])
    samples, weights = jax.tree.map(lambda x: x[order], (samples, weights))
    predictions, forecasts, targets = samples
    # Ranks among the samples that count.
    counts = jnp.cumsum(jnp.ones(forecasts.size, int) if weights is None else weights > 0)
    shares = np.linspace(0, 1, size)
    ranks_of_places = jnp.round(1 + shares * (counts[-1] - 1)).astype(counts.dtype)
    places = jnp.searchsorted(counts, ranks_of_places)

    def regression(key: jax.Array, is_observed: jax.Array) -> jax.Array:
        drawn = draw(key, predictions).astype(targets.dtype)
        outputs = jnp.where(is_observed, targets, drawn).astype(forecasts.dtype)
        # Differences of sums of numbers are not exact.
        each = weights if is_binary or weights is not None else jnp.ones_like(outputs)
        return isotonic_means(forecasts, outputs, each)[places]

    # One program for all, so that equal targets have equal regressions.
    keys = jax.random.split(key, num_draws + 1), jnp.arange(num_draws + 1) == 0
    evaluate = lambda items: jax.vmap(regression)(*items)  # noqa: E731
    pool = map_batches(keys, evaluate, default_batch_size(_BYTES_PER_LABEL * forecasts.size))
    middle, spread = jnp.mean(pool, 0), jnp.std(pool, 0)
    if is_binary:
        # Near 0 and 1 few labels decide, whose rare values would widen the band everywhere.
        spread = jnp.maximum(spread, jnp.max(spread) / 4)
    # Where all agree up to rounding, there is nothing to be outside of.
    rounding = 16 * jnp.finfo(pool.dtype).eps * jnp.max(jnp.abs(pool))
    divisors = jnp.where(spread > rounding, spread, jnp.inf)
    largest = jnp.max(jnp.abs(pool - middle) / divisors, 1)
    half = jnp.sort(largest)[ranks[1] - 1] * spread + rounding
    limits = *pointwise_band(pool[1:], ranks[0]), middle - half, middle + half
    limits = (jnp.clip(x, 0, 1) for x in limits) if is_binary else limits
    values = forecasts[places], pool[0], *limits
    return tuple(jnp.where(is_bad, jnp.nan, x) for x in values)
