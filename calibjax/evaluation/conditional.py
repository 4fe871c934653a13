"""Errors in groups, and given features."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, hypothesis_tests, plotting
from calibjax.evaluation.data import (
    CONFIDENCES,
    LOCAL,
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Named,
    Part,
    ranks,
    shown_classes,
)
from calibjax.evaluation.entries import Entry, Panel, Section
from calibjax.evaluation.findings import GroupError
from calibjax.evaluation.measures import mean_error, measured, ranges
from calibjax.evaluation.overall import (
    PAIRS,
    Choice,
    exact_skce,
    is_ensemble,
    linear,
    redraws_of,
    skce_interval,
)
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests.groups import mean_residual
from calibjax.kernels import SquaredExponential, TensorProduct, median_heuristic
from calibjax.kernels.default_scales import thinned

LOCAL_SAMPLES = 5000  # up to this n local errors are tested
_KINDS = {  # of errors, see `GroupError`
    "bias": "bias",
    "confidence": "accuracy - mean confidence",
    "class": "observed - predicted frequency",
    "PIT": "mean PIT - 1/2",
}


class _Residuals(NamedTuple):
    """What is averaged over the members of each group.

    Attributes:
        predictions, targets: whose mean residuals are tested.
        call: the expressions that are shown for both.
        redrawn: what is redrawn.
        places: those of each error, by kind and name, in the arrays of the test behind the group.
    """

    predictions: Any
    targets: Any
    call: str
    redrawn: str
    places: dict[tuple[str, str], tuple[int, ...]]


def errors_in_groups(data: Data) -> Part:
    """Mean errors in each group, with family-wise p-values."""
    if data.memberships is None:
        return Part()
    seen = _residuals(data)
    if seen is None:
        remark = "There is no exact test of mean errors for ensembles of vectors."
        return Part((Section("Groups", (), remark),))
    samples = seen.predictions, seen.targets
    test = hypothesis_tests.group_calibration_test(
        data.at(REDRAWS), *samples, data.memberships, weights=data.weights
    )
    call = f"hypothesis_tests.group_calibration_test(jax.random.fold_in(key, {REDRAWS}), "
    call += f"{seen.call}, result.arrays['memberships']{data.and_weights})"
    residuals = data.known(mean_residual(*samples))
    members = data.known(data.memberships) * data.shares[:, None]
    entries, errors = [], []
    for g, group in enumerate(data.group_names):
        for (kind, name), place in seen.places.items():
            words = _KINDS[kind] + (f" of {name}" if name else "")
            own = residuals[(slice(None), *place)]
            title, at = f"{words}, {group}", (g, *place)
            entry, p = mean_error(title, test, call, at, own, members[:, g])
            entries.append(entry)
            errors.append(GroupError(group, kind, name, entry.value, p))
    remark = "Mean errors of the samples in each group. Exact p-values, adjusted for all groups "
    section = Section("Groups", tuple(entries), f"{remark}and errors.")
    caption = "Errors of the groups, observed minus predicted, with standard errors; frames mark "
    caption += "those with an adjusted p-value of at most 5 %."
    names, shown = _drawn(data, test)
    draw = functools.partial(plotting.group_errors, groups=data.group_names, residuals=names)
    panel = Panel("errors in groups", caption, draw, shown)
    return Part(
        (section,),
        {"groups": tuple(errors)},
        tests={(seen.redrawn, "groups"): test},
        panels=(panel,),
    )


def _residuals(data: Data) -> _Residuals | None:
    """Frequencies of classes, means, or PIT values where members of ensembles are exchangeable."""
    predictions, samples, call = data.predictions, data.samples, "predictions, targets"
    places: dict[tuple[str, str], tuple[int, ...]] = {}
    redrawn = TARGETS
    if data.is_of_classes:
        places[("confidence", "")] = (predictions.class_probs.shape[1],)
        for c in shown_classes(data.known(predictions.class_probs)):
            places[("class", data.class_called(c))] = (c,)
    elif data.task in ("ensembles", "quantiles") or not hasattr(predictions, "mean"):
        if data.pit is None:
            return None
        # Under calibration PIT values are uniform, whatever else is known of the predictions.
        redrawn, samples, n = RANKS, ranks(data), data.size
        call = f"distributions.Uniform(jnp.zeros({n}), jnp.ones({n})), result.arrays['pit']"
        places[("PIT", "")] = ()
    elif jnp.ndim(data.targets) == 1:
        places[("bias", "")] = ()
    else:
        places = {("bias", f"coordinate {i}"): (i,) for i in range(data.targets.shape[1])}
    return _Residuals(*samples, call, redrawn, places)


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
    drawn = ("estimate", "adjusted_pvalue", "null_samples")
    shown = {name: getattr(test, name)[..., 1:] for name in drawn}
    return names[1:], dataclasses.replace(test, **shown)


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
    tests = part.tests | ({} if test is None else {(CONFIDENCES, LOCAL): test})
    return dataclasses.replace(part, sections=(section,), findings=findings, tests=tests)


def _features_test(data: Data, chosen: Choice) -> Part:
    """The exact test with a kernel that looks at the features, and the SKCE with this kernel."""
    assert data.features is not None, "by the caller"
    scale = median_heuristic(distances.Euclidean(), thinned(data.known(data.features)))
    closeness = SquaredExponential(scale, distances.Features(distances.Euclidean()))
    full = TensorProduct(closeness, chosen.kernel.target)
    predictions = Named(
        distributions.with_features(chosen.predictions.value, data.features),
        f"distributions.with_features({chosen.predictions.text}, result.arrays['features'])",
    )
    kernel, how = linear(data, full, predictions.value)
    test, call = exact_skce(data, "features", kernel, predictions)
    entries = [measured("exact p-value given the features", lambda: test, call)]
    findings: dict[str, Any] = {"features": entries[0].value, "features_low": _unbiased_low(test)}
    if not is_ensemble(chosen.predictions.value):
        used = ("features", kernel) if data.size**2 > PAIRS else ("features, all pairs", full)
        samples = Named((predictions.value, data.targets), f"{predictions.text}, targets")
        entries.append(skce_interval(data, "SKCE given the features", *used, samples))
        findings["features_low"] = entries[1].low
    remark = "The test asks for more than calibration: that predictions are right given the "
    remark += f"features, which are divided by their standard deviations. {how}"
    section = Section("Given the features", tuple(entries), remark)
    kernels = {"features": kernel, "features, all pairs": full}
    tests = {(redraws_of(chosen.predictions.value), "features"): test}
    return Part((section,), findings, other_kernels=kernels, tests=tests)


def _unbiased_low(test: CalibrationTestResult) -> float:
    """A stand-in for the lower limit of the SKCE: its excess over nearly all of the redraws."""
    assert test.components is not None, "of a test of the SKCE"
    part = test.components.unbiased
    return float(part.statistic) - ranges({"": part.null_samples})[""][1]


def _local_entries(data: Data) -> tuple[list[Entry], float | None, CalibrationTestResult | None]:
    """Mean and largest local errors of the top label, their p-value, and the test."""
    near, top = estimators.Neighbourhood.laplacian(0.5, 10), estimators.top_label(*data.samples)
    arguments: tuple[Any, ...] = near, data.features, *top
    weights = {"weights": data.weights}
    shown = "estimators.Neighbourhood.laplacian(0.5, 10), result.arrays['features'], "
    shown += "*estimators.top_label(predictions, targets)"
    entries, pvalue, test = [], None, None
    by_chance: dict[str, tuple[float, float] | None] = {"mean": None, "largest": None}
    if data.size <= LOCAL_SAMPLES:
        local, options = hypothesis_tests.local_calibration_test, {"num_draws": 199, **weights}
        test = local(data.at(10), *arguments, **options)
        draws = np.asarray(test.null_samples, float)[:, : data.size]
        largest = draws[:, data.shares > 0].max(1)
        by_chance |= ranges({"mean": np.average(draws, 1, data.shares), "largest": largest})
        pvalue = float(jnp.min(test.adjusted_pvalue))
        call = f"hypothesis_tests.local_calibration_test(jax.random.fold_in(key, 10), {shown}, "
        call = f"jnp.min({call}num_draws=199{data.and_weights}).adjusted_pvalue)"
        note = "that of the largest standardised local error"
        entries.append(Entry("exact p-value of local errors", pvalue, function=call, note=note))
    call = f"estimators.lce({shown}{data.and_weights})"
    averaged = f"jnp.mean({call})"
    if data.has_weights:
        averaged = f"jnp.nansum(weights * {call}) / jnp.sum(weights)"
    mean = lambda: data.average(np.nan_to_num(estimators.lce(*arguments, **weights)))  # noqa: E731
    most = functools.partial(estimators.mlce, *arguments, **weights)
    for name, compute, shown, kind in (
        ("mean local error (LCE)", mean, averaged, "mean"),
        ("largest local error (MLCE)", most, call.replace("lce", "mlce", 1), "largest"),
    ):
        entries.append(measured(name, compute, shown, by_chance=by_chance[kind]))
    return entries, pvalue, test
