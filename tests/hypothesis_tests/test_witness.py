import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distances import Wasserstein
from calibjax.distributions import Bernoulli, Normal
from calibjax.hypothesis_tests import witness_test
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct, White

KEY = jax.random.key(0)
PROBS, LABELS = np.array([0.2, 0.7, 0.55, 0.9, 0.35, 0.6]), np.array([1, 1, 1, 0, 0, 1])
AT_PROBS, AT_LABELS = np.array([0.3, 0.8, 0.5]), np.array([1, 0, 1])
KERNEL = TensorProduct(Exponential(0.5), White())


def plain_witness(labels):
    """Values by loops; `Exponential` sees both probabilities of a `Bernoulli`."""
    values = []
    for t, z in zip(AT_PROBS, AT_LABELS, strict=True):
        weights = np.exp(-np.sqrt(2) * np.abs(PROBS - t) / 0.5)
        chances = PROBS if z else 1 - PROBS
        values.append(np.mean(weights * ((labels == z) - chances)))
    return np.array(values)


def data():
    at = Bernoulli(jnp.asarray(AT_PROBS)), jnp.asarray(AT_LABELS)
    return Bernoulli(jnp.asarray(PROBS)), jnp.asarray(LABELS), *at


def test_pvalues_against_all_outcomes():
    outcomes = np.array(list(itertools.product([0, 1], repeat=6)))
    weights = np.prod(np.where(outcomes == 1, PROBS, 1 - PROBS), 1)
    sizes = np.abs([plain_witness(labels) for labels in outcomes])
    observed = np.abs(plain_witness(LABELS))
    mean = weights @ sizes
    deviation = np.sqrt(weights @ (sizes - mean) ** 2)
    largest = ((sizes - mean) / deviation).max(1)
    test = witness_test(KEY, KERNEL, *data(), num_draws=20_000)
    np.testing.assert_allclose(test.estimate, plain_witness(LABELS), rtol=1e-9)
    atol = 4 * np.sqrt(0.25 / 20_000)
    np.testing.assert_allclose(test.pvalue, weights @ (sizes >= observed - 1e-12), atol=atol)
    adjusted = [weights @ (largest >= s - 1e-12) for s in (observed - mean) / deviation]
    np.testing.assert_allclose(test.adjusted_pvalue, adjusted, atol=2 * atol)
    np.testing.assert_allclose(test.null_size, np.sqrt(weights @ sizes**2), rtol=0.03)


@pytest.mark.slow
def test_level_and_the_region_that_is_named():
    """methods.md 9.7: 99 locations, n = 256; a bias of two deviations where 0.4 < m < 0.5."""
    grid = np.stack(np.meshgrid(np.linspace(0.05, 0.95, 11), np.linspace(-0.4, 0.4, 9)), -1)
    m, residual = grid.reshape(-1, 2).T
    at = Normal(jnp.asarray(m), jnp.full(99, 0.1)), jnp.asarray(m + residual)
    kernel = TensorProduct(SquaredExponential(0.05, Wasserstein()), SquaredExponential(0.1))

    @jax.jit
    def adjusted(key, size):
        keys = jax.random.split(key, 3)
        loc = jax.random.uniform(keys[0], (256,))
        shift = jnp.where((loc > 0.4) & (loc < 0.5), size, 0.0)
        targets = loc + 0.1 * (jax.random.normal(keys[1], (256,)) + shift)
        predictions = Normal(loc, jnp.full(256, 0.1))
        return witness_test(keys[2], kernel, predictions, targets, *at, num_draws=199)

    def run(size, number):
        keys = jax.random.split(KEY, number)
        return jax.lax.map(lambda key: adjusted(key, size).adjusted_pvalue, keys)

    level = np.mean(run(0.0, 600).min(1) <= 0.05)
    assert abs(level - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 600)
    inside, far = np.abs(m - 0.45) < 0.06, np.abs(m - 0.45) > 0.3
    for size in (2.0, -2.0):
        found = np.asarray(run(size, 300)) <= 0.05
        assert np.mean(found[:, inside].any(1)) >= 0.98
        assert np.mean(found[:, far].any(1)) <= 0.05
