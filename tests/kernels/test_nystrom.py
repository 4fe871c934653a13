import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, operators
from calibjax import kernels as K
from calibjax.distributions import Categorical, Normal
from calibjax.hypothesis_tests import exact_skce_test
from calibjax.kernels import nystrom
from tests import oracles

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
DISTANCE = distances.Wasserstein()
LOC, SCALE = RNG.normal(size=40), RNG.uniform(0.5, 1.5, 40)
PREDICTIONS = Normal(LOC, SCALE)
TARGETS = RNG.normal(size=40)
ROUGH = K.Exponential(0.7, DISTANCE)
LANDMARKS = Normal(LOC[:7], SCALE[:7])


# Nyström: K_nr K_rr⁻¹ K_rn.
POINTS = np.stack([LOC, SCALE], 1)
COLUMNS = np.exp(-np.linalg.norm(POINTS[:, None] - POINTS[:7], axis=-1) / 0.7)
PLAIN = COLUMNS @ np.linalg.solve(COLUMNS[:7], COLUMNS.T)


def test_matrix():
    found = K.gram_matrix(K.Nystrom(ROUGH, LANDMARKS), PREDICTIONS)
    np.testing.assert_allclose(found, PLAIN, atol=1e-11)
    every = K.gram_matrix(K.Nystrom(ROUGH, PREDICTIONS), PREDICTIONS)
    np.testing.assert_allclose(every, K.gram_matrix(ROUGH, PREDICTIONS), atol=1e-11)


@pytest.mark.parametrize("estimator", [estimators.skce, estimators.skce_biased])
def test_estimates_by_features_and_by_pairs(estimator):
    kernel = K.TensorProduct(K.Nystrom(ROUGH, LANDMARKS), K.SquaredExponential(1.0))
    one = K.TensorProduct(K.Exponential(1e300, DISTANCE), kernel.target)
    matrix = np.asarray(oracles.calibration_kernel_matrix(one, PREDICTIONS, TARGETS))
    matrix = matrix * PLAIN
    diagonal = np.trace(matrix) if estimator is estimators.skce else 0
    expected = (matrix.sum() - diagonal) / (40 * 39 if estimator is estimators.skce else 1600)
    for function in (estimator, jax.jit(estimator)):  # traced data have no features
        np.testing.assert_allclose(function(kernel, PREDICTIONS, TARGETS), expected, rtol=1e-9)


@pytest.mark.parametrize("n", [1, 7, 100])
def test_feature_sums_in_blocks(n):
    x, weights = RNG.normal(size=(n, 2)), RNG.normal(size=(n, 3))
    values = np.stack([x[:, 0], x[:, 0] * x[:, 1], np.ones(n)], 1)
    sums, squares = operators.feature_sums(
        _products, 1.0, jnp.asarray(x), jnp.asarray(weights), jnp.asarray(weights), block_size=8
    )
    np.testing.assert_allclose(sums, weights.T @ values, atol=1e-12)
    np.testing.assert_allclose(squares, weights.T @ values**2, atol=1e-12)


def _products(scale, x):  # [3, m]
    return scale * jnp.stack([x[:, 0], x[:, 0] * x[:, 1], jnp.ones_like(x[:, 0])])


def test_chosen_landmarks():
    chosen = K.Nystrom.from_predictions(ROUGH, PREDICTIONS, 7)
    assert chosen.landmarks.loc.shape == (7,)
    errors = [
        np.abs(K.gram_matrix(kernel, PREDICTIONS) - K.gram_matrix(ROUGH, PREDICTIONS)).max()
        for kernel in (chosen, K.Nystrom.from_predictions(ROUGH, PREDICTIONS, 3))
    ]
    assert errors[0] < errors[1]
    few = K.Nystrom.from_predictions(K.SquaredExponential(100.0, DISTANCE), PREDICTIONS, 30)
    assert len(few.landmarks.loc) < 20  # which determine all others
    features = distributions.with_features(PREDICTIONS, jnp.asarray(LOC))
    by_features = K.Nystrom.from_predictions(K.Exponential(1.0, distances.Features()), features, 4)
    assert by_features.landmarks.loc.shape == (4,)


def test_indefinite_kernels_are_refused():
    probs = RNG.dirichlet(np.ones(4), 60)
    indefinite = K.SquaredExponential(1.0, distances.TotalVariation())
    matrix = np.exp(-0.5 * (0.5 * np.abs(probs[:, None] - probs).sum(-1)) ** 2)
    assert np.linalg.eigvalsh(matrix)[0] < -0.01
    kernel = K.TensorProduct(K.Nystrom(indefinite, Categorical(probs)), K.White())
    with pytest.raises(ValueError, match=r"kernel\.prediction: expected a kernel that is positive"):
        estimators.skce(kernel, Categorical(probs), np.zeros(60, int))


def test_targets_that_are_one_number():
    predictions = Normal(jnp.full(8, 1e8), jnp.full(8, 1e-9))
    kernel = K.TensorProduct(K.SquaredExponential(1.0, DISTANCE), K.SquaredExponential(1.0))
    test = exact_skce_test(KEY, kernel, predictions, np.full(8, 1e8), num_draws=19)
    assert 0 < test.pvalue <= 1


def plain(matrix, size):
    """Pivoted Cholesky decomposition by loops, until `size` pivots."""
    rest, features, pivots = matrix.copy(), [], []
    for _ in range(size):
        pivot = int(np.argmax(np.diagonal(rest)))
        features.append(rest[pivot] / np.sqrt(rest[pivot, pivot]))
        pivots.append(pivot)
        rest = rest - np.outer(features[-1], features[-1])
    return np.array(features).T, pivots, np.abs(rest).max()


def test_against_plain_loops():
    probs = np.random.default_rng(0).dirichlet(np.ones(4), 90)
    matrix = np.exp(-0.5 * np.square(probs[:, None] - probs).sum(-1) / 0.2**2)
    found = nystrom.decompose(
        K.SquaredExponential(0.2), Categorical(jnp.asarray(probs)), 1e-9, size=70
    )
    features, pivots, residual = plain(matrix, 70)
    assert found.rank == 70
    np.testing.assert_array_equal(found.pivots, pivots)
    np.testing.assert_allclose(found.features, features, atol=1e-10)
    np.testing.assert_allclose(found.residual, residual, rtol=1e-8)
    rows = found.features[found.pivots]
    np.testing.assert_array_equal(rows, np.tril(rows))


def test_stops_at_the_tolerance():
    """Also for points that are there several times, and only for one."""
    tolerance = 1e-5
    points = jnp.asarray(np.tile(np.random.default_rng(1).uniform(size=9), 5), jnp.float32)
    matrix = np.exp(-np.abs(np.subtract.outer(points, points)))
    found = nystrom.decompose(K.Exponential(), points, tolerance, size=20)
    assert found.rank == 9
    assert found.features.dtype == jnp.float32
    assert found.residual <= tolerance
    np.testing.assert_array_equal(found.features[:, 9:], 0)
    np.testing.assert_allclose(found.features @ found.features.T, matrix, atol=1e-6)
    found = nystrom.decompose(K.Exponential(), jnp.full(45, points[0]), tolerance, size=20)
    assert (found.rank, found.residual) == (1, 0)


def test_numerical_rank():
    confidences = jnp.asarray(np.random.default_rng(2).uniform(size=100))
    search = functools.partial(nystrom.numerical_rank, tolerance=1e-12, limit=20)
    found = nystrom.decompose(K.SquaredExponential(), confidences, 1e-12, size=20)
    assert 8 <= found.rank < 16
    assert search(K.SquaredExponential(), confidences) == 16
    assert search(K.SquaredExponential(), jnp.broadcast_to(confidences[:1], 100)) == 8
    assert search(K.SquaredExponential(0.01), confidences) is None
