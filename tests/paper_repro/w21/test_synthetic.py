import csv

import jax
import numpy as np
import pytest

from calibjax import distributions
from experiments.harness import source
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


def test_standard_errors_are_those_of_differences_between_two_groups():
    """SE against the spread of "ours − published", both simulated, each with a truth of its own."""
    rng = np.random.default_rng(0)
    count, repeats, noise = w21_tables.PUBLISHED_DATA_SETS, 2000, 0.3
    simulation = w21_simulation.Simulation("uncalibrated", 1, 4, count)
    procedure = w21_simulation.ESTIMATORS[0]
    place = "uncalibrated", procedure.label, "1", "4"
    differences, errors = [], []
    for _ in range(repeats):
        ours, theirs = rng.normal(size=(2, count))
        # Not near the median, so that the slope is not zero.
        truths = 0.5 + noise * rng.normal(size=(2, 100))
        published = {
            "meanerror": str(np.mean(np.abs(theirs - truths[1].mean()))),
            "variance": str(np.var(theirs, ddof=1)),
            "mintime": "1",
        }
        cell = w21_tables.Cell(procedure, simulation, ours, 1.0)
        row = w21_tables._error_row(cell, truths[0], {place: published})
        differences.append(
            [row.mean_ours - row.mean_published, row.variance_ours - row.variance_published]
        )
        errors.append([row.mean_error, row.variance_error])
    spread, expected = np.std(differences, 0), np.sqrt(np.mean(np.square(errors), 0))
    # The standard deviation of 2000 normal numbers is known to 1 / √4000.
    np.testing.assert_allclose(expected, spread, rtol=3.5 / np.sqrt(2 * repeats))


@pytest.mark.parametrize("model", ["calibrated", "uncalibrated"])
def test_committed_numbers_are_beside_those_of_the_authors(data_dir, model):
    """The authors' files again, read without the package; mean errors within 3.5 SE."""
    for name, kind, value, start in (
        ("errors", "estimator", "meanerror", 4),
        ("tests", "test", "testerror", 5),
    ):
        path = data_dir / w21_synthetic.NAME / f"{name}_{model}_model.csv"
        if not path.is_file():
            pytest.skip("the published numbers of W21 App. A.2 are not in the data")
        published = {
            (row[kind], row["dim"], row["nsamples"]): float(row[value])
            for row in csv.DictReader(path.read_text().splitlines())
        }
        lines = list(csv.reader((COMMITTED / f"{name}.csv").read_text().splitlines()))[1:]
        chosen = [line for line in lines if line[0] == model]
        # Columns from `start` on: published, ours, SE.
        found = {(x[3], x[1], x[2]): x[start : start + 3] for x in chosen if x[start]}
        assert {place: float(x[0]) for place, x in found.items()} == published
        scores = {
            place: (float(x[1]) - published[place]) / float(x[2] or 1)
            for place, x in found.items()
            if x[1] and float(x[1]) != published[place]
        }
        if name == "errors":
            assert len(scores) == 40
            assert max(map(abs, scores.values())) <= 3.5


COMMITTED = source.ROOT / "paper_repro/results/w21_synthetic"
