import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, estimators, hypothesis_tests
from tests import oracles
from tests.estimators.test_mean_embedding import case

KEY = jax.random.key(0)


@pytest.mark.parametrize("name", ["normal-None", "normal-3", "categorical-5-label"])
def test_against_numpy(name):
    arguments, z = case(name)
    test = hypothesis_tests.cme_test(*arguments)
    mean = z.mean(0)
    statistic = 23 * mean @ np.linalg.solve(np.cov(z, rowvar=False), mean)
    np.testing.assert_allclose(test.statistic, statistic, rtol=1e-5)  # condition number 1e6
    np.testing.assert_allclose(test.pvalue, stats.chi2.sf(test.statistic, 7), rtol=1e-9)
    np.testing.assert_allclose(test.estimate, np.mean(mean**2), rtol=1e-10)
    traced = jax.jit(hypothesis_tests.cme_test)(*arguments)
    np.testing.assert_allclose(traced.pvalue, test.pvalue, rtol=1e-5)


def test_as_many_locations_as_samples_are_refused():
    (kernel, predictions, targets, *locations), _ = case("normal-None")
    few = jax.tree.map(lambda x: x[:7], (predictions, targets))
    for test in (hypothesis_tests.cme_test, jax.jit(hypothesis_tests.cme_test)):
        with pytest.raises(ValueError, match="more samples than the 7 test locations, got 7"):
            test(kernel, *few, *locations)


def test_singular_covariances_are_refused():
    (kernel, predictions, targets, *locations), _ = case("normal-3")
    twice = jax.tree.map(lambda x: jnp.concatenate([x[:3], x[:1]]), locations)
    far = jax.tree.map(lambda x: x + 1e3, locations)
    for wrong in (twice, far):
        with pytest.raises(ValueError, match="test_predictions, test_targets: expected locations"):
            hypothesis_tests.cme_test(kernel, predictions, targets, *wrong)
        traced = jax.jit(hypothesis_tests.cme_test)(kernel, predictions, targets, *wrong)
        assert jnp.isnan(traced.pvalue)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("n", [6, 7, 13])  # where means of equal numbers are rounded
def test_columns_that_are_constant_up_to_rounding_are_refused(n, dtype):
    """Calibrated data: equal predictions of a rare event that did not happen."""
    arguments = (
        oracles.categorical_kernel(),
        distributions.Bernoulli(jnp.full(n, 0.1, dtype)),
        jnp.zeros(n, int),
        distributions.Bernoulli(jnp.array([0.3], dtype)),
        jnp.array([1]),
    )
    with pytest.raises(ValueError, match="test_predictions, test_targets: expected locations"):
        hypothesis_tests.cme_test(*arguments)
    assert jnp.isnan(jax.jit(hypothesis_tests.cme_test)(*arguments).pvalue)


def _pvalues(n, num_datasets, exact):
    kernel = oracles.normal_kernel()

    def pvalue(key):
        keys = jax.random.split(key, 4)
        predictions = distributions.Normal(jax.random.uniform(keys[0], (n,)), jnp.full(n, 0.1))
        targets = distributions.sample_targets(keys[1], predictions)
        locations = hypothesis_tests.draw_test_locations(keys[2], 3)

        def statistic(p, y):
            return hypothesis_tests.cme_test(kernel, p, y, *locations).statistic

        if exact:
            return hypothesis_tests.exact_test(
                keys[3], statistic, predictions, targets, num_draws=99
            ).pvalue
        return hypothesis_tests.cme_test(kernel, predictions, targets, *locations).pvalue

    keys = jax.random.split(KEY, num_datasets)
    return jax.lax.map(pvalue, keys, batch_size=50)


@pytest.mark.slow
def test_the_asymptotic_test_rejects_too_often_and_the_exact_one_does_not():
    error = np.sqrt(0.05 * 0.95 / 500)
    assert np.mean(_pvalues(16, 500, exact=False) <= 0.05) > 0.05 + 5 * error
    assert abs(np.mean(_pvalues(16, 500, exact=True) <= 0.05) - 0.05) < 3 * error


@pytest.mark.slow
def test_the_null_distribution_for_many_samples():
    pvalues = _pvalues(4096, 300, exact=False)
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-3


def test_power():
    predictions, targets, _ = oracles.normal_data(200, calibrated=False)
    locations = hypothesis_tests.draw_test_locations(KEY, 3)
    test = hypothesis_tests.cme_test(oracles.normal_kernel(), predictions, targets, *locations)
    assert 0 < test.pvalue < 1e-6


@pytest.mark.parametrize("dimension", [None, 1, 10])
def test_locations(dimension):
    predictions, targets = hypothesis_tests.draw_test_locations(KEY, 4000, dimension)
    family = distributions.Normal if dimension is None else distributions.DiagNormal
    assert isinstance(predictions, family)
    assert (
        predictions.loc.shape
        == targets.shape
        == (4000, *(() if dimension is None else (dimension,)))
    )
    assert stats.kstest(np.ravel(predictions.loc), "uniform").pvalue > 1e-3
    assert stats.kstest(np.ravel(targets), stats.norm(0, 0.1).cdf).pvalue > 1e-3
    assert (predictions.scale == 0.1).all()
    assert abs(np.corrcoef(np.ravel(targets), np.ravel(predictions.loc))[0, 1]) < 0.05


def test_the_estimate_is_the_ucme():
    arguments, _ = case("normal-None")
    np.testing.assert_allclose(
        hypothesis_tests.cme_test(*arguments).estimate, estimators.ucme(*arguments), rtol=1e-10
    )
