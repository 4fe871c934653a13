"""Ensembles some of whose members are missing: against loops over those that there are."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, hypothesis_tests, kernels, scores
from calibjax.distributions import Ensemble
from tests import oracles

N, M = 12, 7
RNG = np.random.default_rng(0)
VALUES, TARGETS = RNG.normal(size=(N, M)), RNG.normal(size=N)
IS_THERE = RNG.uniform(size=(N, M)) < 0.7
IS_THERE[:, 2:4] = True
IS_THERE[0] = True
MISSING = np.where(IS_THERE, VALUES, np.nan)
ENSEMBLES = Ensemble(MISSING, ~np.isnan(MISSING))
VECTORS, POINTS = RNG.normal(size=(N, M, 2)), RNG.normal(size=(N, 2))
OF_VECTORS = Ensemble(np.where(IS_THERE[:, :, None], VECTORS, np.nan), IS_THERE)
KEY = jax.random.key(0)


def rows(values, targets):
    """The members that there are, with the target, one ensemble after the other."""
    return [(z[is_there], y) for z, is_there, y in zip(values, IS_THERE, targets, strict=True)]


@pytest.mark.parametrize("estimator", ["nrg", "fair"])
def test_ways_to_say_that_a_member_is_missing(estimator):
    crps = functools.partial(scores.crps, estimator=estimator)
    shares, is_fair = IS_THERE / IS_THERE.sum(1, keepdims=True), estimator == "fair"
    each = [oracles.energy_score(*row, fair=is_fair) for row in rows(VALUES, TARGETS)]
    for values in (MISSING, np.where(IS_THERE, VALUES, np.inf), VALUES):
        for weights in (IS_THERE, shares, jnp.asarray(IS_THERE), IS_THERE.tolist()):
            found = crps(Ensemble(values, weights), TARGETS)
            np.testing.assert_allclose(found, np.mean(each), rtol=1e-6)
    pairs = scores.energy_score(OF_VECTORS, POINTS, estimator=estimator)
    each = [oracles.energy_score(*row, fair=is_fair) for row in rows(VECTORS, POINTS)]
    np.testing.assert_allclose(pairs, np.mean(each), rtol=1e-6)
    gradient = jax.grad(lambda z: scores.crps(Ensemble(z, IS_THERE), TARGETS))(jnp.asarray(MISSING))
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[~IS_THERE], 0)


def test_ranks():
    u = estimators.pit_values(KEY, ENSEMBLES, TARGETS)
    for (z, y), value in zip(rows(VALUES, TARGETS), u, strict=True):
        below = np.sum(z < y)
        assert below / (len(z) + 1) <= value <= (below + 1) / (len(z) + 1) + 1e-6
    whole = Ensemble(VALUES, np.ones((N, M), bool))
    np.testing.assert_allclose(
        estimators.pit_values(KEY, whole, TARGETS),
        estimators.pit_values(KEY, Ensemble(VALUES), TARGETS),
        rtol=1e-6,
    )
    test = hypothesis_tests.rank_histogram_test
    pairs = (
        (whole, Ensemble(VALUES), TARGETS),
        (Ensemble(VECTORS, whole.weights), Ensemble(VECTORS), POINTS),
    )
    for masked, plain, targets in pairs:
        found, wanted = (test(KEY, p, targets, num_draws=19) for p in (masked, plain))
        jax.tree.map(np.testing.assert_array_equal, found, wanted)


def test_estimate_of_the_skce():
    with jax.enable_x64(True):
        target = kernels.SquaredExponential(1.0)
        pools = kernels.Exponential(1.0, distances.MaximumMeanDiscrepancy(target))
        data = kernels.TensorProduct(pools, target), ENSEMBLES, TARGETS
        test = functools.partial(hypothesis_tests.ensemble_skce_test, KEY, *data, num_draws=19)
        weights = RNG.uniform(0.5, 1.5, N)
        found, weighted = test(), test(weights=weights)

    def discrepancy(p, q):
        squared = k(p, p).mean() + k(q, q).mean() - 2 * k(p, q).mean()
        return np.sqrt(max(squared, 0))

    k, pools = oracles.gaussian, [np.append(y, z) for z, y in rows(VALUES, TARGETS)]
    h = oracles.pool_matrix(pools, distance=discrepancy)
    size = 1 - 1 / (1 + IS_THERE.sum(1))  # of a residual in the pool beside that of the members
    for result, w in ((found, np.ones(N)), (weighted, weights)):
        masses = np.outer(w, w) * (1 - np.eye(N))
        expected = (masses * h).sum() / (size @ masses @ size)
        np.testing.assert_allclose(result.estimate, expected, rtol=1e-9)


def test_what_is_refused():
    test = hypothesis_tests.rank_histogram_test
    unequal = np.full((N, M), 1 / M) + np.linspace(-0.05, 0.05, M)
    for call in (test, estimators.pit_values):
        with pytest.raises(ValueError, match=r"weights: expected None, or a mask of the members"):
            call(KEY, Ensemble(VALUES, unequal), TARGETS)
    one = IS_THERE.copy()
    one[3] = np.arange(M) == 2
    with pytest.raises(ValueError, match="expected at least two draws of positive weight"):
        scores.crps(Ensemble(VALUES, one), TARGETS)
    traced = jax.jit(lambda p, y: (test(KEY, p, y, num_draws=9).pvalue, scores.crps(p, y)))
    assert np.isnan(traced(Ensemble(jnp.asarray(VALUES), jnp.asarray(unequal)), TARGETS)[0])
    assert np.isnan(traced(Ensemble(jnp.asarray(VALUES), jnp.asarray(one)), TARGETS)).all()
