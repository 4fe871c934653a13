"""The package `experiments.power`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.harness.cells import Store, keys_of
from experiments.power import bound, dependence, ensembles, simulation
from experiments.power.simulation import CALIBRATED, Study

N = 4000
KEY = jax.random.key(0)


def uniform(data_key, test_key, place, n, setting):
    """p-values that are uniform, or their squares."""
    return {"one": jax.random.uniform(data_key) ** (1 + place), "missing": jnp.full((), jnp.nan)}


def test_rates(tmp_path, monkeypatch):
    study = Study("some", (CALIBRATED, "square"), {16: 1.0}, uniform)
    store = Store(tmp_path, "code")
    number = 12
    found = {(r.alternative, r.test): r for r in simulation.rates(store, study, number)}
    for power, name in enumerate(study.alternatives):
        size = number if name != CALIBRATED else 4 * number
        keys = keys_of(f"power/some/{name}/16/", "data", (0, size))
        p = np.array([float(jax.random.uniform(key)) for key in keys]) ** (1 + power)
        assert found[name, "one"].rate == np.mean(p <= 0.05)
        assert found[name, "one"].number == size
        assert found[name, "missing"].rate == 0
        assert found[name, "missing"].undefined == size
    monkeypatch.setattr(simulation, "counts", lambda *_: {})  # all cells are stored
    again = simulation.rates(store, study, number)
    np.testing.assert_equal([r.rate for r in again], [r.rate for r in found.values()])


@pytest.mark.parametrize(
    ("place", "mean", "deviation"), [(0, 0, 1), (1, 0.5, 1), (2, 0, 1.5), (3, 0, 0.67)]
)
def test_draws_of_ensembles(place, mean, deviation):
    data, targets = ensembles.draw(jax.random.key(0), jnp.asarray(place), 200, 500)
    z = np.asarray(targets) - np.asarray(data.values).mean(1)
    assert abs(z.mean() - mean) < 4 * deviation / np.sqrt(200)
    assert abs(z.std() - deviation) < 4 * deviation / np.sqrt(400)


def test_series():
    x = np.asarray(dependence._series(jax.random.key(0), jnp.asarray(0.9), N), float)
    noise = np.diff(x, prepend=0) + 0.1 * np.concatenate([[0], x[:-1]])
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 4 / np.sqrt(N)


def test_moments_of_normal_laws():
    predictions = bound.MODELS["normals"].predictions(KEY, 4000)
    noise = 4 / np.sqrt(4000)
    for law, mean, deviation, skewness in (
        (CALIBRATED, 0, 1, 0),
        ("shift +0.3", 0.3, 1, 0),
        ("sd x 0.7", 0, 0.7, 0),
        ("bimodal", 0, 1, 0),
        ("skewed +", 0, 1, 1),
        ("skewed -", 0, 1, -1),
    ):
        targets = bound.drawn(KEY, bound.MODELS["normals"].laws[law](predictions), 1)[0]
        z = np.asarray((targets - predictions.loc) / predictions.scale, float)
        assert abs(z.mean() - mean) < noise, law
        assert abs(z.std() - deviation) < noise, law
        assert abs(stats.skew(z) - skewness) < 0.3, law


def test_ties_count_in_part():
    """Values of three kinds: randomised p-values of the null are uniform."""
    values = jax.random.randint(KEY, (4000,), 0, 3).astype(float)
    null = jax.random.randint(jax.random.key(1), (999,), 0, 3).astype(float)
    p = bound.randomised(jax.random.key(2), values, null)
    assert stats.kstest(np.asarray(p), "uniform").statistic < 0.08
