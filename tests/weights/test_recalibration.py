"""Weights of what recalibrators learn from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn import isotonic

from calibjax import estimators, recalibration
from calibjax.distributions import Categorical, Quantiles
from tests.weights.laws import CONFIDENCES, CORRECT, NORMALS, TARGETS, WEIGHTS

NEW = np.linspace(0.02, 0.98, 9)


def test_shares_of_weights_below_one():
    """A sample of weight w < 1 is in the middle of w and the share of 1 that is between samples."""
    weights = np.array([0.5, 3.0, 0.0, 0.25])
    levels = np.array([0.75, 2.0, 3.0, 4.0, 4.125]) / 4.75  # first and last of three copies
    values = np.array([1.0, 2.0, 2.0, 2.0, 5.0])
    forecast = Quantiles(levels[:-1:2], np.zeros((4, 2)))
    found = recalibration.QuantileShift().fit(forecast, [1.0, 2.0, 9.0, 5.0], weights=weights)
    expected = np.interp(levels[:-1:2], levels, values)
    np.testing.assert_allclose(found.shifts, expected, rtol=1e-12)


def test_local_recalibration_without_samples_that_count():
    """The nearest sample does not count, and is nearer than numbers can say."""
    near = estimators.Neighbourhood.laplacian(1e-3, 1)
    method = recalibration.LocalRecalibration(near)
    features, weights = np.array([[0.0], [9.0], [9.5]]), np.array([0.0, 1.0, 3.0])
    params = method.fit(np.array([0.5, 0.6, 0.7]), np.array([0, 1, 0]), features, weights=weights)
    np.testing.assert_array_equal(params.counts(np.array([0.5])), [2])
    assert method.apply(params, np.array([0.5]), np.array([[0.0]])) == 1.0


def test_isotonic_regression_of_scikit_learn():
    weights = WEIGHTS + 0.25
    theirs = isotonic.IsotonicRegression(out_of_bounds="clip")
    theirs.fit(CONFIDENCES, CORRECT, sample_weight=weights)
    method = recalibration.IsotonicRegression(smooth=False)
    ours = method.apply(method.fit(CONFIDENCES, CORRECT, weights=weights), NEW)
    np.testing.assert_allclose(ours, theirs.predict(NEW), rtol=1e-12)


def test_targets_of_platt_count_copies():
    weights = np.array([3.0, 1.0, 1.0, 3.0])  # of 8 samples 4 are correct
    method = recalibration.PlattScaling(smooth_targets=True)
    confidences, correct = np.array([0.2, 0.2, 0.8, 0.8]), np.array([0, 1, 0, 1])
    found = method.apply(method.fit(confidences, correct, weights=weights), confidences[1:3])
    high, low = 5 / 6, 1 / 6
    np.testing.assert_allclose(found, [0.75 * low + 0.25 * high, 0.75 * high + 0.25 * low])


@pytest.mark.parametrize("method", [recalibration.PlattScaling(), recalibration.AffineScaling()])
def test_derivatives_by_weights(method):
    """Where some are zero, too, they are those of weights that go there."""
    is_platt = isinstance(method, recalibration.PlattScaling)
    data = (CONFIDENCES, CORRECT) if is_platt else (NORMALS, TARGETS)
    fit = lambda w: jax.tree.leaves(method.fit(*data, weights=w))  # noqa: E731
    weights = jnp.asarray(WEIGHTS, float)
    check_grads(fit, (weights + 0.5,), 1, modes=["rev"], rtol=1e-4)
    at_zero, near = jax.jacrev(fit)(weights), jax.jacrev(fit)(weights + 1e-9)
    for one, other in zip(at_zero, near, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_impossible_targets_that_do_not_count():
    probs = np.array([[0.25, 0.75], [1.0, 0.0], [0.4, 0.6], [0.3, 0.7]])
    labels, weights = np.array([0, 1, 1, 1]), np.array([1.0, 0.0, 1.0, 1.0])
    scaling = recalibration.TemperatureScaling()
    found = scaling.fit(Categorical(probs), labels, weights=weights)
    rest = [0, 2, 3]
    np.testing.assert_allclose(found, scaling.fit(Categorical(probs[rest]), labels[rest]))
