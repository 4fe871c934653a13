"""Batches whose rows are split over devices give what they give on one."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from calibjax import distances, distributions, estimators, kernels, scores
from calibjax.streaming import SKCE, BlockSKCE, CalibrationBins, ExactSKCETest, MeanScore

N = 16
RNG = np.random.default_rng(6)
LOC, SCALE, TARGETS = RNG.normal(size=N), RNG.uniform(0.5, 1, N), RNG.normal(size=N)
NORMALS = distributions.Normal(LOC, SCALE), TARGETS
CLASSES = distributions.Bernoulli(RNG.uniform(size=N)), RNG.integers(0, 2, N)
ROUGH = kernels.Exponential(1.0, distances.TotalVariation())
KERNEL = kernels.TensorProduct(ROUGH, kernels.White())
LOW_RANK = kernels.TensorProduct(
    kernels.LowRank(ROUGH, distributions.Bernoulli(np.array([0.2, 0.5, 0.7]))), kernels.White()
)
CASES = {
    "test": (ExactSKCETest(jax.random.key(0), LOW_RANK, num_draws=9), CLASSES),
    "skce": (SKCE(LOW_RANK), CLASSES),
    "blocks": (BlockSKCE(KERNEL, 2), CLASSES),
    "bins": (CalibrationBins(estimators.UniformBins(3)), CLASSES),
    "score": (MeanScore(scores.negative_log_likelihood), NORMALS),
}


@pytest.mark.parametrize(
    ("name", "axis", "is_compiled"),
    [
        *((name, AxisType.Explicit, True) for name in CASES),
        ("skce", AxisType.Auto, True),
        *(
            pytest.param(name, axis, False, marks=pytest.mark.slow)
            for name in CASES
            for axis in (AxisType.Explicit, AxisType.Auto)
        ),
    ],
)
def test_batches(name, axis, is_compiled):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(axis,))
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    place = lambda tree: jax.tree.map(lambda x: jax.device_put(x, sharding), tree)  # noqa: E731
    accumulator, data = CASES[name]
    halves = [jax.tree.map(lambda x, s=s: x[s], data) for s in (slice(0, 8), slice(8, N))]

    def state_of(batches, update=accumulator.update):
        state = accumulator.init()
        for batch in batches:
            state = update(state, *batch)
        return state

    expected = accumulator.result(state_of(halves))
    split = place(halves)
    update = jax.jit(accumulator.update) if is_compiled else accumulator.update
    state = state_of(split, update)
    assert all(len(leaf.sharding.device_set) == 4 for leaf in jax.tree.leaves(state))
    found = accumulator.result(accumulator.merge(state, accumulator.init()))
    for x, y in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)
    if name == "test":
        assert float(found.pvalue) == float(expected.pvalue)
