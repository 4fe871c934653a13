"""Wrong rows beside right ones: draws under one index, draws that are none, far targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels
from calibjax.distributions import Ensemble, Normal

N, KEY = 6, jax.random.key(0)
_random = np.random.default_rng(3)
Y = _random.normal(size=N).astype(np.float32)
DRAWS = _random.normal(size=(N, 4)).astype(np.float32)
CONFIDENCES = np.array([0.1, 0.3, 0.35, 0.6, 0.7, 0.9], np.float32)
CORRECT = np.array([0, 0, 1, 1, 0, 1])
OF_CLASSES = kernels.TensorProduct(kernels.Exponential(), kernels.White())
OF_NUMBERS = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())


@pytest.fixture(autouse=True)
def _in_float32():
    with jax.enable_x64(False):
        yield


def _pairs_of_draws(values, y, is_same):
    """The unbiased estimate by a loop over pairs of predictions and of draws, in float64."""
    values, y = np.asarray(values, float), np.asarray(y, float)

    def k(a, b):
        return np.exp(-0.5 * np.subtract.outer(a, b) ** 2)

    total, n, m = 0.0, len(y), values.shape[1]
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            double = k(values[i], values[j])
            mean = double.mean()
            if is_same(i, j):
                mean = (double.sum() - np.trace(double)) / m / (m - 1)
            h = k(y[i], y[j]) - k(values[i], y[j]).mean() - k(values[j], y[i]).mean() + mean
            total += np.exp(-np.linalg.norm(values[i] - values[j])) * h
    return total / n / (n - 1)


def test_draws_under_one_index():
    """Predictions that were drawn twice share their draws; others may not share an index."""

    @jax.jit
    def drawn(values, index):
        return estimators.skce(OF_NUMBERS, Ensemble(values, None, index), Y)

    values, index = DRAWS[[0, 1, 2, 0, 1, 2]], np.array([0, 1, 2, 0, 1, 2])
    expected = _pairs_of_draws(values, Y, lambda i, j: i % 3 == j % 3)
    np.testing.assert_allclose(drawn(values, index), expected, rtol=1e-4, atol=1e-6)
    eager = drawn.__wrapped__(values, index)
    np.testing.assert_allclose(eager, expected, rtol=1e-4, atol=1e-6)
    own = np.array([5, 3, 4, 0, 1, 2])
    expected = _pairs_of_draws(DRAWS, Y, lambda i, j: False)
    np.testing.assert_allclose(drawn(DRAWS, own), expected, rtol=1e-4, atol=1e-6)
    assert np.isnan(drawn(DRAWS, index))
    assert np.isnan(drawn(DRAWS, np.zeros(N, int)))


FAMILIES = {
    "Bernoulli": lambda bad: distributions.Bernoulli(bad),
    "Categorical": lambda bad: distributions.Categorical(jnp.stack([bad, 1 - bad], 1)),
    "Poisson": lambda bad: distributions.Poisson(bad),
}


@pytest.mark.parametrize(
    "family", [x if x == "Bernoulli" else pytest.param(x, marks=pytest.mark.slow) for x in FAMILIES]
)
def test_traced_draws_of_wrong_rows(family):
    """Integers that stand for NaN in place of ordinary draws, and NaN of what is made of them."""

    @jax.jit
    def results(bad):
        made = FAMILIES[family](bad)
        values = distributions.monte_carlo(KEY, made, 3).draws.values
        error = estimators.skce(OF_CLASSES, distributions.Ensemble(values), jnp.asarray(CORRECT))
        return values, jax.vmap(lambda p: p.sample(KEY))(made), error

    values, one, error = results(jnp.asarray(CONFIDENCES).at[2].set(jnp.nan))
    assert np.isnan(error)
    is_wrong = np.arange(N) == 2
    missing = np.iinfo(np.int32).min
    np.testing.assert_array_equal(np.asarray(values) == missing, np.tile(is_wrong, (3, 1)).T)
    np.testing.assert_array_equal(np.asarray(one) == missing, is_wrong)
    assert np.isfinite(results(jnp.asarray(CONFIDENCES))[2])


@pytest.mark.parametrize("size", [1e20, 1e30])
def test_far_targets(size):
    """The kernel is zero there, and was NaN."""
    targets = np.float32([0.3, size, -size, 0.1, size, 0.5])
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential()
    )
    y, total = targets.astype(float), 0.0
    for i in range(N):
        for j in range(N):
            if i != j:
                single = (np.exp(-(y[[i, j]] ** 2) / 4) / np.sqrt(2)).sum()
                total += np.exp(-0.5 * (y[i] - y[j]) ** 2) - single + 1 / np.sqrt(3)
    predictions = Normal(np.zeros(N, np.float32), np.ones(N, np.float32))
    expected = total / N / (N - 1)
    np.testing.assert_allclose(estimators.skce(kernel, predictions, targets), expected, rtol=1e-5)
