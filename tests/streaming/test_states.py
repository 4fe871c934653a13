"""States in checkpoints and on several devices; level and power of the test by streaming."""

import os
import pathlib
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, kernels
from calibjax.estimators import UniformBins
from calibjax.streaming import CalibrationBins, ExactSKCETest
from calibjax.streaming.base import Sum

ROOT = pathlib.Path(__file__).parents[2]
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
    total = parts[0].merged(parts[1]).total()
    np.testing.assert_allclose(total, 4.001, rtol=1e-14)  # the plain sum is 1e-3
    assert float(parts[0].plus(jnp.inf).plus(1.0).total()) == np.inf


ON_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
jax.config.update("jax_enable_x64", True)
from calibjax import distances, distributions, kernels, streaming

n, rng = 40, np.random.default_rng(0)
loc, scale = rng.normal(size=n), rng.uniform(0.5, 1.5, n)
data = distributions.Normal(loc, scale), loc + rng.normal(size=n), np.arange(n)
rough = kernels.Exponential(1.0, distances.Wasserstein())
landmarks = jax.tree.map(lambda leaf: leaf[:5], data[0])
kernel = kernels.TensorProduct(
    kernels.Nystrom(rough, landmarks), kernels.SquaredExponential(1.0)
)
test = streaming.ExactSKCETest(jax.random.key(0), kernel, num_draws=19)
mesh = jax.make_mesh((4,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))

def of_device(predictions, targets, indices):
    state = test.update(test.init(), predictions, targets, indices=indices)
    return jax.lax.psum(state, "devices")

sharded = jax.jit(
    jax.shard_map(
        of_device, mesh=mesh, in_specs=P("devices"), out_specs=P(), check_vma=False
    )
)
found = test.result(sharded(*data))
expected = test.result(test.update(test.init(), *data[:2]))
assert jax.device_count() == 4
assert found.pvalue == expected.pvalue, (found.pvalue, expected.pvalue)
np.testing.assert_allclose(found.estimate, expected.estimate, rtol=0, atol=1e-14)
np.testing.assert_allclose(found.null_samples, expected.null_samples, rtol=0, atol=1e-12)
"""


@pytest.mark.slow
def test_on_four_devices():
    flags = "--xla_force_host_platform_device_count=4"
    found = subprocess.run(
        [sys.executable, "-c", ON_DEVICES],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
