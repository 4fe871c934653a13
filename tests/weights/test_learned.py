"""Weights of what is learned or streamed, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from calibjax import estimators, recalibration, scores
from calibjax.distributions import Bernoulli, Categorical, Quantiles
from calibjax.hypothesis_tests import exact_skce_test
from calibjax.streaming import SKCE, CalibrationBins, ExactSKCETest, MeanScore
from tests.streaming.batches import merged, states_of
from tests.weights import laws
from tests.weights.laws import CLASSES, CONFIDENCES, CORRECT, LABELS, NORMALS, TARGETS, close, rows


def test_shares_of_weights_below_one():
    """A sample of weight w < 1 is in the middle of w and the share of 1 that is between samples."""
    weights = np.array([0.5, 3.0, 0.0, 0.25])
    levels = np.array([0.75, 2.0, 3.0, 4.0, 4.125]) / 4.75  # first and last of three copies
    values = np.array([1.0, 2.0, 2.0, 2.0, 5.0])
    forecast = Quantiles(levels[:-1:2], np.zeros((4, 2)))
    found = recalibration.QuantileShift().fit(forecast, [1.0, 2.0, 9.0, 5.0], weights=weights)
    close(found.shifts, np.interp(levels[:-1:2], levels, values))


def test_local_recalibration_without_samples_that_count():
    """The nearest sample does not count, and is nearer than numbers can say."""
    near = estimators.Neighbourhood.laplacian(1e-3, 1)
    method = recalibration.LocalRecalibration(near)
    features, weights = np.array([[0.0], [9.0], [9.5]]), np.array([0.0, 1.0, 3.0])
    params = method.fit(np.array([0.5, 0.6, 0.7]), np.array([0, 1, 0]), features, weights=weights)
    assert method.apply(params, np.array([0.5]), np.array([[0.0]])) == 1.0


@pytest.mark.parametrize("method", [recalibration.PlattScaling(), recalibration.AffineScaling()])
def test_derivatives_by_weights(method):
    """Where some are zero, too, they are those of weights that go there."""
    is_platt = isinstance(method, recalibration.PlattScaling)
    data = (CONFIDENCES, CORRECT) if is_platt else (NORMALS, TARGETS)
    fit = lambda w: jax.tree.leaves(method.fit(*data, weights=w))  # noqa: E731
    weights = jnp.asarray(laws.WEIGHTS, float)
    check_grads(fit, (weights + 0.5,), 1, modes=["rev"], rtol=1e-4)
    close(jax.jacrev(fit)(weights), jax.jacrev(fit)(weights + 1e-9), 1e-6)


def test_what_does_not_count_for_a_fit_may_be_impossible():
    probs, labels = np.array([[0.25, 0.75], [1.0, 0.0], [0.4, 0.6], [0.3, 0.7]]), [0, 1, 1, 1]
    labels, weights, rest = np.array(labels), np.array([1.0, 0.0, 3.0, 1.0]), [0, 2, 3]
    fit = recalibration.TemperatureScaling().fit
    expected = fit(Categorical(probs[rest]), labels[rest], weights=weights[rest])
    close(fit(Categorical(probs), labels, weights=weights), expected, 1e-7)


BINARY, BINS = Bernoulli(CONFIDENCES), estimators.UniformBins(3)
PARTS = np.arange(4), np.arange(4, 10), np.arange(10, laws.N)
CASES = {
    "SKCE": (SKCE(laws.LOW_RANK), (CLASSES, LABELS)),
    "blocks": (SKCE(laws.KERNEL, block_size=2), (NORMALS, TARGETS)),
    "bins": (CalibrationBins(BINS), (BINARY, CORRECT)),
    "score": (MeanScore(scores.negative_log_likelihood), (CLASSES, LABELS)),
}


def streamed(accumulator, data, **others):
    return accumulator.result(merged(accumulator, states_of(accumulator, *data, PARTS, **others)))


@pytest.mark.parametrize("name", CASES)
def test_no_weights_are_ones_in_one_state_with_others(name):
    accumulator, data = CASES[name]
    weights = np.r_[np.ones(10), 1.5, 2.5]
    mixed = accumulator.update(accumulator.init(), *rows(data, range(10)))
    mixed = accumulator.update(mixed, *rows(data, [10, 11]), weights=weights[10:])
    close(accumulator.result(mixed), streamed(accumulator, data, weights=weights))


def test_streams_are_all_data_at_once():
    weights = {"weights": laws.WEIGHTS}
    found = {name: streamed(*case, **weights) for name, case in CASES.items()}
    data = laws.LOW_RANK, CLASSES, LABELS
    close(found["SKCE"].unbiased, estimators.skce(*data, **weights), 1e-9)
    close(found["SKCE"].biased, estimators.skce_biased(*data, **weights), 1e-9)
    data = laws.KERNEL, NORMALS, TARGETS
    close(found["blocks"].estimate, estimators.skce_block(*data, block_size=2, **weights), 1e-9)
    bins, options = found["bins"], {"binning": BINS} | weights
    for name in ("ece", "mce"):
        close(getattr(bins, name), getattr(estimators, name)(BINARY, CORRECT, **options))
    assert bins.counts.sum() == np.sum(laws.WEIGHTS > 0)
    assert bins.weights.sum() == laws.WEIGHTS.sum()
    curve = estimators.reliability_curve(laws.KEY, BINARY, CORRECT, **options)
    close(bins.proportions[bins.counts > 0, 1], curve.frequency[curve.counts > 0], 1e-7)


def test_streamed_exact_test():
    test = ExactSKCETest(laws.KEY, laws.LOW_RANK, num_draws=39)
    data, options = (CLASSES, LABELS), {"weights": laws.OF_REDRAWS}
    found = streamed(test, data, indices=np.arange(laws.N), **options)
    expected = exact_skce_test(laws.KEY, laws.LOW_RANK, *data, num_draws=39, **options)
    for field in ("statistic", "estimate", "pvalue", "null_samples"):
        close(getattr(found, field), getattr(expected, field), 1e-9)
    one = test.update(test.init(), *data, weights=1.0 * (np.arange(laws.N) == 3))
    with pytest.raises(ValueError, match=r"at least 2 samples with a weight > 0, got 1"):
        test.result(one)
