"""Errors in groups, and given features."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, hypothesis_tests, plotting
from calibjax.evaluation.data import (
    CONFIDENCES,
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Part,
    measured,
    ranges,
    shown_classes,
    uniform,
)
from calibjax.evaluation.figures import Panel
from calibjax.evaluation.findings import GroupError
from calibjax.evaluation.mean_errors import mean_error
from calibjax.evaluation.overall import (
    PAIRS,
    SCALE_SAMPLES,
    Choice,
    exact_skce,
    is_ensemble,
    low_rank,
    redraws_of,
)
from calibjax.evaluation.record import Entry, Section
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests.groups import mean_residual
from calibjax.kernels import SquaredExponential, TensorProduct, median_heuristic

_AT_LOCAL = "jax.random.fold_in(key, 10)"
LOCAL_SAMPLES = 5000  # up to this n local errors are tested
_KINDS = {  # of errors, see `GroupError`
    "bias": "bias",
    "confidence": "accuracy - mean confidence",
    "class": "observed - predicted frequency",
    "PIT": "mean PIT - 1/2",
}
_NEIGHBOURHOOD = estimators.Neighbourhood.laplacian(0.5, 10)


class _Residuals(NamedTuple):
    """What is averaged over the members of each group.

    Attributes:
        predictions, targets: whose mean residuals are tested.
        arguments: an expression of both.
        redrawn: what is redrawn.
        places: those of each error, by kind and name, in the arrays of the test behind the group.
    """

    predictions: Any
    targets: Any
    arguments: str
    redrawn: str
    places: dict[tuple[str, str], tuple[int, ...]]


def errors_in_groups(data: Data) -> Part:
    """Mean errors in each group, with family-wise p-values."""
    if data.memberships is None:
        return Part()
    seen = _residuals(data)
    if seen is None:
        remark = "There is no exact test of mean errors of vectors of ensembles."
        return Part((Section("Groups", (), remark),))
    test = hypothesis_tests.group_calibration_test(
        data.at(REDRAWS),
        seen.predictions,
        seen.targets,
        data.memberships,
        weights=data.weights,
    )
    call = f"hypothesis_tests.group_calibration_test(jax.random.fold_in(key, {REDRAWS}), "
    call += data.called(f"{seen.arguments}, result.arrays['memberships']") + ")"
    residuals = data.known(mean_residual(seen.predictions, seen.targets))
    members = data.known(data.memberships) * data.shares[:, None]
    entries, errors = [], []
    for g, group in enumerate(data.group_names):
        for (kind, name), place in seen.places.items():
            words = _KINDS[kind] + (f" of {name}" if name else "")
            own = residuals[(slice(None), *place)]
            entry, p = mean_error(f"{words}, {group}", call, test, (g, *place), own, members[:, g])
            entries.append(entry)
            errors.append(GroupError(group, kind, name, entry.value, p))
    remark = (
        "Mean errors of the samples in each group. Exact p-values, adjusted for all groups and "
    )
    section = Section("Groups", tuple(entries), f"{remark}errors.")
    caption = "Errors of the groups, observed minus predicted, with standard errors; frames mark "
    caption += "those with an adjusted p-value of at most 5 %."
    names, shown = _drawn(data, test)
    draw = functools.partial(plotting.group_errors, groups=data.group_names, residuals=names)
    panel = Panel("errors in groups", caption, draw, shown)
    return Part(
        (section,),
        {"groups": tuple(errors)},
        tests={"groups": test},
        panels=(panel,),
        redrawn={seen.redrawn: {"groups": test}},
    )


def _residuals(data: Data) -> _Residuals | None:
    """Frequencies of classes, means, or PIT values where members of ensembles are exchangeable."""
    predictions, targets, places = data.predictions, data.targets, {}
    arguments, redrawn = "predictions, targets", TARGETS
    if data.is_of_classes:
        places[("confidence", "")] = (predictions.class_probs.shape[1],)
        for c in shown_classes(data.known(predictions.class_probs)):
            places[("class", data.class_called(c))] = (c,)
    elif data.task in ("ensembles", "quantiles") or not hasattr(predictions, "mean"):
        if data.pit is None:
            return None
        # Under calibration PIT values are uniform, whatever else is known of the predictions.
        n = data.size
        predictions, targets = uniform(data), data.pit
        redrawn = RANKS
        arguments = f"distributions.Uniform(jnp.zeros({n}), jnp.ones({n})), result.arrays['pit']"
        places[("PIT", "")] = ()
    elif jnp.ndim(targets) == 1:
        places[("bias", "")] = ()
    else:
        places = {("bias", f"coordinate {i}"): (i,) for i in range(targets.shape[1])}
    return _Residuals(predictions, targets, arguments, redrawn, places)


def _drawn(
    data: Data, test: CalibrationTestResult
) -> tuple[list[str] | None, CalibrationTestResult]:
    """Names of the errors that are drawn, and the test of these; of two classes only class 1."""
    if not data.is_of_classes:
        return None, test
    number = data.predictions.class_probs.shape[1]
    names = [*map(data.class_called, range(number)), "accuracy - confidence"]
    if number > 2:
        return names, test
    arrays = test.estimate, test.adjusted_pvalue, test.null_samples
    estimate, adjusted, null = (values[..., 1:] for values in arrays)
    shown = dataclasses.replace(
        test, estimate=estimate, adjusted_pvalue=adjusted, null_samples=null
    )
    return names[1:], shown


def errors_given_features(data: Data, chosen: Choice | None) -> Part:
    """Whether predictions are right given the features, and local errors of classes."""
    if data.features is None:
        return Part()
    if chosen is None:
        remark = "Quantile forecasts have no kernel calibration error."
        return Part((Section("Given the features", (), remark),))
    part = _features_test(data, chosen)
    if not data.is_of_classes:
        return part
    (section,), (local, pvalue, test) = part.sections, _local_entries(data)
    remark = section.remark + "Local errors are those of the top label in neighbourhoods with a "
    remark += "length scale of half a standard deviation of each feature, and ten confidence bins."
    section = Section(section.title, (*section.entries, *local), remark)
    findings = part.findings | {"local": pvalue}
    redrawn = part.redrawn | ({} if test is None else {CONFIDENCES: {"local": test}})
    return dataclasses.replace(part, sections=(section,), findings=findings, redrawn=redrawn)


def _features_test(data: Data, chosen: Choice) -> Part:
    """The exact test with a kernel that looks at the features, and the SKCE with this kernel."""
    assert data.features is not None, "by the caller"
    features = data.known(data.features)[:: -(-data.size // SCALE_SAMPLES)]
    scale = median_heuristic(distances.Euclidean(), features)
    closeness = SquaredExponential(scale, distances.Features(distances.Euclidean()))
    full = TensorProduct(closeness, chosen.kernel.target)
    predictions = distributions.with_features(chosen.predictions, data.features)
    seen = f"distributions.with_features({chosen.drawn}, result.arrays['features'])"
    kernel, how = low_rank(data, full, predictions)
    test, name = exact_skce(data, kernel, predictions)
    call = f"hypothesis_tests.{name}(jax.random.fold_in(key, {REDRAWS}), "
    call += "result.other_kernels['features'], "
    call += data.called(f"{seen}, targets, num_draws=999") + ")"
    entries = [measured("exact p-value given the features", call, lambda: test)]
    findings: dict[str, float | None] = {"features": entries[0].value}
    findings["features_low"] = _unbiased_low(test)
    if not is_ensemble(chosen.predictions) and data.size**2 <= PAIRS:
        interval = measured(
            "SKCE given the features",
            "hypothesis_tests.skce_confidence_interval("
            + data.called(f"result.other_kernels['features, all pairs'], {seen}, targets")
            + ")",
            lambda: hypothesis_tests.skce_confidence_interval(
                full, predictions, data.targets, weights=data.weights
            ),
        )
        entries.append(interval)
        findings["features_low"] = interval.low
    remark = (
        "The test asks for more than calibration: that predictions are right given the features"
    )
    remark += f", which are divided by their standard deviations. {how}"
    section = Section("Given the features", tuple(entries), remark)
    kernels = {"features": kernel, "features, all pairs": full}
    return Part(
        (section,),
        findings,
        other_kernels=kernels,
        tests={"features": test},
        redrawn={redraws_of(chosen.predictions): {"features": test}},
    )


def _unbiased_low(test: CalibrationTestResult) -> float:
    """A stand-in for the lower limit of the SKCE: its excess over nearly all of the redraws."""
    assert test.components is not None, "of a test of the SKCE"
    part = test.components.unbiased
    return float(part.statistic) - ranges({"": part.null_samples})[""][1]


def _local_entries(
    data: Data,
) -> tuple[list[Entry], float | None, CalibrationTestResult | None]:
    """Mean and largest local errors of the top label, their p-value, and the test."""
    confidences, correct = estimators.top_label(data.predictions, data.targets)
    arguments: Any = _NEIGHBOURHOOD, data.features, confidences, correct
    call = "estimators.Neighbourhood.laplacian(0.5, 10), result.arrays['features'], "
    call = data.called(f"{call}*estimators.top_label(predictions, targets)")
    weights: Any = {"weights": data.weights}
    tested, pvalue, test = [], None, None
    by_chance: dict[str, tuple[float, float] | None] = {"mean": None, "largest": None}
    if data.size <= LOCAL_SAMPLES:
        test = hypothesis_tests.local_calibration_test(
            data.at(10), *arguments, num_draws=199, **weights
        )
        draws = np.asarray(test.null_samples, float)[:, : data.size]
        largest = draws[:, data.shares > 0].max(1)
        by_chance |= ranges({"mean": np.average(draws, 1, data.shares), "largest": largest})
        pvalue = float(jnp.min(test.adjusted_pvalue))
        name, note = "exact p-value of local errors", "that of the largest standardised local error"
        function = f"hypothesis_tests.local_calibration_test({_AT_LOCAL}, {call}, num_draws=199)"
        function = f"jnp.min({function}.adjusted_pvalue)"
        tested.append(Entry(name, pvalue, function=function, note=note))
    entries = [
        *tested,
        measured(
            "mean local error (LCE)",
            f"estimators.mean_lce({call})",
            lambda: estimators.mean_lce(*arguments, **weights),
            by_chance=by_chance["mean"],
        ),
        measured(
            "largest local error (MLCE)",
            f"estimators.mlce({call})",
            lambda: estimators.mlce(*arguments, **weights),
            by_chance=by_chance["largest"],
        ),
    ]
    return entries, pvalue, test
