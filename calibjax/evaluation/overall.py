"""Is the model calibrated: kernels, the exact test of all errors together, and the SKCE."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri  # comes with JAX

from calibjax import distributions, hypothesis_tests
from calibjax.distributions import Ensemble, Normal
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.distributions.features import bare
from calibjax.evaluation.data import (
    LEVEL,
    MEMBERS,
    REDRAWS,
    TARGETS,
    Data,
    Named,
    Part,
)
from calibjax.evaluation.entries import Entry, Section
from calibjax.evaluation.measures import measured, ranges
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.hypothesis_tests._redraw.components import (
    ALIKE,
    OF_CLASSES,
    OF_NUMBERS,
    SKCEComponents,
)
from calibjax.hypothesis_tests.ensembles import with_targets
from calibjax.kernels import Kernel, Nystrom, Shape, TensorProduct, default_kernel, default_kernels
from calibjax.kernels.default_scales import NUM_LANDMARKS, affordable
from calibjax.kernels.expectations import prepare_features
from calibjax.kernels.residuals import SHAPES

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
_NO_UNIT = (
    "The SKCE is the squared kernel calibration error: zero for a calibrated model. It has no "
    "unit that could be interpreted."
)


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
    own = predictions = Named(data.predictions, "predictions")
    if isinstance(own.value, MonteCarlo):
        predictions = Named(own.value.draws, "predictions.draws")
    how = "The kernel of the SKCE is kernels.default_kernel, whose length scales are "
    how += "chosen from the predictions alone. "
    try:
        kernel = default_kernel(_seen(predictions.value, data))
        is_quick = is_ensemble(predictions.value) or has_features(kernel, data)
        is_closed = predictions is own and (is_quick or data.size <= FEW)
    except NotImplementedError:
        kernel, is_closed = None, False
    if not is_closed and not is_ensemble(predictions.value):
        call = f"distributions.monte_carlo(jax.random.fold_in(key, 9), predictions, {NUM_DRAWS})"
        draws = distributions.monte_carlo(data.at(9), data.predictions, NUM_DRAWS).draws
        predictions = Named(draws, f"{call}.draws")
        kernel = default_kernel(_seen(predictions.value, data))
    if predictions is not own:
        how += "Expectations have no closed form, or none that is fast enough: the SKCE and its "
        how += f"test are those of ensembles of {predictions.value.values.shape[1]} draws from the "
        how += "predictions. "
    is_aggregated = not is_ensemble(predictions.value)
    groups = default_kernels(_seen(predictions.value, data)) if is_aggregated else {}
    return Choice(groups, kernel, predictions, how)


def has_features(kernel: Any, data: Data) -> bool:
    """Whether targets have features, with which redraws are matrix products."""
    kernel = kernel.target if isinstance(kernel, TensorProduct) else kernel
    return prepare_features(kernel, data.predictions, data.targets) is not None


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
    found = affordable(kernel.prediction, _seen(predictions, data))
    if not isinstance(found, Nystrom):
        return kernel, ""
    number = jax.tree.leaves(found.landmarks)[0].shape[0]
    how = f"The kernel on predictions is replaced by one of low rank with {number} landmarks "
    how += "(kernels.Nystrom), with which the exact test takes linear time and stays exact. "
    return TensorProduct(found, kernel.target), how


def is_ensemble(predictions: Distribution) -> bool:
    """Whether which of the members and the target is the target is redrawn."""
    return isinstance(bare(predictions), Ensemble)


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
        told = components.largest_kernel
        direction, pvalue = _in_words(data, components, told), by_name[told]
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


def _has_shape(data: Data, shape: str) -> bool:
    """Whether normal scores have a wrong shape, given their own mean and standard deviation.

    No shape is named where a score is beyond ±5, which single precision does not tell from others.
    """
    assert data.pit is not None, "of predictions with normal scores"
    scores = ndtri(np.asarray(data.known(data.pit), float))
    weights = np.asarray(data.known(data.weights)) if data.has_weights else np.ones(len(scores))
    if not np.all(np.abs(scores) < _LARGEST_SCORE):
        return False
    mean = np.average(scores, weights=weights)
    deviation = np.sqrt(np.average((scores - mean) ** 2, weights=weights))
    standard, own = Normal(jnp.zeros(()), jnp.ones(())), (scores - mean) / max(deviation, 1e-300)
    found = jax.vmap(Shape(shape).residual, (None, 0))(standard, jnp.asarray(own))
    residuals = weights * np.asarray(found)[:, 0]
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
    told = of_dispersion[float(components.dispersion.z) < 0]
    if components.largest != "dispersion":
        told = ALIKE
    return entries, {"direction": told, "direction_pvalue": float(test.pvalue)}


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
        how += "kernels; each z is that of the largest kernel of a group. "
        parts = jax.tree.leaves(chosen.groups, is_leaf=lambda part: isinstance(part, Nystrom))
        if any(isinstance(part, Nystrom) for part in parts):
            how += f"Some are of low rank with up to {NUM_LANDMARKS} landmarks (kernels.Nystrom). "
    else:
        kernel, how = linear(data, chosen.kernel, chosen.predictions.value)
        others = {"exact test": kernel}
        test, call = exact_skce(data, "exact test", kernel, chosen.predictions)
        how = "The p-value is that of this one kernel. " + how
    note = "redrawn: the targets, from the predictions; they have to be independent given these"
    if is_ensemble(chosen.predictions.value):
        note = "redrawn: which of the members and the target is the target"
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
    seen = Named((chosen.predictions.value, data.targets), shown)
    note = "the interval is for models that are not calibrated"
    entry = skce_interval(data, f"SKCE, {everything}", "SKCE", kernel, seen, note)
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
