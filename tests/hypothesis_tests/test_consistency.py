import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, estimators, hypothesis_tests

KEY = jax.random.key(0)


def _errors_in_bins(predictions, targets):
    """Expected calibration error of binary predictions in ten bins."""
    binning = estimators.UniformBins(10)
    return estimators.ece(predictions, targets, binning=binning, notion="canonical")


def test_null_distribution_against_a_loop():
    """Bröcker and Smith's resampling in NumPy, with its own random numbers."""
    rng = np.random.default_rng(0)
    probs = rng.uniform(size=12)
    targets = rng.integers(0, 2, size=12)

    def statistic(p, y):
        return np.sum(p * (y - p)) + 0.3 * np.max(y - p)

    draws = []
    for _ in range(4000):
        resampled = probs[rng.integers(0, 12, size=12)]
        draws.append(statistic(resampled, rng.uniform(size=12) < resampled))
    own = lambda p, y: jnp.sum(p.probs * (y - p.probs)) + 0.3 * jnp.max(y - p.probs)  # noqa: E731
    predictions = distributions.Bernoulli(jnp.asarray(probs))
    test = hypothesis_tests.consistency_test(KEY, own, predictions, targets, num_draws=4000)
    assert stats.ks_2samp(draws, test.null_samples).pvalue > 1e-3
    np.testing.assert_allclose(test.statistic, statistic(probs, targets), rtol=1e-12)
    count = np.sum(np.asarray(test.null_samples) >= float(test.statistic))
    np.testing.assert_allclose(test.pvalue, (1 + count) / 4001)


def test_equal_predictions_cannot_be_told_from_resampled_ones():
    """There consistency resampling is exact: a binomial test."""
    data = distributions.Bernoulli(jnp.full(30, 0.3)), (jnp.arange(30) < 13).astype(int)
    successes = lambda p, y: jnp.sum(y)  # noqa: E731
    test = hypothesis_tests.consistency_test(KEY, successes, *data, num_draws=20_000)
    exact = stats.binom.sf(12, 30, 0.3)
    assert abs(float(test.pvalue) - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)


@pytest.mark.slow
def test_it_rejects_too_often_where_the_exact_test_does_not():
    """W19 Fig. 2: ECE with more bins than the data can fill."""
    n, m, num_datasets = 50, 4, 400

    def evaluate(key):
        keys = jax.random.split(key, 3)
        predictions = distributions.Categorical(jax.random.dirichlet(keys[0], jnp.ones(m), (n,)))
        targets = distributions.sample_targets(keys[1], predictions)
        arguments = keys[2], _errors_in_bins, predictions, targets
        consistency = hypothesis_tests.consistency_test(*arguments, num_draws=99)
        return consistency.pvalue, hypothesis_tests.exact_test(*arguments, num_draws=99).pvalue

    consistency, exact = jax.lax.map(evaluate, jax.random.split(KEY, num_datasets), batch_size=20)
    error = np.sqrt(0.05 * 0.95 / num_datasets)
    assert np.mean(consistency <= 0.05) > 0.05 + 5 * error
    assert abs(np.mean(exact <= 0.05) - 0.05) < 3 * error
