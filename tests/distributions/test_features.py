import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, kernels, recalibration
from calibjax import distributions as D
from calibjax.distances import Features
from calibjax.kernels import Exponential

N = 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
PROBS = RNG.dirichlet(np.ones(3), N)
LABELS = np.where(np.arange(N) < 5, PROBS.argmax(1), PROBS.argmin(1))
LOC = RNG.normal(size=N)


def test_products_see_both():
    predictions = D.with_features(D.Normal(jnp.asarray(LOC), jnp.ones(N)), {"x": jnp.asarray(X)})
    k = Exponential(1.0, distances.Wasserstein()) * Exponential(2.0, Features())
    p, q = (jax.tree.map(lambda leaf, i=i: leaf[i], predictions) for i in range(2))
    expected = np.exp(-abs(LOC[0] - LOC[1]) - np.linalg.norm(X[0] - X[1]) / 2)
    np.testing.assert_allclose(k(p, q), expected, rtol=1e-9)
    np.testing.assert_allclose(Features().squared(p, q), np.sum((X[0] - X[1]) ** 2), rtol=1e-9)
    heuristic = kernels.median_heuristic(Features(), predictions)
    pairs = np.linalg.norm(X[:, None] - X, axis=-1)[np.triu_indices(N, 1)]
    np.testing.assert_allclose(heuristic, np.median(pairs), rtol=1e-9)


def test_reductions_and_recalibration_keep_features():
    labels, logits = jnp.asarray(LABELS), jnp.log(jnp.asarray(PROBS))
    predictions = D.with_features(D.CategoricalLogits(logits), jnp.asarray(X))
    drawn = D.monte_carlo(jax.random.key(0), predictions, 3)
    for p in (predictions, drawn):
        confidences, _ = estimators.top_label(p, labels)
        np.testing.assert_array_equal(confidences.features, X)
        np.testing.assert_allclose(confidences.probs, PROBS.max(1), rtol=1e-9)
    each, _ = estimators.class_wise(predictions, labels)
    assert each.features.shape == (3, N, 2)
    method = recalibration.TemperatureScaling()
    params = method.fit(predictions, labels)
    new = method.apply(params, predictions)
    np.testing.assert_array_equal(new.features, X)
    expected = method.apply(params, predictions.distribution).class_probs
    np.testing.assert_allclose(new.class_probs, expected, rtol=1e-9)


def test_features_are_added_once():
    carrying = D.with_features(D.Normal(LOC, np.ones(N)), jnp.asarray(X))
    for p in (carrying, D.monte_carlo(jax.random.key(0), carrying, 3)):
        with pytest.raises(ValueError, match="predictions: expected predictions without features"):
            D.with_features(p, jnp.asarray(X))
