import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibjax import distributions, estimators
from calibjax.hypothesis_tests import exact_skce_test, exact_test
from tests import oracles

KEY = jax.random.key(0)
FAST_NAMES = ("normal-None", "normal-3", "categorical-5-white", "categorical-5-label")


@pytest.mark.parametrize("label_kernel", [False, True])
def test_null_distribution_by_enumeration(label_kernel):
    """All 27 possible targets of three predictions, with their probabilities."""
    probs = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    predictions = distributions.Categorical(jnp.asarray(probs))
    matrix = oracles.label_matrix(3) if label_kernel else None
    kernel = oracles.categorical_kernel(0.5, matrix)
    observed = jnp.array([0, 2, 1])
    statistic = lambda y: float(estimators.skce_biased(kernel, predictions, jnp.array(y)))  # noqa: E731
    threshold = statistic(observed) - 1e-12
    exact = sum(
        np.prod(probs[np.arange(3), y]) * (statistic(y) >= threshold)
        for y in itertools.product(range(3), repeat=3)
    )
    num_draws = 20_000
    options = {"num_draws": num_draws, "statistic": "biased"}
    test = exact_skce_test(KEY, kernel, predictions, observed, **options)
    error = np.sqrt(exact * (1 - exact) / num_draws)
    assert 0.01 < exact < 0.5
    assert abs(float(test.pvalue) - exact) < 4 * error + 1 / num_draws


CASES = [*((name, jnp.float64) for name in FAST_NAMES), ("normal-None", jnp.float32)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("categorical-5-label", jnp.float32)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_equals_the_general_test_with_the_biased_statistic(name, dtype):
    """Matrix products, pairs under jit, and plain redraws of the statistic: one test."""
    kernel, predictions, targets, _, _ = oracles.cases()[name]
    data = kernel, predictions, targets = oracles.as_dtype((kernel, predictions, targets), dtype)
    test = functools.partial(exact_skce_test, KEY, num_draws=50, statistic="biased")

    @jax.jit
    def plain(kernel, *data):
        statistic = functools.partial(estimators.skce_biased, kernel)
        return exact_test(KEY, statistic, *data, num_draws=50)

    fast, others = test(*data), [plain(*data)]
    if name == "normal-None":  # has features only where its values are known
        others.append(jax.jit(test)(*data))
    tolerance = {"rtol": 1e-10} if dtype == jnp.float64 else {"rtol": 2e-3, "atol": 1e-7}
    for other in others:
        np.testing.assert_allclose(fast.null_samples, other.null_samples, **tolerance)
        np.testing.assert_allclose(fast.statistic, other.statistic, **tolerance)
        np.testing.assert_allclose(fast.pvalue, other.pvalue, atol=0.03)
    estimate = estimators.skce(kernel, predictions, targets)
    np.testing.assert_allclose(fast.estimate, estimate, **tolerance)
    assert fast.null_samples.dtype == fast.pvalue.dtype == dtype


def test_redraws_do_not_depend_on_the_targets():
    kernel, predictions, targets, _, _ = oracles.cases()["categorical-5-white"]
    one, two = (exact_skce_test(KEY, kernel, predictions, y) for y in (targets, (targets + 1) % 5))
    for name in ("biased", "unbiased", "dispersion"):  # the omnibus statistic standardises them
        draws = (getattr(test.components, name).null_samples for test in (one, two))
        np.testing.assert_allclose(*draws, rtol=1e-12)


def test_general_statistic():
    """The number of successes is binomial: an exact one-sided binomial test."""
    predictions = distributions.Bernoulli(jnp.full(30, 0.3))
    targets = jnp.asarray(np.r_[np.ones(13, int), np.zeros(17, int)])
    test = exact_test(KEY, lambda p, y: jnp.sum(y), predictions, targets, num_draws=20_000)
    exact = stats.binom.sf(12, 30, 0.3)
    assert abs(float(test.pvalue) - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000)
    assert test.statistic == test.estimate == 13


@pytest.mark.parametrize("transform", [jax.grad, jax.jit, jax.jacfwd])
def test_statistics_that_close_over_traced_values(transform):
    loc, targets = np.zeros(6), np.array([1.0, -2.0, 0.5, 0.0, 1.0, 3.0])

    def estimate(scale):
        statistic = lambda p, y: scale * jnp.mean(jnp.square(y - p.loc))  # noqa: E731
        predictions = distributions.Normal(loc, np.ones(6))
        return exact_test(KEY, statistic, predictions, targets, num_draws=9).estimate

    expected = np.mean(targets**2) * (2 if transform is jax.jit else 1)
    np.testing.assert_allclose(transform(estimate)(2.0), expected, rtol=1e-12)
