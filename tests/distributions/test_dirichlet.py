import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, kernels
from calibjax.kernels.expectations import double_expectation


@jax.jit
def _log_prob(p, y):
    return p.log_prob(y)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-12)])
def test_agrees_with_scipy(dtype, tolerance):
    rng = np.random.default_rng(0)
    concentration = 10 ** rng.uniform(-1, 3, (50, 4))
    y = np.array([rng.dirichlet(np.maximum(c, 0.5)) for c in concentration])
    p = distributions.Dirichlet(jnp.asarray(concentration, dtype))
    log_prob = _log_prob(p, jnp.asarray(y, dtype))
    assert log_prob.dtype == dtype
    scipy = [stats.dirichlet(c) for c in concentration]
    expected = np.array([s.logpdf(x) for s, x in zip(scipy, y)])
    # The point itself is rounded: an error of ε Σ_k concentration_k.
    expected_error = tolerance * (1 + np.abs(expected) + concentration.sum(1) * 0.1)
    assert np.all(np.abs(log_prob - expected) < expected_error)
    np.testing.assert_allclose(p.mean(), [s.mean() for s in scipy], rtol=1e-5)
    np.testing.assert_allclose(p.variance(), [s.var() for s in scipy], rtol=1e-5)


def test_density_on_the_boundary():
    concentration = np.tile([1.0, 0.5, 3.0, 2.0], (50, 1))
    y = np.tile([0.25, 0.25, 0.25, 0.25], (50, 1))
    y[:3] = [[0, 0.5, 0.3, 0.2], [0.5, 0, 0.3, 0.2], [0.5, 0.3, 0, 0.2]]
    log_prob = _log_prob(distributions.Dirichlet(jnp.asarray(concentration)), jnp.asarray(y))
    expected = stats.dirichlet.logpdf([1e-14, 0.5 - 1e-14, 0.3, 0.2], concentration[0])
    np.testing.assert_allclose(log_prob[:3], [expected, np.inf, -np.inf], rtol=1e-12)


def test_draws_do_not_underflow():
    p = distributions.Dirichlet(jnp.full((50, 1000), 0.1, np.float32))
    draws = jax.jit(distributions.sample_targets)(jax.random.key(0), p)
    assert draws.dtype == np.float32
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(draws.var(), p.variance()[0, 0], rtol=0.15)


def test_expectations_need_monte_carlo():
    p = distributions.Dirichlet(jnp.ones(3))
    with pytest.raises(NotImplementedError, match="Dirichlet predictions.*monte_carlo"):
        double_expectation(kernels.SquaredExponential(), p, p)
