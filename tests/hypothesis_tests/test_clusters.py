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


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8])
def test_level_and_power_for_dependent_samples(correlation):
    """20 clusters of 5: levels, and power against means that are wrong in either direction."""
    ids = jnp.repeat(jnp.arange(20), 5)

    @jax.jit
    def pvalue(key, shift):
        keys = jax.random.split(key, 4)
        loc = jax.random.uniform(keys[0], (100,))
        common = jax.random.normal(keys[1], (20,))[ids]
        own = jax.random.normal(keys[2], (100,))
        errors = jnp.sqrt(correlation) * common + jnp.sqrt(1 - correlation) * own
        predictions = Normal(loc, jnp.full(100, 0.1))
        kernel = TensorProduct(Exponential(1.0, Wasserstein()), SquaredExponential(0.2))
        targets = loc + 0.1 * (errors + shift)
        return cluster_skce_test(keys[3], kernel, predictions, targets, ids, num_draws=199).pvalue

    keys = jax.random.split(KEY, 1000)
    level = np.mean(jax.lax.map(lambda key: pvalue(key, 0.0), keys) <= 0.05)
    assert 0.02 - 0.01 < level < 0.065 + 0.01  # within a standard error and a half
    for shift in (-1.0, 1.0):
        found = jax.lax.map(lambda key, shift=shift: pvalue(key, shift), keys[:200])
        assert np.mean(found <= 0.05) > 0.85
