"""The numbers of several models: scores, gains, calibration, and what each knows."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from calibjax import hypothesis_tests, recalibration
from calibjax.evaluation.cross_calibration import kernel_given, predictions_given
from calibjax.evaluation.data import Data
from calibjax.evaluation.entries import Entry, Section
from calibjax.evaluation.measures import measured
from calibjax.evaluation.models import Compared
from calibjax.recalibration.gain import Gain

_KERNEL = "result.other_kernels['SKCE']"


def _adjusted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, with p-values by the method of Holm where they have any."""
    entries = tuple(entries)
    known = [x.pvalue for x in entries if x.pvalue is not None]
    adjusted = iter(_holm(known))
    return tuple(
        x if x.pvalue is None else dataclasses.replace(x, pvalue=next(adjusted)) for x in entries
    )


def _holm(pvalues: list[float]) -> list[float]:
    """p-values adjusted for their number by the method of Holm (1979)."""
    values = np.array(pvalues)
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    values[order] = np.minimum(stepped, 1)
    return values.tolist()


def _tested(name: str, compute: Callable[[], Any], call: str, field: str = "") -> Entry:
    """The entry of a test, or of a field of its result, with the p-value."""
    pvalues = []

    def value() -> Any:
        test = compute()
        pvalues.append(float(test.pvalue))
        return getattr(test, field) if field else test

    entry = measured(name, value, f"{call}.{field}" if field else call)
    return dataclasses.replace(entry, pvalue=pvalues[0]) if pvalues else entry


def _differences(
    c: Compared, what: str, function: Any, *first: Any, call: str
) -> tuple[Entry, ...]:
    """Paired differences of all pairs, with a call that takes what comes after its bracket."""
    score, options = c.score, c.options()
    return _adjusted(
        _tested(
            f"{a} - {b}: {what}",
            functools.partial(
                *(function, *first, c.models[a], c.models[b], c.targets),
                score=score.value,
                **options.value,
            ),
            f"{call}models[{a!r}], models[{b!r}], targets, score={score.text}{options.text})",
        )
        for a, b in c.pairs
    )


def of_scores(c: Compared) -> Section:
    """The score of each model, and paired differences."""
    name, _ = c.score_name
    weights = {} if c.weights is None else {"weights": c.weights}
    entries = [
        measured(
            f"{x}: {name}",
            functools.partial(c.score.value, p, c.targets, **weights),
            f"{c.score.text}(models[{x!r}], targets{c.and_weights})",
        )
        for x, p in c.models.items()
    ]
    function = hypothesis_tests.score_difference
    entries += _differences(c, name, function, call="hypothesis_tests.score_difference(")
    remark = "Smaller is better. Differences are paired; their p-values are those of the t-test."
    return Section("Which has the better score?", tuple(entries), remark)


def _recalibration(data: Data) -> Any:
    if data.task == "quantiles":
        return recalibration.QuantileShift
    if data.is_of_classes or data.task == "counts":
        return recalibration.TemperatureScaling
    return recalibration.AffineScaling


def of_gains(c: Compared) -> Section | None:
    """What recalibration gains, and differences of that."""
    kind = _recalibration(c.first)
    have_temperature = all(hasattr(p, "tempered") for p in c.models.values())
    if kind is recalibration.TemperatureScaling and not have_temperature:
        return None
    key, method, own = c.first.at(2), f"recalibration.{kind.__name__}", kind()

    def gain(predictions: Any) -> Gain:
        options = {"score": c.score.value, "weights": c.weights}
        samples = predictions, c.targets
        return recalibration.recalibration_gain(key, {"": own}, *samples, **options)[""]

    call = f"recalibration.recalibration_gain(jax.random.fold_in(key, 2), {{'': {method}()}}, "
    more = f"targets, score={c.score.text}{c.and_weights})['']"
    entries = [
        measured(f"{x}: gain", functools.partial(gain, p), f"{call}models[{x!r}], {more}")
        for x, p in c.models.items()
    ]
    call = f"hypothesis_tests.gain_difference(jax.random.fold_in(key, 2), {method}(), "
    entries += _differences(c, "gain", hypothesis_tests.gain_difference, key, own, call=call)
    remark = f"By how much {method} lowers the {c.score_name[0]} of predictions that it "
    remark += "was not fitted to. A difference of gains is the part of the difference above that "
    remark += "recalibration takes away."
    return Section("Which has more to gain from recalibration?", tuple(entries), remark)


def calibration(c: Compared) -> Section | None:
    """The test of each model, and its SKCE."""
    if c.kernel is None:
        return None
    (test, words), options = c.test, c.options(in_rows=True)
    key, first = c.first.at(1), f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 1), "
    interval, entries = hypothesis_tests.skce_confidence_interval, []
    samples = {name: c.samples(name) for name in c.models}
    for name, (values, shown) in samples.items():
        compute = functools.partial(test, key, c.kernel, *values, **options.value)
        call = f"{first}{_KERNEL}, {shown}{options.text})"
        entries.append(_tested(f"{name}: {words}", compute, call))
    for name, (values, shown) in samples.items():
        compute = functools.partial(interval, c.kernel, *values, **options.value)
        call = f"hypothesis_tests.skce_confidence_interval({_KERNEL}, {shown}{options.text})"
        entries.append(measured(f"{name}: SKCE", compute, call))
    remark = "The kernel is the same for all models. Intervals are for models that are not "
    return Section(
        "Is each model calibrated?", _adjusted(entries), f"{remark}calibrated.{_seen(c)}"
    )


def _seen(c: Compared) -> str:
    if c.rows is None:
        return ""
    return f" Of {c.first.size} predictions {len(c.rows)} are looked at, chosen at random."


def of_skces(c: Compared) -> Section | None:
    """Differences of SKCEs."""
    if c.kernel is None:
        return None
    test, options, entries = hypothesis_tests.skce_difference, c.options(in_rows=True), []
    for a, b in c.pairs:
        values, shown = c.samples(a, b)
        compute = functools.partial(test, c.kernel, *values, **options.value)
        call = f"hypothesis_tests.skce_difference({_KERNEL}, {shown}{options.text})"
        entries.append(_tested(f"{a} - {b}: SKCE", compute, call, "estimate"))
    entries = _adjusted(entries)
    remark = "The SKCE is zero for a calibrated model. Of models that are wrong in the same way, "
    remark += "the one whose predictions are more alike has the larger one."
    return Section("Which is better calibrated?", entries, remark)


def kernels_given(c: Compared) -> dict[str, Any]:
    """Kernels of the tests of a model given another one, by "given" and the name of the latter."""
    if c.kernel is None:
        return {}
    return {f"given {x}": kernel_given(c.kernel, c.samples(x).value[0]) for x in c.models}


def cross_calibration(c: Compared) -> Section | None:
    """Tests of each model given another."""
    if c.kernel is None:
        return None
    test, kernels, options = c.test[0], kernels_given(c), c.options(in_rows=True)
    entries: list[Entry] = []
    for a, b in (given for pair in c.pairs for given in (pair, pair[::-1])):
        (own, other, targets), _ = c.samples(a, b)
        both, kernel = predictions_given(own, other), kernels[f"given {b}"]
        compute = functools.partial(test, c.first.at(3), kernel, both, targets, **options.value)
        shown, given, ys = (x.text for x in c.in_rows(a, b))
        call = f"hypothesis_tests.{test.__name__}(jax.random.fold_in(key, 3), "
        call += f"result.other_kernels['given {b}'], "
        call += f"distributions.with_features({shown}, {given}), {ys}{options.text})"
        entries.append(_tested(f"{a} given {b}: {c.test[1]}", compute, call))
    remark = "Is the first model right given the predictions of the second, too? If it is "
    remark += "calibrated by itself, a small p says that the second knows what it does not."
    return Section("Does one know what the other does not?", _adjusted(entries), remark + _seen(c))
