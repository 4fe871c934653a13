import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels, scores
from calibjax.streaming import SKCE, MeanScore
from tests.streaming.batches import merged, states_of

RNG = np.random.default_rng(2)
N = 12
LOC, SCALE = RNG.normal(size=N), RNG.uniform(0.5, 1.5, N)
TARGETS = LOC + RNG.normal(size=N) + 0.5
PREDICTIONS = distributions.Normal(LOC, SCALE)
KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)


def error(predictions, targets):
    return jnp.abs(targets - predictions.loc)


def result_of(accumulator, parts, **others):
    states = states_of(accumulator, PREDICTIONS, TARGETS, parts, **others)
    return accumulator.result(merged(accumulator, states))


def test_mean_of_any_function():
    accumulator = MeanScore(error)
    values = np.abs(TARGETS - LOC)
    for parts in ([[3], np.arange(3), np.arange(4, N)], [np.arange(N)[::-1]]):
        found = result_of(accumulator, parts)
        assert_allclose(found.value, values.mean(), rtol=1e-14)
        expected = values.std(ddof=1) / np.sqrt(N)
        assert_allclose(found.standard_error, expected, rtol=1e-13)


@pytest.mark.parametrize("score", [scores.negative_log_likelihood, scores.crps])
def test_scores_of_the_package(score):
    """They return the mean of a batch, and are called on one sample at a time."""
    accumulator = MeanScore(score)
    found = result_of(accumulator, [np.arange(5), np.arange(5, N)])
    assert_allclose(found.value, score(PREDICTIONS, TARGETS), rtol=1e-13)
    rows = [jax.tree.map(lambda leaf: leaf[i : i + 1], (PREDICTIONS, TARGETS)) for i in range(N)]  # noqa: B023
    each = np.array([score(*row) for row in rows])
    assert_allclose(found.standard_error, each.std(ddof=1) / np.sqrt(N), rtol=1e-12)


def test_weights():
    weights = np.array([0.0, 1.0, 2.0, 0.5] * 3)
    accumulator = MeanScore(error)
    parts = [np.arange(7), np.arange(7, N)]
    found = result_of(accumulator, parts, weights=weights)
    values, n = np.abs(TARGETS - LOC), np.sum(weights > 0)
    mean = np.average(values, weights=weights)
    assert_allclose(found.value, mean, rtol=1e-14)
    squares = np.sum(weights**2 * (values - mean) ** 2) / weights.sum() ** 2
    assert_allclose(found.standard_error, np.sqrt(squares * n / (n - 1)), rtol=1e-12)


def test_infinite_scores():
    """A label of probability zero: the mean is infinite, and has no standard error."""
    accumulator = MeanScore(scores.negative_log_likelihood)
    state = accumulator.init()
    for probs, labels in (([0.5, 0.0], [0, 1]), ([0.25, 0.5], [1, 1])):
        predictions = distributions.Bernoulli(np.array(probs))
        state = accumulator.update(state, predictions, np.array(labels))
    found = accumulator.result(accumulator.merge(state, accumulator.init()))
    assert found.value == np.inf
    assert np.isnan(found.standard_error)


def test_long_sums_in_float32():
    """Samples one by one: plain sums would lose 7e-6 of the mean."""
    with jax.enable_x64(False):
        accumulator = MeanScore(error)
        values = np.random.default_rng(0).normal(10, 1, 200_000).astype(np.float32)
        zero = distributions.Normal(jnp.zeros(1), jnp.ones(1))

        @jax.jit
        def scan(values):
            def step(state, value):
                return accumulator.update(state, zero, value[None]), None

            return accumulator.result(jax.lax.scan(step, accumulator.init(), values)[0])

        found = scan(values)
    exact = values.astype(np.float64)
    assert found.value.dtype == np.float32
    assert_allclose(found.value, exact.mean(), rtol=2e-7)
    expected = exact.std(ddof=1) / np.sqrt(exact.size)
    assert_allclose(found.standard_error, expected, rtol=1e-4)


def test_wrong_scores():
    state = MeanScore(error).init()
    with pytest.raises(ValueError, match=r"score\(predictions, targets\): .* or their mean, got"):
        MeanScore(lambda p, y: jnp.max(y)).update(state, PREDICTIONS, TARGETS)
    accumulator = MeanScore(error)
    without_weight = accumulator.update(state, PREDICTIONS, TARGETS, weights=np.zeros(N))
    with pytest.raises(ValueError, match=r"at least 1 sample with a weight > 0, got 0"):
        accumulator.result(without_weight)


def test_blocks():
    accumulator = SKCE(KERNEL, block_size=3, confidence_level=0.9)
    found = result_of(accumulator, [np.arange(6, 12), np.arange(6)])
    estimate = estimators.skce_block(KERNEL, PREDICTIONS, TARGETS, block_size=3)
    assert_allclose(found.estimate, estimate, rtol=1e-12)
    test = hypothesis_tests.asymptotic_skce_test(
        None, KERNEL, PREDICTIONS, TARGETS, null="blocks", block_size=3
    )
    assert_allclose(found.estimate / found.standard_error, test.statistic, rtol=1e-11)
    reach = 1.6448536269514722 * found.standard_error
    assert_allclose(found.low, found.estimate - reach, rtol=1e-12)
    assert_allclose(found.high, found.estimate + reach, rtol=1e-12)


def test_blocks_are_whole_and_differ():
    accumulator = SKCE(KERNEL, block_size=5)
    with pytest.raises(ValueError, match=r"predictions: expected whole blocks of 5 samples"):
        accumulator.update(accumulator.init(), PREDICTIONS, TARGETS)
    equal = distributions.Normal(np.zeros(4), np.ones(4))
    two = SKCE(KERNEL, block_size=2)
    assert np.isnan(two.result(two.update(two.init(), equal, np.ones(4))).low)


def test_blocks_are_no_scores():
    """The sums of both have the same shapes."""
    blocks, score = SKCE(KERNEL, block_size=3), MeanScore(error)
    for accumulator, other in ((blocks, score), (score, blocks)):
        with pytest.raises(ValueError, match=r"state: expected a state of this accumulator"):
            accumulator.result(other.init())
        with pytest.raises(ValueError, match=r"b: expected a state of this accumulator"):
            accumulator.merge(accumulator.init(), other.init())
