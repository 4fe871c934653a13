"""States in checkpoints, and their sums."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from calibjax import distances, distributions, kernels
from calibjax.estimators import UniformBins
from calibjax.streaming import CalibrationBins, ExactSKCETest
from calibjax.streaming.base import Sum

PREDICTIONS = distributions.Bernoulli(np.array([0.1, 0.4, 0.9, 0.6]))
LABELS = np.array([0, 1, 1, 0])
KERNEL = kernels.TensorProduct(
    kernels.Nystrom(
        kernels.Exponential(1.0, distances.TotalVariation()),
        distributions.Bernoulli(np.array([0.2, 0.7])),
    ),
    kernels.White(),
)
ACCUMULATORS = {
    "test": ExactSKCETest(jax.random.key(0), KERNEL, num_draws=9),
    "bins": CalibrationBins(UniformBins(3)),
}


@pytest.mark.parametrize("name", ACCUMULATORS)
def test_states_in_files(name, tmp_path):
    accumulator = ACCUMULATORS[name]
    state = accumulator.update(accumulator.init(), PREDICTIONS, LABELS)
    leaves, structure = jax.tree.flatten(state)
    np.savez(tmp_path / "state.npz", *leaves)
    with np.load(tmp_path / "state.npz") as file:
        read = jax.tree.unflatten(structure, [file[key] for key in file])
    for again in (read, pickle.loads(pickle.dumps(state))):
        one, two = (
            accumulator.result(accumulator.update(x, PREDICTIONS, LABELS)) for x in (state, again)
        )
        for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True):
            np.testing.assert_array_equal(a, b)
    narrow = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == float else x, state)
    with pytest.raises(ValueError, match=r"state: expected a state of this accumulator"):
        accumulator.result(narrow)


def test_sums_lose_nothing():
    terms = np.array([1.0, 1e17, 3.0, -1e17, 1e-3])
    parts = []
    for some in (terms[:2], terms[2:]):
        total = Sum(jnp.zeros(()), jnp.zeros(()))
        for term in some:
            total = jax.jit(Sum.plus)(total, term)
        parts.append(total)
    total = parts[0].plus(parts[1].value, parts[1].lost).total()
    assert_allclose(total, 4.001, rtol=1e-14)  # the plain sum is 1e-3
    assert float(parts[0].plus(jnp.inf).plus(1.0).total()) == np.inf
