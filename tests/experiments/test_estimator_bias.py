import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import spearmanr

from calibjax import risk
from calibjax.distributions import CategoricalLogits
from experiments import estimator_bias_simulation as simulation
from experiments import estimator_bias_tables as tables
from experiments.harness.cells import Store

MIXED = {"num_classes": 2, "concentration": 0.5, "share": 0.25}


def as_predictions(probs):
    return CategoricalLogits(jnp.log(jnp.stack([1 - probs, probs], 1)))


@pytest.mark.slow
def test_errors_of_models():
    """Closed form and quadrature against the mean over predictions."""

    def sampled(model):
        key = jax.random.key(0)
        return simulation.sampled_error(key, model, num_batches=10, batch_size=5000)

    model = simulation.model(**MIXED)
    value, error = sampled(model)
    assert abs(value - simulation.exact_error(model)) < 4 * error < 0.002
    # 2 (p − P)² with P ~ Beta(1, 1) and p = P² / (P² + (1 − P)²)
    expected = quad(lambda p: 2 * (p**2 / (p**2 + (1 - p) ** 2) - p) ** 2, 0, 1)[0]
    value, error = sampled(simulation.model(2, 1.0, sharpness=2.0))
    assert abs(value - expected) < 4 * error < 0.002


def test_labels_have_the_probabilities_that_are_known():
    model, probs = simulation.model(**MIXED), np.linspace(0.01, 0.99, 50_000)

    @jax.jit
    def draw(key):
        predictions = as_predictions(1 - probs)
        return model.label_probs(predictions)[:, 0], model.draw_labels(key, predictions)

    known, labels = map(np.asarray, draw(jax.random.key(1)))
    np.testing.assert_allclose(known, 0.25 + 0.75 * probs, rtol=1e-12)
    for part in np.split(np.arange(50_000), 5):
        np.testing.assert_allclose((labels[part] == 0).mean(), known[part].mean(), atol=0.015)


def bin_values(points, probs, labels, num_bins):
    """h for two classes, of both classes, by loops."""

    def index(p):
        return max(int(np.ceil(p * num_bins)), 1)

    def mean_residual(p):
        inside = [q - y for q, y in zip(probs, labels, strict=True) if index(q) == index(p)]
        return np.mean(inside) if inside else 0.0

    means = np.array([mean_residual(p) for p in points])
    return 2 * np.outer(means, means)


@pytest.fixture
def data():
    """Confidences in class 1 and labels of 38 samples, and 40 other confidences."""
    rng = np.random.default_rng(0)
    return rng.uniform(size=38), rng.integers(0, 2, 38), rng.uniform(size=40)


def test_errors_of_a_function_against_loops(data):
    probs, labels, points = data
    model = simulation.model(**MIXED)
    setting = simulation.Setting(model, as_predictions(points), jnp.ones(()))
    function = risk.Binning()
    params = function.fit(as_predictions(probs), labels, 7)
    found = jax.jit(simulation.true_errors)(function, params, setting)
    values = bin_values(points, probs, labels, 7)
    errors = 0.25 * points  # π p_1, of class 0 the opposite
    differences = values - 2 * np.outer(errors, errors)
    diagonal = np.diag(differences)
    excess = (np.sum(differences**2) - np.sum(diagonal**2)) / (40 * 39)
    ratio = diagonal.mean() / np.sqrt(np.mean(differences**2))
    expected = {"excess": excess, "diagonal": diagonal.mean(), "ratio": ratio}
    chex.assert_trees_all_close(found, expected, rtol=1e-10)
    assert abs(ratio) <= 1


@pytest.mark.slow
def test_function_is_that_of_the_first_fold(data, monkeypatch):
    results = []

    def squared_calibration_error(*args, **options):
        results.append(risk.squared_calibration_error(*args, **options))
        return results[-1]

    pipeline = types.SimpleNamespace(squared_calibration_error=squared_calibration_error)
    monkeypatch.setattr(simulation, "risk", pipeline)
    model, function = simulation.model(**MIXED), risk.Binning(max_bins=7)
    samples = as_predictions(data[0]), jnp.asarray(data[1])
    setting = simulation.Setting(model, as_predictions(data[2]), jnp.ones(()))

    @jax.jit
    def evaluate(samples):
        key, grid = jax.random.key(2), jnp.array([3, 7])
        return simulation.evaluate_function(key, function, grid, samples, setting), results[0]

    found, result = evaluate(samples)
    estimate = found["estimate"][result.cross_validation.best]
    np.testing.assert_allclose(estimate, result.estimate, rtol=1e-12)
    training = result.tuning[result.cross_validation.folds != 0]
    assert len(training) == simulation.training_size(38) == 24
    params = function.fit(*jax.tree.map(lambda leaf: leaf[training], samples), 7)
    for name, value in simulation.true_errors(function, params, setting).items():
        np.testing.assert_allclose(found[name][1], value, rtol=1e-10)


@pytest.mark.slow
def test_cells_are_computed_once(tmp_path, monkeypatch):
    calls = []

    def evaluate_all(keys, setting, *, functions):
        calls.append(len(keys))
        return {"kde risk": jnp.zeros((len(keys), 3))}

    monkeypatch.setattr(simulation, "evaluate_all", evaluate_all)
    monkeypatch.setattr(simulation, "setting_of", lambda *args: None)
    model, functions = simulation.model(2, 0.5), simulation.Functions(2, 20, 8)
    for last in (2, 2, 3):
        found = simulation.simulate(
            Store(tmp_path, "code"), "2 calibrated", model, functions, 0, last
        )
        assert found["kde risk"].shape == (last, 3)
    assert calls == [2, 3]


@pytest.fixture
def case():
    """Two data sets, three grid points, two estimators, CCE² = 0.01."""
    found = {
        "kde risk": [[0.3, 0.1, 0.2], [0.1, 0.2, 0.4]],
        "kde estimate": [[0.05, 0.02, 0.0], [0.01, 0.0, 0.03]],
        "kkr risk": [[0.3, 0.3, 0.2], [0.09, 0.2, 0.3]],
        "kkr estimate": [[0.0, 0.0, -0.01], [0.04, 0.0, 0.0]],
        "kde, untuned": [0.02, 0.04],
    }
    for name in ("kde", "kkr"):
        for field in ("excess", "diagonal", "ratio"):
            found[f"{name} {field}"] = [[4e-4, 1e-4, 2e-4], [1e-4, 2e-4, 3e-4]]
        found[f"{name} errors"] = [[0.007, 1.0], [0.007, 1.0]]
    found = {name: np.array(values) for name, values in found.items()}
    return tables.Case("2 mixed", 500, 0.01, 0.0, 0.03, found)


def test_rows(case):
    row = tables.error_row(case)
    assert (row["100 CCE"], row["CCE²"]) == ("10.0", "10.0")
    assert row["kde, untuned"] == "+20.0 ± 10.0 (22.4)"
    assert row["15 bins"] is None
    assert row["kde"] == "+5.0 ± 5.0 (7.1)"  # 0.02 and 0.01
    assert row["kkr"] == "+5.0 ± 25.0 (25.5)"  # −0.01 and 0.04
    assert row["smallest risk"] == "+20.0 ± 10.0 (22.4)"  # 0.02 and 0.04
    row = tables.choice_row(case, "kkr")
    assert (row["chosen %"], row["RMSE"], row["best"]) == ("50", "25.5", "10.0")
    assert row["s.e. / sd"] == "0.20"  # 0.007 / (0.05 / √2)
    assert (row["RMS h - h*"], row["best h"], row["h = 0"]) == ("12.2", "10.0", "30.0")
    assert row["100 root"] == "5.0"


def test_rank_correlation():
    x, y = np.random.default_rng(0).integers(0, 6, (2, 4, 20))  # with ties
    expected = np.mean([spearmanr(*pair)[0] for pair in zip(x, y, strict=True)])
    np.testing.assert_allclose(tables.rank_correlation(x, y), expected, rtol=1e-12)
