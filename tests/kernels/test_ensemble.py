import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, kernels, operators
from calibjax.kernels.expectations import double_expectation, single_expectation
from calibjax.operators.plan import sample_pair
from tests import oracles

Ensemble = distributions.Ensemble


def _matrix(kernel, values, weights, targets):
    """All h for k_P = 1 by plain sums over draws; without pairs of a draw with itself."""
    n, m = weights.shape

    def single(i, z):
        return sum(weights[i, a] * kernel(values[i, a], z) for a in range(m))

    def double(i, j):
        pairs = [(a, b) for a in range(m) for b in range(m) if (i, a) != (j, b)]
        value = sum(
            weights[i, a] * weights[j, b] * kernel(values[i, a], values[j, b]) for a, b in pairs
        )
        return value / (1 - np.sum(weights[i] ** 2)) if i == j else value

    def h(i, j):
        singles = single(i, targets[j]) + single(j, targets[i])
        return kernel(targets[i], targets[j]) - singles + double(i, j)

    return np.array([[h(i, j) for j in range(n)] for i in range(n)])


CASES = {
    "scalars": ((4, 3), False, kernels.Exponential(0.7), lambda y, z: np.exp(-np.abs(y - z) / 0.7)),
    "weights": ((4, 3), True, kernels.Exponential(0.7), lambda y, z: np.exp(-np.abs(y - z) / 0.7)),
    "vectors": (
        (4, 3, 2),
        False,
        kernels.SquaredExponential(1.5) + 2.0 * kernels.SquaredExponential(0.5),
        lambda y, z: np.exp(-np.sum((y - z) ** 2) / 4.5) + 2 * np.exp(-np.sum((y - z) ** 2) / 0.5),
    ),
    "counts": ((4, 3), False, kernels.White(), lambda y, z: float(y == z)),
}


@pytest.mark.parametrize("name", CASES)
def test_matrix_equals_plain_sums(name):
    shape, has_weights, kernel, plain = CASES[name]
    rng = np.random.default_rng(0)
    values, targets = rng.normal(size=shape), rng.normal(size=shape[:1] + shape[2:])
    if name == "counts":
        values, targets = rng.permuted(np.tile(np.arange(6), (4, 1)), axis=1)[:, :3], np.arange(4)
        values[1] = values[0]  # equal draws of different predictions are different draws
    weights = rng.dirichlet(np.ones(3), 4) if has_weights else np.full((4, 3), 1 / 3)
    product = kernels.TensorProduct(kernels.Constant(), kernel)
    predictions = Ensemble(jnp.asarray(values), jnp.asarray(weights) if has_weights else None)
    ours = oracles.calibration_kernel_matrix(product, predictions, jnp.asarray(targets))
    np.testing.assert_allclose(ours, _matrix(plain, values, weights, targets), atol=1e-14)


def test_memory_does_not_grow_with_the_draws():
    """n = 512 predictions with 50 draws: 2500 pairs of draws for each of 131 000 pairs."""
    kernel = oracles.normal_kernel()
    normal, key = distributions.Normal(jnp.zeros(512), jnp.ones(512)), jax.random.key(0)
    drawn = jax.eval_shape(lambda key: distributions.monte_carlo(key, normal, 50), key)
    mean = jax.jit(lambda k, s: operators.mean_over_pairs(sample_pair, k, s))
    lowered = mean.lower(kernel, (drawn, normal.loc))
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 5e6


def test_resampled_predictions_are_paired_with_themselves():
    values = jnp.array([[0.0, 1.0], [0.0, 1.0], [2.0, 3.0]])
    batch = distributions.Ensemble(values, index=jnp.arange(3))
    double = functools.partial(double_expectation, kernels.SquaredExponential())
    p, q = (jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in (0, 1))
    np.testing.assert_allclose(double(p, p), np.exp(-0.5), rtol=1e-14)
    np.testing.assert_allclose(double(p, q), 0.5 + 0.5 * np.exp(-0.5), rtol=1e-14)


def test_components_of_mixtures_are_not_paired_with_themselves():
    values = jnp.array([[[0.0, 1.0], [2.0, 5.0]], [[0.0, 1.0], [3.0, 4.0]]])
    mixtures = distributions.Mixture(None, distributions.Ensemble(values))
    kernel = kernels.TensorProduct(kernels.Exponential(1e9), kernels.SquaredExponential())
    ours = oracles.calibration_kernel_matrix(kernel, mixtures, jnp.zeros(2))
    k = lambda y, z: np.exp(-0.5 * np.subtract.outer(y, z) ** 2)  # noqa: E731
    one, two = np.asarray(values[0])
    m = 0.25 * (k(one, 0.0).sum() + k(two, 0.0).sum())
    pairs = 0.25 * (k(one[0], one[1]) + k(two[0], two[1]) + 0.5 * k(one, two).sum())
    np.testing.assert_allclose(ours[0, 0], 1 - 2 * m + pairs, rtol=1e-12)


def test_one_missing_draw_is_enough():
    """Integers cannot be NaN; the smallest one stands for it."""
    values = np.array([3, np.iinfo(np.int32).min, 4], np.int32)
    expectation = single_expectation(kernels.White(), Ensemble(jnp.asarray(values)), 4)
    assert np.isnan(expectation)
