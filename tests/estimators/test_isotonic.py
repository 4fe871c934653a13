"""Isotonic reliability curves against scikit-learn and NumPy; the lens on thresholds."""

import jax
import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from calibjax import distributions, estimators

KEY = jax.random.key(0)
GENERATOR = np.random.default_rng(0)
PROBS = GENERATOR.uniform(size=60).round(2)  # with ties
LABELS = (GENERATOR.uniform(size=60) < PROBS**2).astype(int)
WEIGHTS = GENERATOR.integers(0, 4, 60).astype(float)


def by_sklearn(weights=None):
    used = np.ones(60, bool) if weights is None else weights > 0
    own = None if weights is None else weights[used]
    fit = IsotonicRegression().fit(PROBS[used], LABELS[used], own)
    return fit.predict(np.sort(PROBS[used]))


def test_regression_of_all_points():
    curve = estimators.isotonic_curve(KEY, distributions.Bernoulli(PROBS), LABELS, num_draws=19)
    np.testing.assert_allclose(curve.confidence, np.sort(PROBS), rtol=1e-6)
    np.testing.assert_allclose(curve.frequency, by_sklearn(), atol=1e-6)
    some = estimators.isotonic_curve(
        KEY, distributions.Bernoulli(PROBS), LABELS, num_draws=19, max_points=4
    )
    places = [0, 20, 39, 59]
    np.testing.assert_allclose(some.frequency, by_sklearn()[places], atol=1e-6)
    assert not (curve.pointwise_lower < curve.simultaneous_lower).all()


def test_weights_are_copies():
    predictions = distributions.Bernoulli(PROBS)
    curve = estimators.isotonic_curve(KEY, predictions, LABELS, weights=WEIGHTS, num_draws=19)
    expected = by_sklearn(WEIGHTS)
    found = np.interp(np.sort(PROBS[WEIGHTS > 0]), curve.confidence, curve.frequency)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    scaled = estimators.isotonic_curve(KEY, predictions, LABELS, weights=5 * WEIGHTS, num_draws=19)
    np.testing.assert_allclose(scaled.simultaneous_upper, curve.simultaneous_upper, atol=1e-6)


def test_bands_from_regressions_of_redraws():
    """Bands by NumPy from regressions by scikit-learn of binomial groups."""
    probs = np.repeat([0.2, 0.5, 0.9], 30)
    labels = np.arange(90) % 2
    curve = estimators.isotonic_curve(
        KEY, distributions.Bernoulli(probs), labels, num_draws=1999, max_points=90
    )
    generator = np.random.default_rng(1)
    counts = generator.binomial(30, [[0.2, 0.5, 0.9]], (4000, 3)) / 30
    regressions = np.stack(
        [IsotonicRegression().fit(range(3), c).predict(range(3)) for c in counts]
    )
    middle = np.array([15, 45, 75])
    expected = np.quantile(regressions, [0.05, 0.95], 0)
    found = np.stack([curve.pointwise_lower, curve.pointwise_upper])[:, middle]
    np.testing.assert_allclose(found, expected, atol=1.01 / 30)  # one count
    mean, spread = regressions.mean(0), regressions.std(0)
    critical = np.quantile(np.abs((regressions - mean) / spread).max(1), 0.9)
    np.testing.assert_allclose(
        curve.simultaneous_upper[middle], np.minimum(mean + critical * spread, 1), atol=1.01 / 30
    )
    assert curve.is_outside.any()


OF_NUMBERS = np.random.default_rng(1)
NORMALS = distributions.Normal(OF_NUMBERS.normal(size=60).round(1), OF_NUMBERS.uniform(1, 2, 60))
TARGETS = np.asarray(NORMALS.loc + NORMALS.scale * OF_NUMBERS.normal(size=60)).round(1)


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_means_of_numbers_in_all_units(unit):
    """By scikit-learn; curves and bands have the unit of the targets."""
    predictions = distributions.Normal(unit * NORMALS.loc, unit * NORMALS.scale)
    curve = estimators.isotonic_curve(KEY, predictions, unit * (TARGETS - 2), num_draws=19)
    fit = IsotonicRegression().fit(NORMALS.loc, TARGETS - 2)
    np.testing.assert_allclose(curve.frequency, unit * fit.predict(np.sort(NORMALS.loc)), rtol=1e-6)
    plain = estimators.isotonic_curve(KEY, NORMALS, TARGETS - 2, num_draws=19)
    np.testing.assert_allclose(
        curve.simultaneous_lower, unit * plain.simultaneous_lower, rtol=1e-6, atol=1e-9 * unit
    )
    assert curve.is_outside.any()


@pytest.mark.slow
@pytest.mark.parametrize("of_labels", [True, False])
def test_level_of_both_bands(of_labels):
    """Of labels and of means of numbers; scales of numbers differ by a factor of 30."""
    predictions = distributions.Bernoulli(PROBS)
    if not of_labels:
        predictions = distributions.Normal(NORMALS.loc, np.exp(1.5 * NORMALS.loc))

    @jax.jit
    def outside(key):
        first, second = jax.random.split(key)
        labels = distributions.sample_targets(first, predictions)
        curve = estimators.isotonic_curve(second, predictions, labels, num_draws=99)
        low, high = curve.pointwise_lower, curve.pointwise_upper
        return curve.is_outside.any(), (curve.frequency < low) | (curve.frequency > high)

    simultaneous, pointwise = jax.lax.map(outside, jax.random.split(KEY, 2000))
    error = np.sqrt(0.1 * 0.9 / 2000)
    assert 0.06 < simultaneous.mean() < 0.1 + 3 * error
    assert pointwise.mean(0).max() < 0.1 + 4 * error
