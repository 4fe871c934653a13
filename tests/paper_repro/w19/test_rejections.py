import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, estimators
from paper_repro.julia_random import MersenneTwister, seeded
from paper_repro.w19 import authors_data
from paper_repro.w19 import rejections as w19_rejections
from paper_repro.w19 import rejections_simulation as simulation
from tests.paper_repro import committed


def matrix_of(probs, labels):
    """h of all pairs, from its definition."""
    distances = np.abs(probs[:, None] - probs).sum(-1) / 2
    residuals = np.eye(probs.shape[1])[labels] - probs
    return np.exp(-distances / np.median(distances)) * (residuals @ residuals.T)


@pytest.mark.parametrize("model", ["M1", "M3"])
def test_pvalues_without_draws(model):
    """Those of the paper, with the square of a negative estimate and the biased variance."""
    pvalues = simulation.without_draws(model, seeded(1234), 4)
    samples = authors_data.draw(seeded(1234), authors_data.MODELS[model], 4)
    for i, (probs, labels) in enumerate(zip(*samples, strict=True)):
        matrix = matrix_of(probs, labels)
        blocks = np.diag(matrix, 1)[::2]
        biased, block = matrix.mean(), blocks.mean()
        unbiased = (matrix.sum() - matrix.trace()) / (250 * 249)
        expected = {
            "D_b": np.exp(-(max(np.sqrt(250 * biased / 2) - 1, 0) ** 2) / 2),
            "D_uq": np.exp(-125 * unbiased**2 / 8),
            "D_ul": np.exp(-125 * block**2 / 8),
            "A_l": stats.norm.sf(np.sqrt(125) * block / blocks.std()),
        }
        assert expected.keys() == pvalues.keys()
        for label, value in expected.items():
            assert pvalues[label][i] == pytest.approx(value, rel=1e-9)


def test_the_bootstrap_is_the_one_of_the_paper(monkeypatch):
    """The statistic over pairs of a resample, and of a resample and the data, in plain loops."""
    monkeypatch.setattr(simulation, "DRAWS", 40)
    rng, n = np.random.default_rng(0), 12
    probs, labels = rng.dirichlet(np.ones(3), n), rng.integers(0, 3, n)
    matrix = matrix_of(probs, labels)
    unbiased = (matrix.sum() - matrix.trace()) / (n * (n - 1))
    statistic = n / (n - 1) * unbiased - matrix.mean()
    generator, count = MersenneTwister(7), 0
    for _ in range(40):
        rows = [generator.rand_range(n) - 1 for _ in range(n)]
        within = np.mean([matrix[rows[i], rows[j]] for i in range(n) for j in range(i)])
        across = np.mean([matrix[row, k] for row in rows for k in range(n)])
        count += within >= statistic + 2 * across
    assert 0 < count < 40
    assert simulation.bootstrap_pvalue(seeded(7), probs, labels) == count / 40


def test_consistency_resampling_is_the_one_of_the_paper(monkeypatch):
    """All predictions of a resample are drawn first, then their labels."""
    monkeypatch.setattr(simulation, "DRAWS", 30)
    rng, n = np.random.default_rng(0), 20
    probs = rng.dirichlet(np.ones(3), n)
    labels = np.where(np.arange(n) < 15, probs.argmax(1), 0)
    generator, count = MersenneTwister(7), 0

    def ece(probs, labels):
        predictions, binning = distributions.Categorical(probs), estimators.UniformBins(10)
        return estimators.ece(predictions, labels, binning=binning, notion="canonical")

    for _ in range(30):
        rows = [generator.rand_range(n) - 1 for _ in range(n)]
        resampled = [int(np.argmax(np.cumsum(probs[i]) >= generator.rand())) for i in rows]
        count += int(ece(probs[rows], jnp.array(resampled)) >= ece(probs, labels))
    assert 0 < count < 30
    assert simulation.consistency_pvalue(seeded(7), probs, labels) == count / 30


def test_a_data_set_begins_where_the_resamples_before_end(monkeypatch):
    monkeypatch.setattr(simulation, "DRAWS", 2)
    state, model = seeded(1234), authors_data.MODELS["M2"]
    probs, labels = authors_data.draw(state, model, 1)
    first = simulation.bootstrap_pvalue(state, probs[0], labels[0])
    probs, labels = authors_data.draw(state, model, 1)
    second = simulation.bootstrap_pvalue(state, probs[0], labels[0])
    pvalues = simulation.with_draws("A_uq", "M2", seeded(1234), 2)
    assert pvalues["A_uq"].tolist() == [first, second]


def test_the_comparison_with_the_published_curves(monkeypatch):
    pvalues = (np.arange(10_000) + 0.5) / 10_000  # errors are the levels
    curve = np.arange(101) / 100
    curve[50] += 0.02
    curves = {("M1", "C"): curve, ("M2", "C"): 1 - np.arange(101) / 100}
    monkeypatch.setattr(w19_rejections, "read_curves", lambda: curves)
    first, second = w19_rejections._published_rows(dict.fromkeys(curves, pvalues))
    assert (first["equal"], second["equal"]) == (100, 101)
    assert first["at level"] == 0.5
    assert first["largest difference"] == pytest.approx(0.02)


def test_committed_curves_are_the_published_ones():
    rows = committed(simulation.NAME, "published")
    assert len(rows) == 18
    assert all(row["equal"] == row["levels"] == "101" for row in rows)
