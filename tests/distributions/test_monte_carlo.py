import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
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


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Exponential:
    """A user's distribution that has a sampler and nothing else."""

    mean_value: jax.Array

    def sample(self, key):
        return self.mean_value * jax.random.exponential(key, dtype=self.mean_value.dtype)


@pytest.mark.slow
def test_a_sampler_is_all_that_is_needed():
    """SKCE and exact test from draws agree with the integrals, E exp(−Z) = 1 / (1 + mean)."""
    means = jnp.linspace(0.5, 2.0, 12)
    predictions = Exponential(means)
    targets = distributions.sample_targets(jax.random.key(1), predictions) + 1
    kernel = kernels.TensorProduct(kernels.SquaredExponential(), kernels.Exponential(1.0))
    drawn = distributions.monte_carlo(jax.random.key(2), predictions, 100)
    test = hypothesis_tests.exact_skce_test(KEY, kernel, drawn, targets, num_draws=99)
    y, p = np.asarray(targets), np.asarray(means)
    single = np.empty((12, 12))  # m_p(z) for the kernel exp(−|y − z|)
    for i, r in enumerate(1 / p):
        lower = r / (r - 1) * (np.exp(-y) - np.exp(-r * y)) if r != 1 else y * np.exp(-y)
        single[i] = lower + r / (1 + r) * np.exp(-r * y)
    # |Z − Z'| of two exponential variables is exponential again, with either rate.
    r, s = 1 / p[:, None], 1 / p
    double = (s / (1 + r) * r + r / (1 + s) * s) / (r + s)
    bracket = np.exp(-np.abs(y[:, None] - y)) - single - single.T + double
    matrix = np.exp(-0.5 * (p[:, None] - p) ** 2) * bracket
    np.testing.assert_allclose(test.estimate, oracles.unbiased(matrix), atol=0.02)
    np.testing.assert_allclose(test.components.biased.statistic, matrix.mean(), atol=0.02)
    assert test.estimate > 0.05
    assert test.pvalue == 0.01


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
