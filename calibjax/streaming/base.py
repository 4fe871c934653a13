"""What accumulators have in common: states that are sums, their checks, and their merging."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree, record
from calibjax.operators import tiles

StateT = TypeVar("StateT")


@record
class Sum:
    """A sum, and what rounding has cut off from it, so that long sums lose no digits.

    Attributes:
        value: the sum as rounded.
        lost: the sum of the rounding errors.
    """

    value: jax.Array
    lost: jax.Array

    def plus(self, term: jax.Array) -> "Sum":
        """The sum with another term."""
        value, lost = tiles.add((self.value, self.lost), jnp.asarray(term, self.value.dtype))
        return Sum(value, jnp.where(jnp.isfinite(value), lost, 0))  # ∞ − ∞ is no rounding error

    def merged(self, other: "Sum") -> "Sum":
        """The sum of two sums."""
        both = self.plus(other.value)
        return Sum(both.value, both.lost + other.lost)

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
    return State(
        {name: jnp.zeros(shape, jnp.int32) for name, shape in counts.items()},
        {
            name: Sum(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
            for name, shape in sums.items()
        },
    )


@jax.jit
def added(state: State, counts: dict[str, Any], sums: dict[str, jax.Array]) -> State:
    """The state with the counts and sums of other samples added."""
    return State(
        {
            name: count + jnp.asarray(counts[name], jnp.int32)
            for name, count in state.counts.items()
        },
        {name: x.plus(sums[name]) for name, x in state.sums.items()},
    )


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

    def init(self) -> State:
        """The state before any samples."""
        raise NotImplementedError

    def update(
        self,
        state: State,
        predictions: Any,
        targets: ArrayLike,
        *,
        weights: ArrayLike | None = None,
    ) -> State:
        """The state after a batch of samples."""
        raise NotImplementedError

    def result(self, state: State) -> PyTree:
        """What the samples so far say."""
        raise NotImplementedError

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
        a, b = self._checked("a", a), self._checked("b", b)
        counts = {name: count + b.counts[name] for name, count in a.counts.items()}
        return State(counts, {name: x.merged(b.sums[name]) for name, x in a.sums.items()})

    def _checked(self, name: str, state: object) -> State:
        """A state, with JAX arrays, that has the shapes of this accumulator's."""
        return checked_state(name, state, _expected(self))


def _expected(accumulator: Accumulator) -> State:
    """The shapes of the states of an accumulator."""
    return jax.eval_shape(accumulator.init)


def checked_state(name: str, state: object, expected: StateT) -> StateT:
    """A state, with JAX arrays, of the structure, the shapes and the dtypes of another.

    Raises:
        TypeError: if it is not a state.
        ValueError: if it is the state of another accumulator.
    """
    checks.fitted(name, state, type(expected), "init")

    def kind(tree: object) -> tuple[Any, list[str]]:
        leaves, structure = jax.tree.flatten_with_path(tree)
        arrays = ((path, x if hasattr(x, "dtype") else np.asarray(x)) for path, x in leaves)
        names = jax.tree_util.keystr
        return structure, [f"{names(path)} {x.dtype}{list(x.shape)}" for path, x in arrays]

    (structure, actual), (right, arrays) = kind(state), kind(expected)
    if structure != right or actual != arrays:
        raise ValueError(
            f"{name}: expected a state of this accumulator, with arrays {', '.join(arrays)}, "
            f"got {', '.join(actual)}"
        )
    checked: StateT = jax.tree.map(jnp.asarray, state)
    for key, values in getattr(checked, "counts", {}).items():
        if checks.is_concrete(values):
            place, bad = f"{name}.counts['{key}']", np.asarray(values) < 0
            checks.refuse_where(bad, place, "a count >= 0, and below 2³¹ samples", values)
    return checked


def checked_batch(
    predictions: Any, targets: ArrayLike, weights: Any, *, keep_logs: bool = False
) -> tuple[Any, jax.Array, jax.Array | None]:
    """A checked batch with its weights, in the units in which they are given, if it has any."""
    checks.same_rows(predictions=predictions, targets=targets, weights=weights)
    predictions, targets = checks.predictions_and_targets(predictions, targets, keep_logs=keep_logs)
    if weights is not None:
        weights = checks.plain_weights(weights, checks.leading_size("targets", targets))
    return predictions, targets, weights


def checked_number(
    state: State, minimum: int, expected: str, *, count: str = "samples"
) -> jax.Array:
    """The number of samples in a state; traced ones below the minimum are refused by the caller.

    Args:
        state: checked state.
        minimum: the smallest number that is enough.
        expected: the minimum in words, for the message.
        count: name of the count.

    Raises:
        ValueError: if there are fewer than the minimum, or more than 32 bits count.
    """
    number = state.counts[count]
    if checks.is_concrete(number) and np.any(np.asarray(number) < minimum):
        got = "more than 2³¹ - 1" if np.min(number) < 0 else np.min(number)
        raise ValueError(f"state: expected {expected}, got {got}")
    return number
