"""`calibjax.evaluate`: every number by the call that its entry names, tasks, wrong input."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import calibjax
from calibjax import distributions
from calibjax.recalibration.local import Gain

KEY = jax.random.key(5)
MODULES = {
    name: getattr(calibjax, name)
    for name in (
        "distributions",
        "estimators",
        "select_recalibration",
        "hypothesis_tests",
        "kernels",
        "recalibration",
        "scores",
    )
}


def _quantiles(n=40):
    random = np.random.default_rng(0)
    loc = random.normal(size=n)
    levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    values = loc[:, None] + np.array([-1.28, -0.67, 0.0, 0.67, 1.28])
    return distributions.Quantiles(levels, values), loc + random.normal(size=n)


def _normals(n=60, spread=1.0, shift=0.0, seed=0):
    random = np.random.default_rng(seed)
    loc, scale = random.uniform(size=n), np.full(n, 0.1)
    targets = loc + 0.1 * (shift + spread * random.normal(size=n))
    return distributions.Normal(loc, scale), targets


def _classes(n=80, m=3, temperature=1.0, seed=0):
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=(n, m))
    noise = random.gumbel(size=(n, m))
    return distributions.CategoricalLogits(logits), np.argmax(logits / temperature + noise, 1)


def _of_task(task):
    random = np.random.default_rng(2)
    n = 40
    if task == "quantiles":
        return _quantiles(n)
    if task == "classification":
        return _classes(n)
    if task == "binary":
        probs = random.uniform(size=n)
        return distributions.Bernoulli(probs), (random.uniform(size=n) < probs).astype(int)
    if task == "regression":
        predictions, targets = _normals(n)
        return distributions.Normal(predictions.loc, random.uniform(0.05, 0.2, n)), targets
    if task == "counts":
        rate = random.uniform(1, 6, n)
        return distributions.Poisson(rate), random.poisson(rate)
    if task == "multivariate":
        loc = random.normal(size=(n, 2))
        return distributions.DiagNormal(loc, np.ones((n, 2))), loc + random.normal(size=(n, 2))
    values = random.normal(size=(n, 1)) + random.normal(size=(n, 6))
    return distributions.Ensemble(values[:, 1:]), values[:, 0]


TASKS = [
    "quantiles",
    "classification",
    "binary",
    "regression",
    "counts",
    "multivariate",
    "ensembles",
]
GROUPS = np.array(["a", "b"])[np.arange(40) % 2]
FEATURES = np.random.default_rng(3).normal(size=(40, 2))
WEIGHTS = np.random.default_rng(4).lognormal(size=40)


@pytest.fixture(scope="module")
def quantiles():
    with jax.enable_x64(True):
        return calibjax.evaluate(KEY, *_quantiles(), groups=GROUPS)


def _recomputed(evaluation, predictions, targets, entry, weights=None):
    """What the call of an entry returns, with the value in the first place."""
    names = {"jax": jax, "jnp": jnp, "key": KEY, "result": evaluation, "weights": weights}
    names |= {"predictions": predictions, "targets": targets}
    value = eval(entry.function, {**MODULES, **names})
    if hasattr(value, "pvalue"):
        return value.pvalue, value.pvalue_standard_error
    if hasattr(value, "estimate"):
        return value.estimate, value.standard_error, value.low, value.high
    if isinstance(value, Gain):
        return value.mean, value.standard_error, value.low, value.high
    return (value,)


def _refuse_other_numbers(evaluation, predictions, targets, weights=None):
    predictions, targets = jax.tree.map(jnp.asarray, (predictions, targets))
    assert len({entry.name for entry in evaluation.entries}) == len(list(evaluation.entries))
    for entry in evaluation.entries:
        if np.isnan(entry.value):
            with pytest.raises((ValueError, NotImplementedError)) as caught:
                _recomputed(evaluation, predictions, targets, entry, weights)
            assert str(caught.value).splitlines()[0] in entry.note
            continue
        found = _recomputed(evaluation, predictions, targets, entry, weights)
        written = (entry.value, entry.standard_error, entry.low, entry.high)
        for number, expected in zip(found, written):
            np.testing.assert_allclose(number, expected, rtol=1e-5, atol=1e-7, err_msg=entry.name)


def test_every_number_of_quantiles_by_the_call_it_names(quantiles):
    _refuse_other_numbers(quantiles, *_quantiles())


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("task", TASKS)
def test_every_number_by_the_call_it_names(task, weights):
    predictions, targets = _of_task(task)
    evaluation = calibjax.evaluate(
        KEY, predictions, targets, features=FEATURES, groups=GROUPS, weights=weights
    )
    assert evaluation.task == task
    assert evaluation.num_samples == 40
    assert json.loads(evaluation.to_json())["task"] == task
    assert (
        str(evaluation).split()[-1]
        == (evaluation.advice[-1].call or evaluation.advice[-1].text).split()[-1]
    )
    _refuse_other_numbers(evaluation, predictions, targets, weights)
    if any(e.pvalue is not None and e.by_chance is not None for e in evaluation.entries):
        refuse_ranges_that_contradict(evaluation)
    assert all(entry.note or np.isfinite(entry.value) for entry in evaluation.entries)
    if task != "quantiles":
        assert "exact p-value" in {entry.name for entry in evaluation.entries}
        assert evaluation.figures()


def test_coverage_and_chance_of_quantiles(quantiles):
    predictions, targets = _quantiles()
    observed = np.mean((targets > predictions.values[:, 0]) & (targets <= predictions.values[:, 4]))
    entry = quantiles["coverage of the central 80 % intervals"]
    assert entry.value == pytest.approx(observed)
    low, high = entry.by_chance
    # Binomial(40, 0.8): 26.5 to 37.5 in 95 %, and all coverages at once in a wider range.
    assert 0.56 < low < 0.66
    assert 0.94 < high <= 1
    refuse_ranges_that_contradict(quantiles)


def refuse_ranges_that_contradict(evaluation):
    """A value is outside of its range if and only if its adjusted p-value is at most 0.05."""
    judged = [e for e in evaluation.entries if e.pvalue is not None and e.by_chance is not None]
    assert judged
    for entry in judged:
        low, high = entry.by_chance
        assert (entry.pvalue <= 0.05) == (not low <= entry.value <= high), entry


def test_groups_by_name(quantiles):
    targets_below = np.asarray(quantiles.arrays["pit"])
    for g, name in enumerate("ab"):
        entry = quantiles[f"mean PIT - 1/2, group {name}"]
        own = targets_below[g::2]
        assert entry.value == pytest.approx(own.mean() - 0.5)
        error = own.std(ddof=1) / np.sqrt(20)
        assert entry.high - entry.low == pytest.approx(2 * 1.96 * error)


def test_figures_of_quantiles(quantiles):
    pytest.importorskip("matplotlib")
    names = ["PIT histogram", "coverage", "errors in groups"]
    assert list(quantiles.figures()) == list(quantiles.captions) == names
    assert [ax.get_title() for ax in quantiles.figure().axes][:3] == names


def test_one_quantile():
    predictions, targets = _quantiles()
    one = distributions.Quantiles(predictions.levels[:1], predictions.values[:, :1])
    evaluation = calibjax.evaluate(KEY, one, targets)
    assert list(evaluation.captions) == ["PIT histogram"]
    observed = np.mean(targets <= predictions.values[:, 0])
    assert evaluation["coverage of the 10 % quantiles"].value == pytest.approx(observed)


def test_description(quantiles):
    assert quantiles.description == "40 predictions, Quantiles: quantile forecasts, 2 groups."


def _evaluated(**changes):
    predictions, targets = _quantiles()
    arguments = {"key": KEY, "predictions": predictions, "targets": targets} | changes
    key, predictions, targets = (arguments.pop(name) for name in ("key", "predictions", "targets"))
    return calibjax.evaluate(key, predictions, targets, **arguments)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"key": 3}, TypeError, "^key: expected"),
        ({"predictions": np.ones((40, 3))}, ValueError, "^predictions.probs.*rows that sum to one"),
        ({"targets": np.zeros(39)}, ValueError, "^targets: expected"),
        ({"targets": np.full(40, np.nan)}, ValueError, "^targets: expected finite"),
        ({"groups": np.zeros(39, int)}, ValueError, r"^groups: expected shape \[n\]"),
        ({"groups": np.zeros((40, 2, 2))}, ValueError, r"^groups: expected shape \[n\]"),
        ({"groups": np.linspace(0, 1, 40)}, TypeError, "^groups: expected integers or strings"),
        ({"groups": np.array(["a", None] * 20)}, TypeError, "^groups: expected integers or"),
        ({"groups": np.zeros((40, 2))}, ValueError, "^members of groups: expected at least one"),
        ({"features": np.zeros(39)}, ValueError, "^features"),
        ({"features": np.zeros((40, 2))}, ValueError, "^features: expected features that differ"),
        ({"features": np.full((40, 2), np.nan)}, ValueError, "^features: expected finite"),
        ({"features": np.zeros((40, 2, 2))}, ValueError, r"^features: expected an array \[n\]"),
        ({"features": "height"}, TypeError, "^features"),
        ({"weights": np.ones(39)}, ValueError, "^weights: expected shape"),
        ({"weights": np.full(40, -1)}, ValueError, "^weights: expected finite weights >= 0"),
        ({"weights": np.arange(40) < 9}, ValueError, "^weights: expected at least 10"),
        ({"weights": (np.arange(40) < 9) * 1.0}, ValueError, "^weights: expected at least 10"),
    ],
)
def test_wrong_arguments_are_refused_by_name(changes, error, message):
    with pytest.raises(error, match=message):
        _evaluated(**changes)


def test_few_samples_are_refused():
    predictions, targets = _quantiles(9)
    with pytest.raises(ValueError, match="^predictions: expected at least 10"):
        calibjax.evaluate(KEY, predictions, targets)


def test_features_within_predictions_are_refused():
    predictions, targets = _normals(12)
    predictions = distributions.with_features(predictions, np.zeros(12))
    with pytest.raises(TypeError, match="pass the features as the argument features"):
        calibjax.evaluate(KEY, predictions, targets)


def test_weights_of_ensembles_are_refused():
    values = np.random.default_rng(0).normal(size=(12, 4))
    weights = np.tile([0.5, 0.25, 0.25], (12, 1))
    with pytest.raises(ValueError, match=r"^predictions.weights: expected None"):
        calibjax.evaluate(KEY, distributions.Ensemble(values[:, 1:], weights), values[:, 0])


def test_traced_values_are_refused():
    predictions, targets = _quantiles()
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda y: calibjax.evaluate(KEY, predictions, y).num_samples)(targets)


def _told(predictions, targets, **more):
    return " ".join(calibjax.evaluate(KEY, predictions, targets, **more).sentences)


@pytest.mark.slow
def test_overconfident_and_underconfident_classes():
    too_sure = _told(*_classes(600, 4, temperature=1.8))
    assert too_sure.startswith("The model is not calibrated")
    assert "It is overconfident" in too_sure
    not_sure = _told(*_classes(600, 4, temperature=0.5))
    assert "It is underconfident" in not_sure


@pytest.mark.slow
def test_shifted_narrow_and_wide_normals():
    up, down = _told(*_normals(300, shift=0.4)), _told(*_normals(300, shift=-0.4))
    assert "The targets are higher than predicted" in up
    assert "The targets are lower than predicted" in down
    assert "too narrow" not in up + down
    assert "too wide" not in up + down
    assert "too narrow" in _told(*_normals(300, spread=1.5))
    assert "too wide" in _told(*_normals(300, spread=0.6))


@pytest.mark.slow
def test_one_group_off():
    predictions, targets = _normals(400)
    groups = np.arange(400) % 4
    told = _told(predictions, targets + 0.08 * (groups == 2), groups=groups)
    assert "In group 2 the targets are higher than predicted" in told
    assert not any(f"In group {g} " in told for g in (0, 1, 3))


@pytest.mark.slow
def test_wrong_given_the_features():
    """The marginal distribution is right for every prediction, but the features say more."""
    random = np.random.default_rng(1)
    features = random.normal(size=400)
    targets = features + random.normal(size=400)
    prior = distributions.Normal(np.zeros(400), np.full(400, np.sqrt(2.0)))
    told = _told(prior, targets, features=features)
    assert "Samples with similar features share the same error" in told


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification", "ensembles"])
def test_more_samples_than_all_pairs(task, monkeypatch):
    """Kernels of low rank, from fewer samples than by default."""
    from calibjax.evaluation import kernel_tests
    from calibjax.kernels import defaults

    monkeypatch.setattr(kernel_tests, "PAIRS", 100.0)
    monkeypatch.setattr(defaults, "MANY", 30)
    monkeypatch.setattr(defaults, "NUM_LANDMARKS", 20)
    monkeypatch.setattr(defaults, "_NUM_SCALED", 25)
    predictions, targets = _of_task(task)
    evaluation = calibjax.evaluate(KEY, predictions, targets, features=FEATURES)
    assert "landmarks" in evaluation.sections[0].remark
    _refuse_other_numbers(evaluation, predictions, targets)


@pytest.mark.slow
def test_draws_where_there_are_no_features(monkeypatch):
    from calibjax.evaluation import kernel_tests

    monkeypatch.setattr(kernel_tests, "FEW", 30)
    random = np.random.default_rng(0)
    predictions = distributions.DiagNormal(random.normal(size=(40, 2)), np.ones((40, 2)))
    targets = np.asarray(distributions.sample_targets(jax.random.key(1), predictions))
    evaluation = calibjax.evaluate(KEY, predictions, targets)
    assert "ensembles of 20 draws" in evaluation.sections[0].remark
    _refuse_other_numbers(evaluation, predictions, targets)


@pytest.mark.slow
def test_monte_carlo_where_expectations_have_no_closed_form():
    random = np.random.default_rng(0)
    predictions = distributions.Dirichlet(random.uniform(1, 5, (40, 3)))
    targets = np.asarray(distributions.sample_targets(jax.random.key(1), predictions))
    evaluation = calibjax.evaluate(KEY, predictions, targets)
    assert "ensembles of 20 draws" in evaluation.sections[0].remark
    _refuse_other_numbers(evaluation, predictions, targets)


@pytest.mark.slow
@pytest.mark.parametrize("probs", [np.full(60, 0.5), np.arange(60) % 2 * 1.0])
def test_predictions_that_no_temperature_changes(probs):
    targets = (probs > 0.5).astype(int)
    targets[:12] = 1 - targets[:12]
    evaluation = calibjax.evaluate(KEY, distributions.Bernoulli(probs), targets)
    told = " ".join(evaluation.sentences)
    assert told.startswith("The model is not calibrated")
    assert "No temperature changes these predictions" in told
    assert "nan" not in told
    assert all(np.isfinite(x.value) or x.pvalue is None for x in evaluation.entries)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("binary", ["class 1", "accuracy - confidence"]),
        ("classification", ["class 0", "class 1", "class 2", "accuracy - confidence"]),
    ],
)
def test_columns_of_the_errors_in_groups(task, names):
    predictions, targets = _of_task(task)
    evaluation = calibjax.evaluate(KEY, predictions, targets, groups=np.arange(40) % 2)
    [panel] = [x for x in evaluation.panels if x.name == "errors in groups"]
    ax = panel.draw()
    assert [x.get_text() for x in ax.get_xticklabels()] == names
    error = evaluation["accuracy - mean confidence, group 0"].value
    assert panel.shown.estimate[0, -1] == pytest.approx(error)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["binary", "classification"])
def test_names_of_classes_change_nothing_else(task):
    predictions, targets = _of_task(task)
    names = ["cat", "dog"] if task == "binary" else ["cat", "dog", "cow"]
    groups = np.arange(40) % 2
    numbered = calibjax.evaluate(KEY, predictions, targets, groups=groups)
    named = calibjax.evaluate(KEY, predictions, targets, groups=groups, class_names=names)

    def renamed(text):
        for i, name in enumerate(names):
            text = text.replace(f"class {i}", f"class {name}").replace(
                f"Class {i}", f"Class {name}"
            )
        return text

    assert list(named.sentences) == [renamed(x) for x in numbered.sentences]
    assert list(named.captions.items()) == [
        (renamed(name), renamed(caption)) for name, caption in numbered.captions.items()
    ]
    for entry, other in zip(named.entries, numbered.entries, strict=True):
        assert entry.name == renamed(other.name)
        assert "class 1" not in entry.name
        assert entry.function == other.function
        np.testing.assert_equal(entry.value, other.value)


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"], "abc"])
def test_wrong_names_of_classes(names):
    with pytest.raises(ValueError, match="class_names: expected 3 different names"):
        calibjax.evaluate(KEY, *_classes(), class_names=names)
    with pytest.raises(ValueError, match="class_names: expected None for the task quantiles"):
        calibjax.evaluate(KEY, *_quantiles(), class_names=names)


def test_quantiles_with_ties():
    """Days without rain are in closed intervals, and no sign of miscalibration."""
    random, levels = np.random.default_rng(3), np.array([0.05, 0.5, 0.95])
    values = np.tile([0.0, 0.0, 2.0794], (100, 1))  # 60 % zeros, exponential otherwise
    targets = np.where(random.uniform(size=100) < 0.6, 0, random.exponential(size=100))
    evaluation = calibjax.evaluate(KEY, distributions.Quantiles(levels, values), targets)
    entry = evaluation["coverage of the central 90 % intervals"]
    assert entry.value == pytest.approx(np.mean(targets <= 2.0794))
    assert entry.by_chance[0] < entry.value < entry.by_chance[1]
    assert "No miscalibration was found" in str(evaluation)
    assert "those of randomised ranks" in str(evaluation)


@pytest.mark.parametrize("levels", [[0.9, 0.95, 0.99], [0.9]])
def test_one_sided_quantiles(levels):
    """Every level is tested, and no interval between two of them is called central."""
    random = np.random.default_rng(3)
    values = scipy.stats.norm.ppf(levels) + np.zeros((100, 1))
    values[0, -1] = np.inf
    targets = random.normal(size=100)
    right, wrong = (
        str(calibjax.evaluate(KEY, distributions.Quantiles(np.array(levels), v), targets))
        for v in (values, values - 0.8)
    )
    assert "central" not in right
    assert "No miscalibration was found in 100 predictions: the exact test of the cov" in right
    assert "1 of 100 predictions have intervals of infinite width" in " ".join(right.split())
    assert "The model is not calibrated: the exact test of the coverage rejects" in wrong
