"""Accumulators of forecasts in the order of time: the same as all at once."""

import itertools
import pickle

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distributions, recalibration
from calibjax.hypothesis_tests import e_process
from calibjax.streaming import EProcess

N = 12
_random = np.random.default_rng(3)
PREDICTIONS = distributions.Normal(_random.normal(size=N), _random.uniform(0.5, 1.5, N))
TARGETS = _random.normal(size=N) + 0.5
AFFINE = recalibration.AffineScaling()


def updated(accumulator, batches=(0, 5, 6, N)):
    state = accumulator.init()
    for start, stop in itertools.pairwise(batches):
        some = jax.tree.map(lambda x, rows=slice(start, stop): x[rows], PREDICTIONS)
        state = accumulator.update(state, some, TARGETS[start:stop])
    return state


@pytest.mark.parametrize("horizon", [1, 3])
def test_as_all_at_once(horizon):
    expected = e_process(PREDICTIONS, TARGETS, horizon=horizon, forget=0.9, significance_level=0.9)
    example = distributions.Normal(np.zeros(1), np.ones(1))
    accumulator = EProcess(example, forget=0.9, significance_level=0.9, horizon=horizon, window=20)
    state = updated(accumulator)
    for found in (accumulator.result(state), accumulator.result(pickle.loads(pickle.dumps(state)))):
        assert found.log_wealth.shape == ()
        assert_allclose(found.log_wealth, expected.log_wealth[-1], rtol=1e-9)
        assert_allclose(found.pvalue, expected.pvalue, rtol=1e-9)
        assert int(found.crossing) == int(expected.crossing)
        for name, logs in expected.log_wealths.items():
            assert_allclose(found.log_wealths[name], logs[-1], rtol=1e-9)
    assert found.earned_most == expected.earned_most


def test_transformations_and_state():
    accumulator = EProcess(PREDICTIONS, AFFINE)
    step = jax.jit(accumulator.update)
    state, sizes = accumulator.init(), set()
    for _ in range(3):
        state = step(state, PREDICTIONS, TARGETS)
        sizes.add(sum(x.nbytes for x in jax.tree.leaves(state)))
    assert len(sizes) == 1
    assert int(state.number) == 3 * N
    jitted = jax.jit(accumulator.result)(state)
    assert_allclose(jitted.log_wealth, accumulator.result(state).log_wealth, rtol=1e-9)
    single = jax.tree.map(lambda x: x.astype(np.float32), PREDICTIONS)
    found = EProcess(single)
    after = found.update(found.init(), single, TARGETS.astype(np.float32))
    assert found.result(after).log_wealth.dtype == np.float32


def test_states_of_other_bets_and_predictions():
    accumulator = EProcess(PREDICTIONS, AFFINE)
    state = accumulator.init()
    with pytest.raises(ValueError, match="state: expected a state of this accumulator"):
        EProcess(PREDICTIONS).update(state, PREDICTIONS, TARGETS)
    with pytest.raises(ValueError, match="predictions: expected entries like those of example"):
        accumulator.update(state, distributions.Bernoulli(np.full(N, 0.5)), np.zeros(N, int))
