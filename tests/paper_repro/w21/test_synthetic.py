import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions
from paper_repro.w21 import synthetic as w21_synthetic
from paper_repro.w21 import synthetic_simulation as w21_simulation
from paper_repro.w21 import synthetic_tables as w21_tables


@pytest.mark.parametrize("dimension", [1, 10])
def test_models(dimension):
    """Calibrated targets are draws from the predictions; uncalibrated ones have another mean."""
    draw = lambda calibrated: w21_simulation.draw_data_set(  # noqa: E731
        jax.random.key(0), calibrated, dimension, 4000
    )
    predictions, targets = draw(True)
    scores = np.asarray((targets - predictions.loc) / predictions.scale)
    assert abs(scores.mean()) < 4 / np.sqrt(scores.size)
    assert abs(scores.std() - 1) < 4 / np.sqrt(2 * scores.size)
    assert float(predictions.scale.min()) == float(predictions.scale.max()) == 0.1
    family = distributions.Normal if dimension == 1 else distributions.DiagNormal
    assert isinstance(predictions, family)
    _, wrong = draw(False)
    first, rest = wrong.reshape(4000, -1)[:, 0], wrong.reshape(4000, -1)[:, 1:]
    assert abs(first.mean() - 0.1) < 4 * 0.1 / np.sqrt(4000)
    np.testing.assert_allclose(rest, targets.reshape(4000, -1)[:, 1:])


def test_simulations_repeat_and_differ():
    simulation = w21_simulation.Simulation("calibrated", 1, 8, 5)
    estimator = w21_simulation.ESTIMATORS[0]
    values = w21_simulation.simulate(estimator, simulation)["values"]
    assert values == w21_simulation.simulate(estimator, simulation)["values"]
    assert len(set(values)) == 5
    assert jnp.all(jnp.asarray(values) > 0)


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [1, 10])
def test_cme_tests(dimension):
    """The asymptotic one rejects most calibrated data sets at n = 16, the exact one does not."""
    with jax.enable_x64(True):
        shares = []
        for procedure, draws in ((w21_simulation.CME, None), (w21_simulation.EXACT_CME, 19)):
            simulation = w21_simulation.Simulation("calibrated", dimension, 16, 40, draws)
            values = np.array(w21_simulation.simulate(procedure, simulation)["values"])
            shares.append(np.mean(values <= 0.05))
    assert shares[0] > 0.5
    assert shares[1] < 0.25


def test_the_cme_test_is_left_out_where_it_is_refused():
    settings = w21_synthetic.SETTINGS["paper"]
    sizes = {
        procedure: {
            s.num_samples for _, p, s in w21_synthetic.simulations(settings) if p is procedure
        }
        for procedure in w21_simulation.TESTS
    }
    assert sizes.pop(w21_simulation.CME) == {16, 64, 256, 1024}
    assert sizes.pop(w21_simulation.EXACT_CME) == {16, 64, 256}
    assert all(chosen == {4, 16, 64, 256, 1024} for chosen in sizes.values())


def test_refused_sizes_are_shown_with_the_published_number(tmp_path):
    cells_of = lambda n: w21_tables.Cell(  # noqa: E731
        w21_simulation.CME,
        w21_simulation.Simulation("calibrated", 1, n, 2),
        np.array([0.01, 0.5]),
        1e-3,
    )
    other = dataclasses.replace(cells_of(4), procedure=w21_simulation.EXACT)
    published = [
        {"test": "CME", "dim": "1", "nsamples": n, "testerror": "0.5", "mintime": "1e-5"}
        for n in ("4", "16", "64")
    ]
    w21_tables.write_tests(tmp_path, [other, cells_of(16)], published)
    lines = (tmp_path / "tests.csv").read_text().splitlines()[1:]
    rows = [w21_tables.TestRow(*line.split(",")) for line in lines]
    assert [(row.n, row.test, row.published, row.ours) for row in rows] == [
        ("4", "exact (ours)", "", "0.5"),
        ("16", "CME", "0.5", "0.5"),
        ("4", "CME", "0.5", ""),
    ]
