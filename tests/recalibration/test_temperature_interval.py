"""Temperatures against closed forms of normal distributions."""

import numpy as np
import pytest
import scipy.stats

from calibjax import distributions, recalibration

N = 60
_random = np.random.default_rng(0)
SCALE = _random.uniform(0.5, 2.0, N)
Y = 1.5 * SCALE * _random.normal(size=N)


@pytest.mark.parametrize("weights", [None, _random.integers(0, 4, N)])
def test_interval_of_normals(weights):
    """l(θ) = θ / 2 + z² exp(−θ) / 2 + const, whose minimum is exp(θ) = mean z².

    The slopes have the weights, and the error their squares.
    """
    squares, w = (Y / SCALE) ** 2, np.ones(N) if weights is None else weights
    temperature = np.average(squares, weights=w)
    slopes = w * (0.5 - 0.5 * squares / temperature)
    error = np.sqrt((slopes**2).sum()) / (w * 0.5 * squares / temperature).sum()
    reach = scipy.stats.norm.ppf(0.95) * error
    predictions = distributions.Normal(np.zeros(N), SCALE)
    options = {"confidence_level": 0.9, "weights": weights}
    found = recalibration.temperature_interval(predictions, Y, **options)
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
