"""Statistics of the textbooks against plain NumPy and scipy, their p-values, and their level."""

import functools

import jax
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from calibjax import distributions, hypothesis_tests
from calibjax.hypothesis_tests import statistics

RNG = np.random.default_rng(0)
N = 300
PROBS = np.round(RNG.uniform(0.02, 0.98, N), 2)  # with ties
LABELS = (RNG.uniform(size=N) < 0.2 + 0.6 * PROBS).astype(int)
BINARY = {
    "spiegelhalter": hypothesis_tests.spiegelhalter,
    "hosmer_lemeshow": hypothesis_tests.hosmer_lemeshow,
    "cox": hypothesis_tests.cox,
    "cumulative_difference": hypothesis_tests.cumulative_difference,
}


def by_hand(name, p, y):
    """The statistics as loops from their formulas."""
    x = np.log(p / (1 - p))
    if name == "spiegelhalter":
        return abs((y - p) @ (1 - 2 * p)) / np.sqrt((1 - 2 * p) ** 2 @ (p * (1 - p)))
    if name == "hosmer_lemeshow":
        groups, total = 10 * np.sum(p < p[:, None], 1) // len(p), 0
        for own in (groups == g for g in set(groups)):
            mean = np.mean(p[own])
            total += np.sum((y - p)[own]) ** 2 / (sum(own) * mean * (1 - mean))
        return total
    if name == "cox":
        design = np.stack([np.ones_like(x), x], 1)
        score = design.T @ (y - p)
        return score @ np.linalg.solve(design.T @ (design * (p * (1 - p))[:, None]), score)
    largest = max(abs(sum((y - p)[p <= value])) for value in p)
    return largest / np.sqrt(sum(p * (1 - p)))


@pytest.mark.parametrize("name", BINARY)
def test_statistics_are_their_formulas(name):
    """Certain predictions that come true say nothing, others everything."""
    value = BINARY[name](distributions.Bernoulli(PROBS), LABELS)
    assert_allclose(value, by_hand(name, PROBS, LABELS), rtol=1e-10)
    certain, options = np.array([0, 1, 0, 1]), {}
    if name == "hosmer_lemeshow":
        options = {"num_bins": 2}
    statistic = functools.partial(BINARY[name], distributions.Bernoulli(1.0 * certain), **options)
    assert statistic(certain) == 0
    assert statistic(np.array([1, 1, 0, 1])) == np.inf


def test_spiegelhalter_of_classes():
    """Moments of the Brier score by enumeration of the labels."""
    probs, labels = RNG.dirichlet(np.ones(4), 50), RNG.integers(0, 4, 50)
    scores = np.stack([np.sum((probs - np.eye(4)[c]) ** 2, 1) for c in range(4)], 1)
    mean = np.sum(probs * scores, 1)
    variance = np.sum(probs * (scores - mean[:, None]) ** 2, 1)
    expected = abs(np.sum(scores[np.arange(50), labels] - mean)) / np.sqrt(variance.sum())
    value = hypothesis_tests.spiegelhalter(distributions.Categorical(probs), labels)
    assert_allclose(value, expected, rtol=1e-5)


def test_cox_regression_is_the_maximum_of_the_likelihood():
    """As scikit-learn has it, with standard errors from the information."""
    x = np.log(PROBS / (1 - PROBS))
    model = LogisticRegression(C=np.inf, tol=1e-12).fit(x[:, None], LABELS)
    slope, intercept = model.coef_[0, 0], model.intercept_[0]
    fitted = scipy.special.expit(slope * x + intercept)
    design = np.stack([x, np.ones_like(x)], 1)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (fitted * (1 - fitted))[:, None]))))
    shift = scipy.optimize.brentq(lambda b: np.sum(LABELS - scipy.special.expit(x + b)), -9, 9)
    fitted = scipy.special.expit(x + shift)
    errors = *errors, np.sum(fitted * (1 - fitted)) ** -0.5
    found = hypothesis_tests.calibration_slope_intercept(
        distributions.Bernoulli(PROBS), LABELS, confidence_level=0.9
    )
    intervals = found.slope, found.intercept, found.in_the_large
    for one, value, error in zip(intervals, (slope, intercept, shift), errors, strict=True):
        assert_allclose(one.estimate, value, rtol=1e-5, atol=1e-6)
        assert_allclose(one.standard_error, error, rtol=1e-5)
        ends = scipy.stats.norm.interval(0.9, one.estimate, one.standard_error)
        assert_allclose([one.low, one.high], ends, rtol=1e-10)


def test_cox_regression_of_separated_labels():
    predictions, labels = distributions.Bernoulli(np.array([0.2, 0.4, 0.6])), np.array([0, 0, 1])
    with pytest.raises(ValueError, match="no threshold of the predictions separates"):
        hypothesis_tests.calibration_slope_intercept(predictions, labels)
    traced = jax.jit(hypothesis_tests.calibration_slope_intercept)(predictions, labels)
    assert np.isnan(traced.slope.estimate)
    assert np.isfinite(hypothesis_tests.cox(predictions, labels))


def test_textbook_distributions():
    """Both series of Brownian motion are right where they meet the other one."""
    x, k = np.array([0.3, 0.7, 0.99, 1.01, 1.5, 3.0]), 2 * np.arange(100) + 1
    bridge = jax.vmap(statistics.beyond_brownian_bridge)(x)
    assert_allclose(bridge, scipy.special.kolmogorov(x), rtol=1e-9)
    terms = (-1.0) ** (k // 2) / k * np.exp(-((k * np.pi) ** 2) / 8 / x[:, None] ** 2)
    motion = jax.vmap(statistics.beyond_brownian_motion)(x)
    assert_allclose(motion, 1 - 4 / np.pi * terms.sum(1), rtol=1e-9)


@pytest.mark.parametrize("name", BINARY)
def test_exact_and_textbook_pvalues_agree(name):
    """Of the same statistic, up to the errors of 999 redraws and of the limit."""
    predictions = distributions.Bernoulli(PROBS)
    labels = (RNG.uniform(size=N) < PROBS).astype(int)
    result = hypothesis_tests.exact_test(
        jax.random.key(0), BINARY[name], predictions, labels, num_draws=999
    )
    assert abs(result.pvalue - result.textbook_pvalue) < 0.08
    assert f"textbook_pvalue={float(result.textbook_pvalue):.3g}" in repr(result)


def test_options_of_a_statistic_reach_its_pvalue():
    statistic = functools.partial(hypothesis_tests.hosmer_lemeshow, num_bins=4)
    data = distributions.Bernoulli(PROBS), LABELS
    result = hypothesis_tests.exact_test(jax.random.key(0), statistic, *data, num_draws=99)
    expected = scipy.stats.chi2(4).sf(result.statistic)
    assert_allclose(result.textbook_pvalue, expected, rtol=1e-4)


NUMBERS = {"pit_ks": hypothesis_tests.pit_ks, "berkowitz": hypothesis_tests.berkowitz}
LOC, SCALE = RNG.normal(size=N), np.exp(RNG.normal(size=N))
TARGETS = LOC + SCALE * (0.2 + 1.1 * RNG.normal(size=N))
CONTINUOUS = {
    "Normal": (distributions.Normal, scipy.stats.norm),
    "Laplace": (distributions.Laplace, scipy.stats.laplace),
}


@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])
@pytest.mark.parametrize("family", CONTINUOUS)
def test_statistics_of_numbers(family, unit):
    ours, law = CONTINUOUS[family]
    u = law(LOC, SCALE).cdf(TARGETS)
    expected = scipy.stats.ks_1samp(u, scipy.stats.uniform.cdf, mode="asymp")
    z = scipy.stats.norm.ppf(u)
    normal, fitted = scipy.stats.norm(0, 1), scipy.stats.norm(z.mean(), z.std())
    ratio = 2 * np.sum(fitted.logpdf(z) - normal.logpdf(z))
    predictions = ours(unit * LOC, unit * SCALE)
    found = {name: one(predictions, unit * TARGETS) for name, one in NUMBERS.items()}
    ks, lr = found.values()
    pvalues = [
        statistics.textbook_pvalue_of(NUMBERS[name], value, predictions, TARGETS)
        for name, value in found.items()
    ]
    assert_allclose(ks, np.sqrt(N) * expected.statistic, rtol=1e-9)
    assert_allclose(lr, ratio, rtol=1e-9)
    assert_allclose(pvalues, [expected.pvalue, scipy.stats.chi2(2).sf(lr)], rtol=1e-9)


@pytest.mark.parametrize("name", NUMBERS)
def test_other_distributions_have_no_normal_scores(name):
    with pytest.raises(NotImplementedError, match="expected continuous distributions"):
        NUMBERS[name](distributions.Poisson(np.ones(3)), np.array([0, 1, 2]))
