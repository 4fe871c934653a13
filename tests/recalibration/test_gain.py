from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from scipy.stats import norm

from calibjax.distributions import (
    Bernoulli,
    Categorical,
    Normal,
    Quantiles,
    with_features,
)
from calibjax.recalibration import (
    AffineScaling,
    HistogramBinning,
    QuantileShift,
    TemperatureScaling,
    recalibration_gain,
)
from calibjax.scores import crps
from tests.recalibration.test_classes import best_temperature

RNG = np.random.default_rng(0)
N = 60
LOC, SCALE = RNG.normal(size=N), RNG.uniform(0.5, 2, N)
Y = LOC + SCALE * (0.5 + 1.5 * RNG.normal(size=N))
NORMAL, TARGETS = Normal(jnp.asarray(LOC), jnp.asarray(SCALE)), jnp.asarray(Y)
KEY = jax.random.key(0)


def _folds(num_folds):
    order = np.argsort(jax.random.uniform(KEY, (N,)))
    folds = np.empty(N, int)
    folds[order] = np.arange(N) % num_folds
    return folds


AFFINE = AffineScaling()


def gain_of(method, *data, **options):
    return recalibration_gain(KEY, {"": method}, *data, **options)[""]


@pytest.mark.parametrize("weights", [None, np.arange(N) % 3 + 0.5])
def test_predictions_and_gain_of_a_loop_over_folds(weights):
    used = np.ones(N) if weights is None else weights
    folds, z = _folds(4), (Y - LOC) / SCALE
    shift, scale = np.zeros(N), np.zeros(N)
    for fold in range(4):
        rest = folds != fold
        mean = np.average(z[rest], weights=used[rest])
        shift[~rest] = mean
        scale[~rest] = np.sqrt(np.average((z[rest] - mean) ** 2, weights=used[rest]))
    options = {"num_folds": 4, "weights": weights}
    carrying = with_features(NORMAL, TARGETS)
    found = AFFINE.cross_fitted(KEY, carrying, TARGETS, **options)
    np.testing.assert_allclose(found.loc, LOC + shift * SCALE, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.scale, scale * SCALE, rtol=1e-4)
    np.testing.assert_array_equal(found.features, TARGETS)
    gain = gain_of(AFFINE, NORMAL, TARGETS, **options)
    after = norm.logpdf(Y, LOC + shift * SCALE, scale * SCALE)
    values = after - norm.logpdf(Y, LOC, SCALE)
    mean = np.average(values, weights=used)
    np.testing.assert_allclose(gain.mean, mean, rtol=1e-3)
    if weights is None:
        error = values.std(ddof=1) / np.sqrt(N)
        np.testing.assert_allclose(gain.standard_error, error, rtol=1e-3)
        ends = mean + error * np.r_[-1.96, 1.96]
        np.testing.assert_allclose([gain.low, gain.high], ends, rtol=1e-3)


def test_folds_do_not_count_samples_without_weight():
    weights = np.where(np.arange(N) % 50 < 20, 2.0, 1.0) * (np.arange(N) < 50)
    found = gain_of(AFFINE, NORMAL, TARGETS, weights=weights)
    few = Normal(LOC[:50], SCALE[:50])
    expected = gain_of(AFFINE, few, TARGETS[:50], weights=weights[:50])
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-5)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-5)


def test_gains_by_other_scores():
    levels = np.array([0.1, 0.5, 0.9])
    quantiles = Quantiles(levels, LOC[:, None] + norm.ppf(levels))
    assert gain_of(QuantileShift(), quantiles, TARGETS).mean > 0
    assert gain_of(AFFINE, NORMAL, TARGETS, score=crps).mean > 0


def test_folds_that_determine_no_map():
    with pytest.raises(ValueError, match=r"a fit outside of each fold, got nan for \d"):
        AFFINE.cross_fitted(KEY, Normal(np.zeros(4), np.ones(4)), np.ones(4), num_folds=2)
    data = Bernoulli(np.full(4, 0.3)), np.arange(4) % 2
    found = HistogramBinning(2).cross_fitted(KEY, *data, num_folds=2)
    assert isinstance(found, Bernoulli)


@pytest.mark.parametrize("weights", [None, np.arange(N) % 3 + 0.5])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_errors_of_a_loop_over_folds(norm: Any, weights):
    """Differences of the losses of Berta et al., −‖c − p‖ − ⟨g, y − c⟩, centred at p."""
    logits = RNG.normal(size=(N, 3)) * 1.5
    labels, logits = (logits + RNG.gumbel(size=(N, 3))).argmax(1), 2 * logits
    probs = scipy.special.softmax(logits, 1)
    used, folds = np.ones(N) if weights is None else weights, _folds(4)
    after = np.empty_like(probs)
    for fold in range(4):
        rest = folds != fold
        temperature, _ = best_temperature(logits[rest], labels[rest], used[rest])
        after[~rest] = scipy.special.softmax(logits[~rest] / temperature, 1)
    values = []
    for p, c, label in zip(probs, after, labels, strict=True):
        y, change, order = np.eye(3)[label], c - p, int(norm[1])
        size = np.linalg.norm(change, order)
        slope = np.abs(change) ** (order - 1) * np.sign(change) / size ** (order - 1)
        values.append(0 - (-size - slope @ (y - c)))
    options = {"score": norm, "num_folds": 4, "weights": weights}
    gain = gain_of(TemperatureScaling(), Categorical(probs), labels, **options)
    np.testing.assert_allclose(gain.mean, np.average(values, weights=used), rtol=1e-4)
    if weights is None:
        error = np.std(values, ddof=1) / np.sqrt(N)
        np.testing.assert_allclose(gain.standard_error, error, rtol=1e-4)


def test_errors_need_class_predictions():
    with pytest.raises(TypeError, match="predictions: expected classes for score='l1', got Normal"):
        gain_of(AFFINE, NORMAL, TARGETS, score="l1")
