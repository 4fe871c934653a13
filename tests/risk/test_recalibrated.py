from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from calibjax import record
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits
from calibjax.recalibration import (
    HistogramBinning,
    PlattScaling,
    TemperatureScaling,
)
from calibjax.risk import Recalibrated, cross_validate

KEY = jax.random.key(0)


@jax.jit
def values(points, temperatures):
    """Values at points for all temperatures, [k, n, n]."""
    function = Recalibrated(TemperatureScaling())

    def at(temperature):
        return function.evaluate(temperature, points, points)

    return jax.lax.map(at, temperatures)


def test_against_the_formula_of_the_paper():
    """Of G24 §5.1: T = 0.3/θ."""
    probs = np.random.default_rng(0).dirichlet(np.full(5, 0.3), size=12)
    thetas = np.array([0.1, 0.3, 1.0, 1.7])
    ours = values(Categorical(jnp.asarray(probs)), jnp.asarray(0.3 / thetas))
    for theta, value in zip(thetas, ours, strict=True):
        errors = probs - scipy.special.softmax(10 / 3 * theta * np.log(probs), axis=1)
        np.testing.assert_allclose(value, errors @ errors.T, atol=1e-14)


@pytest.mark.parametrize("method", [HistogramBinning(4), PlattScaling(), TemperatureScaling()])
def test_confidences_and_bernoullis(method: Any):
    rng = np.random.default_rng(3)
    confidences = jnp.asarray(rng.uniform(size=50))
    correct = jnp.asarray(rng.uniform(size=50) < 0.3 + 0.4 * np.asarray(confidences), int)
    function: Any = Recalibrated(method)
    params = method.fit(Bernoulli(confidences), correct)
    moved = method.apply(params, Bernoulli(confidences))
    expected = np.asarray(confidences - getattr(moved, "probs", moved)) ** 2
    for points, factor in ((confidences, 1), (Bernoulli(confidences), 2)):
        fitted = function.fit(points, correct, 1.0)
        np.testing.assert_allclose(function.diagonal(fitted, points), factor * expected)


@record
class Mixed:
    """Predictions mixed with the frequencies of the labels."""

    share: Any = 0.5

    def fit(self, predictions, targets):
        return self.share, jnp.mean(jax.nn.one_hot(targets, 3), 0)

    def apply(self, params, predictions):
        share, frequencies = params
        return Categorical((1 - share) * predictions.class_probs + share * frequencies)


def test_own_recalibrations():
    """Differences are share · (p − frequencies), whatever the hyperparameter is."""
    rng = np.random.default_rng(2)
    predictions, labels = CategoricalLogits(rng.normal(size=(40, 3))), rng.integers(0, 3, 40)
    function = Recalibrated(Mixed(0.3))
    params = function.fit(predictions, labels, 7.0)
    errors = np.asarray(predictions.class_probs) - np.bincount(labels, minlength=3) / 40
    np.testing.assert_allclose(function.diagonal(params, predictions), 0.09 * np.sum(errors**2, 1))
    result = cross_validate(KEY, function, np.array([1.0, 2.0]), predictions, labels, num_folds=2)
    assert result.risk[0] == result.risk[1]
    with pytest.raises(TypeError, match="methods fit and apply"):
        Recalibrated(len).fit(predictions, labels, 1.0)
