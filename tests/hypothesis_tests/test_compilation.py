"""How often the tests with any statistic are compiled."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, hypothesis_tests
from tests import oracles

KEY = jax.random.key(0)
NUM_SAMPLES = 20
_COMPILATIONS = []


def _listen(event, duration, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        _COMPILATIONS.append(duration)


@pytest.fixture
def count():
    """Number of programs that a function compiles."""
    jax.monitoring.register_event_duration_secs_listener(_listen)

    def count(function):
        _COMPILATIONS.clear()
        function()
        return len(_COMPILATIONS)

    yield count
    jax.monitoring.unregister_event_duration_listener(_listen)


@pytest.fixture(scope="module")
def data():
    with jax.enable_x64(True):
        return oracles.categorical_data(10, 3)[:2]


def _length_scale_from_outside(p, y):
    return estimators.skce_biased(oracles.categorical_kernel(SETTINGS["length_scale"]), p, y)


SETTINGS = {"length_scale": 0.5}


@pytest.mark.parametrize(
    "name", ["exact_test", pytest.param("consistency_test", marks=pytest.mark.slow)]
)
def test_equal_statistics_are_compiled_once(count, data, name):
    jax.clear_caches()  # with parts of a program that other tests have traced, its text may differ
    predictions, targets = data
    test = getattr(hypothesis_tests, name)

    def run(statistic, key=KEY, predictions=predictions):
        return test(key, statistic, predictions, targets, num_draws=NUM_SAMPLES)

    def biased(length_scale=0.5):
        kernel = oracles.categorical_kernel(length_scale)
        return functools.partial(estimators.skce_biased, kernel)

    first, other_key = run(biased()), jax.random.key(1)
    shuffled = jax.tree.map(lambda leaf: leaf[::-1], predictions)
    assert count(lambda: run(biased())) == 0  # another function object with equal pieces
    assert count(lambda: run(lambda p, y: biased()(p, y))) == 0
    assert count(lambda: run(biased(), other_key)) == 0
    assert count(lambda: run(biased(), predictions=shuffled)) == 0
    assert count(lambda: run(biased(0.25))) > 0
    np.testing.assert_array_equal(run(biased()).null_samples, first.null_samples)


def test_what_a_statistic_reads_from_outside_is_not_remembered(data):
    run = functools.partial(
        hypothesis_tests.exact_test, KEY, _length_scale_from_outside, *data, num_draws=NUM_SAMPLES
    )
    one = run()
    SETTINGS["length_scale"] = 0.25
    two = run()
    assert np.all(one.null_samples != two.null_samples)


def test_constants_of_statistics_are_compared(data):
    predictions, targets = data
    weights = np.zeros(100_000)

    def run(weights):
        statistic = lambda p, y: jnp.sum(y * 1.0) + jnp.sum(weights * jnp.sum(y))  # noqa: E731
        return hypothesis_tests.exact_test(
            KEY, statistic, predictions, targets, num_draws=NUM_SAMPLES
        )

    other = weights.copy()
    other[50_000] = 1
    np.testing.assert_allclose(run(other).null_samples, 2 * run(weights).null_samples)


def test_statistics_that_look_at_the_predictions(data):
    def statistic(p, y):
        return jnp.sum(y * 1.0) * float(np.asarray(p.probs).max())

    test = hypothesis_tests.exact_test(KEY, statistic, *data, num_draws=NUM_SAMPLES)
    plain = hypothesis_tests.exact_test(
        KEY, lambda p, y: jnp.sum(y * 1.0) * jnp.max(p.probs), *data, num_draws=NUM_SAMPLES
    )
    np.testing.assert_allclose(test.null_samples, plain.null_samples)


def test_functions_that_are_called_back_are_not_mistaken_for_each_other(data):
    predictions, targets = data

    def run(factor):
        def statistic(p, y):
            total = jnp.sum(y).astype(jnp.float32)
            double = lambda x: np.float32(factor) * np.asarray(x)  # noqa: E731
            return jax.pure_callback(double, total, total, vmap_method="sequential")

        return hypothesis_tests.exact_test(
            KEY, statistic, predictions, targets, num_draws=NUM_SAMPLES
        )

    np.testing.assert_allclose(run(2).null_samples, 2 * run(1).null_samples)


def test_statistics_with_traced_hyperparameters(data):
    """They are part of the outer program."""

    def draws(length_scale):
        kernel = oracles.categorical_kernel(length_scale)
        statistic = functools.partial(estimators.skce_biased, kernel)
        return hypothesis_tests.exact_test(
            KEY, statistic, *data, num_draws=NUM_SAMPLES
        ).null_samples

    np.testing.assert_allclose(jax.jit(draws)(0.5), draws(0.5), rtol=1e-10)
