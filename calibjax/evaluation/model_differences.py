"""The numbers of several models: scores, gains, calibration, and what each knows."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from calibjax import hypothesis_tests, recalibration
from calibjax.evaluation.calls import Call, expression, measured, named
from calibjax.evaluation.data import Data
from calibjax.evaluation.entries import Entry, Section
from calibjax.evaluation.models import Compared
from calibjax.evaluation.overall import kept_kernel


def _adjusted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries, with p-values by the method of Holm where they have any."""
    entries = tuple(entries)
    known = [x.pvalue for x in entries if x.pvalue is not None]
    adjusted = iter(np.asarray(hypothesis_tests.holm(np.array(known))).tolist() if known else ())
    return tuple(
        x if x.pvalue is None else dataclasses.replace(x, pvalue=next(adjusted)) for x in entries
    )


def _tested(name: str, call: Call, test: Call) -> Entry:
    """The entry of a call, with the p-value of a test."""
    entry = measured(name, call)
    return entry if entry.note else dataclasses.replace(entry, pvalue=float(test.value.pvalue))


def _differences(c: Compared, what: str, function: Any, *first: Call) -> tuple[Entry, ...]:
    """Paired differences of all pairs."""
    options = {"score": c.score, "weights": c.weights, "clusters": c.clusters}
    calls = {
        f"{a} - {b}: {what}": expression(function)(
            *first, c.models[a], c.models[b], c.targets, **options
        )
        for a, b in c.pairs
    }
    return _adjusted(_tested(name, call, call) for name, call in calls.items())


def of_scores(c: Compared) -> Section:
    """The score of each model, and paired differences."""
    name, _ = c.score_name
    entries = [
        measured(f"{x}: {name}", c.score(p, c.targets, **c.weighted)) for x, p in c.models.items()
    ]
    entries += _differences(c, name, hypothesis_tests.score_difference)
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
    have_temperature = all(hasattr(call.value, "tempered") for call in c.models.values())
    if kind is recalibration.TemperatureScaling and not have_temperature:
        return None
    key, method = c.first.key_at(2), expression(kind)()
    own = named(f"{{'': {method.text}}}", {"": method.value})
    gain = expression(recalibration.recalibration_gain)
    entries = [
        measured(
            f"{name}: gain", gain(key, own, p, c.targets, score=c.score, weights=c.weights)[""]
        )
        for name, p in c.models.items()
    ]
    entries += _differences(c, "gain", hypothesis_tests.gain_difference, key, method)
    remark = f"By how much {method.text[:-2]} lowers the {c.score_name[0]} of predictions that it "
    remark += "was not fitted to. A difference of gains is the part of the difference above that "
    remark += "recalibration takes away."
    return Section("Which has more to gain from recalibration?", tuple(entries), remark)


def calibration(c: Compared) -> Section | None:
    """The test of each model, and its SKCE."""
    if c.kernel is None:
        return None
    (function, words), kernel = c.test, kept_kernel("SKCE", c.kernel)
    test, interval = map(expression, (function, hypothesis_tests.skce_confidence_interval))
    options = {"weights": c.some(c.weights)}
    if c.clusters.value is not None:
        options["clusters"] = c.some(c.clusters)
    tests = {
        name: test(c.first.key_at(1), kernel, *c.samples(name), **options) for name in c.models
    }
    entries = [_tested(f"{name}: {words}", call, call) for name, call in tests.items()]
    entries += [
        measured(f"{name}: SKCE", interval(kernel, *c.samples(name), **options))
        for name in c.models
    ]
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
    test, kernel = expression(hypothesis_tests.compare_skce), kept_kernel("SKCE", c.kernel)
    options = {"weights": c.some(c.weights), "clusters": c.some(c.clusters)}
    tests = {f"{a} - {b}: SKCE": test(kernel, *c.samples(a, b), **options) for a, b in c.pairs}
    entries = _adjusted(_tested(name, call.estimate, call) for name, call in tests.items())
    remark = "The SKCE is zero for a calibrated model. Of models that are wrong in the same way, "
    remark += "the one whose predictions are more alike has the larger one."
    return Section("Which is better calibrated?", entries, remark)


def cross_calibration(c: Compared) -> Section | None:
    """Tests of each model given another."""
    if c.kernel is None:
        return None
    test, key = expression(hypothesis_tests.cross_calibration_test), c.first.key_at(3)
    kernel = kept_kernel("SKCE", c.kernel)
    options = {"weights": c.some(c.weights), "clusters": c.some(c.clusters)}
    tests = {
        f"{a} given {b}: {c.test[1]}": test(key, kernel, *c.samples(a, b), **options)
        for pair in c.pairs
        for a, b in (pair, pair[::-1])
    }
    entries = _adjusted(_tested(name, call, call) for name, call in tests.items())
    remark = "Is the first model right given the predictions of the second, too? If it is "
    remark += "calibrated by itself, a small p says that the second knows what it does not."
    return Section("Does one know what the other does not?", entries, remark + _seen(c))
