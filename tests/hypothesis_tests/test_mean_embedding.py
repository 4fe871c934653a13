import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, hypothesis_tests
from tests import oracles
from tests.estimators.test_kernel import case

KEY = jax.random.key(0)


def cme_test(kernel, predictions, targets, at_predictions, at_targets):
    at = {"at_predictions": at_predictions, "at_targets": at_targets}
    return hypothesis_tests.cme_test(None, kernel, predictions, targets, **at)


@pytest.mark.parametrize("name", ["normal-None", "normal-3", "categorical-5-label"])
def test_against_numpy(name):
    arguments, z = case(name)
    test = cme_test(*arguments)
    mean = z.mean(0)
    statistic = 23 * mean @ np.linalg.solve(np.cov(z, rowvar=False), mean)
    np.testing.assert_allclose(test.statistic, statistic, rtol=1e-5)  # condition number 1e6
    np.testing.assert_allclose(test.pvalue, stats.chi2.sf(test.statistic, 7), rtol=1e-9)
    np.testing.assert_allclose(test.estimate, np.mean(mean**2), rtol=1e-10)
    traced = jax.jit(cme_test)(*arguments)
    np.testing.assert_allclose(traced.pvalue, test.pvalue, rtol=1e-5)


def test_singular_covariances_are_refused():
    (kernel, predictions, targets, *locations), _ = case("normal-3")
    twice = jax.tree.map(lambda x: jnp.concatenate([x[:3], x[:1]]), locations)
    far = jax.tree.map(lambda x: x + 1e3, locations)
    for wrong in (twice, far):
        with pytest.raises(ValueError, match="at_predictions, at_targets: expected locations"):
            cme_test(kernel, predictions, targets, *wrong)
        traced = jax.jit(cme_test)(kernel, predictions, targets, *wrong)
        assert jnp.isnan(traced.pvalue)


def test_power():
    predictions, targets, _ = oracles.normal_data(200, calibrated=False)
    at = (
        distributions.Normal(np.array([0.2, 0.5, 0.9]), np.full(3, 0.1)),
        np.array([0.1, -0.1, 0.0]),
    )
    assert 0 < cme_test(oracles.normal_kernel(), predictions, targets, *at).pvalue < 1e-6


def test_drawn_locations():
    """Predictions of the model, and targets that do not depend on the observed ones."""
    predictions, targets, _ = oracles.normal_data(40)
    kernel = oracles.normal_kernel()
    test = hypothesis_tests.cme_test(KEY, kernel, predictions, targets, num_locations=4)
    keys = jax.random.split(KEY)
    rows = jax.random.permutation(keys[0], 40)[:4]
    at = jax.tree.map(lambda x: x[rows], predictions)
    expected = cme_test(kernel, predictions, targets, at, distributions.sample_targets(keys[1], at))
    np.testing.assert_allclose(test.statistic, expected.statistic, rtol=1e-12)
