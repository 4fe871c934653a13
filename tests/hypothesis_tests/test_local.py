import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.hypothesis_tests import local_calibration_test

KEY = jax.random.key(0)
RNG = np.random.default_rng(1)
N = 100
FEATURES, CONFIDENCES = RNG.uniform(size=(N, 2)), RNG.uniform(0.5, 1, size=N)
NEAR = estimators.Neighbourhood.laplacian(0.15, 5)


def _p_values(probabilities, num_datasets, num_draws=99):
    """Smallest adjusted p-values, and p-values of the first sample, of labels with given rates."""
    correct = jnp.asarray(RNG.uniform(size=(num_datasets, N)) < probabilities)

    @jax.jit
    def test(key, correct):
        result = local_calibration_test(
            key, NEAR, FEATURES, CONFIDENCES, correct, num_draws=num_draws
        )
        return result.adjusted_pvalue.min(), result.pvalue

    keys = jax.random.split(KEY, num_datasets)
    return jax.lax.map(lambda args: test(*args), (keys, correct), batch_size=20)


@pytest.mark.slow
def test_planted_region():
    """A region in which the model is overconfident by a half is found, and no other.

    In 91.4 % of 1200 data sets.
    """
    is_bad = FEATURES[:, 0] < 0.3
    probabilities = np.where(is_bad, CONFIDENCES - 0.5, CONFIDENCES)
    smallest, _ = _p_values(probabilities, 100)
    assert abs(np.mean(smallest <= 0.05) - 0.914) < 3 * np.sqrt(0.914 * 0.086 / 100)
    correct = (RNG.uniform(size=(2, N)) < probabilities).astype(int)
    test = functools.partial(local_calibration_test, KEY, NEAR)
    far = FEATURES[:, 0] > 0.6
    for y in correct:
        found = np.asarray(test(FEATURES, CONFIDENCES, y).adjusted_pvalue) <= 0.05
        assert found[is_bad].any()
        assert not found[far].any()


def test_result():
    correct = (RNG.uniform(size=N) < 0.5).astype(int)
    data = FEATURES, CONFIDENCES, correct
    result = local_calibration_test(KEY, NEAR, *data, num_draws=50)
    np.testing.assert_allclose(result.statistic, estimators.lce(NEAR, *data), rtol=1e-12)
    errors = estimators.local_errors(NEAR, *data).error
    np.testing.assert_allclose(result.estimate, errors, rtol=1e-13)
    assert result.null_samples.shape == (50, N)
    assert np.all(result.adjusted_pvalue >= result.pvalue)
    # A curve is adjusted for all of its length scales.
    curve = estimators.Neighbourhood.laplacian(np.array([0.15, 10.0]), 5)
    both = local_calibration_test(KEY, curve, *data, num_draws=50)
    assert both.pvalue.shape == both.adjusted_pvalue.shape == (2, N)
    np.testing.assert_allclose(both.pvalue[0], result.pvalue, rtol=1e-12)
    assert np.all(both.adjusted_pvalue[0] >= result.adjusted_pvalue - 1e-12)
