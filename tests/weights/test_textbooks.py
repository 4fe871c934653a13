"""Weights of the statistics of the textbooks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import hypothesis_tests
from calibjax.distributions import Bernoulli, Categorical, Normal
from tests.weights.laws import WEIGHTS, N, check_weights

_random = np.random.default_rng(9)
PROBS = _random.uniform(0.05, 0.95, N).round(1)  # with ties
TARGETS = (_random.uniform(size=N) < 0.3 + 0.4 * PROBS).astype(int)
CLASSES = Categorical(_random.dirichlet(np.ones(3), N)), _random.integers(0, 3, N)
NORMALS = Normal(_random.normal(size=N), _random.uniform(0.5, 1, N))
Y = NORMALS.loc + _random.normal(size=N)
BINARY = "spiegelhalter", "hosmer_lemeshow", "cox", "cumulative_difference"
CONTINUOUS = "pit_ks", "berkowitz"


def _function(name):
    function = getattr(hypothesis_tests, name)
    return functools.partial(function, num_bins=2) if name == "hosmer_lemeshow" else function


@pytest.mark.parametrize("name", [*BINARY, *CONTINUOUS, "cox_regression"])
def test_laws(name):
    function = _function(name)
    data = (NORMALS, Y) if name in CONTINUOUS else (Bernoulli(PROBS), TARGETS)
    rtol = 1e-8 if name == "cox_regression" else 1e-11
    call = lambda p, y, w: function(p, y, weights=w)  # noqa: E731
    check_weights(call, *data, copies=False, rtol=rtol)
    if name == "spiegelhalter":
        check_weights(call, *CLASSES, copies=False)


def test_statistics_by_their_formulas():
    w = WEIGHTS + 0.25
    errors, variances = w * (TARGETS - PROBS), w**2 * PROBS * (1 - PROBS)
    given = Bernoulli(PROBS), TARGETS
    factors = 1 - 2 * PROBS
    z = abs((errors * factors).sum()) / np.sqrt((variances * factors**2).sum())
    found = hypothesis_tests.spiegelhalter(*given, weights=w)
    np.testing.assert_allclose(found, z, rtol=1e-10)
    design = np.stack([np.ones(N), np.log(PROBS / (1 - PROBS))], 1)
    score, information = design.T @ errors, design.T @ (variances[:, None] * design)
    found = hypothesis_tests.cox(*given, weights=w)
    np.testing.assert_allclose(found, score @ np.linalg.solve(information, score), rtol=1e-9)
    sums = [errors[p >= PROBS].sum() for p in PROBS]
    found = hypothesis_tests.cumulative_difference(*given, weights=w)
    np.testing.assert_allclose(found, np.abs(sums).max() / np.sqrt(variances.sum()), rtol=1e-10)
    one = np.average(PROBS, weights=w)
    expected = errors.sum() ** 2 / ((w**2).sum() * one * (1 - one))
    found = hypothesis_tests.hosmer_lemeshow(*given, num_bins=1, weights=w)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    two = np.where(np.arange(N) < 6, 0.25, 0.75)  # of nearly the same weight
    sums = [np.bincount(two > 0.5, x) for x in (w * (TARGETS - two), w**2 * two * (1 - two))]
    found = hypothesis_tests.hosmer_lemeshow(Bernoulli(two), TARGETS, num_bins=2, weights=w)
    np.testing.assert_allclose(found, (sums[0] ** 2 / sums[1]).sum(), rtol=1e-10)
    z = (Y - NORMALS.loc) / NORMALS.scale
    mean, n = np.average(z, weights=w), w.sum() ** 2 / (w**2).sum()
    variance = np.average((z - mean) ** 2, weights=w)
    found = hypothesis_tests.berkowitz(NORMALS, Y, weights=w)
    np.testing.assert_allclose(found, n * (mean**2 + variance - 1 - np.log(variance)), rtol=1e-10)


def test_kolmogorov_smirnov_of_copies():
    z = (Y - NORMALS.loc) / NORMALS.scale
    theirs = scipy.stats.kstest(np.repeat(z, WEIGHTS), "norm").statistic
    n = WEIGHTS.sum() ** 2 / (WEIGHTS**2).sum()
    found = hypothesis_tests.pit_ks(NORMALS, Y, weights=WEIGHTS)
    np.testing.assert_allclose(found, np.sqrt(n) * theirs, rtol=1e-12)


def test_intervals_of_slopes():
    w = WEIGHTS + 0.25
    found = hypothesis_tests.cox_regression(Bernoulli(PROBS), TARGETS, weights=w)
    x = np.log(PROBS / (1 - PROBS))
    design = np.stack([x, np.ones(N)], 1)
    line = np.array([found.slope.estimate, found.intercept.estimate])
    fitted = 1 / (1 + np.exp(-design @ line))
    np.testing.assert_allclose(design.T @ (w * (TARGETS - fitted)), 0, atol=1e-9)
    matrices = (design.T @ ((v * fitted * (1 - fitted))[:, None] * design) for v in (w, w**2))
    first, second = matrices
    covariance = np.linalg.solve(first, np.linalg.solve(first, second).T)
    errors = [found.slope.standard_error, found.intercept.standard_error]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-8)


@pytest.mark.parametrize("name", [*BINARY, *CONTINUOUS])
def test_textbook_pvalues_of_calibrated_predictions(name):
    """They hold for many samples with weights that depend on the predictions."""
    n, repetitions = 500, 1000
    function = getattr(hypothesis_tests, name)

    @jax.jit
    @jax.vmap
    def simulate(key):
        first, second, third = jax.random.split(key, 3)
        p = jax.random.uniform(first, (n,), minval=0.1, maxval=0.9)
        w = jnp.exp(0.7 * jax.random.normal(third, (n,)) + 2 * p)
        if name in CONTINUOUS:
            predictions, y = Normal(p, p), p * (1 + jax.random.normal(second, (n,)))
        else:
            predictions, y = Bernoulli(p), jax.random.bernoulli(second, p).astype(int)
        value = function(predictions, y, weights=w)
        return function.textbook_pvalue(value, predictions, y, weights=w)

    pvalues = np.asarray(simulate(jax.random.split(jax.random.key(1), repetitions)))
    assert scipy.stats.kstest(pvalues, "uniform").statistic < 2 / np.sqrt(repetitions)
    assert np.mean(pvalues < 0.05) == pytest.approx(0.05, abs=3 * np.sqrt(0.05 * 0.95 / 1000))


def test_weighted_exact_tests_have_no_textbook_pvalue():
    predictions, targets = Bernoulli(jnp.full(6, 0.4)), jnp.arange(6) % 2
    data = jax.random.key(0), hypothesis_tests.spiegelhalter, predictions, targets
    assert hypothesis_tests.exact_test(*data, num_draws=9).textbook_pvalue is not None
    weighted = hypothesis_tests.exact_test(*data, num_draws=9, weights=jnp.ones(6))
    assert weighted.textbook_pvalue is None
