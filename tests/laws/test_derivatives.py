"""Derivatives of estimators, scores, kernels and densities are those of central differences.

All floating-point arrays of a call move along one direction. The quick tests take a few calls, the
weekly ones all of them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.laws.test_modes import CALLS, numbers_of_traced, traced_arguments

STEP = 1e-5
ROOMS = "kernels.", "distances.", "distributions.", "estimators.", "scores."
# Length scales that are no function of the data for JAX, draws by rejection, and steps.
WITHOUT = "median_heuristic", "default_kernel", "sample_targets", "monte_carlo", "coverage_curve"
WITHOUT += "MixtureWasserstein[", "MaximumMeanDiscrepancy[", "isotonic_curve"
SMOOTH = [
    call
    for call in CALLS
    if call.compiled and call.name.startswith(ROOMS) and not any(x in call.name for x in WITHOUT)
]


def direction_of(kind, array, random):
    """A direction in which an array keeps its constraint."""
    direction = random.uniform(-0.5, 0.5, array.shape)
    if kind == "simplex":
        return array * (direction - np.sum(array * direction, -1, keepdims=True))
    if kind in ("spd", "matrix"):
        direction = direction @ array
        return direction + np.swapaxes(direction, -1, -2)
    return direction if kind == "real" else array * direction


def along_a_line(call):
    """A sum over all numbers of a result as a function of the step of its arrays."""
    arrays, known = traced_arguments(call)
    random, lines = np.random.default_rng(0), {}
    for name, array in arrays.items():
        kind = call.arguments[name].kind
        if kind != "key" and jnp.issubdtype(array.dtype, jnp.floating):
            lines[name] = jnp.asarray(direction_of(kind, np.asarray(array), random))

    def total(step):
        moved = {name: arrays[name] + step * line for name, line in lines.items()}
        leaves = numbers_of_traced(call.function(**known, **arrays | moved))
        numbers = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
        unequal = [jnp.sin(x) * jnp.cos(1.0 + jnp.arange(x.size)).reshape(x.shape) for x in numbers]
        return sum((jnp.nansum(x, dtype=float) for x in unequal), jnp.zeros(()))

    return total if lines else None


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call, id=call.name, marks=() if i % 19 == 1 and not call.slow else pytest.mark.slow
        )
        for i, call in enumerate(SMOOTH)
    ],
)
def test_gradients(call):
    total = along_a_line(call)
    if total is None:
        pytest.skip("takes no numbers")
    both = jax.jit(jax.value_and_grad(total))
    (_, slope), (low, _), (high, _) = map(both, (0.0, -STEP, STEP))
    scale = max(abs(float(low)), 1e-3)
    np.testing.assert_allclose(slope, (high - low) / (2 * STEP), 1e-5, 1e-7 * scale)
