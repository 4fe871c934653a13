import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax._core import arithmetic
from calibjax.distributions import MvNormal
from tests import compiled, oracles

RNG = np.random.default_rng(0)


@jax.jit
def expectations(kernel, p, y, q, z):
    """m_p(z), M_{p,q} and the centered kernel of a batch of pairs."""

    def one(p, y, q, z):
        return (
            compiled.single_expectation(kernel, p, z),
            compiled.double_expectation(kernel, p, q),
            compiled.centered_kernel(kernel, p, y, q, z),
        )

    return jax.vmap(one)(p, y, q, z)


def _gaussian(difference, covariance, length_scale):
    """E exp(−‖X‖² / (2 ℓ²)) for X ~ N(difference, covariance), W21 D.1."""
    total = length_scale**2 * np.eye(len(difference)) + covariance
    exponent = difference @ np.linalg.inv(total) @ difference
    constant = np.linalg.det(total / length_scale**2) ** -0.5
    return constant * np.exp(-0.5 * exponent)


def _expected(p, y, q, z, length_scale):
    rows = []
    for m, s, b, n, t, c in zip(p.loc, p.cov, y, q.loc, q.cov, z):
        single = _gaussian(c - m, s, length_scale)
        double = _gaussian(m - n, s + t, length_scale)
        four = _gaussian(b - c, 0 * s, length_scale) - single - _gaussian(b - n, t, length_scale)
        rows.append((single, double, four + double))
    return np.transpose(rows)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
@pytest.mark.parametrize("d", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_inverse_and_determinant(d, scale):
    """Thirty random settings; singular covariances too."""
    loc = RNG.normal(size=(4, 30, d))
    one, two = (oracles.covariances(30, d, scale, seed) for seed in (0, 1))
    one[::3, :, 0] = one[::3, 0, :] = 0
    y, z = loc[0] + scale * loc[1], loc[2] + scale * loc[3]
    pairs = MvNormal(loc[0], one), y, MvNormal(loc[2], two), z
    expected = _expected(*pairs, 1.3)
    ours = expectations(kernels.SquaredExponential(1.3), *pairs)
    np.testing.assert_allclose(ours[:2], expected[:2], rtol=1e-9)
    np.testing.assert_allclose(ours[2], expected[2], rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("d", [2, 11])  # by entries, and by arrays
def test_factors(d):
    """I + A = L diag(1 + e) Lᵀ with a unit triangular L."""
    random = np.random.default_rng(0)
    root, x = random.normal(size=(d, d)), random.normal(size=d)
    matrix = root @ root.T
    factored = arithmetic.factor(arithmetic.matrix(jnp.asarray(matrix)))
    vector = arithmetic.vector(jnp.asarray(x))
    lower = np.linalg.cholesky(np.eye(d) + matrix)
    expected = np.linalg.solve(lower / np.diagonal(lower), x)
    np.testing.assert_allclose(np.stack(arithmetic.whiten(factored, vector)), expected)
    expected = np.linalg.solve(np.eye(d) + matrix, x)
    np.testing.assert_allclose(np.stack(arithmetic.solve(factored, vector)), expected)
