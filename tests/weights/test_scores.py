"""Weights of scores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.metrics

from calibjax import scores
from calibjax.distributions import Bernoulli, Categorical, Ensemble, Quantiles
from calibjax.scores.decomposition import prediction_rejection_ratio
from tests.weights.laws import CLASSES, CONFIDENCES, CORRECT, LABELS, NORMALS, TARGETS, WEIGHTS, N

QUANTILES = Quantiles(
    np.tile([0.2, 0.5, 0.9], (N, 1)), NORMALS.loc[:, None] + np.array([-1.0, 0.0, 1.0])
)
DRAWS = Ensemble(NORMALS.loc[:, None] + np.random.default_rng(8).normal(size=(N, 5)))


def test_scores_of_scikit_learn():
    labels, weights = np.array([0, 1, 2]), WEIGHTS + 0.25
    ours = functools.partial(dict, weights=weights)
    nll = scores.negative_log_likelihood(CLASSES, LABELS, **ours())
    theirs = sklearn.metrics.log_loss(LABELS, CLASSES.probs, sample_weight=weights, labels=labels)
    np.testing.assert_allclose(nll, theirs, rtol=1e-12)
    theirs = sklearn.metrics.brier_score_loss(
        LABELS, CLASSES.probs, sample_weight=weights, labels=labels
    )
    np.testing.assert_allclose(scores.brier_score(CLASSES, LABELS, **ours()), theirs, rtol=1e-12)
    found = CLASSES.probs.argmax(1)
    theirs = sklearn.metrics.accuracy_score(LABELS, found, sample_weight=weights)
    np.testing.assert_allclose(scores.accuracy(CLASSES, LABELS, **ours()), theirs, rtol=1e-12)
    theirs = sklearn.metrics.mean_squared_error(TARGETS, NORMALS.loc, sample_weight=weights)
    found = scores.mean_squared_error(NORMALS, TARGETS, **ours())
    np.testing.assert_allclose(found, theirs, rtol=1e-12)
    theirs = sklearn.metrics.mean_pinball_loss(TARGETS, NORMALS.loc, sample_weight=weights)
    found = scores.pinball_loss(NORMALS, TARGETS, levels=[0.5], **ours())
    np.testing.assert_allclose(found, theirs, rtol=1e-12)
    theirs = sklearn.metrics.roc_auc_score(CORRECT, CONFIDENCES, sample_weight=weights)
    found = prediction_rejection_ratio(CONFIDENCES, CORRECT, **ours())
    np.testing.assert_allclose(found, 2 * theirs - 1, rtol=1e-12)


def test_parts_are_scores_after_isotonic_regression_of_scikit_learn():
    from sklearn.isotonic import IsotonicRegression

    weights = WEIGHTS + 0.25
    fit = IsotonicRegression().fit(CONFIDENCES, CORRECT, sample_weight=weights)
    score = lambda p: 2 * np.average((p - CORRECT) ** 2, weights=weights)  # noqa: E731
    recalibrated, mean = fit.predict(CONFIDENCES), np.average(CORRECT, weights=weights)
    parts = scores.brier_decomposition(Bernoulli(CONFIDENCES), CORRECT, weights=weights)
    expected = score(CONFIDENCES) - score(recalibrated), score(mean) - score(recalibrated)
    np.testing.assert_allclose([parts.miscalibration, parts.discrimination], expected, rtol=1e-10)
    np.testing.assert_allclose(parts.score, score(CONFIDENCES), rtol=1e-12)
    np.testing.assert_allclose(parts.uncertainty, score(mean), rtol=1e-12)


def test_what_does_not_count_may_be_impossible():
    """Its score is infinite, and the derivative of that is no number."""
    probs, labels = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]), np.array([0, 1, 1])
    weights = np.array([1.0, 0.0, 3.0])

    def nll(probs, weights):
        return scores.negative_log_likelihood(Categorical(probs), labels, weights=weights)

    np.testing.assert_allclose(nll(probs, weights), (np.log(4) + 3 * np.log(2)) / 4, rtol=1e-12)
    assert nll(probs, np.ones(3)) == np.inf
    slopes = jax.grad(nll)(jnp.asarray(probs), jnp.asarray(weights))
    assert np.isfinite(slopes).all()
    assert not slopes[1].any()
