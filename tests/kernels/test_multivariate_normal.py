import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import kernels
from calibjax.distributions import MvNormal
from calibjax.kernels.expectations.normal import centered_without_offset_multivariate
from tests import compiled, oracles

RNG = np.random.default_rng(0)


@jax.jit
def expectations(kernel, p, y, q, z):
    """m_p(z), M_{p,q}, the registered form, the form without offset, for a batch of pairs."""

    def one(p, y, q, z):
        return (
            compiled.single_expectation(kernel, p, z),
            compiled.double_expectation(kernel, p, q),
            compiled.centered_kernel(kernel, p, y, q, z),
            centered_without_offset_multivariate(kernel, p, y, q, z),
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
        rows.append((single, double, four + double, four + double))
    return np.transpose(rows)


def _pairs(n, d, scale=1.0):
    loc = RNG.normal(size=(4, n, d))
    cov = [oracles.covariances(n, d, scale, seed) for seed in (0, 1)]
    loc, cov = jnp.asarray(loc), [jnp.asarray(c) for c in cov]
    return MvNormal(loc[0], cov[0]), loc[1], MvNormal(loc[2], cov[1]), loc[3]


@pytest.mark.parametrize("d", [pytest.param(3, marks=pytest.mark.slow), 12])
def test_inverse_and_determinant(d):
    """Thirty random settings; singular covariances too. Float32: absolute error 3e-6."""
    pairs = _pairs(30, d)
    singular = pairs[0].cov.at[::3, :, 0].set(0).at[::3, 0, :].set(0)
    pairs = (MvNormal(pairs[0].loc, singular), *pairs[1:])
    expected = _expected(*jax.tree.map(np.asarray, pairs), 1.3)
    ours = expectations(kernels.SquaredExponential(jnp.asarray(1.3)), *pairs)
    np.testing.assert_allclose(ours[:2], expected[:2], rtol=1e-9)
    np.testing.assert_allclose(ours[2:], expected[2:], rtol=1e-9, atol=1e-14)
    single = oracles.as_dtype((kernels.SquaredExponential(1.3), *pairs), jnp.float32)
    ours = expectations(*single)
    assert all(x.dtype == jnp.float32 for x in ours)
    np.testing.assert_allclose(ours[:3], expected[:3], atol=3e-6)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("d", [3, 12])
def test_float32_at_all_scales(d, scale):
    """Errors are relative to the size of the kernel: three digits where it is tiny.

    In float64 the form without offset is the four terms.
    """
    p, y, q, z = _pairs(30, d, scale)
    y, z = p.loc + scale * y, q.loc + scale * z
    kernel = kernels.SquaredExponential(jnp.asarray(1.3))
    _, _, four, without_offset = expectations(kernel, p, y, q, z)
    np.testing.assert_allclose(without_offset, four, atol=1e-14 * max(1, scale**3))
    single = expectations(*oracles.as_dtype((kernel, p, y, q, z), jnp.float32))
    tolerance = 3e-6 * (np.abs(four).max() if scale > 1 else 1)
    np.testing.assert_allclose(single[2], four, rtol=1e-3, atol=tolerance)


@pytest.mark.parametrize("d", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_gradients(d):
    """Against finite differences in float64; float32 against float64."""
    p, y, q, z = jax.tree.map(lambda x: x[0], _pairs(1, d))
    kernel = kernels.SquaredExponential(jnp.asarray(1.3))

    def centered(kernel, p, q):
        return compiled.centered_kernel(kernel, p, y.astype(p.loc.dtype), q, z.astype(p.loc.dtype))

    gradient = jax.jit(jax.value_and_grad(centered, argnums=(0, 1, 2)))
    _, exact = gradient(kernel, p, q)
    direction = jax.tree.map(lambda x: RNG.normal(size=x.shape), (kernel, p, q))
    moved = [
        gradient(*jax.tree.map(lambda x, v: x + step * v, (kernel, p, q), direction))[0]  # noqa: B023
        for step in (1e-5, -1e-5)
    ]
    slope = sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), exact, direction)))
    np.testing.assert_allclose(slope, (moved[0] - moved[1]) / 2e-5, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(exact[1].cov, exact[1].cov.T, atol=1e-14)
    if d == 12:
        return  # no other derivative
    _, single = gradient(*oracles.as_dtype((kernel, p, q), jnp.float32))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), single, exact)


@pytest.mark.slow
def test_extreme_scales_stay_finite():
    """Predictions much narrower or wider than the length scale; values and gradients."""
    pairs = [oracles.as_dtype(_pairs(10, 2, scale), jnp.float32) for scale in (1e-8, 1e8)]
    kernel = kernels.SquaredExponential(jnp.float32(1.0))

    def value(p, y, q, z):
        return compiled.centered_kernel(kernel, p, y, q, z)

    values, gradient = jax.jit(jax.vmap(jax.value_and_grad(value, argnums=(0, 1))))(
        *jax.tree.map(lambda *x: jnp.concatenate(x), *pairs)
    )
    assert np.all(np.abs(values) <= 4)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
