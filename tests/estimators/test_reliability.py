"""Reliability curves in bins and isotonic ones, against loops, scikit-learn and NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from calibjax import distributions as d
from calibjax import estimators
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import draw
from calibjax.estimators import curves
from calibjax.estimators.curves import ReliabilityCurve

KEY = jax.random.key(0)
TENTHS = estimators.UniformBins(10)
ARRAYS = [name for name in ReliabilityCurve.__dataclass_fields__ if name != "confidence_level"]


def by_tenths(predictions):
    """Bins 7, 8, ...: not from zero, and not in the order of the probabilities."""
    return 17 - jnp.minimum(jnp.floor(predictions.probs * 10), 9).astype(int)


def curve(p, y, **options):
    options = {"binning": TENTHS, "num_draws": 199} | options
    return estimators.reliability_curve(KEY, Bernoulli(p), y, **options)


def curve_oracle(key, p, y, bins, num_draws, level):
    """Columns of the curve for the bins that are not empty, by loops over bins and redraws."""
    p64, y = np.asarray(p, np.float64), np.asarray(y)
    groups = [np.flatnonzero(bins == b) for b in np.unique(bins)]
    groups.sort(key=lambda group: p64[group].mean())
    drawn = jax.jit(jax.vmap(draw, (0, None)))(jax.random.split(key, num_draws), Bernoulli(p))
    redraws = np.array([[y[group].sum() for group in groups] for y in np.asarray(drawn)])
    means = np.array([p64[group].sum() for group in groups])
    deviations = np.sqrt([(p64[group] * (1 - p64[group])).sum() for group in groups])
    largest = []
    for ones in redraws:
        pairs = zip(ones - means, deviations)
        largest.append(max(abs(difference) / s for difference, s in pairs if s > 0))
    critical = sorted(largest)[math.ceil(level * (num_draws + 1) - 1e-9) - 1]
    rank = math.floor((1 - level) / 2 * (num_draws + 1) + 1e-9)
    rows = []
    for i, group in enumerate(groups):
        ones = sorted(redraws[:, i])
        possible = np.arange(len(group) + 1)
        inside = possible[np.abs(possible - means[i]) <= critical * deviations[i] + 1e-9]
        ends = (ones[rank - 1], ones[num_draws - rank], inside.min(), inside.max())
        rows.append([len(group), means[i], y[group].sum(), *ends])
    values = np.array(rows, float)
    values[:, 1:] /= values[:, :1]
    return values


@pytest.mark.parametrize(
    ("binning", "n", "num_draws", "level", "dtype"),
    [
        (TENTHS, 400, 199, 0.9, np.float64),
        pytest.param(TENTHS, 20_000, 39, 0.9, np.float64, marks=pytest.mark.slow),  # batches of 13
        (by_tenths, 300, 100, 0.5, np.float32),
        # The next three have the same shapes.
        (lambda p: jnp.zeros(p.probs.shape, int), 60, 39, 0.9, np.float64),
        (lambda p: jnp.arange(p.probs.size), 60, 39, 0.9, np.float64),
        # Two bins, in one of which the predictions differ much.
        (lambda p: (jnp.abs(p.probs - 0.5) < 0.2).astype(int), 60, 39, 0.9, np.float64),
    ],
)
def test_against_loops(binning, n, num_draws, level, dtype):
    """Of calibrated targets; some predictions are 0 and 1."""
    random = np.random.default_rng(0)
    p = random.random(n)
    p[: n // 10] = np.arange(n // 10) % 2
    p, y = jnp.asarray(p, dtype), jnp.asarray(random.random(n) < p).astype(int)
    ours = curve(p, y, binning=binning, num_draws=num_draws, confidence_level=level)
    expected = curve_oracle(KEY, p, y, np.asarray(binning(Bernoulli(p))), num_draws, level)
    assert ours.confidence_level == level
    for name, column in zip(ARRAYS, expected.T):
        values = np.asarray(getattr(ours, name))
        assert values.shape == (min(n, 100),)
        assert values.dtype == (np.int32 if name == "counts" else dtype)
        np.testing.assert_allclose(values[: len(expected)], column, rtol=1e-5, atol=1e-6)
        assert not np.any(values[len(expected) :])


def test_predictions_of_0_and_1_have_a_band_of_no_width():
    p = jnp.array([0.0] * 5 + [1.0] * 4)
    calibrated = curve(p, p.astype(int))
    for end in ("pointwise_lower", "pointwise_upper", "simultaneous_lower", "simultaneous_upper"):
        np.testing.assert_array_equal(getattr(calibrated, end), [0, 1, 0, 0, 0, 0, 0, 0, 0])
    assert not np.any(calibrated.is_outside)
    wrong = curve(p, p.astype(int).at[0].set(1))
    np.testing.assert_array_equal(wrong.is_outside, [True] + [False] * 8)


@pytest.mark.parametrize(
    ("num_draws", "level", "expected"),
    [(19, 0.9, (1, 18)), (1000, 0.9, (50, 901)), (39, 0.95, (1, 38)), (99, 0.8, (10, 80))],
)
def test_ranks_are_those_of_the_decimal_level(num_draws, level, expected):
    """(1 - 0.9) / 2 * 20 is below 1 in floating-point numbers."""
    assert curves.ranks_of_band(level, num_draws) == expected


GENERATOR = np.random.default_rng(0)
RATES = GENERATOR.uniform(size=60).round(2)  # with ties
LABELS = (GENERATOR.uniform(size=60) < RATES**2).astype(int)


def test_regression_of_all_points():
    expected = IsotonicRegression().fit(RATES, LABELS).predict(np.sort(RATES))
    curve = estimators.isotonic_curve(KEY, d.Bernoulli(RATES), LABELS, num_draws=19)
    np.testing.assert_allclose(curve.confidence, np.sort(RATES), rtol=1e-6)
    np.testing.assert_allclose(curve.frequency, expected, atol=1e-6)
    some = estimators.isotonic_curve(KEY, d.Bernoulli(RATES), LABELS, num_draws=19, max_points=4)
    places = [0, 20, 39, 59]
    np.testing.assert_allclose(some.frequency, expected[places], atol=1e-6)
    assert not (curve.pointwise_lower < curve.simultaneous_lower).all()
    widths = np.asarray(curve.simultaneous_upper - curve.simultaneous_lower)
    assert widths.min() > widths.max() / 8  # near 0 and 1, where half of it is cut off, too


OF_NUMBERS = np.random.default_rng(1)
NORMALS = d.Normal(OF_NUMBERS.normal(size=60).round(1), OF_NUMBERS.uniform(1, 2, 60))
TARGETS = np.asarray(NORMALS.loc + NORMALS.scale * OF_NUMBERS.normal(size=60)).round(1)


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_means_of_numbers_in_all_units(unit):
    """By scikit-learn; curves and bands have the unit of the targets."""
    predictions = d.Normal(unit * NORMALS.loc, unit * NORMALS.scale)
    curve = estimators.isotonic_curve(KEY, predictions, unit * (TARGETS - 2), num_draws=19)
    fit = IsotonicRegression().fit(NORMALS.loc, TARGETS - 2)
    np.testing.assert_allclose(curve.frequency, unit * fit.predict(np.sort(NORMALS.loc)), rtol=1e-6)
    plain = estimators.isotonic_curve(KEY, NORMALS, TARGETS - 2, num_draws=19)
    np.testing.assert_allclose(
        curve.simultaneous_lower, unit * plain.simultaneous_lower, rtol=1e-6, atol=1e-9 * unit
    )
    assert curve.is_outside.any()
