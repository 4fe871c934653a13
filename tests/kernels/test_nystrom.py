import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, operators
from calibjax import kernels as K
from calibjax.distributions import Categorical, Normal
from calibjax.hypothesis_tests import exact_skce_test
from tests import oracles

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
DISTANCE = distances.Wasserstein()
LOC, SCALE = RNG.normal(size=40), RNG.uniform(0.5, 1.5, 40)
PREDICTIONS = Normal(LOC, SCALE)
TARGETS = RNG.normal(size=40)
ROUGH = K.Exponential(0.7, DISTANCE)
LANDMARKS = Normal(LOC[:7], SCALE[:7])


def plain_matrix(landmarks=slice(7)):
    """Nyström: K_nr K_rr⁻¹ K_rn."""
    x = np.stack([LOC, SCALE], 1)
    full = np.exp(-np.linalg.norm(x[:, None] - x, axis=-1) / 0.7)
    columns = full[:, landmarks]
    return columns @ np.linalg.solve(columns[landmarks], columns.T)


def test_matrix():
    found = K.gram_matrix(K.Nystrom(ROUGH, LANDMARKS), PREDICTIONS)
    np.testing.assert_allclose(found, plain_matrix(), atol=1e-11)
    every = K.gram_matrix(K.Nystrom(ROUGH, PREDICTIONS), PREDICTIONS)
    np.testing.assert_allclose(every, K.gram_matrix(ROUGH, PREDICTIONS), atol=1e-11)


@pytest.mark.parametrize("estimator", [estimators.skce, estimators.skce_biased])
def test_estimates_by_features_and_by_pairs(estimator):
    kernel = K.TensorProduct(K.Nystrom(ROUGH, LANDMARKS), K.SquaredExponential(1.0))
    one = K.TensorProduct(K.Exponential(1e300, DISTANCE), kernel.target)
    matrix = np.asarray(oracles.calibration_kernel_matrix(one, PREDICTIONS, TARGETS))
    matrix = matrix * plain_matrix()
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
