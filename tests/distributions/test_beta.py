"""Beta and Dirichlet distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions


@jax.jit
def _values(alpha, beta, y, level):
    p = distributions.Beta(alpha, beta)
    slope = jax.vmap(jax.grad(lambda a, b, y: distributions.Beta(a, b).log_prob(y)))(alpha, beta, y)
    return p.log_prob(y), p.cdf(y), p.icdf(level), slope


@pytest.mark.parametrize("values", [(2.0, 3.0, 0.3), (0.1, 0.2, 1e-6), (50.0, 3.0, 0.97)])
def test_derivatives_of_the_cdf(values):
    """Against differences of SciPy's values, in both parameters and the argument."""
    slopes = jax.grad(lambda a, b, y: distributions.Beta(a, b).cdf(y), (0, 1, 2))(
        *map(jnp.float64, values)
    )
    for i, slope in enumerate(slopes):
        low, high = ([*values] for _ in range(2))
        step = 1e-5 * values[i]
        low[i], high[i] = values[i] - step, values[i] + step
        ends = [stats.beta.cdf(x[2], x[0], x[1]) for x in (low, high)]
        np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-4)


def test_limits():
    """At 0 and 1 the density is 0, infinite, or finite; outside it is zero."""
    rows = [[1, 2, 0], [1, 2, 1], [0.5, 0.5, 0], [2, 2, 0], [2, 2, 1.5], [1, 1, 1]]
    level = np.array([0, 1, 0, 1, 0.5, 0.3])
    alpha, beta, y = np.array(rows).T
    p = distributions.Beta(alpha, beta)
    columns = (np.tile(column, 50) for column in (alpha, beta, y, level))
    log_prob, cdf, quantile, _ = (value[:6] for value in _values(*columns))
    expected = np.array([2, 0, np.inf, 0, 0, 1])
    np.testing.assert_allclose(np.exp(log_prob), expected, rtol=1e-14)
    np.testing.assert_array_equal(cdf, [0, 1, 0, 0, 1, 1])
    np.testing.assert_allclose(quantile, [0, 1, 0, 1, 0.5, 0.3], rtol=1e-7)
    np.testing.assert_allclose(p.mean(), stats.beta.mean(alpha, beta))
    np.testing.assert_allclose(p.variance(), stats.beta.var(alpha, beta))


def test_gradients_by_a_parameter_of_one_at_the_edge():
    """Of (alpha − 1) log y at y = 0: −∞, as the largest number, and what it is elsewhere."""

    def log_density(alpha, y):
        return distributions.Beta(alpha, jnp.array(3.0)).log_prob(y)

    slopes = [jax.grad(log_density)(jnp.array(1.0), y) for y in (0.0, 0.5)]
    expected = np.log(0.5) + 1 + 1 / 2 + 1 / 3  # log y + ψ(4) − ψ(1)
    np.testing.assert_allclose(slopes[1], expected, rtol=1e-12)
    assert slopes[0] < -1e308
    masked = jax.grad(lambda alpha: 0 * log_density(alpha, 0.0))(jnp.array(1.0))
    assert masked == 0  # of a sample without weight
    gamma = lambda alpha, y: distributions.Gamma(alpha, jnp.array(2.0)).log_prob(y)  # noqa: E731
    slopes = [jax.grad(gamma)(jnp.array(1.0), y) for y in (0.0, 0.5, -1.0)]
    np.testing.assert_allclose(slopes[1:], [np.euler_gamma, 0], rtol=1e-12)
    assert slopes[0] < -1e308


@jax.jit
def _log_prob(p, y):
    return p.log_prob(y)


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
