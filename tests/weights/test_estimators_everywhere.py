"""Weighted estimators in single precision, of tables of pandas, and on several devices."""

import jax
import numpy as np
import pandas as pd
import pytest

from calibjax import distances, estimators, hypothesis_tests, kernels
from calibjax.distributions import Bernoulli, Categorical, Normal, Quantiles
from tests.weights.laws import WEIGHTS, N, close

_random = np.random.default_rng(12)
BINARY = Bernoulli(_random.uniform(size=N)), _random.integers(0, 2, N)
CLASSES = Categorical(_random.dirichlet(np.ones(3), N)), _random.integers(0, 3, N)
NORMALS = Normal(_random.normal(size=N), _random.uniform(0.5, 1, N)), _random.normal(size=N)
LOCAL = _random.normal(size=(N, 2)), *BINARY
QUANTILES = Quantiles(np.tile([0.2, 0.8], (N, 1)), np.sort(_random.normal(size=(N, 2)), 1))
KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
NEAR = estimators.Neighbourhood.laplacian(np.float32(0.7), 2)
PLACES = Normal(np.float32([0, 1]), np.float32([1, 1])), np.float32([0.5, -0.5])
KEY = jax.random.key(0)
BINS = {"binning": estimators.EqualMassBins(2)}


def _of_key(function, **options):
    return lambda *data, weights: function(KEY, *data, weights=weights, num_draws=19, **options)


CASES = {
    "ece": (lambda *data, weights: estimators.ece(*data, weights=weights, **BINS), CLASSES),
    "debiased": (
        lambda *data, weights: estimators.debiased_squared_ece(*data, weights=weights, **BINS),
        CLASSES,
    ),
    "medians": (
        lambda *data, weights: estimators.mce(
            *data, weights=weights, binning=estimators.MedianVarianceBins(3)
        ),
        CLASSES,
    ),
    "reliability": (
        lambda *data, weights: (
            lambda curve: (curve.counts, curve.frequency, curve.simultaneous_upper)
        )(_of_key(estimators.reliability_curve, **BINS, max_bins=2)(*data, weights=weights)),
        BINARY,
    ),
    "local": (
        lambda *data, weights: estimators.local_errors(NEAR, *data, weights=weights).error,
        LOCAL,
    ),
    "density": (
        lambda *data, weights: estimators.kde_calibration_error(
            *data, weights=weights, bandwidth=0.1, order=2
        ),
        CLASSES,
    ),
    "embedding": (
        lambda *data, weights: estimators.ucme(KERNEL, *data, *PLACES, weights=weights),
        NORMALS,
    ),
    "blocks": (
        lambda *data, weights: estimators.skce_block(KERNEL, *data, block_size=3, weights=weights),
        NORMALS,
    ),
    "coverage": (
        lambda *data, weights: (
            _of_key(hypothesis_tests.coverage_test)(*data, weights=weights).statistic
        ),
        (QUANTILES, NORMALS[1]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_float32(name):
    function, data = CASES[name]
    narrow = jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == float else x, data)
    expected = function(*data, weights=WEIGHTS)
    for weights in (WEIGHTS, 1e-30 * WEIGHTS, np.float32(1e30) * np.float32(WEIGHTS)):
        found = function(*narrow, weights=weights)
        assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found))
        if name != "reliability":  # whose redraws are others in another precision
            close(found, expected, 2e-4)


def test_tables():
    table = pd.DataFrame({"p": BINARY[0].probs, "y": BINARY[1], "w": WEIGHTS}, index=range(5, 17))
    expected = estimators.ece(*BINARY, weights=WEIGHTS)
    found = estimators.ece(Bernoulli(table.p), table.y, weights=table.w)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match=r"weights: expected rows with the labels of"):
        estimators.ece(Bernoulli(table.p), table.y, weights=table.w[::-1])
    with pytest.raises(ValueError, match=r"weights: expected rows with the labels of"):
        estimators.pit_histogram(KEY, table.p, weights=table.w[::-1])
