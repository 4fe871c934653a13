"""Errors of classes: of the top label, of each class, and of all of them together, in bins."""

from typing import Any

import numpy as np

from calibjax import estimators, hypothesis_tests, plotting, scores
from calibjax.distributions import Bernoulli
from calibjax.evaluation.binned import (
    BINNING,
    PredictedInBins,
    errors_in_bins,
    labels_in_bins,
    predicted_in_bins,
)
from calibjax.evaluation.data import (
    REDRAWS,
    TARGETS,
    Data,
    Part,
    measured,
    ranges,
    shown_classes,
)
from calibjax.evaluation.figures import BAND_LEVEL, Panel
from calibjax.evaluation.findings import MeanError
from calibjax.evaluation.mean_errors import detectable, mean_error
from calibjax.evaluation.record import Entry, Section
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.groups import mean_residual

_BYTES_PER_PROBABILITY = 8
NUM_REDRAWS = 199  # of the ECE, for quantiles and not for p-values
MAX_DIAGRAMS = 5  # classes with a reliability diagram of their own


def errors_of_classes(data: Data) -> Part:
    """Mean errors with exact p-values, and binned errors beside those of a calibrated model."""
    means, findings, test = _mean_errors(data)
    predicted = predicted_in_bins(data.predictions, data.weights)
    binned, ece = _binned(data, predicted)
    return Part(
        (means, binned),
        findings | {"ece": ece},
        tests={"mean errors": test},
        panels=_diagrams(data, predicted),
        redrawn={TARGETS: {"means": test}},
    )


def _mean_errors(data: Data) -> tuple[Section, dict[str, Any], CalibrationTestResult]:
    """Observed minus predicted frequencies of the classes and of the top label."""
    predictions, targets = data.predictions, data.targets
    ones = np.ones((data.length, 1))
    test = hypothesis_tests.group_calibration_test(
        data.at(REDRAWS), predictions, targets, ones, weights=data.weights
    )
    call = (
        f"hypothesis_tests.group_calibration_test(jax.random.fold_in(key, {REDRAWS}), predictions, "
    )
    call += data.called(f"targets, jnp.ones(({data.size}, 1))") + ")"
    confidence = measured(
        "mean confidence",
        data.mean_called("estimators.top_label(predictions, targets)[0].probs"),
        lambda: data.average(estimators.top_label(predictions, targets)[0].probs),
    )
    m = predictions.class_probs.shape[1]
    residuals = data.known(mean_residual(predictions, targets))
    top, pvalue = mean_error(
        "accuracy - mean confidence", call, test, (0, m), residuals[:, m], data.shares
    )
    probs = data.known(predictions.class_probs).astype(float)
    entries, errors = [confidence, top], []
    for c in shown_classes(probs):
        name = f"observed - predicted frequency, {data.class_called(c)}"
        entry, p = mean_error(name, call, test, (0, c), residuals[:, c], data.shares)
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
        "detectable": lambda level: float(detectable(test, level)[m]),
    }
    return Section("Frequencies", tuple(entries), remark), findings, test


def _binned(data: Data, predicted: PredictedInBins) -> tuple[Section, Entry]:
    """ECEs, as they are and debiased; and that of the top label, or of two classes."""
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
    binning = data.called("binning=estimators.UniformBins(10)") + ")"
    calls = {
        "all classes": f"estimators.ece(predictions, targets, {binning}",
        "top label": f"estimators.ece(*estimators.top_label(predictions, targets), {binning}",
        "class-wise": f"evaluation.binned_errors({data.called('predictions, targets')})"
        "['class-wise']",
    }
    by_chance = ranges(test.null_samples)
    entries = {
        view: Entry(
            f"ECE, {view}",
            float(test.estimate[view]),
            by_chance=by_chance[view],
            function=call,
        )
        for view, call in calls.items()
    }
    if data.task == "binary":  # where the three are views of one probability
        del entries["class-wise"]
    debiased = [
        measured(
            f"debiased squared ECE, {view}",
            calls[view].replace("estimators.ece", "estimators.debiased_squared_ece"),
            lambda samples=samples: estimators.debiased_squared_ece(
                *samples, binning=BINNING, weights=data.weights
            ),
        )
        for view, samples in (
            ("all classes", (predictions, targets)),
            ("top label", estimators.top_label(predictions, targets)),
        )
    ]
    remark = "In ten bins (low, high] of equal width; what a calibrated model has is from "
    remark += f"{NUM_REDRAWS} redraws of the labels. The ECE is biased upwards, the debiased "
    remark += "squared ECE is not: it is zero on average for calibrated models, and may be "
    remark += "negative."
    section = Section("Expected calibration errors", (*entries.values(), *debiased), remark)
    return section, entries["all classes" if data.task == "binary" else "top label"]


def _diagrams(data: Data, predicted: PredictedInBins) -> tuple[Panel, ...]:
    """Reliability diagrams of class 1, or of the top label and of the worst classes."""
    m = data.predictions.class_probs.shape[1]
    views: dict[str, Any] = {data.class_called(1): estimators.OneVersusRest(1)}
    if m > 2:
        views = {"top label": estimators.top_label}
        worst = _worst_first(predicted, data)
        views |= {data.class_called(c): estimators.OneVersusRest(c) for c in worst[:MAX_DIAGRAMS]}
    panels = []
    for name, lens in views.items():
        seen, observed = lens(data.predictions, data.targets)
        curve = estimators.reliability_curve(
            data.at(5),
            Bernoulli(seen.probs),
            observed,
            binning=BINNING,
            level=BAND_LEVEL,
            weights=data.weights,
        )
        seen_as = "the top label" if name == "top label" else name
        caption = f"Reliability of {seen_as}: observed frequency over predicted probability, with "
        caption += "bands that contain all points of a calibrated model with a probability of 95 %."
        if panels:
            caption = f"The same for {name}{', one of the worst classes' * (m > MAX_DIAGRAMS)}."
        figure_name = f"reliability, {name}"
        panels.append(Panel(figure_name, caption, plotting.reliability_diagram, curve))
    return tuple(panels)


def _worst_first(predicted: PredictedInBins, data: Data) -> list[int]:
    """The classes by Σ_bins (observed − predicted number)² / predicted number, the worst first."""
    expected = np.asarray(predicted.class_sums, float)
    observed = np.asarray(labels_in_bins(data.predictions, data.targets, data.weights), float)
    worst = np.sum((observed - expected) ** 2 / np.maximum(expected, 1), 1)
    return np.argsort(-worst, kind="stable").tolist()
