"""Is the model calibrated: kernels, the exact test of all errors together, and the SKCE."""

import dataclasses
import functools
from typing import Any

import jax

from calibjax import distributions, estimators, hypothesis_tests, plotting
from calibjax.distributions import MonteCarlo, Samples
from calibjax.distributions.features import bare
from calibjax.evaluation.data import (
    LEVEL,
    MEMBERS,
    REDRAWS,
    TARGETS,
    Data,
    Part,
    measured,
    ranges,
    shown_classes,
)
from calibjax.evaluation.figures import Panel
from calibjax.evaluation.record import Entry, Section
from calibjax.hypothesis_tests import CalibrationTestResult, default_kernel, default_kernels
from calibjax.hypothesis_tests._redraw.components import ALIKE, OF_CLASSES, OF_NUMBERS
from calibjax.hypothesis_tests.ensembles import with_targets
from calibjax.kernels import Kernel, LowRank, TensorProduct, choose_landmarks
from calibjax.kernels.expectations import prepare_features

SCALE_SAMPLES = 1000  # from which length scales are chosen
AGGREGATED, FEW_AGGREGATED = 2000, 400  # up to these n all kernels are tested together
ALL_PAIRS, FEW_PAIRS = 5000, 2000  # up to these n the test sees all pairs
# The second numbers are for targets without features, where tests take n² evaluations per redraw.
NUM_LANDMARKS = 100
PAIRS = 2e9  # of samples that SKCEs with intervals take at most
NUM_DRAWS = 20  # from each prediction whose expectations have no closed form

_WORDS = {
    "biased": "distance from calibration",
    "unbiased": "off in the same way for similar predictions",
    "spread": "more scatter than predicted",
}
_NO_UNIT = (
    "The SKCE is the squared kernel calibration error: zero for a calibrated model. It has no "
    "unit that could be interpreted."
)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The kernels of a data set and the test that goes with its size.

    Attributes:
        groups: `default_kernels`.
        kernel: `default_kernel`, that of the SKCE.
        predictions: those of the data, or draws where expectations have no closed form.
        drawn: an expression of them.
        how: which kernels and why, in words.
        has_features: whether tests are matrix products of features of the targets.
        step: one in how many predictions the length scales are chosen from.
    """

    groups: dict[str, Any]
    kernel: Any
    predictions: Any
    drawn: str
    how: str
    has_features: bool
    step: int


def chosen_kernels(data: Data) -> Choice:
    """The default kernels, of every few predictions if there are many."""
    predictions, drawn = data.predictions, "predictions"
    if isinstance(predictions, MonteCarlo):
        predictions, drawn = predictions.draws, "predictions.draws"
    how = "The kernel of the SKCE is hypothesis_tests.default_kernel, whose length scales are "
    how += "chosen from the predictions alone"
    step = -(-data.size // SCALE_SAMPLES)
    how += f", from one in {step} of them. " if step > 1 else ". "
    try:
        kernel = default_kernel(_some(predictions, data, step))
        has_features = is_ensemble(predictions) or _has_features(kernel, data)
        is_closed = drawn == "predictions" and (has_features or data.size <= FEW_PAIRS)
    except NotImplementedError:
        kernel, has_features, is_closed = None, True, False
    if not is_closed and not is_ensemble(predictions):
        predictions = distributions.monte_carlo(data.at(9), predictions, NUM_DRAWS).draws
        drawn = f"distributions.monte_carlo({_key(9)}, predictions, {NUM_DRAWS}).draws"
        kernel = default_kernel(_some(predictions, data, step))
    if drawn != "predictions":
        how += (
            "Expectations have no closed form, or none that is fast enough: the SKCE and its test "
        )
        how += (
            f"are those of ensembles of {predictions.values.shape[1]} draws from the predictions. "
        )
    limit = AGGREGATED if has_features else FEW_AGGREGATED
    is_aggregated = data.size <= limit and not is_ensemble(predictions)
    groups = default_kernels(_some(predictions, data, step)) if is_aggregated else {}
    return Choice(groups, kernel, predictions, drawn, how, has_features, step)


def _has_features(kernel: Any, data: Data) -> bool:
    kernel = kernel.target if isinstance(kernel, TensorProduct) else kernel
    return prepare_features(kernel, data.predictions, data.targets) is not None


def _some(predictions: Any, data: Data, step: int) -> Any:
    """The predictions that length scales are chosen from."""
    if isinstance(predictions, Samples):  # whose length scales must not tell which is the target
        predictions = with_targets(predictions, data.targets)
    return jax.tree.map(lambda leaf: leaf[::step], data.known(predictions))


def _key(place: int) -> str:
    return f"jax.random.fold_in(key, {place})"


def exact_skce(data: Data, kernel: Kernel, predictions: Any) -> tuple[CalibrationTestResult, str]:
    """The exact test with one kernel, and its name."""
    name = "ensemble_skce_test" if is_ensemble(predictions) else "exact_skce_test"
    test = getattr(hypothesis_tests, name)
    samples = predictions, data.targets
    found = test(data.at(REDRAWS), kernel, *samples, weights=data.weights, num_draws=999)
    return found, name


def low_rank(data: Data, kernel: Any, predictions: Any) -> tuple[Any, str]:
    """The kernel, with one of low rank on predictions if there are many, and what that means."""
    if data.size <= ALL_PAIRS:
        return kernel, ""
    seen = predictions
    if is_ensemble(predictions):
        seen = with_targets(predictions, data.targets)
    landmarks = choose_landmarks(kernel.prediction, seen, NUM_LANDMARKS)
    number = jax.tree.leaves(landmarks)[0].shape[0]
    how = f"The kernel on predictions is replaced by one of low rank with {number} landmarks "
    how += "(kernels.LowRank), with which the exact test takes linear time and stays exact. "
    return TensorProduct(LowRank(kernel.prediction, landmarks), kernel.target), how


def is_ensemble(predictions: Any) -> bool:
    """Whether which of the members and the target is the target is redrawn."""
    return isinstance(bare(predictions), Samples)


def overall(data: Data, chosen: Choice) -> Part:
    """The exact test, what it found most of, and the SKCE."""
    test, first, others, how = _tested(data, chosen)
    remark = chosen.how + how + "Scores are standardised over the redraws."
    entries, findings = (_of_groups if chosen.groups else _of_components)(data, test)
    section = Section("Is the model calibrated?", (first, *entries), remark)
    skce, kernels = _skce_entries(data, chosen, test)
    errors = Section("Kernel calibration errors", tuple(skce), _NO_UNIT, is_detail=True)
    return Part(
        (section, errors),
        findings | {"pvalue": first.value},
        chosen.groups,
        others | kernels,
        {"calibration": test},
        _null_panel(test),
        {redraws_of(chosen.predictions): {"all": test}},
    )


def redraws_of(predictions: Any) -> str:
    """What is redrawn: the targets, or which of the members and the target is the target."""
    return MEMBERS if is_ensemble(predictions) else TARGETS


def _of_groups(data: Data, test: CalibrationTestResult) -> tuple[list[Entry], dict[str, Any]]:
    """The scores of the groups with their adjusted p-values, and the loudest direction."""
    components, pvalues = test.components, jax.tree.leaves(test.adjusted_pvalue)
    assert components is not None, "of a test of the SKCE"
    names, entries = components.kernel_names, []
    by_name = dict(zip(names, map(float, pvalues), strict=True))
    of_groups = test.group_pvalues
    assert of_groups is not None, "of a test of groups"
    for group in components.groups:
        loudest = components.loudest_kernel_of(group)
        part = components.of_kernel(loudest)
        call = "result.tests['calibration'].components"
        entry = Entry(
            f"score: {group}",
            float(getattr(part, part.loudest).score),
            pvalue=float(of_groups[group]),
            function=f"{call}.of_kernel({loudest!r}).{part.loudest}.score",
            note=data.in_words(components.direction_of(loudest)),
        )
        entries.append(entry)
    told, pvalue = components.loudest_direction, test.direction_pvalue
    if pvalue is None or pvalue > LEVEL:
        told = components.loudest_kernel
        pvalue = by_name[told]
    direction = data.in_words(components.direction_of(told))
    findings = {"direction": direction, "direction_pvalue": pvalue}
    return entries, findings


def _of_components(data: Data, test: CalibrationTestResult) -> tuple[list[Entry], dict[str, Any]]:
    """The scores of the components of one kernel, and what the loudest one says."""
    components, chance, entries = test.components, float(test.critical_value()), []
    assert components is not None, "of a test of the SKCE"
    for name, words in _WORDS.items():
        score = float(getattr(components, name).score)
        call = f"result.tests['calibration'].components.{name}.score"
        by_chance = (-chance, chance)
        entries.append(Entry(f"score: {words}", score, function=call, by_chance=by_chance))
    of_spread = OF_CLASSES if data.is_of_classes else OF_NUMBERS
    told = of_spread[float(components.spread.score) < 0]
    if components.loudest != "spread":
        told = ALIKE
    return entries, {"direction": told, "direction_pvalue": float(test.pvalue)}


def _tested(
    data: Data, chosen: Choice
) -> tuple[CalibrationTestResult, Entry, dict[str, Kernel], str]:
    """The test, its p-value, other kernels, and what was done."""
    others = {}
    if chosen.groups:
        test = hypothesis_tests.aggregated_skce_test(
            data.at(REDRAWS),
            chosen.predictions,
            data.targets,
            kernels=chosen.groups,
            weights=data.weights,
        )
        call = f"hypothesis_tests.aggregated_skce_test({_key(REDRAWS)}, {chosen.drawn}, targets, "
        call += data.called("kernels=result.kernels") + ")"
        number = len(jax.tree.leaves(test.adjusted_pvalue))
        how = f"The p-value is that of a soft maximum of {len(chosen.groups)} groups of {number} "
        how += "kernels; the scores are those of the loudest kernel of each group. "
    else:
        kernel, how = low_rank(data, chosen.kernel, chosen.predictions)
        others = {"exact test": kernel}
        test, name = exact_skce(data, kernel, chosen.predictions)
        call = f"hypothesis_tests.{name}({_key(REDRAWS)}, result.other_kernels['exact test'], "
        call += data.called(f"{chosen.drawn}, targets, num_draws=999") + ")"
        how = "The p-value is that of this one kernel. " + how
    entry = measured("exact p-value", call, lambda: test, note=_note(chosen))
    return test, entry, others, how


def _note(chosen: Choice) -> str:
    if is_ensemble(chosen.predictions):
        return "redrawn: which of the members and the target is the target"
    return "redrawn: the targets, from the predictions; they have to be independent given these"


def _skce_entries(
    data: Data, chosen: Choice, test: CalibrationTestResult
) -> tuple[list[Entry], dict[str, Any]]:
    """The SKCE of all targets, and through the lenses of classes; and their kernels."""
    everything = "all classes" if data.is_of_classes else "all targets"
    views: dict[str, tuple[str, Any]] = {everything: ("", None)}
    if data.task == "classification":
        views["top label"] = "estimators.top_label", estimators.top_label
        for c in shown_classes(data.known(data.predictions.class_probs)):
            lens = estimators.OneVersusRest(c)
            views[f"class {c}"] = f"estimators.OneVersusRest({c})", lens
    if len(views) * data.size**2 > PAIRS:
        views = {everything: views[everything]}
    if is_ensemble(chosen.predictions) or data.size**2 > PAIRS:
        return _skce_of_test(everything, test), {}
    entries, kernels = [], {}
    for view, (name, lens) in views.items():
        samples: Any = chosen.predictions, data.targets
        arguments, kernel = f"{chosen.drawn}, targets", chosen.kernel
        if lens is not None:
            arguments, samples = f"*{name}({arguments})", lens(*samples)
            kernel = default_kernel(_some(samples[0], data, chosen.step))
        place, title = "SKCE" if lens is None else f"SKCE, {view}", f"SKCE, {data.in_words(view)}"
        kernels[place] = kernel
        entry = measured(
            title,
            "hypothesis_tests.skce_confidence_interval("
            + data.called(f"result.other_kernels[{place!r}], {arguments}")
            + ")",
            functools.partial(
                hypothesis_tests.skce_confidence_interval, kernel, *samples, weights=data.weights
            ),
            note="the interval is for models that are not calibrated",
        )
        entries.append(entry)
    return entries, kernels


def _skce_of_test(view: str, test: CalibrationTestResult) -> list[Entry]:
    """The SKCE that the test with one kernel has computed, and those of its redraws."""
    assert test.components is not None, "of a test of the SKCE"
    part, name = test.components.unbiased, f"SKCE, {view}"
    chance = ranges({name: part.null_samples})[name]
    call = "result.tests['calibration'].components.unbiased.statistic"
    return [measured(name, call, lambda: part.statistic, by_chance=chance)]


def _null_panel(test: CalibrationTestResult) -> tuple[Panel, ...]:
    """The statistic among those of the redraws."""
    caption = "The statistic of the exact test (line) among those of redrawn data sets: what a "
    caption += "calibrated model would have shown."
    return (Panel("null distribution", caption, plotting.null_distribution, test, 2),)
