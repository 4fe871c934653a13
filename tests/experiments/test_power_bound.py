"""The package `experiments.power.bound`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import hypothesis_tests
from experiments.harness.cells import Store
from experiments.power.bound import __main__ as program
from experiments.power.bound import simulation, tables
from experiments.power.bound.models import CALIBRATED, MODELS
from experiments.power.bound.shared_redraws import AGGREGATED, DRAWS, pvalues
from experiments.power.bound.simulation import BOUND, Rate, size_of

KEY = jax.random.key(0)


def test_shared_redraws_change_no_pvalue():
    """Each data set has the p-values of the tests alone, with the same key."""
    predictions = MODELS["binary"].predictions(KEY, 20)
    targets = jnp.stack([jnp.arange(20) % 2, jnp.arange(20) // 10])
    found = pvalues(KEY, predictions, targets)
    for i, y in enumerate(targets):
        one = hypothesis_tests.aggregated_skce_test(KEY, predictions, y, num_draws=DRAWS)
        np.testing.assert_allclose(found[AGGREGATED][i], one.pvalue, atol=1e-6)
        one = hypothesis_tests.exact_test(
            KEY, hypothesis_tests.cox, predictions, y, num_draws=DRAWS
        )
        np.testing.assert_allclose(found["cox"][i], one.pvalue, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_laws(name):
    """Their log ratios are larger than zero on average under the law itself."""
    model = MODELS[name]
    predictions = model.predictions(KEY, 400)
    laws = {law: make(predictions) for law, make in model.laws.items()}
    for law in [*laws][1:]:
        drawn = simulation._drawn(KEY, laws[law], 50)
        true, null = (simulation._log_prob(laws[k], drawn) for k in (law, CALIBRATED))
        assert np.mean(true) > np.mean(null), law


def test_moments_of_normal_laws():
    predictions = MODELS["normals"].predictions(KEY, 4000)
    noise = 4 / np.sqrt(4000)
    for law, mean, deviation, skewness in (
        (CALIBRATED, 0, 1, 0),
        ("shift +0.3", 0.3, 1, 0),
        ("sd x 0.7", 0, 0.7, 0),
        ("bimodal", 0, 1, 0),
        ("skewed +", 0, 1, 1),
        ("skewed -", 0, 1, -1),
    ):
        targets = simulation._drawn(KEY, MODELS["normals"].laws[law](predictions), 1)[0]
        z = np.asarray((targets - predictions.loc) / predictions.scale, float)
        assert abs(z.mean() - mean) < noise, law
        assert abs(z.std() - deviation) < noise, law
        assert abs(stats.skew(z) - skewness) < 0.3, law


def test_ties_count_in_part():
    """Values of three kinds: randomised p-values of the null are uniform."""
    values = jax.random.randint(KEY, (4000,), 0, 3).astype(float)
    null = jax.random.randint(jax.random.key(1), (999,), 0, 3).astype(float)
    p = simulation._randomised(jax.random.key(2), values, null)
    assert stats.kstest(np.asarray(p), "uniform").statistic < 0.08


def test_rates_of_cells(tmp_path, monkeypatch):
    """Rates and standard errors from the shares of sets of predictions, in two cells."""
    shares = np.random.default_rng(0).uniform(size=(6, 8))
    monkeypatch.setattr(simulation, "size_of", lambda *_: simulation.Size(6, 1, 4))

    def moments(name, n, size, span):
        own = shares[slice(*span)]
        return {"test": [own.sum(0).tolist(), (own**2).sum(0).tolist()]}

    monkeypatch.setattr(simulation, "_moments", moments)
    found = simulation.rates(Store(tmp_path, "code"), "binary", 16)["test"]
    np.testing.assert_allclose([r.rate for r in found.values()], shares.mean(0))
    expected = shares.std(0, ddof=1) / np.sqrt(6)
    np.testing.assert_allclose([r.error for r in found.values()], expected)


def test_bars():
    def cell(own, other, bound):
        rates = {law: Rate(own, 0.01) for law in MODELS["normals"].laws} | {
            CALIBRATED: Rate(0.05, 0.01)
        }
        return {
            AGGREGATED: rates,
            "other": {law: Rate(other, 0.01) for law in rates},
            BOUND: {law: Rate(bound, 0.01) for law in rates},
        }

    met = {x["what"]: x["met"] for x in tables.bars({("normals", 64): cell(0.95, 0.9, 1.0)})}
    assert all(met.values())
    met = {x["what"]: x["met"] for x in tables.bars({("normals", 64): cell(0.2, 0.5, 1.0)})}
    assert not met["normals, n = 64, bimodal"]
    assert not met["normals, n = 64, bimodal: below other"]
    assert met["normals, n = 64, calibrated"]
    assert not met["power ÷ bound, median cell"]


@pytest.mark.slow
def test_program(tmp_path, monkeypatch):
    monkeypatch.setattr(simulation, "size_of", lambda *_: simulation.Size(2, 2, 2))
    arguments = ["bound", "--only", "binary", "--sizes", "16", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    program.main()
    for name in ("power_bound.md", "power_bound_bars.md", "power_bound.svg"):
        assert (tmp_path / "power" / name).exists()
    assert size_of("binary", 250) is None
