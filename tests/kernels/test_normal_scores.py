import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, estimators
from calibjax.distributions import DiagNormal, Gamma, MvNormal, Normal
from calibjax.kernels import (
    Constant,
    NormalScore,
    SquaredExponential,
    Stein,
    TensorProduct,
    default_kernel,
    residuals,
)
from calibjax.kernels.expectations import batch_features, features, prepare_features
from tests.compiled import centered_kernel, double_expectation, single_expectation

KEY = jax.random.key(0)


def centered(s, t, ell):
    """The closed form for standard normal scores, in NumPy; of vectors by products."""
    s, t = np.atleast_1d(s), np.atleast_1d(t)

    def mean(x):
        return np.prod(ell / np.sqrt(ell**2 + 1) * np.exp(-(x**2) / (2 * (ell**2 + 1))))

    both = np.prod(ell / np.sqrt(ell**2 + 2) * np.ones_like(s))
    return np.exp(-np.sum((s - t) ** 2) / (2 * ell**2)) - mean(s) - mean(t) + both


def test_against_scipy():
    p, kernel = jax.tree.map(jnp.asarray, Gamma(2.0, 3.0)), NormalScore(SquaredExponential(0.5))
    scores = stats.norm.ppf(stats.gamma.cdf([0.4, 1.7], 2, scale=1 / 3))
    value = jax.jit(jax.value_and_grad(lambda y: centered_kernel(kernel, p, y, p, 1.7)))
    np.testing.assert_allclose(value(0.4)[0], centered(*scores, 0.5), rtol=1e-9)
    assert np.isfinite(value(1e9)[1])


def test_vectors_and_expectations():
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    y, z = np.array([0.3, -1.0]), np.array([1.5, 0.2])
    p = MvNormal(jnp.array([0.1, 0.2]), jnp.asarray(cov))
    scores = [np.linalg.solve(np.linalg.cholesky(cov), x - [0.1, 0.2]) for x in (y, z)]
    kernel = NormalScore(SquaredExponential(0.8))
    found = centered_kernel(kernel, p, jnp.asarray(y), p, jnp.asarray(z))
    np.testing.assert_allclose(found, centered(*scores, 0.8), rtol=1e-9)
    q = DiagNormal(jnp.array([1.0, 2.0]), jnp.array([2.0, 3.0]))
    found = centered_kernel(kernel, q, jnp.asarray(y), q, jnp.asarray(z))
    scores = [(x - [1, 2]) / [2, 3] for x in (y, z)]
    np.testing.assert_allclose(found, centered(*scores, 0.8), rtol=1e-9)
    normal = Normal(jnp.array(3.0), jnp.array(2.0))
    one = SquaredExponential(2.0)
    assert np.isclose(double_expectation(NormalScore(one), normal, normal), 2 / np.sqrt(6))
    expected = 2 / np.sqrt(5) * np.exp(-1 / 10)
    assert np.isclose(single_expectation(NormalScore(one), normal, 5.0), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_far_out(dtype):
    """Of pairs and of features; beyond ±8.2 they count alike in both precisions."""
    p = Normal(jnp.asarray([3.0], dtype), jnp.asarray([2.0], dtype))
    scores = np.array([5.1, 5.3, 8.2, 11.0, -4.0], dtype)
    kernel = NormalScore(SquaredExponential(0.5))
    prepared = prepare_features(kernel, p, jnp.asarray(p.loc))
    (found,) = np.moveaxis(batch_features(kernel, prepared, p, 3 + 2 * scores[:, None]), -1, 0)
    pair = np.clip(scores, -8.2, 8.2)
    expected = [[centered(s, t, 0.5) for s in pair] for t in pair]
    np.testing.assert_allclose(found.T @ found, expected, atol=40 * np.finfo(dtype).eps)
    one, targets = jax.tree.map(lambda x: x[0], p), 3 + 2 * scores
    by_pairs = [[centered_kernel(kernel, one, y, one, z) for y in targets] for z in targets]
    np.testing.assert_allclose(by_pairs, expected, atol=40 * np.finfo(dtype).eps)


def test_predictions_without_scores_are_refused():
    kernel = TensorProduct(Constant(), NormalScore())
    ones = jnp.ones(4)
    drawn = distributions.monte_carlo(KEY, Normal(ones, ones), 3)
    for predictions in (distributions.Bernoulli(0.5 * ones), drawn):
        with pytest.raises(NotImplementedError, match="no normal scores of targets of"):
            estimators.skce(kernel, predictions, ones.astype(int))
    rough = TensorProduct(Constant(), NormalScore(Stein()))
    assert np.isfinite(estimators.skce(rough, Normal(ones, ones), jnp.arange(4.0)))


def _restricted(low, high):
    """Nodes and weights of 600 for N(0, 1) restricted to an interval, where it has its mass."""
    nodes, weights = np.polynomial.legendre.leggauss(600)
    low, high = np.clip([low, high], -9, 9)
    points = (low + high) / 2 + (high - low) / 2 * nodes
    weights = weights * stats.norm.pdf(points)
    return points, weights / weights.sum()


@jax.jit
def _of_counts(kernel, p, counts, q, z):
    of_pair = jax.vmap(lambda p, y, z: centered_kernel(kernel, p, y, q, z), (None, None, 0))
    return jax.vmap(jax.vmap(of_pair, (None, 0, None)), (0, None, None))(p, counts, z)


@pytest.mark.parametrize("ell", [0.125, 8.0])
def test_wide_atoms(ell):
    """Against a fine rule; the mean over pairs of calibrated counts is zero."""
    kernel = NormalScore(SquaredExponential(ell))
    rates = np.array([1e-4, 0.3, 30.0])
    counts = np.arange(100)
    p = distributions.Poisson(jnp.asarray(rates))
    q = distributions.NegativeBinomial(jnp.array(0.05), jnp.array(0.01))
    z = np.arange(2)
    found = np.asarray(_of_counts(kernel, p, counts, q, z))  # [rate, y, z]
    probs = stats.poisson.pmf(counts, rates[:, None])
    np.testing.assert_allclose(np.einsum("ry,ryz->rz", probs, found), 0, atol=1e-6)
    law, other = stats.poisson(0.3), stats.nbinom(0.01, 0.01 / 0.06)
    (s, v), (t, w) = (_restricted(*stats.norm.ppf(one.cdf([-1, 0]))) for one in (law, other))

    def mean(x):
        return ell / np.sqrt(ell**2 + 1) * np.exp(-(x**2) / (2 * (ell**2 + 1)))

    expected = v @ np.exp(-((s[:, None] - t) ** 2) / (2 * ell**2)) @ w - v @ mean(s) - w @ mean(t)
    np.testing.assert_allclose(found[1, 0, 0], expected + ell / np.sqrt(ell**2 + 2), atol=1e-8)


def test_features_of_batches():
    """Those of an atom are weighted; as of one sample after the other."""
    predictions = distributions.Poisson(jnp.array([0.5, 3.0]))
    targets, kernel = jnp.array([[0, 2], [1, 7]]), NormalScore(SquaredExponential(0.5))
    prepared = prepare_features(kernel, predictions, targets[0])
    one = jax.jit(jax.vmap(lambda p, y: features(kernel, prepared, p, y)))
    expected = jnp.stack([one(predictions, y) for y in targets], 0)  # [b, n, r]
    found = jax.jit(lambda p, y: batch_features(kernel, prepared, p, y))(predictions, targets)
    np.testing.assert_allclose(jnp.moveaxis(found, 0, -1), expected, rtol=0, atol=1e-12)
    pair = [x for i in (0, 1) for x in (jax.tree.map(lambda x: x[i], predictions), targets[0, i])]  # noqa: B023
    products = expected[0, 0] @ expected[0, 1]
    np.testing.assert_allclose(products, centered_kernel(kernel, *pair), atol=1e-12)


def test_counts_of_a_user():
    """A family with nothing but its distribution function."""

    class Counts(distributions.Poisson):
        _tails = property(operator.attrgetter("unknown"))

        def cdf(self, y):
            return distributions.Poisson(self.rate).cdf(y)

    families = Counts(jnp.array(2.5)), distributions.Poisson(jnp.array(2.5))
    found, expected = (jax.jit(lambda p=p: residuals._of_atom(p, 3)[0])() for p in families)
    np.testing.assert_allclose(found.points, expected.points, rtol=1e-12)


def test_ranks_in_ensembles():
    """Ranks with ties in NumPy; weights; means over the members vanish."""
    values = np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    p = distributions.Ensemble(jnp.asarray(values))
    kernel = NormalScore(SquaredExponential(0.5))

    def score(y):
        level = (np.sum(values < y) + 0.5 * np.sum(values == y)) / 5
        return stats.norm.ppf(np.clip(level, 0.1, 0.9))

    def one(s, t):
        return np.exp(-((s - t) ** 2) / (2 * 0.5**2))

    scores = np.array([score(v) for v in values])
    for y, z in ((1.0, 4.0), (3.5, 9.0), (3.0, 0.0)):
        s, t = score(y), score(z)
        means = np.mean(one(scores, t)) + np.mean(one(scores, s))
        expected = one(s, t) - means + np.mean(one(scores[:, None], scores))
        np.testing.assert_allclose(centered_kernel(kernel, p, y, p, z), expected, atol=1e-12)
        np.testing.assert_allclose(single_expectation(kernel, p, z), np.mean(one(scores, t)))
    prepared = prepare_features(kernel, jax.tree.map(lambda x: x[None], p), jnp.ones(1))
    f = jax.jit(jax.vmap(lambda y: features(kernel, prepared, p, y)))(values)
    np.testing.assert_allclose(np.mean(f, 0), 0, atol=1e-12)
    np.testing.assert_allclose(f[0] @ f[1], centered_kernel(kernel, p, 3.0, p, 1.0), atol=1e-12)
    weighted = distributions.Ensemble(jnp.array([1.0, 3.0, 4.0, 5.0]), jnp.array([2, 1, 1, 1]) / 5)
    found = centered_kernel(kernel, weighted, 3.5, weighted, 1.0)
    np.testing.assert_allclose(found, centered_kernel(kernel, p, 3.5, p, 1.0), atol=1e-12)


def test_default_kernel_of_vectors():
    """Scores of four components are twice as far apart as those of one."""
    found = []
    for d in (1, 4):
        predictions = DiagNormal(np.random.default_rng(0).normal(size=(5, d)), np.ones((5, d)))
        target = default_kernel(predictions).target
        found.append([float(term.kernel.length_scale) for term in target.terms])
    np.testing.assert_allclose(found, [[0.5, 2], [1, 4]])
