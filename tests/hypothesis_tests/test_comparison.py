"""Comparison of two models by SKCE and by scores, and of one with a margin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from calibjax import distributions, estimators, recalibration, scores
from calibjax import kernels as K
from calibjax.distances import Wasserstein
from calibjax.distributions import Bernoulli, Ensemble, Laplace, Normal
from calibjax.hypothesis_tests import (
    gain_difference,
    score_difference,
    skce_difference,
    skce_margin_test,
)
from tests import oracles
from tests.hypothesis_tests.test_intervals import cluster_means, jackknife

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
KERNEL = K.TensorProduct(K.SquaredExponential(0.5, Wasserstein()), K.SquaredExponential(1.0))
OF_LABELS = K.TensorProduct(K.Constant(), K.White())
N = 21
LOC = RNG.normal(size=N)
TARGETS = LOC + RNG.normal(size=N)
GOOD, BIASED = Normal(LOC, np.ones(N)), Normal(LOC - 0.7, np.full(N, 1.1))
WEIGHTS = RNG.uniform(0.2, 3, N)


def matrix_of(predictions):
    return np.asarray(oracles.calibration_kernel_matrix(KERNEL, predictions, TARGETS))


def moments(g, weights):
    """U and its variance by the sandwich of the definition, with loops."""
    w = weights * weights.sum() / np.square(weights).sum()
    n, pairs = w.sum(), [(i, j) for i in range(N) for j in range(N) if i != j]
    estimate = sum(w[i] * w[j] * g[i, j] for i, j in pairs) / sum(w[i] * w[j] for i, j in pairs)
    spread = sum((w[i] * w[j] * (g[i, j] - estimate)) ** 2 for i, j in pairs) / (n * (n - 1))
    rows = [sum(w[i] * w[j] * (g[i, j] - estimate) for j in range(N) if j != i) for i in range(N)]
    between = np.sum(np.square(rows)) / ((n - 1) * (n - 2))
    between = max(between - spread, 0) / (n - 4)
    return estimate, (4 * (n - 2) * between + 2 * spread) / (n * (n - 1))


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_difference_by_loops(unit, weights):
    """The same in all units of the targets, and of kernels whose squares vanish."""
    g = matrix_of(BIASED) - matrix_of(GOOD)
    estimate, variance = moments(g, np.ones(N) if weights is None else weights)
    z = estimate / np.sqrt(variance)
    two = [Normal(unit * p.loc, unit * p.scale) for p in (BIASED, GOOD)]
    kernel = K.TensorProduct(
        K.SquaredExponential(0.5 * unit, Wasserstein()), K.SquaredExponential(1.0 * unit)
    )
    run = functools.partial(skce_difference, targets=unit * TARGETS, weights=weights)
    tails = {"greater": scipy.stats.norm.sf(z), "less": scipy.stats.norm.cdf(z)}
    tails["two-sided"] = 2 * min(tails.values())
    for alternative, pvalue in tails.items():
        found = run(kernel, *two, alternative=alternative)
        assert_allclose(found.estimate, estimate, rtol=1e-9)
        assert_allclose(found.statistic, z, rtol=1e-9)
        assert_allclose(found.pvalue, pvalue, rtol=1e-8)
    assert_allclose(run(1e-200 * kernel, *two).statistic, z, rtol=1e-9)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_clusters_by_the_jackknife(weights):
    """U and its jackknife with one cluster left out after the other, and Student's distribution."""
    ids, number = np.arange(N) // 2 + 5, (N + 1) // 2
    g = matrix_of(BIASED) - matrix_of(GOOD)
    estimate, error = jackknife(cluster_means(g, ids, weights))
    z = estimate / error
    found = skce_difference(KERNEL, BIASED, GOOD, TARGETS, weights=weights, clusters=ids)
    assert_allclose(found.estimate, estimate, rtol=1e-9)
    assert_allclose(found.statistic, z, rtol=1e-9)
    assert_allclose(found.pvalue, 2 * scipy.stats.t(number - 1).sf(abs(z)), rtol=1e-8)


def standardised(matrix, margin):
    """The root of the mean of a matrix, in standard deviations at the margin, with loops."""
    n = len(matrix)
    rows = [matrix[i].mean() for i in range(n)]
    biased = np.mean(rows)
    root = np.sqrt(biased)
    influences = (np.array(rows) - biased) / root
    third = np.mean(influences**3)
    spread = (sum(influences**2) + max(influences**2)) / n
    centred = [matrix[i, j] - rows[i] - rows[j] + biased for i in range(n) for j in range(n)]
    inflation = max(1 + (margin - root) * third / spread**2, 1)
    variance = inflation * (4 * margin**2 * spread + 2 * np.mean(np.square(centred)) / n) / n
    typical = np.sqrt((1 - 1 / n) * margin**2 + np.trace(matrix) / n**2)
    return 2 * typical * (root - typical + variance / (8 * typical**3)) / np.sqrt(variance)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e100])
@pytest.mark.parametrize("margin", [0.2, 1.5])
def test_margin_by_loops(margin, unit):
    """Of kernels in any unit; the inflation is 1 for the smaller margin only."""
    z = standardised(matrix_of(BIASED), margin)
    kernel, margin = unit * KERNEL, margin * np.sqrt(unit)
    run = functools.partial(skce_margin_test, kernel, BIASED, TARGETS, margin=margin)
    assert_allclose(run().statistic, -z, rtol=1e-9)
    assert_allclose(run().pvalue, scipy.stats.norm.cdf(z), rtol=1e-9)
    assert_allclose(run(alternative="greater").pvalue, scipy.stats.norm.sf(z), rtol=1e-9)
    assert_allclose(run().estimate, estimators.skce(kernel, BIASED, TARGETS), rtol=1e-9)
    for huge in (1e30, 1e38):
        assert run(margin=huge * np.sqrt(unit)).pvalue < 1e-6


@pytest.mark.parametrize(("n", "probability"), [(50, 0.1), (100, 0.3)])
def test_frequencies_as_predicted_are_the_best(n, probability):
    """The SKCE is zero up to rounding; one label more or fewer is weaker evidence, or as weak."""
    with jax.enable_x64(False):
        ones = round(n * probability) + np.arange(-1, 2)
        labels = (np.arange(n) < ones[:, None]).astype(int)
        of = lambda p, y: skce_margin_test(  # noqa: E731
            OF_LABELS, Bernoulli(jnp.full(n, p)), y, margin=0.15
        )
        fewer, equal, more = (of(probability, y).pvalue for y in labels)
        assert 0 < equal <= min(fewer, more) * (1 + 1e-5)
        # About that of the root of n (k/n − p)² · 2 at zero, a half normal variable.
        spread = 2 * probability * (1 - probability)
        assert abs(equal - scipy.stats.norm.sf(np.sqrt(n * 0.15**2 / spread))) < 0.05
        assert np.isfinite(jax.grad(lambda p: of(p, labels[1]).statistic)(probability))


@pytest.mark.parametrize("alternative", ["less", "greater"])
@pytest.mark.parametrize("n", [16, 64, 128])
def test_level_by_binomial_sums(n, alternative):
    """Equal probabilities p of a label of frequency q, with few expected errors and many."""
    probs = [0.005, 0.02, 0.03, 0.05, 0.08, 0.2, 0.3, 0.5]
    p, q = (x.ravel() for x in np.meshgrid(probs, [*probs, 0.9]))
    p, q = p[p != q], q[p != q]
    labels = (np.arange(n) < np.arange(n + 1)[:, None]).astype(int)

    def pvalues(p, q):
        options = {"margin": np.sqrt(2) * jnp.abs(p - q), "alternative": alternative}
        data = OF_LABELS, Bernoulli(jnp.full(n, p))
        return jax.vmap(lambda y: skce_margin_test(*data, y, **options).pvalue)(labels)

    found = jax.jit(jax.vmap(pvalues))(p, q)
    weights = scipy.stats.binom.pmf(np.arange(n + 1), n, q[:, None])
    levels = np.sum(weights * (found <= 0.05), 1)
    assert np.max(levels) < (0.06 if alternative == "less" or n < 128 else 0.085)
    assert np.max(levels) > 0.02  # it does reject


def test_no_difference_and_no_scatter():
    """Confident models without an error in the sample; one model in two forms, but for rounding."""
    ones = np.ones(12, int)
    good, other = (Bernoulli(np.full(12, p)) for p in (0.9, 0.8))
    assert skce_difference(OF_LABELS, good, other, ones).pvalue == 1
    assert skce_margin_test(OF_LABELS, good, ones, margin=0.2).pvalue == 1
    found = score_difference(good, other, ones)
    assert (found.pvalue, found.low, found.high) == (1, -np.inf, np.inf)
    found = score_difference(GOOD, GOOD, TARGETS)
    assert (found.estimate, found.standard_error, found.pvalue) == (0, 0, 1)
    logits = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    with jax.enable_x64(False):
        one = distributions.CategoricalLogits(logits)
        two = distributions.Categorical(jax.nn.softmax(logits))
        labels = distributions.sample_targets(KEY, one)
        assert skce_difference(K.default_kernel(two), one, two, labels).pvalue == 1
        assert score_difference(one, two, labels).pvalue == 1


def test_which_model_is_better_is_printed():
    targets = np.random.default_rng(0).normal(size=300)
    good, biased = Normal(np.zeros(300), np.ones(300)), Normal(np.ones(300), np.ones(300))
    for models, end in (
        ((good, biased), "the first model is better calibrated"),
        ((biased, good), "the second model is better calibrated"),
        ((good, good), "which model is better calibrated is not clear"),
    ):
        assert str(skce_difference(KERNEL, *models, targets)).endswith(end)
    score = score_difference(good, biased, targets)
    assert str(score).endswith("the first model has the better score")
    gain = gain_difference(KEY, recalibration.AffineScaling(), good, biased, targets)
    assert str(gain).endswith("the second model has more to gain")


# Differences and clusters of which statsmodels 0.15.0 gave what is below, by
# OLS(d, ones).fit(cov_type="cluster", cov_kwds={"groups": g}, use_t=True).
INDEX = np.arange(60)
GIVEN = np.sin(1.7 * INDEX) + 0.3 * np.cos(0.05 * INDEX**2) + 0.1
CLUSTERS = INDEX // 5
STATSMODELS = {
    "estimate": 0.12225234656941962,
    "standard_error": 0.05723280551857578,
    "pvalue": 0.055987859360950465,
    "low": -0.0037162090473765036,
    "high": 0.24822090218621573,
}


def of_values(values, **options):
    """The difference of models whose scores differ by these values."""
    zeros = Normal(np.zeros(len(values)), np.ones(len(values)))
    ones = Normal(np.asarray(values), np.ones(len(values)))
    location = lambda p, y: jnp.mean(p.loc)  # noqa: E731
    return score_difference(ones, zeros, np.zeros(len(values)), score=location, **options)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_paired_t_test_of_scores(level):
    own, other = (-scipy.stats.norm.logpdf(TARGETS, p.loc, p.scale) for p in (BIASED, GOOD))
    expected = scipy.stats.ttest_rel(own, other)
    found = score_difference(BIASED, GOOD, TARGETS, confidence_level=level)
    assert_allclose(found.estimate, np.mean(own - other), rtol=1e-12)
    assert_allclose(found.standard_error, scipy.stats.sem(own - other), rtol=1e-12)
    assert_allclose(found.pvalue, expected.pvalue, rtol=1e-8)
    assert_allclose([found.low, found.high], expected.confidence_interval(level), rtol=1e-9)
    constant = of_values(np.full(60, 0.5))
    assert (constant.estimate, constant.pvalue) == (0.5, 1)  # since the scatter is unknown


def test_scores_in_clusters_and_with_weights():
    """Names of clusters do not matter, and single samples are clusters, too."""
    found = of_values(GIVEN, clusters=1000 - 7 * CLUSTERS)
    for name, expected in STATSMODELS.items():
        assert_allclose(getattr(found, name), expected, rtol=1e-7, err_msg=name)
    alone = of_values(GIVEN, clusters=INDEX)
    assert_allclose(alone.pvalue, of_values(GIVEN).pvalue, rtol=1e-9)
    weights = RNG.uniform(0, 2, 60) * (INDEX % 7 > 0)
    mean = np.average(GIVEN, weights=weights)
    found = of_values(GIVEN, weights=weights, clusters=CLUSTERS)
    inside = [np.sum((weights * (GIVEN - mean))[g == CLUSTERS]) for g in range(12)]
    variance = 12 / 11 * np.sum(np.square(inside)) / weights.sum() ** 2
    assert_allclose(found.estimate, mean, rtol=1e-9)
    assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-9)


def test_default_scores():
    """The CRPS where one model has draws; the likelihood, which may be infinite."""
    ensembles, laplace = Ensemble(RNG.normal(size=(N, 4))), Laplace(LOC, np.ones(N))
    for other, score in ((ensembles, scores.crps), (laplace, scores.negative_log_likelihood)):
        found = score_difference(GOOD, other, TARGETS)
        expected = score(GOOD, TARGETS) - score(other, TARGETS)
        assert_allclose(found.estimate, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="score: expected finite scores of both models.*inf"):
        score_difference(Bernoulli(np.zeros(12)), Bernoulli(np.full(12, 0.5)), np.ones(12, int))


def test_gains_are_those_of_the_models():
    """The same folds for both: differences of the gains that one model has by itself."""
    method, two = recalibration.AffineScaling(), (BIASED, GOOD)
    found = gain_difference(KEY, method, *two, TARGETS)
    gains = [recalibration.recalibration_gain(KEY, {"": method}, p, TARGETS)[""] for p in two]
    assert_allclose(found.estimate, gains[0].mean - gains[1].mean, rtol=1e-8)
    values = []
    for p in two:
        q = method.cross_fitted(KEY, p, TARGETS)
        before, after = (-scipy.stats.norm.logpdf(TARGETS, x.loc, x.scale) for x in (p, q))
        values.append(before - after)
    assert_allclose(found.standard_error, scipy.stats.sem(values[0] - values[1]), rtol=1e-8)
    ids = np.arange(N) // 2
    clustered = gain_difference(KEY, method, *two, TARGETS, clusters=ids)
    again = of_values(values[0] - values[1], clusters=ids)
    assert_allclose(clustered.pvalue, again.pvalue, rtol=1e-7)


def test_infinite_scores_that_count():
    data = Bernoulli(np.array([1.0, 0.5, 0.4])), Bernoulli(np.full(3, 0.6)), np.array([0, 1, 0])
    assert np.isfinite(score_difference(*data, weights=np.array([0, 0.5, 0.5])).estimate)
    with pytest.raises(ValueError, match="score: expected finite scores of both models"):
        score_difference(
            *data, weights=np.array([0.5, 0.5, 1]), score=scores.negative_log_likelihood
        )
