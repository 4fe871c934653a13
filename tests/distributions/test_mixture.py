import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from calibjax import distributions

WEIGHTS, LOC, SCALE = (
    np.array([0.5, 0.0, 0.2, 0.3]),
    np.array([-3.0, 50.0, 0.5, 4.0]),
    np.array([0.7, 1.0, 2.0, 0.1]),
)


def _mixture(weights=WEIGHTS, loc=LOC, scale=SCALE):
    weights = None if weights is None else jnp.asarray(weights)
    return distributions.Mixture(
        weights, distributions.Normal(jnp.asarray(loc), jnp.asarray(scale))
    )


def test_quantiles_of_discrete_components_are_the_smallest_values_reached():
    probs = np.array([[0.0, 0.5, 0.3, 0.2], [0.1, 0.0, 0.0, 0.9]])
    p = distributions.Mixture(
        jnp.array([0.25, 0.75]), distributions.Categorical(jnp.asarray(probs))
    )
    mixed = np.array([0.25, 0.75]) @ probs
    np.testing.assert_allclose(p.class_probs, mixed, rtol=1e-14)
    for level in (0.01, 0.07, 0.08, 0.2, 0.201, 0.25, 0.3, 0.99):
        assert p.icdf(level) == np.argmax(mixed.cumsum() >= level)


def test_draws_follow_the_mixture():
    n = 20_000
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), _mixture())
    draws = distributions.sample_targets(jax.random.key(0), batch)
    cdf = lambda y: stats.norm(LOC, SCALE).cdf(np.asarray(y)[:, None]) @ WEIGHTS  # noqa: E731
    assert stats.kstest(draws, cdf).pvalue > 1e-3


def test_derivatives_of_the_log_density_by_a_weight_of_zero():
    """f_k / f minus one, since the weights are divided by their sum; one-sided differences."""
    parts, y, weights = (
        distributions.Normal(jnp.arange(3.0), jnp.ones(3)),
        0.3,
        jnp.array([0.0, 0.5, 0.5]),
    )

    def log_density(weights):
        return distributions.Mixture(weights, parts).log_prob(y)

    densities = np.exp(-0.5 * (y - np.arange(3)) ** 2)
    expected = densities / densities[1:].mean() - 1
    np.testing.assert_allclose(jax.grad(log_density)(weights), expected, rtol=1e-12)
    h = 1e-6
    change = (log_density(weights.at[0].set(h)) - log_density(weights)) / h
    np.testing.assert_allclose(change, expected[0], rtol=1e-5)
    parts = distributions.Normal(jnp.array([1e3, 0, 1]), jnp.ones(3))
    far = distributions.Mixture(weights, parts).log_prob(1e3)
    np.testing.assert_allclose(far, np.log(0.5) - 0.5 * 999**2 - 0.5 * np.log(2 * np.pi))
