import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from calibjax.distances.wasserstein import squared_bures
from tests import oracles

RNG = np.random.default_rng(0)
SIZES = (2, 3, 6)  # closed form, written out, arrays
gradient = jax.jit(jax.vmap(jax.value_and_grad(squared_bures, argnums=(0, 1))))


def _by_roots(s, t):
    """tr(S + T − 2 (S^½ T S^½)^½)."""
    root = linalg.sqrtm(s)
    return np.trace(s + t - 2 * linalg.sqrtm(root @ t @ root)).real


def _rotated(eigenvalues, rotation):
    scaled = rotation * np.sqrt(eigenvalues)[:, None, :]
    return scaled @ scaled.swapaxes(1, 2)


@pytest.mark.parametrize("d", [1, *SIZES])
def test_agrees_with_matrix_roots(d):
    s, t = oracles.covariances(30, d, seed=1), oracles.covariances(30, d, scale=2.0, seed=2)
    expected = [_by_roots(*pair) for pair in zip(s, t)]
    value, (left, right) = gradient(s, t)
    np.testing.assert_allclose(value, expected, rtol=1e-9)
    np.testing.assert_allclose(left, left.swapaxes(1, 2), rtol=1e-12)
    # By the optimal map A, T = A S A: the gradient with respect to S is I − A.
    roots = [linalg.sqrtm(a).real for a in s]
    maps = [
        np.linalg.solve(r, np.linalg.solve(r, linalg.sqrtm(r @ b @ r).real).T)
        for r, b in zip(roots, t)
    ]
    np.testing.assert_allclose(left, np.eye(d) - maps, rtol=1e-7, atol=1e-9)
    swapped = gradient(t, s)
    np.testing.assert_allclose(swapped[0], value, rtol=1e-12)
    np.testing.assert_allclose(swapped[1][0], right, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize(("dtype", "condition"), [(np.float32, 1e4), (np.float64, 1e8)])
def test_ill_conditioned_covariances_that_commute(d, dtype, condition):
    """S and T with the same eigenvectors have the distance of the roots of their eigenvalues."""
    rotation = np.linalg.qr(RNG.normal(size=(30, d, d)))[0]
    a, b = condition ** -RNG.uniform(size=(2, 30, d))
    s, t = (_rotated(x, rotation).astype(dtype) for x in (a, b))
    expected = np.sum((np.sqrt(a) - np.sqrt(b)) ** 2, -1)
    # An error ε of a matrix is one of √ε of its root where an eigenvalue is near zero.
    tolerance = 30 * condition**0.5 * np.finfo(dtype).eps
    np.testing.assert_allclose(gradient(s, t)[0], expected, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("d", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_covariances(d, dtype):
    s = oracles.covariances(30, d, seed=5).astype(dtype)
    value, slopes = gradient(s, s)
    np.testing.assert_array_equal(value, 0)
    np.testing.assert_allclose(slopes, 0, atol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("d", SIZES)
def test_second_derivatives_where_covariances_are_equal(d):
    """The square is smooth there; gradients on both sides of it, by differences."""
    s, change = oracles.covariances(2, d, seed=5), oracles.covariances(2, d, seed=6)[0]
    slope = jax.jit(jax.grad(lambda t: squared_bures(s[0] + t * change, s[0])))
    expected = (slope(1e-4) - slope(-1e-4)) / 2e-4
    np.testing.assert_allclose(jax.grad(slope)(0.0), expected, rtol=1e-5)


@pytest.mark.parametrize("d", SIZES)
def test_nearly_equal_covariances(d):
    """For T = A S A the squared distance is tr((I − A) S (I − A)), here about 1e-12."""
    s = oracles.covariances(30, d, seed=6)
    difference = 1e-6 * oracles.covariances(30, d, seed=7)
    a = np.eye(d) + difference
    expected = np.trace(difference @ s @ difference, axis1=1, axis2=2)
    np.testing.assert_allclose(gradient(s, a @ s @ a)[0], expected, rtol=1e-7)


def test_scale_does_not_matter():
    s, t = oracles.covariances(30, 3, seed=8), oracles.covariances(30, 3, seed=9)
    for factor in (1e-30, 1e30):
        scaled = (jnp.asarray(factor * x, jnp.float32) for x in (s, t))
        np.testing.assert_allclose(gradient(*scaled)[0] / factor, gradient(s, t)[0], rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_covariances(dtype):
    """tr S + tr T − 2 Σ σ_i(Aᵀ B) for S = A Aᵀ and T = B Bᵀ of rank two."""
    roots = np.random.default_rng(0).normal(size=(2, 10, 3, 2)).astype(dtype)
    covs = roots @ roots.swapaxes(-1, -2)
    singular_values = np.linalg.svd(roots[0].swapaxes(-1, -2) @ roots[1], compute_uv=False)
    traces = np.trace(covs.sum(0), axis1=-2, axis2=-1)
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(squared_bures)))(*covs)
    # A variance of zero is rounded to one of ε, whose standard deviation √ε counts twice.
    tolerance = 2 * np.sqrt(np.finfo(dtype).eps)
    np.testing.assert_allclose(
        value / traces, 1 - 2 * singular_values.sum(-1) / traces, atol=tolerance
    )
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("d", [2, 3, 6])
def test_units_far_apart_in_single_precision(d):
    """Variances from 1e6 to 1e-3: the smallest ones are no rounding errors of the largest."""
    a, b = np.geomspace(1e6, 1e-2, d), np.geomspace(1e6, 1e-3, d)
    found = jax.jit(squared_bures)(*(jnp.asarray(np.diag(x), jnp.float32) for x in (a, b)))
    np.testing.assert_allclose(found, np.sum((np.sqrt(a) - np.sqrt(b)) ** 2), rtol=1e-4)
    rng, units = np.random.default_rng(d), np.geomspace(1e3, 1e-2, d)
    s, t = (units * np.cov(rng.normal(size=(d, 3 * d))) * units[:, None] for _ in range(2))
    found = squared_bures(*(jnp.asarray(x, jnp.float32) for x in (s, t)))
    np.testing.assert_allclose(found, _by_roots(s, t), rtol=1e-4)
