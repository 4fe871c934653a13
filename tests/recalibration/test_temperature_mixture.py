"""Ensemble temperature scaling, against a minimum by SciPy."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from calibjax import distributions as d
from calibjax import scores
from calibjax.recalibration.classes import EnsembleTemperatureScaling

RNG = np.random.default_rng(0)
N, M = 200, 4
METHOD = EnsembleTemperatureScaling()


def _data(share):
    """Logits that are too large, and labels of which some have nothing to do with them."""
    logits = RNG.normal(size=(N, M)) * 3
    probs = (1 - share) * softmax(logits / 2, 1) + share / M
    return logits, (probs.cumsum(1) < RNG.uniform(size=(N, 1))).sum(1)


def _expected(logits, labels, weights):
    """Temperature and weights of the definition, and the new probabilities."""
    rows, shares = np.arange(len(labels)), weights / weights.sum()
    found = minimize_scalar(
        lambda log: -shares @ log_softmax(logits * np.exp(-log), 1)[rows, labels],
        bounds=(-5, 5),
        method="bounded",
        options={"xatol": 1e-10},
    )
    parts = softmax(logits * np.exp(-found.x), 1), softmax(logits, 1), np.full_like(logits, 1 / M)
    values = np.stack([part[rows, labels] for part in parts])
    best = minimize(
        lambda w: -shares @ np.log(w @ values),
        np.full(3, 1 / 3),
        jac=lambda w: -values @ (shares / (w @ values)),
        bounds=[(0, 1)] * 3,
        constraints=LinearConstraint(np.ones(3), 1, 1),
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return np.exp(found.x), best.x, sum(w * part for w, part in zip(best.x, parts, strict=True))


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("kind", [d.CategoricalLogits, d.Categorical])
def test_against_scipy(share, kind):
    logits, labels = _data(share)
    weights = RNG.integers(0, 3, N)
    predictions = kind(logits if kind is d.CategoricalLogits else softmax(logits, 1))
    params = METHOD.fit(predictions, labels, weights=weights)
    temperature, mixing, probs = _expected(logits, labels, weights)
    np.testing.assert_allclose(params.temperature, temperature, rtol=1e-6)
    found = METHOD.apply(params, predictions).class_probs
    # Weights that vanish do so slowly, as the likelihood hardly depends on them.
    np.testing.assert_allclose(params.mixing_probs, mixing, atol=2e-2)
    np.testing.assert_allclose(found, probs, atol=5e-3)
    rows = np.arange(N)
    losses = [-weights @ np.log(p[rows, labels]) / weights.sum() for p in (found, probs)]
    assert losses[1] - 1e-9 <= losses[0] <= losses[1] + 5e-5
    copies = np.repeat(rows, weights)
    repeated = METHOD.fit(predictions[copies], labels[copies])
    np.testing.assert_allclose(repeated.mixing_probs, params.mixing_probs, atol=1e-9)


def test_two_classes_are_those_of_probabilities():
    probs, labels = RNG.uniform(size=N), RNG.integers(0, 2, N)
    both = d.Bernoulli(probs), d.Categorical(np.stack([1 - probs, probs], 1))
    one, other = (METHOD.apply(METHOD.fit(p, labels), p) for p in both)
    assert isinstance(one, d.Bernoulli)
    np.testing.assert_allclose(one.probs, other.class_probs[:, 1], atol=1e-6)


def test_surprises_and_missing_classes_have_finite_losses():
    probs = np.eye(3)[[0, 1, 1, 0, 1, 0]]
    labels = np.array([0, 1, 1, 0, 0, 0])
    predictions = d.Categorical(probs)
    params = METHOD.fit(predictions, labels)
    fitted = METHOD.apply(params, predictions)
    assert np.all(fitted.class_probs > 0.01)
    assert scores.negative_log_likelihood(fitted, labels) < 1


def test_identity_and_unknown_weights():
    logits, labels = _data(0.0)
    predictions = d.CategoricalLogits(logits)
    same = METHOD.apply(METHOD.identity(predictions), predictions)
    np.testing.assert_allclose(same.class_probs, softmax(logits, 1), rtol=1e-12)
    params = dataclasses.replace(METHOD.fit(predictions, labels), mixing_probs=jnp.ones(2) / 2)
    with pytest.raises(ValueError, match="params"):
        METHOD.apply(params, predictions)
