"""Weights of accumulators: those of all data at once, in batches that have weights or none."""

import jax
import numpy as np
import pytest

from calibjax import estimators, scores
from calibjax.distributions import Bernoulli
from calibjax.hypothesis_tests import exact_skce_test
from calibjax.streaming import SKCE, CalibrationBins, ExactSKCETest, MeanScore
from tests.weights.laws import (
    CLASSES,
    CONFIDENCES,
    CORRECT,
    KERNEL,
    KEY,
    LABELS,
    LOW_RANK,
    NORMALS,
    TARGETS,
    WEIGHTS,
    N,
    close,
    rows,
)

BINARY = Bernoulli(CONFIDENCES)
PARTS = np.arange(4), np.arange(4, 10), np.arange(10, N)


def streamed(accumulator, data, weights):
    """The result for batches; those whose weights are all one come without them."""
    total = accumulator.init()
    for part in PARTS:
        w = None if weights is None else weights[part]
        one = rows(data, part)
        given = {} if w is None or np.all(w == 1) else {"weights": w}
        if isinstance(accumulator, ExactSKCETest):
            given["indices"] = part
        total = accumulator.merge(total, accumulator.update(accumulator.init(), *one, **given))
    return accumulator.result(total)


CASES = {
    "SKCE": (SKCE(LOW_RANK), (CLASSES, LABELS)),
    "blocks": (SKCE(KERNEL, block_size=2), (NORMALS, TARGETS)),
    "bins": (CalibrationBins(estimators.UniformBins(3)), (BINARY, CORRECT)),
    "score": (MeanScore(scores.negative_log_likelihood), (CLASSES, LABELS)),
}


@pytest.mark.parametrize("name", CASES)
def test_no_weights_are_ones_in_one_state_with_others(name):
    accumulator, data = CASES[name]
    weights = np.r_[np.ones(10), 1.5, 2.5]
    mixed = accumulator.update(accumulator.init(), *rows(data, range(10)))
    mixed = accumulator.update(mixed, *rows(data, [10, 11]), weights=weights[10:])
    every = accumulator.update(accumulator.init(), *data, weights=weights)
    close(accumulator.result(mixed), accumulator.result(every))


def test_numbers_are_those_of_all_data_at_once():
    skce = streamed(*CASES["SKCE"], WEIGHTS)
    data = LOW_RANK, CLASSES, LABELS
    np.testing.assert_allclose(skce.unbiased, estimators.skce(*data, weights=WEIGHTS), rtol=1e-9)
    biased = estimators.skce_biased(*data, weights=WEIGHTS)
    np.testing.assert_allclose(skce.biased, biased, rtol=1e-9)
    blocks = streamed(*CASES["blocks"], WEIGHTS)
    data, options = (KERNEL, NORMALS, TARGETS), {"block_size": 2, "weights": WEIGHTS}
    np.testing.assert_allclose(blocks.estimate, estimators.skce_block(*data, **options), rtol=1e-9)
    bins = streamed(*CASES["bins"], WEIGHTS)
    options = {"binning": estimators.UniformBins(3), "weights": WEIGHTS}
    for name in ("ece", "mce"):
        expected = getattr(estimators, name)(BINARY, CORRECT, **options)
        np.testing.assert_allclose(getattr(bins, name), expected, rtol=1e-10)
    place = np.asarray(estimators.UniformBins(3)(BINARY))[::-1]
    assert bins.counts.sum() == np.sum(WEIGHTS > 0)
    assert bins.weights.sum() == WEIGHTS.sum()
    curve = estimators.reliability_curve(KEY, BINARY, CORRECT, **options)
    used = curve.counts > 0
    np.testing.assert_allclose(bins.proportions[bins.counts > 0, 1], curve.frequency[used])
    assert place.size == N


def test_exact_tests():
    test = ExactSKCETest(KEY, LOW_RANK, num_draws=39)
    weights = np.r_[2.0, 3, 1, 1, 1.5, 2, 1, 1, 2, 0.5, 0, 0]
    found = streamed(test, (CLASSES, LABELS), weights)
    expected = exact_skce_test(KEY, LOW_RANK, CLASSES, LABELS, weights=weights, num_draws=39)
    for field in ("statistic", "estimate", "pvalue", "null_samples"):
        close(getattr(found, field), getattr(expected, field), 1e-9)
    close(streamed(test, (CLASSES, LABELS), 1e3 * weights).null_samples, found.null_samples, 1e-9)
    plain = streamed(test, (CLASSES, LABELS), None)
    assert not np.allclose(plain.null_samples, found.null_samples)
    close(streamed(test, (CLASSES, LABELS), np.full(N, 0.3)).null_samples, plain.null_samples, 1e-9)
    wrong = jax.jit(test.update)(test.init(), CLASSES, LABELS, weights=-weights)
    assert np.isnan(jax.jit(test.result)(wrong).pvalue)
    one = test.update(test.init(), CLASSES, LABELS, weights=1.0 * (np.arange(N) == 3))
    with pytest.raises(ValueError, match=r"at least 2 samples with a weight > 0, got 1"):
        test.result(one)
