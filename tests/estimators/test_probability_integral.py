import jax
import numpy as np
import pytest
import scipy.stats

from calibjax import distributions as d
from calibjax import estimators

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
Y = RANDOM.normal(size=6)


def pit(predictions, targets, key=KEY):
    return np.asarray(estimators.pit_values(key, predictions, targets))


@pytest.mark.parametrize("x64", [False, True])
def test_continuous_values_are_those_of_the_distribution_function(x64):
    with jax.enable_x64(x64):
        loc, scale = RANDOM.normal(size=6), RANDOM.uniform(0.5, 2, 6)
        dtype = np.float64 if x64 else np.float32
        predictions = d.Normal(loc.astype(dtype), scale.astype(dtype))
        found = estimators.pit_values(KEY, predictions, Y.astype(dtype))
        assert found.dtype == dtype
        expected = scipy.stats.norm.cdf(Y, loc, scale)
        np.testing.assert_allclose(found, expected, rtol=1e-12 if x64 else 2e-5)
        np.testing.assert_array_equal(found, pit(predictions, Y.astype(dtype), jax.random.key(1)))


def test_features_and_draws_change_nothing():
    normal = d.Normal(np.zeros(6), np.ones(6))
    for other in (d.with_features(normal, Y), d.monte_carlo(KEY, normal, 2)):
        np.testing.assert_array_equal(pit(other, Y), pit(normal, Y))


def test_counts_are_spread_over_their_jump():
    rate, counts = 2.5, np.array([0, 1, 4])
    repeated = np.repeat(counts, 2000)
    found = pit(d.Poisson(np.full(6000, rate)), repeated).reshape(3, -1)
    low, high = scipy.stats.poisson.cdf(counts - 1, rate), scipy.stats.poisson.cdf(counts, rate)
    assert np.all(found > low[:, None] - 1e-6)
    assert np.all(found < high[:, None] + 1e-6)
    for values, a, b in zip(found, low, high):
        assert scipy.stats.kstest((values - a) / (b - a), "uniform").pvalue > 1e-3


def test_ranks_of_ensembles():
    """With the target, members have m + 1 places; ties take any of theirs."""
    values = np.tile([1.0, 2.0, 2.0], (3000, 1))
    targets = np.repeat([0.0, 2.0, 3.0], 1000)
    found = 4 * pit(d.Ensemble(values), targets).reshape(3, -1)
    for one, low, high in zip(found, (0, 1, 3), (1, 4, 4)):
        assert scipy.stats.kstest((one - low) / (high - low), "uniform").pvalue > 1e-3


def test_quantiles_know_the_interval_only():
    predictions = d.Quantiles(np.array([0.1, 0.5]), np.tile([0.0, 1.0], (3000, 1)))
    targets = np.repeat([-1.0, 0.3, 1.5], 1000)
    found = pit(predictions, targets).reshape(3, -1)
    for one, low, high in zip(found, (0, 0.1, 0.5), (0.1, 0.5, 1)):
        assert scipy.stats.kstest((one - low) / (high - low), "uniform").pvalue > 1e-3
    on_quantile = pit(predictions, np.full(3000, 0.0))  # P(Y < 0) ≤ 0.1 ≤ P(Y ≤ 0)
    assert scipy.stats.kstest(2 * on_quantile, "uniform").pvalue > 1e-3  # all below 1, of level ½


@pytest.mark.parametrize("x64", [False, True])
def test_targets_on_quantiles_are_between_those_beside_them(x64):
    """Uniform under calibration, for dry and wet forecasts, and each within what its tie allows."""
    n, levels = 3000, np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    random = np.random.default_rng(1)
    dry, scale = random.uniform(0.2, 0.6, n)[:, None], random.uniform(1, 3, n)[:, None]

    def amounts(u):
        return np.where(u <= dry, 0.0, -scale * np.log1p(-np.clip((u - dry) / (1 - dry), 0, 1)))

    with jax.enable_x64(x64):
        values, targets = amounts(levels), amounts(random.uniform(size=(n, 1)))[:, 0]
        found = pit(d.Quantiles(levels, values), targets)
    assert 0.3 < np.mean(targets == 0) < 0.5
    ends = np.concatenate([[0], levels, [1]])
    low, high = ((op(values, targets[:, None])).sum(1) for op in (np.less, np.less_equal))
    assert np.all(found >= ends[low] - 1e-6)
    assert np.all(found <= ends[high + 1] + 1e-6)
    for part in (dry[:, 0] < 0.4, dry[:, 0] >= 0.4, scale[:, 0] < 2, scale[:, 0] >= 2):
        assert scipy.stats.kstest(found[part], "uniform").statistic < 0.05
    assert scipy.stats.kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", ["Normal", "Poisson", "ideal ensemble", "Quantiles"])
def test_uniform_under_calibration(name):
    """Also given the predictions, which differ."""
    n = 4000
    loc = np.repeat([0.0, 3.0], n // 2)
    draws = RANDOM.normal(size=(n, 6)) + loc[:, None]
    levels = np.array([0.2, 0.7])
    predictions, targets = {
        "Normal": (d.Normal(loc, np.ones(n)), draws[:, 0]),
        "Poisson": (d.Poisson(loc + 0.7), RANDOM.poisson(loc + 0.7)),
        "ideal ensemble": (d.Ensemble(draws[:, 1:]), draws[:, 0]),
        "Quantiles": (
            d.Quantiles(levels, loc[:, None] + scipy.stats.norm.ppf(levels)),
            draws[:, 0],
        ),
    }[name]
    values = pit(predictions, targets)
    for half in np.split(values, 2):
        assert scipy.stats.kstest(half, "uniform").pvalue > 1e-3
