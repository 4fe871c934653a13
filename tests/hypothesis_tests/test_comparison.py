"""Comparison of two models, and of one with a margin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from calibjax import distributions, estimators, hypothesis_tests, recalibration
from calibjax import kernels as K
from calibjax.distances import Wasserstein
from calibjax.distributions import Normal
from calibjax.hypothesis_tests import skce_difference, skce_margin_test
from tests import oracles

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
KERNEL = K.TensorProduct(K.SquaredExponential(0.5, Wasserstein()), K.SquaredExponential(1.0))
N = 21
LOC = RNG.normal(size=N)
TARGETS = LOC + RNG.normal(size=N)
GOOD, BIASED = Normal(LOC, np.ones(N)), Normal(LOC - 0.7, np.full(N, 1.1))


def moments(matrix):
    """U and its variance by the definition of the unbiased estimate, with loops."""
    n = len(matrix)
    off = matrix[~np.eye(n, dtype=bool)]
    rows = [np.delete(matrix[i], i).mean() for i in range(n)]
    spread = np.mean(off**2) - off.mean() ** 2
    between = max(((n - 1) ** 2 / (n - 2) * np.var(rows, ddof=1) - spread) / (n - 4), 0)
    return off.mean(), (4 * (n - 2) * between + 2 * spread) / (n * (n - 1))


def matrix_of(predictions, kernel=KERNEL, targets=TARGETS):
    return np.asarray(oracles.calibration_kernel_matrix(kernel, predictions, targets))


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_difference_by_loops(unit):
    """The same in all units of the targets."""
    estimate, variance = moments(matrix_of(BIASED) - matrix_of(GOOD))
    z = estimate / np.sqrt(variance)
    two = [Normal(unit * p.loc, unit * p.scale) for p in (BIASED, GOOD)]
    kernel = K.TensorProduct(
        K.SquaredExponential(0.5 * unit, Wasserstein()), K.SquaredExponential(1.0 * unit)
    )
    tails = {"greater": scipy.stats.norm.sf(z), "less": scipy.stats.norm.cdf(z)}
    tails["two-sided"] = 2 * min(tails.values())
    for alternative, pvalue in tails.items():
        found = skce_difference(kernel, *two, unit * TARGETS, alternative=alternative)
        assert_allclose(found.estimate, estimate, rtol=1e-9)
        assert_allclose(found.statistic, z, rtol=1e-9)
        assert_allclose(found.pvalue, pvalue, rtol=1e-8)


def test_weights_by_loops():
    """The sandwich of the definition; equal weights are none, and a zero leaves the sample out."""
    weights = RNG.uniform(0.2, 3, N)
    w = weights * weights.sum() / np.square(weights).sum()
    g, n = matrix_of(BIASED) - matrix_of(GOOD), w.sum()
    pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
    estimate = sum(w[i] * w[j] * g[i, j] for i, j in pairs) / sum(w[i] * w[j] for i, j in pairs)
    spread = sum((w[i] * w[j] * (g[i, j] - estimate)) ** 2 for i, j in pairs) / (n * (n - 1))
    rows = [sum(w[i] * w[j] * (g[i, j] - estimate) for j in range(N) if j != i) for i in range(N)]
    between = np.sum(np.square(rows)) / ((n - 1) * (n - 2))
    between = max(between - spread, 0) / (n - 4)
    error = np.sqrt((4 * (n - 2) * between + 2 * spread) / (n * (n - 1)))
    found = skce_difference(KERNEL, BIASED, GOOD, TARGETS, weights=weights)
    assert_allclose(found.estimate, estimate, rtol=1e-9)
    assert_allclose(found.statistic, estimate / error, rtol=1e-9)


def mean_of_clusters(matrix, ids, weights):
    """The mean over a ≠ b of weighted means of pairs from clusters a and b, with loops."""
    clusters = [(np.flatnonzero(ids == a)) for a in np.unique(ids)]
    means = [
        np.average(matrix[np.ix_(a, b)], weights=np.outer(weights[a], weights[b]))
        for a in clusters
        for b in clusters
        if a[0] != b[0]
    ]
    return np.mean(means)


@pytest.mark.parametrize("has_weights", [False, True])
def test_clusters_by_the_jackknife(has_weights):
    """U and its jackknife with one cluster left out after the other, and Student's distribution."""
    ids, weights = np.arange(N) // 2 + 5, RNG.uniform(0.2, 3, N) if has_weights else None
    used = np.ones(N) if weights is None else weights
    g = matrix_of(BIASED) - matrix_of(GOOD)
    estimate = mean_of_clusters(g, ids, used)
    number, without = len(np.unique(ids)), []
    for cluster in np.unique(ids):
        kept = np.flatnonzero(ids != cluster)
        without.append(mean_of_clusters(g[np.ix_(kept, kept)], ids[kept], used[kept]))
    z = estimate / np.sqrt((number - 1) * np.var(without))
    found = skce_difference(KERNEL, BIASED, GOOD, TARGETS, weights=weights, clusters=ids)
    assert_allclose(found.estimate, estimate, rtol=1e-9)
    assert_allclose(found.statistic, z, rtol=1e-9)
    assert_allclose(found.pvalue, 2 * scipy.stats.t(number - 1).sf(abs(z)), rtol=1e-8)


def test_small_kernels():
    """The statistic has no unit, even where squares of the kernel vanish."""
    small = skce_difference(1e-200 * KERNEL, BIASED, GOOD, TARGETS)
    expected = skce_difference(KERNEL, BIASED, GOOD, TARGETS)
    assert_allclose(small.statistic, expected.statistic, rtol=1e-9)


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
    found = skce_margin_test(kernel, BIASED, TARGETS, margin=margin)
    assert_allclose(found.statistic, -z, rtol=1e-9)
    assert_allclose(found.pvalue, scipy.stats.norm.cdf(z), rtol=1e-9)
    greater = skce_margin_test(kernel, BIASED, TARGETS, margin=margin, alternative="greater")
    assert_allclose(greater.pvalue, scipy.stats.norm.sf(z), rtol=1e-9)
    expected = estimators.skce(kernel, BIASED, TARGETS)
    assert_allclose(found.estimate, expected, rtol=1e-9)


@pytest.mark.parametrize("precision", [False, True])
@pytest.mark.parametrize(("n", "probability"), [(50, 0.1), (64, 0.5), (100, 0.3)])
def test_frequencies_as_predicted_are_the_best(n, probability, precision):
    """The SKCE is zero up to rounding; one label more or fewer is weaker evidence, or as weak."""
    kernel = K.TensorProduct(K.Constant(), K.White())
    with jax.enable_x64(precision):
        model = distributions.Bernoulli(np.full(n, probability))
        ones = round(n * probability) + np.arange(-1, 2)
        labels = (np.arange(n) < ones[:, None]).astype(int)
        fewer, equal, more = (
            skce_margin_test(kernel, model, y, margin=0.15).pvalue for y in labels
        )
        assert 0 < equal <= min(fewer, more) * (1 + 1e-5)
        # About that of the root of n (k/n − p)² · 2 at zero, a half normal variable.
        spread = 2 * probability * (1 - probability)
        assert abs(equal - scipy.stats.norm.sf(np.sqrt(n * 0.15**2 / spread))) < 0.05
        slope = jax.grad(
            lambda p: (
                skce_margin_test(
                    kernel, distributions.Bernoulli(jnp.full(n, p)), labels[1], margin=0.15
                ).statistic
            )
        )(probability)
        assert np.isfinite(slope)


def test_huge_margins():
    for margin in (1e30, 1e38):
        assert skce_margin_test(KERNEL, BIASED, TARGETS, margin=margin).pvalue < 1e-6


@pytest.mark.parametrize("alternative", ["less", "greater"])
@pytest.mark.parametrize("n", [16, 64, 128])
def test_level_by_binomial_sums(n, alternative):
    """Equal probabilities p of a label of frequency q, with few expected errors and many."""
    probs = [0.005, 0.02, 0.03, 0.05, 0.08, 0.2, 0.3, 0.5]
    p, q = (x.ravel() for x in np.meshgrid(probs, [*probs, 0.9]))
    p, q = p[p != q], q[p != q]
    labels = (np.arange(n) < np.arange(n + 1)[:, None]).astype(int)

    def pvalues(p, q):
        args = K.TensorProduct(K.Constant(), K.White()), distributions.Bernoulli(jnp.full(n, p))
        margin = np.sqrt(2) * jnp.abs(p - q)
        options = {"margin": margin, "alternative": alternative}
        return jax.vmap(lambda y: skce_margin_test(*args, y, **options).pvalue)(labels)

    found = jax.jit(jax.vmap(pvalues))(p, q)
    weights = scipy.stats.binom.pmf(np.arange(n + 1), n, q[:, None])
    levels = np.sum(weights * (found <= 0.05), 1)
    assert np.max(levels) < (0.06 if alternative == "less" or n < 128 else 0.085)
    assert np.max(levels) > 0.02  # it does reject


def test_samples_without_scatter_prove_nothing():
    """Confident models without an error in the sample: all values of h are equal."""
    ones = np.ones(12, int)
    good, other = (distributions.Bernoulli(np.full(12, p)) for p in (0.9, 0.8))
    kernel = K.TensorProduct(K.Constant(), K.White())
    assert hypothesis_tests.skce_difference(kernel, good, other, ones).pvalue == 1
    found = hypothesis_tests.score_difference(good, other, ones)
    assert found.pvalue == 1
    assert found.low == -np.inf
    assert found.high == np.inf
    assert skce_margin_test(kernel, good, ones, margin=0.2).pvalue == 1


def test_one_model_in_two_forms():
    """Rounding errors are no difference."""
    logits = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    with jax.enable_x64(False):
        one = distributions.CategoricalLogits(logits)
        two = distributions.Categorical(jax.nn.softmax(logits))
        labels = distributions.sample_targets(jax.random.key(0), one)
        kernel = K.default_kernel(two)
        assert hypothesis_tests.skce_difference(kernel, one, two, labels).pvalue == 1
        assert hypothesis_tests.score_difference(one, two, labels).pvalue == 1


def test_which_model_is_better_is_printed():
    targets = np.random.default_rng(0).normal(size=300)
    good, biased = Normal(np.zeros(300), np.ones(300)), Normal(np.ones(300), np.ones(300))
    for models, end in (
        ((good, biased), "the first model is better calibrated"),
        ((biased, good), "the second model is better calibrated"),
        ((good, good), "which model is better calibrated is not clear"),
    ):
        assert str(skce_difference(KERNEL, *models, targets)).endswith(end)
    score = hypothesis_tests.score_difference(good, biased, targets)
    assert str(score).endswith("the first model has the better score")
    method = recalibration.AffineScaling()
    gain = hypothesis_tests.gain_difference(KEY, method, good, biased, targets)
    assert str(gain).endswith("the second model has more to gain")
