import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from tests import oracles

NAMES = ("normal-None", "normal-3", "categorical-5-white", "categorical-5-label")


def _bound(name):
    """By hand: 2 for kernels with values in [0, 1], 2 (max − min) for a label matrix."""
    if not name.endswith("label"):
        return 2.0
    matrix = oracles.label_matrix(5)
    return 2 * (matrix.max() - matrix.min())


@pytest.mark.parametrize("name", NAMES)
def test_formulas(name):
    """W19 Lemma 2, with the block estimator of every block size."""
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix, n, bound = oracles.h_matrix(h, samples), 23, _bound(name)
    test = functools.partial(
        hypothesis_tests.distribution_free_skce_test, kernel, predictions, targets
    )
    t = matrix.mean()
    expected = np.exp(-0.5 * max(0, np.sqrt(n * t / bound) - 1) ** 2)
    np.testing.assert_allclose(test().pvalue, expected, rtol=1e-10)
    np.testing.assert_allclose(test().estimate, t, rtol=1e-10)
    block_sizes = ((None, 11), (3, 7), (2, 11), (5, 8), (11, 10), (23, 11))
    for block_size, pairs in block_sizes if name == "normal-None" else block_sizes[:2]:
        options = (
            {"estimator": "unbiased"}
            if block_size is None
            else {"estimator": "block", "block_size": block_size}
        )
        result = test(**options)
        size = block_size or n
        t = np.mean(
            [
                oracles.unbiased(matrix[b : b + size, b : b + size])
                for b in range(0, n - size + 1, size)
            ]
        )
        np.testing.assert_allclose(result.statistic, t, rtol=1e-10)
        expected = 1.0 if t <= 0 else np.exp(-pairs * t**2 / (2 * bound**2))
        np.testing.assert_allclose(result.pvalue, expected, rtol=1e-10)


def test_an_estimate_below_zero_gives_one():
    """CalibrationTests.jl squares it."""
    predictions = distributions.Bernoulli(jnp.full(1000, 0.5))
    targets = jnp.arange(1000) % 2
    kernel = 1e3 * oracles.categorical_kernel()
    for options in ({"estimator": "unbiased"}, {"estimator": "block", "block_size": 2}):
        result = hypothesis_tests.distribution_free_skce_test(
            kernel, predictions, targets, **options
        )
        assert result.estimate < 0
        assert result.pvalue == 1
    estimate = float(estimators.skce_block(kernel, predictions, targets, block_size=2))
    assert np.exp(-500 * estimate**2 / (2 * 2000**2)) < 1e-6  # what the square would give


KERNELS = {
    "white": kernels.White(),
    "label": kernels.LabelKernel(jnp.asarray(oracles.label_matrix(3))),
    "negative": kernels.LabelKernel(jnp.asarray(np.full((3, 3), -0.5) + 1.5 * np.eye(3))),
    "scaled": 3.0 * kernels.White(),
    "sum": kernels.White() + 0.5 * kernels.LabelKernel(jnp.asarray(oracles.label_matrix(3))),
    "product": kernels.White() * kernels.LabelKernel(jnp.asarray(oracles.label_matrix(3))),
}
PREDICTION_KERNELS = {
    "exponential": kernels.Exponential(0.5, distances.TotalVariation()),
    "sum": kernels.Exponential(0.5) + 2.0 * kernels.SquaredExponential(0.3),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("prediction", PREDICTION_KERNELS)
def test_bounds_hold_at_the_corners_of_the_simplex(name, prediction):
    """sup |h| by brute force over corners, edges and the centre, with all labels."""
    kernel = kernels.TensorProduct(PREDICTION_KERNELS[prediction], KERNELS[name])
    rng = np.random.default_rng(0)
    points = np.concatenate(
        [np.eye(3), (np.eye(3) + np.roll(np.eye(3), 1, 0)) / 2, rng.dirichlet(np.ones(3) / 3, 20)]
    )
    pairs = np.array(list(itertools.product(range(len(points)), range(3))))
    matrix = estimators.calibration_kernel_matrix(
        kernel,
        distributions.Categorical(jnp.asarray(points[pairs[:, 0]])),
        jnp.asarray(pairs[:, 1]),
    )
    bound = hypothesis_tests.calibration_kernel_bound(kernel)
    largest = jnp.abs(matrix).max()
    assert largest <= bound * (1 + 1e-12)
    if name in ("white", "scaled", "negative"):  # attained: p = e_1 and y = 2
        np.testing.assert_allclose(largest, bound, rtol=1e-12)


def test_bounds_of_composite_kernels():
    normal, classes = oracles.normal_kernel(), oracles.categorical_kernel()
    bound = hypothesis_tests.calibration_kernel_bound
    assert bound(normal) == bound(classes) == 2
    assert bound(3.0 * classes + classes * 2.0) == 10
    np.testing.assert_allclose(kernels.value_range(3.0 * classes + classes), (0, 4))
    laplace = kernels.Exponential(1.0, distances.Wasserstein())
    both = kernels.TensorProduct(
        laplace * kernels.PowerExponential(1.0, 1.5, distances.Wasserstein()),
        kernels.SquaredExponential(1.0) + 0.5 * kernels.SquaredExponential(2.0),
    )
    assert bound(both) == 3
    matrix = jnp.asarray([[1.0, -0.5], [-0.5, 2.0]])
    assert kernels.value_range(kernels.LabelKernel(matrix)) == (-0.5, 2.0)
    assert kernels.value_range(kernels.LabelKernel(matrix) * kernels.LabelKernel(matrix)) == (-1, 4)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Unbounded(kernels.Kernel):
    """A kernel that calibjax knows nothing of."""

    def __call__(self, x, y):
        return jnp.vdot(x.probs, y.probs)


def test_a_kernel_without_a_known_bound_asks_for_one():
    predictions, targets, _ = oracles.categorical_data(20, 3)
    kernel = kernels.TensorProduct(Unbounded(), kernels.White())
    with pytest.raises(NotImplementedError, match=r"kernel Unbounded is known.*pass bound=\.\.\."):
        hypothesis_tests.distribution_free_skce_test(kernel, predictions, targets)
    result = hypothesis_tests.distribution_free_skce_test(kernel, predictions, targets, bound=2.0)
    expected = np.exp(-0.5 * max(0, np.sqrt(20 * result.estimate / 2) - 1) ** 2)
    np.testing.assert_allclose(result.pvalue, expected, rtol=1e-10)
    for wrong in (0.0, -1.0, jnp.nan, jnp.ones(2)):
        with pytest.raises(ValueError, match="bound: expected"):
            hypothesis_tests.distribution_free_skce_test(kernel, predictions, targets, bound=wrong)


def test_wrong_options():
    kernel, predictions, targets, _, _ = oracles.cases()["normal-None"]
    test = functools.partial(
        hypothesis_tests.distribution_free_skce_test, kernel, predictions, targets
    )
    with pytest.raises(ValueError, match="estimator: expected one of 'biased', 'unbiased', 'bl"):
        test(estimator="linear")
    with pytest.raises(ValueError, match='block_size: expected an integer with estimator="block"'):
        test(estimator="block")
    with pytest.raises(ValueError, match='block_size: expected None with estimator="biased", got'):
        test(block_size=2)
    with pytest.raises(ValueError, match="block_size: expected an integer between 2 and 23, got 1"):
        test(estimator="block", block_size=1)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_pvalues_are_never_zero(dtype):
    predictions = distributions.Bernoulli(jnp.full(4000, 0.01, dtype))
    data = oracles.categorical_kernel(), predictions, jnp.ones(4000, int)
    for options in ({}, {"estimator": "unbiased"}, {"estimator": "block", "block_size": 2}):
        result = hypothesis_tests.distribution_free_skce_test(*data, **options)
        assert 0 < result.pvalue < 1e-30
        assert result.pvalue.dtype == dtype


def test_under_jit():
    kernel, predictions, targets, _, _ = oracles.cases()["categorical-5-label"]
    test = hypothesis_tests.distribution_free_skce_test
    traced = jax.jit(test)(kernel, predictions, targets)
    np.testing.assert_allclose(traced.pvalue, test(kernel, predictions, targets).pvalue)


@pytest.mark.parametrize("network", oracles.NETWORKS)
def test_published_pvalues(data_dir, network):
    """W19 Fig. 36: the columns that are not simulated."""
    predictions, targets, published = oracles.cifar10_network(data_dir, network, "pvalues")
    kernel = oracles.median_kernel(predictions)
    for name, options in (
        ("b", {}),
        ("uq", {"estimator": "unbiased"}),
        ("ul", {"estimator": "block", "block_size": 2}),
    ):
        test = hypothesis_tests.distribution_free_skce_test(kernel, predictions, targets, **options)
        theirs = published[f"SKCE{name}_median_distribution_free"]
        if test.estimate > 0:
            np.testing.assert_allclose(test.pvalue, theirs, atol=1e-6)
        else:  # they square the negative estimate
            assert test.pvalue == 1
            np.testing.assert_allclose(np.exp(-5000 * test.estimate**2 / 8), theirs, atol=1e-6)
    block = hypothesis_tests.block_skce_test(kernel, predictions, targets, block_size=2)
    # They divide the variance of the 5000 blocks by m in place of m − 1.
    z = float(block.statistic) * np.sqrt(5000 / 4999)
    np.testing.assert_allclose(stats.norm.sf(z), published["SKCEul_median_asymptotic"], atol=1e-5)
    spectrum = hypothesis_tests.spectrum_skce_test(
        jax.random.key(0), kernel, predictions, targets, method="numerical"
    )
    # 0.0 of 1000 resamples there: a p-value of 0.0038 gives that in 2 % of the runs.
    assert published["SKCEuq_median_asymptotic"] == 0
    assert spectrum.pvalue < 0.0038
