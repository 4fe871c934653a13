import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, hypothesis_tests, kernels, recalibration
from calibjax import distributions as D
from calibjax.distances import Euclidean, Features
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct, White
from tests import oracles

N = 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = RNG.normal(size=N)
PROBS = RNG.dirichlet(np.ones(3), N)
LABELS = np.where(np.arange(N) < 5, PROBS.argmax(1), PROBS.argmin(1))
LOC = RNG.normal(size=N)


@functools.cache
def families():
    """Predictions, targets and a target kernel of each family."""
    smooth, loc, ones = SquaredExponential(1.0), jnp.asarray(LOC), jnp.ones(N)
    pairs = D.Normal(jnp.stack([loc, loc + 1], 1), jnp.ones((N, 2)))
    draws = jnp.asarray(RNG.normal(size=(N, 5)))
    student = D.StudentT(3 * ones, loc, ones)
    covariances = jnp.broadcast_to(jnp.eye(2), (N, 2, 2))
    labels, y = jnp.asarray(LABELS), jnp.asarray(Y)
    return {
        "Categorical": (D.Categorical(jnp.asarray(PROBS)), labels, White()),
        "Bernoulli": (D.Bernoulli(jnp.asarray(PROBS[:, 0])), labels % 2, White()),
        "Normal": (D.Normal(loc, ones), y, smooth),
        "Laplace": (D.Laplace(loc, ones), y, Exponential(1.0)),
        "Mixture": (D.Mixture(None, pairs), y, smooth),
        "MvNormal": (D.MvNormal(jnp.asarray(X), covariances), jnp.asarray(X) + 0.1, smooth),
        "Poisson": (D.Poisson(jnp.exp(loc)), labels, smooth),
        "Ensemble": (D.Ensemble(draws), y, smooth),
        "MonteCarlo": (D.monte_carlo(jax.random.key(0), student, 5), y, smooth),
        "Stein": (student, y, kernels.Stein()),
    }


FAMILIES = ("Categorical", "Bernoulli", "Normal", "Laplace", "Mixture", "MvNormal", "Poisson")
FAMILIES += ("Ensemble", "MonteCarlo", "Stein")


@pytest.mark.parametrize(
    "name", [*FAMILIES[:3], *(pytest.param(x, marks=pytest.mark.slow) for x in FAMILIES[3:])]
)
def test_kernels_see_features_or_distributions(name):
    predictions, targets, target = families()[name]
    carrying = D.with_features(predictions, jnp.asarray(X))
    plain = TensorProduct(Exponential(1.0, Euclidean()), target)
    matrix = oracles.calibration_kernel_matrix
    expected = np.asarray(matrix(plain, predictions, targets))
    np.testing.assert_allclose(matrix(plain, carrying, targets), expected, rtol=1e-12)
    # The same matrix, with the kernel of the features in place of that of the predictions.
    of_features = TensorProduct(Exponential(1.0, Features(Euclidean())), target)
    constant = np.asarray(matrix(TensorProduct(Exponential(1e300), target), predictions, targets))
    distances_of_features = np.linalg.norm(X[:, None] - X, axis=-1)
    expected = constant * np.exp(-distances_of_features)
    np.testing.assert_allclose(
        jax.jit(functools.partial(matrix, of_features))(carrying, targets), expected, rtol=1e-9
    )


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


def test_lenses_and_recalibration_keep_features():
    labels, predictions = (
        jnp.asarray(LABELS),
        D.with_features(D.CategoricalLogits(jnp.log(jnp.asarray(PROBS))), jnp.asarray(X)),
    )
    confidences, correct = estimators.top_label(predictions, labels)
    np.testing.assert_array_equal(confidences.features, X)
    drawn = D.monte_carlo(jax.random.key(0), predictions, 3)
    np.testing.assert_array_equal(estimators.top_label(drawn, labels)[0].features, X)
    np.testing.assert_allclose(confidences.probs, PROBS.max(1), rtol=1e-9)
    binning = estimators.UniformBins(3)
    plain = estimators.top_label(predictions.distribution, labels)
    np.testing.assert_allclose(
        estimators.ece(confidences, correct, binning=binning),
        estimators.ece(*plain, binning=binning),
    )
    each, _ = estimators.class_wise(predictions, labels)
    assert each.features.shape == (3, N, 2)
    for method in (recalibration.TemperatureScaling(), recalibration.HistogramBinning(3)):
        params = method.fit(predictions, labels)
        new = method.apply(params, predictions)
        np.testing.assert_array_equal(new.features, X)
        expected = method.apply(params, predictions.distribution).class_probs
        np.testing.assert_allclose(new.class_probs, expected, rtol=1e-9)


def test_ensembles_with_features():
    predictions, targets, target = families()["Ensemble"]
    kernel = TensorProduct(Exponential(1.0, Features()), target)
    data = D.with_features(predictions, jnp.asarray(X)), targets
    test = hypothesis_tests.ensemble_skce_test(jax.random.key(0), kernel, *data, num_draws=9)
    expected = oracles.unbiased(oracles.calibration_kernel_matrix(kernel, *data))
    np.testing.assert_allclose(test.estimate, expected, rtol=1e-6)


def test_features_are_added_once():
    predictions, targets, target = families()["Normal"]
    carrying = D.with_features(predictions, jnp.asarray(X))
    for p in (carrying, D.monte_carlo(jax.random.key(0), carrying, 3)):
        with pytest.raises(ValueError, match="predictions: expected predictions without features"):
            D.with_features(p, jnp.asarray(X))
    kernel = TensorProduct(Exponential(1.0, Features()), target)
    skce = jax.jit(lambda x: estimators.skce(kernel, D.with_features(predictions, x), targets))
    assert np.isnan(skce(jnp.asarray(X).at[0, 0].set(jnp.nan)))


@pytest.mark.slow
def test_posterior_that_ignores_the_data():
    """The prior as posterior: calibrated, and rejected given the data in at least 99 %."""
    n, number = 200, 200

    @jax.jit
    def pvalues(key):
        keys = jax.random.split(key, 3)
        truth = jax.random.normal(keys[0], (n,))
        data = truth + jax.random.normal(keys[1], (n,))
        prior = D.Normal(jnp.zeros(n), jnp.ones(n))
        right = D.Normal(data / 2, jnp.full(n, np.sqrt(0.5)))

        def pvalue(posterior, k):
            kernel = TensorProduct(k, SquaredExponential(1.0))
            return hypothesis_tests.exact_skce_test(
                keys[2], kernel, D.with_features(posterior, data), truth, num_draws=99
            ).pvalue

        of_features = SquaredExponential(1.0, Features())
        return pvalue(prior, of_features), pvalue(prior, Exponential()), pvalue(right, of_features)

    given_data, blind, right = jax.lax.map(pvalues, jax.random.split(jax.random.key(0), number))
    assert np.mean(given_data <= 0.05) >= 0.99
    for calibrated in (blind, right):
        assert abs(np.mean(calibrated <= 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / number)
