"""Errors of predicted classes, numbers and vectors: frequencies, bias, dispersion, coverage."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators, hypothesis_tests, plotting, scores
from calibjax._core.arithmetic import segment_sums
from calibjax._core.pytree import record
from calibjax.binnings import bins_of, interval_index
from calibjax.distributions import Bernoulli, Ensemble, Quantiles
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.evaluation.data import (
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Part,
    mean_error,
    measured,
    ranges,
    ranks,
    shown_classes,
)
from calibjax.evaluation.record import BAND_LEVEL, Entry, Panel, Section
from calibjax.evaluation.sentences import Coverage, MeanError
from calibjax.hypothesis_tests.groups import (
    central_pairs,
    coverage_among_redraws,
    differences,
    mean_residual,
)
from calibjax.hypothesis_tests.redraws import rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.lenses import OneVersusRest

NUM_BINS = 10
BINNING = estimators.UniformBins(NUM_BINS)
_BYTES_PER_PROBABILITY = 8
NUM_REDRAWS = 199  # of the ECE, for quantiles and not for p-values


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
    intervals = interval_index(jnp.take_along_axis(probs, targets[:, None], 1)[:, 0], NUM_BINS)
    is_right = predicted.labels == targets

    def total(sums: jax.Array, *hits: jax.Array, weights: jax.Array = weights) -> jax.Array:
        return jnp.sum(jnp.abs(sums - jnp.zeros_like(sums).at[hits].add(weights)))

    tops = total(predicted.top_sums, predicted.intervals, weights=weights * is_right)
    return {
        "all classes": total(predicted.sums, predicted.cells, targets) / (2 * n),
        "top label": tops / n,
        "class-wise": total(predicted.class_sums, targets, intervals) / (m * n),
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
        calls["class-wise"] = (
            f"estimators.ece(predictions, targets, notion='class_wise', {binning})"
        )
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
    reduced, observed = lens(data.predictions, data.targets)
    curve = estimators.reliability_curve(
        data.at(5),
        Bernoulli(reduced.probs),
        observed,
        binning=BINNING,
        confidence_level=BAND_LEVEL,
        weights=data.weights,
    )
    seen_as = "the top label" if name == "top label" else name
    caption = f"Reliability of {seen_as}: observed frequency over predicted probability, with "
    caption += "bands that contain all points of a calibrated model with a probability of 95 %."
    return Panel(f"reliability, {name}", caption, plotting.reliability_diagram, curve)


LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)
_NUM_REDRAWS = 999


@jax.jit
def residual_spread(
    predictions: Distribution, targets: Any, weights: jax.Array | None = None
) -> jax.Array:
    """Standard deviation of (y_i - E Y_i) / √(Var Y_i), Y_i ~ p_i; root mean square of vectors."""

    def standardised(p: Any, y: jax.Array) -> jax.Array:
        variance = p.variance()
        deviation = jnp.sqrt(jnp.where(variance > 0, variance, jnp.nan))
        return (y - p.mean()) / deviation

    values = jax.vmap(standardised)(predictions, targets)
    mean = functools.partial(jnp.average, axis=0, weights=weights)
    return jnp.sqrt(jnp.mean(mean(jnp.square(values - mean(values)))))


def errors_of_numbers(data: Data) -> Part:
    """Bias, spread, and coverage of the central intervals."""
    parts = _bias(data) | _spread(data) | _coverage(data) | Part(panels=_figures(data))
    entries = tuple(entry for section in parts.sections for entry in section.entries)
    remark = " ".join(section.remark for section in parts.sections if section.remark)
    section = (Section("Bias, spread and coverage", entries, remark),) if entries else ()
    return dataclasses.replace(parts, sections=section)


def _bias(data: Data) -> Part:
    """Mean of targets minus predictions, in units of the targets."""
    if data.task in ("ensembles", "quantiles") or not hasattr(data.predictions, "mean"):
        return Part()
    predictions, targets = data.samples
    test, call = means_test(data)
    means = data.known(_means(predictions)).astype(float)
    residuals = data.known(mean_residual(predictions, targets))
    both = (x.reshape(data.size, -1).T for x in (means, residuals))
    entries, errors = [], []
    for i, (mean, residual) in enumerate(zip(*both, strict=True)):
        coordinate, name, place = "", "bias (target - predicted mean)", (0,)
        if means.ndim > 1:
            coordinate, place = f"coordinate {i}", (0, i)
            name = f"bias of {coordinate}"
        entry, p = mean_error(name, test, call, place, residual, data.shares)
        entries.append(entry)
        predicted = float(data.average(mean))
        errors.append(MeanError(coordinate, predicted, predicted + entry.value, p))
    findings: dict[str, Any] = {"bias": tuple(errors)}
    if means.ndim == 1 and hasattr(predictions, "variance"):
        variances = data.known(_variances(predictions)).astype(float)
        deviation = float(np.median(np.sqrt(variances)))
        findings["deviation"] = deviation if math.isfinite(deviation) else None
    return Part((Section("", tuple(entries)),), findings, tests={(TARGETS, "means"): test})


_means = jax.jit(jax.vmap(lambda p: p.mean()))
_variances = jax.jit(jax.vmap(lambda p: p.variance()))


def _spread(data: Data) -> Part:
    """Spread of the residuals."""
    has_moments = all(hasattr(data.predictions, name) for name in ("mean", "variance"))
    if data.task in ("ensembles", "quantiles") or not has_moments:
        return Part()
    value = float(residual_spread(*data.samples, data.weights))
    if not (math.isfinite(value) and value > 0):  # there are distributions without a variance
        return Part()
    test = hypothesis_tests.exact_test(
        data.at(REDRAWS),
        _distance_from_one,
        data.predictions,
        data.targets,
        weights=data.weights,
        num_draws=_NUM_REDRAWS,
    )
    chance = math.exp(test.critical_value())
    moments = (f"jax.vmap(lambda p: p.{name}())(predictions)" for name in ("mean", "variance"))
    residuals, options = "(targets - {}) / {} ** 0.5".format(*moments), "ddof=0"
    options += ", aweights=weights" * data.has_weights
    variance = f"jnp.cov({residuals}, rowvar=False, {options})"
    entry = Entry(
        "spread of the residuals",
        value,
        by_chance=(1 / chance, chance),
        pvalue=float(test.pvalue),
        function=f"jnp.mean(jnp.diagonal(jnp.atleast_2d({variance}))) ** 0.5",
    )
    remark = "The spread is the standard deviation of (target - mean) / standard deviation."
    sections = (Section("", (entry,), remark),)
    return Part(sections, {"spread": entry}, tests={(TARGETS, "spread"): test})


def _distance_from_one(
    predictions: Distribution, targets: Any, weights: jax.Array | None = None
) -> jax.Array:
    """The statistic of the spread, two-sided."""
    return jnp.abs(jnp.log(residual_spread(predictions, targets, weights)))


def _coverage(data: Data) -> Part:
    """Shares of targets in the central intervals, and up to the quantiles."""
    if data.pit is None:
        return Part()
    test, ties, redrawn = _coverage_test(data)
    levels, central, pairs = _levels(data)
    entries, largest = [], test.critical_value()
    errors, pvalues, ties = jax.tree.map(np.asarray, (test.estimate, test.adjusted_pvalue, ties))
    for kind, values, words in (
        ("central", central, "central {} % intervals"),
        ("levels", levels, "{} % quantiles"),
    ):
        for i, nominal in enumerate(map(float, values)):
            chance, tied = float(largest[kind][i]), float(ties[kind][i])
            entry = Entry(
                f"coverage of the {words.format(f'{100 * nominal:.4g}')}",
                # Rounding must not take a share of 0 or 1 out of its range.
                min(1.0, max(0.0, nominal + float(errors[kind][i]))),
                # A calibrated model covers more than the nominal share where targets tie.
                by_chance=(max(0.0, nominal - chance), min(1.0, nominal + chance + tied)),
                pvalue=float(pvalues[kind][i]),
                function=_coverage_call(data, kind, i, nominal),
            )
            entries.append(entry)
    remark, exact = "Coverage is that of the ", "exact"
    findings = _coverages(levels, central, pairs, entries)
    if data.task == "quantiles":
        remark += "predicted quantiles; "
        by_level = zip(levels, entries[central.size :], pvalues["levels"], strict=True)
        errors = (MeanError("", float(x), entry.value, float(p)) for x, entry, p in by_level)
        findings["quantiles"] = tuple(error for error in errors if error.predicted != 0.5)
        if ties["central"].any() or ties["levels"].any():
            remark += "intervals contain their ends, with which targets tie; "
            exact = "those of randomised ranks"
        if number := np.isinf(data.known(data.predictions.values)).any(1).sum():
            remark += f"{number} of {data.size} predictions have intervals of infinite width; "
    else:
        remark += "PIT values in result.arrays['pit'] (estimators.pit_values); "
    remark += (
        f"its p-values are {exact} and adjusted for all levels (hypothesis_tests.coverage_test)."
    )
    sections = (Section("", tuple(entries), remark),)
    return Part(sections, findings, tests={(redrawn, "coverage"): test})


def _coverage_call(data: Data, kind: str, place: int, nominal: float) -> str:
    """The share of targets in an interval, or up to a quantile."""
    key = "jax.random.fold_in(key, 6)"
    if data.task == "quantiles":
        call = f"{nominal:.6g} + hypothesis_tests.coverage_test({key}, predictions, targets, "
        return f"{call}num_draws={_NUM_REDRAWS}{data.and_weights}).estimate[{kind!r}][{place}]"
    option = "" if kind == "central" else "kind='quantile', "
    call = f"estimators.coverage_curve({key}, result.arrays['pit'], {option}"
    call += f"levels=jnp.array([{nominal:.6g}])"
    return f"{call}{data.and_weights}).coverage[0]"


def _coverages(levels: Any, central: Any, pairs: Any, entries: list[Entry]) -> dict[str, Any]:
    """What the sentences say of the coverage of the intervals, and of the median."""
    intervals, quantiles = entries[: central.size], entries[central.size :]
    above = [levels[i] - quantiles[i].value for i in pairs[1]]
    pvalues = [1.0 if entry.pvalue is None else entry.pvalue for entry in entries]
    found: dict[str, Any] = {
        "coverage": tuple(
            Coverage(
                nominal=float(central[i]),
                observed=entry.value,
                below=float(central[i]) - entry.value - above[i],
                above=above[i],
                pvalue=pvalues[i],
            )
            for i, entry in enumerate(intervals)
        )
    }
    for entry, level in zip(quantiles, levels, strict=True):
        if level == 0.5 and entry.pvalue is not None:
            found["median"] = MeanError("", 0.5, entry.value, entry.pvalue)
    return found


def _coverage_test(data: Data) -> tuple[CalibrationTestResult, Any, str]:
    """The test of the coverage, shares that it has by ties alone, and what is redrawn.

    The levels are those of the predictions if they have some. Of predictions with quantiles the
    targets are redrawn, as for the other tests, and otherwise uniform PIT values.
    """
    uniform, pit = ranks(data)
    inner, redrawn, drawn = data.predictions, RANKS, (uniform, pit)
    levels = jnp.asarray(LEVELS, pit.dtype)
    is_continuous = not getattr(getattr(inner, "support", None), "is_integer", False)
    if isinstance(inner, Quantiles):
        levels = inner.levels
    if hasattr(inner, "icdf") and is_continuous and not isinstance(inner, Quantiles | Ensemble):
        redrawn, drawn = TARGETS, (inner, data.targets)
        values: Any = _quantiles(inner, levels)
    else:
        values = np.broadcast_to(levels, (data.length, levels.shape[-1]))
    key, quantiles = data.at(REDRAWS), Quantiles(levels, values)
    more = data.weights, central_pairs(levels)
    test = coverage_among_redraws(key, quantiles, *drawn, more[0], num_draws=_NUM_REDRAWS)
    errors = found = differences(quantiles, *more, drawn[1])
    if isinstance(inner, Quantiles):
        errors = differences(inner, *more, data.targets)
    ties = jax.tree.map(jnp.subtract, errors, found)
    return dataclasses.replace(test, estimate=errors), ties, redrawn


_quantiles = jax.jit(jax.vmap(lambda p, levels: jax.vmap(p.icdf)(levels), (0, None)))


def _levels(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Levels, [k], probabilities of central intervals, and `central_pairs`.

    Levels that differ between the predictions are their means.
    """
    is_own = isinstance(data.predictions, Quantiles)
    levels = np.asarray(data.predictions.levels if is_own else LEVELS, float)
    pairs, levels = central_pairs(levels), levels.reshape(-1, levels.shape[-1]).mean(0)
    return levels, levels[pairs[1]] - levels[pairs[0]], pairs


def pit_panel(data: Data) -> Panel:
    """PIT histogram, if there are PIT values."""
    caption = "Histogram of the PIT values, whose bars are all in the band for a calibrated model "
    caption += "with a probability of 95 %. High ends mean that the predictions are too narrow, a "
    caption += "high middle that they are too wide, a slope that they are biased."
    options = {"weights": data.weights, "confidence_level": BAND_LEVEL}
    pit = estimators.pit_counts(data.at(5), data.pit, **options)
    return Panel("PIT histogram", caption, plotting.pit_histogram, pit)


def _figures(data: Data) -> tuple[Panel, ...]:
    """PIT histogram, and coverage of the intervals over their level."""
    if data.pit is None:
        return ()
    panels, levels = (pit_panel(data),), None
    if isinstance(data.predictions, Quantiles):  # which say nothing about other levels
        _, levels, _ = _levels(data)
        if not levels.size:
            return panels
    caption = "Share of targets in the central prediction intervals over their level: below the "
    caption += "diagonal they are too narrow, above it too wide. The band contains all points of a "
    caption += "calibrated model with a probability of 95 %."
    curve = estimators.coverage_curve(
        data.at(5),
        data.pit,
        levels=levels,
        weights=data.weights,
        confidence_level=BAND_LEVEL,
    )
    return (*panels, Panel("coverage", caption, plotting.coverage_curve, curve))
