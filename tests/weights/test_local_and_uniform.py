"""Weights of local errors, of PIT histograms and coverage, and of mean embeddings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.estimators import Neighbourhood
from tests import oracles
from tests.weights import laws

LOCAL = laws.FEATURES, laws.CONFIDENCES, laws.CORRECT
NEAR = Neighbourhood.laplacian(0.7, 2)
PIT = np.random.default_rng(8).uniform(size=laws.N)


def test_points_without_weights_near_them():
    w = (laws.CONFIDENCES > 0.5).astype(float)
    errors = estimators.lce(NEAR, *LOCAL, weights=w)
    np.testing.assert_array_equal(np.isnan(errors), w == 0)
    assert np.isfinite(estimators.mlce(NEAR, *LOCAL, weights=w))


def test_coverage_by_hand():
    w, levels = 0.2 * laws.WEIGHTS, np.array([0.25, 0.75])
    curve = estimators.coverage_curve(laws.KEY, PIT, kind="quantile", weights=w, levels=levels)
    expected = [np.average(level >= PIT, weights=w) for level in levels]
    np.testing.assert_allclose(curve.coverage, expected, rtol=1e-12)
    inside = [np.average(np.abs(2 * PIT - 1) <= level, weights=w) for level in levels]
    curve = estimators.coverage_curve(laws.KEY, PIT, weights=w, levels=levels)
    np.testing.assert_allclose(curve.coverage, inside, rtol=1e-12)
    histogram = estimators.pit_counts(laws.KEY, PIT, weights=w, num_bins=4)
    n = w.sum() ** 2 / (w**2).sum()
    counts = np.histogram(PIT, 4, (0, 1), weights=w)[0] / w.sum() * n
    np.testing.assert_allclose(histogram.counts, counts, rtol=1e-12)
    # Centred at what uniform values give, as wide as their standard deviation, but for the ends.
    middle = (histogram.simultaneous_upper + histogram.simultaneous_lower) / 2
    is_whole = np.asarray(histogram.simultaneous_lower) > 0
    np.testing.assert_allclose(middle[is_whole], n / 4, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n", [16, 64])
def test_level_of_bands_with_log_normal_weights(n):
    """2000 data sets of uniform numbers."""

    def outside(key):
        keys = jax.random.split(key, 3)
        values, weights = (
            jax.random.uniform(keys[0], (n,)),
            jnp.exp(jax.random.normal(keys[1], (n,))),
        )
        options = {"weights": weights, "num_draws": 39}
        histogram = estimators.pit_counts(keys[2], values, num_bins=4, **options)
        curve = estimators.coverage_curve(keys[2], values, kind="quantile", **options)
        return jnp.any(histogram.is_outside), jnp.any(curve.is_outside)

    found = jax.jit(lambda keys: jax.lax.map(outside, keys))(jax.random.split(laws.KEY, 2000))
    for is_outside in found:  # less often than at most where all bins may be empty
        assert 0.05 <= np.mean(is_outside) <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 2000)


@pytest.mark.parametrize("block_size", [2, 5, laws.N])
def test_blocks_by_hand(block_size):
    matrix = np.array(oracles.calibration_kernel_matrix(laws.KERNEL, laws.NORMALS, laws.TARGETS))
    w = laws.WEIGHTS / 7
    block = np.arange(laws.N) // block_size
    number = laws.N // block_size
    used = (block[:, None] == block) & (block < number) & ~np.eye(laws.N, dtype=bool)
    pairs = np.outer(w, w) * used
    options = {"block_size": block_size, "weights": w}
    found = estimators.skce_block(laws.KERNEL, laws.NORMALS, laws.TARGETS, **options)
    np.testing.assert_allclose(found, (pairs * matrix).sum() / pairs.sum(), rtol=1e-11)


def test_all_values_are_inside_together():
    """Sums of all weights differ by rounding in another order, which is no reason to be outside."""
    random = np.random.default_rng(0)
    for _ in range(20):
        weights = np.exp(random.normal(size=16))
        options = {"weights": weights, "levels": np.array([0.94, 0.95]), "num_draws": 19}
        curve = estimators.coverage_curve(
            laws.KEY, random.uniform(0, 0.9, 16), kind="quantile", **options
        )
        np.testing.assert_allclose(curve.coverage, 1, rtol=1e-12)
        assert not np.any(curve.is_outside)
