import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels
from tests import oracles

KEY = jax.random.key(0)


def test_draws_are_independent_and_follow_the_distribution():
    predictions = distributions.Normal(jnp.array([0.0, 5.0, 5.0]), jnp.array([1.0, 0.5, 0.5]))
    drawn = distributions.monte_carlo(KEY, predictions, 5000)
    values = np.asarray(drawn.draws.values)
    assert values.shape == (3, 5000)
    np.testing.assert_allclose(values.mean(1), predictions.loc, atol=0.06)
    np.testing.assert_allclose(values.std(1), predictions.scale, atol=0.04)
    correlation = np.corrcoef(np.hstack([values[:, :-1].T, values[:, 1:].T]).T)
    assert np.abs(correlation - np.eye(6)).max() < 0.06
    again = distributions.monte_carlo(KEY, drawn, 5000)  # of what has draws already
    np.testing.assert_array_equal(again.draws.values, values)
    assert isinstance(again.distribution, distributions.Normal)


@pytest.mark.slow
def test_exact_test_holds_its_level_with_three_draws():
    predictions, _, _ = oracles.normal_data(6)
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.0, distances.Wasserstein()), kernels.Exponential(0.3)
    )
    drawn = distributions.monte_carlo(KEY, predictions, 3)
    statistic = functools.partial(estimators.skce_biased, kernel, drawn)

    def rank(key):
        keys = jax.random.split(key, 20)
        values = jax.vmap(lambda k: statistic(distributions.sample_targets(k, predictions)))(keys)
        return jnp.sum(values[1:] >= values[0])

    ranks = jax.jit(jax.vmap(rank))(jax.random.split(jax.random.key(3), 1000))
    expected = np.full(5, 200)
    observed = np.histogram(ranks, 5, range=(0, 20))[0]
    assert np.sum((observed - expected) ** 2 / expected) < 18.5  # χ²₄ at 0.001
