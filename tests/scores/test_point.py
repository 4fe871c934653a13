import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics

from calibjax import scores
from calibjax.distributions import Bernoulli, Categorical, DiagNormal, Mixture, Normal
from tests import oracles

N = 40
RNG = np.random.default_rng(1)
LOC, TARGETS = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 3))
PROBS, LABELS = RNG.dirichlet(np.ones(4), N), RNG.integers(4, size=N)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_scikit_learn(dtype):
    mse, accuracy = jax.jit(scores.mean_squared_error), jax.jit(scores.accuracy)
    vectors = oracles.as_dtype((DiagNormal(LOC, np.ones_like(LOC)), TARGETS), dtype)
    numbers = oracles.as_dtype((Normal(LOC[:, 0], np.ones(N)), TARGETS[:, 0]), dtype)
    mixture = oracles.as_dtype(
        (Mixture(None, Normal(LOC, np.ones_like(LOC))), TARGETS[:, 0]), dtype
    )
    classes = oracles.as_dtype((Categorical(PROBS), LABELS), dtype)
    expected = (
        metrics.mean_squared_error(TARGETS, LOC),
        metrics.mean_squared_error(TARGETS[:, 0], LOC[:, 0]),
        metrics.mean_squared_error(TARGETS[:, 0], LOC.mean(1)),
        metrics.accuracy_score(LABELS, PROBS.argmax(1)),
    )
    values = mse(*vectors), mse(*numbers), mse(*mixture), accuracy(*classes)
    assert {value.dtype for value in values} == {jnp.dtype(dtype)}
    np.testing.assert_allclose(values, expected, rtol=1e-12 if dtype == np.float64 else 2e-6)


def test_accuracy_of_ties_and_truth_values():
    predictions = Bernoulli(jnp.array([0.5, 0.5, 0.9, 0.1]))
    assert scores.accuracy(predictions, jnp.array([True, False, True, True])) == 0.5
    predictions = Categorical(jnp.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]))
    assert scores.accuracy(predictions, jnp.array([0, 2])) == 0.5


def test_predictions_of_another_kind():
    with pytest.raises(TypeError, match="got class predictions, Bernoulli; .* scores.brier_score"):
        scores.mean_squared_error(Bernoulli(PROBS[:, 0]), LABELS % 2)
    with pytest.raises(TypeError, match="expected class predictions"):
        scores.accuracy(Normal(LOC[:, 0], jnp.ones(N)), TARGETS[:, 0])
    with pytest.raises(ValueError, match="targets: expected shape"):
        scores.mean_squared_error(DiagNormal(LOC, jnp.ones_like(LOC)), TARGETS[:, :2])
