"""Blocks of predictions on a line, end to end, against all pairs and the exact test of all data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from calibjax.streaming import SKCE, ExactSKCETest
from tests.streaming.test_skce import merged, part

N, B = 40, 19
KEY = jax.random.key(3)
_random = np.random.default_rng(8)
_PROBS = np.sort(_random.uniform(size=N))
_LOC = np.sort(np.round(_random.normal(size=N), 1))  # some are equal
_WEIGHTS = _random.uniform(size=N) * (_random.uniform(size=N) < 0.9)
_MIXED = kernels.Exponential(0.1) + 2.0 * kernels.Matern52(0.3) + kernels.Constant()


def bernoulli(kernel):
    predictions = distributions.Bernoulli(_PROBS)
    labels = (np.random.default_rng(1).uniform(size=N) < _PROBS).astype(int)
    example = distributions.Bernoulli(np.array([0.5]))
    return kernels.TensorProduct(kernel, kernels.White()), predictions, labels, example


def normals(scale):
    """Normals with a common scale, in any units."""
    distance = distances.Wasserstein()
    kernel = kernels.TensorProduct(
        kernels.Matern32(0.5 * scale, distance), kernels.SquaredExponential(scale)
    )
    predictions = distributions.Normal(scale * _LOC, np.full(N, 0.7 * scale))
    targets = scale * (_LOC + np.random.default_rng(2).normal(size=N))
    ends = distributions.Normal(scale * np.array([-4.0, 4.0]), np.full(2, 0.7 * scale))
    return kernel, predictions, targets, ends


CASES = {
    "exponential": bernoulli(kernels.Exponential(0.1)),
    "mixed": bernoulli(_MIXED),
    "normal": normals(1.0),
    "small": normals(1e-7),
    "large": normals(1e7),
}
BLOCKS = np.split(np.arange(N), [13, 14, 27])  # of two lengths
ORDERS = ([0, 1, 2, 3], [3, 2, 1, 0], [2, 1, 3, 0])


def weights_of(rows, weighted):
    return _WEIGHTS[rows] if weighted else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_estimates_against_all_pairs(case, weighted):
    kernel, predictions, targets, examples = CASES[case]
    accumulator = SKCE(kernel, example_predictions=examples)
    shuffled = [np.random.default_rng(0).permutation(rows) for rows in BLOCKS]
    states = [
        accumulator.update(
            accumulator.init(),
            part(predictions, rows),
            targets[rows],
            weights=weights_of(rows, weighted),
        )
        for rows in shuffled
    ]
    matrix = np.asarray(estimators.calibration_kernel_matrix(kernel, predictions, targets))
    w = _WEIGHTS if weighted else np.ones(N)
    # As for all data at once: effective sample size n, and weights whose sum is n.
    n = w.sum() ** 2 / np.sum(w**2)
    w *= n / w.sum()
    total, diagonal = w @ matrix @ w, w**2 @ np.diag(matrix)
    for order in ORDERS:
        found = accumulator.result(
            merged(accumulator, [accumulator.init(), *states], [0] + [i + 1 for i in order])
        )
        np.testing.assert_allclose(found.unbiased, (total - diagonal) / (n * (n - 1)), rtol=1e-10)
        expected = estimators.skce_biased(
            kernel, predictions, targets, weights=weights_of(np.arange(N), weighted)
        )
        np.testing.assert_allclose(found.biased, expected, rtol=1e-10)


@pytest.mark.parametrize("case", ["mixed", "normal"])
@pytest.mark.parametrize("order", ORDERS)
def test_it_is_the_exact_test(case, order):
    kernel, predictions, targets, examples = CASES[case]
    test = ExactSKCETest(KEY, kernel, num_draws=B, example_predictions=examples)
    state = test.init()
    for i in order:
        rows = BLOCKS[i]
        state = test.update(state, part(predictions, rows), targets[rows], indices=rows)
    found = test.result(state)
    expected = hypothesis_tests.exact_skce_test(KEY, kernel, predictions, targets, num_draws=B)
    assert found.pvalue == expected.pvalue
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-10)


def test_single_precision():
    """A hundred blocks of 200 samples in float32."""
    random = np.random.default_rng(4)
    probs = np.sort(random.uniform(size=20_000)).astype(np.float32)
    labels = (random.uniform(size=20_000) < probs**1.5).astype(int)
    kernel, *_, example = CASES["mixed"]
    with jax.enable_x64(False):
        accumulator = SKCE(kernel, example_predictions=part(example, np.arange(1)))
        state = accumulator.init()
        update = jax.jit(accumulator.update)
        for rows in np.split(np.arange(20_000), 100):
            state = update(state, distributions.Bernoulli(probs[rows]), labels[rows])
        found = accumulator.result(state).unbiased
    assert found.dtype == jnp.float32
    expected = estimators.skce(kernel, distributions.Bernoulli(probs.astype(float)), labels)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_blocks_that_overlap():
    kernel, predictions, labels, example = CASES["exponential"]
    accumulator = SKCE(kernel, example_predictions=example)
    update = accumulator.update
    one, two, both = (
        update(accumulator.init(), part(predictions, rows), labels[rows])
        for rows in (np.array([0, 10]), np.array([20, 30]), np.array([5, 25]))
    )
    with pytest.raises(
        ValueError, match=r"b: expected predictions of which none lies among the 2 in"
    ):
        accumulator.merge(one, both)
    rows = np.array([25])
    with pytest.raises(ValueError, match=r"^predictions: expected predictions of which none lies"):
        update(two, part(predictions, rows), labels[rows])
    for a, b, is_valid in ((one, two, True), (one, both, False), (two, both, False)):
        found = jax.jit(lambda a, b: accumulator.result(accumulator.merge(a, b)))(a, b)
        assert np.isfinite(found.unbiased) == is_valid
        assert np.isfinite(found.biased) == is_valid


def test_predictions_on_no_line():
    kernel, predictions, targets, examples = CASES["normal"]
    accumulator = SKCE(kernel, example_predictions=examples)
    wider = distributions.Normal(predictions.loc, predictions.scale * np.linspace(1, 2, N))
    with pytest.raises(ValueError, match=r"predictions: expected points on a line, such as"):
        accumulator.update(accumulator.init(), wider, targets)
    state = jax.jit(accumulator.update)(accumulator.init(), wider, targets)
    assert np.isnan(jax.jit(accumulator.result)(state).unbiased)
    # Each block on a line of its own.
    state = accumulator.update(accumulator.init(), part(predictions, BLOCKS[2]), targets[BLOCKS[2]])
    rows = BLOCKS[3]
    others = distributions.Normal(predictions.loc[rows], 2 * predictions.scale[rows])
    with pytest.raises(ValueError, match=r"predictions: expected predictions of which none lies"):
        accumulator.update(state, others, targets[rows])


def test_examples():
    kernel, *_, example = CASES["exponential"]
    with pytest.raises(ValueError, match=r"example_predictions: expected a batch of predictions"):
        SKCE(kernel).init()
    with pytest.raises(TypeError, match=r"example_predictions"):
        SKCE(kernel, example_predictions=np.ones(3)).init()
    landmarks = kernels.LowRank(kernel.prediction, example)
    with pytest.raises(ValueError, match=r"example_predictions: expected None, since .* landmarks"):
        SKCE(kernels.TensorProduct(landmarks, kernel.target), example_predictions=example).init()
    vectors = distributions.Categorical(np.full((2, 3), 1 / 3))
    euclidean = kernels.Exponential(1.0, distances.MaximumMeanDiscrepancy(kernels.Exponential(1.0)))
    with pytest.raises(ValueError, match=r"example_predictions: expected predictions on a line"):
        SKCE(kernels.TensorProduct(euclidean, kernel.target), example_predictions=vectors).init()
