import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions

LEVELS = np.array([1e-300, 0.01, 0.3, 0.5, 0.99])


def test_agrees_with_scipy():
    ours = distributions.Laplace(jnp.array(0.4), jnp.array(1.7))
    theirs = stats.laplace(0.4, 1.7)
    y = np.array([-1000.0, -4.0, 0.39, 0.4, 0.41, 5.0, 1000.0])
    np.testing.assert_allclose(ours.log_prob(y), theirs.logpdf(y), rtol=1e-13)
    np.testing.assert_allclose(ours.cdf(y), theirs.cdf(y), rtol=1e-13)
    np.testing.assert_allclose(ours.icdf(LEVELS), theirs.ppf(LEVELS), rtol=1e-13)
    assert (ours.mean(), ours.variance()) == (theirs.mean(), pytest.approx(theirs.var()))
    assert ours.icdf(0.0) == -jnp.inf
    assert ours.icdf(1.0) == jnp.inf


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_draws_follow_the_distribution(dtype):
    n = 20_000
    batch = distributions.Laplace(jnp.full(n, 0.4, dtype), jnp.full(n, 1.7, dtype))
    draws = distributions.sample_targets(jax.random.key(0), batch)
    assert draws.dtype == dtype
    assert stats.kstest(draws, stats.laplace(0.4, 1.7).cdf).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_derivatives_are_those_of_the_formulas(dtype):
    """Also at the mean, and where an exponential of the other side would overflow."""
    y = jnp.array([-2000.0, -1.0, 0.5, 1.0, 3000.0], dtype)
    p = distributions.Laplace(jnp.full(5, 0.5, dtype), jnp.full(5, 2.0, dtype))
    slopes = lambda f: jax.jit(jax.vmap(jax.grad(f, argnums=(0, 1))))(p, y)  # noqa: E731
    d_p, d_y = slopes(lambda p, y: p.cdf(y))
    density, z = np.exp(p.log_prob(y)), (y - 0.5) / 2
    for ours, expected in ((d_y, density), (d_p.loc, -density), (d_p.scale, -density * z)):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, expected, rtol=1e-6)
    d_p, d_y = slopes(lambda p, y: p.log_prob(y))
    np.testing.assert_allclose(d_y, -np.sign(z) / 2, rtol=1e-6)
    np.testing.assert_allclose(d_p.scale, (np.abs(z) - 1) / 2, rtol=1e-6)
