import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, kernels
from calibjax.kernels.base import prediction_kernel

DISTANCE = distances.MaximumMeanDiscrepancy(kernels.SquaredExponential(0.8))


def test_it_is_the_distance_of_the_mean_embeddings():
    """‖μ_p − μ_q‖² = ∫ |φ_p(ω) − φ_q(ω)|² dN(ω; 0, 1/ℓ²), by Gauss–Hermite quadrature."""
    rng = np.random.default_rng(0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    frequencies, weights = nodes / 0.8, weights / weights.sum()
    loc, scale = rng.normal(size=(2, 2)), rng.uniform(0.1, 1, (2, 2))
    factors = np.exp(
        1j * frequencies * loc[..., None] - 0.5 * (frequencies * scale[..., None]) ** 2
    )
    expected = weights @ np.abs(factors.mean(1)[0] - factors.mean(1)[1]) ** 2
    batch = distributions.Mixture(None, distributions.Normal(jnp.asarray(loc), jnp.asarray(scale)))
    p, q = (jax.tree.map(lambda x, i=i: x[i], batch) for i in range(2))
    np.testing.assert_allclose(DISTANCE.squared(p, q), expected, rtol=1e-10)
    np.testing.assert_allclose(DISTANCE(p, q), np.sqrt(expected), rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_is_finite_at_distance_zero(dtype):
    p = distributions.Normal(dtype(0.3), dtype(1.2))
    gradient = jax.grad(DISTANCE)(p, p)
    assert DISTANCE(p, p) == 0
    np.testing.assert_array_equal(jax.tree.leaves(gradient), 0)


def test_between_samples_it_is_that_of_the_empirical_distributions():
    samples = distributions.Ensemble(jax.random.normal(jax.random.key(0), (40, 3)))
    kernel = kernels.Exponential(0.3, DISTANCE)
    matrix = jax.jit(kernels.gram_matrix)(kernel, samples)
    assert np.linalg.eigvalsh(matrix)[0] > 0
    # Estimators number the samples, which kernels on predictions do not see.
    numbered = distributions.Ensemble(samples.values, index=jnp.arange(40))
    p, q = (jax.tree.map(lambda leaf, i=i: leaf[i], numbered) for i in range(2))
    np.testing.assert_allclose(prediction_kernel(kernel, p, q), matrix[0, 1], rtol=1e-12)
