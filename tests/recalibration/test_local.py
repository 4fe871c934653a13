import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.estimators import EqualMassBins, MedianVarianceBins, Neighbourhood, UniformBins
from calibjax.recalibration import LocalRecalibration

RNG = np.random.default_rng(0)
N, D, BINS = 500, 4, 5
FEATURES, CONFIDENCES = RNG.normal(size=(N, D)), RNG.uniform(size=N)
CORRECT = (RNG.uniform(size=N) < CONFIDENCES).astype(int)
CALIBRATION = CONFIDENCES, CORRECT, FEATURES
POINTS = RNG.uniform(size=80), RNG.normal(size=(80, D))


def fitted(length_scale):
    method = LocalRecalibration(Neighbourhood.laplacian(length_scale, BINS))
    return method.apply(method.fit(*CALIBRATION), *POINTS)


def loop(distance):
    values = []
    for p, x in zip(*POINTS):
        inside = np.ceil(CONFIDENCES * BINS) == np.ceil(p * BINS)
        distances = distance(x - FEATURES[inside])
        weights = np.exp(-(distances - distances.min()))
        values.append(weights @ CORRECT[inside] / weights.sum())
    return np.array(values)


def test_plain_numpy():
    for gamma in (1e-3, 0.1, 0.4, 10.0):
        expected = loop(lambda x, gamma=gamma: np.abs(x).sum(1) / (D * gamma))
        np.testing.assert_allclose(fitted(gamma), expected, atol=1e-13)
    expected = loop(lambda x: np.square(x).sum(1) / (2 * 0.8**2))
    method = LocalRecalibration(Neighbourhood(kernels.SquaredExponential(0.8), UniformBins(BINS)))
    values = method.apply(method.fit(*CALIBRATION), *POINTS)
    np.testing.assert_allclose(values, expected, atol=1e-13)


def medians(numbers, min_size):
    """Where `MedianVarianceBins` splits, in increasing order."""
    below = numbers < np.median(numbers)
    if min(below.sum(), (~below).sum()) < min_size:
        return []
    parts = (medians(numbers[x], min_size) for x in (below, ~below))
    return [*next(parts), np.median(numbers), *next(parts)]


def bins_of_points(binning, points):
    """Bins of points, from the calibration samples alone."""
    if isinstance(binning, MedianVarianceBins):  # at medians of the first of the two classes
        splits = medians(1 - CONFIDENCES, binning.min_size)
        return np.searchsorted(splits, 1 - points, side="right")
    num_smaller = (points[:, None] > CONFIDENCES).sum(1)
    return np.minimum(num_smaller * binning.num_bins // N, binning.num_bins - 1)


@pytest.mark.parametrize("binning", [EqualMassBins(BINS), MedianVarianceBins(40)])
def test_bins_of_the_calibration_samples(binning):
    """Whatever other confidences come with it, a confidence is in the same bin (L21 App. A)."""
    method = LocalRecalibration(Neighbourhood(kernels.White(), binning))
    same = np.zeros(N, int)
    params = method.fit(CONFIDENCES, CORRECT, same)
    values = method.apply(params, POINTS[0], same[:80])
    ours, theirs = (bins_of_points(binning, x) for x in (CONFIDENCES, POINTS[0]))
    assert len(np.unique(ours)) > 4
    expected = [CORRECT[ours == b].mean() for b in theirs]
    np.testing.assert_allclose(values, expected, atol=1e-13)
    np.testing.assert_array_equal(params.counts(POINTS[0]), np.bincount(ours)[theirs])
    alone = [method.apply(params, POINTS[0][i : i + 1], same[:1])[0] for i in (3, 7)]
    np.testing.assert_allclose(alone, values[np.array([3, 7])], atol=1e-14)


def test_empty_bins_keep_the_confidence():
    method = LocalRecalibration(Neighbourhood.laplacian(1.0, 10))
    params = method.fit(np.array([0.65, 0.68]), np.array([1, 0]), np.zeros((2, 1)))
    np.testing.assert_array_equal(params.counts(np.array([0.61, 0.59, 0.7])), [2, 0, 2])
    points = np.array([0.61, 0.95, 0.3]), np.zeros((3, 1))
    message = "LocalRecalibration: 2 of 3 confidences are in bins without calibration samples"
    with pytest.warns(UserWarning, match=message):
        kept = method.apply(params, *points)
    np.testing.assert_array_equal(kept, [0.5, 0.95, 0.3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(jax.jit(method.apply)(params, *points), kept)


@pytest.mark.slow
def test_gradient_and_float32():
    total = lambda scale: jnp.sum(fitted(scale) ** 2)  # noqa: E731
    slope = (total(0.3 + 1e-6) - total(0.3 - 1e-6)) / 2e-6
    np.testing.assert_allclose(jax.grad(total)(0.3), slope, rtol=1e-6)
    method = LocalRecalibration(Neighbourhood.laplacian(0.3, BINS))
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (CALIBRATION, POINTS))
    values = method.apply(method.fit(*single[0]), *single[1])
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, fitted(0.3), atol=1e-5)


def above_a_half(predictions):
    return (predictions.probs > 0.5).astype(int)


def test_functions_are_binnings_also_where_params_go_through_jit():
    method = LocalRecalibration(Neighbourhood(kernels.SquaredExponential(0.7), above_a_half))
    expected = method.apply(method.fit(*CALIBRATION), *POINTS)
    ours, theirs = CONFIDENCES > 0.5, POINTS[0] > 0.5
    distances = np.square(POINTS[1][:, None] - FEATURES).sum(-1) / (2 * 0.7**2)
    weights = np.where(ours == theirs[:, None], np.exp(-distances), 0)
    np.testing.assert_allclose(expected, weights @ CORRECT / weights.sum(1), atol=1e-12)
    params = jax.jit(method.fit)(*CALIBRATION)
    np.testing.assert_allclose(jax.jit(method.apply)(params, *POINTS), expected, atol=1e-12)
