import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from calibjax import kernels as K
from calibjax.distributions import Ensemble, Poisson
from calibjax.estimators import pit_values
from calibjax.hypothesis_tests import (
    ensemble_skce_test,
    exact_skce_test,
    exact_test,
    pit_ks,
    rank_histogram_test,
)
from tests import oracles

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
KERNEL = oracles.normal_kernel()


def test_against_all_choices():
    """Each of the 3³ choices of the targets among the pools is equally likely."""
    values = RNG.normal(size=(3, 3)) + np.array([[0.0], [1.0], [0.5]])
    values[0, 0] += 2
    shifts = itertools.product(range(3), repeat=3)  # the chosen value comes to be the first
    pools = [np.stack([*map(np.roll, values, shift)]) for shift in shifts]
    observed, biased = oracles.pool_matrix(values), [oracles.pool_matrix(x).mean() for x in pools]
    data = Ensemble(values[:, 1:]), values[:, 0]
    test = ensemble_skce_test(KEY, KERNEL, *data, num_draws=4000, statistic="biased")
    assert_allclose(test.statistic, biased[0], rtol=1e-8)
    assert_allclose(test.components.dispersion.statistic, np.trace(observed) / 3, rtol=1e-8)
    # f(y) − mean of the members is (m + 1) / m = 3 / 2 times the residual in the pool.
    assert_allclose(test.estimate, 2.25 * oracles.unbiased(observed), rtol=1e-8)
    expected = np.mean(np.array(biased) >= biased[0] - 1e-12)
    assert abs(test.pvalue - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000) + 1 / 4001


def test_exact_test_of_draws_points_here():
    with pytest.warns(UserWarning, match="ensemble_skce_test is exact for every number of members"):
        exact_skce_test(KEY, KERNEL, Ensemble(jnp.ones((4, 3))), jnp.arange(4.0), num_draws=9)


@pytest.mark.parametrize("shape", [(9, 4), (9, 4, 2)])
def test_ranks_against_counting(shape):
    """Those of vectors are ranks of the mean distances to the others; ties are broken at random."""
    values = RNG.normal(size=shape)
    test = rank_histogram_test(KEY, Ensemble(values[:, 1:]), values[:, 0], num_draws=9)
    if len(shape) == 3:
        values = np.linalg.norm(values[:, :, None] - values[:, None], axis=-1).mean(-1)
    counts = np.bincount(np.sum(values[:, 1:] < values[:, :1], 1), minlength=4)
    assert_allclose(test.estimate, counts / 9)
    assert_allclose(test.statistic, np.sum((counts - 9 / 4) ** 2 / (9 / 4)))
    test = rank_histogram_test(KEY, Ensemble(np.ones((4000, 3))), np.ones(4000), num_draws=9)
    assert_allclose(test.estimate, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / 4000))


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_default_length_scales_of_dry_ensembles(share):
    """The median of the positive deviations, or the mean distance of values from their median.

    A share of the ensembles of rain is dry; of 1, each is of one value of its own.
    """
    values = np.random.default_rng(0).gamma(1, 2, (40, 5))
    values = np.repeat(values[:, :1], 5, 1) if share == 1 else values
    values[: 0 if share == 1 else int(40 * share)] = 0
    found = jax.jit(lambda p: K.default_kernel(p).target.length_scale)(Ensemble(values))
    distances = np.abs(values[:, 0] - np.median(values[:, 0]))
    deviations = np.std(values, 1)
    expected = np.mean(distances) if share == 1 else np.median(deviations[deviations > 1e-9])
    assert_allclose(found, expected, rtol=1e-12)
    assert_allclose(K.default_kernel(Ensemble(values)).target.length_scale, expected, rtol=1e-12)


def test_ks_distance_of_ranks():
    """As scipy's, of randomised ranks; the exact test redraws uniform ranks, not members."""
    values = np.random.default_rng(0).normal(size=(200, 5))
    ensembles, targets = Ensemble(values[:, 1:]), values[:, 0]
    u = np.asarray(pit_values(KEY, ensembles, targets))
    ks = scipy.stats.ks_1samp(u, scipy.stats.uniform.cdf).statistic * np.sqrt(200)
    assert_allclose(pit_ks(ensembles, targets, key=KEY), ks, rtol=1e-5)
    test = exact_test(KEY, pit_ks, ensembles, targets)
    assert test.pvalue > 0.05
    assert_allclose(test.pvalue, test.textbook_pvalue, atol=0.08)
    assert exact_test(KEY, pit_ks, ensembles, targets + 0.5).pvalue == 0.001
    counts = Poisson(np.full(200, 0.5)), np.random.default_rng(1).poisson(0.5, 200)
    assert exact_test(KEY, pit_ks, *counts).pvalue > 0.05
