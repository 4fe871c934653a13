"""Temperatures against closed forms of normal distributions."""

import numpy as np
import pytest
import scipy.stats

from calibjax import distributions, recalibration

N = 60
_random = np.random.default_rng(0)
SCALE = _random.uniform(0.5, 2.0, N)
Y = 1.5 * SCALE * _random.normal(size=N)


def _predictions():
    return distributions.Normal(np.zeros(N), SCALE)


def test_interval_of_normals():
    """l(θ) = θ / 2 + z² exp(−θ) / 2 + const, whose minimum is exp(θ) = mean z²."""
    squares = (Y / SCALE) ** 2
    temperature = squares.mean()
    slopes = 0.5 - 0.5 * squares / temperature
    error = np.sqrt((slopes**2).sum()) / (0.5 * squares / temperature).sum()
    reach = scipy.stats.norm.ppf(0.95) * error
    found = recalibration.temperature_interval(_predictions(), Y, confidence_level=0.9)
    expected = temperature * np.exp([-reach, 0, reach])
    np.testing.assert_allclose([found.low, found.estimate, found.high], expected, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, temperature * error, rtol=1e-6)


@pytest.mark.slow
def test_coverage_of_the_interval():
    """Targets whose variance is 1.5² times the predicted one, 200 data sets."""
    generator = np.random.default_rng(1)
    n, covered = 200, []
    predictions = distributions.Normal(np.zeros(n), np.ones(n))
    for _ in range(200):
        found = recalibration.temperature_interval(predictions, 1.5 * generator.normal(size=n))
        covered.append(found.low <= 2.25 <= found.high)
    assert 0.9 < np.mean(covered) < 0.99


def test_interval_of_weighted_normals():
    """The slopes have the weights, and the error their squares."""
    weights = _random.integers(0, 4, N)
    squares = (Y / SCALE) ** 2
    temperature = np.average(squares, weights=weights)
    slopes = weights * (0.5 - 0.5 * squares / temperature)
    error = np.sqrt((slopes**2).sum()) / (weights * 0.5 * squares / temperature).sum()
    found = recalibration.temperature_interval(_predictions(), Y, weights=weights)
    np.testing.assert_allclose(found.estimate, temperature, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, temperature * error, rtol=1e-6)
