"""How often the tests with any statistic are compiled."""

import functools

import jax
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


@pytest.mark.parametrize("name", ["exact_test", "consistency_test"])
def test_a_statistic_is_compiled_once(count, data, name):
    predictions, targets = data
    kernel = oracles.categorical_kernel(0.5)
    statistic = functools.partial(estimators.skce_biased, kernel)

    def run(key=KEY, predictions=predictions):
        test = getattr(hypothesis_tests, name)
        return test(key, statistic, predictions, targets, num_draws=NUM_SAMPLES)

    shuffled, key = jax.tree.map(lambda leaf: leaf[::-1], predictions), jax.random.key(1)
    assert count(run) > 0
    assert count(lambda: (run(key), run(predictions=shuffled))) == 0


def test_statistics_with_traced_hyperparameters(data):
    """They are part of the outer program."""

    def draws(length_scale):
        kernel = oracles.categorical_kernel(length_scale)
        statistic = functools.partial(estimators.skce_biased, kernel)
        return hypothesis_tests.exact_test(
            KEY, statistic, *data, num_draws=NUM_SAMPLES
        ).null_samples

    np.testing.assert_allclose(jax.jit(draws)(0.5), draws(0.5), rtol=1e-10)
