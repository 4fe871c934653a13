"""What accumulators have in common: states that are sums, their checks, and their merging."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.gate import Seen, argument, checked, fields_checked, inner, plain_weights
from calibjax._core.pytree import record
from calibjax.operators import tiles


@record
class Sum:
    """A sum, and what rounding has cut off from it, so that long sums lose no digits.

    Attributes:
        value: the sum as rounded.
        lost: the sum of the rounding errors.
    """

    value: jax.Array
    lost: jax.Array

    def plus(self, term: jax.Array, lost: jax.Array | float = 0) -> "Sum":
        """The sum with another term, or with another sum that has lost something, too."""
        value, cut = tiles.add((self.value, self.lost), jnp.asarray(term, self.value.dtype))
        # ∞ − ∞ is no rounding error.
        return Sum(value, jnp.where(jnp.isfinite(value), cut, 0) + lost)

    def total(self) -> jax.Array:
        """The sum."""
        return self.value + self.lost


@record
class State:
    """What an accumulator has seen, a pytree of arrays whose shapes never change.

    All leaves are plain sums over the samples: the states of several devices are merged by
    `jax.lax.psum(state, axis_name)`, and others by `Accumulator.merge`, in any order.

    Attributes:
        counts: integers, by name.
        sums: floating-point `Sum`s, by name.
    """

    counts: dict[str, jax.Array]
    sums: dict[str, Sum]


def zeros(counts: dict[str, tuple[int, ...]], sums: dict[str, Any], dtype: Any = float) -> State:
    """The state before any samples, with counts and sums of these shapes."""
    integers = {name: jnp.zeros(shape, jnp.int32) for name, shape in counts.items()}
    return State(integers, {k: Sum(*[jnp.zeros(x, dtype)] * 2) for k, x in sums.items()})


@jax.jit
def added(state: State, counts: dict[str, Any], sums: dict[str, jax.Array]) -> State:
    """The state with the counts and sums of other samples added."""
    integers = {k: x + jnp.asarray(counts[k], jnp.int32) for k, x in state.counts.items()}
    return State(integers, {k: x.plus(sums[k]) for k, x in state.sums.items()})


@argument("state")
def checked_state(name: str, state: Any, seen: Seen) -> Any:
    """A state, with JAX arrays, of the structure, shapes and dtypes of this accumulator's."""
    accumulator = seen.before(name, "self")
    state = checks.as_arrays(name, state)
    expected = jax.eval_shape(lambda: inner(type(accumulator).init)(accumulator))
    shapes = [jax.tree.map(lambda x: f"{x.dtype}{x.shape}", tree) for tree in (expected, state)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name}: expected a state of this accumulator, got that of another")
    return state


def _plain_weights(name: str, weights: Any, seen: Seen) -> Any:
    return plain_weights(name, weights, seen.number(name))


# As `checked`, of methods of accumulators, whose weights are added in the units they come in.
accumulating = functools.partial(checked, self=fields_checked, weights=_plain_weights)


class Accumulator:
    """Base class of the accumulators: the same numbers from batches as from all data at once.

    An accumulator is a record of what is configured; what it has seen is in a state, which is never
    changed but replaced:

        state = accumulator.init()
        for predictions, targets in batches:
            state = accumulator.update(state, predictions, targets)
        result = accumulator.result(state)

    All of them take `weights` of the samples of a batch, ones by default. They are added in the
    units in which they are given; results do not depend on these, unless squares of weights
    overflow or vanish. Integer weights are numbers of copies where they are for all data at once.

    `update`, `merge` and `result` are pure functions of arrays, for `jit`, `vmap` and `lax.scan`.
    A state is a `State`, whose leaves are plain sums.

    Subclasses define `init`, `update` and `result`.
    """

    @accumulating(a=checked_state, b=checked_state, compiled=True)
    def merge(self, a: State, b: State) -> State:
        """The state after the samples of two states, in either order.

        Args:
            a: state of this accumulator.
            b: state of this accumulator after other samples.

        Returns:
            The merged state.

        Raises:
            TypeError: if an argument is not a state.
            ValueError: if a state has other shapes than those of this accumulator.

        Cost: that of an addition.
        """
        sums = {name: x.plus(*vars(b.sums[name]).values()) for name, x in a.sums.items()}
        return State(jax.tree.map(jnp.add, a.counts, b.counts), sums)


def enough(state: State, minimum: int, expected: str, *, count: str = "samples") -> jax.Array:
    """Whether a state has seen this number of samples; traced ones that have not are to be NaN.

    Raises:
        ValueError: if there are fewer than the minimum, in words `expected`, or more than 32 bits
            count.
    """
    number = state.counts[count]
    if checks.is_concrete(number) and np.any(np.asarray(number) < minimum):
        got = "more than 2³¹ - 1" if np.min(number) < 0 else np.min(number)
        raise ValueError(f"state: expected {expected}, got {got}")
    return number >= minimum
