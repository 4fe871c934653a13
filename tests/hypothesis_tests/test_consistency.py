import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from calibjax import distributions, hypothesis_tests

KEY = jax.random.key(0)


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
