import functools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from calibjax.streaming import SKCE, ExactSKCETest
from tests.streaming.batches import merged, result_of, states_of

N, B = 12, 19
KEY = jax.random.key(3)
_random = np.random.default_rng(5)
LOC, SCALE = _random.normal(size=N), _random.uniform(0.5, 1.5, N)
TARGETS = LOC + _random.normal(size=N)
LABELS = _random.integers(0, 2, N)
_OF_NORMALS = kernels.Nystrom(
    kernels.Exponential(1.0, distances.Wasserstein()), distributions.Normal(LOC[:4], SCALE[:4])
)
_OF_CLASSES = kernels.Nystrom(
    kernels.SquaredExponential(0.3, distances.TotalVariation()),
    distributions.Bernoulli(np.array([0.1, 0.5, 0.9])),
)
CASES = {
    "normal": (
        kernels.TensorProduct(_OF_NORMALS, kernels.SquaredExponential(1.0)),
        distributions.Normal(LOC, SCALE),
        TARGETS,
    ),
    # Few different statistics: many redraws are equal to the observed targets but for rounding.
    "equal": (
        kernels.TensorProduct(_OF_CLASSES, kernels.White()),
        distributions.Bernoulli(np.full(N, 0.3)),
        LABELS,
    ),
}


def indexed(accumulator, case, batches):
    return result_of(accumulator, *CASES[case][1:], batches, indices=np.arange(N))


@functools.cache
def in_one(case):
    test = ExactSKCETest(KEY, CASES[case][0], num_draws=B)
    return test, indexed(test, case, [np.arange(N)])


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_exact_test(case):
    """JAX's default generator gives sample i of a data set the numbers that belong to index i."""
    _, found = in_one(case)
    expected = hypothesis_tests.exact_skce_test(KEY, *CASES[case], num_draws=B)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert found.pvalue == expected.pvalue
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert_allclose(one, two, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_neither_batches_nor_their_order_matter(case):
    test, expected = in_one(case)
    random = np.random.default_rng(2)
    shuffled = random.permutation(N)
    for batches in (shuffled.reshape(-1, 1), np.split(shuffled, [3, 7])):
        found = indexed(test, case, [batches[i] for i in random.permutation(len(batches))])
        assert found.pvalue == expected.pvalue
        for name in ("biased", "unbiased", "dispersion"):
            one, two = (getattr(result.components, name) for result in (found, expected))
            assert one.pvalue == two.pvalue
            scale = np.abs(two.null_samples).max()
            assert_allclose(one.statistic, two.statistic, rtol=0, atol=1e-12 * scale)
            assert_allclose(one.null_samples, two.null_samples, rtol=0, atol=1e-12 * scale)
    if case == "equal":
        return  # whose sums do not depend on which sample has which redraw
    # Another order of the indices are other redraws.
    indices = np.arange(N)[::-1]
    other = test.result(test.update(test.init(), *CASES[case][1:], indices=indices))
    assert np.any(other.null_samples != expected.null_samples)


def test_consecutive_numbers_are_the_default():
    test, expected = in_one("normal")
    step = lambda state, batch: (test.update(state, *batch), None)  # noqa: E731

    @jax.jit
    def scan(data):
        state, _ = jax.lax.scan(step, test.init(), in_batches(data))
        return state, test.result(state)

    state, compiled = scan(CASES["normal"][1:])
    for found in (compiled, test.result(state)):
        assert found.pvalue == expected.pvalue
        assert_allclose(found.estimate, expected.estimate, atol=1e-13)
    assert int(state.counts["samples"]) == N


def in_batches(tree):
    return jax.tree.map(lambda x: x.reshape(3, 4), tree)


def test_states_that_number_their_samples_alike_are_refused():
    test, _ = in_one("normal")
    batches = np.arange(N).reshape(2, -1)
    state = merged(test, states_of(test, *CASES["normal"][1:], batches))
    with pytest.raises(ValueError, match=r"state: expected samples of different indices"):
        test.result(state)
    assert np.isnan(jax.jit(test.result)(state).pvalue)


def test_sums_over_devices():
    """States are sums, so that `psum` merges them; here over an axis of `vmap`."""
    test, expected = in_one("normal")

    def of_device(predictions, targets, indices):
        state = test.update(test.init(), predictions, targets, indices=indices)
        return jax.lax.psum(state, "devices")

    data = in_batches((*CASES["normal"][1:], np.arange(N)))
    states = jax.jit(jax.vmap(of_device, axis_name="devices"))(*data)
    found = test.result(jax.tree.map(lambda leaf: leaf[0], states))
    assert found.pvalue == expected.pvalue
    assert_allclose(found.estimate, expected.estimate, atol=1e-13)


def test_example_targets_widen_the_range():
    kernel, predictions, _ = CASES["normal"]
    far = np.where(np.arange(N) == 0, 25.0, 0.0) + TARGETS
    expected = estimators.skce(kernel, predictions, far)
    found = {}
    for name, examples in (("without", None), ("with", np.array([-4.0, 30.0]))):
        accumulator = SKCE(kernel, examples)
        state = accumulator.update(accumulator.init(), predictions, far)
        found[name] = accumulator.result(state).unbiased
    assert_allclose(found["with"], expected, rtol=1e-10)
    assert abs(found["without"] - expected) > 1e-6 * abs(expected)


def test_targets_beyond_the_features_are_refused():
    product = CASES["normal"][0]
    narrow = kernels.TensorProduct(product.prediction, kernels.SquaredExponential(0.01))
    with pytest.raises(ValueError, match=r"kernel.target: expected a kernel with few features"):
        SKCE(narrow).init()
