"""What the numbers of an evaluation mean, in sentences for a report.

Each sentence that says that something is wrong rests on an exact p-value. These are adjusted for
all tests that the sentences rest on, so that for a calibrated model the probability of any such
sentence is at most 5 %.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from calibjax.evaluation.data import LEVEL
from calibjax.evaluation.findings import IDLE, Coverage, Findings, GroupError, MeanError
from calibjax.evaluation.wording import (
    alike,
    ends_of,
    in_full,
    p_is,
    percent,
    percents,
    places,
    points,
    score_of,
    with_interval,
    wrong_shape,
)
from calibjax.hypothesis_tests._redraw.components import ALIKE

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
_ENTRIES = {  # attributes of the findings with p-values of each test
    "all": ("pvalue",),
    "means": ("top_label", "classes", "bias"),
    "spread": ("spread",),
    "coverage": ("coverage", "median", "quantiles"),
    "groups": ("groups",),
    "features": ("features",),
    "local": ("local",),
}


def sentences(findings: Findings) -> list[str]:
    """What is wrong, how much, and how sure that is."""
    tests, (adjusted, found) = _tests(findings), judged(findings)
    impossible = _impossible(findings)
    if impossible and not found:
        told = [f"The model is not calibrated: {impossible}", "No test found any other error."]
    else:
        told = [_verdict(adjusted, found), *filter(None, [impossible])]
    if found:
        told += _direction(adjusted, found)
        told += _classes(adjusted) + _biases(adjusted)
        told += places(adjusted, LEVEL)
        told += _amount(adjusted)
        told += _repair(adjusted) + ([adjusted.repair] if adjusted.repair else [])
    told += _groups(adjusted) + _features(adjusted, found)
    if not found and not impossible:
        told.append("This does not show that the model is calibrated.")
    if len(tests) > 1 and (found or not impossible):
        but = ["that after recalibration"] * bool(adjusted.repair)
        if adjusted.places:
            but += ["those of places, which are adjusted for all places that were looked at"]
        all_tests = f"the {len(tests)} tests that these sentences rest on"
        others = f", except for {' and '.join(but)}" if but else ""
        told.append(f"All p-values are adjusted for {all_tests}{others}.")
    means = (*adjusted.classes, *adjusted.bias, *adjusted.groups, *adjusted.places)
    if found and any(mean.pvalue <= LEVEL for mean in means):
        told.append(
            "Sentences on a mean error, such as that of one class, group or place, also require "
            "significance given the observed scatter; their p is the larger of the two."
        )
    return told


def judged(findings: Findings) -> tuple[Findings, list[str]]:
    """The findings with p-values that are adjusted for all tests, and the tests that reject."""
    adjusted = _adjusted(findings)
    return adjusted, [name for name, p in _tests(adjusted).items() if p <= LEVEL]


def names_an_error(findings: Findings) -> bool:
    """Whether there is nothing wrong, or a sentence says what: a class, a width, a group, …."""
    findings, found = judged(findings)
    top, groups = findings.top_label, findings.groups
    is_direct = top is not None and top.pvalue <= LEVEL
    if findings.task not in ("classification", "binary"):
        is_direct = bool(_width(findings))
    p, is_vague = findings.direction_pvalue, findings.direction in ("", ALIKE)
    is_direct |= "all" in found and p is not None and p <= LEVEL and not is_vague
    named = is_direct or _classes(findings) or _biases(findings) or _of_features(findings, found)
    return not found or bool(named) or any(g.pvalue <= LEVEL for g in groups)


def _tests(findings: Findings) -> dict[str, float]:
    """The p-values on which the sentences rest, by name of the test."""
    values = {
        test: [x for name in names for x in _each(getattr(findings, name))]
        for test, names in _ENTRIES.items()
    }
    pvalues = {
        test: [p for x in found if (p := getattr(x, "pvalue", x)) is not None]
        for test, found in values.items()
    }
    return {test: min(found) for test, found in pvalues.items() if found}


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _adjusted(findings: Findings) -> Findings:
    """The findings with p-values that are adjusted for the other tests."""

    def adjusted(test: str, value: Any) -> Any:
        if value is None or isinstance(value, float):
            return None if value is None else findings.adjustment(test, value)
        if isinstance(value, tuple):
            return tuple(adjusted(test, item) for item in value)
        return dataclasses.replace(value, pvalue=adjusted(test, value.pvalue))

    changed = {"direction_pvalue": adjusted("all", findings.direction_pvalue)}
    for test, names in _ENTRIES.items():
        changed |= {name: adjusted(test, getattr(findings, name)) for name in names}
    return dataclasses.replace(findings, **changed)


def _verdict(findings: Findings, found: list[str]) -> str:
    """Whether there is anything wrong."""
    tests, size = _tests(findings), f"{findings.num_samples} predictions"
    if not tests:
        return f"The calibration of these {size} was not tested."
    if not found:
        smallest = min(tests, key=tests.__getitem__)
        verdict = f"No miscalibration was found in {size}: the exact test of {_TESTS[smallest]} "
        rest = ", and no other test a smaller one" * (len(tests) > 1)
        return f"{verdict}gives {p_is(tests[smallest])}{rest}."
    first = found[0]
    verdict = f"The model is not calibrated: the exact test of {_TESTS[first]} rejects calibration "
    verdict += f"on {size} ({p_is(tests[first])})"
    if first != "all" and "all" in tests:
        verdict += f", although that of {_TESTS['all']} does not ({p_is(tests['all'])})"
    return verdict + "."


def _direction(findings: Findings, found: list[str]) -> list[str]:
    """Whether the predictions are overconfident, underconfident, or what else is wrong."""
    if findings.task not in ("classification", "binary"):
        told, largest = _width(findings), _largest(findings, found)
        return largest + told if wrong_shape(findings) else told or largest
    top = findings.top_label
    if top is None or top.pvalue > LEVEL:
        return _largest(findings, found)
    confidence, accuracy = percents(top.predicted, top.observed)
    numbers = f"its mean confidence is {confidence}, "
    if top.observed < top.predicted:
        numbers += f"but it is right in only {accuracy} of the cases"
        return [f"It is overconfident: {numbers} ({p_is(top.pvalue)})."]
    numbers += f"while it is right in {accuracy} of the cases"
    return [f"It is underconfident: {numbers} ({p_is(top.pvalue)})."]


def _largest(findings: Findings, found: list[str]) -> list[str]:
    """What the test of all errors together is largest for."""
    p = findings.direction_pvalue
    if "all" not in found or not findings.direction:
        return []
    if p is not None and p <= LEVEL:
        is_told = _biases(findings) or _classes(findings)
        is_other = "where" in findings.direction or wrong_shape(findings)
        if is_told and not is_other:
            return []
        told, _, score = findings.direction.partition(": ")
        of = f"score of the {score}, " if score else ""
        return [f"The clearest finding of this test: {in_full(told)} ({of}{p_is(p)})."]
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
            f"({p_is(spread.pvalue)})."
        )
    if widest is None or widest.pvalue > LEVEL:
        return told
    word, share = ("", f"{percent(widest.observed)} of the targets ({p_is(widest.pvalue)})")
    if spread is None and widest.below > 0 and widest.above > 0:
        word = "The predicted distributions are too narrow: "
    elif spread is None and widest.below < 0 and widest.above < 0:
        word = "The predicted distributions are too wide: "
    text = f"the central {percent(widest.nominal)} intervals contain {share}."
    return [*told, word + text if word else text[0].upper() + text[1:]]


def _typical(coverage: tuple[Coverage, ...]) -> Coverage | None:
    """The coverage of the intervals whose level is closest to 90 %."""
    return min(coverage, key=lambda c: abs(c.nominal - 0.9), default=None)


def _classes(findings: Findings) -> list[str]:
    """Classes that are predicted too often or too rarely."""

    def told(c: MeanError) -> str:
        word = "overestimated" if c.predicted > c.observed else "underestimated"
        predicted, observed = percents(c.predicted, c.observed)
        return (
            f"{c.name[0].upper()}{c.name[1:]} is {word}: its predicted probability is "
            f"{predicted} on average, its frequency {observed} ({p_is(c.pvalue)})."
        )

    return _clearest(findings.classes, told, "classes are wrong on average")


def _biases(findings: Findings) -> list[str]:
    """Targets that are higher or lower than predicted."""

    def told(b: MeanError) -> str:
        size = f"{abs(b.error):.3g} on average"
        if findings.deviation is not None:
            size += f", or {abs(b.error) / findings.deviation:.2g} predicted standard deviations"
        what = f"The targets{f' in {b.name}' if b.name else ''}"
        word = "higher" if b.error > 0 else "lower"
        return f"{what} are {word} than predicted, by {size} ({p_is(b.pvalue)})."

    median = findings.median
    if not findings.bias and median is not None and median.pvalue <= LEVEL:
        word = "higher" if median.error < 0 else "lower"
        return [
            f"The targets tend to be {word} than predicted: {percent(median.observed)} of them "
            f"are at most the predicted median ({p_is(median.pvalue)})."
        ]
    return _clearest(findings.bias, told, "coordinates are biased")


def _clearest(errors: Sequence[Any], told: Callable[[Any], str], what: str) -> list[str]:
    """Sentences on the clearest of the errors that were found, and how many more there are."""
    wrong = sorted(
        (x for x in errors if x.pvalue <= LEVEL), key=lambda x: (x.pvalue, -abs(x.error))
    )
    more = len(wrong) - _SHOWN
    return [*map(told, wrong[:_SHOWN]), *[f"{more} more {what}."] * (more > 0)]


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
        f"{high:.3f} with this many samples."
    ]


def _repair(findings: Findings) -> list[str]:
    """The temperature, and what it wins."""
    if findings.is_idle:
        return [IDLE]
    temperature, gain = findings.temperature, findings.gain
    held_out = ends_of(gain)
    if temperature is None or gain is None or held_out is None:
        return []
    best = f"The best temperature is {with_interval(temperature.value, temperature)}"
    ends = ends_of(temperature)
    score = score_of(findings.gain_unit)
    value, low, high = alike(gain.value, *held_out)
    won = f"by {value} (95 % interval {low} to {high})"
    if held_out[0] > 0:
        return [f"{best}. On held-out data it lowers the {score} {won}."]
    if held_out[1] < 0 or (ends is not None and ends[0] <= 1 <= ends[1]):
        told = f"{best}: rescaling does not repair these errors."
        if findings.task in ("classification", "binary"):
            told += " PlattScaling or IsotonicRegression of calibjax.recalibration may."
        return [told]
    won = won.removesuffix(")").replace(" (", ", ")
    return [f"{best}; whether it lowers the {score} is not clear from so few samples ({won})."]


def _impossible(findings: Findings) -> str:
    """Targets that were predicted never to happen, which calibrated models do not have."""
    number, size = findings.num_impossible, findings.num_samples
    if not number:
        return ""
    is_discrete = findings.task in ("classification", "binary", "counts")
    what = "probability" if is_discrete else "probability density"
    return (
        f"{number} of {size} samples had a predicted {what} of 0 for what happened, which never "
        "occurs if a model is calibrated; the log score is infinite."
    )


def _groups(findings: Findings) -> list[str]:
    """Groups with errors of their own."""
    if not findings.groups:
        return []
    if told := _clearest(findings.groups, _group, "errors of groups were found"):
        return told
    number = len({g.group for g in findings.groups})
    smallest = min(g.pvalue for g in findings.groups)
    return [f"In none of the {number} groups was an error found (smallest {p_is(smallest)})."]


def _group(g: GroupError) -> str:
    more = g.error > 0
    p = p_is(g.pvalue)
    if g.kind == "confidence":
        word = "is underconfident" if more else "is overconfident"
        place = "above" if more else "below"
        return (
            f"In {g.group} the model {word}: its accuracy is {points(g.error)} {place} its mean "
            f"confidence ({p})."
        )
    if g.kind == "class":
        word = "underestimated" if more else "overestimated"
        return f"In {g.group} {g.name} is {word} by {points(g.error)} on average ({p})."
    word = "higher" if more else "lower"
    what = f"the targets{f' in {g.name}' if g.name else ''}"
    if g.kind == "PIT":
        rank, half = percents(0.5 + g.error, 0.5)
        return (
            f"In {g.group} {what} tend to be {word} than predicted: their mean rank within the "
            f"predicted distributions is {rank} instead of {half} ({p})."
        )
    return f"In {g.group} {what} are {word} than predicted, by {abs(g.error):.3g} on average ({p})."


def _features(findings: Findings, found: list[str]) -> list[str]:
    """Errors that depend on the features, or that none was found."""
    if findings.features is None:
        return []
    told = _of_features(findings, found)
    if told or findings.features <= LEVEL:
        return told
    return [f"No error that depends on the features was found ({p_is(findings.features)})."]


def _of_features(findings: Findings, found: list[str]) -> list[str]:
    """Errors that depend on the features; other errors make the same tests reject."""
    p, low, told = findings.features, findings.features_low, []
    if p is not None and p <= LEVEL and low is not None and low > 0:
        told.append(
            "Samples with similar features are off in the same way: given the features, the "
            f"predictions are wrong ({p_is(p)})."
        )
    elif p is not None and p <= LEVEL and not {"all", "means", "spread"} & set(found):
        told.append(f"Given the features, the predictions are wrong ({p_is(p)}).")
    local = findings.local
    if local is not None and local <= LEVEL and not {"all", "means"} & set(found):
        told.append(
            f"There are regions of the features in which the confidence is wrong ({p_is(local)})."
        )
    return told
