import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from calibjax import scores
from calibjax.distributions import Bernoulli, Categorical, DiagNormal, Mixture, Normal
from tests import oracles

N, M = 40, 4
RNG = np.random.default_rng(0)
PROBS, LABELS = RNG.dirichlet(np.ones(M), N), RNG.integers(M, size=N)
CONFIDENCES, CORRECT = RNG.uniform(0.01, 0.99, N), RNG.integers(2, size=N)
LOC, SCALE, TARGETS = RNG.normal(size=(N, 3)), RNG.uniform(0.2, 2, (N, 3)), RNG.normal(size=(N, 3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_scipy_and_scikit_learn(dtype):
    tolerance = {"rtol": 1e-12 if dtype == np.float64 else 1e-6}

    def compare(value, expected):
        assert value.dtype == dtype
        assert value.shape == ()
        np.testing.assert_allclose(value, expected, **tolerance)

    def converted(*arguments):
        return oracles.as_dtype(arguments, dtype)

    nll, brier = jax.jit(scores.negative_log_likelihood), jax.jit(scores.brier_score)
    log_probs = stats.norm(LOC, SCALE).logpdf(TARGETS)
    compare(nll(*converted(DiagNormal(LOC, SCALE), TARGETS)), -log_probs.sum(1).mean())
    compare(nll(*converted(Normal(LOC[:, 0], SCALE[:, 0]), TARGETS[:, 0])), -log_probs[:, 0].mean())
    classes = converted(Categorical(PROBS), LABELS)
    compare(nll(*classes), metrics.log_loss(LABELS, PROBS, labels=range(M)))
    compare(brier(*classes), np.mean(np.sum((PROBS - np.eye(M)[LABELS]) ** 2, 1)))
    binary = converted(Bernoulli(CONFIDENCES), CORRECT)
    compare(nll(*binary), metrics.log_loss(CORRECT, CONFIDENCES))
    compare(brier(*binary), 2 * metrics.brier_score_loss(CORRECT, CONFIDENCES))


def test_compiled_is_eager_and_two_classes_are_a_bernoulli():
    two = Categorical(jnp.stack([1 - CONFIDENCES, CONFIDENCES], 1))
    for score in (scores.negative_log_likelihood, scores.brier_score):
        eager = score(Bernoulli(jnp.asarray(CONFIDENCES)), jnp.asarray(CORRECT))
        np.testing.assert_allclose(jax.jit(score)(two, CORRECT), eager, rtol=1e-14)
        np.testing.assert_allclose(score(two, CORRECT == 1), eager, rtol=1e-14)


def test_a_target_of_probability_zero():
    predictions = Categorical(jnp.array([[0.0, 1.0], [0.5, 0.5]]))
    assert scores.negative_log_likelihood(predictions, jnp.array([0, 1])) == jnp.inf
    assert scores.brier_score(predictions, jnp.array([0, 1])) == 1.25
    gradient = jax.grad(lambda p: scores.negative_log_likelihood(Categorical(p), jnp.array([1, 1])))
    np.testing.assert_array_equal(gradient(predictions.probs), [[0, -0.5], [0, -1]])


def test_classes_of_a_mixture():
    probs = RNG.dirichlet(np.ones(M), (N, 2))
    mixture, mean = Mixture(None, Categorical(jnp.asarray(probs))), Categorical(probs.mean(1))
    for score in (scores.negative_log_likelihood, scores.brier_score):
        np.testing.assert_allclose(
            jax.jit(score)(mixture, LABELS), jax.jit(score)(mean, LABELS), rtol=1e-12
        )


def test_distributions_without_the_method():
    silent = dataclasses.make_dataclass("Silent", ["loc"], frozen=True)
    silent.sample = Normal.sample
    jax.tree_util.register_dataclass(silent)
    with pytest.raises(TypeError, match="predictions: expected .* method log_prob, got Silent"):
        scores.negative_log_likelihood(silent(LOC[:, 0]), TARGETS[:, 0])
    with pytest.raises(TypeError, match="predictions.components: expected .* method log_prob"):
        scores.negative_log_likelihood(Mixture(None, silent(LOC)), TARGETS[:, 0])
    with pytest.raises(TypeError, match="expected class predictions"):
        scores.brier_score(Normal(LOC[:, 0], SCALE[:, 0]), TARGETS[:, 0])
