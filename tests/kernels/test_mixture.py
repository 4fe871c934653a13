import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, kernels
from tests import oracles

KERNEL = kernels.TensorProduct(kernels.Exponential(2.0), kernels.SquaredExponential(0.7))


def _mixture_h(p, y, q, z):
    """h with k_P = exp(−‖difference of all parameters‖ / 2), all sums as loops."""
    point = ([1.0], [y], [0.0]), ([1.0], [z], [0.0])

    def expect(one, two):
        return sum(
            w * v * oracles.squared_exponential_moments(m, s, n, t, 0.7)
            for w, m, s in zip(*one)
            for v, n, t in zip(*two)
        )

    bracket = expect(*point) - expect(p, point[1]) - expect(point[0], q) + expect(p, q)
    distance = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(p, q)))
    return np.exp(-distance / 2) * bracket


@pytest.mark.parametrize("num_components", [1, 3, pytest.param(7, marks=pytest.mark.slow)])
def test_all_pairs_of_components_enter(num_components):
    random, shape = np.random.default_rng(0), (6, num_components)
    weights, targets = random.dirichlet(np.ones(num_components), 6), random.normal(size=6)
    loc, scale = random.normal(size=shape), random.uniform(0.1, 1, shape)
    predictions = distributions.Mixture(weights, distributions.Normal(loc, scale))
    samples = list(zip(zip(weights, loc, scale), targets))
    expected = oracles.h_matrix(_mixture_h, samples)
    ours = oracles.calibration_kernel_matrix(KERNEL, predictions, targets)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)
    (first, _), *_ = samples
    expect = oracles.squared_exponential_moments
    expected = sum(w * expect(m, s, 0.3, 0.0, 0.7) for w, m, s in zip(*first))
    found = kernels.expectations.single_expectation(KERNEL.target, predictions[0], 0.3)
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
