import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distances, distributions, kernels
from calibjax.hypothesis_tests import intervals
from calibjax.hypothesis_tests import skce_confidence_interval as interval_of
from calibjax.operators.plan import sample_pair
from tests import oracles

NAMES = ("normal-None", "normal-3", "categorical-5-label")


def jackknife(matrix, weights=None):
    """The mean over pairs, and its standard error: leave out one sample at a time."""
    weights = np.ones(len(matrix)) if weights is None else weights
    masses = np.outer(weights, weights) * (1 - np.eye(len(matrix)))

    def mean(rows):
        pairs = np.ix_(rows, rows)
        return np.sum(masses[pairs] * matrix[pairs]) / np.sum(masses[pairs])

    rows = np.arange(len(matrix))
    deviations = [mean(np.delete(rows, i)) - mean(rows) for i in rows]
    size = weights.sum() ** 2 / np.sum(weights**2)
    return mean(rows), np.sqrt((size - 1) / size * np.sum(np.square(deviations)))


def cluster_means(matrix, ids, weights=None):
    """Weighted means over the pairs of samples of two clusters."""
    weights = np.ones(len(ids)) if weights is None else weights
    clusters = [np.flatnonzero(ids == a) for a in np.unique(ids)]
    masses = np.outer(weights, weights)
    pairs = [[np.ix_(a, b) for b in clusters] for a in clusters]
    return np.array([[np.average(matrix[x], weights=masses[x]) for x in row] for row in pairs])


@pytest.mark.parametrize("name", NAMES)
def test_jackknife_against_a_loop(name):
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix = oracles.h_matrix(h, samples)
    _, error = jackknife(matrix)
    interval = interval_of(kernel, predictions, targets)
    np.testing.assert_allclose(interval.standard_error, error, rtol=1e-9)
    np.testing.assert_allclose(interval.estimate, oracles.unbiased(matrix), rtol=1e-10)
    expected = stats.norm.interval(0.95, oracles.unbiased(matrix), error)
    np.testing.assert_allclose((interval.low, interval.high), expected, rtol=1e-7)
    interval = interval_of(kernel, predictions, targets, confidence_level=0.8)
    expected = stats.norm.isf(0.1, oracles.unbiased(matrix), error)
    np.testing.assert_allclose(interval.high, expected, rtol=1e-7)


def _linear_cases(n):
    """Kernels with which sums over pairs take linear time."""
    rng = np.random.default_rng(0)
    probs = np.round(rng.uniform(size=n), 1)  # some are equal
    binary = distributions.Bernoulli(jnp.asarray(probs))
    loc = jnp.asarray(rng.normal(size=n))
    normals = distributions.Normal(loc, jnp.exp(loc / 4))
    smooth = kernels.SquaredExponential(1.0, distances.Wasserstein())
    low_rank = kernels.Nystrom(smooth, jax.tree.map(lambda x: x[:3], normals))
    on_line = kernels.Exponential(0.2) + 0.5 * kernels.Exponential(0.7) + kernels.Constant(0.1)
    scores = kernels.NormalScore(kernels.SquaredExponential(0.5))
    return {
        "line": (on_line, kernels.White(), binary, rng.integers(0, 2, n)),
        "low rank": (low_rank, scores, normals, rng.normal(size=n)),
    }


@pytest.mark.parametrize("name", ["line", "low rank"])
@pytest.mark.parametrize("weighted", [False, True])
def test_jackknife_in_linear_time(name, weighted, monkeypatch):
    n = 25
    of_predictions, of_targets, predictions, targets = _linear_cases(n)[name]
    kernel = kernels.TensorProduct(of_predictions, of_targets)
    samples = predictions, jnp.asarray(targets)
    rows = jax.jit(jax.vmap(jax.vmap(sample_pair, (None, None, 0)), (None, 0, None)))
    matrix = np.asarray(rows(kernel, samples, samples))
    weights = np.random.default_rng(1).uniform(0, 2, n) if weighted else None
    estimate, error = jackknife(matrix, weights)
    monkeypatch.setattr(intervals.operators, "weighted_sums", None)  # no pairs
    monkeypatch.setattr("calibjax.operators.plan._ON_LINE_FROM", 0)
    interval = interval_of(kernel, *samples, weights=weights)
    np.testing.assert_allclose(interval.estimate, estimate, rtol=1e-10)
    np.testing.assert_allclose(interval.standard_error, error, rtol=1e-10)


def test_shown_in_a_line():
    interval = intervals.ConfidenceInterval(jnp.float32(-0.1), np.inf, jnp.array(0.12), 0.034567)
    assert repr(interval) == "ConfidenceInterval(0.12 ± 0.0346, low=-0.1, high=inf)"
    many = jax.vmap(lambda x: intervals.ConfidenceInterval(x, x, x, None))(jnp.arange(3.0))
    assert repr(many) == "ConfidenceInterval(float64[3], low=float64[3], high=float64[3])"
