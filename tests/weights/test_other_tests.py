"""Weights of tests of coverage, ranks, local errors, and of where a model is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Ensemble, Normal, Quantiles
from calibjax.hypothesis_tests import (
    coverage_test,
    local_calibration_test,
    rank_histogram_test,
    witness_test,
)
from tests.weights import laws
from tests.weights.laws import OF_REDRAWS as WEIGHTS

_random = np.random.default_rng(11)
QUANTILES = Quantiles(
    np.tile([0.1, 0.5, 0.9], (laws.N, 1)), np.sort(_random.normal(size=(laws.N, 3)), 1)
)
MEMBERS = Ensemble(_random.normal(size=(laws.N, 3)))
NEAR = estimators.Neighbourhood.laplacian(1.0, 1)


def test_statistics_by_hand():
    u, options = WEIGHTS * WEIGHTS.sum() / (WEIGHTS**2).sum(), {"weights": WEIGHTS, "num_draws": 49}
    test = coverage_test(laws.KEY, QUANTILES, laws.TARGETS, **options)
    below = laws.TARGETS[:, None] <= QUANTILES.values
    expected = np.average(below, 0, weights=WEIGHTS) - [0.1, 0.5, 0.9]
    np.testing.assert_allclose(test.estimate["levels"], expected, rtol=1e-11, atol=1e-14)
    central = np.average(below[:, 2] & ~below[:, 0], weights=WEIGHTS) - 0.8
    np.testing.assert_allclose(test.estimate["central"], [central], rtol=1e-11)

    test = rank_histogram_test(laws.KEY, MEMBERS, laws.TARGETS, **options)
    ranks = (MEMBERS.values < laws.TARGETS[:, None]).sum(1)
    numbers, n = np.bincount(ranks, u, 4), u.sum()
    np.testing.assert_allclose(test.statistic, ((numbers - n / 4) ** 2 / (n / 4)).sum(), rtol=1e-11)
    np.testing.assert_allclose(test.estimate, numbers / n, rtol=1e-11)

    test = local_calibration_test(
        laws.KEY, NEAR, laws.FEATURES, laws.CONFIDENCES, laws.CORRECT, **options
    )
    errors = estimators.lce(NEAR, laws.FEATURES, laws.CONFIDENCES, laws.CORRECT, weights=WEIGHTS)
    np.testing.assert_allclose(test.statistic[: laws.COUNT], errors[: laws.COUNT], rtol=1e-11)
    np.testing.assert_array_equal(test.statistic[laws.COUNT :], 0)
    np.testing.assert_array_equal(test.pvalue[laws.COUNT :], 1)


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 64])
@pytest.mark.parametrize("name", ["coverage", "ranks", "local", "witness"])
def test_level_with_log_normal_weights(name, n):
    """2000 calibrated data sets."""

    def pvalue(key):
        keys = jax.random.split(key, 5)
        w = jnp.exp(jax.random.normal(keys[0], (n,)))
        loc, noise = jax.random.normal(keys[1], (2, n))
        options = {"weights": w, "num_draws": 99}
        if name == "coverage":
            values = loc[:, None] + jnp.array([-1.2815515655446004, 0.0, 1.2815515655446004])
            predictions = Quantiles(jnp.array([0.1, 0.5, 0.9]), values)
            test = coverage_test(keys[3], predictions, loc + noise, **options)
            return jnp.min(test.adjusted_pvalue["levels"])
        if name == "ranks":
            values = jax.random.normal(keys[2], (n, 4))
            return rank_histogram_test(keys[3], Ensemble(values), noise, **options).pvalue
        if name == "local":
            confidences = jax.random.uniform(keys[2], (n,))
            correct = jax.random.uniform(keys[4], (n,)) < confidences
            test = local_calibration_test(
                keys[3], NEAR, loc[:, None], confidences, correct, **options
            )
            return jnp.min(test.adjusted_pvalue)
        predictions = Normal(loc, jnp.ones(n))
        test = witness_test(keys[3], laws.KERNEL, predictions, loc + noise, *laws.PLACES, **options)
        return jnp.min(test.adjusted_pvalue)

    pvalues = jax.jit(lambda keys: jax.lax.map(pvalue, keys))(jax.random.split(laws.KEY, 2000))
    level, error = np.mean(pvalues <= 0.05), np.sqrt(0.05 * 0.95 / 2000)
    # That of the levels alone is at most the level of all sets, over which p-values are adjusted.
    assert level <= 0.05 + 3 * error
    if name != "coverage":
        assert level >= 0.05 - 3 * error
