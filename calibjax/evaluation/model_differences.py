"""The numbers of several models: scores, gains, calibration, and what each knows."""

import dataclasses
from typing import Any

import numpy as np

from calibjax import hypothesis_tests, recalibration
from calibjax.evaluation.calls import Call, expression, measured
from calibjax.evaluation.data import Data
from calibjax.evaluation.entries import Entry, Section
from calibjax.evaluation.models import Compared
from calibjax.evaluation.overall import kept_kernel


def _adjusted(entries: list[Entry]) -> tuple[Entry, ...]:
    """The entries, with p-values by the method of Holm where they have any."""
    known = [i for i, x in enumerate(entries) if x.pvalue is not None and x.pvalue == x.pvalue]
    if known:
        adjusted = hypothesis_tests.holm(np.array([entries[i].pvalue for i in known]))
        for i, pvalue in zip(known, np.asarray(adjusted).tolist(), strict=True):
            entries[i] = dataclasses.replace(entries[i], pvalue=pvalue)
    return tuple(entries)


def _paired(name: str, call: Call) -> Entry:
    """The entry of a paired difference."""
    entry = measured(name, call)
    return entry if entry.note else dataclasses.replace(entry, pvalue=float(call.value.pvalue))


def of_scores(c: Compared) -> Section:
    """The score of each model, and paired differences."""
    name, _ = c.score_name
    entries = [measured(f"{x}: {name}", c.score(p, c.targets)) for x, p in c.models.items()]
    call = expression(hypothesis_tests.score_difference)
    differences = [
        _paired(
            f"{a} - {b}: {name}",
            call(c.models[a], c.models[b], c.targets, score=c.score, clusters=c.clusters),
        )
        for a, b in c.pairs
    ]
    remark = "Smaller is better. Differences are paired; their p-values are those of the t-test."
    return Section("Which has the better score?", (*entries, *_adjusted(differences)), remark)


def _recalibration(data: Data) -> Any:
    if data.task == "quantiles":
        return recalibration.QuantileShift
    if data.is_of_classes or data.task == "counts":
        return recalibration.TemperatureScaling
    return recalibration.AffineScaling


def of_gains(c: Compared) -> Section | None:
    """What recalibration gains, and differences of that."""
    kind = _recalibration(c.first)
    if kind is recalibration.TemperatureScaling and not all(
        hasattr(call.value, "tempered") for call in c.models.values()
    ):
        return None
    method, key = expression(kind)(), c.first.key_at(2)
    call = expression(hypothesis_tests.gain_difference)
    entries = [_own_gain(c, name, method, key) for name in c.models]
    differences = [
        _paired(
            f"{a} - {b}: gain",
            call(
                *(key, method, c.models[a], c.models[b], c.targets),
                score=c.score,
                clusters=c.clusters,
            ),
        )
        for a, b in c.pairs
    ]
    remark = f"By how much {method.text[:-2]} lowers the {c.score_name[0]} of predictions that it "
    remark += "was not fitted to. A difference of gains is the part of the difference above that "
    remark += "recalibration takes away."
    return Section(
        "Which has more to gain from recalibration?", (*entries, *_adjusted(differences)), remark
    )


def _own_gain(c: Compared, name: str, method: Call, key: Call) -> Entry:
    """What one model gains."""
    methods = Call(f"{{'recalibration': {method.text}}}", lambda: {"recalibration": method.value})
    gains = expression(recalibration.recalibration_gain)
    found = gains(key, methods, c.models[name], c.targets, score=c.score)["recalibration"]
    entry = measured(f"{name}: gain", found.mean)
    if entry.note:
        return entry
    gain = found.value
    error, low, high = (float(x) for x in (gain.standard_error, gain.low, gain.high))
    return dataclasses.replace(entry, standard_error=error, low=low, high=high)


def _of_test(name: str, call: Call) -> Entry:
    entry = measured(name, call)
    return dataclasses.replace(entry, pvalue=None if entry.note else entry.value)


def calibration(c: Compared) -> Section | None:
    """The test of each model, and its SKCE."""
    if c.kernel is None:
        return None
    key, kernel = c.first.key_at(1), kept_kernel("SKCE", c.kernel)
    test, words = c.test
    clusters = [] if c.clusters.value is None else [c.some(c.clusters)]
    entries = [
        _of_test(f"{name}: {words}", expression(test)(key, kernel, *c.samples(name), *clusters))
        for name in c.models
    ]
    interval = expression(hypothesis_tests.skce_confidence_interval)
    options = {"clusters": clusters[0]} if clusters else {}
    entries += [
        measured(f"{name}: SKCE", interval(kernel, *c.samples(name), **options))
        for name in c.models
    ]
    remark = "The kernel is the same for all models. Intervals are for models that are not "
    remark += "calibrated." + _seen(c)
    return Section("Is each model calibrated?", _adjusted(entries), remark)


def _seen(c: Compared) -> str:
    if c.rows is None:
        return ""
    return f" Of {c.first.size} predictions {len(c.rows)} are looked at, chosen at random."


def of_skces(c: Compared) -> Section | None:
    """Differences of SKCEs."""
    if c.kernel is None or c.clusters.value is not None:
        return None
    entries = []
    for a, b in c.pairs:
        test = expression(hypothesis_tests.compare_skce)
        call = test(kept_kernel("SKCE", c.kernel), *c.samples(a, b))
        entry = measured(f"{a} - {b}: SKCE", call.estimate)
        if not entry.note:
            pvalue = float(call.value.pvalue)
            entry = dataclasses.replace(entry, pvalue=pvalue)
        entries.append(entry)
    remark = "The SKCE is zero for a calibrated model. Of models that are wrong in the same way, "
    remark += "the one whose predictions are more alike has the larger one."
    return Section("Which is better calibrated?", _adjusted(entries), remark)


def cross_calibration(c: Compared) -> Section | None:
    """Tests of each model given another."""
    if c.kernel is None:
        return None
    test, key = expression(hypothesis_tests.cross_calibration_test), c.first.key_at(3)
    _, words = c.test
    kernel = kept_kernel("SKCE", c.kernel)
    clusters = c.some(c.clusters)
    entries = [
        _of_test(f"{a} given {b}: {words}", test(key, kernel, *c.samples(a, b), clusters=clusters))
        for pair in c.pairs
        for a, b in (pair, pair[::-1])
    ]
    remark = "Is the first model right given the predictions of the second, too? If it is "
    remark += "calibrated by itself, a small p says that the second knows what it does not."
    return Section("Does one know what the other does not?", _adjusted(entries), remark + _seen(c))
