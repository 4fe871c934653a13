"""Temperatures against closed forms of normal distributions."""

import jax
import numpy as np
import pytest
import scipy.stats

from calibjax import distributions, evaluation, scores

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
    found = evaluation.temperature_interval(_predictions(), Y, confidence_level=0.9)
    expected = temperature * np.exp([-reach, 0, reach])
    np.testing.assert_allclose([found.low, found.estimate, found.high], expected, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, temperature * error, rtol=1e-6)


def test_gain_of_normals():
    key = jax.random.key(3)
    squares, order = (Y / SCALE) ** 2, np.argsort(jax.random.uniform(key, (N,)))
    gains = np.empty(N)
    for fold in range(4):
        own = order[fold::4]
        temperature = np.delete(squares, own).mean()
        gains[own] = 0.5 * squares[own] * (1 - 1 / temperature) - 0.5 * np.log(temperature)
    found = evaluation.temperature_gain(key, _predictions(), Y, num_folds=4)
    np.testing.assert_allclose(found.estimate, gains.mean(), rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, gains.std(ddof=1) / np.sqrt(N), rtol=1e-6)
    reach = scipy.stats.norm.ppf(0.975) * found.standard_error
    ends = found.low - found.estimate, found.high - found.estimate
    np.testing.assert_allclose(ends, [-reach, reach])


@pytest.mark.slow
def test_folds_of_different_sizes():
    """11 samples in 3 folds: of 3 or 4."""
    chosen = distributions.Normal(np.zeros(11), SCALE[:11])
    found = evaluation.temperature_gain(jax.random.key(0), chosen, Y[:11], num_folds=3)
    assert np.isfinite(found.estimate)


@pytest.mark.slow
def test_no_interval_where_the_loss_is_not_smooth():
    values = _random.normal(size=(N, 5))
    ensembles = distributions.Samples(values[:, 1:])
    found = evaluation.temperature_interval(ensembles, 2 * values[:, 0], loss=scores.crps)
    assert found.estimate > 1
    assert np.isnan(found.low) == np.isnan(found.high)


def test_wrong_options_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^num_folds: expected"):
        evaluation.temperature_gain(jax.random.key(0), _predictions(), Y, num_folds=1)
    with pytest.raises(ValueError, match=r"^confidence_level: expected"):
        evaluation.temperature_interval(_predictions(), Y, confidence_level=1.0)
    with pytest.raises(TypeError, match=r"^loss: expected"):
        evaluation.temperature_interval(_predictions(), Y, loss=3)


@pytest.mark.slow
def test_coverage_of_the_interval():
    """Targets whose variance is 1.5² times the predicted one, 200 data sets."""
    generator = np.random.default_rng(1)
    n, covered = 200, []
    predictions = distributions.Normal(np.zeros(n), np.ones(n))
    for _ in range(200):
        found = evaluation.temperature_interval(predictions, 1.5 * generator.normal(size=n))
        covered.append(found.low <= 2.25 <= found.high)
    assert 0.9 < np.mean(covered) < 0.99


def test_interval_of_weighted_normals():
    """The slopes have the weights, and the error their squares."""
    weights = _random.integers(0, 4, N)
    squares = (Y / SCALE) ** 2
    temperature = np.average(squares, weights=weights)
    slopes = weights * (0.5 - 0.5 * squares / temperature)
    error = np.sqrt((slopes**2).sum()) / (weights * 0.5 * squares / temperature).sum()
    found = evaluation.temperature_interval(_predictions(), Y, weights=weights)
    np.testing.assert_allclose(found.estimate, temperature, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, temperature * error, rtol=1e-6)


def test_folds_do_not_count_samples_without_weight():
    key, rest = jax.random.key(3), slice(0, 50)
    weights = np.where(np.arange(N) % 50 < 20, 2.0, 1.0) * (np.arange(N) < 50)
    found = evaluation.temperature_gain(key, _predictions(), Y, weights=weights)
    few = distributions.Normal(np.zeros(50), SCALE[rest])
    expected = evaluation.temperature_gain(key, few, Y[rest], weights=weights[rest])
    np.testing.assert_allclose(found.estimate, expected.estimate, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-9)
