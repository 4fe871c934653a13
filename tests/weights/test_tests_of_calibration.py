"""Weights of tests of calibration and of intervals."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Categorical, Normal, sample_targets
from calibjax.hypothesis_tests import (
    aggregated_skce_test,
    exact_skce_test,
    exact_test,
    group_calibration_test,
    skce_confidence_interval,
)
from tests import oracles
from tests.weights.laws import CLASSES, KERNEL, KEY, LABELS, LOW_RANK, NORMALS, TARGETS, WHITE, N
from tests.weights.laws import OF_REDRAWS as WEIGHTS

_random = np.random.default_rng(5)
GROUPS = _random.uniform(size=(N, 2)) < 0.6


def test_one_sample_with_all_the_weight_is_refused():
    weights, single = np.where(np.arange(N) == 3, 1e10, 1), jax.tree.map(np.float32, CLASSES)
    with pytest.raises(ValueError, match="weights: expected pairs .* float32"):
        exact_skce_test(KEY, WHITE, single, LABELS, weights=weights, num_draws=19)
    with pytest.raises(ValueError, match="weights: expected pairs .* float32"):
        aggregated_skce_test(KEY, single, LABELS, weights=weights, num_draws=19)
    test = exact_skce_test(KEY, WHITE, CLASSES, LABELS, weights=weights, num_draws=19)
    assert 0 < test.pvalue <= 1


def test_statistics_get_weights_by_keyword():
    """As all estimators take them."""
    statistic = functools.partial(estimators.skce_biased, KERNEL)
    found = exact_test(KEY, statistic, NORMALS, TARGETS, weights=WEIGHTS, num_draws=19)
    expected = estimators.skce_biased(KERNEL, NORMALS, TARGETS, weights=WEIGHTS)
    np.testing.assert_allclose(found.statistic, expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", [WHITE, LOW_RANK], ids=["pairs", "low rank"])
def test_components_are_those_of_the_matrix(kernel):
    test = exact_skce_test(KEY, kernel, CLASSES, LABELS, weights=WEIGHTS, num_draws=19)
    matrix = np.asarray(oracles.calibration_kernel_matrix(kernel, CLASSES, LABELS))
    w = WEIGHTS / WEIGHTS.sum()
    pairs = np.outer(w, w)
    found = test.components
    np.testing.assert_allclose(found.biased.statistic, (pairs * matrix).sum(), rtol=1e-9)
    spread = (w**2 * matrix.diagonal()).sum() / (w**2).sum()
    np.testing.assert_allclose(found.dispersion.statistic, spread, rtol=1e-9)
    unbiased = estimators.skce(kernel, CLASSES, LABELS, weights=WEIGHTS)
    np.testing.assert_allclose(found.unbiased.statistic, unbiased, rtol=1e-9)
    np.testing.assert_allclose(found.num_targets, 1 / (w**2).sum(), rtol=1e-12)


def test_group_errors_are_weighted_means():
    test = group_calibration_test(KEY, NORMALS, TARGETS, GROUPS, weights=WEIGHTS, num_draws=19)
    for g, members in enumerate(GROUPS.T):
        error = np.average((TARGETS - NORMALS.loc)[members], weights=WEIGHTS[members])
        np.testing.assert_allclose(test.estimate[g], error, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 64])
@pytest.mark.parametrize("kernel", ["normals", "classes"])
def test_level_with_log_normal_weights(kernel, n):
    """The p-values are uniform, whatever the weights are: 2000 calibrated data sets."""

    def pvalue(key):
        keys = jax.random.split(key, 4)
        weights = jnp.exp(jax.random.normal(keys[0], (n,)))
        if kernel == "normals":
            p = Normal(jax.random.normal(keys[1], (n,)), jnp.exp(jax.random.normal(keys[1], (n,))))
            own = KERNEL
        else:
            p, own = Categorical(jax.random.dirichlet(keys[1], jnp.ones(3), (n,))), WHITE
        y = sample_targets(keys[2], p)
        return exact_skce_test(keys[3], own, p, y, weights=weights, num_draws=99).pvalue

    pvalues = jax.jit(lambda keys: jax.lax.map(pvalue, keys))(jax.random.split(KEY, 2000))
    error = np.sqrt(0.05 * 0.95 / 2000)
    assert abs(np.mean(pvalues <= 0.05) - 0.05) <= 3 * error
    assert abs(np.mean(pvalues) - 0.505) <= 3 * np.sqrt(1 / 12 / 2000)


@pytest.mark.slow
def test_coverage_of_intervals_with_weights():
    """Of shifted normals, with weights of effective size 100: 1000 data sets."""
    n, truth_size = 272, 100_000  # 272 / e, as E w² / (E w)² = e

    def data(key, size):
        keys = jax.random.split(key, 3)
        p = Normal(jax.random.normal(keys[0], (size,)), jnp.full(size, 0.5))
        y = sample_targets(keys[1], p) + 0.3
        return p, y, jnp.exp(jax.random.normal(keys[2], (size,)))

    def interval(key):
        p, y, w = data(key, n)
        found = skce_confidence_interval(KERNEL, p, y, weights=w)
        return found.low, found.high

    low, high = jax.jit(lambda keys: jax.lax.map(interval, keys))(jax.random.split(KEY, 1000))
    p, y, _ = data(jax.random.key(1), truth_size)
    truth = estimators.skce_block(KERNEL, p, y, block_size=500)
    covered = np.mean((low <= truth) & (truth <= high))
    assert 0.93 <= covered <= 0.97, covered
