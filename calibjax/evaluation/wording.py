"""Words of the sentences of a report: numbers and places."""

import math

from calibjax.evaluation.data import LEVEL
from calibjax.evaluation.entries import Entry
from calibjax.evaluation.findings import Findings, PlaceError
from calibjax.hypothesis_tests._redraw.components import OF_CLASSES
from calibjax.kernels.residuals import SHAPES

_MOST_DECIMALS = 6  # beyond, numbers are written with exponents


def ends_of(entry: Entry | None) -> tuple[float, float] | None:
    """Both ends of an interval, None if there is none or one of them is not finite."""
    if entry is None or entry.low is None or entry.high is None:
        return None
    is_finite = math.isfinite(entry.low) and math.isfinite(entry.high)
    return (entry.low, entry.high) if is_finite else None


def with_interval(value: float, entry: Entry) -> str:
    """A value, and the interval of an entry if it has one."""
    both = ends_of(entry)
    if both is None:
        return hundredths(value)
    return f"{hundredths(value)} (95 % interval {hundredths(both[0])} to {hundredths(both[1])})"


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
        subject, found, rest = direction.partition(word)
        if found:
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
    told = f"{place.event} {verb} {word} often than predicted{region}: in {observed} of {these} "
    return f"{told}samples, while {predicted} were predicted"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
