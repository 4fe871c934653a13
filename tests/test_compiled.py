"""Compiled float32 results against NumPy at sizes at which compilers tile, fuse and parallelise.

jaxlib 0.10.2 computed sums of products wrongly from 32 768 entries on; at n = 20 nothing was seen.
"""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, kernels
from tests import oracles


def _pairs(x, y):
    return x[:, None] - y


def multivariate_normal_h(loc, cov, y, length_scale):
    """h for k = exp(−‖p − q‖) exp(−‖y − z‖² / (2ℓ²)) of all pairs, W21 D.1."""
    identity = np.eye(loc.shape[1])

    def expect(difference, covariance):
        total = identity + covariance / length_scale**2
        solved = np.linalg.solve(total, difference[..., None])[..., 0] / length_scale**2
        return np.exp(-0.5 * np.sum(difference * solved, -1)) / np.sqrt(np.linalg.det(total))

    single = expect(_pairs(y, loc), cov[None])
    bracket = expect(_pairs(y, y), 0 * cov[None]) - single - single.T
    bracket += expect(_pairs(loc, loc), cov[:, None] + cov)
    square = np.sum(_pairs(loc, loc) ** 2, -1) + np.sum(_pairs(cov, cov) ** 2, (-2, -1))
    return np.exp(-np.sqrt(square)) * bracket


def test_multivariate_normal_beyond_the_unrolling_limit():
    n, d = 128, 11
    rng = np.random.default_rng(0)
    cov = oracles.covariances(n, d, 0.2).astype(np.float32)
    loc = rng.uniform(size=(n, d)).astype(np.float32)
    noise = np.linalg.cholesky(cov) @ rng.normal(size=(n, d, 1))
    y = (loc + noise[..., 0]).astype(np.float32)
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.0, distances.Euclidean()), kernels.SquaredExponential(1.0)
    )
    data = distributions.MvNormal(jnp.asarray(loc), jnp.asarray(cov)), jnp.asarray(y)
    expected = multivariate_normal_h(*(np.asarray(x, np.float64) for x in (loc, cov, y)), 1.0)
    h = jax.jit(estimators.calibration_kernel_matrix)(kernel, *data)
    np.testing.assert_allclose(h, expected, atol=2e-6)  # entries up to 0.8
    skce = np.mean(expected[~np.eye(n, dtype=bool)])  # −1.4e-4; 9e-4 with the error
    np.testing.assert_allclose(estimators.skce(kernel, *data), skce, atol=2e-8)
