"""`calibjax.evaluate`: every number by the call that its entry names, tasks, wrong input."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import calibjax
from calibjax import distributions
from calibjax.evaluation import kernel_tests
from calibjax.kernels import defaults
from calibjax.recalibration.local import Gain
from tests.evaluation import samples

KEY = jax.random.key(5)
MODULES = ["distributions", "estimators", "hypothesis_tests", "kernels", "recalibration", "scores"]
MODULES = {name: getattr(calibjax, name) for name in MODULES}
TASKS = {
    "quantiles": (samples.quantiles, "quantile forecasts"),
    "classification": (
        functools.partial(samples.classes, number=3),
        "classification with 3 classes",
    ),
    "binary": (samples.binary, "binary classification"),
    "regression": (samples.normals, "regression (distributions of numbers)"),
    "counts": (samples.counts, "counts"),
    "multivariate": (samples.vectors, "regression with vectors as targets"),
    "ensembles": (samples.ensembles, "ensembles of 10 members"),
}
N = 40
GROUPS = np.array(["a", "b"])[np.arange(N) % 2]
FEATURES = np.random.default_rng(3).normal(size=(N, 2))
WEIGHTS = np.random.default_rng(4).lognormal(size=N)


def _of_task(task, n=N):
    return TASKS[task][0](np.random.default_rng(2), n)


@pytest.fixture(scope="module")
def quantiles():
    with jax.enable_x64(True):
        return calibjax.evaluate(KEY, *_of_task("quantiles"), groups=GROUPS)


def _recomputed(evaluation, entry, names):
    """What the call of an entry returns, with the value in the first place."""
    value = eval(entry.call, {**MODULES, "jax": jax, "jnp": jnp, "key": KEY, **names})
    if hasattr(value, "pvalue"):
        return value.pvalue, value.pvalue_standard_error
    if hasattr(value, "estimate"):
        return value.estimate, value.standard_error, value.low, value.high
    if isinstance(value, Gain):
        return value.mean, value.standard_error, value.low, value.high
    return (value,)


def _refuse_other_numbers(evaluation, predictions, targets, weights=None):
    predictions, targets = jax.tree.map(jnp.asarray, (predictions, targets))
    names = {"predictions": predictions, "targets": targets, "weights": weights}
    names["result"] = evaluation
    entries = list(evaluation.entries)
    assert len({entry.name for entry in entries}) == len(entries)
    for entry in entries:
        if not entry.call:  # levels of whole numbers
            assert "coverage" in entry.name
            continue
        if np.isnan(entry.value):
            with pytest.raises((ValueError, NotImplementedError)) as caught:
                _recomputed(evaluation, entry, names)
            assert str(caught.value).splitlines()[0] in entry.note
            continue
        found = _recomputed(evaluation, entry, names)
        written = (entry.value, entry.standard_error, entry.low, entry.high)
        for number, expected in zip(found, written):
            np.testing.assert_allclose(number, expected, rtol=1e-5, atol=1e-6, err_msg=entry.name)
        if entry.pvalue is not None and entry.by_chance is not None and entry.pvalue <= 0.05:
            assert not entry.by_chance[0] <= entry.value <= entry.by_chance[1], entry.name


def test_every_number_of_quantiles_by_the_call_it_names(quantiles):
    _refuse_other_numbers(quantiles, *_of_task("quantiles"))


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("task", TASKS)
def test_every_number_by_the_call_it_names(task, weights):
    data = _of_task(task)
    more = {"features": FEATURES, "groups": GROUPS, "weights": weights}
    evaluation = calibjax.evaluate(KEY, *data, **more)
    assert evaluation.task == json.loads(evaluation.to_json())["task"] == task
    told = f"40 predictions, {type(data[0]).__name__}: {TASKS[task][1]}, 2 groups, 2 features"
    assert evaluation.description.startswith(told)
    assert ("with weights (effectively" in evaluation.description) == (weights is not None)
    _refuse_other_numbers(evaluation, *data, weights)
    assert all(entry.note or np.isfinite(entry.value) for entry in evaluation.entries)
    assert evaluation.figures()
    titles = [section.title for section in evaluation.sections]
    assert ("Is the model calibrated?" in titles) == (task != "quantiles")
    assert {"Observed and predicted", "Groups", "Given the features", "Scores"} <= {*titles}


def test_coverage_and_chance_of_quantiles(quantiles):
    predictions, targets = _of_task("quantiles")
    observed = np.mean((targets > predictions.values[:, 0]) & (targets <= predictions.values[:, 4]))
    entry = quantiles["coverage of the central 90 % intervals"]
    assert (entry.value, entry.expected) == (pytest.approx(observed), pytest.approx(0.9))
    assert [*quantiles.captions] == ["PIT histogram", "coverage", "errors in groups"]
    low, high = entry.by_chance
    # Binomial(40, 0.9): 31.5 to 39.5 in 95 %, and all coverages at once in a wider range.
    assert 0.7 < low < 0.79
    assert high == 1


def test_groups_by_name(quantiles):
    for g, name in enumerate("ab"):
        entry = quantiles[f"coverage of the 50 % quantiles, group {name}"]
        pit = np.asarray(quantiles.arrays["pit"])[g::2] <= 0.5
        assert (entry.value, entry.expected) == (pytest.approx(pit.mean()), pytest.approx(0.5))
        error = pit.std(ddof=1) / np.sqrt(20)
        assert entry.high - entry.low == pytest.approx(2 * 1.96 * error)
    assert quantiles.description == "40 predictions, Quantiles: quantile forecasts, 2 groups."


FEW = _of_task("quantiles", 9)
INSIDE = distributions.with_features(_of_task("quantiles")[0], np.zeros(N))
OF_MEMBERS = distributions.Ensemble(np.ones((N, 2)), np.full((N, 2), 0.5))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"key": 3}, TypeError, "^key: expected"),
        ({"targets": np.zeros(39)}, ValueError, "^targets: expected"),
        ({"targets": np.full(40, np.nan)}, ValueError, "^targets: expected finite"),
        (dict(zip(("predictions", "targets"), FEW)), ValueError, "^predictions: expected at least"),
        ({"predictions": INSIDE}, TypeError, "pass the features as the argument features"),
        ({"predictions": OF_MEMBERS}, ValueError, r"^predictions.weights: expected None"),
        ({"groups": np.zeros(39, int)}, ValueError, r"^groups: expected shape \[n\]"),
        ({"groups": np.zeros((40, 2))}, ValueError, "^members of groups: expected at least one"),
        ({"features": np.zeros(39)}, ValueError, "^features"),
        ({"features": np.zeros((40, 2))}, ValueError, "^features: expected features that differ"),
        ({"features": np.full((40, 2), np.nan)}, ValueError, "^features: expected finite"),
        ({"features": np.zeros((40, 2, 2))}, ValueError, r"^features: expected an array \[n\]"),
        ({"features": "height"}, TypeError, "^features"),
        ({"weights": np.ones(39)}, ValueError, "^weights: expected shape"),
        ({"weights": np.full(40, -1)}, ValueError, "^weights: expected finite weights >= 0"),
        ({"weights": (np.arange(40) < 9) * 1.0}, ValueError, "^weights: expected at least 10"),
        ({"class_names": ["a"]}, ValueError, "class_names: expected None for the task quantiles"),
    ],
)
def test_wrong_arguments_are_refused_by_name(changes, error, message):
    predictions, targets = _of_task("quantiles")
    arguments = {"key": KEY, "predictions": predictions, "targets": targets} | changes
    with pytest.raises(error, match=message):
        calibjax.evaluate(**arguments)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"], "abc"])
def test_wrong_names_of_classes(names):
    with pytest.raises(ValueError, match="class_names: expected 3 different names"):
        calibjax.evaluate(KEY, *_of_task("classification"), class_names=names)


def test_traced_values_are_refused():
    predictions, targets = _of_task("quantiles")
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda y: calibjax.evaluate(KEY, predictions, y).num_samples)(targets)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification", "ensembles"])
def test_more_samples_than_all_pairs(task, monkeypatch):
    """Kernels of low rank, from fewer samples than by default."""
    monkeypatch.setattr(kernel_tests, "PAIRS", 100.0)
    for name, number in {"MANY": 30, "NUM_LANDMARKS": 20, "_NUM_SCALED": 25}.items():
        monkeypatch.setattr(defaults, name, number)
    evaluation = calibjax.evaluate(KEY, *_of_task(task), features=FEATURES)
    assert "landmarks" in " ".join(section.remark for section in evaluation.sections)
    _refuse_other_numbers(evaluation, *_of_task(task))


@pytest.mark.slow
@pytest.mark.parametrize("family", [distributions.MvNormal, distributions.Dirichlet])
def test_draws_where_expectations_have_no_closed_form_or_no_features(family, monkeypatch):
    monkeypatch.setattr(kernel_tests, "FEW", 30)
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
@pytest.mark.parametrize("probs", [np.full(60, 0.5), np.arange(60) % 2 * 1.0])
def test_predictions_that_no_temperature_changes(probs):
    targets = (probs > 0.5).astype(int)
    targets[:12] = 1 - targets[:12]
    evaluation = calibjax.evaluate(KEY, distributions.Bernoulli(probs), targets)
    assert evaluation.sentences[0].startswith("Miscalibrated: ")
    assert "No temperature changes these predictions" in str(evaluation)
    assert "nan" not in " ".join(evaluation.sentences)
    assert all(np.isfinite(x.value) or x.pvalue is None for x in evaluation.entries)


@pytest.mark.slow
def test_names_of_classes_change_nothing_else():
    data, names, groups = _of_task("classification"), ["cat", "dog", "cow"], np.arange(N) % 2
    numbered = calibjax.evaluate(KEY, *data, groups=groups)
    named = calibjax.evaluate(KEY, *data, groups=groups, class_names=names)

    def renamed(text):
        for i, name in enumerate(names):
            text = text.replace(f"class {i}", f"class {name}")
        return text

    assert list(named.sentences) == [renamed(x) for x in numbered.sentences]
    for entry, other in zip(named.entries, numbered.entries, strict=True):
        assert (entry.name, entry.call) == (renamed(other.name), other.call)
        np.testing.assert_equal(entry.value, other.value)
    [panel] = [x for x in named.panels if x.name == "errors in groups"]
    shown = [x.get_text() for x in panel.draw().get_xticklabels()]
    assert shown == ["class cat", "class dog", "class cow", "accuracy - confidence"]
    error = named["accuracy, group 0"].difference
    assert panel.shown.estimate[1, -1] == pytest.approx(error, abs=1e-6)
