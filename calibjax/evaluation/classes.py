"""Errors of classes: of the top label, of each class, and of all of them together, in bins."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import estimators, hypothesis_tests, plotting, scores
from calibjax._core import checks
from calibjax._core.arithmetic import segment_sums
from calibjax._core.pytree import record
from calibjax.binnings import bins_of, interval_index
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions
from calibjax.evaluation.data import REDRAWS, TARGETS, Data, Part, shown_classes
from calibjax.evaluation.entries import BAND_LEVEL, Entry, Panel, Section
from calibjax.evaluation.findings import MeanError
from calibjax.evaluation.measures import mean_error, measured, ranges
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.groups import mean_residual
from calibjax.lenses import OneVersusRest

NUM_BINS = 10
BINNING = estimators.UniformBins(NUM_BINS)
_BYTES_PER_PROBABILITY = 8
NUM_REDRAWS = 199  # of the ECE, for quantiles and not for p-values


def expected_calibration_errors(
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
    >>> errors = evaluation.expected_calibration_errors(predictions, jnp.array([0, 1]))
    >>> print(errors["top label"], errors["all classes"])
    0.25 0.625
    """
    checks.class_predictions(predictions)
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    errors = errors_in_bins(predicted_in_bins(predictions, weights), predictions, targets)
    return checks.nan_with(errors, predictions, targets, weights)


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
        intervals: those of their probabilities, [n].
    """

    weights: jax.Array
    cells: jax.Array
    sums: jax.Array
    class_sums: jax.Array
    top_sums: jax.Array
    labels: jax.Array
    intervals: jax.Array


@jax.jit
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
        interval_index(confidences, NUM_BINS),
    )


def _sums(values: jax.Array, weights: jax.Array, bins: jax.Array, num_bins: int) -> jax.Array:
    """Sums in bins, [num_bins, ...]."""
    return segment_sums(values, bins, jax.ops.segment_sum(weights, bins, num_bins), weights)


def errors_in_bins(
    predicted: PredictedInBins, predictions: ClassPredictions, targets: Any
) -> dict[str, jax.Array]:
    """The errors of labels, from sums of probabilities and numbers of labels in the same bins."""
    probs, weights = predictions.class_probs, predicted.weights
    n, m = jnp.sum(weights), probs.shape[1]
    own = interval_index(jnp.take_along_axis(probs, targets[:, None], 1)[:, 0], NUM_BINS)
    is_right = predicted.labels == targets

    def total(sums: jax.Array, *hits: jax.Array, weights: jax.Array = weights) -> jax.Array:
        return jnp.sum(jnp.abs(sums - jnp.zeros_like(sums).at[hits].add(weights)))

    tops = total(predicted.top_sums, predicted.intervals, weights=weights * is_right)
    return {
        "all classes": total(predicted.sums, predicted.cells, targets) / (2 * n),
        "top label": tops / n,
        "class-wise": total(predicted.class_sums, targets, own) / (m * n),
    }


def errors_of_classes(data: Data) -> Part:
    """Mean errors with exact p-values, and binned errors beside those of a calibrated model."""
    means, findings, test = _mean_errors(data)
    predicted = predicted_in_bins(data.predictions, data.weights)
    binned, ece = _binned(data, predicted)
    return Part(
        (means, binned),
        findings | {"ece": ece},
        tests={(TARGETS, "means"): test},
        panels=(overall_reliability_panel(data),),
    )


def _mean_errors(data: Data) -> tuple[Section, dict[str, Any], CalibrationTestResult]:
    """Observed minus predicted frequencies of the classes and of the top label."""
    predictions, targets = data.samples
    test, call = means_test(data)
    function = "average" if data.has_weights else "mean"
    confidence = measured(
        "mean confidence",
        lambda: data.average(estimators.top_label(predictions, targets)[0].probs),
        f"jnp.{function}(estimators.top_label(predictions, targets)[0].probs{data.and_weights})",
    )
    m = predictions.class_probs.shape[1]
    residuals = data.known(mean_residual(predictions, targets))
    name = "accuracy - mean confidence"
    top, pvalue = mean_error(name, test, call, (0, m), residuals[:, m], data.shares)
    probs = data.known(predictions.class_probs).astype(float)
    entries, errors = [confidence, top], []
    for c in shown_classes(probs):
        name = f"observed - predicted frequency, {data.class_called(c)}"
        entry, p = mean_error(name, test, call, (0, c), residuals[:, c], data.shares)
        entries.append(entry)
        predicted = float(data.average(probs[:, c]))
        errors.append(MeanError(data.class_called(c), predicted, predicted + entry.value, p))
    remark = "Exact p-values, adjusted for all errors of this section."
    remark += "" if data.class_names else " Classes are numbered from 0."
    if 2 < len(errors) < m:
        remark += f" Shown are the {len(errors)} with the largest predicted frequencies."
    accuracy = float(scores.accuracy(predictions, targets, weights=data.weights))
    findings = {
        "top_label": MeanError("top label", confidence.value, accuracy, pvalue),
        "classes": tuple(errors),
    }
    return Section("Frequencies", tuple(entries), remark), findings, test


def means_test(data: Data) -> tuple[CalibrationTestResult, str]:
    """The test of the mean errors of all samples together, and its call."""
    test, group = hypothesis_tests.group_calibration_test, np.ones((data.length, 1))
    result = test(data.at(REDRAWS), *data.samples, group, weights=data.weights)
    call = f"hypothesis_tests.group_calibration_test(jax.random.fold_in(key, {REDRAWS}), "
    call += f"predictions, targets, jnp.ones(({data.size}, 1)){data.and_weights})"
    return result, call


def _binned(data: Data, predicted: PredictedInBins) -> tuple[Section, Entry]:
    """ECEs; and that of the top label, or of two classes."""
    predictions, targets = data.predictions, data.targets
    test = rank_among_redraws(
        data.at(4),
        errors_in_bins,
        predicted,
        predictions,
        targets,
        num_draws=NUM_REDRAWS,
        num_bytes=_BYTES_PER_PROBABILITY * predictions.class_probs.size,
    )
    binning = f"binning=estimators.UniformBins({NUM_BINS}){data.and_weights}"
    calls = {
        "all classes": f"estimators.ece(predictions, targets, notion='canonical', {binning})",
        "top label": f"estimators.ece(*estimators.top_label(predictions, targets), {binning})",
    }
    if data.task != "binary":  # where the three are views of one probability
        call = f"evaluation.expected_calibration_errors(predictions, targets{data.and_weights})"
        calls["class-wise"] = f"{call}['class-wise']"
    chances, entries = ranges(test.null_samples), {}
    for view, call in calls.items():
        error, more = float(test.estimate[view]), {"by_chance": chances[view], "function": call}
        entries[view] = Entry(f"ECE, {view}", error, **more)
    remark = "In ten bins (low, high] of equal width; what a calibrated model has is from "
    remark += f"{NUM_REDRAWS} redraws of the labels. The ECE is biased upwards."
    section = Section("Expected calibration errors", tuple(entries.values()), remark)
    return section, entries["all classes" if data.task == "binary" else "top label"]


def overall_reliability_panel(data: Data) -> Panel:
    """Reliability diagram of class 1 of two, or of the top label."""
    name, lens = "top label", estimators.top_label
    if data.task == "binary":
        name, lens = data.class_called(1), OneVersusRest(1)
    seen, observed = lens(data.predictions, data.targets)
    curve = estimators.reliability_curve(
        data.at(5),
        Bernoulli(seen.probs),
        observed,
        binning=BINNING,
        confidence_level=BAND_LEVEL,
        weights=data.weights,
    )
    seen_as = "the top label" if name == "top label" else name
    caption = f"Reliability of {seen_as}: observed frequency over predicted probability, with "
    caption += "bands that contain all points of a calibrated model with a probability of 95 %."
    return Panel(f"reliability, {name}", caption, plotting.reliability_diagram, curve)
