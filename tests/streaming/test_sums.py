"""Bins, mean scores and blocks in batches: the numbers of all samples at once."""

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distances, distributions, estimators, hypothesis_tests, scores
from calibjax.estimators import UniformBins
from calibjax.streaming import SKCE, CalibrationBins, ExactSKCETest, MeanScore
from calibjax.streaming.sums import Sum
from tests import oracles
from tests.streaming.batches import result_of
from tests.weights.laws import LOW_RANK

RNG = np.random.default_rng(4)
PROBS, LABELS = RNG.dirichlet(np.ones(3), 60), RNG.integers(0, 3, 60)
PROBS[:4] = [[0.1, 0.2, 0.7], [1, 0, 0], [0.3, 0.3, 0.4], [0, 0.5, 0.5]]  # edges of bins
CLASSES = distributions.Categorical(PROBS)
BINNING = UniformBins(10)
PARTS = np.arange(1), np.arange(1, 40), np.arange(40, 60)


@pytest.mark.parametrize("num_bins", [1, 4])
def test_bins(num_bins):
    binning, distance = UniformBins(num_bins), distances.Euclidean()
    data = distributions.Bernoulli(PROBS[:, 0]), LABELS == 0
    accumulator = CalibrationBins(binning, distance)
    found = result_of(accumulator, *data, PARTS)
    for name in ("ece", "mce"):
        expected = getattr(estimators, name)(*data, binning=binning, distance=distance)
        assert_allclose(getattr(found, name), expected, rtol=1e-12)
    assert found.counts.shape == (num_bins,)
    assert found.counts.sum() == 60
    many = dataclasses.replace(
        accumulator.init(), counts={"sizes": jnp.full(num_bins, -1, jnp.int32)}
    )
    with pytest.raises(ValueError, match=r"at least 1 sample, got more than 2³¹"):
        accumulator.result(many)


def test_bins_of_several_classes_are_refused():
    accumulator = CalibrationBins(BINNING)
    with pytest.raises(TypeError, match=r"predictions: expected Bernoulli, got Categorical"):
        accumulator.update(accumulator.init(), CLASSES, LABELS)


N = 12
LOC = RNG.normal(size=N)
DATA = distributions.Normal(LOC, RNG.uniform(0.5, 1.5, N)), LOC + RNG.normal(size=N) + 0.5
ERRORS = np.abs(DATA[1] - LOC)
KERNEL = oracles.normal_kernel()


def error(predictions, targets):
    return jnp.abs(targets - predictions.loc)


@pytest.mark.parametrize("weights", [np.ones(N), np.array([0.0, 1.0, 2.0, 0.5] * 3)])
def test_means_of_any_function(weights):
    mean, n = np.average(ERRORS, weights=weights), np.sum(weights > 0)
    squares = np.sum(weights**2 * (ERRORS - mean) ** 2) / weights.sum() ** 2
    for parts in ([[3], np.arange(3), np.arange(4, N)], [np.arange(N)[::-1]]):
        found = result_of(MeanScore(error), *DATA, parts, weights=weights)
        assert_allclose(found.value, mean, rtol=1e-14)
        assert_allclose(found.standard_error, np.sqrt(squares * n / (n - 1)), rtol=1e-12)


@pytest.mark.parametrize("score", [scores.negative_log_likelihood, scores.crps])
def test_scores_of_the_package(score):
    """They return the mean of a batch, and are called on one sample at a time."""
    found = result_of(MeanScore(score), *DATA, [np.arange(5), np.arange(5, N)])
    assert_allclose(found.value, score(*DATA), rtol=1e-13)
    rows = [jax.tree.map(lambda leaf: leaf[i : i + 1], DATA) for i in range(N)]  # noqa: B023
    each = np.array([score(*row) for row in rows])
    assert_allclose(found.standard_error, each.std(ddof=1) / np.sqrt(N), rtol=1e-12)


def test_infinite_scores():
    """A label of probability zero: the mean is infinite, and has no standard error."""
    predictions = distributions.Bernoulli(np.array([0.5, 0.0, 0.25, 0.5]))
    parts = np.arange(2), np.arange(2, 4)
    accumulator = MeanScore(scores.negative_log_likelihood)
    found = result_of(accumulator, predictions, np.array([0, 1, 1, 1]), parts)
    assert found.value == np.inf
    assert np.isnan(found.standard_error)


def test_long_sums_in_float32():
    """Samples one by one: plain sums would lose 7e-6 of the mean."""
    with jax.enable_x64(False):
        accumulator = MeanScore(error)
        values = np.random.default_rng(0).normal(10, 1, 200_000).astype(np.float32)
        zero = distributions.Normal(jnp.zeros(1), jnp.ones(1))
        step = lambda state, x: (accumulator.update(state, zero, x[None]), None)  # noqa: E731
        state, _ = jax.jit(lambda x: jax.lax.scan(step, accumulator.init(), x))(values)
        found = accumulator.result(state)
    exact = values.astype(np.float64)
    assert found.value.dtype == np.float32
    assert_allclose(found.value, exact.mean(), rtol=2e-7)
    expected = exact.std(ddof=1) / np.sqrt(exact.size)
    assert_allclose(found.standard_error, expected, rtol=1e-4)


def test_sums_lose_nothing():
    terms = np.array([1.0, 1e17, 3.0, -1e17, 1e-3])
    parts = []
    for some in (terms[:2], terms[2:]):
        total = Sum(jnp.zeros(()), jnp.zeros(()))
        for term in some:
            total = jax.jit(Sum.plus)(total, term)
        parts.append(total)
    total = parts[0].plus(parts[1].value, parts[1].lost).total()
    assert_allclose(total, 4.001, rtol=1e-14)  # the plain sum is 1e-3
    assert float(parts[0].plus(jnp.inf).plus(1.0).total()) == np.inf


def test_wrong_scores():
    accumulator = MeanScore(error)
    state = accumulator.init()
    one = accumulator.result(accumulator.update(state, *jax.tree.map(lambda x: x[:1], DATA)))
    assert_allclose(one.value, ERRORS[0])
    with pytest.raises(ValueError, match=r"score\(predictions, targets\): .* or their mean, got"):
        MeanScore(lambda p, y: jnp.max(y)).update(state, *DATA)
    without_weight = accumulator.update(state, *DATA, weights=np.zeros(N))
    with pytest.raises(ValueError, match=r"at least 1 sample with a weight > 0, got 0"):
        accumulator.result(without_weight)


def test_blocks():
    accumulator = SKCE(KERNEL, block_size=3, confidence_level=0.9)
    found = result_of(accumulator, *DATA, [np.arange(6, 12), np.arange(6)])
    estimate = estimators.skce_block(KERNEL, *DATA, block_size=3)
    assert_allclose(found.estimate, estimate, rtol=1e-12)
    options = {"null": "blocks", "block_size": 3}
    test = hypothesis_tests.asymptotic_skce_test(None, KERNEL, *DATA, **options)
    assert_allclose(found.estimate / found.standard_error, test.statistic, rtol=1e-11)
    reach = 1.6448536269514722 * found.standard_error
    assert_allclose([found.low, found.high], estimate + reach * np.array([-1, 1]), rtol=1e-12)


def test_blocks_are_whole_and_differ():
    five, two = SKCE(KERNEL, block_size=5), SKCE(KERNEL, block_size=2)
    with pytest.raises(ValueError, match=r"predictions: expected whole blocks of 5 samples"):
        five.update(five.init(), *DATA)
    equal = distributions.Normal(np.zeros(4), np.ones(4))
    assert np.isnan(two.result(two.update(two.init(), equal, np.ones(4))).low)
    with pytest.raises(ValueError, match=r"b: expected a state of this accumulator"):
        two.merge(two.init(), CalibrationBins(BINNING).init())


def test_states_in_files(tmp_path):
    accumulator = ExactSKCETest(jax.random.key(0), LOW_RANK, num_draws=9)
    data = CLASSES, LABELS
    state = accumulator.update(accumulator.init(), *data)
    leaves, structure = jax.tree.flatten(state)
    np.savez(tmp_path / "state.npz", *leaves)
    with np.load(tmp_path / "state.npz") as file:
        read = jax.tree.unflatten(structure, [file[key] for key in file])
    expected = accumulator.result(accumulator.update(state, *data))
    for again in (read, pickle.loads(pickle.dumps(state))):
        found = accumulator.result(accumulator.update(again, *data))
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    narrow = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == float else x, state)
    with pytest.raises(ValueError, match=r"state: expected a state of this accumulator"):
        accumulator.result(narrow)
