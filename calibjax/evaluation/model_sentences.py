"""What the numbers of several models mean, in sentences."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from calibjax.evaluation.data import LEVEL
from calibjax.evaluation.entries import Advice, Entry, Section
from calibjax.evaluation.models import Compared
from calibjax.evaluation.wording import alike, p_is

_ADJUSTED = "p-values are adjusted for the number of models or pairs, those of each question by "
_ADJUSTED += "themselves."


def told_of(c: Compared, sections: Mapping[str, Section]) -> tuple[list[str], list[Advice]]:
    """The sentences, and what to do."""
    entries = {x.name: x for section in sections.values() for x in section.entries}
    pvalues = {x: e.pvalue for x, e in entries.items() if e.pvalue is not None}
    alone = {x: p for x in c.models if (p := pvalues.get(f"{x}: {c.test[1]}")) is not None}
    wrong = [x for x, p in alone.items() if p <= LEVEL]
    told = [text for pair in c.pairs for text in _score_told(c, *pair, entries)]
    told += [f"{x} is not calibrated ({p_is(alone[x])})." for x in wrong]
    if alone and not wrong:
        smallest = p_is(min(alone.values()))
        told.append(f"No miscalibration of any model was found (smallest {smallest}).")
    advice = []
    for a, b in c.pairs:
        told += _calibration_told(a, b, entries)
        knows = {
            y: p
            for x, y in ((a, b), (b, a))
            if (p := pvalues.get(f"{x} given {y}: {c.test[1]}")) is not None and x not in wrong
        }
        told += _knowledge_told((a, b), knows)
        if len(knows) == 2 and max(knows.values()) <= LEVEL:
            text = f"Combine {a} and {b}, for example by a mixture of their predictions, and "
            text += "compare it with both on data that its weights were not fitted to."
            advice.append(Advice(text))
    return [*told, _ADJUSTED], advice


def _score_told(c: Compared, a: str, b: str, entries: Mapping[str, Entry]) -> Iterator[str]:
    name, unit = c.score_name
    entry = entries[f"{a} - {b}: {name}"]
    p, low, high = entry.pvalue, entry.low, entry.high
    if p is None or low is None or high is None:
        return
    if not np.isfinite([low, high]).all():
        [size] = alike(abs(entry.value))
        yield (
            f"The {name} of {a} and {b} differs by the same {size}{unit} in every sample, which "
            "does not say how much it would differ in others."
        )
        return
    better, worse = (a, b) if entry.value <= 0 else (b, a)
    if p <= LEVEL and low * high > 0:
        ends = sorted((abs(low), abs(high)))
        size, *ends = alike(abs(entry.value), *ends)
        told = f"{better} has a better {name} than {worse}: it is lower by {size}{unit} per sample"
    else:
        size, *ends = alike(entry.value, low, high)
        told = f"Which of {a} and {b} has the better {name} is not clear from these data: the "
        told += f"difference is {size}{unit}"
    yield f"{told} (95 % interval {ends[0]} to {ends[1]}; {p_is(p)})."
    gain = entries.get(f"{a} - {b}: gain")
    if gain is None or gain.pvalue is None or gain.pvalue > LEVEL:
        return
    more, less = (a, b) if gain.value > 0 else (b, a)
    if (entries[f"{more}: gain"].low or 0) > 0:  # otherwise it only loses less
        size, error = alike(abs(gain.value), gain.standard_error or 0.0)
        told = f"Recalibration gains {size} ± {error}{unit} more for {more} than for {less}"
        yield f"{told} ({p_is(gain.pvalue)})."


def _calibration_told(a: str, b: str, entries: Mapping[str, Entry]) -> Iterator[str]:
    entry = entries.get(f"{a} - {b}: SKCE")
    if entry is None or entry.pvalue is None:
        return
    better, worse = (a, b) if entry.value < 0 else (b, a)
    told = f"{better} is better calibrated than {worse}"
    if entry.pvalue > LEVEL:
        told = f"Neither of {a} and {b} is seen to be better calibrated"
    yield f"{told} ({p_is(entry.pvalue)})."


def _knowledge_told(pair: Sequence[str], knows: Mapping[str, float]) -> Iterator[str]:
    """What one model knows that the other does not, by p-values of the one that knows it."""
    found, both = {y: p for y, p in knows.items() if p <= LEVEL}, " and ".join(pair)
    if len(found) == 2:
        told = f"Each of {both} knows something that the other does not"
        yield f"{told} ({p_is(max(found.values()))}): combining them would help."
    for y, p in found.items() if len(found) == 1 else ():
        [x] = (x for x in pair if x != y)
        told = f"{y} knows something that {x} does not ({p_is(p)}): given the predictions of {y}, "
        yield f"{told}those of {x} are wrong."
    if len(knows) == 2 and not found:
        smallest = p_is(min(knows.values()))
        yield f"Neither of {both} is seen to know what the other does not ({smallest})."
