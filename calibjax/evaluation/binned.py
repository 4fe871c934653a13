"""Expected calibration errors of all notions at once, made for many redraws of the labels."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import _checks, estimators
from calibjax._compilation import jit
from calibjax._pytree import record
from calibjax.binnings import bins_of, interval_index
from calibjax.distributions.base import ClassPredictions

NUM_BINS = 10
BINNING = estimators.UniformBins(NUM_BINS)


def binned_errors(
    predictions: ClassPredictions, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> dict[str, jax.Array]:
    """Expected calibration errors (ECE) in ten bins, of all notions of calibration at once.

    A statistic for `hypothesis_tests.exact_test`, which shows what a calibrated model would have by
    chance: all of these errors are biased upwards.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m - 1, [n].
        weights: w ≥ 0 of the samples, [n], as in `estimators.ece`.

    Returns:
        With the keys "all classes" (canonical), "top label" and "class-wise", the mean over the
        classes against the rest, `estimators.ece(..., binning=UniformBins(10))` of each.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: see `estimators.ece`.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, evaluation
    >>> predictions = distributions.Categorical(jnp.array([[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]]))
    >>> errors = evaluation.binned_errors(predictions, jnp.array([0, 1]))
    >>> print(errors["top label"], errors["all classes"])
    0.25 0.625
    """
    _checks.class_predictions(predictions)
    predictions, targets, weights = _checks.weighted_samples(predictions, targets, weights)
    errors = errors_in_bins(predicted_in_bins(predictions, weights), predictions, targets)
    return _checks.nan_with(errors, predictions, targets, weights)


@record
class PredictedInBins:
    """What binned errors need of the predictions, whatever the labels are.

    Attributes:
        weights: of the samples, [n]. All sums and numbers are weighted.
        cells: of the grid of all classes, [n].
        sums: predicted probabilities of each class, added up in each cell, [n, m].
        class_sums: those in each of the intervals of the probability of the class, [m, 10].
        top_sums: largest probabilities, added up in intervals, [10].
        labels: most probable classes, [n].
        confidences: their probabilities, [n].
        excess: sum of all probabilities minus n, which is rounding.
    """

    weights: jax.Array
    cells: jax.Array
    sums: jax.Array
    class_sums: jax.Array
    top_sums: jax.Array
    labels: jax.Array
    confidences: jax.Array
    excess: jax.Array


@jit
def predicted_in_bins(
    predictions: ClassPredictions, weights: jax.Array | None = None
) -> PredictedInBins:
    """Sums of predicted probabilities in the bins of each notion of calibration."""
    probs = predictions.class_probs
    weights = jnp.ones(len(probs), probs.dtype) if weights is None else weights
    cells = bins_of(BINNING, predictions)
    confidences, labels = jnp.max(probs, 1), jnp.argmax(probs, 1)

    def by_interval(probs: jax.Array) -> jax.Array:
        return _sums(probs, weights, interval_index(probs, NUM_BINS), NUM_BINS)

    return PredictedInBins(
        weights,
        cells,
        _sums(probs, weights, cells, len(probs)),
        jax.vmap(by_interval, 1)(probs),
        by_interval(confidences),
        labels,
        confidences,
        jnp.sum(weights * (jnp.sum(probs, 1) - 1)),
    )


def _sums(values: jax.Array, weights: jax.Array, bins: jax.Array, num_bins: int) -> jax.Array:
    """Sums in bins, [num_bins, ...]: of the means and of what remains, which rounds less."""

    def weighted(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum((weights * values.T).T, bins, num_bins)

    sizes = jax.ops.segment_sum(weights, bins, num_bins)
    sums = weighted(values)
    means = (sums.T / jnp.where(sizes > 0, sizes, 1)).T
    return sums + weighted(values - means[bins])


@jit
def labels_in_bins(
    predictions: ClassPredictions, targets: jax.Array, weights: jax.Array | None
) -> jax.Array:
    """How many labels there are where `PredictedInBins.class_sums` are predicted, [m, 10]."""
    probs = predictions.class_probs
    own = jnp.take_along_axis(probs, targets[:, None], 1)[:, 0]
    counts = jnp.zeros((probs.shape[1], NUM_BINS), probs.dtype)
    return counts.at[targets, interval_index(own, NUM_BINS)].add(1 if weights is None else weights)


def errors_in_bins(
    predicted: PredictedInBins, predictions: ClassPredictions, targets: Any
) -> dict[str, jax.Array]:
    """The errors of labels, each in O(n) and one pass over memory of the size of the sums.

    With the sums P_k of the predictions and the numbers O_k of labels in the bins k of a class,

        Σ_k |P_k − O_k| = Σ_k (P_k − O_k) + 2 Σ_k (O_k − P_k)₊,

    and only bins with a label have a positive part.
    """
    probs = predictions.class_probs
    m, weights = probs.shape[1], predicted.weights
    n = jnp.sum(weights)
    own = jnp.take_along_axis(probs, targets[:, None], 1)[:, 0]
    is_top = predicted.labels == targets
    all_hits = predicted.cells * m + targets
    class_hits = targets * NUM_BINS + interval_index(own, NUM_BINS)
    intervals = interval_index(predicted.confidences, NUM_BINS)
    top_hits = jnp.where(is_top, intervals, NUM_BINS)  # which is none
    top_excess = jnp.sum(weights * (predicted.confidences - is_top))
    return {
        "all classes": _absolute(predicted.sums, weights, all_hits, predicted.excess) / (2 * n),
        "top label": _absolute(predicted.top_sums, weights, top_hits, top_excess) / n,
        "class-wise": _absolute(predicted.class_sums, weights, class_hits, predicted.excess)
        / (m * n),
    }


def _absolute(sums: jax.Array, weights: jax.Array, hits: jax.Array, excess: jax.Array) -> jax.Array:
    """Σ_k |P_k − O_k| of the sums P_k; O_k is how often the flat index k is hit."""
    sums = sums.reshape(-1)
    counts = jnp.zeros_like(sums).at[hits].add(weights, mode="drop")
    more = jnp.maximum(counts - sums, 0) / jnp.where(counts > 0, counts, 1)
    each = more.at[hits].get(mode="fill", fill_value=0)  # every hit has its part of the excess
    return jnp.maximum(excess + 2 * jnp.sum(weights * each), 0)
