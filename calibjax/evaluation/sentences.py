"""What the numbers of an evaluation mean, in sentences for a report.

Each sentence that says that something is wrong rests on an exact p-value. These are multiplied by
the number of tests that the sentences rest on (Bonferroni), so that for a calibrated model the
probability of any such sentence is at most 5 %.
"""

import dataclasses

from calibjax.evaluation.findings import Coverage, Findings, GroupError, MeanError
from calibjax.evaluation.record import Entry

LEVEL = 0.05
_SHOWN = 5  # classes, or groups, that are named
_TESTS = {
    "all": "all errors together",
    "means": "the mean errors",
    "spread": "the spread",
    "coverage": "the coverage",
    "groups": "the groups",
    "features": "the predictions given the features",
    "local": "the local errors",
}


def sentences(findings: Findings) -> list[str]:
    """What is wrong, how much, and how sure that is; or how much may have been missed."""
    tests = _tests(findings)
    adjusted = _adjusted(findings, len(tests))
    found = [name for name, p in _tests(adjusted).items() if p <= LEVEL]
    told = [_verdict(adjusted, found)]
    if found:
        told += _direction(adjusted, found)
        told += _classes(adjusted) + _biases(adjusted)
        told += _amount(adjusted)
        told += _repair(adjusted)
    told += _groups(adjusted) + _features(adjusted, found)
    if not found:
        told += _missed(adjusted)
    if len(tests) > 1:
        told.append(
            f"All p-values are adjusted for the {len(tests)} tests that these sentences rest on."
        )
    return told


def _tests(findings: Findings) -> dict[str, float]:
    """The p-values on which the sentences rest, by name of the test."""
    means = [*findings.classes, *findings.bias]
    means += [findings.top_label] if findings.top_label is not None else []
    coverage = [c.pvalue for c in findings.coverage]
    coverage += [findings.median.pvalue] if findings.median is not None else []
    found = {
        "all": findings.pvalue,
        "means": min((m.pvalue for m in means), default=None),
        "spread": None if findings.spread is None else findings.spread.pvalue,
        "coverage": min(coverage, default=None),
        "groups": min((g.pvalue for g in findings.groups), default=None),
        "features": findings.features,
        "local": findings.local,
    }
    return {name: p for name, p in found.items() if p is not None}


def _adjusted(findings: Findings, number: int) -> Findings:
    """The findings with p-values multiplied by the number of tests."""

    def scaled(p: float | None) -> float | None:
        return None if p is None else min(1.0, number * p)

    def each(items: tuple) -> tuple:
        return tuple(dataclasses.replace(item, pvalue=scaled(item.pvalue)) for item in items)

    one = {
        name: each((value,))[0]
        for name in ("top_label", "spread", "median")
        if (value := getattr(findings, name)) is not None
    }
    many = {n: each(getattr(findings, n)) for n in ("classes", "bias", "coverage", "groups")}
    plain = {n: scaled(getattr(findings, n)) for n in ("pvalue", "features", "local")}
    return dataclasses.replace(findings, **one, **many, **plain)


def _verdict(findings: Findings, found: list[str]) -> str:
    """Whether there is anything wrong."""
    tests, size = _tests(findings), f"{findings.num_samples} predictions"
    if not tests:
        return f"The calibration of these {size} was not tested."
    if not found:
        first = next(iter(tests))
        return (
            f"No miscalibration was found in {size}: the exact test of {_TESTS[first]} gives "
            f"{_p(tests[first])}" + (", and no other test rejects." if len(tests) > 1 else ".")
        )
    first = found[0]
    verdict = f"The model is not calibrated: the exact test of {_TESTS[first]} rejects calibration "
    verdict += f"on {size} ({_p(tests[first])})"
    if first != "all" and "all" in tests:
        verdict += f", although that of {_TESTS['all']} does not ({_p(tests['all'])})"
    return verdict + "."


def _direction(findings: Findings, found: list[str]) -> list[str]:
    """Whether the predictions are too sure, not sure enough, or neither."""
    if findings.task not in ("classification", "binary"):
        return _width(findings)
    top, temperature = findings.top_label, findings.temperature
    if top is not None and top.pvalue <= LEVEL:
        numbers = f"its mean confidence is {_percent(top.predicted)}, "
        if top.observed < top.predicted:
            numbers += f"but it is right in only {_percent(top.observed)} of the cases"
            return [f"It is too sure of itself: {numbers} ({_p(top.pvalue)})."]
        numbers += f"while it is right in {_percent(top.observed)} of the cases"
        return [f"It is not sure enough: {numbers} ({_p(top.pvalue)})."]
    if "all" not in found:
        return []
    if temperature is not None and temperature.low is not None and temperature.high is not None:
        if findings.spread_score > 0 and temperature.low > 1:
            return ["It is too sure of itself: the labels scatter more than predicted."]
        if findings.spread_score < 0 and temperature.high < 1:
            return ["It is not sure enough: the labels scatter less than predicted."]
    if findings.component != "spread":
        return [
            "Predictions that resemble each other are off in the same way, although no difference "
            "between confidence and accuracy was found on average."
        ]
    return []


def _width(findings: Findings) -> list[str]:
    """Whether predicted distributions of numbers are too narrow or too wide."""
    spread, told = findings.spread, []
    widest = _typical(findings.coverage)
    if spread is not None and spread.pvalue is not None and spread.pvalue <= LEVEL:
        word = "too narrow" if spread.value > 1 else "too wide"
        only = "" if spread.value > 1 else "only "
        told.append(
            f"The predicted distributions are {word}: the targets scatter {only}"
            f"{spread.value:.2f} times as much around their predicted means as they should "
            f"({_p(spread.pvalue)})."
        )
    if widest is None or widest.pvalue > LEVEL:
        return told
    word, share = "", f"{_percent(widest.observed)} of the targets ({_p(widest.pvalue)})"
    if spread is None and widest.below > 0 and widest.above > 0:
        word = "The predicted distributions are too narrow: "
    elif spread is None and widest.below < 0 and widest.above < 0:
        word = "The predicted distributions are too wide: "
    text = f"the central {_percent(widest.nominal)} intervals contain {share}."
    return [*told, word + text if word else text[0].upper() + text[1:]]


def _typical(coverage: tuple[Coverage, ...]) -> Coverage | None:
    """The coverage of the intervals whose level is closest to 90 %."""
    return min(coverage, key=lambda c: abs(c.nominal - 0.9), default=None)


def _classes(findings: Findings) -> list[str]:
    """Classes that are predicted too often or too rarely."""
    wrong = sorted((c for c in findings.classes if c.pvalue <= LEVEL), key=_largest_first)
    told = []
    for c in wrong[:_SHOWN]:
        word = "overestimated" if c.predicted > c.observed else "underestimated"
        told.append(
            f"{c.name[0].upper()}{c.name[1:]} is {word}: its predicted probability is "
            f"{_percent(c.predicted)} on average, its frequency {_percent(c.observed)} "
            f"({_p(c.pvalue)})."
        )
    return told + _others(len(wrong), "classes are wrong on average")


def _biases(findings: Findings) -> list[str]:
    """Targets that are higher or lower than predicted."""
    told = []
    wrong = sorted((b for b in findings.bias if b.pvalue <= LEVEL), key=_largest_first)
    for b in wrong[:_SHOWN]:
        error = b.observed - b.predicted
        size = f"{abs(error):.3g} on average"
        if findings.deviation is not None:
            size += f", or {abs(error) / findings.deviation:.2g} predicted standard deviations"
        what = f"The targets{f' in {b.name}' if b.name else ''}"
        word = "higher" if error > 0 else "lower"
        told.append(f"{what} are {word} than predicted, by {size} ({_p(b.pvalue)}).")
    median = findings.median
    if not findings.bias and median is not None and median.pvalue <= LEVEL:
        word = "higher" if median.observed < median.predicted else "lower"
        told.append(
            f"The targets tend to be {word} than predicted: {_percent(median.observed)} of them "
            f"are at most the predicted median ({_p(median.pvalue)})."
        )
    return told + _others(len(wrong), "coordinates are biased")


def _others(number: int, what: str) -> list[str]:
    return [f"{number - _SHOWN} more {what}."] if number > _SHOWN else []


def _amount(findings: Findings) -> list[str]:
    """The ECE beside that of a calibrated model."""
    ece = findings.ece
    if ece is None or ece.by_chance is None:
        return []
    low, high = ece.by_chance
    name = "expected calibration error (ECE)"
    name += " of the top label" if findings.task == "classification" else ""
    return [
        f"Its {name} is {ece.value:.3f}; for a calibrated model it would lie between {low:.3f} and "
        f"{high:.3f} with so many samples."
    ]


def _repair(findings: Findings) -> list[str]:
    """The temperature, and what it wins."""
    temperature, gain = findings.temperature, findings.gain
    if temperature is None or gain is None or gain.low is None or gain.high is None:
        return []
    best = f"The best temperature is {_with_interval(temperature.value, temperature)}"
    factor = findings.factor
    if factor is not None:
        best += ", which multiplies the predicted standard deviations by "
        best += _with_interval(factor.value, factor)
    low, high = temperature.low, temperature.high
    interval = f"95 % interval {gain.low:.2g} to {gain.high:.2g}"
    if gain.low > 0:
        won = f"it lowers the {_score(findings)} by {gain.value:.2g} ({interval})"
        return [f"{best}. On held-out data {won}."]
    if gain.high < 0 or (low is not None and high is not None and low <= 1 <= high):
        return [f"{best}: rescaling does not repair these errors."]
    unclear = f"lowers the {_score(findings)} is not clear from so few samples (by {gain.value:.2g}"
    return [f"{best}; whether it {unclear}, {interval})."]


def _score(findings: Findings) -> str:
    name, _, unit = findings.gain_unit.partition(", ")
    return f"{name} ({unit} per sample)" if unit else name


def _with_interval(value: float, entry: Entry) -> str:
    if entry.low is None or entry.high is None:
        return f"{value:.2f}"
    return f"{value:.2f} (95 % interval {entry.low:.2f} to {entry.high:.2f})"


def _groups(findings: Findings) -> list[str]:
    """Groups with errors of their own."""
    if not findings.groups:
        return []
    wrong = sorted((g for g in findings.groups if g.pvalue <= LEVEL), key=_largest_error_first)
    number = len({g.group for g in findings.groups})
    if not wrong:
        smallest = min(g.pvalue for g in findings.groups)
        return [f"In none of the {number} groups was an error found (smallest {_p(smallest)})."]
    return [_group(g) for g in wrong[:_SHOWN]] + _others(len(wrong), "errors of groups were found")


def _group(g: GroupError) -> str:
    more = g.error > 0
    p = _p(g.pvalue)
    if g.kind == "confidence":
        word = "is not sure enough" if more else "is too sure of itself"
        place = "above" if more else "below"
        return (
            f"In {g.group} the model {word}: its accuracy is {_points(g.error)} {place} its mean "
            f"confidence ({p})."
        )
    if g.kind == "class":
        word = "underestimated" if more else "overestimated"
        return f"In {g.group} {g.name} is {word} by {_points(g.error)} on average ({p})."
    word = "higher" if more else "lower"
    what = f"the targets{f' in {g.name}' if g.name else ''}"
    if g.kind == "PIT":
        return (
            f"In {g.group} {what} tend to be {word} than predicted: their mean rank within the "
            f"predicted distributions is {_percent(0.5 + g.error)} instead of 50 % ({p})."
        )
    return f"In {g.group} {what} are {word} than predicted, by {abs(g.error):.3g} on average ({p})."


def _features(findings: Findings, found: list[str]) -> list[str]:
    """Errors that depend on the features; other errors make the same tests reject."""
    if findings.features is None:
        return []
    low = findings.features_low
    told = []
    if findings.features <= LEVEL and low is not None and low > 0:
        told.append(
            "Samples with similar features are off in the same way: given the features, the "
            f"predictions are wrong ({_p(findings.features)})."
        )
    elif findings.features <= LEVEL and not {"all", "means", "spread"} & set(found):
        told.append(f"Given the features, the predictions are wrong ({_p(findings.features)}).")
    is_local = findings.local is not None and findings.local <= LEVEL
    if is_local and not {"all", "means"} & set(found):
        told.append(
            "There are regions of the features in which the confidence is wrong "
            f"({_p(findings.local or 0.0)})."
        )
    if told or findings.features <= LEVEL:
        return told
    return [f"No error that depends on the features was found ({_p(findings.features)})."]


def _missed(findings: Findings) -> list[str]:
    """How large an error would probably have been found, and what else is not excluded."""
    told = []
    if findings.detectable is not None:
        if findings.top_label is not None:
            what = f"A difference of {_points(findings.detectable)} between accuracy and confidence"
        else:
            what = f"A bias of {findings.detectable:.3g}"
            if findings.deviation is not None:
                relative = findings.detectable / findings.deviation
                what += f", or {relative:.2g} predicted standard deviations,"
        told.append(f"{what} would have been found with a probability of about 80 %.")
    temperature = findings.temperature
    if temperature is not None and temperature.low is not None and temperature.high is not None:
        told.append(
            f"The best temperature lies between {temperature.low:.2f} and {temperature.high:.2f} "
            "(95 % interval)."
        )
    return ["This does not show that the model is calibrated.", *told]


def _largest_first(m: MeanError) -> tuple[float, float]:
    return m.pvalue, -abs(m.observed - m.predicted)


def _largest_error_first(g: GroupError) -> tuple[float, float]:
    return g.pvalue, -abs(g.error)


def _p(value: float) -> str:
    return f"p = {value:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def _points(difference: float) -> str:
    return f"{abs(100 * difference):.1f} percentage points"
