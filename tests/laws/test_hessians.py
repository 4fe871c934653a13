"""Derivatives of kernels, distances, scores and estimators, along a curve of valid data.

Gradients are finite differences of values, and Hessians those of gradients, in general and where
two samples are equal. Equal samples stay so along the curve: functions of distances have no second
derivative where points part. The quick tests take one call of thirty-six.
"""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import registry
from tests.laws.test_modes import some
from tests.registry.arguments import ARRAYS, N
from tests.registry.outcomes import is_traced

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # about the data, see other tests

ROOMS = "kernels.", "distances.", "scores.", "estimators."
BANDS = tuple(f"estimators.{x}_curve" for x in ("reliability", "isotonic", "coverage"))
CALLS = [
    call
    for call in registry.calls().values()
    if call.compiled and call.covers[0].startswith(ROOMS) and "[weights" not in call.name
    # Derivatives of bands, which are NaN where XLA does not optimise, or a frequency is 0 or 1.
    if not call.name.startswith(BANDS)
]
# Length scales and steps are constants for JAX where they depend on the data.
CONSTANT = "median_heuristic", "default_kernel", "coverage_curve"
CONSTANT += "MixtureWasserstein[", "MaximumMeanDiscrepancy["
WEIGHTS = np.array([1.5, 0.25, 2.0, 0.5, 3.0, 0.75, 1.25, 2.5])
STEP = 1e-4
CURVES = {
    "real": lambda x, u, t: x + t * u,
    **dict.fromkeys(("positive", "scale", "weights"), lambda x, u, t: x * jnp.exp(t * u)),
    "simplex": lambda x, u, t: jax.nn.softmax(jnp.log(x) + t * u),
    "unit": lambda x, u, t: jax.nn.sigmoid(jnp.log(x / (1 - x)) + t * u),
    "spd": lambda x, u, t: x + t * (u @ x + x @ u.mT) + t**2 * u @ x @ u.mT,
}


def data_of(call, equal):
    """What is known of a call, kinds, starts with directions of what moves, and labels."""
    values = call.values(np.float64)
    generator = np.random.default_rng(zlib.crc32(call.name.encode()))
    kinds = {name: arg.kind for name, arg in call.arguments.items() if is_traced(arg)}
    if "weights" in call.takes - kinds.keys():
        kinds["weights"], values["weights"] = "weights", WEIGHTS
    moving, labels = {}, {}
    for name, kind in kinds.items():
        has_pair = equal and kind in ARRAYS and len(values[name]) == N
        if has_pair:
            values[name] = values[name][[0, 0, *range(2, N)]]
        if kind in CURVES:
            direction = generator.normal(size=np.shape(values[name])) / 4
            if has_pair:
                direction[1] = direction[0]
            start = jnp.asarray(values.pop(name))
            if name.startswith("at_"):  # some test locations are those of samples
                start = CURVES[kind](start, direction, 1.0)
            moving[name] = start, direction
        elif kind in ARRAYS:
            labels[name] = values.pop(name)
    return values, kinds, (moving, labels)


@pytest.mark.parametrize("call", some(6, CALLS, every=36))
def test_derivatives(call):
    known, kinds, arrays = data_of(call, equal=False)
    if not arrays[0]:
        pytest.skip("takes nothing to differentiate")

    @jax.jit
    def derivatives(step, moving, labels):
        """A number that is computed from the result, and its first and second derivative."""

        def number(step):
            moved = {k: CURVES[kinds[k]](*path, step) for k, path in moving.items()}
            leaves = jax.tree.leaves(call.function(**known, **labels, **moved))
            floats = [x for x in leaves if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
            floats = [jnp.where(jnp.isfinite(x), x, 0) for x in floats]
            factors = [np.cos(np.arange(x.size)).reshape(x.shape) for x in floats]
            return sum(map(lambda x, c: jnp.sum(x * c), floats, factors), jnp.zeros(()))

        (value, slope), (_, second) = jax.jvp(jax.value_and_grad(number), (step,), (1.0,))
        return jnp.stack([value, slope, second])

    is_constant = any(x in call.name for x in CONSTANT)
    for data in (arrays, data_of(call, equal=True)[2]):
        found = {k: derivatives(k * STEP, *data) for k in (-2.0, -1.0, 0.0, 1.0, 2.0)}
        # Of fourth order: its error is some 1e-12 times the fifth derivative.
        near, far = ((found[k] - found[-k]) / (2 * k * STEP) for k in (1.0, 2.0))
        expected = ((4 * near - far) / 3)[is_constant:2]
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(found[0.0][1 + is_constant :], expected, rtol=1e-6, atol=1e-7)
