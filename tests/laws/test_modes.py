"""JAX's own modes and transformations change no number of any call.

Of the modes that forbid something all are on at once. The quick tests take every eighteenth call,
or fewer where a call is compiled twice, and the weekly ones all of them.
"""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from tests import registry
from tests.registry.outcomes import evaluate, is_same, is_traced, numbers_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # about the data, see other tests


@contextlib.contextmanager
def strict():
    """No promotion of ranks or types, no old keys, and an error where a number is not finite."""
    with (
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
        jax.debug_nans(True),
        jax.debug_infs(True),
        jax.legacy_prng_key("error"),
    ):
        yield


MODES = {"strict": strict, "leaks": jax.checking_leaks, "no jit": jax.disable_jit}
# Weights go the same ways as without them, and `tests.weights` has their laws. States of streams
# are arrays of one precision, the default one.
LEFT_OUT = "[weights", "[state"
CALLS = [x for x in registry.calls().values() if not any(part in x.name for part in LEFT_OUT)]
# Inside of `shard_map`: draws of JAX want keys that differ where the parameters do.
NOT_SHARDED = {
    "distributions.monte_carlo[Dirichlet]": "jax.random.dirichlet",
    "hypothesis_tests.exact_skce_test[Beta]": "jax.random.beta",
    "select_recalibration[Normal]": "chooses by values in Python",
}
# Loops that take a minute turn by turn; they call what other calls are about.
LOOPS = "evaluate", "compare", "select_recalibration[Normal]", "_difference[Normal]", "[clusters]"


def some(turn, calls=CALLS, every=18):
    """Calls, all but a few of which are slow."""
    slow = pytest.mark.slow
    return [
        pytest.param(call, id=call.name, marks=() if i % every == turn and not call.slow else slow)
        for i, call in enumerate(calls)
    ]


def check_in(mode, call):
    """The numbers of a call are the same in a mode."""
    values = call.values(np.float64)
    expected = numbers_of(evaluate(call, values))
    with MODES[mode]():
        assert is_same(evaluate(call, values), expected)


def traced_arguments(call, dtype=np.float64):
    """The arrays among the arguments of a call, and what else it takes."""
    values = call.values(dtype)
    names = [x for x, arg in call.arguments.items() if is_traced(arg) or arg.kind == "key"]
    arrays = {name: jax.tree.map(jnp.asarray, values.pop(name)) for name in names}
    return arrays, values


@pytest.mark.parametrize("call", some(0, [x for x in CALLS if "interoperability" not in x.name]))
def test_strict_modes(call):
    """But for those that run code of other packages, for which users set the modes."""
    check_in("strict", call)


@pytest.mark.parametrize("call", some(3))
def test_checks_for_leaks(call):
    check_in("leaks", call)


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", [x for x in CALLS if not x.name.endswith(LOOPS)], ids=lambda call: call.name
)
def test_without_jit(call):
    check_in("no jit", call)


@pytest.mark.parametrize("call", some(6, [call for call in CALLS if call.compiled]))
def test_strict_modes_of_traced_calls(call):
    """Values and derivatives by what is a floating-point array."""
    arrays, known = traced_arguments(call)
    floats, others = split_leaves(arrays)

    def total(floats):
        numbers = numbers_of_traced(call.function(**known, **joined(arrays, floats, others)))
        return sum(map(lambda x: jnp.sum(x.astype(float)), numbers), jnp.zeros(()))

    with strict():
        jax.eval_shape(lambda floats: jax.jvp(total, (floats,), (floats,)), floats)


def split_leaves(tree):
    """Leaves that can be differentiated by their places, and the others."""
    leaves = dict(enumerate(jax.tree.leaves(tree)))
    floats = {i: x for i, x in leaves.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    return floats, {i: x for i, x in leaves.items() if i not in floats}


def joined(tree, floats, others):
    leaves = floats | others
    return jax.tree.unflatten(jax.tree.structure(tree), [leaves[i] for i in sorted(leaves)])


def numbers_of_traced(result):
    """Arrays among the leaves of a result, but for keys."""
    leaves = [leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)]
    return [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]


@pytest.mark.parametrize(
    "call", some(0, [x for x in CALLS if x.compiled and x.name not in NOT_SHARDED], every=54)
)
@pytest.mark.parametrize("shared", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_inside_of_shard_map(call, shared):
    """With `check_vma`, its default: each of two devices has the numbers of its own data.

    Either all arrays are a device's own, or the first one alone, and the devices share the others.
    """
    arrays, known = traced_arguments(call)
    if not arrays:
        pytest.skip("takes no arrays")
    mesh = jax.make_mesh((2,), ("device",), devices=jax.devices()[:2])
    first = next(iter(arrays))

    def of_device(arrays, varying):
        own = dict(arrays)
        for name in varying:
            to_own = lambda x: lax.pcast(x, ("device",), to="varying")  # noqa: E731
            own[name] = jax.tree.map(to_own, arrays[name])
        numbers = numbers_of_traced(call.function(**known, **own))
        one = jax.tree.leaves(own[first])[0].ravel()[0]
        differs = one != one  # which makes all numbers those of one device
        return [jnp.where(differs, x, x)[None] for x in numbers]

    plain = jax.jit(lambda arrays: numbers_of_traced(call.function(**known, **arrays)))(arrays)
    specs = {"in_specs": PartitionSpec(), "out_specs": PartitionSpec("device")}
    run = functools.partial(of_device, varying=[first] if shared else [*arrays])
    found = jax.jit(jax.shard_map(run, mesh=mesh, **specs))(arrays)
    for both, expected in zip(found, plain, strict=True):
        for one in np.asarray(both):
            np.testing.assert_allclose(one, expected, rtol=1e-6, atol=1e-9)
