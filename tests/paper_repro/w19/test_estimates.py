import csv
import functools
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Categorical
from experiments.harness import command_line
from paper_repro.w19 import estimates as w19_estimates
from paper_repro.w19 import estimates_figures as w19_estimates_figures
from paper_repro.w19 import estimates_panels as panels
from paper_repro.w19 import estimates_simulation as simulation
from paper_repro.w19 import estimates_tables as w19_estimates_tables
from paper_repro.w19.ground_truth import mean_total_variation
from paper_repro.w19.simulation import w19_kernel

COMMITTED = Path(w19_estimates.__file__).parents[1] / "results" / simulation.NAME


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def draw_predictions(seed, n, m, a):
    return Categorical(jnp.asarray(np.random.default_rng(seed).dirichlet(np.full(m, a), n)))


def distances_of(probs):
    return jnp.abs(probs[:, None] - probs).sum(-1) / 2


@pytest.mark.parametrize(
    ("m", "a"),
    [(10, 0.1), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((2, 1.0), (1000, 0.1)))],
)
@pytest.mark.parametrize(("share", "beta"), [(0.0, None), (0.5, "first"), (1.0, "uniform")])
def test_estimates_are_those_of_the_library(m, a, share, beta):
    n = 61  # odd: the last sample has no partner; more than two blocks of rows
    predictions = draw_predictions(m, n, m, a)
    beta = jnp.asarray(simulation.label_distribution(beta, m))
    labels = simulation.draw_labels(jax.random.key(m), predictions, share, beta)
    mean = mean_total_variation(jnp.full(m, a))
    shared = jax.jit(simulation.shared_parts)(predictions.probs, mean)
    values = jax.jit(simulation.estimate)(shared, labels)
    values = dict(zip(simulation.ESTIMATORS, values, strict=True))

    binnings = {
        "ece_uniform": estimators.UniformBins(10),
        "ece_median_variance": estimators.MedianVarianceBins(5),
    }
    expected = {
        name: estimators.ece(predictions, labels, binning=binning, notion="canonical")
        for name, binning in binnings.items()
    }
    # Of all entries, the zeros of the diagonal included.
    median = np.median(distances_of(predictions.probs))
    for bandwidth, scale in (("median", median), ("mean", mean)):
        sample = w19_kernel(scale), predictions, labels
        expected[f"biased_{bandwidth}"] = estimators.skce_biased(*sample)
        expected[f"unbiased_{bandwidth}"] = estimators.skce(*sample)
        expected[f"block_{bandwidth}"] = estimators.skce_block(*sample, block_size=2)
    assert expected.keys() == values.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("share", "beta"), [(0.0, None), (0.25, "first"), (0.75, "uniform")])
def test_expected_skces_are_means_over_all_labels(share, beta):
    n, m = 5, 3
    probs = draw_predictions(0, n, m, 1.0).probs
    kernel = jnp.stack([jnp.exp(-distances_of(probs) / scale) for scale in (0.3, 0.7)])
    shared = simulation.SharedParts(probs, probs @ probs.T, kernel, jnp.ones((2, n, n)))
    beta = jnp.asarray(simulation.label_distribution(beta, m))
    from_labels = np.asarray((1 - share) * probs + share * beta)
    labels = np.array(list(itertools.product(range(m), repeat=n)))
    weights = np.prod(from_labels[np.arange(n), labels], axis=1)
    mean = weights @ jax.jit(jax.vmap(functools.partial(simulation.estimate, shared)))(labels)
    np.testing.assert_allclose(simulation.expected_skces(shared, share, beta), mean[2:], atol=1e-15)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("beta", simulation.BETAS)
def test_labels_are_from_the_mixture(share, beta):
    n, m = 40_000, 4
    predictions = draw_predictions(1, n, m, 0.5)
    vector = simulation.label_distribution(beta, m)
    labels = simulation.draw_labels(jax.random.key(0), predictions, share, jnp.asarray(vector))
    probs = np.asarray(predictions.probs)
    residuals = np.eye(m)[np.asarray(labels)] - (probs + share * (vector - probs))
    for weight in (np.ones(n), probs[:, 0], probs.max(1)):
        np.testing.assert_allclose(np.mean(weight[:, None] * residuals, 0), 0, atol=0.0125)


@pytest.mark.parametrize("a", [0.1, 1.0])
def test_predictions_are_from_the_dirichlet_distribution(a):
    chunk = simulation.Chunk(5, a, 0, 200, 250)
    gammas = simulation.draw_gammas(jax.random.key(0), chunk)
    assert gammas.shape == (200, 250, 5)
    assert gammas.min() > 0
    probs = (gammas / gammas.sum(-1, keepdims=True)).reshape(-1, 5)
    covariance = (np.eye(5) / 5 - 1 / 25) / (5 * a + 1)
    np.testing.assert_allclose(probs.mean(0), 0.2, atol=0.01)
    np.testing.assert_allclose(np.cov(probs.T), covariance, atol=0.01)
    other = simulation.draw_gammas(jax.random.key(1), chunk)
    assert not np.array_equal(gammas, other)


def test_numbers_of_the_figures():
    """The captions of Fig. 3 to 34."""
    figures = {number: place for number, *place in w19_estimates_figures.figures()}
    assert list(figures) == list(range(3, 35))
    assert figures[3] == ["ece_uniform", "uniform", 1.0]
    assert figures[10] == ["ece_median_variance", "first", 0.1]
    assert figures[13] == ["biased_median", "first", 1.0]
    assert figures[24] == ["unbiased_mean", "uniform", 0.1]
    assert figures[31] == ["block_mean", "uniform", 1.0]


def test_modes_are_counted():
    rng = np.random.default_rng(0)
    normal, number = rng.normal(size=10_000), rng.poisson(0.2, 10_000)
    assert w19_estimates_tables.num_modes(normal) == 1
    assert w19_estimates_tables.num_modes(normal + 5 * (number > 0)) == 2
    assert w19_estimates_tables.num_modes(normal + 8 * np.minimum(number, 2)) == 3


@pytest.fixture(scope="module")
def group():
    with jax.enable_x64(True):
        results = [simulation.simulate(simulation.Chunk(3, 1.0, i, 100, 20)) for i in range(2)]
        return w19_estimates_tables.Group.from_cells(3, 1.0, results)


@pytest.mark.slow
def test_deviations_are_those_of_unbiased_estimators(group):
    assert group.estimates.shape == (200, 9, 8)
    for share in simulation.SHARES:
        for beta in simulation.BETAS:
            for estimator in ("biased_mean", "unbiased_median", "block_median"):
                if (share, beta) == (1, "first"):  # the labels are not random
                    estimates = group.of(share, beta, estimator)
                    expected = group.expected_of(share, beta, estimator)
                    np.testing.assert_allclose(estimates, expected, rtol=1e-6, atol=1e-8)
                else:
                    z = w19_estimates_tables.deviation(group, share, beta, estimator)
                    assert 0 < abs(z) < 4.5
            assert group.true_value(share, beta, "unbiased_mean") >= 0
    assert group.true_value(0.0, "first", "block_mean") == 0
    assert group.errors(0.0, "first", "biased_median").mean() > 0


def test_labels_of_different_cells_are_independent(group):
    """Given the predictions, so that errors of the cells are uncorrelated."""
    errors = [
        group.errors(share, beta or "first", "unbiased_median")
        for share, beta in simulation.LABELLINGS
        if (share, beta) != (1, "first")  # where the labels are not random
    ]
    correlations = np.corrcoef(errors) - np.eye(8)
    assert np.abs(correlations).max() < 4 / np.sqrt(errors[0].size)


MODELS = {"M1": (0.0, "first"), "M2": (0.5, "first"), "M3": (1.0, "uniform")}


def test_the_biases_of_figure_1(group):
    """ECEs of Dir(1, 1, 1): 0, half of 2/3, and 8/27."""
    rows = list(w19_estimates_tables._first_figure_rows(group, None))
    columns = [simulation.LABELLINGS.index(x) for x in ((0.0, None), *list(MODELS.values())[1:])]
    means = group.estimates[:, columns, :2].mean(0, dtype=np.float64)
    biases = means - np.array([[0], [1 / 3], [8 / 27]])
    assert [row[2] for row in rows] == [
        "bias " + ", ".join(f"{model} {bias:+.3f}" for model, bias in zip(MODELS, column))
        for column in biases.T
    ]
    assert rows[0][0] == "ECE, uniform bins, Fig. 1"


def test_panels_beside_the_published_ones(group):
    """With means that are two standard errors lower, and true values that are the same."""
    published = {}
    for _, estimator, beta, a in panels.figures():
        for share in simulation.SHARES:
            values = group.of(share, beta, estimator)
            error = values.std(ddof=1) * np.sqrt(1 / values.size + 1 / 10_000)
            truth = group.true_value(share, beta, estimator)
            published[estimator, a, beta, 3, share] = values.mean() - 2.5 * error, truth
    rows = list(panels.panel_rows([group], published))
    assert len(rows) == 8 * 2 * 5  # one m and one a
    np.testing.assert_allclose([row.z for row in rows], 2.5)
    assert all(row.truth_z is None for row in rows if "ECE" in row.estimator)
    assert all(row.truth_z == 0 for row in rows if "SKCE" in row.estimator)
    *_, total = panels.count_rows(rows)
    assert total[1:4] == (80, 80, 0)


def test_published_panels(data_dir, tmp_path):
    """The bars of the comparison: 1 % beyond three standard errors, none beyond 4.5."""
    published = panels.read_panels(command_line.Run("paper", data_dir, tmp_path))
    assert len(published) == 640
    rows = list(csv.DictReader((COMMITTED / "panels.csv").read_text(encoding="utf-8").splitlines()))
    ours = {label: name for name, label in w19_estimates_tables.LABELS.items()}
    for row in rows:
        cell = float(row["a"]), row["β"], int(row["m"]), float(row["π"])
        theirs = published.pop((ours[row["estimator"]], *cell))
        assert theirs == (float(row["published mean"]), float(row["published true value"]))
    assert not published
    for name in ("z", "z of the true values"):
        z = np.abs([float(row[name]) for row in rows if row[name]])
        assert np.mean(z > 3) <= 0.01
        assert z.max() < 4.5
