import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import scores
from calibjax.distributions import Quantiles
from calibjax.hypothesis_tests import coverage_test

RNG = np.random.default_rng(0)
N, LEVELS = 80, np.array([0.1, 0.3, 0.5, 0.7, 0.9])
LOC = RNG.normal(size=N)
VALUES = LOC[:, None] + stats.norm.ppf(LEVELS)
KEY = jax.random.key(0)


def forecast(values=VALUES, levels=LEVELS):
    return Quantiles(jnp.asarray(levels), jnp.asarray(values))


def test_differences_are_those_of_counts():
    y = LOC + RNG.normal(size=N)
    result = coverage_test(KEY, forecast(), y, num_draws=99)
    below = np.array([(y <= VALUES[:, j]).mean() for j in range(5)])
    inside = np.diff(np.concatenate([[0], below, [1]]))
    probs = np.diff([0, *LEVELS, 1])
    central = [((VALUES[:, j] < y) & (y <= VALUES[:, 4 - j])).mean() for j in (0, 1)]
    expected = {"levels": below - LEVELS, "intervals": inside - probs}
    expected["central"] = np.array(central) - [0.8, 0.4]
    for name, values in expected.items():
        np.testing.assert_allclose(result.estimate[name], values, atol=1e-14)
        np.testing.assert_allclose(result.statistic[name], np.abs(values), atol=1e-14)
        assert result.null_samples[name].shape == (99, len(values))
        assert np.all(result.adjusted_pvalue[name] >= result.pvalue[name])


def smallest(values, y, levels=LEVELS):
    """Smallest adjusted p-value of each data set."""

    def test(item):
        adjusted = coverage_test(item[0], forecast(values, levels), item[1], num_draws=199)
        pvalues = adjusted.adjusted_pvalue.values()
        return functools.reduce(jnp.minimum, [jnp.min(p) for p in pvalues if p.size])

    keys = jax.random.split(KEY, len(y))
    return np.asarray(jax.jit(lambda items: jax.lax.map(test, items))((keys, jnp.asarray(y))))


@pytest.mark.slow
def test_level():
    pvalues = smallest(VALUES, LOC + RNG.normal(size=(2000, N)))
    error, rate = np.sqrt(0.05 * 0.95 / 2000), np.mean(pvalues <= 0.05)
    assert -8 * error < rate - 0.05 < 3 * error  # differences are discrete


WRONG = {"close": (1.8, 0.0), "far": (0.55, 0.0), "low": (1.0, 0.5), "high": (1.0, -0.5)}
ONE_WRONG = {"one low": np.array([0, 0, 0, 0, -0.7]), "one high": np.array([0.7, 0, 0, 0, 0])}


@pytest.mark.slow
@pytest.mark.parametrize("quantiles", [*WRONG, *ONE_WRONG])
def test_power(quantiles):
    scale, shift = WRONG.get(quantiles, (1.0, 0.0))
    targets = LOC + shift + scale * RNG.normal(size=(200, N))
    found = smallest(VALUES + ONE_WRONG.get(quantiles, 0.0), targets)
    assert np.mean(found <= 0.05) > 0.8


@pytest.mark.slow
def test_what_it_cannot_see():
    """Errors of half of the samples that those of the other half make up for."""
    sign = np.where(np.arange(N) % 2, 1.0, -1.0)
    y = LOC[None] + 0.5 * sign + np.sqrt(0.75) * RNG.normal(size=(200, N))
    test = lambda y: coverage_test(KEY, forecast(), y, num_draws=99).adjusted_pvalue  # noqa: E731
    rejected = jax.jit(jax.vmap(lambda y: jnp.min(test(y)["levels"]) <= 0.05))(jnp.asarray(y))
    assert np.mean(rejected) < 0.1


@pytest.mark.slow
def test_one_level_and_levels_of_each_sample():
    y = LOC + RNG.normal(size=N)
    one = coverage_test(KEY, forecast(VALUES[:, 2:3], [0.5]), y, num_draws=20)
    assert one.estimate["central"].shape == (0,)
    np.testing.assert_allclose(one.estimate["intervals"][0], one.estimate["levels"][0])
    # Half of the samples have other levels, and the quantiles that belong to them.
    levels = np.where(np.arange(N)[:, None] < 40, [0.2, 0.8], [0.4, 0.6])
    values = LOC[:, None] + stats.norm.ppf(levels)
    result = coverage_test(KEY, forecast(values, levels), y, num_draws=20)
    expected = (y[:, None] <= values).mean(0) - [0.3, 0.7]
    np.testing.assert_allclose(result.estimate["levels"], expected, atol=1e-14)


FIVE = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def rain(num_datasets, n=400):
    """Amounts of which 60 % are zero, their true quantiles, and the levels of these."""
    random, levels = np.random.default_rng(3), FIVE
    scale = random.uniform(1, 5, n)
    wet = stats.gamma.ppf(np.maximum(levels - 0.6, 0) / 0.4, 0.8)
    is_wet = random.uniform(size=(num_datasets, n)) > 0.6
    y = np.where(is_wet, scale * random.gamma(0.8, size=(num_datasets, n)), 0.0)
    return scale[:, None] * wet, y, levels


def demand(num_datasets, n=400):
    random, levels = np.random.default_rng(4), FIVE
    share = 1.5 / (1.5 + random.uniform(1, 6, n))
    values = stats.nbinom.ppf(levels, 1.5, share[:, None])
    return values, 1.0 * random.negative_binomial(1.5, share, (num_datasets, n)), levels


def near_30(num_datasets, n=400):
    random, levels = np.random.default_rng(5), FIVE
    rate = random.uniform(25, 35, n)
    values = stats.poisson.ppf(levels, rate[:, None])
    return values, 1.0 * random.poisson(rate, (num_datasets, n)), levels


def rounded(num_datasets, n=400):
    random, levels = np.random.default_rng(6), FIVE
    loc, scale = random.normal(10, 5, n), random.uniform(0.7, 2, n)
    values = np.round(loc[:, None] + scale[:, None] * stats.norm.ppf(levels), 1)
    return values, np.round(loc + scale * random.normal(size=(num_datasets, n)), 1), levels


@pytest.mark.parametrize("draw", [rain, demand])
def test_targets_that_equal_quantiles(draw):
    """Both ends are in an interval, and ties are no sign of miscalibration."""
    values, (y,), levels = draw(1)
    found = coverage_test(KEY, Quantiles(levels, values), y)
    inside = np.mean((values[:, 0] <= y) & (y <= values[:, -1]))
    assert 0.9 < inside < 0.99
    np.testing.assert_allclose(found.estimate["central"][0], inside - 0.9, atol=1e-12)
    upto = np.mean(y[:, None] <= values, 0)
    np.testing.assert_allclose(found.estimate["levels"], upto - levels, atol=1e-12)
    assert min(map(np.min, found.adjusted_pvalue.values())) > 0.05
    wrong = coverage_test(KEY, Quantiles(levels, np.round(0.5 * values, 0)), y)
    assert min(map(np.min, wrong.adjusted_pvalue.values())) < 0.01


def test_ties_with_weights_and_levels_of_each_sample():
    """Weights and ties of all kinds; without ties the key of the intervals changes nothing."""
    values, (y,), levels = rain(1)
    weights = 1.0 + np.arange(len(y)) % 3
    each = Quantiles(np.tile(levels, (len(y), 1)), values)
    alike = [coverage_test(KEY, p, y, weights=weights) for p in (each, Quantiles(levels, values))]
    assert min(map(np.min, alike[0].adjusted_pvalue.values())) > 0.05
    wet = np.where(y == 0, 1e-3, y)  # between the quantiles 0 and those above it
    scaled = [coverage_test(KEY, each, wet, weights=w) for w in (weights, 2 * weights)]
    for tests in (alike, scaled):
        jax.tree.map(np.testing.assert_array_equal, *(test.pvalue for test in tests))


CENTRAL = {(0.9,): [], (0.9, 0.95, 0.99): [], (0.05, 0.9, 0.95, 0.99): [(0, 2)]}
CENTRAL |= {(0.1, 0.25, 0.5, 0.75, 0.9): [(0, 4), (1, 3)]}


@pytest.mark.parametrize(("levels", "pairs"), CENTRAL.items())
def test_levels_without_a_counterpart(levels, pairs):
    """Central intervals are those between levels τ and 1 − τ."""
    levels = np.array(levels)
    values, y = LOC[:, None] + stats.norm.ppf(levels), LOC + RNG.normal(size=N)
    found = coverage_test(KEY, forecast(values, levels), y, num_draws=50)
    inside = [np.mean((values[:, j] <= y) & (y <= values[:, k])) for j, k in pairs]
    nominal = [levels[k] - levels[j] for j, k in pairs]
    np.testing.assert_allclose(found.estimate["central"], np.subtract(inside, nominal), atol=1e-12)
    # The 95 % quantile has a coverage of 75 %: each level is tested.
    low = coverage_test(KEY, forecast(values - 1.0, levels), y)
    assert min(np.min(p) for p in low.adjusted_pvalue.values() if p.size) < 0.01


def test_infinite_quantiles():
    """As conformal methods give them for few data: they contain all targets."""
    values = VALUES.copy()
    values[:20, 0], values[:20, -1] = -np.inf, np.inf
    y = LOC + RNG.normal(size=N)
    found = coverage_test(KEY, forecast(values), y, num_draws=50)
    inside = np.mean((values[:, 0] <= y) & (y <= values[:, -1]))
    np.testing.assert_allclose(found.estimate["central"][0], inside - 0.8, atol=1e-12)
    assert scores.pinball_loss(forecast(values), y) == np.inf
    all_of_them = np.tile([-np.inf, np.inf], (N, 1))
    found = coverage_test(KEY, forecast(all_of_them, [0.1, 0.9]), y, num_draws=50)
    np.testing.assert_allclose(found.estimate["central"], [0.2])


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 800])
@pytest.mark.parametrize("draw", [rain, demand, near_30, rounded])
@pytest.mark.parametrize("places", [[0, 1, 2, 3, 4], [0, 4], [4], [2]])
def test_family_wise_error_with_ties(draw, n, places):
    """Of 1000 calibrated data sets; single levels are discrete, and reject less often."""
    values, y, levels = draw(1000, n)
    rate = np.mean(smallest(values[:, places], y, levels[places]) <= 0.05)
    assert 0.01 < rate < 0.072


@pytest.mark.slow
@pytest.mark.parametrize("draw", [rain, demand, near_30, rounded])
@pytest.mark.parametrize("change", [lambda q: 1.3 * q, lambda q: 0.7 * q])
def test_power_with_ties(draw, change):
    values, y, levels = draw(100, 800)
    assert np.mean(smallest(change(values), y, levels) <= 0.05) > 0.9
