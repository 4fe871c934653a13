"""What the numbers of several models mean, in sentences."""

from collections.abc import Iterator, Mapping, Sequence

from calibjax.evaluation.data import LEVEL
from calibjax.evaluation.entries import Advice, Entry, Section
from calibjax.evaluation.models import Compared
from calibjax.evaluation.wording import alike, p_is


def told_of(c: Compared, sections: Mapping[str, Section]) -> tuple[list[str], list[Advice]]:
    """The sentences, and what to do."""
    entries = {x.name: x for section in sections.values() for x in section.entries}
    pvalues = {x: e.pvalue for x, e in entries.items() if e.pvalue is not None}
    words = c.test[1]
    told, combined = [], []
    for a, b in c.pairs:
        told += _score_told(c, a, b, entries)
    wrong = [x for x in c.models if pvalues.get(f"{x}: {words}", 1.0) <= LEVEL]
    told += [f"{x} is not calibrated ({p_is(pvalues[f'{x}: {words}'])})." for x in wrong]
    tested = [pvalues[f"{x}: {words}"] for x in c.models if f"{x}: {words}" in pvalues]
    if tested and not wrong:
        told.append(f"No miscalibration of any model was found (smallest {p_is(min(tested))}).")
    for a, b in c.pairs:
        told += _calibration_told(a, b, entries)
        found = list(_knowledge(a, b, words, pvalues, wrong))
        told += found
        if len(found) == 1 and found[0].startswith("Each"):
            combined.append(f"{a} and {b}")
    told.append(
        "p-values are adjusted for the number of models or pairs, those of each question by "
        "themselves."
    )
    return told, [
        Advice(
            f"Combine {pair}, for example by a mixture of their predictions, and compare it with "
            "both on data that its weights were not fitted to."
        )
        for pair in combined
    ]


def _score_told(c: Compared, a: str, b: str, entries: Mapping[str, Entry]) -> Iterator[str]:
    name, unit = c.score_name
    entry = entries[f"{a} - {b}: {name}"]
    p = entry.pvalue
    if p is None or entry.low is None or entry.high is None:
        return
    better, worse = (a, b) if entry.value <= 0 else (b, a)
    ends = sorted(abs(x) for x in (entry.low, entry.high))
    if p <= LEVEL and entry.low * entry.high > 0:
        size, low, high = alike(abs(entry.value), *ends)
        yield (
            f"{better} has a better {name} than {worse}: it is lower by {size}{unit} per sample "
            f"(95 % interval {low} to {high}; {p_is(p)})."
        )
    else:
        size, low, high = alike(entry.value, entry.low, entry.high)
        yield (
            f"Which of {a} and {b} has the better {name} is not clear from these data: the "
            f"difference is {size}{unit} (95 % interval {low} to {high}; {p_is(p)})."
        )
    gain = entries.get(f"{a} - {b}: gain")
    if gain is None or gain.pvalue is None or gain.pvalue > LEVEL:
        return
    more, less = (a, b) if gain.value > 0 else (b, a)
    own = entries[f"{more}: gain"]
    if own.low is not None and own.low > 0:  # otherwise it only loses less
        size, error = alike(abs(gain.value), gain.standard_error or 0.0)
        yield (
            f"Recalibration gains {size} ± {error}{unit} more for {more} than for {less} "
            f"({p_is(gain.pvalue)})."
        )


def _calibration_told(a: str, b: str, entries: Mapping[str, Entry]) -> Iterator[str]:
    entry = entries.get(f"{a} - {b}: SKCE")
    if entry is None or entry.pvalue is None:
        return
    if entry.pvalue > LEVEL:
        yield f"Neither of {a} and {b} is seen to be better calibrated ({p_is(entry.pvalue)})."
        return
    better, worse = (a, b) if entry.value < 0 else (b, a)
    yield f"{better} is better calibrated than {worse} ({p_is(entry.pvalue)})."


def _knowledge(
    a: str, b: str, words: str, pvalues: Mapping[str, float], wrong: Sequence[str]
) -> Iterator[str]:
    """What one model knows that the other does not."""
    given = {x: pvalues.get(f"{x} given {y}: {words}") for x, y in ((a, b), (b, a))}
    knows = {
        y: p
        for x, y in ((a, b), (b, a))
        if (p := given[x]) is not None and p <= LEVEL and x not in wrong
    }
    if len(knows) == 2:
        yield (
            f"Each of {a} and {b} knows something that the other does not "
            f"({p_is(max(knows.values()))}): combining them would help."
        )
    for y, p in knows.items() if len(knows) == 1 else ():
        x = a if y == b else b
        yield (
            f"{y} knows something that {x} does not ({p_is(p)}): given the predictions of {y}, "
            f"those of {x} are wrong."
        )
    if not knows and all(p is not None and p > LEVEL for p in given.values()):
        smallest = min(p for p in given.values() if p is not None)
        yield f"Neither of {a} and {b} is seen to know what the other does not ({p_is(smallest)})."
