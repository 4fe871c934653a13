"""Tests with kernels: of all errors together, and of errors in groups and given features."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from calibjax import distances, distributions, estimators, hypothesis_tests, plotting
from calibjax.distributions import Ensemble, Normal
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import (
    CONFIDENCES,
    LEVEL,
    LOCAL,
    MEMBERS,
    RANKS,
    REDRAWS,
    TARGETS,
    Data,
    Named,
    Part,
    mean_error,
    measured,
    ranges,
    ranks,
    shown_classes,
)
from calibjax.evaluation.record import Entry, Panel, Section
from calibjax.evaluation.sentences import GroupError
from calibjax.hypothesis_tests.components import (
    ALIKE,
    OF_CLASSES,
    OF_NUMBERS,
    SKCEComponents,
)
from calibjax.hypothesis_tests.ensembles import with_targets
from calibjax.hypothesis_tests.groups import mean_residual
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import (
    Kernel,
    Nystrom,
    SquaredExponential,
    TensorProduct,
    default_kernel,
    default_kernels,
    median_heuristic,
)
from calibjax.kernels.defaults import NUM_LANDMARKS, affordable, thinned
from calibjax.kernels.expectations import prepare_features
from calibjax.kernels.residuals import SHAPES, Shape

FEW = 400  # up to this n tests see all pairs of targets without features, in each redraw
PAIRS = 2e9  # of samples that an SKCE takes at most; beyond, its kernel is one of low rank
_LARGEST_SCORE = 5.0  # beyond, single precision does not tell
NUM_DRAWS = 20  # from each prediction whose expectations have no closed form
_COMPONENTS = "result.tests['calibration'].components"

_WORDS = {
    "biased": "all errors together",
    "unbiased": "errors shared by similar predictions",
    "dispersion": "targets scatter more than predicted",
}
_NO_UNIT = "The SKCE, the squared kernel calibration error, is zero for a calibrated model."


@dataclasses.dataclass(frozen=True)
class Choice:
    """The kernels of a data set and the test that goes with its size.

    Attributes:
        groups: `default_kernels`, but of ensembles.
        kernel: `default_kernel`, that of the SKCE.
        predictions: those of the data, or draws where expectations have no closed form.
        how: which kernels and why, in words.
    """

    groups: dict[str, Any]
    kernel: Any
    predictions: Named
    how: str


def chosen_kernels(data: Data) -> Choice:
    """The default kernels."""
    original = predictions = Named(data.predictions, "predictions")
    if isinstance(original.value, MonteCarlo):
        predictions = Named(original.value.draws, "predictions.draws")
    how = "The kernel of the SKCE is kernels.default_kernel, whose length scales are "
    how += "chosen from the predictions alone. "
    try:
        kernel = default_kernel(_seen(predictions.value, data))
        is_quick = is_ensemble(predictions.value) or has_features(kernel, data)
        is_closed = predictions is original and (is_quick or data.size <= FEW)
    except NotImplementedError:
        kernel, is_closed = None, False
    if not is_closed and not is_ensemble(predictions.value):
        call = f"distributions.monte_carlo(jax.random.fold_in(key, 9), predictions, {NUM_DRAWS})"
        draws = distributions.monte_carlo(data.at(9), data.predictions, NUM_DRAWS).draws
        predictions = Named(draws, f"{call}.draws")
        kernel = default_kernel(_seen(predictions.value, data))
    if predictions is not original:
        how += "Expectations have no closed form, or none that is fast enough: the SKCE and its "
        how += f"test are those of ensembles of {predictions.value.values.shape[1]} draws from the "
        how += "predictions. "
    is_aggregated = not is_ensemble(predictions.value)
    groups = default_kernels(_seen(predictions.value, data)) if is_aggregated else {}
    return Choice(groups, kernel, predictions, how)


def has_features(kernel: Any, data: Data) -> bool:
    """Whether targets have features, with which redraws are matrix products."""
    return prepare_features(kernel.target, data.predictions, data.targets) is not None


def _seen(predictions: Any, data: Data) -> Any:
    """The predictions that kernels are chosen from."""
    if is_ensemble(predictions):  # whose length scales must not tell which is the target
        predictions = with_targets(predictions, data.targets)
    return data.known(predictions)


def exact_skce(
    data: Data, name: str, kernel: Any, predictions: Named
) -> tuple[CalibrationTestResult, str]:
    """The exact test with one of the other kernels, and its call."""
    of_members = is_ensemble(predictions.value)
    test = hypothesis_tests.ensemble_skce_test if of_members else hypothesis_tests.exact_skce_test
    samples = predictions.value, data.targets
    result = test(data.at(REDRAWS), kernel, *samples, num_draws=999, weights=data.weights)
    call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, {REDRAWS}), "
    call += f"result.other_kernels[{name!r}], {predictions.text}, targets, num_draws=999"
    return result, f"{call}{data.and_weights})"


def linear(data: Data, kernel: Any, predictions: Distribution) -> tuple[Any, str]:
    """The kernel, or one of low rank on predictions if there are many, and what that means."""
    kept = affordable(kernel.prediction, _seen(predictions, data))
    if not isinstance(kept, Nystrom):
        return kernel, ""
    number = jax.tree.leaves(kept.landmarks)[0].shape[0]
    how = f"The kernel on predictions is replaced by one of low rank with {number} landmarks "
    how += "(kernels.Nystrom), with which the exact test takes linear time and stays exact. "
    return TensorProduct(kept, kernel.target), how


def is_ensemble(predictions: Distribution) -> bool:
    """Whether which of the members and the target is the target is redrawn."""
    return isinstance(bare(predictions), Ensemble)


def overall(data: Data, chosen: Choice) -> Part:
    """The exact test, what it found most of, and the SKCE."""
    test, first, others, how = _tested(data, chosen)
    remark = chosen.how + how + "z is standardised over the targets resampled under the null."
    entries, findings = (_of_groups if chosen.groups else _of_components)(data, test)
    section = Section("Is the model calibrated?", (first, *entries), remark)
    skce, kernels = _skce_entries(data, chosen, test)
    errors = Section("Kernel calibration errors", tuple(skce), _NO_UNIT, is_detail=True)
    return Part(
        (section, errors),
        findings | {"pvalue": first.value},
        chosen.groups,
        others | kernels,
        {(redraws_of(chosen.predictions.value), "all"): test},
    )


def redraws_of(predictions: Distribution) -> str:
    """What is redrawn: the targets, or which of the members and the target is the target."""
    return MEMBERS if is_ensemble(predictions) else TARGETS


def _of_groups(data: Data, test: CalibrationTestResult) -> tuple[list[Entry], dict[str, Any]]:
    """Z of the groups with their adjusted p-values, and the largest direction."""
    components, pvalues = test.components, jax.tree.leaves(test.adjusted_pvalue)
    assert components is not None, "of a test of the SKCE"
    names, entries = components.kernel_names, []
    by_name = dict(zip(names, map(float, pvalues), strict=True))
    of_groups = test.group_pvalues
    assert of_groups is not None, "of a test of groups"
    for group in components.groups:
        largest = components.largest_kernel_of(group)
        part = components.of_kernel(largest)
        score = getattr(part, part.largest).z
        call = f"{_COMPONENTS}.of_kernel({largest!r}).{part.largest}.z"
        note = _in_words(data, components, largest)
        pvalue = float(of_groups[group])
        more = {"function": call, "pvalue": pvalue, "note": note}
        entries.append(Entry(f"z: {group}", float(score), **more))
    direction, pvalue = _largest_direction(data, components)
    if pvalue is None or pvalue > LEVEL:
        component = components.largest_kernel
        direction, pvalue = _in_words(data, components, component), by_name[component]
    findings = {"direction": direction, "direction_pvalue": pvalue}
    return entries, findings


def _largest_direction(data: Data, components: SKCEComponents) -> tuple[str, float | None]:
    """The direction with the largest score that is told, and its p-value."""
    has_direction = np.asarray(components.direction_scores) != 0
    order = np.argsort(-np.asarray(components.biased.z), kind="stable")
    for place in order[has_direction[order]]:
        if words := _in_words(data, components, components.kernel_names[place]):
            return words, float(np.asarray(components.direction_pvalues)[place])
    return "", None


def _in_words(data: Data, components: SKCEComponents, name: str) -> str:
    """What a kernel says of the predictions; nothing of shapes that a shift and a scale explain."""
    words = components.direction_of(name)
    shape = words.rpartition(": ")[2]
    if shape in SHAPES and not _has_shape(data, shape):
        return ""
    return data.in_words(words)


def _has_shape(data: Data, shape: Any) -> bool:
    """Whether normal scores have a wrong shape, given their own mean and standard deviation.

    No shape is named where a score is beyond ±5, which single precision does not tell from others.
    """
    scores = ndtri(np.asarray(data.known(data.pit), float))
    weights = np.asarray(data.known(data.weights)) if data.has_weights else np.ones(len(scores))
    if not np.all(np.abs(scores) < _LARGEST_SCORE):
        return False
    mean = np.average(scores, weights=weights)
    deviation = np.sqrt(np.average((scores - mean) ** 2, weights=weights))
    standard = Normal(jnp.zeros(()), jnp.ones(()))
    standardised = jnp.asarray((scores - mean) / max(deviation, 1e-300))
    values = jax.vmap(Shape(shape).residual, (None, 0))(standard, standardised)
    residuals = weights * np.asarray(values)[:, 0]
    return bool(abs(np.sum(residuals)) >= 2 * np.sqrt(np.sum(residuals**2)))


def _of_components(data: Data, test: CalibrationTestResult) -> tuple[list[Entry], dict[str, Any]]:
    """Z of the components of one kernel, and what the largest one says."""
    components, chance, entries = test.components, float(test.critical_value()), []
    assert components is not None, "of a test of the SKCE"
    for name, words in _WORDS.items():
        score = float(getattr(components, name).z)
        call = f"{_COMPONENTS}.{name}.z"
        entries.append(Entry(f"z: {words}", score, by_chance=(-chance, chance), function=call))
    of_dispersion = OF_CLASSES if data.is_of_classes else OF_NUMBERS
    direction = of_dispersion[float(components.dispersion.z) < 0]
    if components.largest != "dispersion":
        direction = ALIKE
    return entries, {"direction": direction, "direction_pvalue": float(test.pvalue)}


def _tested(
    data: Data, chosen: Choice
) -> tuple[CalibrationTestResult, Entry, dict[str, Kernel], str]:
    """The test, its p-value, other kernels, and what was done."""
    others = {}
    if chosen.groups:
        samples = chosen.predictions.value, data.targets
        test = hypothesis_tests.aggregated_skce_test(
            data.at(REDRAWS), *samples, kernels=chosen.groups, weights=data.weights
        )
        call = f"hypothesis_tests.aggregated_skce_test(jax.random.fold_in(key, {REDRAWS}), "
        call += f"{chosen.predictions.text}, targets, kernels=result.kernels{data.and_weights})"
        number = len(jax.tree.leaves(test.adjusted_pvalue))
        how = f"The p-value is that of a soft maximum of {len(chosen.groups)} groups of {number} "
        how += "kernels; each z is that of the most significant kernel of a group. "
        parts = jax.tree.leaves(chosen.groups, is_leaf=lambda part: isinstance(part, Nystrom))
        if any(isinstance(part, Nystrom) for part in parts):
            how += f"Some are of low rank with up to {NUM_LANDMARKS} landmarks (kernels.Nystrom). "
    else:
        kernel, how = linear(data, chosen.kernel, chosen.predictions.value)
        others = {"exact test": kernel}
        test, call = exact_skce(data, "exact test", kernel, chosen.predictions)
        how = "The p-value is that of this one kernel. " + how
    note = "resampled under the null: the targets, independently given the predictions"
    if is_ensemble(chosen.predictions.value):
        note = "resampled under the null: which of the members and the target is the target"
    return test, measured("exact p-value", lambda: test, call, note=note), others, how


def _skce_entries(
    data: Data, chosen: Choice, test: CalibrationTestResult
) -> tuple[list[Entry], dict[str, Any]]:
    """The SKCE and its kernel."""
    everything = "all classes" if data.is_of_classes else "all targets"
    if is_ensemble(chosen.predictions.value):
        return _skce_of_test(everything, test), {}
    kernel = chosen.kernel
    if data.size**2 > PAIRS:
        kernel, _ = linear(data, kernel, chosen.predictions.value)
    shown = f"{chosen.predictions.text}, targets"
    samples = Named((chosen.predictions.value, data.targets), shown)
    note = "the interval is for models that are not calibrated"
    entry = skce_interval(data, f"SKCE, {everything}", "SKCE", kernel, samples, note)
    return [entry], {"SKCE": kernel}


def skce_interval(
    data: Data, title: str, name: str, kernel: Any, samples: Named, note: str = ""
) -> Entry:
    """The entry of the SKCE with one of the other kernels."""
    interval = hypothesis_tests.skce_confidence_interval
    call = f"hypothesis_tests.skce_confidence_interval(result.other_kernels[{name!r}], "
    call += f"{samples.text}{data.and_weights})"
    compute = functools.partial(interval, kernel, *samples.value, weights=data.weights)
    return measured(title, compute, call, note=note)


def _skce_of_test(view: str, test: CalibrationTestResult) -> list[Entry]:
    """The SKCE that the test with one kernel has computed, and those of its redraws."""
    assert test.components is not None, "of a test of the SKCE"
    part, name = test.components.unbiased, f"SKCE, {view}"
    chance = ranges({name: part.null_samples})[name]
    call = f"{_COMPONENTS}.unbiased.statistic"
    return [Entry(name, float(part.statistic), by_chance=chance, function=call)]


LOCAL_SAMPLES = 5000  # up to this n local errors are tested
_KINDS = {  # of errors, see `GroupError`
    "bias": "bias",
    "confidence": "accuracy - mean confidence",
    "class": "observed - predicted frequency",
    "PIT": "mean PIT - 1/2",
}


def errors_in_groups(data: Data) -> Part:
    """Mean errors in each group, with family-wise p-values."""
    residuals_of = _residuals(data)
    if residuals_of is None:
        remark = "There is no exact test of mean errors for ensembles of vectors."
        return Part((Section("Groups", (), remark),))
    samples, shown, redrawn, places = residuals_of
    test = hypothesis_tests.group_calibration_test(
        data.at(REDRAWS), *samples, data.memberships, weights=data.weights
    )
    call = f"hypothesis_tests.group_calibration_test(jax.random.fold_in(key, {REDRAWS}), "
    call += f"{shown}, result.arrays['memberships']{data.and_weights})"
    residuals = data.known(mean_residual(*samples))
    members = data.known(data.memberships) * data.shares[:, None]
    entries, errors = [], []
    for g, group in enumerate(data.group_names):
        for (kind, name), place in places.items():
            words = _KINDS[kind] + (f" of {name}" if name else "")
            column = residuals[(slice(None), *place)]
            title, at = f"{words}, {group}", (g, *place)
            entry, p = mean_error(title, test, call, at, column, members[:, g])
            entries.append(entry)
            errors.append(GroupError(group, kind, name, entry.value, p))
    remark = "Mean errors of the samples in each group. Exact p-values, adjusted for all groups "
    section = Section("Groups", tuple(entries), f"{remark}and errors.")
    caption = "Errors of the groups, observed minus predicted, with standard errors; frames mark "
    caption += "those with an adjusted p-value of at most 5 %."
    names = None
    if data.is_of_classes:
        number = data.predictions.class_probs.shape[1]
        names = [*map(data.class_called, range(number)), "accuracy - confidence"]
    draw = functools.partial(plotting.group_errors, groups=data.group_names, residuals=names)
    panel = Panel("errors in groups", caption, draw, test)
    return Part(
        (section,),
        {"groups": tuple(errors)},
        tests={(redrawn, "groups"): test},
        panels=(panel,),
    )


def _residuals(
    data: Data,
) -> tuple[tuple[Any, Any], str, str, dict[tuple[str, str], tuple[int, ...]]] | None:
    """Frequencies of classes, means, or PIT values where members of ensembles are exchangeable.

    Returns:
        Predictions and targets whose mean residuals are tested, the expressions that are shown for
        both, what is redrawn, and the places of each error, by kind and name, in the arrays of the
        test behind the group; None if there is no test.
    """
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
    return samples, call, redrawn, places


def errors_given_features(data: Data, chosen: Choice | None) -> Part:
    """Whether predictions are right given the features, and local errors of classes."""
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
        shown_kernel = (
            ("features", kernel) if data.size**2 > PAIRS else ("features, all pairs", full)
        )
        samples = Named((predictions.value, data.targets), f"{predictions.text}, targets")
        entries.append(skce_interval(data, "SKCE given the features", *shown_kernel, samples))
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
