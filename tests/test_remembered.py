"""What is remembered of arguments is what a look at them would find, and keeps nothing alive."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators, kernels, record
from calibjax._core.checks import is_outermost, remembered
from calibjax.distributions import Normal

KERNEL = kernels.TensorProduct(kernels.Constant(), kernels.SquaredExponential())


@record
class Pair:
    first: jax.Array
    second: jax.Array | float = 1.0


@pytest.fixture
def looked_at():
    """A function that is remembered, and the numbers of its calls."""
    calls = []

    @remembered
    def look(*args, **options):
        calls.append(options)
        return args[0], jax.tree.map(lambda x: x + 1, args)

    return look, calls


def test_same_arguments_are_looked_at_once(looked_at):
    look, calls = looked_at
    pair, array = Pair(jnp.arange(3.0)), jnp.ones(2)
    for _ in range(3):
        same, (other, two) = look(pair, array)
        assert same is pair
        np.testing.assert_array_equal(other.first, [1, 2, 3])
        np.testing.assert_array_equal(two, 2)
    assert len(calls) == 1
    look(pair, jnp.ones(2))
    look(Pair(pair.first), array)
    look(pair, array, name="other")
    assert len(calls) == 4
    look(pair, array)
    assert len(calls) == 4


def test_what_may_change_is_looked_at_again(looked_at):
    look, calls = looked_at
    numbers = np.zeros(3)
    for value in range(3):
        numbers[:] = value
        _, (found,) = look(Pair(numbers))
        np.testing.assert_array_equal(found.first, value + 1)
    look(numbers)
    look(numbers)
    assert len(calls) == 5


def test_fields_that_were_exchanged_are_seen(looked_at):
    """Not that anybody should."""
    look, calls = looked_at
    pair = Pair(jnp.zeros(2))
    for value in (jnp.ones(2), jnp.zeros(2), np.zeros(2)):
        look(pair)
        object.__setattr__(pair, "first", value)
    look(pair)
    assert len(calls) == 4


def test_nothing_is_kept_alive(looked_at):
    look, _ = looked_at
    pair, array = Pair(jnp.zeros(2)), jnp.ones(2)
    look(pair, array)
    look(array, pair)
    references = weakref.ref(pair), weakref.ref(array), weakref.ref(pair.first)
    del pair, array
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_traced_values_are_not_remembered(looked_at):
    look, calls = looked_at
    pair = Pair(jnp.zeros(2))
    jax.jit(lambda x: look(Pair(x))[1])(pair.first)
    jax.jit(lambda x: look(pair)[1][0].first + x)(1.0)
    _, (found,) = look(pair)
    np.testing.assert_array_equal(found.first, 1)
    assert len(calls) == 3


def test_wrong_values_are_refused_every_time():
    bad = Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, -1.0]))
    good = Normal(bad.loc, jnp.ones(2))
    for _ in range(2):
        assert np.isfinite(estimators.skce(KERNEL, good, bad.loc))
        with pytest.raises(ValueError, match=r"predictions\.scale: expected positive"):
            estimators.skce(KERNEL, bad, bad.loc)
    targets = np.zeros(2)
    assert np.isfinite(estimators.skce(KERNEL, good, targets))
    targets[0] = np.nan
    with pytest.raises(ValueError, match="targets: expected finite values"):
        estimators.skce(KERNEL, good, targets)


def test_precision_and_traces_are_part_of_what_is_remembered():
    """What is found depends on them, for instance the integers that truth values become."""

    @remembered
    def found(array):
        del array
        return jnp.asarray(1.0).dtype, is_outermost()

    array, traced = jnp.zeros(2), []
    for has_64_bits in (False, True, False):
        with jax.enable_x64(has_64_bits):
            dtype = jnp.float64 if has_64_bits else jnp.float32
            assert found(array) == (dtype, True)
            jax.jit(lambda x: (traced.append(found(array)), x))(1.0)
            assert traced[-1] == (dtype, False)
