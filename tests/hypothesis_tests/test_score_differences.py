"""Paired differences of scores, against scipy, statsmodels and plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from calibjax import recalibration, scores
from calibjax.distributions import Bernoulli, Ensemble, Laplace, Normal
from calibjax.hypothesis_tests import gain_difference, score_difference

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
N = 60
LOC = RNG.normal(size=N)
TARGETS = LOC + RNG.normal(size=N)
COARSE, SHARP = Normal(np.zeros(N), np.full(N, 1.5)), Normal(LOC, np.ones(N))
# Differences and clusters of which statsmodels 0.15.0 gave what is below, by
# OLS(d, ones).fit(cov_type="cluster", cov_kwds={"groups": g}, use_t=True).
INDEX = np.arange(N)
GIVEN = np.sin(1.7 * INDEX) + 0.3 * np.cos(0.05 * INDEX**2) + 0.1
CLUSTERS = INDEX // 5
STATSMODELS = {
    "estimate": 0.12225234656941962,
    "standard_error": 0.05723280551857578,
    "pvalue": 0.055987859360950465,
    "low": -0.0037162090473765036,
    "high": 0.24822090218621573,
}


def location(predictions, targets):
    """A score whose differences are those of the locations."""
    return jnp.mean(predictions.loc)


def of_values(values, **options):
    """The difference of models whose scores differ by these values."""
    zeros = Normal(np.zeros(len(values)), np.ones(len(values)))
    ones = Normal(np.asarray(values), np.ones(len(values)))
    return score_difference(ones, zeros, np.zeros(len(values)), score=location, **options)


def log_scores(p):
    return -scipy.stats.norm.logpdf(TARGETS, p.loc, p.scale)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_paired_t_test(level):
    own, other = log_scores(COARSE), log_scores(SHARP)
    expected = scipy.stats.ttest_rel(own, other)
    found = score_difference(COARSE, SHARP, TARGETS, confidence_level=level)
    assert_allclose(found.estimate, np.mean(own - other), rtol=1e-12)
    assert_allclose(found.standard_error, scipy.stats.sem(own - other), rtol=1e-12)
    assert_allclose(found.pvalue, expected.pvalue, rtol=1e-8)
    ends = expected.confidence_interval(level)
    assert_allclose([found.low, found.high], ends, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_units(unit):
    """A score in units of the targets: the p-value is the same in float32, too."""
    models = [Normal(*(np.float32(unit * x) for x in (p.loc, p.scale))) for p in (COARSE, SHARP)]
    found = score_difference(*models, np.float32(unit * TARGETS), score=scores.crps)
    expected = score_difference(COARSE, SHARP, TARGETS, score=scores.crps)
    assert found.estimate.dtype == jnp.float32
    assert_allclose(found.estimate, unit * expected.estimate, rtol=1e-4)
    assert_allclose(found.pvalue, expected.pvalue, rtol=1e-3)


def test_clusters_as_in_statsmodels():
    found = of_values(GIVEN, clusters=CLUSTERS)
    for name, expected in STATSMODELS.items():
        assert_allclose(getattr(found, name), expected, rtol=1e-7, err_msg=name)
    # Names of clusters do not matter, and single samples are clusters, too.
    renamed = of_values(GIVEN, clusters=1000 - 7 * CLUSTERS)
    assert_allclose(renamed.standard_error, found.standard_error, rtol=1e-12)
    alone = of_values(GIVEN, clusters=INDEX)
    assert_allclose(alone.pvalue, of_values(GIVEN).pvalue, rtol=1e-9)


def test_weights_by_loops():
    weights = RNG.uniform(0, 2, N) * (INDEX % 7 > 0)
    mean = sum(w * d for w, d in zip(weights, GIVEN, strict=True)) / weights.sum()
    found = of_values(GIVEN, weights=weights, clusters=CLUSTERS)
    inside = [
        sum(weights[i] * (GIVEN[i] - mean) for i in range(N) if i // 5 == g) for g in range(12)
    ]
    variance = 12 / 11 * sum(x**2 for x in inside) / weights.sum() ** 2
    assert_allclose(found.estimate, mean, rtol=1e-9)
    assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-9)
    same = of_values(GIVEN, weights=3 * weights)
    kept = weights > 0
    assert_allclose(same.pvalue, of_values(GIVEN[kept], weights=weights[kept]).pvalue, rtol=1e-9)


def test_same_model_twice():
    found = score_difference(SHARP, SHARP, TARGETS)
    assert (found.estimate, found.standard_error, found.pvalue) == (0, 0, 1)
    constant = of_values(np.full(N, 0.5))
    assert constant.estimate == 0.5
    assert constant.pvalue == 1  # since the scatter is unknown


def test_default_scores():
    ensembles = Ensemble(RNG.normal(size=(N, 4)))
    found = score_difference(SHARP, ensembles, TARGETS)
    expected = scores.crps(SHARP, TARGETS) - scores.crps(ensembles, TARGETS)
    assert_allclose(found.estimate, expected, rtol=1e-6)
    mixed = score_difference(SHARP, Laplace(LOC, np.ones(N)), TARGETS)
    other = scores.negative_log_likelihood(Laplace(LOC, np.ones(N)), TARGETS)
    expected = scores.negative_log_likelihood(SHARP, TARGETS) - other
    assert_allclose(mixed.estimate, expected, rtol=1e-6)


def test_gains_are_those_of_the_models():
    """The same folds for both: differences of the gains that one model has by itself."""
    method = recalibration.AffineScaling()
    found = gain_difference(KEY, method, COARSE, SHARP, TARGETS)
    gains = [
        recalibration.recalibration_gain(KEY, {"": method}, p, TARGETS)[""] for p in (COARSE, SHARP)
    ]
    assert_allclose(found.estimate, gains[0].mean - gains[1].mean, rtol=1e-8)
    values = []
    for p in (COARSE, SHARP):
        q = method.cross_fitted(KEY, p, TARGETS)
        values.append(log_scores(p) - log_scores(q))
    assert_allclose(found.standard_error, scipy.stats.sem(values[0] - values[1]), rtol=1e-8)
    clustered = gain_difference(KEY, method, COARSE, SHARP, TARGETS, clusters=CLUSTERS)
    again = of_values(values[0] - values[1], clusters=CLUSTERS)
    assert_allclose(clustered.pvalue, again.pvalue, rtol=1e-7)


def test_infinite_scores_have_no_mean():
    with pytest.raises(ValueError, match="score: expected finite scores of both models.*inf"):
        score_difference(Bernoulli(np.zeros(12)), Bernoulli(np.full(12, 0.5)), np.ones(12, int))
