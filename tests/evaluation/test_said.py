"""What is said of tables of results: sentences follow the p-values, and numbers are readable."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest

from calibjax import recalibration, scores
from calibjax.evaluation import words
from calibjax.evaluation.assembly import _advice, _notes, _said, _sentences
from calibjax.evaluation.data import Finding, Part
from calibjax.evaluation.kernel_tests import _told
from calibjax.evaluation.record import Advice, Entry, Section
from calibjax.evaluation.words import percent, percents, with_ends
from tests.evaluation import samples

DATA = types.SimpleNamespace(size=100)


def _judged(part):
    said, pvalues = _said(part)
    return _sentences(DATA, part, said, pvalues), _advice(part, said), said


def _table(random):
    """Sections with p-values, of which some entries have none, and what may be said of others."""
    sections, findings = [], []
    for name in ("Errors", "Groups", "Given the features", "Is the model calibrated?"):
        entries = []
        for i in range(random.integers(0, 5)):
            low = random.choice([1e-3, 0.2])
            p = random.choice([0.05, 0.0501, 1.0, random.uniform(low, 1), None])
            entries.append(Entry(f"{name} {i}", 0.1, expected=0.2, pvalue=p))
            if p is not None and random.uniform() < 0.8:
                is_last, is_vague = random.uniform(size=2) < (0.4, 0.1)
                text = "" if is_vague else f"numbers of <{name} {i}>"
                word, advice = f"wrong <{name} {i}>", Advice(f"repair <{name} {i}>")
                is_last = bool(is_last or is_vague)
                findings.append(
                    Finding(entries[-1].name, word, text, bool(is_vague), is_last, advice)
                )
        sections.append(Section(name, tuple(entries), test=name))
    warnings = ("2 of 9 samples are impossible",) * int(random.uniform() < 0.1)
    return Part(tuple(sections), tuple(findings), warnings=warnings)


@pytest.mark.parametrize("seed", range(20))
def test_sentences_follow_the_pvalues(seed):
    """Of 50 tables: an error is said if and only if its p-value is at most 5 %."""
    random = np.random.default_rng(seed)
    for _ in range(50):
        part = _table(random)
        told, advice, said = _judged(part)
        pvalues = {x.name: x.pvalue for s in part.sections for x in s.entries}
        rejected = {name for name, p in pvalues.items() if p is not None and p <= 0.05}
        wrong = [x for x in part.findings if x.entry in rejected]
        first = [x for x in wrong if not x.is_last] or wrong[:1]
        is_clean = not rejected and not part.warnings
        assert told[0].startswith("No miscalibration was found in 100") == is_clean
        assert told[0].startswith("Miscalibrated") != is_clean
        assert is_clean == (words.NOTHING in advice)
        if rejected and not wrong:  # what no finding speaks of is not silent
            assert "no single error explains it" in told[0]
        else:
            assert said == first
        text = " ".join(told)
        named = set(re.findall("[Ww]rong <(.*?)>", text))
        assert named <= {x.entry for x in first}
        if first and not first[0].is_vague:
            assert told[0] == f"Miscalibrated: {first[0].word}. N{first[0].text[1:]}."
        more = re.search(r"(\d+) more errors were found", text)
        spoken = sum(bool(x.text) for x in first[1:]) + (not first[0].is_vague if first else 0)
        assert len(named) + (int(more[1]) if more else 0) == spoken
        assert more is None or int(more[1]) > 1
        # Advices are those of what is said.
        advised = {x for one in advice for x in re.findall("repair <(.*?)>", one.text)}
        assert advised == {x.entry for x in first}
        smallest = re.search(r"\(smallest p = (\S+)\)", told[0])
        if smallest:
            known = [p for p in pvalues.values() if p is not None]
            assert smallest[1] == f"{min(known):.2g}"
        for name in ("Groups", "Given the features"):
            own = [p for x, p in pvalues.items() if x.startswith(name) and p is not None]
            spoken = "none of the groups" if name == "Groups" else "depends on the features"
            assert (spoken in text) == bool(own and min(own) > 0.05)


def test_impossible_outcomes_are_an_error_without_a_test():
    part = Part(warnings=("2 of 9 samples had a predicted probability of 0 for what happened",))
    told, advice, _ = _judged(part)
    assert told[0].startswith("Miscalibrated: 2 of 9 samples had")
    assert told[0].endswith("which never occurs if a model is calibrated.")
    assert advice == [words.POSSIBLE]


def test_notes_tell_of_adjusted_pvalues():
    section = Section("", (Entry("x", 1.0, pvalue=0.3),))
    part = Part((section,), tests=dict.fromkeys([("targets", "a"), ("targets", "b")]))
    [note] = _notes(part, {"x": 0.3})
    assert "adjusted for the 2 tests" in note
    one = Part((section, Section("Where it is wrong", ())), tests={("targets", "a"): None})
    [note] = _notes(one, {"x": 0.3})
    assert "adjusted for the" not in note.split("Those of places")[0]
    assert not _notes(Part(), {})


def test_temperature_that_helps_makes_other_maps_unnecessary():
    repair = words.repair_by("")
    options = {"advice": words.map_of_classes(100), "is_repaired": True}
    part = Part(
        (Section("", (Entry("a", 1.0, pvalue=0.001),)),),
        (Finding("a", "overconfident", "numbers", **options),),
        repair=((repair, "Temperature 1.3 lowers it"),),
    )
    told, advice, _ = _judged(part)
    assert told[1] == "Temperature 1.3 lowers it."
    assert advice == [repair]
    assert _judged(dataclasses.replace(part, repair=()))[1] == [words.map_of_classes(100)]


@pytest.mark.slow
def test_advised_calls_run():
    of_classes = [words.GROUPS, words.map_of_classes(100), words.map_of_classes(5000)]
    of_classes += [words.repair_by(loss) for loss in ("", "scores.brier_score")]
    result = types.SimpleNamespace(arrays={"memberships": np.eye(2)[np.arange(40) % 2]})
    names = {"recalibration": recalibration, "scores": scores, "result": result}
    names["new_numbers"] = np.arange(40) % 2
    for kind, advices in (
        (samples.binary, of_classes),
        (samples.normals, [words.MAP_OF_QUANTILES, words.SCALING]),
        (samples.quantiles, [words.SHIFTS]),
    ):
        predictions, targets = kind(np.random.default_rng(0), 40)
        for advice in advices:
            names |= {"predictions": predictions, "new_predictions": predictions}
            exec(advice.call, names | {"targets": targets}, found := {})
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(found["repaired"]))


@pytest.mark.parametrize(
    ("direction", "word"),
    [
        ("overconfident: temperature", "overconfident"),
        ("class 3 too probable", "class 3 is too probable"),
        ("probabilities too large", "the probabilities are too large"),
        ("predictions too small: shift", "the predictions are too small"),
        ("predictions not wide enough where x", "the predictions are not wide enough where x"),
    ],
)
def test_directions_of_the_kernel_test_in_words(direction, word):
    found, text = _told(direction)
    assert found == word
    score = direction.partition(": ")[2]
    assert text == "that is what the kernel test sees most clearly" + f" ({score})" * bool(score)


def test_numbers_of_sentences():
    assert percents(0.953, 0.96) == ("95.3 %", "96.0 %")
    assert percents(0.9, 0.8) == ("90 %", "80 %")
    assert percents(5e-5, 25e-5) == ("0.01 %", "0.03 %")
    assert percents(5e-5, 5e-5) == ("0 %", "0 %")
    assert with_ends(0.579, 0.383, 0.775) == ["0.58", "0.38", "0.78"]
    assert with_ends(0.0036, -0.107, 0.116) == ["0.004", "-0.107", "0.116"]


@pytest.mark.parametrize("seed", range(5))
def test_no_share_is_minus_zero(seed):
    random = np.random.default_rng(seed)
    for share in np.concatenate([random.normal(scale=1e-4, size=200), [-1e-9, 0.0, -0.0]]):
        for text in (percent(share), *percents(share, share + random.normal(scale=1e-3))):
            assert not re.match(r"-0(\.0*)? %", text), (share, text)
