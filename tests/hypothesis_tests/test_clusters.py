import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from calibjax.distances import Wasserstein
from calibjax.distributions import Normal
from calibjax.hypothesis_tests import cluster_skce_test, skce_confidence_interval
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct
from tests import oracles

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
KERNEL = TensorProduct(Exponential(1.0, Wasserstein()), SquaredExponential(1.0))
LOC = RNG.normal(size=23)
# NumPy arrays: JAX's are made where the tests have set the precision.
PREDICTIONS = Normal(LOC, np.ones(23))
TARGETS = LOC + RNG.normal(size=23) + 0.5
CLUSTERS = np.concatenate([np.arange(10), RNG.integers(0, 10, 13)]) * 7  # with gaps


def cluster_matrix():
    """Mean of h over the pairs of two clusters, by loops."""
    matrix = np.asarray(oracles.calibration_kernel_matrix(KERNEL, PREDICTIONS, TARGETS))
    members = [np.flatnonzero(c == CLUSTERS) for c in np.unique(CLUSTERS)]
    means = np.array([[matrix[np.ix_(a, b)].mean() for b in members] for a in members])
    return means * (1 - np.eye(10))


def test_against_all_signs():
    matrix = cluster_matrix()
    signs = np.array(list(itertools.product([-1, 1], repeat=10)))
    values = np.einsum("ka,ab,kb->k", signs, matrix, signs) / 90
    test = cluster_skce_test(
        KEY, KERNEL, PREDICTIONS, TARGETS, jnp.asarray(CLUSTERS), num_draws=10_000
    )
    observed = matrix.sum() / 90
    assert_allclose(test.statistic, observed, rtol=1e-9)
    expected = np.mean(values >= observed - 1e-12)
    assert abs(test.pvalue - expected) < 4 * np.sqrt(expected * (1 - expected) / 10_000) + 1e-4
    possible = np.sort(values)
    nearest = np.searchsorted((possible[1:] + possible[:-1]) / 2, test.null_samples)
    assert_allclose(test.null_samples, possible[nearest], atol=1e-12)


def test_interval_is_the_jackknife_over_clusters():
    matrix = cluster_matrix()
    estimate = matrix.sum() / 90
    left_out = [np.delete(np.delete(matrix, a, 0), a, 1).sum() / 72 for a in range(10)]
    error = np.sqrt(9 / 10 * np.sum((left_out - np.mean(left_out)) ** 2))
    found = skce_confidence_interval(KERNEL, PREDICTIONS, TARGETS, clusters=jnp.asarray(CLUSTERS))
    assert_allclose([found.estimate, found.standard_error], [estimate, error], rtol=1e-9)
    reach = scipy.stats.t.ppf(0.975, 9) * error
    limits = [estimate - reach, estimate + reach]
    assert_allclose([found.low, found.high], limits, rtol=1e-9)


def test_few_clusters():
    with pytest.raises(ValueError, match="clusters: expected at least 10 different ones"):
        cluster_skce_test(KEY, KERNEL, PREDICTIONS, TARGETS, CLUSTERS // 14)
