"""The package `experiments.power`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.harness.cells import Store, keys_of
from experiments.power import __main__ as program
from experiments.power import dependence, ensembles, packages, simulation, tables, w21
from experiments.power.simulation import CALIBRATED, PIT, Rate, Study

N = 4000


def uniform(data_key, test_key, place, n, setting):
    """p-values that are uniform, or their squares, of one test, of two kernels, and of a PIT."""
    p = jax.random.uniform(data_key) ** (1 + place)
    return {
        "one": p,
        "two": jnp.stack([p, p**2]),
        "missing": jnp.full((), jnp.nan),
        PIT: jnp.where(place == 0, jnp.linspace(0.01, 0.99, n), jnp.linspace(0.0, 0.3, n)),
    }


@pytest.mark.parametrize("in_one_program", [True, False])
def test_rates(tmp_path, monkeypatch, in_one_program):
    study = Study("some", (CALIBRATED, "square"), {16: 1.0}, uniform, in_one_program=in_one_program)
    store = Store(tmp_path, "code")
    number = 12
    found = {(r.alternative, r.test): r for r in simulation.rates(store, study, number)}
    for power, name in enumerate(study.alternatives):
        size = number if name != CALIBRATED else 4 * number
        keys = keys_of(f"power/some/{name}/16/", "data", (0, size))
        p = np.array([float(jax.random.uniform(key)) for key in keys]) ** (1 + power)
        assert found[name, "one"].rate == np.mean(p <= 0.05)
        assert found[name, "one"].number == size
        np.testing.assert_array_equal(
            found[name, "two"].rate, [np.mean(p <= 0.05), np.mean(p**2 <= 0.05)]
        )
        assert found[name, "missing"].rate == 0
        assert found[name, "missing"].undefined == size
        assert found[name, PIT].rate == power
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


def rates_of(study, rate):
    """The same rate of all tests that the bars look at."""
    tests = {
        "w21": (w21.AGGREGATED, w21.MEDIAN, w21.BIASED, w21.EXPONENTIAL),
        "clusters": (dependence.CLUSTER,),
        "posteriors": ("exact_skce_test, kernel on the features",),
    }.get(study.name, (ensembles.AGGREGATED, ensembles.ENSEMBLE, ensembles.RANKS))
    return [
        Rate(alternative, n, setting, test, rate, 500, 0)
        for n in study.sizes
        for setting in study.settings
        for alternative in study.alternatives
        for test in tests
    ]


def test_bars():
    studies = [study for kind in program.KINDS.values() for study in kind]
    for rate in (0.05, 1.0):
        found = tables.Found([(study, rates_of(study, rate)) for study in studies])
        met = {line["what"]: line["met"] for line in tables.bars(found)}
        levels = {what for what in met if what.startswith("level")}
        assert {met[what] for what in levels} == {rate == 0.05}
        assert met["posterior = prior, kernel on the features"] == (rate == 1)


def test_table():
    study = Study("some", (CALIBRATED, "wrong"), {16: 1.0}, uniform)
    rates = [
        Rate(name, 16, "", test, rate, number, 0)
        for name, number in ((CALIBRATED, 400), ("wrong", 100))
        for test, rate in (("other", 0.1), (w21.MEDIAN, 0.5))
    ]
    median, other = tables.table(study, rates)
    assert (median["test"], median["wrong"]) == (w21.MEDIAN, 50)
    assert (other[CALIBRATED], other["wrong"]) == (10, 10)
    assert other["data sets"] == "400 / 100"
    assert other["s.e. at most"] == 5


@pytest.mark.slow
def test_program(tmp_path, monkeypatch):
    arguments = ["power", "--num-datasets", "2", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*arguments, "--only", "posteriors", "horizons"])
    program.main()
    for kind in ("posteriors", "horizons"):
        assert (tmp_path / "power" / f"power_{kind}.md").exists()
    assert not (tmp_path / "power" / "power_bars.md").exists()


def test_groups_of_features_and_pairs():
    features, probs, labels = packages.draw(0, 0.25)
    groups = packages.groups_of(features)
    assert groups.shape == (packages.NUM_SAMPLES, 60)
    np.testing.assert_array_equal(groups.sum(1), 6)  # three features and three pairs
    np.testing.assert_array_equal(groups[:, 5], features[:, 1] == 1)
    np.testing.assert_array_equal(groups[:, 12], (features[:, 0] == 0) & (features[:, 1] == 0))
    own = groups[:, 12]
    assert np.mean(labels[own]) > np.mean(probs[own])
