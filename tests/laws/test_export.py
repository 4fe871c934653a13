"""Programs with a number of samples that is not known yet: exported once, run at any."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from calibjax import distributions, estimators, kernels, scores
from calibjax.estimators.kernel import mmce

OF_NUMBERS = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
OF_CLASSES = kernels.TensorProduct(kernels.Exponential(), kernels.White())
FORMULAS = {
    "skce of normals": lambda x: estimators.skce(OF_NUMBERS, x["normals"], x["numbers"]),
    "skce of classes": lambda x: estimators.skce(OF_CLASSES, x["classes"], x["labels"]),
    "skce of confidences": lambda x: estimators.skce(  # which are on a line
        OF_CLASSES, distributions.Bernoulli(x["confidences"]), jnp.minimum(x["labels"], 1)
    ),
    "skce_block": lambda x: estimators.skce_block(
        OF_CLASSES, x["classes"], x["labels"], block_size=2
    ),
    "mmce": lambda x: mmce(kernels.Exponential(0.4), x["confidences"], x["labels"] > 1),
    "ece": lambda x: estimators.ece(x["classes"], x["labels"]),
    "brier_score": lambda x: scores.brier_score(x["classes"], x["labels"]),
    "crps of ensembles": lambda x: scores.crps(x["ensembles"], x["numbers"]),
    "one scale": lambda x: scores.crps(distributions.Normal(x["numbers"], 0.3), x["confidences"]),
    "log_prob": lambda x: jax.vmap(lambda p, y: p.log_prob(y))(x["normals"], x["numbers"]),
    "gradient": lambda x: jax.grad(lambda p: estimators.skce(OF_NUMBERS, p, x["numbers"]))(
        x["normals"]
    ),
}


def data(n):
    """Predictions and targets of n samples, in float32."""
    random = np.random.default_rng(n)
    loc, scale = random.normal(size=n), random.uniform(0.5, 1, n)
    probs = random.dirichlet(np.ones(3), n).astype(np.float32)
    arrays = {
        "normals": distributions.Normal(loc.astype(np.float32), scale.astype(np.float32)),
        "ensembles": distributions.Ensemble(random.normal(size=(n, 4)).astype(np.float32)),
        "numbers": random.normal(size=n).astype(np.float32),
        "classes": distributions.Categorical(probs / probs.sum(1, keepdims=True)),
        "labels": random.integers(0, 3, n).astype(np.int32),
        "confidences": random.uniform(0.4, 1, n).astype(np.float32),
    }
    return jax.tree.map(jnp.asarray, arrays)


@pytest.mark.parametrize("name", FORMULAS)
def test_one_program_for_all_numbers_of_samples(name):
    function = FORMULAS[name]
    (n,) = export.symbolic_shape("n", constraints=["n >= 2", "floordiv(n, 2) >= 1"])
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((n, *x.shape[1:]), x.dtype), data(2))
    exported = export.export(jax.jit(function))(shapes)
    for size in (7, 1000) if name.startswith("skce") else (7,):
        samples = data(size)
        found, expected = exported.call(samples), jax.jit(function)(samples)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, 2e-5, 2e-7), found, expected)


READER = """
import sys, numpy as np
from jax import export
program = export.deserialize(open("program", "rb").read())
y = np.linspace(-1, 1, 11, dtype=np.float32)
print(program.call(y, y + 2, y))
assert "calibjax" not in sys.modules
"""


def test_another_process_runs_a_serialised_program_of_arrays(tmp_path):
    """Records would have to be registered for it."""
    pytest.importorskip("flatbuffers", reason="JAX needs it to serialise programs")

    def skce(loc, scale, targets):
        return estimators.skce(OF_NUMBERS, distributions.Normal(loc, scale), targets)

    (n,) = export.symbolic_shape("n", constraints=["n >= 2"])
    exported = export.export(jax.jit(skce))(*3 * [jax.ShapeDtypeStruct((n,), jnp.float32)])
    (tmp_path / "program").write_bytes(exported.serialize())
    command = [sys.executable, "-c", READER]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    y = jnp.linspace(-1, 1, 11, dtype=jnp.float32)
    np.testing.assert_allclose(float(printed.stdout), skce(y, y + 2, y), rtol=1e-5)
