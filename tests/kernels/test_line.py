"""Exponential kernels on a line: linear time against double loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, kernels
from calibjax.distances import Euclidean, Features, Manhattan, TotalVariation, Wasserstein
from calibjax.distances.elementary import SquaredEuclidean
from calibjax.distributions import Bernoulli, Categorical, Laplace, Normal, Poisson, with_features
from calibjax.estimators.kernel import mmce
from calibjax.hypothesis_tests import exact_skce_test
from calibjax.kernels import defaults
from calibjax.kernels.line import line_of
from calibjax.operators.kernel_matrix import Exponentials, OnLine, line_forms
from calibjax.operators.plan import plan_of


@pytest.fixture(autouse=True)
def _few_points_are_enough(monkeypatch):
    """For sums along a line instead of those over all pairs."""
    monkeypatch.setattr("calibjax.operators.plan._ON_LINE_FROM", 0)


KEY = jax.random.key(0)
TV = TotalVariation()
SUM = 0.5 * kernels.Exponential(0.1, TV) + 2.0 * kernels.Exponential(1, TV) + kernels.Constant()


def _binary(n, seed=0):
    """With ties, and weights of which some are zero."""
    rng = np.random.default_rng(seed)
    probs = np.round(rng.uniform(0.01, 0.99, n), 2)
    weights = rng.integers(0, 3, n) + np.eye(n)[0] + np.eye(n)[-1]
    return probs, (rng.uniform(size=n) < probs).astype(int), weights


def _oracle(k, f, weights, *, biased):
    """Σ w_i w_j k_ij f_i f_j over the pairs, by NumPy; weights whose sum is that of squares."""
    w = weights * weights.sum() / np.square(weights).sum()
    terms = k * np.multiply.outer(w * f, w * f)
    if biased:
        return terms.sum() / w.sum() ** 2
    return (terms.sum() - np.trace(terms)) / w.sum() / (w.sum() - 1)


SIZES = [2, 3, 1300]  # of one block, and more


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("weighted", [False, True])
def test_estimates_of_binary_predictions(n, weighted):
    probs, labels, weights = _binary(n)
    weights = weights if weighted else np.ones(n)
    distances = np.abs(np.subtract.outer(probs, probs))
    residuals = labels - probs
    for kernel, k in (
        (SUM, 0.5 * np.exp(-distances / 0.1) + 2 * np.exp(-distances) + 1),
        (kernels.Exponential(1e300, TV), np.ones_like(distances)),
        (kernels.Exponential(1e-300, TV), (distances == 0) * 1.0),
    ):
        product = kernels.TensorProduct(kernel, kernels.White())  # ‖e_y − p‖² = 2 (y − p)²
        for estimator in (estimators.skce, estimators.skce_biased):
            expected = 2 * _oracle(
                k, residuals, weights, biased=estimator is estimators.skce_biased
            )
            found = estimator(
                product, Bernoulli(probs), labels, weights=weights if weighted else None
            )
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-14)
    expected = _oracle(np.exp(-distances / 0.4), labels - probs, weights, biased=True) ** 0.5
    found = mmce(kernels.Exponential(0.4), probs, labels, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_second_derivatives_with_ties():
    """Of the sums themselves, by all arguments, against the sum over pairs written out."""
    rng = np.random.default_rng(0)
    positions = jnp.asarray(np.sort(np.round(rng.uniform(size=20), 1)))
    values, rates = jnp.asarray(rng.normal(size=(20, 2))), jnp.array([0.0, 2.0, 30.0])

    def pairs(values, positions, rates):
        d = positions[:, None] - positions
        d = jnp.where(d == 0, 0, jnp.abs(jnp.where(d == 0, 1, d)))  # which has no derivatives
        k = jnp.tensordot(FACTORS, jnp.exp(-d * rates[:, None, None]), 1)
        return jnp.einsum("ij,ic,jc->c", jnp.triu(k, 1), values, values)

    def on_line(values, positions, rates):
        return line_forms(values, positions, Exponentials(FACTORS, rates))

    for derivative in (jax.grad, jax.hessian):
        of = [derivative(lambda *x, f=f: jnp.sum(jnp.sin(f(values, *x)))) for f in (on_line, pairs)]
        np.testing.assert_allclose(*(f(positions, rates) for f in of), rtol=1e-9, atol=1e-9)


FACTORS = jnp.array([0.5, 2.0, -1.5])


def test_many_equal_numbers_in_single_precision():
    """One by one, a hundred thousand of them are added with an error of 5e-4."""
    labels = (np.random.default_rng(1).uniform(size=100_000) < 0.99).astype(int)
    predictions = Bernoulli(np.full(100_000, 0.9, np.float32))
    kernel = kernels.TensorProduct(kernels.Exponential(0.1), kernels.White())
    n, residual = 100_000, labels - np.float64(np.float32(0.9))
    expected = 2 * (np.sum(residual) ** 2 - np.sum(residual**2)) / (n * (n - 1))
    with jax.enable_x64(False):
        found = exact_skce_test(KEY, kernel, predictions, labels, num_draws=19).estimate
        np.testing.assert_allclose(found, expected, rtol=5e-5)
        found = estimators.skce(kernel, predictions, labels)
        np.testing.assert_allclose(found, expected, rtol=5e-5)


X = np.array([0.3, 0.1, 0.7])
ON_LINE = {
    "binary": (TV, Bernoulli(X)),
    "two classes": (TV, Categorical(np.stack([X, 1 - X], 1))),
    "two classes, Euclidean": (Euclidean(), Categorical(np.stack([X, 1 - X], 1))),
    "common scale": (Wasserstein(), Normal(X, np.full(3, 2.0))),
    "common location": (Wasserstein(), Normal(np.zeros(3), X)),
    "Laplace": (Wasserstein(), Laplace(X, np.ones(3))),
    "rates": (Euclidean(), Poisson(X)),
    "numbers": (Euclidean(), X),
    "numbers, Manhattan": (Manhattan(), X),
    "two classes, Manhattan": (Manhattan(), Categorical(np.stack([X, 1 - X], 1))),
    "numbers, mean difference": (Manhattan(mean=True), X[:, None]),
    "two classes, mean difference": (Manhattan(mean=True), Categorical(np.stack([X, 1 - X], 1))),
    "feature": (Features(Euclidean()), with_features(Bernoulli(X), X[:, None])),
    "other features": (Euclidean(), with_features(Poisson(X), np.ones((3, 2)))),
}
OFF_LINE = {
    "three classes": (TV, Categorical(np.eye(3))),
    "two scales": (Wasserstein(), Normal(X, X)),
    "squares": (SquaredEuclidean(), Poisson(X)),
    "coordinates": (Manhattan(), np.eye(3)),
    "features": (Features(Euclidean()), with_features(Bernoulli(X), np.eye(3))),
    "all equal": (TV, Bernoulli(np.full(3, 0.5))),
}


@pytest.mark.parametrize("name", ON_LINE)
def test_what_lies_on_a_line(name):
    distance, points = ON_LINE[name]
    line = line_of(distance, points)
    assert line is not None
    (i, j), positions = np.triu_indices(3, 1), np.empty(3)
    positions[np.asarray(line.order)] = line.positions
    take = lambda index: jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], points)  # noqa: E731
    expected = [distance(take(a), take(b)) for a, b in zip(i, j, strict=True)]
    np.testing.assert_allclose(np.abs(positions[i] - positions[j]), expected, rtol=1e-6)
    assert np.all(np.diff(line.positions) >= 0)


@pytest.mark.parametrize("name", OFF_LINE)
def test_what_does_not(name):
    found = line_of(*OFF_LINE[name])
    assert found is None or (name == "all equal" and len(set(np.asarray(found.positions))) == 1)


@pytest.mark.parametrize("n", [40, 700])
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_tests(n, weighted, monkeypatch):
    """All components of all redraws, by the matrices of both kernels."""
    probs, labels, weights = _binary(n)
    product = kernels.TensorProduct(SUM, kernels.PearsonResidual())
    given = {"weights": weights if weighted else None, "num_draws": 19}
    found = exact_skce_test(KEY, product, Bernoulli(probs), labels, **given)
    with monkeypatch.context() as patch:
        patch.setattr("calibjax.operators.plan.line_of", lambda *_: None)
        expected = exact_skce_test(KEY, product, Bernoulli(probs), labels, **given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
    (view,) = plan_of([(None, product)], Bernoulli(probs), labels).parts
    assert isinstance(view.featured[0].operators[0], OnLine)


@pytest.mark.parametrize("kind", ["plain", "rounded", "half equal", "large"])
@pytest.mark.parametrize("n", [2, 3, 50, 301])
def test_medians(kind, n, monkeypatch):
    monkeypatch.setattr(defaults, "_MANY_POINTS", 1)
    x = np.random.default_rng(n).normal(size=n)
    x = {"rounded": np.round(x, 1), "large": 1e7 * x}.get(kind, x)
    if kind == "half equal":
        x[: n // 2] = x[0]
    matrix = np.abs(np.subtract.outer(x, x))
    for diagonal, distances in ((False, matrix[np.triu_indices(n, 1)]), (True, matrix.ravel())):
        expected = np.median(distances) or np.median(distances[distances > 0])
        found, zeros, _ = defaults.median_of_distances(
            Euclidean(), jnp.asarray(x), include_diagonal=diagonal
        )
        np.testing.assert_allclose(found, expected, rtol=1e-14)
        assert zeros == np.sum(matrix[np.triu_indices(n, 1)] == 0)
