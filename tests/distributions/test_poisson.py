import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from calibjax import distributions


def _settings(size=400):
    """Random settings; the first ones are limits."""
    rng = np.random.default_rng(0)
    rate = 10 ** rng.uniform(-3, 6, size)
    count = rng.poisson(rate)
    count[::7] = count[::7] * rng.uniform(0, 2, len(count[::7]))
    level = rng.uniform(size=size)
    rate[:4], count[:4], level[:4] = (1e-3, 1.0, 1e5, 1e5), -1, (0, 0, 0, 1)
    return rate, count, level


@jax.jit
def _values(rate, count, level):
    def one(rate, count):
        p = distributions.Poisson(rate)
        return p.log_prob(count), p.cdf(count)

    slopes = jax.vmap(jax.jacfwd(one))(rate, count)
    return *jax.vmap(one)(rate, count), distributions.Poisson(rate).icdf(level), slopes


def test_quantiles_between_which_single_precision_has_no_numbers():
    """At counts whose neighbours are 2 to 64 apart bisection has to come to an end, too."""
    rate, level = np.float32([3e7, 5e7, 1e9]), np.float32([1e-6, 0.3, 0.9])
    ours = distributions.Poisson(rate).icdf(level)
    expected = stats.poisson.ppf(level, rate.astype(float))
    np.testing.assert_allclose(ours, expected, rtol=2e-7)
    largest = np.iinfo(ours.dtype).max
    beyond = distributions.Poisson(np.float32([3.0 * largest])).icdf(level[:1])
    assert int(beyond[0]) == np.iinfo(ours.dtype).min


@pytest.mark.parametrize(
    ("dtype", "log_tolerance", "tolerance"), [(np.float32, 3e-6, 1e-5), (np.float64, 1e-12, 1e-13)]
)
def test_agrees_with_scipy(dtype, log_tolerance, tolerance):
    rate, count, level = _settings()
    rate, level = rate.astype(dtype), level.astype(dtype)
    log_prob, cdf, quantile, slopes = _values(rate, count, level)
    assert log_prob.dtype == cdf.dtype == dtype
    assert jnp.issubdtype(quantile.dtype, jnp.integer)
    rate, level = rate.astype(float), level.astype(float)
    expected = stats.poisson.logpmf(count, rate)
    # scipy itself loses digits at large rates.
    small = rate < 100
    np.testing.assert_allclose(log_prob[small], expected[small], rtol=log_tolerance, atol=1e-6)
    np.testing.assert_allclose(log_prob, expected, rtol=max(log_tolerance, 1e-9), atol=1e-8)
    expected = np.where(count < 0, 0, special.gammaincc(np.maximum(count, 0) + 1, rate))
    np.testing.assert_allclose(cdf, expected, atol=tolerance)
    # The smallest count with cdf ≥ level, unless the cdf is within rounding of the level.
    np.testing.assert_array_equal(quantile[:3], 0)
    assert 1e5 + 3e3 > quantile[3] > 1e5
    expected = stats.poisson.ppf(level, rate)
    near = np.abs(stats.poisson.cdf(np.minimum(expected, quantile), rate) - level) < tolerance
    is_right = (quantile == expected) | (near & (np.abs(quantile - expected) <= 1))
    assert np.all(is_right[4:])
    ours, expected = slopes[1] * np.sqrt(rate), -stats.poisson.pmf(count, rate) * np.sqrt(rate)
    np.testing.assert_allclose(ours, expected, atol=10 * max(tolerance, 1e-10))
    ours, expected = slopes[0][4:], (count / rate - 1)[4:]
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-4 if dtype == np.float32 else 0)


@pytest.mark.slow
def test_draws():
    n = 20_000
    rates = np.array([0.3, 8.0, 1e6], np.float32)
    p = distributions.Poisson(jnp.asarray(np.repeat(rates, n)))
    draws = np.asarray(jax.jit(distributions.sample_targets)(jax.random.key(0), p)).reshape(3, n)
    for rate, counts in zip(rates[:2], draws[:2]):
        edges = stats.poisson.ppf([0.05, 0.3, 0.5, 0.7, 0.9, 0.99], rate)
        edges = np.concatenate([[-1], np.unique(edges), [np.inf]])
        observed = np.histogram(counts, edges + 0.5)[0]
        expected = n * np.diff(stats.poisson.cdf(edges, rate))
        assert stats.chisquare(observed, expected).pvalue > 1e-3
    # In float32 at a large rate, where log-probabilities by log-gamma functions have no digits.
    assert stats.kstest((draws[2] - 1e6) / 1e3, stats.norm.cdf).pvalue > 1e-3
