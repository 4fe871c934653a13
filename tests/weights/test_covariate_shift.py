"""What docs/weights.md says of importance weights, on many data sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, kernels
from calibjax.distributions import Bernoulli
from calibjax.hypothesis_tests import exact_skce_test, skce_confidence_interval

KERNEL = kernels.TensorProduct(
    kernels.Exponential(0.2, distances.TotalVariation()), kernels.White()
)
pytestmark = pytest.mark.slow


def overconfident(p):
    return p - 0.6 * jnp.maximum(p - 0.5, 0)


def biased_sample(key, n, rate):
    """Probabilities of density s(p) = 1.8 − 1.6 p, by their quantile function; weights 1 / s."""
    uniform, label = jax.random.split(key)
    p = (1.8 - jnp.sqrt(3.24 - 3.2 * jax.random.uniform(uniform, (n,)))) / 1.6
    return Bernoulli(p), jax.random.bernoulli(label, rate(p)).astype(int), 1 / (1.8 - 1.6 * p)


def two_regions(key, n):
    """Rates p ± 0.1 in two regions, calibrated in both together; of one there are 80 %."""
    keys = jax.random.split(key, 3)
    p = jax.random.uniform(keys[0], (n,), minval=0.15, maxval=0.3)
    is_first = jax.random.bernoulli(keys[1], 0.8, (n,))
    labels = jax.random.bernoulli(keys[2], p + jnp.where(is_first, 0.1, -0.1)).astype(int)
    return Bernoulli(p), labels, jnp.where(is_first, 0.5 / 0.8, 0.5 / 0.2)


def truths(density):
    """SKCE of both classes and ECE of overconfident probabilities, by the midpoint rule."""
    p = (np.arange(2000) + 0.5) / 2000
    error = (p - np.asarray(overconfident(p))) * density(p)
    similarity = np.exp(-np.abs(p[:, None] - p) / 0.2)
    return 2 * np.mean(error[:, None] * similarity * error), np.mean(np.abs(error))


def in_data_sets(function, seed, number):
    """Results of a function of keys, each a row of numbers."""
    keys = jax.random.split(jax.random.key(seed), number)
    values = jax.jit(lambda keys: jax.lax.map(lambda key: jnp.stack(function(key)), keys))(keys)
    return np.asarray(values).T


def test_level_of_the_exact_test():
    def pvalue(key):
        data, own = jax.random.split(key)
        predictions, labels, weights = biased_sample(data, 64, lambda p: p)
        test = exact_skce_test(own, KERNEL, predictions, labels, weights=weights, num_draws=199)
        return (test.pvalue,)

    [pvalues] = in_data_sets(pvalue, 0, 2000)
    assert abs(np.mean(pvalues <= 0.05 + 1e-6) - 0.05) <= 3 * np.sqrt(0.05 * 0.95 / 2000)


def test_estimates_are_those_of_the_other_population():
    def estimate(key):
        predictions, labels, weights = biased_sample(key, 400, overconfident)
        weighted = estimators.skce(KERNEL, predictions, labels, weights=weights)
        return weighted, estimators.skce(KERNEL, predictions, labels)

    other, own = truths(lambda _: 1.0), truths(lambda p: 1.8 - 1.6 * p)
    np.testing.assert_allclose(other[1], 0.075, rtol=1e-6)
    np.testing.assert_allclose(own[1], 0.035, rtol=1e-6)
    for values, truth in zip(in_data_sets(estimate, 1, 1000), (other[0], own[0]), strict=True):
        assert abs(values.mean() - truth) <= 3 * values.std() / np.sqrt(values.size)


def test_coverage_of_the_interval():
    """93 % with n = 2000, less than 95 % because the SKCE is only three standard errors large."""

    def interval(key):
        predictions, labels, weights = biased_sample(key, 2000, overconfident)
        found = skce_confidence_interval(KERNEL, predictions, labels, weights=weights)
        return found.low, found.high

    low, high = in_data_sets(interval, 2, 500)
    truth, _ = truths(lambda _: 1.0)
    assert abs(np.mean((low <= truth) & (truth <= high)) - 0.93) <= 3 * np.sqrt(0.93 * 0.07 / 500)


def test_weights_that_say_more_than_the_predictions():
    """The estimate is right, but the exact test sees the regions through their weights."""

    def both(key):
        data, own = jax.random.split(key)
        predictions, labels, weights = two_regions(data, 256)
        test = exact_skce_test(own, KERNEL, predictions, labels, weights=weights, num_draws=199)
        return test.pvalue, test.estimate

    pvalues, estimates = in_data_sets(both, 3, 1000)
    assert abs(np.mean(pvalues <= 0.05 + 1e-6) - 0.21) <= 3 * np.sqrt(0.21 * 0.79 / 1000)
    assert abs(estimates.mean()) <= 3.5 * estimates.std() / np.sqrt(1000)
