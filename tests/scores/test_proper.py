import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from calibjax import scores
from calibjax.distributions import Bernoulli, Categorical, DiagNormal, Ensemble, Mixture, Normal

N, M = 40, 4
RNG = np.random.default_rng(0)
PROBS, LABELS = RNG.dirichlet(np.ones(M), N), RNG.integers(M, size=N)
CONFIDENCES, CORRECT = RNG.uniform(0.01, 0.99, N), RNG.integers(2, size=N)
LOC, SCALE, TARGETS = RNG.normal(size=(N, 3)), RNG.uniform(0.2, 2, (N, 3)), RNG.normal(size=(N, 3))


def test_against_scipy_and_scikit_learn():
    def compare(value, expected):
        assert value.shape == ()
        np.testing.assert_allclose(value, expected, rtol=1e-12)

    nll, brier = jax.jit(scores.negative_log_likelihood), jax.jit(scores.brier_score)
    log_probs = stats.norm(LOC, SCALE).logpdf(TARGETS)
    compare(nll(DiagNormal(LOC, SCALE), TARGETS), -log_probs.sum(1).mean())
    compare(nll(Normal(LOC[:, 0], SCALE[:, 0]), TARGETS[:, 0]), -log_probs[:, 0].mean())
    mse = scores.mean_squared_error
    compare(mse(DiagNormal(LOC, SCALE), TARGETS), np.mean((LOC - TARGETS) ** 2))
    mixture, number = Mixture(None, Normal(LOC, SCALE)), TARGETS[:, 0]
    compare(mse(mixture, number), np.mean((LOC.mean(1) - number) ** 2))
    classes = Categorical(PROBS), LABELS
    compare(scores.accuracy(*classes), metrics.accuracy_score(LABELS, PROBS.argmax(1)))
    compare(nll(*classes), metrics.log_loss(LABELS, PROBS, labels=range(M)))
    compare(brier(*classes), np.mean(np.sum((PROBS - np.eye(M)[LABELS]) ** 2, 1)))
    binary = Bernoulli(CONFIDENCES), CORRECT
    compare(nll(*binary), metrics.log_loss(CORRECT, CONFIDENCES))
    compare(brier(*binary), metrics.brier_score_loss(CORRECT, CONFIDENCES))


def test_options_and_scores_of_intervals_and_ordered_classes():
    classes, numbers = Categorical(PROBS), Normal(LOC[:, 0], SCALE[:, 0])
    twice = scores.brier_score(Bernoulli(CONFIDENCES), CORRECT, scale_by_half=False)
    np.testing.assert_allclose(twice, 2 * metrics.brier_score_loss(CORRECT, CONFIDENCES))
    half = scores.brier_score(classes, LABELS, scale_by_half=True)
    theirs = metrics.brier_score_loss(LABELS, PROBS, labels=range(M), scale_by_half=True)
    np.testing.assert_allclose(half, theirs)
    below, reached = PROBS.cumsum(1), LABELS[:, None] <= np.arange(M)
    expected = np.sum((below - reached)[:, :-1] ** 2, 1)
    found = scores.ranked_probability_score(classes, LABELS, reduction="none")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    y, (low, high) = TARGETS[:, 0], stats.norm(LOC[:, 0], SCALE[:, 0]).interval(0.8)
    expected = high - low + (np.maximum(low - y, 0) + np.maximum(y - high, 0)) / 0.1
    found = scores.interval_score(numbers, y, confidence_level=0.8, reduction="none")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    pinball = scores.pinball_loss(numbers, y, levels=[0.1, 0.9], reduction="none")
    np.testing.assert_allclose(found, 20 * pinball, rtol=1e-12)


def test_a_target_of_probability_zero():
    predictions = Categorical(jnp.array([[0.0, 1.0], [0.5, 0.5]]))
    assert scores.negative_log_likelihood(predictions, jnp.array([0, 1])) == jnp.inf
    assert scores.brier_score(predictions, jnp.array([0, 1])) == 0.625
    gradient = jax.grad(lambda p: scores.negative_log_likelihood(Categorical(p), jnp.array([1, 1])))
    np.testing.assert_array_equal(gradient(predictions.probs), [[0, -0.5], [0, -1]])


def test_accuracy_of_ties_and_truth_values():
    predictions = Bernoulli(jnp.array([0.5, 0.5, 0.9, 0.1]))
    assert scores.accuracy(predictions, jnp.array([True, False, True, True])) == 0.5
    predictions = Categorical(jnp.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]))
    assert scores.accuracy(predictions, jnp.array([0, 2])) == 0.5


def test_labels_are_no_numbers():
    with pytest.raises(TypeError, match="classes have a brier_score"):
        scores.mean_squared_error(Categorical(PROBS), LABELS)


NORMALS, NUMBERS = Normal(LOC[:, 0], SCALE[:, 0]), TARGETS[:, 0]


def test_pinball_loss_against_scikit_learn():
    for levels in (None, [0.2, 0.9]):
        value = scores.pinball_loss(NORMALS, NUMBERS, levels=levels)
        levels = np.linspace(0.05, 0.95, 19) if levels is None else levels
        quantiles = [stats.norm(LOC[:, 0], SCALE[:, 0]).ppf(level) for level in levels]
        expected = [
            metrics.mean_pinball_loss(NUMBERS, q, alpha=level)
            for q, level in zip(quantiles, levels, strict=True)
        ]
        np.testing.assert_allclose(value, np.mean(expected), rtol=1e-12)


def test_quantiles_by_bisection_and_of_ordered_classes():
    twice = Mixture(None, Normal(*(jnp.stack([x[:, 0]] * 2, 1) for x in (LOC, SCALE))))
    one, two = (scores.pinball_loss(p, NUMBERS) for p in (NORMALS, twice))
    np.testing.assert_allclose(two, one, rtol=1e-12)
    classes = Categorical(jnp.array([[0.25, 0.5, 0.25]]))
    loss = scores.pinball_loss(classes, jnp.array([2]), levels=[0.5, 0.9])
    np.testing.assert_allclose(loss, 0.5 * (2 - 1) / 2)
    draws = Ensemble(jnp.array([[1, 1, 2, 4]]))
    loss = scores.pinball_loss(draws, jnp.array([2]), levels=[0.5, 0.9])
    np.testing.assert_allclose(loss, (0.5 * 1 + 0.1 * 2) / 2)


def test_infinite_scores_without_weight():
    def score(probs):
        predictions, weights = Bernoulli(probs), jnp.array([1.0, 0.0])
        return scores.negative_log_likelihood(predictions, jnp.array([1, 1]), weights=weights)

    value, slopes = jax.value_and_grad(score)(jnp.array([0.5, 0.0]))
    np.testing.assert_allclose(value, np.log(2))
    np.testing.assert_allclose(slopes, [-2, 0])
