import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import scores
from calibjax.distributions import Quantiles
from calibjax.hypothesis_tests import coverage_test
from tests.hypothesis_tests.test_levels import FIVE, tied

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


def test_levels_of_each_sample():
    """Half of the samples have other levels, and the quantiles that belong to them."""
    y = LOC + RNG.normal(size=N)
    levels = np.where(np.arange(N)[:, None] < 40, [0.2, 0.8], [0.4, 0.6])
    values = LOC[:, None] + stats.norm.ppf(levels)
    result = coverage_test(KEY, forecast(values, levels), y, num_draws=20)
    expected = (y[:, None] <= values).mean(0) - [0.3, 0.7]
    np.testing.assert_allclose(result.estimate["levels"], expected, atol=1e-14)


@pytest.mark.parametrize("name", ["rain", "demand"])
def test_targets_that_equal_quantiles(name):
    """Both ends are in an interval, and ties are no sign of miscalibration."""
    (values, draw), levels = tied(name, 400), FIVE
    y = np.asarray(draw(KEY))
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
    (values, draw), levels = tied("rain", 400), FIVE
    y = np.asarray(draw(KEY))
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
