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


@pytest.mark.parametrize("bets", [AFFINE, pytest.param(None, marks=pytest.mark.slow)])
def test_as_all_at_once(bets):
    options = {"horizon": 3, "forget": 0.9, "significance_level": 0.9}
    expected = e_process(PREDICTIONS, TARGETS, bets=bets, **options)
    example = distributions.Normal(np.zeros(1), np.ones(1))
    accumulator = EProcess(example, bets, window=20, **options)
    state = accumulator.init()
    for start, stop in itertools.pairwise((0, 5, 6, N)):
        some = jax.tree.map(lambda x, rows=slice(start, stop): x[rows], PREDICTIONS)
        state = accumulator.update(state, some, TARGETS[start:stop])
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
