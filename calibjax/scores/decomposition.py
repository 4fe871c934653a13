"""Decompositions of scores, Murphy curves, and the prediction rejection ratio.

Decompositions into miscalibration, discrimination and uncertainty rest on isotonic regression of an
event on its predicted probabilities.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, one_hot
from calibjax._core.fitting import isotonic_means
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.distributions.composed import bare
from calibjax.estimators.curves import forecasts_of
from calibjax.scores.proper import weighted_mean

_ROUNDING = 1e-9  # of levels, which may be multiples of 1 / n
# Levels of quantiles of each prediction, to locate its distribution.
_LEVELS = (0.001, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 0.999)


@record
class ScoreDecomposition:
    """Parts of a mean score: score = miscalibration − discrimination + uncertainty.

    Attributes:
        score: mean score of the predictions.
        miscalibration: improvement of the score by isotonic recalibration, ≥ 0. It is positive even
            for calibrated predictions, because isotonic regression fits noise.
        discrimination: improvement of the recalibrated predictions over a constant prediction, ≥ 0.
        uncertainty: score of the constant prediction, the distribution of all targets.
    """

    score: jax.Array
    miscalibration: jax.Array
    discrimination: jax.Array
    uncertainty: jax.Array


@checked(compiled=True)
def brier_decomposition(
    predictions: ClassPredictions, targets: Numbers, *, weights: Numbers | None = None
) -> ScoreDecomposition:
    """Brier score, decomposed into miscalibration, discrimination and uncertainty (CORP).

    For class c with predictions p_i, labels y_i = 1(label i is c), the isotonic regression r_i of
    the y_i on the p_i, and the frequency ȳ of the class,

        miscalibration = n⁻¹ Σ_i [(p_i − y_i)² − (r_i − y_i)²],
        discrimination = n⁻¹ Σ_i [(ȳ − y_i)² − (r_i − y_i)²],
        uncertainty    = n⁻¹ Σ_i (ȳ − y_i)² = ȳ (1 − ȳ),

    summed over the classes. Each class is recalibrated on its own: for three or more classes this
    is class-wise miscalibration. No bins are needed. With weights all means, and the squared errors
    of the isotonic regression, are weighted.

    As the statistic of `hypothesis_tests.exact_test` it returns all parts under calibration as
    well; `plotting.score_decomposition` plots them.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        The parts, scalars; `score` is `brier_score(..., scale_by_half=False)`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: a sort of n and isotonic regression for each class, O(n m) memory.

    References: Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for
    probabilistic classifiers, eq. (4).

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, scores
    >>> predictions = distributions.Bernoulli(jnp.array([0.25, 0.25, 0.75, 0.75]))
    >>> parts = scores.brier_decomposition(predictions, jnp.array([0, 0, 1, 0]))
    >>> print(parts.miscalibration, parts.discrimination, parts.uncertainty)
    0.125 0.125 0.375
    """
    probs = predictions.class_probs
    labels = one_hot(targets, probs.shape[1], probs.dtype)
    counted, labels = checks.counted(weights, (probs, labels))
    parts = lax.map(lambda x: _of_event(x[0], x[1], weights), (counted.T, labels.T))
    return checks.nan_with(jax.tree.map(lambda part: jnp.sum(part, 0), parts), probs)


@checked(needs=("cdf", "icdf"), compiled=True, static=("num_thresholds",))
def crps_decomposition(
    predictions: Distribution,
    targets: Numbers,
    *,
    num_thresholds: int = 100,
    weights: Numbers | None = None,
) -> ScoreDecomposition:
    """CRPS, decomposed into miscalibration, discrimination and uncertainty (threshold-wise CORP).

    The CRPS, and each of its parts, is an integral over thresholds z of Brier scores, with
    predicted probabilities F_i(z) of the events y_i ≤ z:

        CRPS = ∫ MCB(z) dz − ∫ DSC(z) dz + ∫ UNC(z) dz,

    with the parts of `brier_decomposition` of one class at each threshold. The integrals are sums
    over intervals between quantiles of all predictions and targets together. With weights all means
    and quantiles are weighted.

    For `Ensemble` of m numbers the integrands are constant between neighbours among all n (m + 1)
    members and targets: with at least as many thresholds the sums are exact. For other predictions
    the tails beyond the quantiles at 0.001 and 0.999 are left out.

    As the statistic of `hypothesis_tests.exact_test` it returns all parts under calibration as
    well; `plotting.score_decomposition` plots them.

    Args:
        predictions: batch of n distributions of numbers with `cdf` and `icdf`.
        targets: [n].
        num_thresholds: approximate number of intervals. With 100, relative errors are a few tenths
            of a percent for the score and about 1 % for the miscalibration.
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        The parts, scalars, in units of the targets; `score` is `crps` up to the error of the sum.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions lack a method.
        ValueError: if shapes or values are wrong.

    Cost: for each threshold, and each redraw of a test, n distribution functions, a sort of n, and
    isotonic regression; O(n) memory.

    References: Arnold, Walz, Ziegel and Gneiting (2024), Decompositions of the mean continuous
    ranked probability score, §3 (the Brier score based decomposition); Dimitriadis, Gneiting and
    Jordan (2021) for each threshold; Gneiting and Resin (2023), Regression diagnostics meets
    forecast evaluation, for the idea.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, scores
    >>> loc, noise = jnp.linspace(0, 4, 300), jax.random.normal(jax.random.key(0), (300,))
    >>> parts = scores.crps_decomposition(distributions.Normal(loc + 1, jnp.ones(300)), loc + noise)
    >>> print(bool(parts.discrimination > parts.miscalibration))
    True
    """
    data = predictions, targets
    dtype = floating_dtype(predictions)
    predictions, targets = checks.counted(weights, (predictions, targets.astype(dtype)))
    if isinstance(ensembles := bare(predictions), Ensemble):
        quantiles = ensembles.values.astype(dtype)
    else:
        levels = jnp.asarray(_LEVELS, dtype)
        quantiles = jax.vmap(lambda p: jax.vmap(p.icdf)(levels))(predictions).astype(dtype)
    if parts_of_gaps := num_thresholds // (quantiles.size + targets.size):
        pool = jnp.sort(jnp.append(quantiles, targets))
        shares = jnp.arange(parts_of_gaps, dtype=dtype) / parts_of_gaps
        between = pool[:-1, None] + jnp.diff(pool)[:, None] * shares
        ends = jnp.append(between, pool[-1])
    else:
        copies = jnp.broadcast_to(targets[:, None], quantiles.shape)
        pool = jnp.concatenate([quantiles, copies], 1).ravel()
        # Denser, in probability, towards the tails, where intervals are wide.
        cuts = (1 - np.cos(np.linspace(0, np.pi, num_thresholds + 1))) / 2
        ends = _quantiles(pool, cuts, jnp.ones_like(targets) if weights is None else weights)

    def at(threshold: jax.Array) -> ScoreDecomposition:
        probs = jax.vmap(lambda p: p.cdf(threshold))(predictions).astype(dtype)
        return _of_event(probs, (targets <= threshold).astype(dtype), weights)

    parts = lax.map(at, (ends[1:] + ends[:-1]) / 2)
    return checks.nan_with(jax.tree.map(lambda part: jnp.sum(part * jnp.diff(ends)), parts), data)


def _quantiles(pool: jax.Array, levels: np.ndarray, weights: jax.Array) -> jax.Array:
    """Quantiles of the pooled numbers of all samples, with the weights of the samples."""
    order = jnp.argsort(pool)
    below = jnp.cumsum(jnp.repeat(weights, pool.size // weights.size)[order])
    shares = jnp.asarray(levels * (1 + _ROUNDING), below.dtype)
    places = jnp.searchsorted(below, shares * below[-1], side="right")
    return pool[order][jnp.minimum(places, pool.size - 1)]


def _of_event(
    probs: jax.Array, happened: jax.Array, weights: jax.Array | None
) -> ScoreDecomposition:
    """Parts of the mean of (probs − happened)², from [n] each."""
    order = jnp.argsort(probs)
    probs, happened, weights = jax.tree.map(lambda x: x[order], (probs, happened, weights))
    recalibrated = isotonic_means(probs, happened, weights)
    mean = functools.partial(weighted_mean, weights=weights)
    frequency = mean(happened)
    # Differences of squares as products, and means over blocks, for small rounding errors.
    change = (probs - recalibrated) * (probs + recalibrated - 2 * happened)
    return ScoreDecomposition(
        mean(jnp.square(probs - happened)),
        mean(change),
        mean(jnp.square(recalibrated - frequency)),
        frequency * (1 - frequency),
    )


_POINTS = 101


@record
class MurphyCurve:
    """Mean elementary scores by threshold.

    Attributes:
        thresholds: θ, [k].
        score: mean scores, [k].
        level: level of the quantile; None for means and probabilities.
    """

    thresholds: jax.Array
    score: jax.Array
    level: float | None = dataclasses.field(default=None, metadata={"static": True})


def _thresholds(name: str, value: Any, _: object) -> jax.Array:
    values = checks.floating(name, checks.as_arrays(name, value))
    checks.shape(name, values, (None,), "[k]")
    checks.leading_size(name, values)
    return checks.finite(name, values)


@checked(compiled=True, static=("level",), thresholds=_thresholds)
def murphy_curve(
    predictions: Distribution,
    targets: Numbers,
    *,
    level: float | None = None,
    thresholds: Numbers | None = None,
    weights: Numbers | None = None,
) -> MurphyCurve:
    """Elementary scores of predicted means, probabilities or quantiles at all thresholds.

        S_θ(x, y) = |y − θ| 1{min(x, y) ≤ θ < max(x, y)}                      of means x,
        S_θ(x, y) = (1{y < x} (1 − τ) + 1{y > x} τ) 1{min(x, y) ≤ θ < max(x, y)}   of τ-quantiles x.

    Every score that is consistent for the mean, or for the quantile, is an integral of these with
    some measure over θ: the squared error is 2 ∫ S_θ dθ, the pinball loss ∫ S_θ dθ. A model whose
    curve is nowhere above that of another model is at least as good on these data for *every* such
    score, and for every decision with a cost-loss ratio; if curves cross, the order depends on the
    score.

    Args:
        predictions: batch of n distributions, with `mean` or `icdf`; the mean of a `Bernoulli` is
            its probability.
        targets: [n].
        level: τ in (0, 1) of the quantile; None for means.
        thresholds: θ, [k]; by default 101 from the smallest to the largest predicted or observed
            number.
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        The curve; `score` has the units of the targets for means, none for quantiles.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions lack a method.
        ValueError: if shapes or values are wrong.

    Cost: O(n k), O(n + k) memory.

    References: Ehm, Gneiting, Jordan and Krüger (2016), Of quantiles and expectiles: consistent
    scoring functions, Choquet representations and forecast rankings, eqs. (8) and (11), the latter
    without their factor ½.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, scores
    >>> predictions = distributions.Bernoulli(jnp.array([0.25, 0.75]))
    >>> curve = scores.murphy_curve(
    ...     predictions, jnp.array([1, 1]), thresholds=jnp.array([0.1, 0.5, 0.9])
    ... )
    >>> print(curve.score.round(3))
    [0.   0.25 0.1 ]
    """
    dtype = floating_dtype(predictions)
    forecasts = forecasts_of(predictions, targets, level)
    numbers = forecasts.astype(dtype), targets.astype(dtype)
    forecasts, observed = checks.counted(weights, numbers)
    low, high = jnp.minimum(forecasts, observed), jnp.maximum(forecasts, observed)
    if thresholds is None:
        shares = jnp.asarray(np.linspace(0, 1, _POINTS), dtype)
        thresholds = jnp.min(low) * (1 - shares) + jnp.max(high) * shares
    thresholds = jnp.asarray(thresholds, dtype)
    slopes = None
    if level is not None:
        slopes = jnp.where(observed < forecasts, 1 - level, level).astype(dtype)

    def at(threshold: jax.Array) -> jax.Array:
        size = jnp.abs(observed - threshold) if slopes is None else slopes
        values = jnp.where((low <= threshold) & (threshold < high), size, 0)
        return weighted_mean(values, weights)

    is_bad = jnp.any(jnp.isnan(low + high)) | jnp.isnan(thresholds)
    return MurphyCurve(thresholds, jnp.where(is_bad, jnp.nan, lax.map(at, thresholds)), level)


@checked(compiled=True)
def prediction_rejection_ratio(
    confidences: Numbers, correct: Numbers, *, weights: Numbers | None = None
) -> jax.Array:
    """Prediction-rejection ratio (PRR) of confidences.

        PRR = (A_random − A) / (A_random − A_best)

    with the area A under the curve of error rates when the k least confident predictions are
    replaced by correct ones, linear between k = 0, ..., n. A_random is for rejections in random
    order, and A_best if all errors are rejected first: 1 is perfect, 0 is random, and negative
    values are worse than random. It depends only on the order of the confidences, so increasing
    recalibrations do not change it.

    Equal confidences are averaged over all orders. The value is 2 AUROC − 1, with the area under
    the ROC curve of the confidences as scores of correct predictions.

    Args:
        confidences: array, or batch of `Bernoulli`s as from `estimators.top_label`, [n].
        correct: whether the predictions are correct, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for equal weights.

    Returns:
        A scalar; NaN if all predictions are correct, or all wrong.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n log n).

    References: Malinin et al. (2020), Ensemble distribution distillation, App. B; Malinin,
    Prokhorenkova and Ustimenko (2021), Uncertainty in gradient boosting via ensembles; L21 §5.4,
    Table 4.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.7, 0.6, 0.9]), jnp.array([0, 0, 1, 1])
    >>> print(prediction_rejection_ratio(confidences, correct))
    0.5
    """
    # Pairs of a correct and a wrong prediction: ordered correctly minus ordered wrongly.
    order = jnp.argsort(confidences)
    confidences, is_right = confidences[order], correct[order] == 1
    each = jnp.ones(order.size, jnp.int32) if weights is None else weights[order]
    wrong = jnp.pad(jnp.cumsum(jnp.where(is_right, 0, each)), (1, 0))
    sides = (jnp.searchsorted(confidences, confidences, side=x) for x in ("left", "right"))
    below, upto = (wrong[place] for place in sides)
    right = jnp.where(is_right, each, 0).astype(correct.dtype)
    # Less confident wrong predictions minus more confident ones.
    value = jnp.sum(right * (below + upto - wrong[-1])) / jnp.sum(right) / wrong[-1]
    return checks.nan_with(value, confidences, correct)
