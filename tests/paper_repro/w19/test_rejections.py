import csv
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators
from experiments.harness import command_line
from paper_repro.w19 import rejections as w19_rejections
from paper_repro.w19 import simulation as w19_simulation

COMMITTED = Path(w19_rejections.__file__).parents[1] / "results" / w19_simulation.NAME
SMALL = w19_simulation.Chunk("M1", 0, 4, 2, 16, 19)


@pytest.mark.parametrize(
    ("model", "share", "share_first"),
    [("M1", 0, 0), pytest.param("M2", 0.5, 0.5, marks=pytest.mark.slow), ("M3", 1, 0)],
)
def test_models(model, share, share_first):
    """Labels are a mixture of the prediction, the first class and uniform ones."""
    n = 20_000
    probs, labels = w19_simulation.draw_data_set(jax.random.key(0), model, n)
    assert probs.shape == (n, 10)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(probs.mean(0), 0.1, atol=5 * np.sqrt(0.045 / n))
    one_hot = np.eye(10)[np.asarray(labels)]
    expected = (1 - share) * np.asarray(probs) + (share - share_first) / 10
    expected[:, 0] += share_first
    # Any function of the predictions is uncorrelated with the residuals.
    for weight in (np.ones(n), np.asarray(probs[:, 0]), np.asarray(probs.max(1))):
        mean = np.mean(weight[:, None] * (one_hot - expected), 0)
        np.testing.assert_allclose(mean, 0, atol=5 * 0.5 / np.sqrt(n))


@pytest.mark.slow
def test_prepared_predictions():
    """Their labels have the right shares, also in single precision, and bins are carried along."""
    with jax.enable_x64(True):
        row = jnp.array([0.0, 0.25, 0.0, 0.7, 0.05, 0.0])
        probs, keys = jnp.tile(row, (20_000, 1)), jax.random.split(jax.random.key(0), 20_000)
        labels = [
            jax.vmap(lambda p, k: p.sample(k))(
                w19_simulation.prepare(probs.astype(dtype), jnp.zeros(20_000, jnp.int32)), keys
            )
            for dtype in (jnp.float32, jnp.float64)
        ]
        np.testing.assert_array_equal(*labels)
        np.testing.assert_allclose(jnp.bincount(labels[0], length=6) / 20_000, row, atol=0.02)
        assert not np.isin(labels[0], [0, 2, 5]).any()

        probs, targets = w19_simulation.draw_data_set(jax.random.key(1), "M1", 50)
        predictions = distributions.Categorical(probs)
        binning = estimators.UniformBins(10)
        prepared = w19_simulation.prepare(probs, binning(predictions))
        np.testing.assert_array_equal(
            estimators.ece(
                prepared, targets, binning=w19_simulation.carried_bins, notion="canonical"
            ),
            estimators.ece(predictions, targets, binning=binning, notion="canonical"),
        )


def test_length_scales_are_medians_of_full_matrices():
    """As in the authors' code: the zeros of the diagonal count."""
    probs = np.random.default_rng(0).dirichlet(np.ones(3), (2, 3, 6))
    scales, _ = w19_simulation._prepare_data_sets(jnp.asarray(probs))
    differences = np.abs(probs[..., :, None, :] - probs[..., None, :, :])
    expected = np.median(differences.sum(-1).reshape(2, 3, -1) / 2, -1)
    np.testing.assert_allclose(scales, expected, rtol=1e-5)


@pytest.mark.slow
def test_simulations():
    """All tests have p-values, and those of the exact test are the same in both precisions."""
    with jax.enable_x64(True):
        result = w19_simulation.simulate(SMALL, w19_simulation.TESTS)
        slugs = {test.slug for test in w19_simulation.TESTS}
        assert set(result["pvalues"]) == set(result["undefined"]) == slugs
        for values in result["pvalues"].values():
            assert len(values) == 4
            assert all(0 < p <= 1 for p in values)
        in_double = dataclasses.replace(w19_simulation.EXACT, dtype=jnp.float64)
        again = w19_simulation.simulate(SMALL, (in_double,))["pvalues"]["exact"]
        np.testing.assert_allclose(again, result["pvalues"]["exact"], rtol=1e-6)


@pytest.mark.slow
def test_an_undefined_pvalue_does_not_reject():
    undefined = w19_simulation.Procedure("none", "none", lambda *args: jnp.asarray(jnp.nan))
    result = w19_simulation.simulate(SMALL, (dataclasses.replace(undefined, dtype=float),))
    assert result["pvalues"] == {"none": [1.0] * 4}
    assert result["undefined"] == {"none": 4}


def test_errors_of_known_pvalues():
    pvalues, levels = np.array([0.05, 0.2, 0.9, 1.0]), np.array([0.04, 0.05, 0.5, 1.0])
    np.testing.assert_array_equal(
        w19_rejections.test_errors(pvalues, "M1", levels), [0, 0.25, 0.5, 1]
    )
    np.testing.assert_array_equal(
        w19_rejections.test_errors(pvalues, "M2", levels), [1, 0.75, 0.5, 0]
    )
    uniform = (np.arange(1000) + 0.5) / 1000
    assert np.abs(w19_rejections.level_deviations(uniform)).max() < 1e-9
    assert w19_rejections.level_deviations(np.full(100, 0.005))[0] == pytest.approx(99.498744)


def test_the_comparison_with_the_published_curves(monkeypatch):
    """z has the standard error of two shares of 10 000 data sets, and is zero where both agree."""
    test = w19_simulation.TESTS[0]
    pvalues = (np.arange(10_000) + 0.5) / 10_000  # errors are the levels
    finished = {model: [{"pvalues": {test.slug: pvalues}}] for model in ("M1", "M2")}
    curve = np.arange(101) / 100
    curve[50] += 0.02
    published = {("M1", test.label): curve, ("M2", test.label): 1 - np.arange(101) / 100}
    first, second = w19_rejections._published_rows(finished, published)
    error = np.sqrt(2 * 0.51 * 0.49 / 10_000)
    assert first["at level"] == 0.5
    assert first["largest z"] == pytest.approx(-0.02 / error)
    assert first["SE"] == pytest.approx(error)
    assert first["levels with abs(z) > 2"] == 1
    assert second["largest difference"] == pytest.approx(0, abs=1e-12)


def test_published_curves(data_dir, tmp_path):
    curves = w19_rejections.read_curves(command_line.Run("paper", data_dir, tmp_path))
    labels = [test.label for test in w19_simulation.TESTS[:-1]]
    assert set(curves) == {(model, test) for model in w19_simulation.MODELS for test in labels}
    assert all(np.all(np.isfinite(curve)) for curve in curves.values())
    rows = list(
        csv.DictReader((COMMITTED / "published.csv").read_text(encoding="utf-8").splitlines())
    )
    assert len(rows) == 18
    for row in rows:
        place = round(100 * float(row["at level"]))
        assert curves[row["model"], row["test"]][place] == float(row["published there"])
        assert abs(float(row["largest z"])) <= 3.5
