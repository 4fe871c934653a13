"""The package `experiments.power`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from experiments.harness.cells import Store, keys_of
from experiments.power import __main__ as program
from experiments.power import (
    classes,
    dependence,
    ensembles,
    normals,
    packages,
    simulation,
    tables,
)
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


def test_errors_of_normals():
    m = jax.random.uniform(jax.random.key(1), (N,))
    found = {k: np.asarray(v, float) for k, v in normals.errors(jax.random.key(0), m).items()}
    noise = 4 / np.sqrt(N)
    for name, mean, deviation in (
        (CALIBRATED, 0, 1),
        ("shifted up", 0.3, 1),
        ("shifted down", -0.3, 1),
        ("too narrow", 0, 1.4),
        ("too wide", 0, 0.7),
        ("bimodal", 0, 1),
    ):
        assert abs(found[name].mean() - mean) < noise * deviation
        assert abs(found[name].std() - deviation) < noise * deviation
    # ±0.9 + √0.19 e: E r⁴ = 0.9⁴ + 6 · 0.81 · 0.19 + 3 · 0.19²
    assert abs(np.mean(found["bimodal"] ** 4) - 1.6878) < 0.15
    m = np.asarray(m)
    inside = (m > 0.4) & (m < 0.5)
    assert abs(found["local"][inside].mean() - 2) < 4 / np.sqrt(inside.sum())
    assert abs(found["local"][~inside].mean()) < noise
    wave = np.sin(8 * np.pi * m)
    assert abs(np.mean(wave * found["oscillating"]) - 0.8 / 2) < noise


def test_draws_of_normals():
    predictions, targets = normals.draw(jax.random.key(0), jnp.asarray(0), N)
    z = np.asarray((targets - predictions.loc) / predictions.scale)
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert stats.kstest(np.asarray(predictions.loc), "uniform").pvalue > 1e-3


def test_truths_of_classes():
    probs = jax.random.dirichlet(jax.random.key(0), jnp.full(10, 0.5), (N,))
    found = {name: np.asarray(p) for name, p in classes.truths(probs).items()}
    for p in found.values():
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    given = found[CALIBRATED]
    top = given.max(1)
    assert found["overconfident"].max(1).mean() < top.mean() < found["underconfident"].max(1).mean()
    assert np.all(found["one class inflated"][:, 0] <= given[:, 0])
    np.testing.assert_allclose(found["label noise"].mean(), 0.1, rtol=1e-5)
    permuted = found["two classes permuted"]
    others = [0, *range(3, 10)]
    np.testing.assert_allclose(permuted[:, others], given[:, others], rtol=1e-5)
    np.testing.assert_allclose(permuted[:, 1], 0.4 * given[:, 1] + 0.6 * given[:, 2], rtol=1e-5)


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
        "normals": (normals.AGGREGATED, normals.MEDIAN, normals.BIASED, normals.EXPONENTIAL),
        "w21": (normals.AGGREGATED,),
        "classes": (classes.AGGREGATED, classes.CANONICAL, classes.TOP, classes.CLASS_WISE),
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
    for rate, expected in ((0.05, 0.0), (1.0, 0.0)):
        found = tables.Found([(study, rates_of(study, rate)) for study in studies])
        met = {line["what"]: line["met"] for line in tables.bars(found)}
        levels = {what for what in met if what.startswith("level")}
        assert {met[what] for what in levels} == {rate == 0.05}
        assert met["aggregated, bimodal, n = 64"] == (rate == 1)
        assert met["posterior = prior, kernel on the features"] == (rate == 1)
        lines = {line["what"]: line for line in tables.bars(found)}
        loss = next(line for what, line in lines.items() if "loss" in what and "biased" in what)
        assert loss["found"] == expected
        assert loss["met"]


def test_table():
    """Of kernels the best rate, and of calibrated data their mean."""
    each = np.array([0.25, 0.5])
    study = Study("some", (CALIBRATED, "wrong"), {16: 1.0}, uniform)
    rates = [
        Rate(name, 16, "", test, rate, number, 0)
        for name, number in ((CALIBRATED, 400), ("wrong", 100))
        for test, rate in (("other", 0.1), (normals.KERNELS, each))
    ]
    kernels, other = tables.table(study, rates)
    assert kernels["test"] == "best single kernel (chosen with hindsight)"
    assert (kernels[CALIBRATED], kernels["wrong"]) == (37.5, 50)
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
