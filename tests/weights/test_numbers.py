"""Numbers of samples with weights, by hand."""

import functools

import jax
import numpy as np
import pytest

from calibjax import estimators
from calibjax import hypothesis_tests as H
from calibjax.distributions import Bernoulli, Categorical, Ensemble, Quantiles
from calibjax.estimators import EqualMassBins, MedianVarianceBins, Neighbourhood, UniformBins
from tests import oracles
from tests.estimators.test_binned import DEBIASED
from tests.weights import laws
from tests.weights.laws import CONFIDENCES, KERNEL, KEY, NORMALS, TARGETS, WHITE, N, rows
from tests.weights.laws import OF_REDRAWS as LAST
from tests.weights.laws import WEIGHTS as COUNTS

W = 0.3 * COUNTS
EFFECTIVE = W.sum() ** 2 / (W**2).sum()
CLASSES, LABELS = laws.CLASSES, laws.LABELS
LOCAL = laws.FEATURES, CONFIDENCES, laws.CORRECT
close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-14)


def test_means_over_pairs():
    matrix = np.array(oracles.calibration_kernel_matrix(KERNEL, NORMALS, TARGETS))
    data, others = (KERNEL, NORMALS, TARGETS), ~np.eye(N, dtype=bool)
    close(estimators.skce_biased(*data, weights=W), np.average(matrix, weights=np.outer(W, W)))
    for size in (2, 5, N):
        block = np.arange(N) // size
        pairs = (block[:, None] == block) & (block < N // size) & others
        expected = np.average(matrix, weights=np.outer(W, W) * pairs)
        close(estimators.skce_block(*data, block_size=size, weights=W), expected)
    close(estimators.skce(*data, weights=W), expected)


@pytest.mark.parametrize("kernel", [WHITE, laws.LOW_RANK], ids=["pairs", "low rank"])
def test_components_of_a_test(kernel):
    test = H.exact_skce_test(KEY, kernel, CLASSES, LABELS, weights=LAST, num_draws=19)
    matrix, w = np.asarray(oracles.calibration_kernel_matrix(kernel, CLASSES, LABELS)), LAST
    parts = test.components
    close(parts.biased.statistic, np.average(matrix, weights=np.outer(w, w)))
    close(parts.dispersion.statistic, np.average(matrix.diagonal(), weights=w**2))
    pairs = np.outer(w, w) * (1 - np.eye(N))
    close(parts.unbiased.statistic, np.average(matrix, weights=pairs))
    close(parts.num_targets, w.sum() ** 2 / (w**2).sum())


def test_one_weight_that_is_not_zero():
    """Also where the others vanish beside it: there is no pair."""
    compiled = jax.jit(functools.partial(estimators.skce, KERNEL))
    one = 1.0 * (np.arange(N) == 3)
    with pytest.raises(ValueError, match=r"weights.*at least 2 positive weights.*, got 1"):
        estimators.skce(KERNEL, NORMALS, TARGETS, weights=one)
    assert np.isnan(compiled(NORMALS, TARGETS, weights=one))
    single, vanishing = jax.tree.map(np.float32, CLASSES), np.where(one, 1e30, 1e-30)
    with pytest.raises(ValueError, match="at least 2 positive weights in float32, got 1"):
        estimators.skce(WHITE, single, LABELS, weights=vanishing)
    assert np.isfinite(estimators.skce(WHITE, CLASSES, LABELS, weights=vanishing))
    options = {"weights": np.where(one, 1e10, 1), "num_draws": 19}
    for test in (functools.partial(H.exact_skce_test, KEY, WHITE), H.aggregated_skce_test):
        key = () if isinstance(test, functools.partial) else (KEY,)
        with pytest.raises(ValueError, match="weights: expected at least two .* float32"):
            test(*key, single, LABELS, **options)
    assert 0 < H.exact_skce_test(KEY, WHITE, CLASSES, LABELS, **options).pvalue <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_sample_has_almost_all_the_weight(dtype):
    """The effective number of samples is 1 up to rounding; the mean is that of its own pairs.

    In bins, pairs whose weight is rounding are none.
    """
    random = np.random.default_rng(0)
    predictions, targets = Bernoulli(random.uniform(size=6).astype(dtype)), np.arange(6) % 2
    matrix = np.asarray(oracles.calibration_kernel_matrix(WHITE, predictions, targets), float)
    for small in (1e-3, 1e-9, 1e-15):
        weights = np.r_[1, np.full(5, small)]
        found = estimators.skce(WHITE, predictions, targets, weights=weights.astype(dtype))
        pairs = np.outer(weights, weights) * (1 - np.eye(6))
        close(found, np.average(matrix, weights=pairs), rtol=1e-5)
    predictions = Bernoulli(np.array([0.1, 0.2, 0.7, 0.8], dtype))
    for small in (1e-30, np.finfo(dtype).eps):
        options = {"binning": UniformBins(2), "weights": np.array([1, small, 0.5, 0.5], dtype)}
        # Half the weight is in a bin with the pair of residuals −0.3 and 0.8, of two classes.
        found = DEBIASED(predictions, np.array([1, 0, 1, 0]), **options)
        close(found, 0.5 * 2 * -0.3 * 0.8, rtol=1e-5)


@pytest.mark.parametrize("digits", [2, 8])
def test_bins_by_medians_are_those_of_copies(digits):
    """Three of four weights are 1, the others 3: an effective sample is two copies."""
    random = np.random.default_rng(digits)
    weights = random.permutation(np.repeat([1, 1, 1, 3], 15))
    probs = random.dirichlet(np.ones(4), 60).round(digits)
    probs[:, 0] = 1 - probs[:, 1:].sum(1)
    predictions = Categorical(np.abs(probs))
    filled = rows(predictions, np.r_[:60, 59:-1:-1])
    for size in (1, 10):
        copied = MedianVarianceBins(2 * size)(rows(predictions, np.repeat(np.arange(60), weights)))
        expected = np.asarray(copied)[np.cumsum(weights) - 1]
        binning = MedianVarianceBins(size)
        for factor in (1, 0.1, 0.7, 1 / 3, 1e-3):
            np.testing.assert_array_equal(binning(predictions, weights=factor * weights), expected)
        found = binning(filled, weights=np.r_[weights, np.zeros(60)])
        np.testing.assert_array_equal(found, np.r_[expected, expected[::-1]])


def test_bins_of_equal_weights():
    """Sums of 0.3 are rounded, and yet the bins are those without weights."""
    probs = np.random.default_rng(2).dirichlet(np.ones(3), 5000).astype(np.float32)
    predictions, weights = Categorical(probs / probs.sum(1, keepdims=True)), np.full(5000, 0.3)
    for binning in (EqualMassBins(10), EqualMassBins(7), MedianVarianceBins(50)):
        found = binning(predictions, weights=weights.astype(np.float32))
        np.testing.assert_array_equal(found, binning(predictions))


PIT = np.random.default_rng(8).uniform(size=N)


def test_coverage_and_histograms():
    levels = np.array([0.25, 0.75])
    options = {"weights": W, "levels": levels}
    below = [np.average(level >= PIT, weights=W) for level in levels]
    close(estimators.coverage_curve(KEY, PIT, kind="quantile", **options).coverage, below)
    inside = [np.average(np.abs(2 * PIT - 1) <= level, weights=W) for level in levels]
    close(estimators.coverage_curve(KEY, PIT, **options).coverage, inside)
    histogram = estimators.pit_counts(KEY, PIT, weights=W, num_bins=4)
    counts = np.histogram(PIT, 4, (0, 1), weights=W)[0] / W.sum() * EFFECTIVE
    close(histogram.counts, counts)
    # Centred at what uniform values give, as wide as their standard deviation, but for the ends.
    middle = (histogram.simultaneous_upper + histogram.simultaneous_lower) / 2
    close(middle[np.asarray(histogram.simultaneous_lower) > 0], EFFECTIVE / 4, rtol=1e-9)


def test_all_values_are_inside_together():
    """Sums of all weights differ by rounding in another order, which is no reason to be outside."""
    random = np.random.default_rng(0)
    options = {"kind": "quantile", "levels": np.array([0.94, 0.95]), "num_draws": 19}
    for _ in range(20):
        weights, values = np.exp(random.normal(size=16)), random.uniform(0, 0.9, 16)
        curve = estimators.coverage_curve(KEY, values, weights=weights, **options)
        close(curve.coverage, 1)
        assert not np.any(curve.is_outside)


def test_points_without_weights_near_them():
    w, near = (CONFIDENCES > 0.5).astype(float), Neighbourhood.laplacian(0.7, 2)
    np.testing.assert_array_equal(np.isnan(estimators.lce(near, *LOCAL, weights=w)), w == 0)
    assert np.isfinite(estimators.mlce(near, *LOCAL, weights=w))


_random = np.random.default_rng(11)
QUANTILES = Quantiles(np.tile([0.1, 0.5, 0.9], (N, 1)), np.sort(_random.normal(size=(N, 3)), 1))
MEMBERS = Ensemble(_random.normal(size=(N, 3)))
GROUPS = _random.uniform(size=(N, 2)) < 0.6


def test_statistics_of_tests():
    u, options = LAST * LAST.sum() / (LAST**2).sum(), {"weights": LAST, "num_draws": 49}
    test = H.coverage_test(KEY, QUANTILES, TARGETS, **options)
    below = TARGETS[:, None] <= QUANTILES.values
    close(test.estimate["levels"], np.average(below, 0, weights=LAST) - [0.1, 0.5, 0.9])
    central = np.average(below[:, 2] & ~below[:, 0], weights=LAST) - 0.8
    close(test.estimate["central"], [central])

    test = H.rank_histogram_test(KEY, MEMBERS, TARGETS, **options)
    ranks = (MEMBERS.values < TARGETS[:, None]).sum(1)
    numbers, n = np.bincount(ranks, u, 4), u.sum()
    close(test.statistic, ((numbers - n / 4) ** 2 / (n / 4)).sum())
    close(test.estimate, numbers / n)

    near = Neighbourhood.laplacian(1.0, 1)
    test = H.local_calibration_test(KEY, near, *LOCAL, **options)
    errors = estimators.lce(near, *LOCAL, weights=LAST)
    close(test.statistic, np.r_[errors[: laws.COUNT], 0, 0])
    np.testing.assert_array_equal(test.pvalue[laws.COUNT :], 1)

    test = H.group_calibration_test(KEY, NORMALS, TARGETS, GROUPS, **options)
    errors = TARGETS - NORMALS.loc
    close(test.estimate, [np.average(errors[g], weights=LAST[g]) for g in GROUPS.T])
