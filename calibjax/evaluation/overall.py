"""Is the model calibrated: kernels, the exact test of all errors together, and the SKCE."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from calibjax import distributions, estimators, hypothesis_tests, plotting
from calibjax.distributions import MonteCarlo, Samples
from calibjax.distributions.features import bare
from calibjax.evaluation.data import Data, Part, measured, ranges, shown_classes
from calibjax.evaluation.figures import Panel
from calibjax.evaluation.record import Entry, Section
from calibjax.hypothesis_tests import CalibrationTestResult, SKCEComponents
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

_CLASSES, _NUMBERS = "all classes", "all targets"
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
        family: `target_kernels` by name.
        main: name of the kernel of the SKCE.
        predictions: those of the data, or draws where expectations have no closed form.
        drawn: an expression of them.
        how: which kernels and why, in words.
        has_features: whether tests are matrix products of features of the targets.
    """

    family: dict[str, Any]
    main: str
    predictions: Any
    drawn: str
    how: str
    has_features: bool

    @property
    def kernel(self) -> Any:
        """The kernel of the SKCE."""
        return self.family[self.main]


def chosen_kernels(data: Data) -> Choice:
    """The default kernels, of every few predictions if there are many."""
    predictions, drawn = data.predictions, "predictions"
    if isinstance(predictions, MonteCarlo):
        predictions, drawn = predictions.draws, "predictions.draws"
    main = "predictions 1/2 median"
    main = f"{_CLASSES}, {main}" if data.is_of_classes else f"{main}, targets 1 deviations"
    how = f"The kernel of the SKCE is “{main}” of hypothesis_tests.target_kernels, whose "
    how += "length scales are chosen from the predictions alone"
    step = -(-data.size // SCALE_SAMPLES)
    how += f", from one in {step} of them. " if step > 1 else ". "
    try:
        family = _family(predictions, data, step)
        has_features = is_ensemble(predictions) or _has_features(family[main], data)
        is_closed = drawn == "predictions" and (has_features or data.size <= FEW_PAIRS)
    except NotImplementedError:
        family, has_features, is_closed = {}, True, False
    if not is_closed and not is_ensemble(predictions):
        predictions = distributions.monte_carlo(data.at(9), predictions, NUM_DRAWS).draws
        drawn = f"distributions.monte_carlo({_key(9)}, predictions, {NUM_DRAWS}).draws"
        family = _family(predictions, data, step)
    if drawn != "predictions":
        how += (
            "Expectations have no closed form, or none that is fast enough: the SKCE and its test "
        )
        how += (
            f"are those of ensembles of {predictions.values.shape[1]} draws from the predictions. "
        )
    return Choice(family, main, predictions, drawn, how, has_features)


def _has_features(kernel: Any, data: Data) -> bool:
    kernel = kernel.target if isinstance(kernel, TensorProduct) else kernel
    return prepare_features(kernel, data.predictions, data.targets) is not None


def _family(predictions: Any, data: Data, step: int) -> dict[str, Any]:
    if isinstance(predictions, Samples):  # whose length scales must not tell which is the target
        predictions = with_targets(predictions, data.targets)
    return hypothesis_tests.target_kernels(jax.tree.map(lambda leaf: leaf[::step], predictions))


def _key(place: int) -> str:
    return f"jax.random.fold_in(key, {place})"


def exact_skce(
    data: Data, kernel: Kernel, predictions: Any, place: int
) -> tuple[CalibrationTestResult, str]:
    """The exact test with one kernel, and its name."""
    name = "ensemble_skce_test" if is_ensemble(predictions) else "exact_skce_test"
    test = getattr(hypothesis_tests, name)
    return test(data.at(place), kernel, predictions, data.targets, num_samples=999), name


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
    """The exact test, its components, and the SKCE."""
    first, test, components, others, how = _tested(data, chosen)
    entries, chance = [first], float(test.critical_value())
    for name, words in _WORDS.items():
        score = float(getattr(components, name).score)
        call = "result.tests['calibration'].components"
        call += ".of_kernel(result.tests['calibration'].components.loudest_kernel)" * _many(test)
        call = f"{call}.{name}.score"
        by_chance = (-chance, chance)
        entries.append(Entry(f"score: {words}", score, function=call, by_chance=by_chance))
    skce = _skce_entries(data, chosen, test)
    remark = chosen.how + how + "Scores are standardised over the redraws."
    findings = {
        "pvalue": first.value,
        "component": components.loudest,
        "spread_score": float(components.spread.score),
        "spread_pvalue": _of_score(test, float(components.spread.score)),
    }
    section = Section("Is the model calibrated?", tuple(entries), remark)
    errors = Section("Kernel calibration errors", tuple(skce), _NO_UNIT, is_detail=True)
    panel = _null_panel(test)
    return Part((section, errors), findings, chosen.family, others, {"calibration": test}, panel)


def _of_score(test: CalibrationTestResult, score: float) -> float:
    """p-value of one score, adjusted for all, of which the statistic is the largest."""
    draws = np.asarray(test.null_samples, float)
    return float((1 + np.sum(draws >= abs(score) * (1 - 1e-6))) / (1 + draws.size))


def _many(test: CalibrationTestResult) -> bool:
    return test.components is not None and test.components.family is not None


def _tested(
    data: Data, chosen: Choice
) -> tuple[Entry, CalibrationTestResult, SKCEComponents, dict[str, Kernel], str]:
    """p-value, test, components of the loudest kernel, other kernels, and what was done."""
    kernels, others = chosen.family, {}
    limit = AGGREGATED if chosen.has_features else FEW_AGGREGATED
    if data.size <= limit and not is_ensemble(chosen.predictions):
        test = hypothesis_tests.aggregated_skce_test(
            data.at(1), chosen.predictions, data.targets, kernels=kernels
        )
        call = f"hypothesis_tests.aggregated_skce_test({_key(1)}, {chosen.drawn}, targets, "
        call += "kernels=result.kernels)"
        assert test.components is not None, "of a family"
        components = test.components.of_kernel(test.components.loudest_kernel)
        how = f"The p-value is that of the largest statistic of {len(kernels)} kernels; the scores "
        how += f"are those of the kernel with the largest one, “{test.components.loudest_kernel}”. "
    else:
        kernel, how = low_rank(data, chosen.kernel, chosen.predictions)
        others = {"exact test": kernel}
        test, name = exact_skce(data, kernel, chosen.predictions, 1)
        call = f"hypothesis_tests.{name}({_key(1)}, result.other_kernels['exact test'], "
        call += f"{chosen.drawn}, targets, num_samples=999)"
        how = "The p-value is that of this one kernel. " + how
        assert test.components is not None, "of a test of the SKCE"
        components = test.components
    entry = measured("exact p-value", call, lambda: test, note=_note(chosen))
    return entry, test, components, others, how


def _note(chosen: Choice) -> str:
    if is_ensemble(chosen.predictions):
        return "redrawn: which of the members and the target is the target"
    return "redrawn: the targets, from the predictions; they have to be independent given these"


def _skce_entries(data: Data, chosen: Choice, test: CalibrationTestResult) -> list[Entry]:
    """The SKCE of all targets, and through the lenses of classes."""
    names = {_CLASSES if data.is_of_classes else _NUMBERS: chosen.main}
    lenses, called = {}, {}
    if data.task == "classification":
        lenses["top label"] = "estimators.top_label"
        for c in shown_classes(data.predictions.class_probs):
            lenses[f"class {c}"] = f"estimators.OneVersusRest({c})"
            called[f"class {c}"] = data.class_called(c)
    affordable = (1 + len(lenses)) * data.size**2 <= PAIRS
    if affordable:
        names |= {lens: f"{lens}, predictions 1/2 median" for lens in lenses}
    if is_ensemble(chosen.predictions) or data.size**2 > PAIRS:
        return [_skce_of_test(next(iter(names)), chosen, test)]
    entries = []
    for view, name in names.items():
        lens = lenses.get(view)
        entries.append(_skce_interval(data, chosen, view, name, lens))
        entry = dataclasses.replace(entries[-1], name=f"SKCE, {called.get(view, view)}")
        entries[-1], adjusted = entry, _adjusted(test, view)
        if adjusted is not None and math.isfinite(entry.value):
            note = f"p is the smallest of all kernels of this row; {entry.note}"
            entries[-1] = dataclasses.replace(entry, pvalue=adjusted, note=note)
    return entries


def _skce_interval(data: Data, chosen: Choice, view: str, name: str, lens: str | None) -> Entry:
    """The SKCE through a lens, with its interval."""
    samples: Any = chosen.predictions, data.targets
    kernel, arguments = chosen.family[name], f"{chosen.drawn}, targets"
    if lens is not None:
        kernel, arguments = kernel[1], f"*{lens}({arguments})"
        own = estimators.top_label if view == "top label" else chosen.family[name][0]
        samples = own(*samples)
    place = f"result.kernels[{name!r}]" + ("" if lens is None else "[1]")
    return measured(
        f"SKCE, {view}",
        f"hypothesis_tests.skce_confidence_interval({place}, {arguments})",
        lambda: hypothesis_tests.skce_confidence_interval(kernel, *samples),
        note="the interval is for models that are not calibrated",
    )


def _adjusted(test: CalibrationTestResult, view: str) -> float | None:
    """Smallest adjusted p-value of the kernels with this lens, of a test of many kernels."""
    if not _many(test):
        return None
    own = [p for name, p in test.adjusted_pvalue.items() if name.startswith(f"{view}, ")]
    return float(min(map(float, own))) if own else None


def _skce_of_test(view: str, chosen: Choice, test: CalibrationTestResult) -> Entry:
    """The SKCE that the test has computed, and those of its redraws."""
    assert test.components is not None, "of a test of the SKCE"
    components, call = test.components, "result.tests['calibration'].components"
    if _many(test):
        components = components.of_kernel(chosen.main)
        call += f".of_kernel({chosen.main!r})"
    part = components.unbiased
    name = f"SKCE, {view}"
    chance = ranges({name: part.null_samples})[name]
    return measured(name, f"{call}.unbiased.statistic", lambda: part.statistic, by_chance=chance)


def _null_panel(test: CalibrationTestResult) -> tuple[Panel, ...]:
    """The statistic among those of the redraws."""
    caption = "The statistic of the exact test (line) among those of redrawn data sets: what a "
    caption += "calibrated model would have shown."
    return (Panel("null distribution", caption, plotting.null_distribution, test, 2),)
