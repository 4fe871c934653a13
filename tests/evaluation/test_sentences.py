"""What is said: sentences follow the p-values, name what is wrong, and have readable numbers."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

import calibjax
from calibjax import distributions, recalibration
from calibjax.evaluation import record
from calibjax.evaluation.assembly import _advice, _notes, _said, _sentences
from calibjax.evaluation.data import checked_data, measured, scatter_of, task_of
from calibjax.evaluation.record import Advice, Entry, Finding, Part, Section
from calibjax.evaluation.sections import proper_scores, temperature, wrong_way
from tests.evaluation import golden, samples

KEY = jax.random.key(0)


def _judged(part):
    said, pvalues = _said(part)
    return _sentences(100, part, said, pvalues), _advice(part, said), said


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
                findings.append(Finding(entries[-1].name, word, text, is_last, advice))
        sections.append(Section(name, tuple(entries), test=name))
    warnings = ("2 of 9 samples are impossible",) * int(random.uniform() < 0.1)
    return Part(tuple(sections), tuple(findings), warnings=warnings)


def test_more_errors_than_are_said():
    names = [f"x{i}" for i in range(7)]
    entries = tuple(Entry(x, 0.1, expected=0.2, pvalue=1e-6) for x in names)
    findings = tuple(Finding(x, f"wrong {x}", f"numbers of {x}") for x in names)
    told, *_ = _judged(Part((Section("Errors", entries, test="errors"),), findings))
    assert [x.split()[0] for x in told] == ["Miscalibrated:", *3 * ["Wrong"], "3"]


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
        assert is_clean == (not advice)
        if rejected and not wrong:  # what no finding speaks of is not silent
            assert "no single error explains it" in told[0]
        else:
            assert said == first
        text = " ".join(told)
        named = set(re.findall("[Ww]rong <(.*?)>", text))
        assert named <= {x.entry for x in first}
        if first and first[0].text:
            assert told[0] == f"Miscalibrated: {first[0].word}. N{first[0].text[1:]}."
        more = re.search(r"(\d+) more errors were found", text)
        spoken = sum(bool(x.text) for x in first[1:]) + bool(first and first[0].text)
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


def test_warnings_notes_and_temperatures():
    """What is impossible is wrong without a test; a temperature that helps is all the advice."""
    part = Part(warnings=("2 of 9 samples had a predicted probability of 0 for what happened",))
    told, advice, _ = _judged(part)
    assert told[0].startswith("Miscalibrated: 2 of 9 samples had")
    assert told[0].endswith("which never occurs if a model is calibrated.")
    assert advice == [record.POSSIBLE]
    section = Section("", (Entry("x", 1.0, pvalue=0.001),))
    part = Part((section,), tests=dict.fromkeys([("targets", "a"), ("targets", "b")]))
    [note] = _notes(part, {"x": 0.3})
    assert "adjusted for the 2 tests" in note
    one = Part((section, Section("Where it is wrong", ())), tests={("targets", "a"): None})
    [note] = _notes(one, {"x": 0.3})
    assert "adjusted for the" not in note.split("Those of regions")[0]
    assert not _notes(Part(), {})
    options = {"advice": record.map_of("binary", 100), "is_repaired": True}
    findings = (Finding("x", "overconfident", "numbers", **options),)
    more = {"remarks": ("Temperature 1.3 lowers it.",), "advice": (record.TEMPERATURE,)}
    told, advice, _ = _judged(Part((section,), findings, **more))
    assert told[1] == "Temperature 1.3 lowers it."
    assert advice == [record.TEMPERATURE]
    assert _judged(Part((section,), findings))[1] == [record.map_of("binary", 100)]


def test_numbers_of_sentences():
    assert record.percents(0.953, 0.96) == ("95.3 %", "96.0 %")
    assert record.percents(0.9, 0.8) == ("90 %", "80 %")
    assert record.percents(5e-5, 25e-5) == ("0.01 %", "0.03 %")
    assert record.percents(5e-5, 5e-5) == ("0 %", "0 %")
    assert record.with_ends(0.579, 0.383, 0.775) == ["0.58", "0.38", "0.78"]
    assert record.with_ends(0.0036, -0.107, 0.116) == ["0.004", "-0.107", "0.116"]
    random = np.random.default_rng(0)
    for share in np.concatenate([random.normal(scale=1e-4, size=1000), [-1e-9, 0.0, -0.0]]):
        for text in record.percents(share, share + random.normal(scale=1e-3)):
            assert not re.match(r"-0(\.0*)? %", text), (share, text)


@pytest.mark.slow
def test_advised_calls_run():
    of_groups = dataclasses.replace(record.GROUPS, call=record.GROUPS.call.format([0, 1]))
    of_classes = [of_groups, record.TEMPERATURE]
    of_classes += [record.map_of("binary", 100), record.map_of("binary", 5000)]
    result = types.SimpleNamespace(arrays={"memberships": np.eye(2)[np.arange(40) % 2]})
    names = {"recalibration": recalibration, "result": result, "new_numbers": np.arange(40) % 2}
    for kind, advices in (
        (samples.binary, of_classes),
        (samples.normals, [record.MAP_OF_QUANTILES, record.SCALING]),
        (samples.quantiles, [record.SHIFTS]),
    ):
        predictions, targets = kind(np.random.default_rng(0), 40)
        for advice in advices:
            names |= {"predictions": predictions, "new_predictions": predictions}
            exec(advice.call, names | {"targets": targets}, found := {})
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(found["repaired"]))


# Models that are wrong in a known way, and what the verdict says of them.
N = 120
LOC, NOISE = np.random.default_rng(0).normal(size=(2, 200))
GUMBEL = np.random.default_rng(1).gumbel(size=(200, 4))
LOGITS = 2 * np.random.default_rng(2).normal(size=(200, 4))
MEMBERS = np.random.default_rng(3).normal(size=(200, 8))
SECOND = np.arange(200) % 3 == 1
LABELS = np.arange(12) % 2
EXACT = scipy.stats.norm.ppf(np.random.default_rng(4).permutation((np.arange(N) + 0.5) / N))
THREE = np.array([0.1, 0.5, 0.9])
slow = pytest.mark.slow


def _one_sided(levels, shares):
    values = np.tile(scipy.stats.norm.ppf(shares), (N, 1))
    values[EXACT.argmin(), -1] = np.inf
    return distributions.Quantiles(np.array(levels), values), EXACT


def _quantiles(scale, shift):
    values = LOC[:N, None] + scale * scipy.stats.norm.ppf(THREE)
    return distributions.Quantiles(THREE, values), LOC[:N] + NOISE[:N] + shift


def _ensemble(scale, shift):
    return distributions.Ensemble(LOC[:, None] + scale * MEMBERS + shift), LOC + NOISE


def _normal(spread, shift):
    return distributions.Normal(LOC, np.ones(200)), LOC + spread * NOISE + shift


def _classes(factor, shift=0.0):
    labels = np.argmax(LOGITS * factor + GUMBEL + np.array([0, 0, shift, 0]), 1)
    return distributions.CategoricalLogits(LOGITS), labels


def _two(temperature):
    probs, chances = (1 / (1 + np.exp(-LOGITS[:, 0] / t)) for t in (1, temperature))
    return distributions.Bernoulli(probs), (scipy.stats.norm.cdf(NOISE) < chances).astype(int)


LEVELS = {
    "one-sided, too low": _one_sided([0.9, 0.95, 0.99], [0.7, 0.74, 0.79]),
    "one level, too low": _one_sided([0.95], [0.7]),
    "two levels, too low": _one_sided([0.9, 0.99], [0.8, 0.9]),
    "one level, too high": _one_sided([0.05], [0.3]),
    "one-sided, right": _one_sided([0.9, 0.99], [0.9, 0.99]),
}
PRIOR = distributions.Normal(np.zeros(200), np.full(200, np.sqrt(2.0)))
COLUMNS = {"groups": {"sex": ["f", "m"] * (N // 2), "ward": np.arange(N) % 3 + 1}}
THIRDS = {"groups": np.arange(200) % 3}
QUICK = {
    "quantiles, too narrow": (_quantiles(0.5, 0), {}),
    "quantiles, too wide": (_quantiles(2, 0), {}),
    "quantiles, too low": (_quantiles(1, 0.7), {}),
    "quantiles, too high": (_quantiles(1, -0.7), {}),
    "quantiles, too low in one of five groups": (_quantiles(1, 1.2 * SECOND[:N]), COLUMNS),
}
SLOW = {
    "ensemble of equal members": (_ensemble(0, 0), {}),
    "ensemble, too narrow": (_ensemble(0.5, 0), {}),
    "ensemble, too wide": (_ensemble(2, 0), {}),
    "ensemble, too low": (_ensemble(1, -0.7), {}),
    "ensemble, too high": (_ensemble(1, 0.7), {}),
    "normal, too narrow": (_normal(1.6, 0), {}),
    "normal, too wide": (_normal(0.6, 0), {}),
    "normal, too low": (_normal(1, 0.5), {}),
    "normal, too high": (_normal(1, -0.5), {}),
    "normal, too low in one of three groups": (_normal(1, SECOND - SECOND.mean()), THIRDS),
    # The marginal distribution is right for every prediction, but the features say more.
    "normal, wrong given the features": ((PRIOR, LOC + NOISE), {"features": LOC}),
    "classes, overconfident": (_classes(1 / 2.5), {}),
    "classes, underconfident": (_classes(3), {}),
    "classes, wrong in one of three groups": (_classes(~SECOND[:, None]), THIRDS),
    "class c is too probable": (_classes(1, -2), {"class_names": [*"abcd"]}),
    "class c is too improbable": (_classes(1, 2), {"class_names": [*"abcd"]}),
    "two classes, overconfident": (_two(3), {}),
    "two classes, underconfident": (_two(1 / 3), {}),
    "two classes, the other one": (_two(-1), {}),
}
CASES = QUICK | SLOW | {name: (made, {}) for name, made in LEVELS.items()}


@pytest.mark.parametrize("name", [*QUICK, *LEVELS, *(pytest.param(x, marks=slow) for x in SLOW)])
def test_verdicts(name):
    """The sentences and the call of each advice: the first names what is wrong."""
    made, options = CASES[name]
    found = calibjax.evaluate(KEY, *made, **options)
    calls = (x.call.partition("\n")[0] for x in found.advice)
    golden.compare(name, [*found.sentences, *filter(None, calls)])
    if name in LEVELS:
        names = {x.name for x in found.entries if x.name.endswith("% quantiles")}
        levels = LEVELS[name][0].levels
        assert names == {f"coverage of the {100 * level:g} % quantiles" for level in levels}
        assert "central" not in str(found)


# Parts of the sections.
def test_scatter_of_a_mean():
    random = np.random.default_rng(1)
    residuals = random.normal(size=20) - 0.5
    error, p = scatter_of(residuals, np.ones(20))
    assert error == pytest.approx(residuals.std(ddof=1) / np.sqrt(20))
    assert p == pytest.approx(2 * scipy.stats.norm.sf(abs(residuals.mean()) / error))
    for same in (np.full(9, -0.5), np.full(9, np.float32(-0.1)) - 0.4):  # up to rounding
        assert scatter_of(same, np.ones(9)) == (0, 0)
    assert scatter_of(np.arange(9.0) - 3.5, np.arange(9) == 3) == (0, 0)


def test_tasks_of_other_families():
    floats, integers, ones = np.zeros(3), np.zeros(3, int), np.ones(3)
    several = distributions.Categorical(np.full((3, 2, 4), 0.25))
    two, drawn = distributions.Categorical(np.full((3, 2), 0.5)), distributions.Normal(floats, ones)
    assert task_of(two, integers) == "binary"
    assert task_of(distributions.Mixture(None, several), integers) == "classification"
    assert task_of(distributions.NegativeBinomial(ones, ones), integers) == "counts"
    assert task_of(distributions.monte_carlo(KEY, drawn, 2), floats) == "regression"


def test_classes_that_are_shown():
    probs = np.random.default_rng(0).dirichlet(np.linspace(0.1, 2, 30), 100)
    expected = np.sort(np.argsort(-probs.mean(0))[:20])
    for rows, shown in ((probs, expected), (np.full((12, 2), 0.5), [1])):
        labels = np.zeros(len(rows), int)
        data = checked_data(KEY, distributions.Categorical(rows), labels, None, None, None)
        np.testing.assert_array_equal(data.shown_classes, shown)


HALF, CERTAIN = np.full(12, 0.5), np.arange(12) % 2 * 1.0


@pytest.mark.parametrize(
    ("predictions", "is_idle"),
    [
        (distributions.Bernoulli(HALF), True),
        (distributions.Bernoulli(CERTAIN), True),
        (distributions.CategoricalLogits(np.full((12, 3), 3.3)), True),
        (distributions.Categorical(np.full((12, 3), 1 / 3)), True),
        (distributions.Bernoulli(np.where(CERTAIN == 1, HALF, CERTAIN)), True),
        (distributions.Bernoulli(np.where(np.arange(12) % 3 == 0, 0.2, 0.8)), False),
    ],
    ids=str,
)
def test_predictions_that_no_temperature_changes(predictions, is_idle):
    labels = (np.arange(12) % 4 > 0).astype(int)
    for is_double in (False, True):
        with jax.enable_x64(is_double):
            data = checked_data(KEY, predictions, labels, *[None] * 3)
            [section] = temperature(data).sections
        assert section.remark.startswith("The temperature does not exist: ") == is_idle
        assert (not section.entries) == is_idle


@pytest.mark.parametrize("binary", [True, False])
def test_impossible_outcomes_are_counted(binary):
    one, labels = np.where(np.arange(40) < 3, 0.0, 0.5), np.ones(40, int)
    rows = np.stack([1 - one, np.zeros(40), one], 1)
    predictions = distributions.Bernoulli(one) if binary else distributions.Categorical(rows)
    data = checked_data(KEY, predictions, labels + (not binary), None, None, None)
    [text] = proper_scores(data).warnings
    assert text == "3 of 40 samples had a predicted probability of 0 for what happened"


@pytest.mark.parametrize(("temperature", "is_wrong"), [(-1, True), (1e9, False), (2, False)])
def test_probabilities_of_the_other_class(temperature, is_wrong):
    """The area under the ROC curve is that of scikit-learn, with ties and weights."""
    predictions, labels = _two(temperature)
    probs, weights = predictions.probs.round(1), np.random.default_rng(0).uniform(0.2, 2, 200)
    data = checked_data(KEY, distributions.Bernoulli(probs), labels, None, None, weights)
    found = wrong_way(data)
    assert bool(found) == is_wrong
    if is_wrong:
        area = sklearn.metrics.roc_auc_score(labels, probs, sample_weight=weights)
        assert f"(area under the ROC curve {area:.2f}, p = " in found[0].text
        table = Section("", (Entry("x", 0.0, pvalue=0.01),))
        part = Part((table,), (Finding("x", "overconfident", "numbers"),))
        said, pvalues = _said(part)
        told = _sentences(100, part, [*found, *said], pvalues)
        assert told[0].startswith("Miscalibrated: the predictions go the wrong way. Class 1 is ")
        assert told[0].endswith("); it may be the probability of the other class.")
        assert told[1] == "Overconfident: numbers."
        assert _advice(part, [*found, *said]) == [record.OTHER_CLASS]


def test_reasons_are_words():
    """Without the name of an argument that the reader never wrote."""

    def separated():
        labels = distributions.Bernoulli(np.where(LABELS, 0.6, 0.4)), LABELS
        return recalibration.temperature_interval(*labels)

    entry = measured("temperature", separated, "f(x)")
    assert np.isnan(entry.value)
    assert entry.call == "f(x)"
    assert entry.note.startswith(
        "does not exist: it needs a minimum between T = 4.5e-05 and 2.2e+04, "
    )
    assert "2.2e+04, not the smallest value at T = " in entry.note


def test_scores_of_vectors():
    values = np.random.default_rng(0).normal(size=(20, 5, 2))
    data = checked_data(KEY, distributions.Ensemble(values), values[:, 0], None, None, None)
    [section] = proper_scores(data).sections
    [score] = section.entries
    distances = np.linalg.norm(values[:, :, None] - values[:, None], axis=-1)
    expected = distances[:, 0].mean() - distances.mean() / 2
    assert (score.name, score.value) == ("energy score", pytest.approx(expected, rel=1e-5))
