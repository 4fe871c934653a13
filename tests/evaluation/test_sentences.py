"""What is said: sentences follow the p-values, name what is wrong, and have readable numbers."""

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
from calibjax.evaluation.data import (
    Finding,
    Part,
    checked_data,
    measured,
    scatter_of,
    shown_classes,
    task_of,
)
from calibjax.evaluation.record import Advice, Entry, Section, percent, percents, with_ends
from calibjax.evaluation.sections import proper_scores, temperature, wrong_way
from tests.evaluation import samples

KEY = jax.random.key(0)
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
                findings.append(Finding(entries[-1].name, word, text, is_last, advice))
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
        assert is_clean == (record.NOTHING in advice)
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
    options = {"advice": record.map_of_classes(100), "is_repaired": True}
    findings = (Finding("x", "overconfident", "numbers", **options),)
    repair = ((record.TEMPERATURE, "Temperature 1.3 lowers it"),)
    told, advice, _ = _judged(Part((section,), findings, repair=repair))
    assert told[1] == "Temperature 1.3 lowers it."
    assert advice == [record.TEMPERATURE]
    assert _judged(Part((section,), findings))[1] == [record.map_of_classes(100)]


def test_numbers_of_sentences():
    assert percents(0.953, 0.96) == ("95.3 %", "96.0 %")
    assert percents(0.9, 0.8) == ("90 %", "80 %")
    assert percents(5e-5, 25e-5) == ("0.01 %", "0.03 %")
    assert percents(5e-5, 5e-5) == ("0 %", "0 %")
    assert with_ends(0.579, 0.383, 0.775) == ["0.58", "0.38", "0.78"]
    assert with_ends(0.0036, -0.107, 0.116) == ["0.004", "-0.107", "0.116"]
    random = np.random.default_rng(0)
    for share in np.concatenate([random.normal(scale=1e-4, size=1000), [-1e-9, 0.0, -0.0]]):
        for text in (percent(share), *percents(share, share + random.normal(scale=1e-3))):
            assert not re.match(r"-0(\.0*)? %", text), (share, text)


@pytest.mark.slow
def test_advised_calls_run():
    of_classes = [record.GROUPS, record.TEMPERATURE]
    of_classes += [record.map_of_classes(100), record.map_of_classes(5000)]
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
NARROW, WIDE = (f"the predicted distributions are too {x}. The " for x in ("narrow", "wide"))
HIGHER, LOWER = (f"the targets are {x} than predicted" for x in ("higher", "lower"))
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


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (
            _one_sided([0.9, 0.95, 0.99], [0.7, 0.74, 0.79]),
            "the 95 % quantiles are too low. 74.2 %",
        ),
        (
            _one_sided([0.95], [0.7]),
            "the 95 % quantiles are too low. 70 % of the targets are at mo",
        ),
        (_one_sided([0.9, 0.99], [0.8, 0.9]), "the 99 % quantiles are too low. 90 % of the"),
        (_one_sided([0.05], [0.3]), "the 5 % quantiles are too high. 30 % of the targets are at m"),
        (_one_sided([0.9, 0.99], [0.9, 0.99]), ""),
        (_quantiles(0.5, 0), f"{NARROW}central 80 % intervals contain"),
        (_quantiles(2, 0), f"{WIDE}central 80 % intervals contain 9"),
        (_quantiles(1, 0.7), "the 50 % quantiles are too low. "),
        (_quantiles(1, -0.7), "the 50 % quantiles are too high. "),
        *(
            pytest.param(made, verdict, marks=slow)
            for made, verdict in [
                (_ensemble(0, 0), f"{NARROW}central"),
                (_ensemble(0.5, 0), f"{NARROW}central"),
                (_ensemble(2, 0), f"{WIDE}central"),
                (_ensemble(1, -0.7), f"{HIGHER}. Their mean rank within the predictions"),
                (_ensemble(1, 0.7), f"{LOWER}. Their mean rank within the predictions"),
                (_normal(1.6, 0), f"{NARROW}errors are 1.6"),
                (_normal(0.6, 0), f"{WIDE}errors are 0.6"),
                (_normal(1, 0.5), f"{HIGHER}, by 0."),
                (_normal(1, -0.5), f"{LOWER}, by 0."),
                (_classes(1 / 2.5), "overconfident. Mean confidence 69.7 %, ac"),
                (_classes(3), "underconfident. Mean confidence 69.7 %, ac"),
                (_two(3), "overconfident. Mean confidence "),
                (_two(1 / 3), "underconfident. Mean confidence "),
                (_two(-1), "the predictions go the wrong way. Class 1 is less frequent where its "),
            ]
        ),
    ],
    ids=lambda x: x[:50] if isinstance(x, str) else type(x[0]).__name__,
)
def test_verdicts(made, verdict):
    found = calibjax.evaluate(KEY, *made)
    told = " ".join(found.sentences)
    assert not any(x in told for x in ("nan", "-0 %", "-0.0 %", " 0 perc"))
    start = f"Miscalibrated: {verdict}" if verdict else "No miscalibration was found in 120 pred"
    assert found.sentences[0].startswith(start)
    advices = " ".join(x.text + x.call for x in found.advice)
    if isinstance(made[0], distributions.Quantiles) and made[1] is EXACT:
        names = {x.name for x in found.entries if x.name.endswith("% quantiles")}
        levels = made[0].levels
        assert names == {f"coverage of the {100 * level:g} % quantiles" for level in levels}
        assert "central" not in str(found)
        assert not verdict or "QuantileShift()" in advices
    if "confident" in verdict:
        assert any(x.startswith("Temperature ") for x in found.sentences)
        assert "TemperatureScaling()" in advices
    assert "class" not in advices or "confident" in verdict


def test_groups_of_two_columns_are_named():
    pandas = pytest.importorskip("pandas")
    predictions, targets = _quantiles(1, 1.2 * SECOND[:N])
    table = pandas.DataFrame({"sex": ["f", "m"] * (N // 2), "ward": np.arange(N) % 3 + 1})
    found = calibjax.evaluate(KEY, predictions, targets, groups=table)
    told = " ".join(found.sentences)
    assert "the 50 % quantiles are too low in ward = 2" in told
    assert not any(name in told for name in ("ward = 1", "ward = 3", "sex = f", "sex = m"))
    assert "5 groups" in found.description


@pytest.mark.slow
def test_groups_classes_and_features_are_named():
    def told(samples, **more):
        return " ".join(calibjax.evaluate(KEY, *samples, **more).sentences)

    groups = np.arange(200) % 3
    text = told(_normal(1, SECOND - SECOND.mean()), groups=groups)
    assert text.startswith(f"Miscalibrated: {HIGHER} in group 1, by ")
    text = told(_classes(~SECOND[:, None]), groups=groups)
    assert "Overconfident in group 1: mean confidence" in text
    assert not any(f"verconfident in group {g}" in text for g in (0, 2))
    for shift, kind in ((-2, "over"), (2, "under")):
        text = told(_classes(1, shift), class_names=[*"abcd"])
        assert f"class c is {kind}estimated" in text.replace("Class c", "class c")
    # The marginal distribution is right for every prediction, but the features say more.
    prior = distributions.Normal(np.zeros(200), np.full(200, np.sqrt(2.0)))
    text = told((prior, LOC + NOISE), features=LOC)
    words = "wrong given the features. Samples with similar features share the same error."
    assert text == f"Miscalibrated: {words}"


# Parts of the sections.
def test_what_does_not_exist():
    def refuse():
        raise ValueError("x: expected more")

    entry = measured("error", refuse, "f(x)")
    assert np.isnan(entry.value)
    assert (entry.call, entry.note) == ("f(x)", "does not exist: x: expected more")


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
    np.testing.assert_array_equal(shown_classes(probs), expected)
    assert shown_classes(np.full((3, 2), 0.5)) == [1]


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
        assert section.remark.startswith("No temperature ") == is_idle
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
        told = _sentences(DATA, part, [*found, *said], pvalues)
        assert told[0].startswith("Miscalibrated: the predictions go the wrong way. Class 1 is ")
        assert told[0].endswith("); is it the probability of the other class?")
        assert told[1] == "Overconfident: numbers."
        assert _advice(part, [*found, *said]) == [record.OTHER_CLASS]


def test_reasons_are_words():
    """Without the name of an argument that the reader never wrote."""

    def separated():
        labels = distributions.Bernoulli(np.where(LABELS, 0.6, 0.4)), LABELS
        return recalibration.temperature_interval(*labels)

    entry = measured("temperature", separated, "")
    assert entry.note.startswith(
        "does not exist: it needs a minimum between T = 4.5e-05 and 2.2e+04, "
    )
    assert "2.2e+04, not the smallest value at T = " in entry.note


def test_scores_of_vectors():
    values = np.random.default_rng(0).normal(size=(20, 5, 2))
    data = checked_data(KEY, distributions.Ensemble(values), values[:, 0], None, None, None)
    [section] = proper_scores(data).sections
    score, error = section.entries
    distances = np.linalg.norm(values[:, :, None] - values[:, None], axis=-1)
    expected = distances[:, 0].mean() - distances.mean() / 2
    assert (score.name, score.value) == ("energy score", pytest.approx(expected, rel=1e-5))
    assert error.name == "mean squared error"
