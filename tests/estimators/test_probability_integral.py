import itertools

import jax
import jax.numpy as jnp
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


def test_continuous_values_are_those_of_the_distribution_function():
    loc, scale = RANDOM.normal(size=6), RANDOM.uniform(0.5, 2, 6)
    for key in (KEY, jax.random.key(1)):
        found = pit(d.Normal(loc, scale), Y, key)
        np.testing.assert_allclose(found, scipy.stats.norm.cdf(Y, loc, scale), rtol=1e-12)


COUNTS, LEVELS = np.array([0, 1, 4]), np.array([0.1, 0.5])
# Predictions, targets, and between which numbers their values are uniform. With the target, members
# have m + 1 places, and ties take any of theirs; a target on a quantile is in both intervals.
SPREAD = {
    "counts": (
        lambda n: d.Poisson(np.full(n, 2.5)),
        COUNTS,
        (scipy.stats.poisson.cdf(COUNTS - 1, 2.5), scipy.stats.poisson.cdf(COUNTS, 2.5)),
    ),
    "members": (
        lambda n: d.Ensemble(np.tile([1.0, 2.0, 2.0], (n, 1))),
        [0.0, 2.0, 3.0],
        ([0, 0.25, 0.75], [0.25, 1, 1]),
    ),
    "quantiles": (
        lambda n: d.Quantiles(LEVELS, np.tile([0.0, 1.0], (n, 1))),
        [-1.0, 0.3, 1.5, 0.0],
        ([0, 0.1, 0.5, 0], [0.1, 0.5, 1, 0.5]),
    ),
}


@pytest.mark.parametrize("name", SPREAD)
def test_values_are_spread_over_what_is_known(name):
    make, targets, ends = SPREAD[name]
    for target, low, high in zip(targets, *ends):
        found = pit(make(2000), np.full(2000, target))
        assert np.all((found > low - 1e-6) & (found < high + 1e-6))
        assert scipy.stats.kstest((found - low) / (high - low), "uniform").pvalue > 1e-3


def test_targets_on_quantiles_are_between_those_beside_them():
    """Uniform under calibration, for dry and wet forecasts, and each within what its tie allows."""
    n, levels = 3000, np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    random = np.random.default_rng(1)
    dry, scale = random.uniform(0.2, 0.6, n)[:, None], random.uniform(1, 3, n)[:, None]

    def amounts(u):
        return np.where(u <= dry, 0.0, -scale * np.log1p(-np.clip((u - dry) / (1 - dry), 0, 1)))

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


def test_classes_have_no_order():
    with pytest.raises(TypeError, match="classes have no order"):
        pit(d.Bernoulli(np.full(6, 0.5)), np.ones(6, int))


U = np.array([0.02, 0.1, 0.1, 0.35, 0.5, 0.51, 0.97, 1.0])


def test_counts_of_the_histogram():
    histogram = estimators.pit_counts(KEY, U, num_bins=4, num_draws=19)
    edges = np.array([0, 0.25, 0.5, 0.75, 1])
    expected = [np.sum((a < U) & (b >= U)) for a, b in itertools.pairwise(edges)]
    np.testing.assert_array_equal(histogram.counts, expected)
    np.testing.assert_allclose(histogram.edges, edges)
    at_zero = estimators.pit_counts(KEY, np.zeros(3), num_bins=4, num_draws=19)
    np.testing.assert_array_equal(at_zero.counts, [3, 0, 0, 0])


def test_shares_of_the_curves():
    levels = np.array([0.5, 0.1, 0.9])
    curve = estimators.coverage_curve(KEY, U, kind="quantile", levels=levels, num_draws=19)
    np.testing.assert_allclose(curve.levels, np.sort(levels))
    expected = [np.mean(U.astype(np.float32) <= np.float32(x)) for x in np.sort(levels)]
    np.testing.assert_allclose(curve.coverage, expected)
    curve = estimators.coverage_curve(KEY, U, levels=levels, num_draws=19)
    low, high = (1 - np.sort(levels)) / 2, (1 + np.sort(levels)) / 2
    expected = [np.mean((a <= U) & (b >= U)) for a, b in zip(low, high)]
    np.testing.assert_allclose(curve.coverage, expected)
    assert curve.kind == "interval"


@pytest.mark.parametrize("kind", ["interval", "quantile"])
def test_one_number_for_a_curve(kind):
    """Uncertainty Toolbox's formulas, by loops over 100 levels; areas by a fine grid."""
    u = RANDOM.beta(2, 1, size=80)
    levels = np.linspace(0, 1, 100)
    curve = estimators.coverage_curve(KEY, u, kind=kind, levels=levels[1:-1], num_draws=19)
    inside = np.abs(2 * u - 1) if kind == "interval" else u
    gaps = np.array([np.mean(inside <= x) for x in levels]) - levels
    errors = curve.mean_absolute_calibration_error(), curve.root_mean_squared_calibration_error()
    expected = np.abs(gaps).sum() / 98, np.sqrt(np.square(gaps).sum() / 98)  # gaps of 0 at the ends
    np.testing.assert_allclose(errors, expected, rtol=1e-5)
    fine = np.linspace(0, 1, 2_000_001)
    area = np.trapezoid(np.abs(np.interp(fine, levels, gaps)), fine)
    np.testing.assert_allclose(curve.miscalibration_area(), area, rtol=1e-5)


CURVES = {
    "pit_counts": lambda u: np.histogram(u, 10, (0, 1))[0],
    "quantile": lambda u: np.searchsorted(np.sort(u), np.arange(1, 20) / 20, "right"),
    "interval": lambda u: np.searchsorted(np.sort(abs(2 * u - 1)), np.arange(1, 20) / 20, "right"),
}


def banded(name, key, values, **options):
    """Counts in bins, or a curve of this kind."""
    if name == "pit_counts":
        return estimators.pit_counts(key, values, **options)
    return estimators.coverage_curve(key, values, kind=name, **options)


@pytest.mark.parametrize("name", CURVES)
def test_band_is_that_of_the_largest_standardised_difference(name):
    """Against redraws of NumPy: the same critical value, up to the Monte Carlo error of both."""
    n, size = 200, 4000
    found = banded(name, KEY, RANDOM.random(n), num_draws=size)
    probs = np.full(10, 0.1) if name == "pit_counts" else np.arange(1, 20) / 20
    redraws = np.stack([CURVES[name](RANDOM.random(n)) for _ in range(size)])
    deviation = np.sqrt(n * probs * (1 - probs))
    critical = np.quantile(np.max(abs(redraws - n * probs) / deviation, 1), 0.9)
    scale = 1 if name == "pit_counts" else n
    lower, upper = found.simultaneous_lower * scale, found.simultaneous_upper * scale
    np.testing.assert_allclose(upper, np.floor(n * probs + critical * deviation), atol=1.01)
    np.testing.assert_allclose(lower, np.ceil(n * probs - critical * deviation), atol=1.01)


def test_missing_values_are_nobodys_count():
    broken = jnp.array([0.1, jnp.nan, 0.5])
    histogram = jax.jit(lambda u: estimators.pit_counts(KEY, u, num_bins=2, num_draws=19))(broken)
    assert np.all(histogram.counts == np.iinfo(np.int32).min)
    assert np.all(np.isnan(histogram.simultaneous_upper))
    assert np.all(histogram.is_outside)


def test_quantiles_that_all_targets_equal():
    """Numbers of targets up to a level are those of calibrated forecasts: nothing else is known."""
    forecasts = d.Quantiles(np.full((400, 1), 0.1), np.zeros((400, 1)))
    draw = jax.jit(jax.vmap(estimators.pit.randomised_intervals, (0, None, None)))
    found = np.sum(draw(jax.random.split(KEY, 400), forecasts, jnp.zeros(400)) == 0, 1)
    assert abs(np.mean(found) - 40) < 4 * np.sqrt(36 / 400)
    assert abs(np.var(found) - 36) < 4 * 36 * np.sqrt(2 / 400)
