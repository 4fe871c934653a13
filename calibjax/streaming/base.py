"""Base of accumulators: states that are sums, their checks, and merging."""

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
    """Compensated sum: long sums lose no digits.

    Attributes:
        value: rounded sum.
        lost: sum of the rounding errors.
    """

    value: jax.Array
    lost: jax.Array

    def plus(self, term: jax.Array, lost: jax.Array | float = 0) -> "Sum":
        """Sum with another term, or with another sum and its rounding errors."""
        value, cut = tiles.add((self.value, self.lost), jnp.asarray(term, self.value.dtype))
        # ∞ − ∞ is not a rounding error.
        return Sum(value, jnp.where(jnp.isfinite(value), cut, 0) + lost)

    def total(self) -> jax.Array:
        """The sum."""
        return self.value + self.lost


@record
class State:
    """State of an accumulator, a pytree of arrays of fixed shapes.

    All leaves are sums over the samples: merge the states of several devices by
    `jax.lax.psum(state, axis_name)`, and others by `Accumulator.merge`, in any order.

    Attributes:
        counts: integers, by name.
        sums: floating-point `Sum`s, by name.
    """

    counts: dict[str, jax.Array]
    sums: dict[str, Sum]


def zeros(counts: dict[str, tuple[int, ...]], sums: dict[str, Any], dtype: Any = float) -> State:
    """State before any samples, with counts and sums of these shapes."""
    integers = {name: jnp.zeros(shape, jnp.int32) for name, shape in counts.items()}
    return State(integers, {k: Sum(*[jnp.zeros(x, dtype)] * 2) for k, x in sums.items()})


@jax.jit
def added(state: State, counts: dict[str, Any], sums: dict[str, jax.Array]) -> State:
    """State with the counts and sums of further samples."""
    integers = {k: x + jnp.asarray(counts[k], jnp.int32) for k, x in state.counts.items()}
    return State(integers, {k: x.plus(sums[k]) for k, x in state.sums.items()})


@argument("state")
def checked_state(name: str, state: Any, seen: Seen) -> Any:
    """State with the structure, shapes and dtypes of this accumulator, as JAX arrays."""
    accumulator = seen.before(name, "self")
    state = checks.as_arrays(name, state)
    expected = jax.eval_shape(lambda: inner(type(accumulator).init)(accumulator))
    shapes = [jax.tree.map(lambda x: f"{x.dtype}{x.shape}", tree) for tree in (expected, state)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name}: expected a state of this accumulator, got one of another")
    return state


def _plain_weights(name: str, weights: Any, seen: Seen) -> Any:
    return plain_weights(name, weights, seen.number(name))


# `checked` for methods of accumulators, which add weights without scaling.
accumulating = functools.partial(checked, self=fields_checked, weights=_plain_weights)


class Accumulator:
    """Base class of accumulators: results from batches, as from all data at once.

    An accumulator is a record of its configuration. Its state is never changed but replaced:

        state = accumulator.init()
        for predictions, targets in batches:
            state = accumulator.update(state, predictions, targets)
        result = accumulator.result(state)

    All of them take `weights` of the samples of a batch, ones by default. Results do not depend on
    the scale of weights, unless their squares overflow or underflow. Integer weights are numbers of
    copies where they are for all data at once.

    `update`, `merge` and `result` are pure functions of arrays, for `jit`, `vmap` and `lax.scan`.
    Subclasses define `init`, `update` and `result`.
    """

    @accumulating(a=checked_state, b=checked_state, compiled=True)
    def merge(self, a: State, b: State) -> State:
        """State after the samples of two states, in either order.

        Args:
            a: state of this accumulator.
            b: state of this accumulator after other samples.

        Returns:
            The merged state.

        Raises:
            TypeError: if an argument is not a state.
            ValueError: if the shapes of a state are not those of this accumulator.

        Cost: an addition.
        """
        sums = {name: x.plus(*vars(b.sums[name]).values()) for name, x in a.sums.items()}
        return State(jax.tree.map(jnp.add, a.counts, b.counts), sums)


def enough(state: State, minimum: int, expected: str, *, count: str = "samples") -> jax.Array:
    """Whether a state has at least this number of samples; traced states without become NaN.

    Raises:
        ValueError: if there are fewer than the minimum, described by `expected`, or more than 32
            bits can count.
    """
    number = state.counts[count]
    if checks.is_concrete(number) and np.any(np.asarray(number) < minimum):
        got = "more than 2³¹ - 1" if np.min(number) < 0 else np.min(number)
        raise ValueError(f"state: expected {expected}, got {got}")
    return number >= minimum
