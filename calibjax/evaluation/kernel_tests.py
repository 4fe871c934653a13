"""Tests with kernels: of all errors together, and of errors given the features."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from calibjax import distances, distributions, hypothesis_tests
from calibjax.distributions import Ensemble, Normal
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import (
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
from calibjax.evaluation.words import MAP_OF_QUANTILES, SHAPE, map_of
from calibjax.hypothesis_tests.components import ALIKE, OF_CLASSES, OF_NUMBERS
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
from calibjax.kernels.residuals import SHAPES, Shape

FEW = 400  # up to this n tests see all pairs of targets without features, in each redraw
PAIRS = 2e9  # of samples that an SKCE takes at most; beyond, its kernel is one of low rank
NUM_DRAWS = 20  # from each prediction whose expectations have no closed form
_LARGEST_SCORE = 5.0  # beyond, single precision does not tell
_WORDS = {
    "biased": "all errors together",
    "unbiased": "errors shared by similar predictions",
    "dispersion": "targets scatter more than predicted",
}
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
    """The exact test of all errors together, what it is largest for, and the SKCE."""
    predictions, kernel, others = chosen.predictions, chosen.kernel, {}
    if chosen.groups:
        test, groups = hypothesis_tests.aggregated_skce_test, Named(chosen.groups, "result.kernels")
        call = data.call(test, data.key_at(REDRAWS), predictions, kernels=groups)
        test, call = call.value(), call.text
        number = len(jax.tree.leaves(test.adjusted_pvalue))
        how = f"The test has a soft maximum of {len(chosen.groups)} groups of {number} kernels; "
        how += "each z is that of the most significant kernel of a group. "
        parts = jax.tree.leaves(chosen.groups, is_leaf=lambda part: isinstance(part, Nystrom))
        if any(isinstance(part, Nystrom) for part in parts):
            how += f"Some are of low rank with up to {NUM_LANDMARKS} landmarks (kernels.Nystrom). "
        rows, finding = _of_groups(data, test)
    else:
        kernel, how = _linear(data, kernel, predictions.value)
        others = {"exact test": kernel}
        test, call = _exact(data, "exact test", kernel, predictions)
        how = "The test has this one kernel. " + how
        rows, finding = _of_components(data, test)
    note = "redrawn are the targets, independently given the predictions"
    if is_ensemble(predictions.value):
        note = "redrawn is which of the members and the target is the target"
    first = Entry(
        "all errors together",
        float(test.statistic),
        pvalue=float(test.pvalue),
        call=f"{call}.statistic",
        note=note,
    )
    how += "z is standardised over the redraws."
    section = Section(
        "Is the model calibrated?", (first, *rows), chosen.how + how, test="calibration"
    )
    vague = Finding(first.name, "not calibrated", "", is_vague=True, is_last=True)
    skce, kernels = _skce(data, chosen, test)
    remark = "The squared kernel calibration error is zero for a calibrated model."
    errors = Section("Kernel calibration errors", (skce,), remark, is_detail=True)
    findings = (finding, vague) if finding else (vague,)
    tests = {(_redrawn(predictions.value), "calibration"): test}
    return Part((section, errors), findings, tests, chosen.groups, others | kernels)


def _of_groups(data: Data, test: CalibrationTestResult) -> tuple[list[Entry], Finding | None]:
    """Rows of the groups of kernels, and the clearest direction."""
    components, of_groups, entries = test.components, test.group_pvalues, []
    assert components is not None, "of a test of the SKCE"
    assert of_groups is not None, "of a test of groups"
    of_directions = np.asarray(components.direction_scores) != 0
    by_name = dict(zip(components.kernel_names, jax.tree.leaves(test.adjusted_pvalue), strict=True))
    for group in components.groups:
        largest = components.largest_kernel_of(group)
        part = components.of_kernel(largest)
        call = f"{_COMPONENTS}.of_kernel({largest!r}).{part.largest}.z"
        more = {"pvalue": float(of_groups[group]), "call": call}
        words = _in_words(data, components.direction_of(largest))
        entries.append(
            Entry(f"z: {group}", float(getattr(part, part.largest).z), note=words, **more)
        )
    # The direction with the largest score that is told; otherwise that of the largest kernel.
    scores = np.asarray(components.biased.z)
    places = [p for p in np.argsort(-scores, kind="stable") if of_directions[p]]
    for place in places:
        words = _in_words(data, components.direction_of(components.kernel_names[place]))
        p = float(np.asarray(components.direction_pvalues)[place])
        if words and p <= 0.05:
            name = components.kernel_names[place]
            score, call = float(scores[place]), f"{_COMPONENTS}.of_kernel({name!r}).biased.z"
            break
    else:
        name = components.largest_kernel
        part, words = components.of_kernel(name), _in_words(data, components.direction_of(name))
        score, p = float(getattr(part, part.largest).z), float(by_name[name])
        call = f"{_COMPONENTS}.of_kernel({name!r}).{part.largest}.z"
    if not words or words == ALIKE:
        return entries, None
    title = f"z of the clearest direction: {words}"
    entries.append(Entry(title, score, pvalue=p, call=call))
    shape = words.rpartition(": ")[2]
    if shape in SHAPES:
        advice = MAP_OF_QUANTILES if data.task == "regression" else SHAPE
        return entries, Finding(title, *_told(words), advice=advice)
    more = {"is_last": "where" not in words, "advice": map_of(data.task, data.size)}
    return entries, Finding(title, *_told(words), is_repaired=True, **more)


def _told(direction: str) -> tuple[str, str]:
    """What is wrong, and the numbers: of a direction of the test."""
    direction, _, score = direction.partition(": ")
    text = f"that is what the kernel test sees most clearly ({score})" if score else ""
    text = text or "that is what the kernel test sees most clearly"
    if direction in OF_CLASSES:
        return direction, text
    for word in (" too ", " not "):
        subject, separator, rest = direction.partition(word)
        if separator:
            start = f"{subject} is" if "class" in subject else f"the {subject} are"
            return f"{start}{word}{rest}", text
    return direction, text


def _in_words(data: Data, words: str) -> str:
    """What a kernel says of the predictions; nothing of shapes that a shift and a scale explain."""
    shape = words.rpartition(": ")[2]
    if shape in SHAPES and not _has_shape(data, shape):
        return ""
    return data.in_words(words)


def _has_shape(data: Data, shape: Any) -> bool:
    """Whether normal scores have a wrong shape, given their own mean and standard deviation.

    No shape is named where a score is beyond ±5, which single precision does not tell from others.
    """
    scores = ndtri(np.asarray(data.known(data.pit), float))
    if not np.all(np.abs(scores) < _LARGEST_SCORE):
        return False
    mean = data.average(scores)
    deviation = np.sqrt(data.average((scores - mean) ** 2))
    values = _standard_residuals(shape, (scores - mean) / max(deviation, 1e-300))
    residuals = data.shares * np.asarray(values)[:, 0]
    return bool(abs(np.sum(residuals)) >= 2 * np.sqrt(np.sum(residuals**2)))


@functools.partial(jax.jit, static_argnums=0)
def _standard_residuals(shape: Any, scores: jax.Array) -> jax.Array:
    """Residuals of the shape of standard normal distributions."""
    standard = Normal(jnp.zeros((), scores.dtype), jnp.ones((), scores.dtype))
    return jax.vmap(Shape(shape).residual, (None, 0))(standard, scores)


def _of_components(data: Data, test: CalibrationTestResult) -> tuple[list[Entry], Finding | None]:
    """Rows of the components of one kernel, and what the largest one says."""
    components, chance, entries = test.components, float(test.critical_value()), []
    assert components is not None, "of a test of the SKCE"
    for name, words in _WORDS.items():
        score, call = float(getattr(components, name).z), f"{_COMPONENTS}.{name}.z"
        p = float(test.pvalue) if name == components.largest else None
        more = {"by_chance": (-chance, chance), "pvalue": p, "call": call}
        entries.append(Entry(f"z: {words}", score, **more))
    if components.largest != "dispersion":
        return entries, None
    of_dispersion = OF_CLASSES if data.is_of_classes else OF_NUMBERS
    words = of_dispersion[float(components.dispersion.z) < 0]
    entry = f"z: {_WORDS['dispersion']}"
    more = {"is_last": True, "is_repaired": True, "advice": map_of(data.task, data.size)}
    return entries, Finding(entry, *_told(words), **more)


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
