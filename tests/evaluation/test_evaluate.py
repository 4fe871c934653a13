"""`calibjax.evaluate`: every number by the call that its entry names, tasks, wrong input."""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions, kernels, scores
from calibjax.evaluation import sections
from calibjax.evaluation.data import checked_data, checked_groups, read_plainly
from calibjax.kernels import defaults
from calibjax.recalibration.local import Gain
from tests.compiled import num_compiled
from tests.evaluation import golden, samples

KEY = jax.random.key(5)
MODULES = ["distributions", "estimators", "hypothesis_tests", "kernels", "recalibration", "scores"]
MODULES = {name: getattr(calibjax, name) for name in MODULES} | {"jax": jax, "jnp": jnp, "key": KEY}
THREE = functools.partial(samples.classes, number=3)
TASKS = {
    "quantiles": samples.quantiles,
    "classification": THREE,
    "binary": samples.binary,
    "regression": samples.normals,
    "counts": samples.counts,
    "multivariate": samples.vectors,
    "ensembles": samples.ensembles,
}
N = 40
GROUPS = np.array(["a", "b"])[np.arange(N) % 2]
FEATURES = np.random.default_rng(3).normal(size=(N, 2))
WEIGHTS = np.random.default_rng(4).lognormal(size=N)


def _of_task(task, n=N):
    return TASKS[task](np.random.default_rng(2), n)


def _refuse_other_numbers(evaluation, predictions, targets, weights=None):
    predictions, targets = jax.tree.map(jnp.asarray, (predictions, targets))
    names = {"predictions": predictions, "targets": targets, "weights": weights}
    names |= MODULES | {"result": evaluation}
    entries = list(evaluation.entries)
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        if np.isnan(entry.value):
            with pytest.raises((ValueError, NotImplementedError)) as caught:
                eval(entry.call, names)
            assert str(caught.value).rpartition("got ")[2] in entry.note
            continue
        value, fields = eval(entry.call, names), ("standard_error", "low", "high")
        written = [getattr(entry, x) for x in fields] if hasattr(value, "low") else []
        found = [getattr(value, x) for x in fields] if hasattr(value, "low") else []
        value = value.mean if isinstance(value, Gain) else getattr(value, "estimate", value)
        for x, y in zip([value, *found], [entry.value, *written], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=entry.name)
        if entry.pvalue is not None and entry.by_chance is not None and entry.pvalue <= 0.05:
            assert not entry.by_chance[0] <= entry.value <= entry.by_chance[1], entry.name


def test_every_number_of_quantiles_by_the_call_it_names():
    predictions, targets = _of_task("quantiles")
    quantiles = calibjax.evaluate(KEY, predictions, targets, groups=GROUPS)
    _refuse_other_numbers(quantiles, predictions, targets)
    observed = np.mean((targets > predictions.values[:, 0]) & (targets <= predictions.values[:, 4]))
    entry = quantiles["coverage of the central 90 % intervals"]
    assert (entry.value, entry.expected) == (pytest.approx(observed), pytest.approx(0.9))
    assert [*quantiles.captions] == ["PIT histogram"]
    # Binomial(40, 0.9): 31.5 to 39.5 in 95 %, and all coverages at once in a wider range.
    assert 0.7 < entry.by_chance[0] < 0.79
    assert entry.by_chance[1] == 1
    for g, name in enumerate("ab"):
        entry = quantiles[f"coverage of the 50 % quantiles, group {name}"]
        pit = np.asarray(quantiles.arrays["pit"])[g::2] <= 0.5
        assert (entry.value, entry.expected) == (pytest.approx(pit.mean()), pytest.approx(0.5))
        error = pit.std(ddof=1) / np.sqrt(20)
        assert entry.high - entry.low == pytest.approx(2 * 1.96 * error)
    assert quantiles.description == "40 predictions, Quantiles: quantiles."


def test_levels_that_differ_between_samples():
    predictions, targets = _of_task("quantiles")
    levels = np.where(np.arange(N)[:, None] % 2, predictions.levels, predictions.levels**1.5)
    found = calibjax.evaluate(KEY, distributions.Quantiles(levels, predictions.values), targets)
    names = [entry.name for entry in found.entries]
    assert names == ["mean PIT value", "spread of the PIT values", "pinball loss"]
    assert [*found.captions] == ["PIT histogram"]


WEIGHTED = [pytest.param(x, WEIGHTS, marks=pytest.mark.slow) for x in TASKS]
QUICK = "binary", "ensembles"
SLOW = [pytest.param(x, None, marks=pytest.mark.slow) for x in TASKS if x not in QUICK]


@pytest.mark.parametrize(("task", "weights"), [*((x, None) for x in QUICK), *SLOW, *WEIGHTED])
def test_every_number_by_the_call_it_names(task, weights):
    data = _of_task(task)
    more = {"features": FEATURES, "groups": GROUPS, "weights": weights}
    evaluation = calibjax.evaluate(KEY, *data, **more)
    assert evaluation.task == json.loads(evaluation.to_json())["task"] == task
    told = f"40 predictions, {type(data[0]).__name__}: {task}"
    assert evaluation.description.startswith(told)
    assert ("with weights (effectively" in evaluation.description) == (weights is not None)
    _refuse_other_numbers(evaluation, *data, weights)
    assert all(entry.note or np.isfinite(entry.value) for entry in evaluation.entries)
    assert bool(evaluation.figures()) == (evaluation.task != "multivariate")
    titles = [section.title for section in evaluation.sections]
    assert ("Is the model calibrated?" in titles) == (task != "quantiles")
    assert {"Observed and predicted", "Groups", "Given the features", "Scores"} <= {*titles}


PROBS = np.array([0.1, 0.5, 1.0])
ROWS = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8]])
LABELS = np.array([0, 1, 1])
FEW = _of_task("quantiles", 9)
INSIDE = distributions.with_features(_of_task("quantiles")[0], np.zeros(N))
OF_MEMBERS = distributions.Ensemble(np.ones((N, 2)), np.full((N, 2), 0.5))


def _array(predictions, targets=LABELS, times=5):
    """Arguments that are arrays, with rows that are repeated."""
    repeated = (np.repeat(x, times, 0) for x in (predictions, targets))
    return dict(zip(("predictions", "targets"), repeated, strict=True))


WRONG = [
    dict(zip(("predictions", "targets"), FEW)),
    {"predictions": INSIDE},
    {"predictions": OF_MEMBERS},
    {"groups": np.zeros(39, int)},
    {"groups": {"sex": ["f", "m"]}},
    {"groups": {}},
    {"groups": np.zeros((40, 2))},
    {"groups": np.arange(40.0) / 7},
    {"groups": [None, *range(39)]},
    {"groups": ["a"] * 39 + [np.nan]},
    {"features": np.zeros(39)},
    {"features": np.zeros((40, 2))},
    {"features": np.full((40, 2), np.nan)},
    {"features": np.zeros((40, 2, 2))},
    {"features": "height"},
    {"weights": (np.arange(40) < 9) * 1.0},
    {"class_names": ["a"]},
    _array(ROWS) | {"class_names": [*"abb"]},
    _array(ROWS) | {"class_names": "abc"},
    _array(PROBS, np.array([0, 1, 2])),
    _array(PROBS, ROWS),
    _array(100 * PROBS),
    _array(3e3 * PROBS),
    _array(PROBS - 3),
    _array(9 * ROWS - 5),
    _array(np.array([0.5, np.nan, 1])),
    _array(PROBS[:, None]),
    {"predictions": [ROWS] * 2, "targets": LABELS[:2]},
    _array(ROWS[None]) | {"targets": LABELS[[0] * 5]},
    _array(LABELS),
    _array(PROBS, np.array([-1, 1, 1])),
    _array(PROBS, np.array([0, np.nan, 1])),
    _array(PROBS, np.array(["a", "b", "a"])),
    _array(ROWS, np.eye(3)),
    _array(ROWS, np.array([0.5, 1.0, 1.0])),
    _array(0.999 * ROWS),
]


def test_wrong_arguments_are_refused_by_name():
    """What is refused, in the words of the table."""
    predictions, targets = _of_task("quantiles")
    told = []
    for changes in WRONG:
        with pytest.raises((TypeError, ValueError)) as caught:
            calibjax.evaluate(
                **{"key": KEY, "predictions": predictions, "targets": targets} | changes
            )
        told.append(f"{caught.type.__name__}: {caught.value}".partition("\n")[0])
    golden.compare("wrong arguments", told)


def test_traced_values_are_refused():
    predictions, targets = _of_task("quantiles")
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda y: calibjax.evaluate(KEY, predictions, y).num_samples)(targets)


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray, np.float32, np.float16, list])
def test_arrays_of_probabilities(kind):
    for values, name in ((PROBS, "Bernoulli"), (ROWS, "Categorical")):
        found, how = read_plainly(kind(values), LABELS)
        assert how == f"distributions.{name}(predictions)"
        np.testing.assert_allclose(found.probs, values, rtol=1e-3)
    predictions = distributions.Bernoulli(PROBS)
    assert read_plainly(predictions, LABELS) == (predictions, "")
    assert read_plainly(PROBS, LABELS == 1)[1] == "distributions.Bernoulli(predictions)"


@pytest.mark.parametrize("tiny", [1e-60, 1e-300])
def test_logarithms_of_float64_are_taken_before_it_is_rounded(tiny):
    probs = np.array([tiny, 0.5, 0.5])
    for values in (probs, np.stack([1 - probs, probs], 1)):
        score = scores.negative_log_likelihood(read_plainly(values, LABELS[::-1])[0], LABELS[::-1])
        np.testing.assert_allclose(score, (2 * np.log(2) - np.log(tiny)) / 3, rtol=1e-6)


def test_groups_by_names_and_by_columns():
    """Two columns of a table both have a 2, which are not the same group."""
    memberships, names = checked_groups(["b", "a", "b"], 3)
    assert names == ("group a", "group b")
    np.testing.assert_array_equal(memberships, [[0, 1], [1, 0], [0, 1]])
    for integers in ([10, 2, 1], [*np.array([10, 2, 1])]):
        assert checked_groups(integers, 3)[1] == ("group 1", "group 2", "group 10")
    pandas = pytest.importorskip("pandas")
    columns = {"sex": ["f", "m", "f"], "ward": [2, 1, 2], "old": [False, True, True]}
    arrays = {name: np.array(column) for name, column in columns.items()}
    for table in (columns, arrays, pandas.DataFrame(columns)):
        memberships, names = checked_groups(table, 3)
        assert names == ("sex = f", "sex = m", "ward = 1", "ward = 2", "old = False", "old = True")
        expected = [[1, 0, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 0, 1]]
        np.testing.assert_array_equal(memberships, expected)
    with pytest.raises(ValueError, match="got <NA> in row 2; give these rows a group of their own"):
        checked_groups(["a", "b", pandas.NA], 3)


def test_advice_within_the_column_whose_groups_differ():
    rows = np.arange(200)
    groups = {"ward": rows // 2 % 2, "sex": np.array(["f", "m"])[rows % 2]}
    labels = (rows % 2 == 0) ^ (rows % 10 < 2)  # 80 % of f, 20 % of m
    data = checked_data(KEY, jnp.full(200, 0.5), labels.astype(int), None, groups, None)
    (advice,) = {x.advice for x in sections.mean_errors(data).findings if "sex" in x.word}
    assert 'numbers = result.arrays["memberships"][:, [2, 3]].argmax(1)' in advice.call


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification", "ensembles"])
def test_more_samples_than_all_pairs(task, monkeypatch):
    """Kernels of low rank, from fewer samples than by default."""
    monkeypatch.setattr(sections, "PAIRS", 100.0)
    for name, number in {"MANY": 30, "NUM_LANDMARKS": 20, "_NUM_SCALED": 25}.items():
        monkeypatch.setattr(defaults, name, number)
    evaluation = calibjax.evaluate(KEY, *_of_task(task), features=FEATURES)
    kernel = evaluation.other_kernels["features"].prediction
    assert isinstance(kernel, kernels.Nystrom)
    _refuse_other_numbers(evaluation, *_of_task(task))


@pytest.mark.slow
@pytest.mark.parametrize("family", [distributions.MvNormal, distributions.Dirichlet])
def test_draws_where_expectations_have_no_closed_form_or_no_features(family, monkeypatch):
    monkeypatch.setattr(sections, "FEW", 30)
    random = np.random.default_rng(0)
    predictions = distributions.Dirichlet(random.uniform(1, 5, (N, 3)))
    if family is distributions.MvNormal:
        predictions = family(random.normal(size=(N, 2)), np.tile(np.eye(2), (N, 1, 1)))
    targets = np.asarray(distributions.sample_targets(jax.random.key(1), predictions))
    evaluation = calibjax.evaluate(KEY, predictions, targets)
    remarks = " ".join(section.remark for section in evaluation.sections)
    assert "ensembles of 20 draws" in remarks
    _refuse_other_numbers(evaluation, predictions, targets)


@pytest.mark.slow
def test_names_of_classes_change_nothing_else():
    data, names, groups = _of_task("classification"), ["cat", "dog", "cow"], np.arange(N) % 2
    numbered = calibjax.evaluate(KEY, *data, groups=groups)
    named = calibjax.evaluate(KEY, *data, groups=groups, class_names=names)

    def renamed(text):
        return re.sub(r"class (\d)", lambda x: f"class {names[int(x[1])]}", text)

    assert list(named.sentences) == [renamed(x) for x in numbered.sentences]
    for entry, other in zip(named.entries, numbered.entries, strict=True):
        assert (entry.name, entry.call) == (renamed(other.name), other.call)
        np.testing.assert_equal(entry.value, other.value)


# Entries in the unit of the targets, by the beginning of their names, and its power.
POWERS = {"mean of the targets": 1, "CRPS": 1, "pinball loss": 1}


@pytest.mark.parametrize(
    "task",
    ["quantiles", *(pytest.param(x, marks=pytest.mark.slow) for x in ("regression", "ensembles"))],
)
def test_what_has_no_unit_does_not_depend_on_the_unit(task):
    """Also in float32."""

    def evaluated(unit):
        predictions, targets = _of_task(task, 60)
        fields = {"regression": ("loc", "scale")}.get(task, ("values",))
        levels = (predictions.levels,) if task == "quantiles" else ()
        fields = (unit * np.asarray(getattr(predictions, x)) for x in fields)
        with jax.enable_x64(False):
            scaled = type(predictions)(*levels, *fields), unit * 2 * targets
            return calibjax.evaluate(jax.random.key(0), *scaled, groups=np.arange(60) % 2)

    one = evaluated(1.0)
    for unit in (2.0**-40, 2.0**-20, 1e6, 2.0**40):
        other = evaluated(unit)
        for a, b in zip(one.entries, other.entries, strict=True):
            power = next((k for name, k in POWERS.items() if a.name.startswith(name)), 0)
            shift = -np.log(unit) if a.name == "negative log-likelihood" else 0
            for field in ("value", "expected", "standard_error", "low", "high", "pvalue"):
                x, y = getattr(a, field), getattr(b, field)
                assert (x is None) == (y is None), (a, b)
                if x is not None:
                    scale = 1 if field == "pvalue" else unit**power
                    moved = shift if field == "value" else 0
                    near = pytest.approx((x - moved) * scale, rel=2e-3, abs=1e-4 * scale)
                    assert y == near, (unit, a, b)
        # All but numbers in units of the targets.
        told = [re.sub(r"-?\d[\d.e+-]*", "#", " ".join(x.sentences)) for x in (one, other)]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    "kind",
    [
        samples.quantiles,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (samples.binary, samples.normals)),
    ],
)
def test_data_sets_of_other_lengths_share_their_programs(kind):
    """Of calibrated data, which all take the same way through the evaluation."""
    jax.clear_caches()  # programs of the tests before
    stages = []

    def evaluated(n):
        data, stages[:] = kind(np.random.default_rng(n), n), []
        calibjax.evaluate(KEY, *data, progress=lambda *stage: stages.append(stage))

    first = num_compiled(lambda: evaluated(58))
    assert [number for _, number, _ in stages] == list(range(len(stages)))
    assert {total for _, _, total in stages} == {len(stages)}
    assert num_compiled(lambda: evaluated(58)) == 0
    assert num_compiled(lambda: (evaluated(60), evaluated(64))) < first / 3
