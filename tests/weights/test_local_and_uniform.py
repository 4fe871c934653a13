"""Weights of local errors, of PIT histograms and coverage, and of mean embeddings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Normal
from calibjax.estimators import Neighbourhood
from calibjax.estimators.kernel import location_pair
from tests import oracles
from tests.weights.laws import (
    CONFIDENCES,
    CORRECT,
    FEATURES,
    KERNEL,
    KEY,
    NORMALS,
    PLACES,
    TARGETS,
    WEIGHTS,
    N,
)

LOCAL = FEATURES, CONFIDENCES, CORRECT
NEAR = Neighbourhood.laplacian(0.7, 2)
# Nearest to samples of which some have no weight, in the same bins.
AT = FEATURES[[1, 6, 0, 3, 4]] + 0.01, CONFIDENCES[[1, 6, 0, 3, 4]]
PIT = np.random.default_rng(8).uniform(size=N)


def _local_by_hand(near, w, at=None):
    """Error, standard errors and effective size at each point, by the formulas."""
    points, places = (FEATURES, CONFIDENCES) if at is None else at
    groups = near.groups(CONFIDENCES, None if at is None else places)
    found = []
    for x, bin_of_x in zip(points, np.asarray(groups[0]), strict=True):
        k = np.exp(-np.abs(x - FEATURES).mean(1) / float(near.kernel.length_scale))
        v = w * k * (np.asarray(groups[1]) == bin_of_x)
        size = v.sum() ** 2 / (v**2).sum()
        v = v / v.sum()
        r = CONFIDENCES - CORRECT
        error = v @ r
        spread = np.inf
        if size > 1.999:
            spread = v @ (r - error) ** 2 * (v**2).sum() / (1 - (v**2).sum())
        null = v**2 @ (CONFIDENCES * (1 - CONFIDENCES))
        found.append((error, np.sqrt(spread), np.sqrt(null), size))
    return np.transpose(found)


@pytest.mark.parametrize("at", [None, AT], ids=["samples", "other points"])
def test_local_errors_by_hand(at):
    w = 0.3 * WEIGHTS
    found = estimators.local_errors(NEAR, *LOCAL, weights=w, at=at)
    error, standard, null, size = _local_by_hand(NEAR, w, at)
    np.testing.assert_allclose(found.error, error, rtol=1e-10)
    np.testing.assert_allclose(found.standard_error, standard, rtol=1e-10)
    np.testing.assert_allclose(found.null_standard_error, null, rtol=1e-10)
    np.testing.assert_allclose(found.effective_size, size, rtol=1e-10)
    local = estimators.lce(NEAR, *LOCAL, weights=w, at=at)
    np.testing.assert_allclose(local, np.abs(error), rtol=1e-10)
    largest = np.abs(error)[w > 0] if at is None else np.abs(error)
    np.testing.assert_allclose(
        estimators.mlce(NEAR, *LOCAL, weights=w, at=at), max(largest), rtol=1e-10
    )


def test_points_without_weights_near_them():
    w = (CONFIDENCES > 0.5).astype(float)
    errors = estimators.lce(NEAR, *LOCAL, weights=w)
    np.testing.assert_array_equal(np.isnan(errors), w == 0)
    assert np.isfinite(estimators.mlce(NEAR, *LOCAL, weights=w))


def test_coverage_by_hand():
    w, levels = 0.2 * WEIGHTS, np.array([0.25, 0.75])
    curve = estimators.coverage_curve(KEY, PIT, kind="quantile", weights=w, levels=levels)
    expected = [np.average(level >= PIT, weights=w) for level in levels]
    np.testing.assert_allclose(curve.coverage, expected, rtol=1e-12)
    inside = [np.average(np.abs(2 * PIT - 1) <= level, weights=w) for level in levels]
    curve = estimators.coverage_curve(KEY, PIT, weights=w, levels=levels)
    np.testing.assert_allclose(curve.coverage, inside, rtol=1e-12)
    histogram = estimators.pit_counts(KEY, PIT, weights=w, num_bins=4)
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

    found = jax.jit(lambda keys: jax.lax.map(outside, keys))(jax.random.split(KEY, 2000))
    for is_outside in found:  # less often than at most where all bins may be empty
        assert 0.05 <= np.mean(is_outside) <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 2000)


def test_witness_by_hand():
    w = WEIGHTS / 3
    rows = zip(NORMALS.loc, NORMALS.scale, TARGETS, strict=True)
    samples = [(Normal(loc, scale), y) for loc, scale, y in rows]
    places = [(Normal(loc, 1.0), s) for loc, s in zip(PLACES[0].loc, PLACES[1], strict=True)]
    z = [[location_pair(KERNEL, t, one) for one in samples] for t in places]
    expected = np.average(np.array(z), 1, weights=w)
    found = estimators.witness(KERNEL, NORMALS, TARGETS, *PLACES, weights=w)
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    squared = estimators.ucme(KERNEL, NORMALS, TARGETS, *PLACES, weights=w)
    np.testing.assert_allclose(squared, np.mean(expected**2), rtol=1e-11)


@pytest.mark.parametrize("block_size", [2, 5, N])
def test_blocks_by_hand(block_size):
    matrix = np.array(oracles.calibration_kernel_matrix(KERNEL, NORMALS, TARGETS))
    w = WEIGHTS / 7
    block = np.arange(N) // block_size
    number = N // block_size
    used = (block[:, None] == block) & (block < number) & ~np.eye(N, dtype=bool)
    pairs = np.outer(w, w) * used
    options = {"block_size": block_size, "weights": w}
    found = estimators.skce_block(KERNEL, NORMALS, TARGETS, **options)
    np.testing.assert_allclose(found, (pairs * matrix).sum() / pairs.sum(), rtol=1e-11)


def test_all_values_are_inside_together():
    """Sums of all weights differ by rounding in another order, which is no reason to be outside."""
    random = np.random.default_rng(0)
    for _ in range(20):
        weights = np.exp(random.normal(size=16))
        options = {"weights": weights, "levels": np.array([0.94, 0.95]), "num_draws": 19}
        curve = estimators.coverage_curve(
            KEY, random.uniform(0, 0.9, 16), kind="quantile", **options
        )
        np.testing.assert_allclose(curve.coverage, 1, rtol=1e-12)
        assert not np.any(curve.is_outside)
