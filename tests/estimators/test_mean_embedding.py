import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators
from calibjax.estimators.mean_embedding import location_pair
from tests import oracles


def _normal_difference(location, sample, length_scale, prediction_scale):
    """Difference k((t, s), (p, y)) − E k((t, s), (p, Z)) for W21's kernel."""
    (m, v), s = location
    (n, w), y = sample
    zero = np.zeros_like(v)
    distance = np.sqrt(np.sum((m - n) ** 2) + np.sum((v - w) ** 2))
    moments = oracles.squared_exponential_moments
    value = moments(s, zero, y, zero, length_scale) - moments(s, zero, n, w, length_scale)
    return np.exp(-distance / prediction_scale) * value


def _class_difference(location, sample, matrix, nu):
    (t, s), (p, y) = location, sample
    value = matrix[s, y] - sum(p[c] * matrix[s, c] for c in range(len(p)))
    return np.exp(-0.5 * np.sum(np.abs(t - p)) / nu) * value


def case(name):
    """Kernel, predictions, targets, test locations, and Z [n, J] by a double loop."""
    kernel, predictions, targets, _, samples = oracles.cases()[name]
    if name.startswith("normal"):
        d = None if name.endswith("None") else int(name.split("-")[1])
        at_predictions, at_targets, locations = oracles.normal_data(7, d, seed=8)
        difference = lambda *pair: _normal_difference(*pair, 0.7, 0.4)  # noqa: E731
    else:
        m = int(name.split("-")[1])
        at_predictions, at_targets, locations = oracles.categorical_data(7, m, seed=8)
        matrix = np.eye(m) if name.endswith("white") else oracles.label_matrix(m)
        difference = lambda *pair: _class_difference(*pair, matrix, 0.5)  # noqa: E731
    z = np.array([[difference(location, sample) for location in locations] for sample in samples])
    return (kernel, predictions, targets, at_predictions, at_targets), z


@pytest.mark.parametrize("name", oracles.CASE_NAMES)
def test_against_loops(name):
    arguments, z = case(name)
    value = estimators.ucme(*arguments)
    np.testing.assert_allclose(value, np.mean(z.mean(0) ** 2), rtol=1e-11)
    kernel, *data = arguments
    traced = jax.jit(estimators.ucme)(kernel + 2.0 * kernel, *data)
    np.testing.assert_allclose(traced, 9 * value, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal-None", "categorical-5-label"])
def test_float32_and_gradients(name):
    arguments, z = case(name)
    single = oracles.as_dtype(arguments, jnp.float32)
    value = estimators.ucme(*single)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, np.mean(z.mean(0) ** 2), atol=1e-3 * z.std() ** 2 / 23)
    chex.assert_tree_all_finite(jax.grad(estimators.ucme, argnums=(0, 1))(*single))


def test_mean_on_calibrated_data_is_the_variance():
    """E UCME² = mean over the locations of Var(Z_ij) / n."""
    n, kernel = 10, oracles.normal_kernel()
    test, labels, _ = oracles.normal_data(3, seed=1)
    predictions, _, _ = oracles.normal_data(n)

    def evaluate(key):
        targets = distributions.sample_targets(key, predictions)
        z = jax.vmap(
            lambda *t: jax.vmap(lambda *x: location_pair(kernel, t, x))(predictions, targets)
        )(test, labels)
        return estimators.ucme(kernel, predictions, targets, test, labels), jnp.mean(z**2) / n

    ours, variance = jax.jit(jax.vmap(evaluate))(jax.random.split(jax.random.key(0), 4000))
    difference = ours - variance
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(4000)
    assert abs(ours.mean()) > 10 * difference.std() / np.sqrt(4000)
