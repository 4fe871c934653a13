import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, kernels, record
from calibjax.hypothesis_tests import distribution_free_skce_test, skce_confidence_interval
from calibjax.hypothesis_tests.intervals import _bound as _computed_bound
from tests import oracles

NAMES = oracles.CASE_NAMES


def _bound(name):
    """By hand: 2 for kernels with values in [0, 1], for a label matrix its largest ⟨u, A u⟩."""
    if not name.endswith("label"):
        return 2.0
    differences = np.eye(5)[:, None] - np.eye(5)
    return np.einsum("yzi,ij,yzj->yz", differences, oracles.label_matrix(5), differences).max()


@pytest.mark.parametrize("name", NAMES)
def test_formulas(name):
    """W19 Lemma 2, with the block estimator of every block size."""
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix, n, bound = oracles.h_matrix(h, samples), 23, _bound(name)
    test = functools.partial(distribution_free_skce_test, kernel, predictions, targets)
    t = matrix.mean()
    expected = np.exp(-0.5 * max(0, np.sqrt(n * t / bound) - 1) ** 2)
    np.testing.assert_allclose(test().pvalue, expected, rtol=1e-10)
    np.testing.assert_allclose(test().estimate, t, rtol=1e-10)
    block_sizes = ((None, 11), (3, 7), (2, 11), (5, 8), (11, 10), (23, 11))
    for block_size, pairs in block_sizes if name == "normal-None" else block_sizes[:2]:
        result = test(estimator="block" if block_size else "unbiased", block_size=block_size)
        t = np.mean(oracles.block_estimates(matrix, block_size or n))
        np.testing.assert_allclose(result.statistic, t, rtol=1e-10)
        expected = 1.0 if t <= 0 else np.exp(-pairs * t**2 / (2 * bound**2))
        np.testing.assert_allclose(result.pvalue, expected, rtol=1e-10)


interval_of = functools.partial(skce_confidence_interval, method="distribution_free")


@pytest.mark.parametrize("name", [NAMES[0], NAMES[3]])
def test_intervals_of_the_theorems(name):
    """W19 H.1, with 1 in place of 2, H.3 and H.4: their probabilities are α at the limits."""
    kernel, predictions, targets, h, samples = oracles.cases()[name]
    matrix, n, bound, alpha = oracles.h_matrix(h, samples), 23, _bound(name), 0.2
    data = kernel, predictions, targets
    interval = interval_of(*data, confidence_level=1 - alpha)
    kce = np.sqrt(matrix.mean())
    reach = np.sqrt(interval.high) - kce
    np.testing.assert_allclose(
        np.exp(-n * (reach - np.sqrt(bound / n)) ** 2 / (2 * bound)), alpha, rtol=1e-9
    )
    np.testing.assert_allclose(interval.low, max(0, kce - reach) ** 2, rtol=1e-9)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    estimates = {"unbiased": pairs, "block": [(i, i + 1) for i in range(0, n - 1, 2)]}
    for estimator, chosen in estimates.items():
        options = {"estimator": estimator, "block_size": 2 if estimator == "block" else None}
        interval = interval_of(*data, **options, confidence_level=1 - alpha)
        estimate = np.mean([matrix[pair] for pair in chosen])
        for limit in (interval.low, interval.high):
            tail = np.exp(-(n // 2) * (limit - estimate) ** 2 / (2 * bound**2))
            np.testing.assert_allclose(tail, alpha / 2, rtol=1e-9)
        assert interval.low < interval.estimate < interval.high
        assert interval.standard_error is None


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
    edges = (np.eye(3) + np.roll(np.eye(3), 1, 0)) / 2
    points = np.concatenate([np.eye(3), edges, rng.dirichlet(np.ones(3) / 3, 20)])
    places, labels = np.array(list(itertools.product(range(len(points)), range(3)))).T
    predictions = distributions.Categorical(jnp.asarray(points[places]))
    matrix = oracles.calibration_kernel_matrix(kernel, predictions, jnp.asarray(labels))
    bound = _computed_bound(kernel)
    largest = jnp.abs(matrix).max()
    assert largest <= bound * (1 + 1e-6)
    if name in ("white", "scaled", "negative", "label"):  # attained: p = e_z and another y
        np.testing.assert_allclose(largest, bound, rtol=1e-6)  # the matrix may be in float32


@record
class Unbounded(kernels.Kernel):
    """A kernel that calibjax knows nothing of."""

    def __call__(self, x, y):
        return jnp.vdot(x.probs, y.probs)


def test_kernels_without_a_bound():
    """A user's, of which it has to be given, and one that is constant."""
    predictions, targets, _ = oracles.categorical_data(20, 3)
    kernel = kernels.TensorProduct(Unbounded(), kernels.White())
    run = functools.partial(distribution_free_skce_test, kernel, predictions, targets)
    with pytest.raises(NotImplementedError, match="Unbounded"):
        run()
    expected = np.exp(-0.5 * max(0, np.sqrt(20 * run(bound=2.0).estimate / 2) - 1) ** 2)
    np.testing.assert_allclose(run(bound=2.0).pvalue, expected, rtol=1e-10)
    constant = kernels.TensorProduct(kernels.Exponential(), kernels.LabelKernel(jnp.ones((2, 2))))
    with pytest.raises(ValueError, match="bound: expected"):
        distribution_free_skce_test(constant, distributions.Bernoulli([0.5, 0.5]), [1, 0])


def test_gradient_where_the_estimate_is_zero():
    def low(scale):
        kernel = kernels.TensorProduct(kernels.Exponential(scale), kernels.White())
        data = distributions.Bernoulli(jnp.array([1.0, 0.0, 1.0])), jnp.array([1, 0, 1])
        test = distribution_free_skce_test(kernel, *data)
        interval = interval_of(kernel, *data)
        return test.pvalue + interval.high

    assert jax.grad(low)(1.0) == 0
