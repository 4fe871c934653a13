"""What the numbers mean: findings, sentences, and what to do."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calibjax.evaluation.data import LEVEL
from calibjax.evaluation.record import Advice, Entry
from calibjax.hypothesis_tests.components import ALIKE, OF_CLASSES, largest_scores
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels.residuals import SHAPES

IDLE = (
    "No temperature changes these predictions: they are all 0 or 1, give all classes the same "
    "probability, or are uniform distributions or ensembles whose members agree."
)
_TIED = 1e-5  # relative difference up to which standardised statistics are equal


@dataclasses.dataclass(frozen=True)
class Adjustment:
    """How p-values of tests are adjusted for one another.

    Attributes:
        smallest: of each set of tests that share redraws, the smallest p-value of every data set
            of the pool, sorted, [B + 1].
        set_of: the set of each test, by name.
    """

    smallest: tuple[np.ndarray, ...] = ()
    set_of: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __call__(self, test: str, pvalue: float) -> float:
        """Probability under calibration that any test has a p-value that small.

        It is exact for tests that share their redraws, and multiplied by the number of sets.
        """
        smallest = self.smallest[self.set_of[test]]
        count = np.searchsorted(smallest, pvalue * (1 + 1e-6), "right")
        return min(1.0, len(self.smallest) * max(1, int(count)) / len(smallest))


def adjustment(tests: Mapping[tuple[str, str], CalibrationTestResult]) -> Adjustment:
    """The adjustment for tests by what they redraw, which share their redraws, and by their names.

    Tests with several statistics take part with the smallest of their adjusted p-values.
    """
    sets: dict[str, dict[str, np.ndarray]] = {}
    for (redrawn, name), test in tests.items():
        sets.setdefault(redrawn, {})[name] = _ranks(test)
    smallest = [np.sort(np.min([*ranks.values()], 0)) for ranks in sets.values()]
    places = {name: i for i, ranks in enumerate(sets.values()) for name in ranks}
    return Adjustment(tuple(smallest), places)


def _ranks(test: CalibrationTestResult) -> np.ndarray:
    """p-value of the observed data set, then of each redraw among all the others, [B + 1]."""
    if test.adjusted_pvalue is None or test.components is not None:
        pool = np.append(np.asarray(test.statistic), np.asarray(test.null_samples)).astype(float)
    else:
        pool = largest_scores(test.statistic, test.null_samples).astype(float)
    pool = np.where(np.isnan(pool), np.inf, pool)  # redraws that count against rejection
    ordered = np.sort(pool)
    finite = ordered[np.isfinite(ordered)]
    tolerance = _TIED * np.median(np.abs(finite)) if finite.size else 0.0
    at_least = len(pool) - np.searchsorted(ordered, pool - tolerance, "left")
    return at_least / len(pool)


@dataclasses.dataclass(frozen=True)
class MeanError:
    """What was predicted on average and what was observed.

    Attributes:
        name: of what: a class, the top label, a coordinate of the targets.
        predicted: mean prediction.
        observed: mean of the targets.
        pvalue: exact p-value of the difference.
    """

    name: str
    predicted: float
    observed: float
    pvalue: float

    @property
    def error(self) -> float:
        """Observed minus predicted."""
        return self.observed - self.predicted


@dataclasses.dataclass(frozen=True)
class GroupError:
    """A mean error in a group.

    Attributes:
        group: its name.
        kind: "bias", "confidence", "class", or "PIT".
        name: of the class or of the coordinate of the targets; empty if there is one only.
        error: observed minus predicted.
        pvalue: exact p-value of the error.
    """

    group: str
    kind: str
    name: str
    error: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Targets in the central intervals.

    Attributes:
        nominal: predicted share.
        observed: share of the targets.
        below: share of the targets below the intervals, minus the predicted one.
        above: the same above the intervals.
        pvalue: exact p-value of the coverage.
    """

    nominal: float
    observed: float
    below: float
    above: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class PlaceError:
    """An event that occurs more or less often than predicted, see `places`.

    Attributes:
        event: what occurs.
        region: where, empty if everywhere.
        number: of the samples there.
        predicted: mean of the predicted probabilities.
        observed: share of the samples in which it occurred.
        pvalue: of the difference, adjusted for all places that were looked at.
    """

    event: str
    region: str
    number: int
    predicted: float
    observed: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class Findings:
    """What the sentences of a report are made of; what was not computed is None, or empty.

    Attributes:
        task: see `Evaluation.task`.
        num_samples: n.
        pvalue: of the exact test of all errors together.
        direction: what that test is largest for, in words, see `SKCEComponents.direction_of`.
        direction_pvalue: of this, adjusted for all kernels of that test.
        top_label: mean confidence and accuracy.
        classes: frequencies of the classes.
        bias: means of the targets, or of their coordinates.
        deviation: typical predicted standard deviation, in whose units biases are told.
        spread: that of the residuals, see `residual_spread`.
        median: share of targets up to the predicted median.
        quantiles: the same of the other quantiles, of predictions of them.
        coverage: of the central intervals.
        groups: mean errors in groups.
        features: p-value of the exact test given the features.
        features_low: lower limit of the SKCE given the features, above zero if samples with similar
            features share the same error, and not only all samples.
        local: p-value of the largest local error of the top label.
        ece: that of the top label, or of two classes.
        num_impossible: number of targets whose predicted probability, or density, was zero.
        temperature: with its interval.
        gain: of held-out predictions by the temperature.
        gain_unit: of which score.
        is_idle: whether no temperature changes the predictions.
        repair: which recalibration repairs the predictions, in words; or empty.
        places: where the predictions are wrong, if no other sentence names an error.
        adjustment: how the p-values of the tests are adjusted for one another.
    """

    task: str
    num_samples: int
    pvalue: float | None = None
    direction: str = ""
    direction_pvalue: float | None = None
    top_label: MeanError | None = None
    classes: tuple[MeanError, ...] = ()
    bias: tuple[MeanError, ...] = ()
    deviation: float | None = None
    spread: Entry | None = None
    median: MeanError | None = None
    quantiles: tuple[MeanError, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    groups: tuple[GroupError, ...] = ()
    features: float | None = None
    features_low: float | None = None
    local: float | None = None
    ece: Entry | None = None
    num_impossible: int = 0
    temperature: Entry | None = None
    gain: Entry | None = None
    gain_unit: str = ""
    is_idle: bool = False
    repair: str = ""
    places: tuple[PlaceError, ...] = ()
    adjustment: Adjustment = Adjustment()


_MOST_DECIMALS = 6  # beyond, numbers are written with exponents


def ends_of(entry: Entry | None) -> tuple[float, float] | None:
    """Both ends of an interval, None if there is none or one of them is not finite."""
    if entry is None or entry.low is None or entry.high is None:
        return None
    is_finite = math.isfinite(entry.low) and math.isfinite(entry.high)
    return (entry.low, entry.high) if is_finite else None


def hundredths(value: float) -> str:
    """A number with two decimals, or with two significant digits if it is small."""
    return f"{value:.2f}" if not value or abs(value) >= 0.1 else f"{value:.2g}"


def p_is(value: float) -> str:
    """A p-value."""
    return f"p = {value:.2g}"


def percent(share: float) -> str:
    """A share."""
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def percents(one: float, other: float) -> tuple[str, str]:
    """Two shares that are compared, with the same number of decimals, and different if they are."""
    texts: list[str] = []
    for decimals in range(1, _MOST_DECIMALS + 1):
        texts = [f"{100 * share:.{decimals}f}" for share in (one, other)]
        if one == other or texts[0] != texts[1]:
            break
    if all(text.endswith(".0") for text in texts):
        texts = [text.removesuffix(".0") for text in texts]
    return f"{texts[0]} %", f"{texts[1]} %"


def alike(*values: float) -> list[str]:
    """Finite numbers that are compared, with the same number of decimals.

    The largest one has at least two significant digits, and the smallest one that is not zero at
    least one, unless it is less than a thousandth of the largest.
    """
    sizes = [abs(value) for value in values if value]
    if not sizes:
        return ["0" for _ in values]
    first, last = (math.floor(math.log10(size)) for size in (max(sizes), min(sizes)))
    decimals = max(0, 1 - first, min(-last, 3 - first))
    if decimals > _MOST_DECIMALS or first > _MOST_DECIMALS:
        return [f"{value:.2g}" for value in values]
    return [f"{value:.{decimals}f}" for value in values]


def score_of(gain_unit: str) -> str:
    """Name of a score and its unit, such as "log score, nats", in a sentence."""
    name, _, unit = gain_unit.partition(", ")
    return f"{name} ({unit} per sample)" if unit else name


def points(difference: float) -> str:
    """The size of a difference of shares."""
    return f"{abs(100 * difference):.1f} percentage points"


def in_full(direction: str) -> str:
    """A direction as a sentence."""
    if direction in OF_CLASSES:
        return f"the model is {direction}"
    for word in (" too ", " not "):
        subject, separator, rest = direction.partition(word)
        if separator:
            start = f"{subject} is" if "class" in subject else f"the {subject} are"
            return f"{start}{word}{rest}"
    return direction


def wrong_shape(findings: Findings) -> str:
    """The shape that the clearest finding of the test of all errors names, or empty."""
    shape, p = findings.direction.rpartition(": ")[2], findings.direction_pvalue
    return shape if shape in SHAPES and p is not None and p <= LEVEL else ""


def places(findings: Findings, level: float) -> list[str]:
    """Where events occur more or less often than predicted, or that no place stands out."""
    wrong = [place for place in findings.places if place.pvalue <= level]
    if wrong:
        return [f"{_capital(_place(place))} ({p_is(place.pvalue)})." for place in wrong]
    if not findings.places:
        return []
    first = findings.places[0]
    return [
        "No single place explains this. The largest difference that was found is one that a "
        f"calibrated model may show by chance ({p_is(first.pvalue)}): {_place(first)}."
    ]


def _place(place: PlaceError) -> str:
    verb = "occur" if place.event.startswith("targets") else "occurs"
    word = "more" if place.observed > place.predicted else "less"
    observed, predicted = percents(place.observed, place.predicted)
    region = f" {place.region}" if place.region else ""
    these = f"these {place.number}" if region else f"the {place.number}"
    text = f"{place.event} {verb} {word} often than predicted{region}: in {observed} of {these} "
    return f"{text}samples, while {predicted} were predicted"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


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
    tests, (adjusted, rejecting) = _tests(findings), judged(findings)
    impossible = _impossible(findings)
    if impossible and not rejecting:
        texts = [f"The model is not calibrated: {impossible}", "No test found any other error."]
    else:
        texts = [_verdict(adjusted, rejecting), *filter(None, [impossible])]
    if rejecting:
        texts += _direction(adjusted, rejecting)
        texts += _classes(adjusted) + _biases(adjusted)
        texts += places(adjusted, LEVEL)
        texts += _amount(adjusted)
        texts += _repair(adjusted) + ([adjusted.repair] if adjusted.repair else [])
    texts += _groups(adjusted) + _features(adjusted, rejecting)
    if not rejecting and not impossible:
        texts.append("This does not show that the model is calibrated.")
    if len(tests) > 1 and (rejecting or not impossible):
        but = ["that after recalibration"] * bool(adjusted.repair)
        if adjusted.places:
            but += ["those of places, which are adjusted for all places that were looked at"]
        all_tests = f"the {len(tests)} tests that these sentences rest on"
        others = f", except for {' and '.join(but)}" if but else ""
        texts.append(f"All p-values are adjusted for {all_tests}{others}.")
    return texts


def judged(findings: Findings) -> tuple[Findings, list[str]]:
    """The findings with p-values that are adjusted for all tests, and the tests that reject."""
    adjusted = _adjusted(findings)
    return adjusted, [name for name, p in _tests(adjusted).items() if p <= LEVEL]


def names_an_error(findings: Findings) -> bool:
    """Whether there is nothing wrong, or a sentence says what: a class, a width, a group, …."""
    findings, rejecting = judged(findings)
    top, groups = findings.top_label, findings.groups
    is_direct = top is not None and top.pvalue <= LEVEL
    if findings.task not in ("classification", "binary"):
        is_direct = bool(_width(findings))
    p, is_vague = findings.direction_pvalue, findings.direction in ("", ALIKE)
    is_direct |= "all" in rejecting and p is not None and p <= LEVEL and not is_vague
    named = (
        is_direct or _classes(findings) or _biases(findings) or _of_features(findings, rejecting)
    )
    return not rejecting or bool(named) or any(g.pvalue <= LEVEL for g in groups)


def _tests(findings: Findings) -> dict[str, float]:
    """The p-values on which the sentences rest, by name of the test."""
    values = {
        test: [x for name in names for x in _each(getattr(findings, name))]
        for test, names in _ENTRIES.items()
    }
    pvalues = {
        test: [p for x in results if (p := getattr(x, "pvalue", x)) is not None]
        for test, results in values.items()
    }
    return {test: min(results) for test, results in pvalues.items() if results}


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


def _verdict(findings: Findings, rejecting: list[str]) -> str:
    """Whether there is anything wrong."""
    tests, size = _tests(findings), f"{findings.num_samples} predictions"
    if not rejecting:
        smallest = min(tests, key=tests.__getitem__)
        verdict = f"No miscalibration was found in {size}: the exact test of {_TESTS[smallest]} "
        rest = ", and no other test a smaller one" * (len(tests) > 1)
        return f"{verdict}gives {p_is(tests[smallest])}{rest}."
    first = rejecting[0]
    verdict = f"The model is not calibrated: the exact test of {_TESTS[first]} rejects calibration "
    verdict += f"on {size} ({p_is(tests[first])})"
    if first != "all" and "all" in tests:
        verdict += f", although that of {_TESTS['all']} does not ({p_is(tests['all'])})"
    return verdict + "."


def _direction(findings: Findings, rejecting: list[str]) -> list[str]:
    """Whether the predictions are overconfident, underconfident, or what else is wrong."""
    if findings.task not in ("classification", "binary"):
        width, largest = _width(findings), _largest(findings, rejecting)
        return largest + width if wrong_shape(findings) else width or largest
    top = findings.top_label
    if top is None or top.pvalue > LEVEL:
        return _largest(findings, rejecting)
    confidence, accuracy = percents(top.predicted, top.observed)
    numbers = f"its mean confidence is {confidence}, "
    if top.observed < top.predicted:
        numbers += f"but it is right in only {accuracy} of the cases"
        return [f"It is overconfident: {numbers} ({p_is(top.pvalue)})."]
    numbers += f"while it is right in {accuracy} of the cases"
    return [f"It is underconfident: {numbers} ({p_is(top.pvalue)})."]


def _largest(findings: Findings, rejecting: list[str]) -> list[str]:
    """What the test of all errors together is largest for."""
    p = findings.direction_pvalue
    if "all" not in rejecting or not findings.direction or p is None or p > LEVEL:
        return []
    is_told = _biases(findings) or _classes(findings)
    is_other = "where" in findings.direction or wrong_shape(findings)
    if is_told and not is_other:
        return []
    direction, _, score = findings.direction.partition(": ")
    of = f"score of the {score}, " if score else ""
    return [f"The clearest finding of this test: {in_full(direction)} ({of}{p_is(p)})."]


def _width(findings: Findings) -> list[str]:
    """Whether predicted distributions of numbers are too narrow or too wide."""
    spread, texts = findings.spread, []
    widest = min(findings.coverage, key=lambda c: abs(c.nominal - 0.9), default=None)
    if spread is not None and spread.pvalue is not None and spread.pvalue <= LEVEL:
        word = "too narrow" if spread.value > 1 else "too wide"
        only = "" if spread.value > 1 else "only "
        texts.append(
            f"The predicted distributions are {word}: the targets scatter {only}"
            f"{spread.value:.2f} times as much around their predicted means as they should "
            f"({p_is(spread.pvalue)})."
        )
    if widest is None or widest.pvalue > LEVEL:
        return texts
    word, share = ("", f"{percent(widest.observed)} of the targets ({p_is(widest.pvalue)})")
    if spread is None and widest.below > 0 and widest.above > 0:
        word = "The predicted distributions are too narrow: "
    elif spread is None and widest.below < 0 and widest.above < 0:
        word = "The predicted distributions are too wide: "
    text = f"the central {percent(widest.nominal)} intervals contain {share}."
    return [*texts, word + text if word else text[0].upper() + text[1:]]


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
    best, ends = f"The best temperature is {hundredths(temperature.value)}", ends_of(temperature)
    if ends is not None:
        best += f" (95 % interval {hundredths(ends[0])} to {hundredths(ends[1])})"
    score = score_of(findings.gain_unit)
    value, low, high = alike(gain.value, *held_out)
    won = f"by {value} (95 % interval {low} to {high})"
    if held_out[0] > 0:
        return [f"{best}. On held-out data it lowers the {score} {won}."]
    if held_out[1] < 0 or (ends is not None and ends[0] <= 1 <= ends[1]):
        text = f"{best}: rescaling does not repair these errors."
        if findings.task in ("classification", "binary"):
            text += " PlattScaling or IsotonicRegression of calibjax.recalibration may."
        return [text]
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


def _features(findings: Findings, rejecting: list[str]) -> list[str]:
    """Errors that depend on the features, or that none was found."""
    if findings.features is None:
        return []
    texts = _of_features(findings, rejecting)
    if texts or findings.features <= LEVEL:
        return texts
    return [f"No error that depends on the features was found ({p_is(findings.features)})."]


def _of_features(findings: Findings, rejecting: list[str]) -> list[str]:
    """Errors that depend on the features; other errors make the same tests reject."""
    p, low, texts = findings.features, findings.features_low, []
    if p is not None and p <= LEVEL and low is not None and low > 0:
        texts.append(
            "Samples with similar features share the same error: given the features, the "
            f"predictions are wrong ({p_is(p)})."
        )
    elif p is not None and p <= LEVEL and not {"all", "means", "spread"} & set(rejecting):
        texts.append(f"Given the features, the predictions are wrong ({p_is(p)}).")
    local = findings.local
    if local is not None and local <= LEVEL and not {"all", "means"} & set(rejecting):
        texts.append(
            f"There are regions of the features in which the confidence is wrong ({p_is(local)})."
        )
    return texts


_HELD_OUT = (
    "Fit it to data that the model was not trained on, and judge the result on data used for "
    "neither."
)
_LOSSES = {"CRPS": "scores.crps", "Brier score": "scores.brier_score"}
_TEMPERATURE = """\
method = recalibration.TemperatureScaling({loss})
temperature = method.fit(predictions, targets)
repaired = method.apply(temperature, new_predictions)"""
_MAP_OF_CLASSES = """\
method = recalibration.{method}()
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)"""
_GROUPS = Advice(
    "The errors differ between groups. Recalibrating within groups may repair them, if the groups "
    f"of new samples are known; whether it does was not computed. {_HELD_OUT}",
    """\
method = recalibration.GroupWise(recalibration.PlattScaling())
params = method.fit(predictions, targets, groups)  # of integers
repaired = method.apply(params, new_predictions, new_groups)""",
)
_SHIFTS = Advice(
    "Shift the quantiles of each level by that quantile of the errors on held-out data (conformal "
    "prediction): each level is then right on average over all samples; errors that differ between "
    f"samples remain. {_HELD_OUT}",
    """\
errors = targets[:, None] - predictions.values
shifts = [jnp.quantile(e, level) for e, level in zip(errors.T, levels)]  # levels: [k]
repaired = distributions.Quantiles(levels, new_predictions.values + jnp.stack(shifts))""",
)
_SHAPE = Advice(
    "No shift and no temperature changes the shape of the predicted distributions. Predict with a "
    "family that has the shape of the targets, such as LogNormal, Mixture or Quantiles of "
    "calibjax.distributions, or predict a function of them."
)
_QUANTILES = Advice(
    "The shape of the predicted distributions is wrong, on average over all of them. Map their "
    "quantiles by one monotone function, or predict with a family that has the shape of the "
    "targets, such as LogNormal or Mixture of calibjax.distributions; whether that helps was not "
    f"computed. {_HELD_OUT}",
    """\
method = recalibration.QuantileRecalibration("isotonic")
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)""",
)
_POSSIBLE = Advice(
    "Give everything that may happen a probability above 0: no temperature changes a probability "
    "of 0. Mixing the predictions with the frequencies of the outcomes in the training data does."
)
_NOTHING = Advice(
    "Nothing has to be repaired, as far as these data can tell. More samples would show smaller "
    "errors."
)
_OTHERWISE = Advice(
    "No recalibration method of calibjax is known to repair this. The errors say what the model "
    "gets wrong: look at its features and at the family of distributions that it predicts."
)


def advice(findings: Findings, rejecting: list[str]) -> tuple[Advice, ...]:
    """What to do, the most useful first.

    Args:
        findings: with adjusted p-values.
        rejecting: the tests that reject.
    """
    first = [_POSSIBLE] * bool(findings.num_impossible)
    if not rejecting:
        return tuple(first or [_NOTHING])
    repairs = _of_temperature(findings)
    if findings.task in ("classification", "binary"):
        repairs += _of_classes(findings, is_repaired=bool(repairs))
    else:
        repairs += _of_numbers(findings)
    return (*first, *(repairs or [_OTHERWISE]))


def _of_temperature(findings: Findings) -> list[Advice]:
    temperature, gain, ends = findings.temperature, findings.gain, ends_of(findings.gain)
    if temperature is None or gain is None or ends is None or ends[0] <= 0:
        return []
    name = findings.gain_unit.partition(",")[0]
    value, low, high = alike(gain.value, *ends)
    text = f"Scale all predictions by one temperature, T = {hundredths(temperature.value)}: on "
    text += f"held-out data that lowers the {score_of(findings.gain_unit)} by {value} (95 % "
    text += f"interval {low} to {high}). {_HELD_OUT}"
    return [Advice(text, _TEMPERATURE.format(loss=_LOSSES.get(name, "")))]


def _of_classes(findings: Findings, *, is_repaired: bool) -> list[Advice]:
    """Maps of each probability, where one temperature is not enough."""
    maps = []
    if not is_repaired:
        method = "PlattScaling" if findings.num_samples < 1000 else "IsotonicRegression"
        text = "A temperature does not repair these errors. A map of the probability of each class "
        text += "may: whether it does was not computed, so compare scores on held-out data. "
        maps.append(Advice(text + _HELD_OUT, _MAP_OF_CLASSES.format(method=method)))
    return maps + [_GROUPS] * any(group.pvalue <= LEVEL for group in findings.groups)


def _of_numbers(findings: Findings) -> list[Advice]:
    """Shifts, and families of other shapes."""
    shifts = [_SHIFTS] * (findings.task == "quantiles")
    for bias in findings.bias:
        if bias.pvalue <= LEVEL:
            where = f" of {bias.name}" if bias.name else ""
            text = f"Add {bias.error:.3g} to the predicted means{where}: that is how far the "
            shifts.append(Advice(f"{text}targets lie from them on average."))
    if wrong_shape(findings) and findings.task == "regression":
        return [*shifts, _QUANTILES]
    has_place = any(place.pvalue <= LEVEL for place in findings.places)
    return shifts + [_SHAPE] * bool(has_place or wrong_shape(findings))
