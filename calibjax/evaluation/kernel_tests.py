"""Tests with kernels: of all errors together, and of errors given the features."""

import dataclasses
from typing import Any

import jax
import numpy as np

from calibjax import distances, distributions, hypothesis_tests
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import (
    LEVEL,
    MEMBERS,
    REDRAWS,
    TARGETS,
    Data,
    Finding,
    Named,
    Part,
    measured,
    ranges,
)
from calibjax.evaluation.record import Entry, Section
from calibjax.evaluation.words import map_of
from calibjax.hypothesis_tests.components import OF_CLASSES, OF_NUMBERS
from calibjax.hypothesis_tests.ensembles import with_targets
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import (
    Nystrom,
    SquaredExponential,
    TensorProduct,
    default_kernel,
    default_kernels,
    median_heuristic,
)
from calibjax.kernels.defaults import NUM_LANDMARKS, affordable, thinned
from calibjax.kernels.expectations import prepare_features
from calibjax.kernels.residuals import SHAPES

FEW = 400  # up to this n tests see all pairs of targets without features, in each redraw
PAIRS = 2e9  # of samples that an SKCE takes at most; beyond, its kernel is one of low rank
NUM_DRAWS = 20  # from each prediction whose expectations have no closed form
_COMPONENTS = "result.tests['calibration'].components"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The kernels of a data set.

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
    except (NotImplementedError, TypeError):  # there are families without a variance
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


def is_ensemble(predictions: Distribution) -> bool:
    """Whether which of the members and the target is the target is redrawn."""
    return isinstance(bare(predictions), Ensemble)


def _redrawn(predictions: Distribution) -> str:
    return MEMBERS if is_ensemble(predictions) else TARGETS


def _exact(
    data: Data, name: str, kernel: Any, predictions: Named
) -> tuple[CalibrationTestResult, str]:
    """The exact test with one of the other kernels, and its call."""
    of_members = is_ensemble(predictions.value)
    test = hypothesis_tests.ensemble_skce_test if of_members else hypothesis_tests.exact_skce_test
    kernel = Named(kernel, f"result.other_kernels[{name!r}]")
    samples, draws = (data.key_at(REDRAWS), kernel, predictions), Named(999, "999")
    call = data.call(test, *samples, num_draws=draws)
    return call.value(), call.text


def _linear(data: Data, kernel: Any, predictions: Distribution) -> tuple[Any, str]:
    """The kernel, or one of low rank on predictions if there are many, and what that means."""
    kept = affordable(kernel.prediction, _seen(predictions, data))
    if not isinstance(kept, Nystrom):
        return kernel, ""
    number = jax.tree.leaves(kept.landmarks)[0].shape[0]
    how = f"The kernel on predictions is replaced by one of low rank with {number} landmarks "
    how += "(kernels.Nystrom), with which the exact test takes linear time and stays exact. "
    return TensorProduct(kept, kernel.target), how


def all_errors(data: Data, chosen: Choice) -> Part:
    """The exact test of all errors together, the clearest of them, and the SKCE."""
    predictions, kernel, others = chosen.predictions, chosen.kernel, {}
    if chosen.groups:
        test, groups = hypothesis_tests.aggregated_skce_test, Named(chosen.groups, "result.kernels")
        call = data.call(test, data.key_at(REDRAWS), predictions, kernels=groups)
        test, call = call.value(), call.text
        number = len(jax.tree.leaves(test.adjusted_pvalue))
        how = f"The test has a soft maximum of {len(chosen.groups)} groups of {number} kernels, "
        how += "which result.tests['calibration'] shows. "
        parts = jax.tree.leaves(chosen.groups, is_leaf=lambda part: isinstance(part, Nystrom))
        if any(isinstance(part, Nystrom) for part in parts):
            how += f"Some are of low rank with up to {NUM_LANDMARKS} landmarks (kernels.Nystrom). "
    else:
        kernel, how = _linear(data, kernel, predictions.value)
        others = {"exact test": kernel}
        test, call = _exact(data, "exact test", kernel, predictions)
        how = f"The test has this one kernel. {how}"
    note = "redrawn are the targets, independently given the predictions"
    if is_ensemble(predictions.value):
        note = "redrawn is which of the members and the target is the target"
    title, p = "all errors together", float(test.pvalue)
    entries = [Entry(title, float(test.statistic), pvalue=p, call=f"{call}.statistic", note=note)]
    findings = [Finding(title, "not calibrated", "", is_vague=True, is_last=True)]
    if clearest := _clearest(data, test):
        words, z, p, call = clearest
        how += "z is standardised over the redraws."
        entries.append(Entry(f"z of the clearest direction: {words}", z, pvalue=p, call=call))
        more = {"is_last": "where" not in words, "advice": map_of(data.task, data.size)}
        findings.insert(0, Finding(entries[1].name, *_told(words), is_repaired=True, **more))
    remark = f"{chosen.how}{how}".strip()
    section = Section("Is the model calibrated?", tuple(entries), remark, test="calibration")
    skce, kernels = _skce(data, chosen, test)
    remark = "The squared kernel calibration error is zero for a calibrated model."
    errors = Section("Kernel calibration errors", (skce,), remark, is_detail=True)
    tests = {(_redrawn(predictions.value), "calibration"): test}
    return Part((section, errors), tuple(findings), tests, chosen.groups, others | kernels)


def _clearest(data: Data, test: CalibrationTestResult) -> tuple[str, float, float, str] | None:
    """The significant direction with the largest z: in words, z, p-value and call.

    Shapes are left out, which may be those of a shift or a scale: places tell more.
    """
    components = test.components
    assert components is not None, "of a test of the SKCE"
    if components.direction_scores is None:  # of one kernel
        z = float(components.dispersion.z)
        words = (OF_CLASSES if data.is_of_classes else OF_NUMBERS)[z < 0]
        is_clear = components.largest == "dispersion" and test.pvalue <= LEVEL
        one = words, z, float(test.pvalue), f"{_COMPONENTS}.dispersion.z"
        return one if is_clear else None
    scores, pvalues = np.asarray(components.biased.z), np.asarray(components.direction_pvalues)
    is_clear = (np.asarray(components.direction_scores) != 0) & (pvalues <= LEVEL)
    for place in np.argsort(-scores, kind="stable"):
        name = components.kernel_names[place]
        words = data.in_words(components.direction_of(name))
        if is_clear[place] and words.rpartition(": ")[2] not in SHAPES:
            call = f"{_COMPONENTS}.of_kernel({name!r}).biased.z"
            return words, float(scores[place]), float(pvalues[place]), call
    return None


def _told(direction: str) -> tuple[str, str]:
    """What is wrong, and the numbers: of a direction of the test."""
    direction, _, score = direction.partition(": ")
    text = "that is what the kernel test sees most clearly" + f" ({score})" * bool(score)
    for word in (" too ", " not "):
        subject, separator, rest = direction.partition(word)
        if separator and direction not in OF_CLASSES:
            start = f"{subject} is" if "class" in subject else f"the {subject} are"
            return f"{start}{word}{rest}", text
    return direction, text


def _skce(data: Data, chosen: Choice, test: CalibrationTestResult) -> tuple[Entry, dict[str, Any]]:
    """The SKCE and its kernel."""
    name = "SKCE, all classes" if data.is_of_classes else "SKCE, all targets"
    if is_ensemble(chosen.predictions.value):
        assert test.components is not None, "of a test of the SKCE"
        part = test.components.unbiased
        chance = ranges({name: part.null_samples})[name]
        call = f"{_COMPONENTS}.unbiased.statistic"
        return Entry(name, float(part.statistic), by_chance=chance, call=call), {}
    kernel = chosen.kernel
    if data.size**2 > PAIRS:
        kernel, _ = _linear(data, kernel, chosen.predictions.value)
    return _interval(data, name, "SKCE", kernel, chosen.predictions), {"SKCE": kernel}


def _interval(data: Data, title: str, name: str, kernel: Any, predictions: Named) -> Entry:
    """The entry of the SKCE with one of the other kernels."""
    interval = hypothesis_tests.skce_confidence_interval
    call = data.call(interval, Named(kernel, f"result.other_kernels[{name!r}]"), predictions)
    return measured(title, *call, note="the interval is for models that are not calibrated")


def errors_given_features(data: Data, chosen: Choice | None) -> Part:
    """The exact test with a kernel that looks at the features."""
    title = "Given the features"
    if chosen is None:
        remark = "Quantile forecasts have no kernel calibration error."
        return Part((Section(title, (), remark),))
    scale = median_heuristic(distances.Euclidean(), thinned(data.known(data.features)))
    closeness = SquaredExponential(scale, distances.Features(distances.Euclidean()))
    predictions = Named(
        distributions.with_features(chosen.predictions.value, data.features),
        f"distributions.with_features({chosen.predictions.text}, result.arrays['features'])",
    )
    kernel = TensorProduct(closeness, chosen.kernel.target)
    kernel, how = _linear(data, kernel, predictions.value)
    test, call = _exact(data, "features", kernel, predictions)
    entry = Entry(
        "all errors given the features",
        float(test.statistic),
        pvalue=float(test.pvalue),
        call=f"{call}.statistic",
    )
    assert test.components is not None, "of a test of the SKCE"
    part = test.components.unbiased
    # Above zero if samples with similar features share the same error, and not only all samples.
    low = float(part.statistic) - ranges({"": part.null_samples})[""][1]
    entries = [entry]
    if not is_ensemble(chosen.predictions.value):
        entries.append(_interval(data, "SKCE given the features", "features", kernel, predictions))
        low = -1.0 if entries[1].low is None else entries[1].low
    remark = "The test asks for more than calibration: that predictions are right given the "
    remark += f"features, which are divided by their standard deviations. {how}"
    text = "samples with similar features share the same error"
    finding = Finding(entry.name, "wrong given the features", text, is_last=not low > 0)
    section = Section(title, tuple(entries), remark.strip(), test="features")
    tests = {(_redrawn(chosen.predictions.value), "features"): test}
    return Part((section,), (finding,), tests, other_kernels={"features": kernel})
