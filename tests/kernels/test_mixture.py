import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, kernels
from tests import oracles


def _data(n, k, seed=0, width=1.0):
    """Calibrated mixtures of normals and targets drawn from them."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(k), n)
    loc, scale = rng.normal(size=(n, k)) * width, rng.uniform(0.1, 1, (n, k)) * width
    predictions = distributions.Mixture(
        jnp.asarray(weights), distributions.Normal(jnp.asarray(loc), jnp.asarray(scale))
    )
    return predictions, distributions.sample_targets(jax.random.key(seed), predictions)


def _kernel(length_scale=0.7):
    return kernels.TensorProduct(kernels.Exponential(2.0), kernels.SquaredExponential(length_scale))


def _mixture_h(p, y, q, z, length_scale):
    """h with k_P = exp(−‖difference of all parameters‖ / 2), all sums as loops."""
    point = ([1.0], [y], [0.0]), ([1.0], [z], [0.0])

    def expect(one, two):
        return sum(
            w * v * oracles.squared_exponential_moments(m, s, n, t, length_scale)
            for w, m, s in zip(*one)
            for v, n, t in zip(*two)
        )

    bracket = expect(*point) - expect(p, point[1]) - expect(point[0], q) + expect(p, q)
    distance = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(p, q)))
    return np.exp(-distance / 2) * bracket


@pytest.mark.parametrize("num_components", [1, 3, pytest.param(7, marks=pytest.mark.slow)])
def test_all_pairs_of_components_enter(num_components):
    predictions, targets = _data(6, num_components)
    parts = (predictions.weights, predictions.components.loc, predictions.components.scale)
    samples = list(zip(zip(*map(np.asarray, parts)), np.asarray(targets)))
    expected = oracles.h_matrix(functools.partial(_mixture_h, length_scale=0.7), samples)
    ours = oracles.calibration_kernel_matrix(_kernel(), predictions, targets)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)
    (first, _), *_ = samples
    expect = oracles.squared_exponential_moments
    expected = sum(w * expect(m, s, 0.3, 0.0, 0.7) for w, m, s in zip(*first))
    found = kernels.expectations.single_expectation(_kernel().target, predictions[0], 0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_normal_scores_of_mixtures_of_counts():
    """The expectation of the centered kernel is zero: the sum over all counts."""
    rates = jnp.asarray([[0.4, 2.5], [1.0, 7.0]])
    p, q = distributions.Mixture(None, distributions.Poisson(rates))
    counts, kernel = np.arange(60), kernels.NormalScore(kernels.SquaredExponential(0.8))
    values = jax.jit(
        jax.vmap(lambda y: kernels.expectations.centered_kernel(kernel, p, y, q, 4), 0)
    )(counts)
    probs = np.exp(jax.vmap(p.log_prob)(counts))
    assert np.abs(values).max() > 0.1
    np.testing.assert_allclose(probs @ values, 0, atol=1e-6)


def test_default_kernels_of_mixtures_of_vectors():
    """Vectors have no distribution function, so their targets are compared themselves."""
    loc = np.random.default_rng(0).normal(size=(12, 2, 3))
    predictions = distributions.Mixture(None, distributions.DiagNormal(loc, np.ones_like(loc)))
    kernel = kernels.default_kernel(predictions)
    assert isinstance(kernel.target, kernels.SquaredExponential)
    groups = kernels.default_kernels(predictions)
    assert all("target" in name for name in groups)
