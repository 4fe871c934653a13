"""Groups, places and clusters: exact p-values by enumeration, errors by loops."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from calibjax import estimators
from calibjax.distributions import Bernoulli, Categorical, MvNormal, Normal
from calibjax.hypothesis_tests import (
    cluster_skce_test,
    group_calibration_test,
    local_calibration_test,
    skce_confidence_interval,
    witness_test,
)
from calibjax.kernels import Exponential, TensorProduct, White
from tests import oracles
from tests.hypothesis_tests.test_intervals import cluster_means, jackknife

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
PROBS = np.array([0.2, 0.7, 0.55, 0.9, 0.35, 0.6, 0.15, 0.45])
LABELS = np.array([1, 1, 1, 0, 0, 1, 1, 1])
GROUPS = np.array([[1, 0], [1, 0], [1, 1], [1, 1], [0, 1], [0, 1], [0, 1], [1, 1]])
AT = np.array([0.3, 0.8, 0.5]), np.array([1, 0, 1])
KERNEL = TensorProduct(Exponential(0.5), White())


def group_errors(labels):
    return (labels - PROBS) @ GROUPS / GROUPS.sum(0)


def witnesses(labels):
    """Values by loops; `Exponential` sees both probabilities of a `Bernoulli`."""
    values = []
    for t, z in zip(*AT, strict=True):
        weights = np.exp(-np.sqrt(2) * np.abs(PROBS - t) / 0.5)
        chances = PROBS if z else 1 - PROBS
        values.append(np.mean(weights * ((labels == z) - chances)))
    return np.array(values)


def by_group(data, **options):
    residual = lambda p, y: y - p.probs  # noqa: E731
    return group_calibration_test(KEY, *data, GROUPS, residual=residual, **options)


def by_witness(data, **options):
    return witness_test(KEY, KERNEL, *data, Bernoulli(AT[0]), AT[1], **options)


@pytest.mark.parametrize(("test", "errors"), [(by_group, group_errors), (by_witness, witnesses)])
def test_pvalues_against_all_outcomes(test, errors):
    """Every vector of labels with its probability."""
    outcomes = np.array(list(itertools.product([0, 1], repeat=8)))
    weights = np.prod(np.where(outcomes == 1, PROBS, 1 - PROBS), 1)
    sizes = np.abs([errors(labels) for labels in outcomes])
    observed = np.abs(errors(LABELS))
    mean = weights @ sizes
    deviation = np.sqrt(weights @ (sizes - mean) ** 2)
    largest = ((sizes - mean) / deviation).max(1)
    found = test((Bernoulli(PROBS), LABELS), num_draws=20_000)
    assert_allclose(found.estimate, errors(LABELS), rtol=1e-9)
    atol = 4 * np.sqrt(0.25 / 20_000)
    assert_allclose(found.pvalue, weights @ (sizes >= observed - 1e-12), atol=atol)
    adjusted = [weights @ (largest >= s - 1e-12) for s in (observed - mean) / deviation]
    # The standardisation is that of the draws.
    assert_allclose(found.adjusted_pvalue, adjusted, atol=2 * atol)
    assert_allclose(found.null_size, np.sqrt(weights @ sizes**2), rtol=0.03)


def test_errors_of_classes_and_vectors_against_loops():
    probs, labels = RNG.dirichlet(np.ones(3), 7), RNG.integers(0, 3, 7)
    weights = RNG.normal(size=(7, 4))
    test = group_calibration_test(KEY, Categorical(probs), labels, weights, num_draws=9)
    for g, of_group in enumerate(weights.T):
        rows = list(zip(of_group, labels, probs, strict=True))
        errors = [sum(w * ((y == c) - p[c]) for w, y, p in rows) for c in range(3)]
        errors.append(sum(w * ((y == p.argmax()) - p.max()) for w, y, p in rows))
        assert_allclose(test.estimate[g], np.array(errors) / np.abs(of_group).sum(), rtol=1e-9)
    np.testing.assert_array_equal(test.statistic, jnp.abs(test.estimate))
    loc, y = RNG.normal(size=(2, 6, 2))
    groups = np.arange(6) < np.array([[3], [6]])  # the second one has all samples
    predictions = MvNormal(loc, np.tile(np.eye(2), (6, 1, 1)))
    test = group_calibration_test(KEY, predictions, y, groups.T, num_draws=9)
    assert_allclose(test.estimate, [(y - loc)[:3].mean(0), (y - loc).mean(0)])


def test_wrong_residuals():
    predictions, targets = Normal(np.zeros(8), np.ones(8)), RNG.normal(size=8)

    def test(residual):
        options = {"residual": residual, "num_draws": 99}
        return group_calibration_test(KEY, predictions, targets, GROUPS, **options)

    with pytest.raises(ValueError, match="mean of residual: expected zero"):
        test(lambda p, y: y**2)
    test(lambda p, y: y**2 - p.scale**2)
    # None of the redraws may have such an event: that is chance.
    by_group((Bernoulli(np.full(8, 1e-4)), np.zeros(8, int)), num_draws=99)
    test(lambda p, y: (y <= 3) - jax.vmap(lambda q: q.cdf(3.0))(p))  # as in the docstring
    with pytest.raises(ValueError, match=r"residual: expected shape \[8\]"):
        test(lambda p, y: jnp.mean(y))


def test_local_errors():
    """A curve is adjusted for all of its length scales."""
    data = RNG.uniform(size=(60, 2)), RNG.uniform(0.5, 1, size=60), RNG.integers(0, 2, 60)
    near, curve = (estimators.Neighbourhood.laplacian(x, 5) for x in (0.15, np.array([0.15, 10])))
    result = local_calibration_test(KEY, near, *data, num_draws=50)
    assert_allclose(result.statistic, estimators.lce(near, *data), rtol=1e-12)
    assert_allclose(result.estimate, estimators.local_errors(near, *data).error, rtol=1e-13)
    assert result.null_samples.shape == (50, 60)
    assert ", 50 targets resampled under the null)" in repr(result)
    assert np.all(result.adjusted_pvalue >= result.pvalue)
    both = local_calibration_test(KEY, curve, *data, num_draws=50)
    assert both.pvalue.shape == both.adjusted_pvalue.shape == (2, 60)
    assert_allclose(both.pvalue[0], result.pvalue, rtol=1e-12)
    assert np.all(both.adjusted_pvalue[0] >= result.adjusted_pvalue - 1e-12)


LOC = RNG.normal(size=23)
DATA = oracles.normal_kernel(), Normal(LOC, np.ones(23)), LOC + RNG.normal(size=23) + 0.5
CLUSTERS = np.concatenate([np.arange(10), RNG.integers(0, 10, 13)]) * 7  # with gaps


def cluster_matrix():
    """Mean of h over the pairs of two clusters, by loops."""
    matrix = np.asarray(oracles.calibration_kernel_matrix(*DATA))
    return cluster_means(matrix, CLUSTERS) * (1 - np.eye(10))


def test_clusters_against_all_signs():
    matrix, signs = cluster_matrix(), np.array(list(itertools.product([-1, 1], repeat=10)))
    values = np.einsum("ka,ab,kb->k", signs, matrix, signs) / 90
    test = cluster_skce_test(KEY, *DATA, CLUSTERS, num_draws=10_000)
    observed = matrix.sum() / 90
    assert_allclose(test.statistic, observed, rtol=1e-9)
    expected = np.mean(values >= observed - 1e-12)
    assert abs(test.pvalue - expected) < 4 * np.sqrt(expected * (1 - expected) / 10_000) + 1e-4
    possible = np.sort(values)
    nearest = np.searchsorted((possible[1:] + possible[:-1]) / 2, test.null_samples)
    assert_allclose(test.null_samples, possible[nearest], atol=1e-12)
    with pytest.raises(ValueError, match="clusters: expected at least 10 different ones"):
        cluster_skce_test(KEY, *DATA, CLUSTERS // 14)


def test_interval_is_the_jackknife_over_clusters():
    estimate, error = jackknife(cluster_matrix())
    found = skce_confidence_interval(*DATA, clusters=CLUSTERS)
    assert_allclose([found.estimate, found.standard_error], [estimate, error], rtol=1e-9)
    limits = scipy.stats.t.interval(0.95, 9, estimate, error)
    assert_allclose([found.low, found.high], limits, rtol=1e-9)


@pytest.mark.parametrize("family", ["classes", "numbers", "vectors"])
def test_witness_with_the_default_kernel(family):
    """An error of all predictions is found where it is, and not far from all targets."""
    loc = np.random.default_rng(1).normal(size=(80, 2))
    predictions, near, far, targets = {
        "classes": (Categorical(np.tile([0.5, 0.3, 0.2], (80, 1))), 2, 1, np.arange(80) % 2 * 2),
        "numbers": (Normal(loc[:, 0], np.ones(80)), loc[0, 0] + 1.5, 99.0, loc[:, 0] + 1),
        "vectors": (MvNormal(loc, np.tile(np.eye(2), (80, 1, 1))), loc[0] + 1.5, 99.0, loc + 1),
    }[family]
    at = predictions[np.zeros(2, int)], np.stack([near, np.broadcast_to(far, np.shape(near))])
    test = witness_test(KEY, None, predictions, targets, *at, num_draws=199)
    assert test.adjusted_pvalue[0] <= 0.05
    assert test.estimate[0] > 0
    assert family == "classes" or abs(test.estimate[1]) < 1e-9
