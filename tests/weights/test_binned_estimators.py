"""Weights of estimators of class predictions: bins, reliability curves, kernel densities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import dirichlet

from calibjax import distances, estimators
from calibjax.distributions import Bernoulli, Categorical, sample_targets
from calibjax.estimators import EqualMassBins, MedianVarianceBins, UniformBins
from calibjax.estimators.binned import kde_calibration_error
from tests.weights.laws import CLASSES, CONFIDENCES, CORRECT, KEY, LABELS, WEIGHTS, N, rows

BINARY = Bernoulli(CONFIDENCES)
DATA = {"binary": (BINARY, CORRECT), "classes": (CLASSES, LABELS)}
COPIES = np.repeat(np.arange(N), WEIGHTS)
ECE = functools.partial(estimators.ece, notion="canonical")
MCE = functools.partial(estimators.mce, notion="canonical")
DEBIASED = functools.partial(ECE, norm="l2", debiased=True, distance=distances.Euclidean())


@pytest.mark.parametrize("data", DATA)
def test_errors_in_bins_by_hand(data):
    predictions, targets = DATA[data]
    probs = np.asarray(predictions.class_probs)
    residuals = probs - np.eye(probs.shape[1])[targets]
    w, bins = 0.3 * WEIGHTS, np.asarray(UniformBins(3)(predictions))
    errors, squares = [], 0
    for b in np.unique(bins[w > 0]):
        used = bins == b
        gap = np.average(residuals[used], 0, weights=w[used])
        errors.append((w[used].sum() / w.sum(), np.abs(gap).sum() / 2, np.linalg.norm(gap)))
        pairs = np.outer(w, w) * np.outer(used, used) * (1 - np.eye(N))
        if pairs.any():
            mean = (pairs * (residuals @ residuals.T)).sum() / pairs.sum()
            squares += w[used].sum() / w.sum() * mean
    shares, variations, norms = np.transpose(errors)
    options = {"binning": UniformBins(3), "weights": w}
    found = ECE(predictions, targets, **options)
    np.testing.assert_allclose(found, shares @ variations, rtol=1e-12)
    found = MCE(predictions, targets, distance=distances.Euclidean(), **options)
    np.testing.assert_allclose(found, max(norms), rtol=1e-12)
    found = DEBIASED(predictions, targets, **options)
    np.testing.assert_allclose(found, squares, rtol=1e-11)


def test_bins_where_one_sample_has_all_the_weight():
    """Pairs whose weight is rounding are none, in both precisions."""
    for dtype in (np.float32, np.float64):
        for small in (1e-30, np.finfo(dtype).eps):
            predictions = Bernoulli(np.array([0.1, 0.2, 0.7, 0.8], dtype))
            options = {"binning": UniformBins(2), "weights": np.array([1, small, 0.5, 0.5], dtype)}
            found = DEBIASED(predictions, np.array([1, 0, 1, 0]), **options)
            # Half the weight is in a bin with the pair of residuals −0.3 and 0.8, of two classes.
            np.testing.assert_allclose(found, 0.5 * 2 * -0.3 * 0.8, rtol=1e-5)


@pytest.mark.parametrize("predictions", [BINARY, CLASSES], ids=["binary", "classes"])
@pytest.mark.parametrize("num_bins", [1, 2, 5, 10])
def test_bins_of_equal_mass_are_those_of_copies(predictions, num_bins):
    binning = EqualMassBins(num_bins)
    positive = np.flatnonzero(WEIGHTS)
    copied, others = binning(rows(predictions, COPIES), predictions)
    y = np.asarray(others)[positive]
    for factor in (1, 1 / 3, 1e-30, 7e20):
        x = np.asarray(binning(predictions, weights=factor * WEIGHTS))[positive]
        np.testing.assert_array_equal(x[:, None] == x, y[:, None] == y)
    own, at = binning(predictions, predictions, weights=WEIGHTS)
    np.testing.assert_array_equal(own, at)
    assert len(np.unique(np.asarray(copied))) <= len(np.unique(np.asarray(others)))


@pytest.mark.parametrize("seed", range(5))
def test_bins_by_medians_are_those_of_copies(seed):
    """Three of four weights are 1, the others 3: an effective sample is two copies."""
    random = np.random.default_rng(seed)
    weights = random.permutation(np.repeat([1, 1, 1, 3], 15))
    probs = random.dirichlet(np.ones(4), 60).round(2 if seed % 2 else 8)
    probs[:, 0] = 1 - probs[:, 1:].sum(1)
    predictions = Categorical(np.abs(probs))
    for size in (1, 10):
        copied = MedianVarianceBins(2 * size)(rows(predictions, np.repeat(np.arange(60), weights)))
        expected = np.asarray(copied)[np.cumsum(weights) - 1]
        for factor in (1, 0.1):
            found = MedianVarianceBins(size)(predictions, weights=factor * weights)
            np.testing.assert_array_equal(found, expected)
        filled = jax.tree.map(lambda x: np.concatenate([x, x[::-1]]), predictions)
        found = MedianVarianceBins(size)(filled, weights=np.r_[weights, np.zeros(60)])
        np.testing.assert_array_equal(found[:60], expected)
        np.testing.assert_array_equal(found[60:], expected[::-1])


def test_bins_of_equal_weights():
    """Sums of 0.3 are rounded, and yet the bins are those without weights."""
    probs = np.random.default_rng(2).dirichlet(np.ones(3), 5000).astype(np.float32)
    predictions, weights = Categorical(probs / probs.sum(1, keepdims=True)), np.full(5000, 0.3)
    for binning in (EqualMassBins(10), EqualMassBins(7), MedianVarianceBins(50)):
        found = binning(predictions, weights=weights.astype(np.float32))
        np.testing.assert_array_equal(found, binning(predictions))


def _curve(predictions, targets, weights, **options):
    options = {"binning": UniformBins(3), "num_draws": 39, "max_bins": 3} | options
    return estimators.reliability_curve(KEY, predictions, targets, weights=weights, **options)


def test_half_widths_of_bands():
    """c √(Σ u² p (1 − p)) / Σ u with one c for all bins, unless the band is cut off."""
    random = np.random.default_rng(3)
    p, w = random.uniform(size=200), random.uniform(0.5, 2, 200)
    curve = _curve(Bernoulli(p), random.uniform(size=200) < p, w)
    bins = np.asarray(UniformBins(3)(Bernoulli(p)))
    sizes = [np.sqrt((w**2 * p * (1 - p))[bins == b].sum()) / w[bins == b].sum() for b in (2, 1, 0)]
    counts = [w[bins == b].sum() * w.sum() / (w**2).sum() for b in (2, 1, 0)]
    np.testing.assert_allclose(curve.counts, counts, rtol=1e-12)
    assert np.all(np.asarray(curve.simultaneous_lower) > 0)
    constants = (curve.simultaneous_upper - curve.simultaneous_lower) / 2 / np.array(sizes)
    np.testing.assert_allclose(constants, constants[0], rtol=1e-9)


@pytest.mark.slow
def test_level_of_bands_with_log_normal_weights():
    """1000 calibrated data sets: the probability that a bin is outside is at most 1 − level."""

    def is_outside(key):
        keys = jax.random.split(key, 4)
        predictions = Bernoulli(jax.random.uniform(keys[0], (64,)))
        targets = sample_targets(keys[1], predictions)
        curve = estimators.reliability_curve(
            keys[2],
            predictions,
            targets,
            binning=UniformBins(5),
            weights=jnp.exp(jax.random.normal(keys[3], (64,))),
            num_draws=49,
            max_bins=5,
        )
        pointwise = (curve.frequency < curve.pointwise_lower) | (
            curve.frequency > curve.pointwise_upper
        )
        return jnp.any(curve.is_outside), jnp.mean(pointwise)

    found = jax.jit(lambda keys: jax.lax.map(is_outside, keys))(jax.random.split(KEY, 1000))
    error = np.sqrt(0.1 * 0.9 / 1000)
    for outside in found:  # less often than at most, since many bins have only labels 0, or 1
        assert 0.04 <= np.mean(outside) <= 0.1 + 3 * error


def _densities(p, bandwidth):
    """Dirichlet kernels around all other samples, at each sample."""
    found = np.array([[dirichlet.pdf(q / q.sum(), f / bandwidth + 1) for f in p] for q in p])
    np.fill_diagonal(found, 0)
    return found


def test_kernel_density_ratios_by_hand():
    p, w, h = np.asarray(CLASSES.probs), WEIGHTS / 3, 0.1
    weighted = _densities(p, h) * w
    ratios = weighted @ np.eye(3)[LABELS] / weighted.sum(1, keepdims=True)
    expected = np.average((np.abs(ratios - p) ** 2).sum(1), weights=w)
    options = {"bandwidth": h, "order": 2, "weights": w}
    found = kde_calibration_error(CLASSES, LABELS, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
