import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions
from calibjax._core import checks
from calibjax.distributions import MvNormal
from tests import oracles

RNG = np.random.default_rng(0)
COV = oracles.covariances(1, 2)


@pytest.mark.parametrize("d", [1, 12])
def test_agrees_with_scipy(d):
    loc, y = RNG.normal(size=(2, 30, d))
    cov = oracles.covariances(30, d)
    ours = MvNormal(jnp.asarray(loc), jnp.asarray(cov))
    expected = [stats.multivariate_normal(*p).logpdf(z) for *p, z in zip(loc, cov, y)]
    log_prob = jax.jit(MvNormal.log_prob)
    np.testing.assert_allclose(log_prob(ours, y), expected, rtol=1e-9)
    np.testing.assert_allclose(ours.variance(), [np.diag(s) for s in cov])
    np.testing.assert_array_equal(ours.mean(), loc)


def test_draws_follow_the_distribution():
    dtype = jnp.float32
    n = 20_000
    p = MvNormal(
        jnp.tile(jnp.array([1.0, -2.0], dtype), (n, 1)),
        jnp.tile(jnp.asarray(COV[0], dtype), (n, 1, 1)),
    )
    draws = distributions.sample_targets(jax.random.key(0), p)
    assert draws.dtype == dtype
    whitened = np.linalg.solve(np.linalg.cholesky(COV[0]), (np.asarray(draws) - [1, -2]).T)
    assert stats.kstest(whitened.ravel(), stats.norm.cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(whitened), np.eye(2), atol=4 * np.sqrt(2 / n))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_and_rounding_are_not_refused(dtype):
    root = (
        np.random.default_rng(1).normal(size=(50, 4, 4)) * 10.0 ** np.array([-9, -2, 3, 9])[:, None]
    )
    covariances = (root @ root.swapaxes(1, 2)).astype(dtype)
    covariances[:, 0] *= 1 + np.finfo(dtype).eps  # a little asymmetric
    checks.positive_definite("cov", covariances[None])
    assert np.all(np.isfinite(MvNormal(jnp.zeros(4, dtype), covariances).log_prob(root[:, 0])))


def test_definiteness_depends_on_the_precision():
    """A correlation that float64 holds and float32 does not tell from one."""
    correlation = np.array([[1, 1 - 1e-8], [1 - 1e-8, 1]])
    checks.positive_definite("cov", correlation)
    with pytest.raises(ValueError, match=r"correlations: .* in float32 \(see jax_ena"):
        checks.positive_definite("cov", correlation.astype(np.float32))
