"""Weights of the estimators of the kernel calibration error."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calibjax import estimators
from calibjax.distributions import Bernoulli, Normal
from tests import oracles
from tests.weights.laws import CLASSES, KERNEL, LABELS, NORMALS, TARGETS, WEIGHTS, WHITE, N


def test_weighted_means_over_pairs_are_those_of_the_matrix():
    matrix = np.array(oracles.calibration_kernel_matrix(KERNEL, NORMALS, TARGETS))
    w = WEIGHTS / 7
    pairs = np.outer(w, w)
    biased = estimators.skce_biased(KERNEL, NORMALS, TARGETS, weights=w)
    np.testing.assert_allclose(biased, (pairs * matrix).sum() / pairs.sum(), rtol=1e-12)
    np.fill_diagonal(pairs, 0)
    unbiased = estimators.skce(KERNEL, NORMALS, TARGETS, weights=w)
    np.testing.assert_allclose(unbiased, (pairs * matrix).sum() / pairs.sum(), rtol=1e-11)


def test_gradients_by_predictions_and_weights():
    def value(loc, w):
        return estimators.skce(KERNEL, Normal(loc, NORMALS.scale), TARGETS, weights=w)

    w = jnp.asarray(WEIGHTS, float)
    check_grads(value, (jnp.asarray(NORMALS.loc), w + 0.5), 1, rtol=1e-5)
    assert not np.any(jax.grad(value)(jnp.asarray(NORMALS.loc), w)[WEIGHTS == 0])


def test_one_positive_weight_has_no_pairs():
    w = np.arange(N) == 3
    with pytest.raises(ValueError, match="weights.*at least 2 positive weights.*, got 1"):
        estimators.skce(KERNEL, NORMALS, TARGETS, weights=w)
    compiled = jax.jit(functools.partial(estimators.skce, KERNEL))
    assert np.isnan(compiled(NORMALS, TARGETS, weights=1.0 * w))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("small", [1e-3, 1e-9, 1e-15])
def test_one_sample_has_almost_all_the_weight(dtype, small):
    """The effective number of samples is 1 up to rounding; the mean is that of its own pairs."""
    random = np.random.default_rng(0)
    predictions, targets = Bernoulli(random.uniform(size=6).astype(dtype)), np.arange(6) % 2
    weights = np.r_[1, np.full(5, small)]
    matrix = np.asarray(oracles.calibration_kernel_matrix(WHITE, predictions, targets), float)
    pairs = np.outer(weights, weights) * (1 - np.eye(6))
    found = estimators.skce(WHITE, predictions, targets, weights=weights.astype(dtype))
    np.testing.assert_allclose(found, (pairs * matrix).sum() / pairs.sum(), rtol=1e-5)


def test_weights_that_vanish_beside_others():
    """In float32 nothing but one sample is left, and no pair of samples."""
    weights = np.full(N, 1e-30)
    weights[3] = 1e30
    single = jax.tree.map(np.float32, CLASSES)
    with pytest.raises(ValueError, match="at least 2 positive weights in float32, got 1"):
        estimators.skce(WHITE, single, LABELS, weights=weights)
    assert np.isfinite(estimators.skce(WHITE, CLASSES, LABELS, weights=weights))
