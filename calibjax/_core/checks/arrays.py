"""Conversion to JAX arrays, after a look at what the caller handed over.

JAX cuts 64-bit integers to 32 bits, ignores masks and leaves unsigned integers unsigned, without
a word. What NumPy reads as real numbers of at most 64 bits is taken; the rest is refused.
"""

import dataclasses
import functools
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from calibjax._core.pytree import PyTree, T


def is_concrete(*trees: object) -> bool:
    """Whether all leaves have values that Python can look at."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


@jax.jit
def _number() -> float:
    return 0.0


def is_outermost(*trees: object) -> bool:
    """Whether nothing is being traced: inside a traced function even new arrays are."""
    return is_concrete(*trees, _number())


def has_64_bits() -> bool:
    """Whether JAX computes with 64 bits."""
    # JAX adds the options to the class of `config` when it is imported, which no type checker sees.
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def first_where(bad: ArrayLike) -> tuple[int, ...]:
    """Index of the first true entry."""
    return tuple(int(i) for i in np.argwhere(bad)[0])


def refuse_where(
    bad: ArrayLike, name: str, expected: str, values: ArrayLike, *, hint: str = ""
) -> None:
    """Raises a ValueError that shows the first offending value, if there is one, and a hint."""
    if np.asarray(bad).any():
        index = first_where(bad)
        place = f"{name}[{', '.join(map(str, index))}]" if index else name
        got = f"{place} = {np.asarray(values)[index]}{hint}"
        raise ValueError(f"{name}: expected {expected}, got {got}")


def described(value: object) -> str:
    """What a value is, in an error message; an array is one, traced or not."""
    if isinstance(value, jax.Array):
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        kind = f"{list(value.shape)} random keys" if value.shape else "a random key"
        return kind if is_key else f"an array of shape {value.shape}"
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def is_distribution(value: object) -> bool:
    """Whether a value has a method of distributions; tables have a method `sample` too."""
    is_table = hasattr(value, "to_numpy")
    has_method = hasattr(value, "sample") or hasattr(value, "check_targets")
    return has_method and not isinstance(value, type) and not is_table


def as_arrays(name: str, tree: object) -> PyTree:
    """Turns the leaves of a pytree, and lists of numbers, into JAX arrays of real numbers.

    Integers become signed ones of at least 32 bits, float16 and bfloat16 become float32. Python's
    numbers become arrays without axes.

    Raises:
        TypeError: for what holds no real numbers.
        ValueError: for masked entries, and numbers that JAX's integers do not hold.
    """
    return narrowed(name, originals(name, tree))


def originals(name: str, tree: Any) -> PyTree:
    """As `as_arrays`, but arrays of NumPy in the precision in which they came."""
    probs = getattr(tree, "__dict__", {}).get("probs")
    if hasattr(probs, "__jax_array__"):  # a Bernoulli, as lenses return confidences
        tree = dataclasses.replace(tree, probs=jnp.asarray(probs))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _original(name + jax.tree_util.keystr(path), leaf), tree, is_leaf=_is_one
    )


def narrowed(name: str, tree: PyTree) -> PyTree:
    """What `originals` returned, as JAX arrays."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _narrowed(name + jax.tree_util.keystr(path), leaf), tree
    )


def _is_one(node: object) -> bool:
    """Whether a node of a pytree is to become one array."""
    is_vector = isinstance(node, tuple) and all(isinstance(x, numbers.Number) for x in node)
    return isinstance(node, list) or (is_vector and node != ())


def _original(place: str, value: Any) -> PyTree:
    """One array of NumPy or JAX, or one number of Python."""
    if type(value) in (int, float):
        return of_float64(place, value)
    if np.ma.is_masked(value):  # conversions forget the mask
        raise ValueError(
            f"{place}: expected values without a mask, got masked ones; leave those samples out"
        )
    array = value
    if not isinstance(value, jax.Array):
        try:
            is_traced = isinstance(value, list) and not is_concrete(value)
            array = jnp.asarray(value) if is_traced else np.asarray(value)
        except Exception as error:  # whatever the __array__ of another library raises
            got = f"{described(value)}: {error}"
            raise TypeError(f"{place}: expected an array of numbers, got {got}") from None
    if array.dtype == object and all(isinstance(x, int | float) for x in array.ravel()):
        array = np.asarray(array.tolist())  # numbers one by one, as tables of mixed columns hold
    code = getattr(array.dtype, "kind", "") or "key"
    is_number = code in "biu" or jnp.issubdtype(array.dtype, jnp.floating)
    if not is_number or array.dtype.itemsize > 8:
        advice = ""
        if code in "UST" or (code == "O" and any(isinstance(x, str) for x in array.ravel())):
            advice = "; interoperability.sklearn.label_indices makes labels numbers"
        elif code == "O" and array.ndim:
            advice = "; leave out what is missing"
        got = f"{array.dtype}" if hasattr(value, "dtype") else described(value)
        raise TypeError(f"{place}: expected real numbers, got {got}{advice}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def refuse_masked(name: str, value: object) -> None:
    """Refuses arrays with masked entries."""
    if np.ma.is_masked(value):
        raise ValueError(f"{name}: expected values without a mask, got masked ones")


def of_float64(place: str, value: int | float) -> int | float:
    """A number of Python that NumPy knows; refuses integers that are beyond all floats."""
    if abs(value) < 2**63:
        return value
    if isinstance(value, int) and value.bit_length() > 1023:
        got = f"one of {value.bit_length()} bits"
        raise ValueError(f"{place}: expected a number that float64 holds, got {got}")
    return float(value)


def _narrowed(place: str, array: Any) -> jax.Array:
    """A JAX array of the same numbers, in a dtype that computations can use."""
    if type(array) is float:
        return jnp.asarray(array)  # weakly typed: it takes on the precision of its neighbours
    values = np.asarray(array) if type(array) is int else array
    if jnp.issubdtype(values.dtype, jnp.integer):
        return _signed(place, values)
    if values.dtype == np.bool_:
        return _on_device(values)
    if values.dtype not in (np.float32, np.float64):  # float16 and bfloat16
        return _on_device(values.astype(jnp.float32))
    if values.dtype == np.float64 and not has_64_bits() and is_concrete(values):
        largest = np.finfo(np.float32).max
        bad = (np.abs(values) > largest) & np.isfinite(values)
        refuse_where(bad, place, f"values up to {largest:.3g} (or jax_enable_x64)", values)
    return _on_device(values)


def _on_device(values: np.ndarray | jax.Array) -> jax.Array:
    """A JAX array with memory of its own: others may overwrite theirs while JAX still computes.

    JAX 0.10's `asarray` compiles a program for each shape of a NumPy array; `device_put` copies
    nothing.
    """
    if isinstance(values, jax.Array):
        return values
    is_array = isinstance(values, np.ndarray)
    return jax.device_put(values.copy()) if is_array else jnp.asarray(values)


def _signed(place: str, values: np.ndarray | jax.Array) -> jax.Array:
    """Signed integers of the same values, of 32 bits or, with jax_enable_x64, of 64.

    Traced ones that do not fit become the smallest integer, which stands for NaN.
    """
    size = 8 if has_64_bits() else 4
    bits = jnp.iinfo(values.dtype).bits
    dtype = jnp.int32 if size == 4 or bits < 32 or values.dtype == np.int32 else jnp.int64
    if jnp.iinfo(values.dtype).max <= jnp.iinfo(dtype).max:
        return _on_device(values).astype(dtype)
    limit = np.iinfo(dtype)
    if is_concrete(values):
        array = np.asarray(values)
        bad = array > limit.max
        if jnp.issubdtype(array.dtype, jnp.signedinteger):
            bad |= array < limit.min
        expected = f"integers of at most {limit.bits} bits"
        if size == 4:
            expected += " (or jax_enable_x64; NaN that is cast to integers looks like this)"
        refuse_where(bad, place, expected, array)
        return _on_device(array.astype(dtype))
    fits = values <= limit.max
    return jnp.where(fits, values.astype(dtype), limit.min)


def nan_unless(condition: ArrayLike, values: ArrayLike) -> jax.Array:
    """NaN where a condition is false. Integers become floating-point numbers."""
    values = values if jnp.issubdtype(jnp.result_type(values), jnp.floating) else values * 1.0
    return jnp.where(condition, values, jnp.nan)


def is_missing(values: ArrayLike) -> jax.Array:
    """Whether values are NaN, or the integer that stands for it."""
    dtype = jnp.result_type(values)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.equal(values, jnp.iinfo(dtype).min)
    return jnp.isnan(values) if jnp.issubdtype(dtype, jnp.floating) else jnp.zeros_like(values)


def missing_unless(condition: ArrayLike, integers: jax.Array) -> jax.Array:
    """The integer that stands for NaN where a condition is false."""
    return jnp.where(condition, integers, jnp.iinfo(integers.dtype).min)


def missing_where(bad: ArrayLike, tree: T) -> T:
    """A batch with all numbers of the rows [n] that are bad missing: NaN or what stands for it."""

    def masked(leaf: jax.Array) -> jax.Array:
        is_integer = jnp.issubdtype(leaf.dtype, jnp.integer)
        missing = jnp.iinfo(leaf.dtype).min if is_integer else jnp.nan
        return jnp.where(jnp.reshape(bad, (-1, *[1] * (leaf.ndim - 1))), missing, leaf)

    return jax.tree.map(masked, tree)


def nan_with(values: T, *data: object) -> T:
    """Values of a pytree; NaN if a traced number in the data, which they come from, is missing.

    For what need not depend on all numbers of the data: p-values, user's functions, ranks.
    """
    leaves = [leaf for leaf in jax.tree.leaves(data) if not is_concrete(leaf)]
    if not leaves:
        return values
    is_whole = ~functools.reduce(jnp.logical_or, (jnp.any(is_missing(leaf)) for leaf in leaves))
    return jax.tree.map(lambda value: nan_unless(is_whole, value), values)


def missing_rows(batch: object) -> jax.Array:
    """Which rows of a batch hold something that is missing, [n]."""
    leaves = [is_missing(leaf).reshape(jnp.shape(leaf)[0], -1) for leaf in jax.tree.leaves(batch)]
    return functools.reduce(jnp.logical_or, (jnp.any(leaf, 1) for leaf in leaves))


def nan_rows(bad: ArrayLike, tree: T) -> T:
    """A batch whose floating-point leaves are NaN in the rows [n] that are bad."""

    def masked(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        return jnp.where(jnp.reshape(bad, (-1, *[1] * (jnp.ndim(leaf) - 1))), jnp.nan, leaf)

    return jax.tree.map(masked, tree)
