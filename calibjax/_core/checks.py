"""Checks of values, and their error messages.

Structure (shapes, dtypes, sizes, options) is checked on every call, values if they are concrete.
Traced values cannot be inspected. Wrong ones become NaN, so every result that depends on them is
NaN, never a plausible number. Checks therefore return the values, and callers use the returned
ones. Every message names the argument, what was expected and what was received. `gate.py` assigns
checks to arguments.
"""

import contextlib
import dataclasses
import functools
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike

from calibjax._core.arithmetic import cholesky
from calibjax._core.pytree import PyTree, T

Check = Callable[[str, Any], Any]  # (name, value) → the value
Axes = tuple[str, ...]  # names
Lengths = dict[str, int]  # of axes, by their names

_SIMPLEX_TOLERANCE = {4: 3e-4, 8: 1e-6}  # by item size; accepts rows written with 7 digits
_ROUNDINGS = 4  # tolerated excess of probabilities, in units in the last place of one
MAX_DRAWS = 2**27  # their keys and values fill two gigabytes
_LARGEST = 0.05  # the largest change of a location or target, in standard deviations
# Smallest integers; others are at least 1.
_SMALLEST = {"block_size": 2, "num_folds": 2, "num_samples": 2}
# Options that set the size of arrays.
_DRAWS = {"num_draws", "num_samples", "num_data_sets", "horizon", "window"}


def is_concrete(*trees: object) -> bool:
    """Whether no leaf is traced."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


@jax.jit
def _number() -> float:
    return 0.0


def is_outermost(*trees: object) -> bool:
    """Whether no function is being traced; inside one even new arrays are tracers."""
    return is_concrete(*trees, _number())


def has_64_bits() -> bool:
    """Whether JAX computes with 64 bits."""
    # JAX adds the options to the class of `config` at import, invisible to type checkers.
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def refuse_where(bad: Any, name: str, expected: str, values: Any, *, hint: str = "") -> None:
    """Raises a ValueError that shows the first offending value, if there is one, and a hint."""
    if np.asarray(bad).any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        place = f"{name}[{', '.join(map(str, index))}]" if index else name
        got = f"{place} = {np.asarray(values)[index]}{hint}"
        raise ValueError(f"{name}: expected {expected}, got {got}")


def described(value: object) -> str:
    """Description of a value for error messages; tracers are described as arrays."""
    if isinstance(value, jax.Array):
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        return f"{'random keys' if is_key else 'an array'} of shape {value.shape}"
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
        TypeError: for values that are not real numbers.
        ValueError: for masked entries, and integers beyond the range of JAX's.
    """
    return narrowed(name, originals(name, tree))


def originals(name: str, tree: Any) -> PyTree:
    """As `as_arrays`, but NumPy arrays keep their precision."""
    return _each_leaf(_original, name, tree, _is_one)


def narrowed(name: str, tree: PyTree) -> PyTree:
    """JAX arrays from the result of `originals`."""
    return _each_leaf(_narrowed, name, tree)


def _each_leaf(check: Check, name: str, tree: PyTree, is_leaf: Any = None) -> PyTree:
    """Applies a check to each leaf; messages name the path of the leaf."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: check(name + jax.tree_util.keystr(path), leaf), tree, is_leaf=is_leaf
    )


def _is_one(node: object) -> bool:
    """Whether a node of a pytree is converted to a single array."""
    is_vector = isinstance(node, tuple) and all(isinstance(x, numbers.Number) for x in node)
    return isinstance(node, list) or (is_vector and node != ())


def _original(place: str, value: Any) -> PyTree:
    """One array of NumPy or JAX, or one number of Python."""
    if type(value) is float or (type(value) is int and abs(value) < 2**63):
        return value
    refuse_masked(place, value)
    array: Any = value
    if not isinstance(value, jax.Array):
        try:
            array = np.asarray(value) if is_concrete(value) else jnp.asarray(value)
        except Exception as error:  # whatever the __array__ of another library raises
            got = f"{described(value)}: {error}"
            raise TypeError(f"{place}: expected an array of numbers, got {got}") from None
    if array.dtype == object and all(isinstance(x, int | float) for x in array.ravel()):
        array = np.asarray(array.tolist())  # Python numbers, from tables of mixed columns
    code = getattr(array.dtype, "kind", "")  # random keys have none
    is_number = code in [*"biu"] or jnp.issubdtype(array.dtype, jnp.floating)
    if not is_number or array.dtype.itemsize > 8:
        advice = "; leave out what is missing" if code == "O" and array.ndim else ""
        if any(isinstance(x, str | bytes) for x in array.ravel()):
            is_label = place in ("targets", "groups", "correct")
            advice = "; interoperability.sklearn.label_indices makes labels numbers" * is_label
        got = f"{array.dtype}" if hasattr(value, "dtype") else described(value)
        raise TypeError(f"{place}: expected real numbers, got {got}{advice}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def refuse_masked(name: str, value: object) -> None:
    """Refuses masked entries, because conversions drop the mask."""
    if any(map(np.ma.is_masked, value if isinstance(value, list) else [value])):
        expected = "values without a mask, got masked ones; leave those samples out"
        raise ValueError(f"{name}: expected {expected}")


def _narrowed(place: str, array: Any) -> jax.Array:
    """A JAX array of the same numbers, in a dtype for computations.

    The data are copied, because callers may overwrite their memory while JAX still computes. Traced
    integers out of range become the smallest integer, which stands for NaN.
    """
    if type(array) is float:
        return jnp.asarray(array)  # weakly typed: it takes on the precision of its neighbours
    values: Any = np.asarray(array) if type(array) is int else array
    source: Any = values.dtype
    is_integer = jnp.issubdtype(source, jnp.integer)
    if is_integer:
        wide = np.int64 if jnp.iinfo(source).max > 2**31 - 1 else np.int32
    else:  # float16 and bfloat16 become float32
        wide = source if source == np.bool_ else jnp.promote_types(source, np.float32)
    dtype = jax.dtypes.canonicalize_dtype(wide)
    if source == dtype:
        return values if isinstance(values, jax.Array) else jax.device_put(values.copy())
    is_cut = is_integer and jnp.iinfo(source).max > jnp.iinfo(dtype).max
    if not is_concrete(values):
        narrow = values.astype(dtype)
        return missing_unless(values <= jnp.iinfo(dtype).max, narrow) if is_cut else narrow
    values = np.asarray(values)
    if is_cut:
        bad = (values > jnp.iinfo(dtype).max) | (values < jnp.iinfo(dtype).min)
        expected = f"integers of at most {8 * dtype.itemsize} bits (or jax_enable_x64; NaN that is "
        refuse_where(bad, place, f"{expected}cast to integers looks like this)", values)
    if jnp.issubdtype(dtype, jnp.floating) and values.dtype.itemsize > dtype.itemsize:
        largest = float(jnp.finfo(dtype).max)
        bad = (np.abs(values) > largest) & np.isfinite(values)
        refuse_where(bad, place, f"values up to {largest:.3g} (or jax_enable_x64)", values)
    return jax.device_put(values.astype(dtype))


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


def missing_unless(condition: ArrayLike, values: jax.Array) -> jax.Array:
    """NaN, or the integer that stands for it, where a condition is false; truth values stay."""
    if values.dtype == jnp.bool_:
        return values
    is_integer = jnp.issubdtype(values.dtype, jnp.integer)
    return jnp.where(condition, values, jnp.iinfo(values.dtype).min if is_integer else jnp.nan)


def nan_with(values: T, *data: object) -> T:
    """Values of a pytree; all NaN if a traced number in the data is missing.

    For results that need not depend on every number: p-values, ranks, users' functions.
    """
    leaves = [leaf for leaf in jax.tree.leaves(data) if not is_concrete(leaf)]
    if not leaves:
        return values
    is_whole = ~functools.reduce(jnp.logical_or, (jnp.any(is_missing(leaf)) for leaf in leaves))
    return jax.tree.map(lambda value: nan_unless(is_whole, value), values)


def missing_rows(batch: object) -> jax.Array:
    """Mask of the rows of a batch with missing entries, [n]."""
    leaves = [is_missing(leaf).reshape(jnp.shape(leaf)[0], -1) for leaf in jax.tree.leaves(batch)]
    return functools.reduce(jnp.logical_or, (jnp.any(leaf, 1) for leaf in leaves))


def nan_rows(bad: ArrayLike, tree: T) -> T:
    """A batch with all numbers in the bad rows missing: NaN, or the integer that stands for it."""

    def masked(leaf: jax.Array) -> jax.Array:
        return missing_unless(~jnp.reshape(bad, (-1, *[1] * (jnp.ndim(leaf) - 1))), leaf)

    return jax.tree.map(masked, tree)


def real(name: str, value: Any) -> Any:
    """Returns a number of Python unchanged, everything else as an array of real numbers."""
    if type(value) is int and abs(value) >= 2**31:  # JAX refuses larger integers
        value = float(value) if abs(value) < 2**1023 else np.inf
    if type(value) in (int, float):
        return value
    is_one = not isinstance(value, str | list | tuple | dict)
    converted: Any = as_arrays(name, value) if is_one else None
    if getattr(converted, "dtype", np.bool_) == np.bool_:
        raise TypeError(f"{name}: expected a number, got {described(value)}")
    return converted


def scalar(name: str, value: Any, check: Check | None = None) -> Any:
    """Refuses everything except one number that passes a check; default: it is finite."""
    value = real(name, value)
    shape(name, value, (), "() (a scalar)")
    return (check or finite)(name, value)


def _dtype(value: object) -> DTypeLike:
    """Dtype of an array of NumPy or JAX."""
    return value.dtype if isinstance(value, np.ndarray | np.generic | jax.Array) else type(value)


def satisfying(
    name: str, values: Any, condition: Callable, expected: str, otherwise: Callable = nan_unless
) -> Any:
    """Refuses concrete values that violate a condition; such traced values become NaN.

    Args:
        name: how messages call them.
        values: numbers.
        condition: values → truth values; false for NaN, and written for NumPy and JAX.
        expected: the condition in words.
        otherwise: function that makes wrong traced values missing.
    """
    an_array(name, values)
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~condition(array), name, expected, array)
        return values
    return otherwise(condition(values), values)


# Traced integers become the smallest one, which stands for NaN.
satisfying_integers = functools.partial(satisfying, otherwise=missing_unless)


def finite(name: str, values: Any) -> Any:
    """Refuses NaN and infinities; integers pass."""
    if not jnp.issubdtype(_dtype(values), jnp.inexact):
        return values
    return satisfying(name, values, lambda x: abs(x) < np.inf, "finite values")


def positive(name: str, values: Any) -> Any:
    """Refuses everything except finite numbers above zero.

    The limit is the smallest normal number, because processors treat smaller ones as zero.
    """
    limits = _limits(values)
    smallest, largest = float(limits.tiny), float(limits.max)
    is_right = lambda x: (x >= smallest) & (x <= largest)  # noqa: E731
    return satisfying(name, values, is_right, f"positive finite values (from {smallest:.3g} on)")


def _limits(values: ArrayLike) -> Any:
    """Limits of the precision in which JAX computes with values."""
    dtype = jax.dtypes.canonicalize_dtype(_dtype(values))
    return jnp.finfo(dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float))


def positive_scalar(name: str, value: Any, dtype: DTypeLike | None = None) -> Any:
    """Refuses everything except one positive finite number, optionally of a given precision."""
    value = scalar(name, value, positive)
    return value if dtype is None else positive(name, jnp.asarray(value, dtype))


def proportion(name: str, value: object) -> jax.Array:
    """Refuses everything except one number in (0, 1)."""
    return scalar(name, value, proportions)


def proportions(name: str, values: ArrayLike) -> Any:
    """Refuses numbers outside (0, 1)."""
    smallest = float(_limits(values).tiny)
    return satisfying(name, values, lambda x: (x >= smallest) & (x < 1), "values in (0, 1)")


def unit_interval(name: str, values: ArrayLike) -> Any:
    """Refuses numbers outside [0, 1], up to rounding."""
    return satisfying(name, unrounded(values), _is_inside, "probabilities in [0, 1]")


def unrounded(values: Any) -> Any:
    """Probabilities clipped to [0, 1] if they exceed it by rounding only.

    The tolerance follows the precision of the values, or the precision to which JAX rounds them.
    """
    dtype = jax.dtypes.canonicalize_dtype(_dtype(values))
    is_float = jnp.issubdtype(dtype, jnp.floating)
    if not is_float or (is_concrete(values) and _is_inside(np.asarray(values)).all()):
        return values
    xp: Any = np if isinstance(values, np.ndarray) else jnp
    array, limit = xp.asarray(values), _ROUNDINGS * float(jnp.finfo(dtype).eps)
    nearest = xp.where(array < 0, 0, xp.where(array > 1, 1, array)).astype(array.dtype)
    return xp.where(abs(array - nearest) <= limit, nearest, array)


def _is_inside(values: Any) -> Any:
    return (values >= 0) & (values <= 1)


def simplex(name: str, values: Any) -> jax.Array:
    """Refuses rows that are not probability vectors."""
    expected = "probabilities in [0, 1] (not logits or percentages)"
    values = satisfying(name, unrounded(values), _is_inside, expected)
    tolerance = simplex_tolerance(values.dtype)
    if is_concrete(values):
        sums = np.asarray(values).sum(-1, dtype=np.float64)
        off = abs(sums - 1) > tolerance
        hint = f"; if they are to be normalised, {name} / {name}.sum(-1, keepdims=True) does it"
        place, expected = f"{name}.sum(-1)", "rows that sum to one (not logits)"
        refuse_where(off, place, expected, sums, hint=hint)
        return values
    sums = jnp.sum(lax.stop_gradient(values), -1, keepdims=True)
    return nan_unless(jnp.abs(sums - 1) <= tolerance, values)


def equal_weights(name: str, weights: Any) -> Any:
    """Refuses weights of members, [n, m], whose nonzero values differ."""
    if weights is None:
        return None
    expected = "None, or a mask of the members that are not missing: others have no ranks"
    is_equal = lambda w: (w == 0) | (w > (1 - 1e-5) * w.max(-1, keepdims=True))  # noqa: E731
    return satisfying(f"{name}.weights", weights, is_equal, expected)


def simplex_tolerance(dtype: DTypeLike) -> float:
    """Tolerance for the sum of probabilities in a given precision."""
    return _SIMPLEX_TOLERANCE[np.dtype(dtype).itemsize]


def positive_definite(name: str, values: Any) -> jax.Array:
    """Refuses matrices [..., d, d] that are not symmetric positive definite to their precision.

    The check uses correlation matrices, so it does not depend on units of the components.
    """
    values = finite(name, values)
    tolerance = jnp.shape(values)[-1] * np.finfo(values.dtype).eps
    if is_concrete(values):
        matrices = np.asarray(values, np.float64)
        positive(f"{name}.diagonal", matrices.diagonal(0, -2, -1).astype(values.dtype))
        correlations, asymmetry = _correlations(matrices)
        is_definite = np.linalg.eigvalsh(correlations)[..., 0] > tolerance
        expected = f"symmetric positive definite matrices in {values.dtype} (see jax_enable_x64)"
        bad = ~is_definite | (asymmetry > 100 * tolerance)
        refuse_where(bad, f"{name}.correlations", expected, correlations)
        return values
    correlations, asymmetry = _correlations(lax.stop_gradient(values))
    factor = jnp.vectorize(cholesky, signature="(d,d)->(d,d)")(correlations)
    is_definite = (factor.diagonal(0, -2, -1) > 0).all(-1)
    return nan_unless((is_definite & (asymmetry <= 100 * tolerance))[..., None, None], values)


def _correlations(matrices: np.ndarray | jax.Array) -> tuple[Any, Any]:
    """Correlation matrices of covariance matrices, and their asymmetry."""
    scales = matrices.diagonal(0, -2, -1) ** 0.5
    correlations = matrices / scales[..., :, None] / scales[..., None, :]
    return correlations, abs(correlations - correlations.swapaxes(-1, -2)).max((-2, -1))


def labels(name: str, values: ArrayLike, num_classes: int) -> jax.Array:
    """Refuses labels outside 0, ..., num_classes - 1."""
    expected = f"labels in 0, ..., {num_classes - 1}"
    if is_concrete(values) and np.size(values):
        array = np.asarray(values)
        if (array.min(), array.max()) == (1, num_classes):
            expected += f" (subtract 1 from labels 1, ..., {num_classes})"
    return satisfying_integers(name, values, lambda x: (x >= 0) & (x < num_classes), expected)


def an_array(name: str, values: object, expected: str = "an array of numbers") -> None:
    """Refuses values that are no arrays or numbers: None, dicts, tuples of arrays."""
    if not (hasattr(values, "shape") or isinstance(values, numbers.Number)):
        raise TypeError(f"{name}: expected {expected}, got {described(values)}")


def floating(name: str, values: Any, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array of real numbers in float32 or float64; booleans are refused.

    Args:
        name: how messages call it.
        values: result of `as_arrays`.
        dtype: dtype of converted integers; JAX's default floating-point dtype if None.
    """
    an_array(name, values)
    source = _dtype(values)
    if source in (jnp.float32, jnp.float64):
        return values
    if not jnp.issubdtype(source, jnp.integer):
        raise TypeError(f"{name}: expected numbers (of float32 or float64), got {source}")
    converted = jnp.asarray(values, dtype or float)
    if not is_concrete(values):
        return nan_unless(~is_missing(values), converted)
    exact = np.asarray(values, np.int64)
    expected = f"integers that {converted.dtype} holds exactly (see jax_enable_x64)"
    refuse_where(exact != np.asarray(converted, np.float64), name, expected, exact)
    return converted


def integer(name: str, values: Any, kind: str = "class labels") -> jax.Array:
    """Returns an array of integers or booleans; whole numbers become integers.

    Traced floating-point numbers are refused, because their values cannot be inspected.
    """
    an_array(name, values)
    dtype = jnp.result_type(values)
    if jnp.issubdtype(dtype, jnp.integer) or dtype == jnp.bool_:
        return values
    if not jnp.issubdtype(dtype, jnp.floating) or not is_concrete(values):
        raise TypeError(f"{name}: expected integer {kind}, got {dtype}")
    array = np.asarray(values)
    limit = 2.0 ** (np.finfo(array.dtype).nmant + 1)  # beyond, not every integer is a float
    is_whole = (abs(array) <= min(limit, 2**31 - 1)) & (array.round() == array)
    refuse_where(~is_whole, name, f"integer {kind}", array)
    return jnp.asarray(array.astype(np.int32))


def increasing(name: str, values: jax.Array, expected: str, *, strictly: bool = False) -> Any:
    """Refuses rows that decrease anywhere or, if `strictly`, do not increase everywhere.

    Subnormal numbers count as zero, as in JAX's sorting.
    """
    size = jnp.shape(values)[-1]
    before, is_first = np.maximum(np.arange(size) - 1, 0), np.arange(size) == 0
    smallest = float(_limits(values).tiny)

    def is_right(x: Any) -> Any:
        x = x * (abs(x) >= smallest)
        return is_first | ((x > x[..., before]) if strictly else (x >= x[..., before]))

    return satisfying(name, values, is_right, expected)


def shape(name: str, values: Any, expected: tuple, words: str, *, hint: str = "") -> None:
    """Refuses arrays of another shape; None in `expected` matches every length."""
    an_array(name, values, f"an array of shape {words}")
    actual = jnp.shape(values)

    def matches(actual: tuple[int, ...]) -> bool:
        pairs = zip(expected, actual, strict=False)
        return len(actual) == len(expected) and all(e in (None, a) for e, a in pairs)

    if not matches(actual):
        if actual[-1:] == (1,) and matches(actual[:-1]):
            hint = f"; take {name}[..., 0]"
        raise ValueError(f"{name}: expected shape {words}, got {actual}{hint}")


def leading_size(name: str, tree: object, minimum: int = 1) -> int:
    """Returns the common length of the leading axes.

    Raises:
        ValueError: if a leaf has no axes, the lengths differ, or there are too few entries.
    """
    sizes = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        place = name + jax.tree_util.keystr(path)
        if jnp.ndim(leaf) == 0:
            raise ValueError(f"{place}: expected a batch with a leading axis, got a scalar")
        sizes[place] = jnp.shape(leaf)[0]
    if not sizes:
        raise ValueError(f"{name}: expected arrays with a leading axis, got {tree!r}")
    size, *others = dict.fromkeys(sizes.values())
    if others:
        raise ValueError(f"{name}: expected leading axes of one length, got {sizes}")
    _at_least(name, size, minimum)
    return size


def is_below(size: int, bound: int) -> bool:
    """Whether a number of samples is below a bound; symbolic sizes (`jax.export`) are not."""
    return not export.is_symbolic_dim(size) and size < bound


def _at_least(name: str, size: int, minimum: int) -> None:
    if is_below(size, minimum):
        samples = "sample" if minimum == 1 else "samples"
        raise ValueError(f"{name}: expected at least {minimum} {samples}, got {size}")


@functools.cache
def declared(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """Names, constraints (or None) and metadata of the fields that are not static."""
    fields = [x for x in dataclasses.fields(kind) if not x.metadata.get("static")]
    return tuple((x.name, x.metadata.get("constraint"), x.metadata) for x in fields)


def axis_lengths(record: Any, leading: Axes = ("n",)) -> Lengths:
    """Lengths of the named axes of the parameters of a checked batch."""
    lengths: Lengths = {}
    for key, constraint, extra in declared(type(record)):
        value = getattr(record, key)
        if constraint is not None:
            axes = (*leading, *constraint.axes, *constraint.optional)
            lengths |= dict(zip(axes, jnp.shape(value), strict=False)) if value is not None else {}
        elif dataclasses.is_dataclass(value):
            lengths |= axis_lengths(value, (*leading, *extra.get("axes", ())))
    return lengths


def of_axes(place: str, value: Any, constraint: Any, leading: Axes, lengths: Lengths) -> None:
    """Refuses a parameter whose axes differ from the declared ones, or from known lengths."""
    axes, last = (*leading, *constraint.axes), len(leading) + len(constraint.axes) - 1
    if jnp.ndim(value) == len(axes) + len(constraint.optional):
        axes += constraint.optional
    advice = f"; {constraint.advice}" if constraint.advice else ""
    of_shape(place, value, axes, lengths, advice)
    if axes and (lengths[axes[last]] < constraint.min_size or 0 in jnp.shape(value)[1:]):
        least = f"[{', '.join(axes)}] with {axes[last]} >= {constraint.min_size}"
        raise ValueError(f"{place}: expected shape {least}, got {jnp.shape(value)}{advice}")


def of_shape(place: str, value: Any, axes: Axes, lengths: Lengths, advice: str = "") -> None:
    """Refuses shapes that do not fit the named axes; adds lengths that are not known yet."""
    found = dict(zip(axes, jnp.shape(value), strict=False))
    known = ", ".join(f"{axis} = {lengths[axis]}" for axis in found if axis in lengths)
    shown = f"[{', '.join(axes)}]{' with ' * bool(known)}{known}" if axes else "() (a scalar)"
    shape(place, value, tuple(map((found | lengths).get, axes)), shown, hint=advice)
    lengths.update(found)


def replaced(record: Any, **fields: object) -> PyTree:
    """A record with replaced fields; the same object if nothing changes."""
    changes = {key: value for key, value in fields.items() if value is not getattr(record, key)}
    return dataclasses.replace(record, **changes) if changes else record


def size_in_range(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Returns an integer option after checking its range."""
    limit = f">= {minimum}" if maximum is None else f"between {minimum} and {maximum}"
    number: Any = None if isinstance(value, bool) else value
    try:
        index = operator.index(number)
    except TypeError:
        raise TypeError(f"{name}: expected an integer {limit}, got {_shown(value)}") from None
    if index < minimum or (maximum is not None and index > maximum):
        raise ValueError(f"{name}: expected an integer {limit}, got {index}")
    return index


def _shown(value: object) -> str:
    """A value in a message; a description if it is long."""
    is_plain = value is None or isinstance(value, str | numbers.Number)
    return repr(value) if is_plain else described(value)


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Refuses options that are not among the choices, strings or booleans."""
    value = bool(value) if isinstance(value, np.bool_) else value
    if not any(type(value) is type(x) and value == x for x in choices):
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def of_annotation(name: str, annotation: Any) -> Check | None:
    """Check of an option from its annotation; None for other annotations."""
    kind = typing.get_origin(annotation) or annotation
    if kind is Literal:
        return lambda name, value: choice(name, value, typing.get_args(annotation))
    if kind is int:
        largest = MAX_DRAWS if name in _DRAWS or name.startswith("num_") else None
        smallest = _SMALLEST.get(name, 1)
        return lambda name, value: size_in_range(name, value, smallest, largest)
    if kind is bool:
        return functools.partial(choice, choices=(True, False))
    known = {float: scalar, Callable: functools.partial(function, "function")}
    return known.get(kind) if isinstance(kind, type) else None


def not_none(annotation: Any) -> tuple[Any, bool]:
    """An annotation without None, and whether it contained None."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if is_union else (annotation,)
    others = [kind for kind in kinds if kind is not types.NoneType]
    return others[0] if len(others) == 1 else annotation, len(others) < len(kinds)


def record_values(record: Any, name: str) -> PyTree:
    """Checks a record by its method `check_values`, or field by field.

    Fields `parameter(constraint)` must satisfy their constraint, fields `part(check)` their check,
    static fields their annotation, and plain arrays must be finite.
    """
    if isinstance(record, type):
        return record
    if hasattr(record, "check_values"):
        return record.check_values(name) or record
    if dataclasses.is_dataclass(record):
        fields = dataclasses.fields(record)
        checked = {x.name: _field_value(x, getattr(record, x.name), name) for x in fields}
        return replaced(record, **checked)
    return finite(name, record) if hasattr(record, "shape") else record


def _field_value(field: dataclasses.Field[Any], value: Any, name: str) -> PyTree:
    """The value of a field of a record with this name, checked."""
    place, constraint = f"{name}.{field.name}", field.metadata.get("constraint")
    if constraint is not None:
        if not constraint.axes:
            return scalar(place, value, constraint.check)
        return constraint.check(place, real(place, value))
    if field.metadata.get("static"):
        annotation, may_be_none = not_none(field.type)
        check = of_annotation(field.name, annotation)
        if check is not None and not (value is None and may_be_none):
            value = check(place, value)
    return field.metadata.get("check", record_values)(value, place)


def function(kind: str, name: str, value: Any) -> Any:
    """Refuses values that cannot be called, and classes of records."""
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"{name}: expected a {kind}, got {_shown(value)}")
    return value


def kernel_values(kernel: T, name: str = "kernel") -> T:
    """As `kernel_or_function`, for pytrees only, because the kernel passes through `jax.jit`."""
    return no_plain_objects(name, kernel_or_function(kernel, name))


def kernel_or_function(kernel: T, name: str = "kernel") -> T:
    """The kernel, with all hyperparameters checked, also those of nested kernels."""
    advice = "the distance {}; kernels.Exponential(1.0, distance) has it"
    return _of_pairs(kernel, name, "kernel record", "squared", advice)


def distance_values(distance: T, name: str = "distance") -> T:
    """The distance, a record or a function, after a check of its hyperparameters."""
    advice = "the kernel {}; distances.MaximumMeanDiscrepancy(kernel) has it"
    return _of_pairs(distance, name, "distance record", "double_expectation", advice)


def _of_pairs(value: T, name: str, kind: str, method_of_others: str, advice: str) -> T:
    function(kind, name, value)
    if hasattr(type(value), method_of_others):
        raise TypeError(f"{name}: expected a {kind}, got {advice.format(described(value))}")
    return record_values(value, name)


def no_plain_objects(name: str, record: T) -> T:
    """Refuses functions and objects of classes that are not pytrees, anywhere in a record."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(record):
        if not (hasattr(leaf, "dtype") or isinstance(leaf, numbers.Number | str | type)):
            got = f"{described(leaf)}; decorate its class with calibjax.record"
            raise TypeError(f"{name}{jax.tree_util.keystr(path)}: expected a record, got {got}")
    return record


def learned(name: str, value: Any, expected: type[T], *, leading: tuple[str, ...] = ()) -> T:
    """Checks parameters as returned by `fit`: axes and values of their arrays.

    Their fields are declared as `parameter(constraint)`; a method `check_values(name)` may check
    more. Leading axes of the arrays precede the declared ones.
    """
    if not isinstance(value, expected):
        got = described(value)
        raise TypeError(f"{name}: expected {expected.__name__} as fit returns it, got {got}")
    if not dataclasses.is_dataclass(value):
        return value
    value = as_arrays(name, no_plain_objects(name, value))
    return checked_batch(name, value, leading, {}, is_finite=False)


def random_key(key: Any) -> jax.Array:
    """Returns a random key, old or new style, as one of the new style.

    Raises:
        TypeError: if it is not one key.
    """
    is_array = isinstance(key, jax.Array | np.ndarray)
    if is_array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
        return jnp.asarray(key)
    if is_array and key.dtype == jnp.uint32 and key.ndim == 1:
        with contextlib.suppress(TypeError):  # the wrong number of words
            return jax.random.wrap_key_data(jnp.asarray(key))
    got = f"{key.dtype}{list(key.shape)}" if is_array else _shown(key)
    raise TypeError(f"key: expected one random key such as jax.random.key(0), got {got}")


def batch(predictions: Any, *, minimum: int = 1, name: str = "predictions") -> PyTree:
    """Checks a batch of predictions and returns it with JAX arrays as leaves.

    Raises:
        TypeError: if `predictions` is not a distribution, or a parameter is
            not a floating-point array.
        ValueError: if the parameters have wrong shapes or values, or there are fewer than
            `minimum` of them.
    """
    if not is_distribution(predictions):
        expected = "a batch of distributions such as distributions.Normal"
        raise TypeError(f"{name}: expected {expected}, got {described(predictions)}")
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(predictions)):
        got = f"{described(predictions)}; decorate its class with calibjax.record"
        raise TypeError(f"{name}: expected a distribution that is a pytree, got {got}")
    same_rows(**{name: predictions})
    lengths: Lengths = {}
    predictions = checked_batch(name, predictions, ("n",), lengths)
    _at_least(name, lengths.get("n", 0), minimum)
    return predictions


def checked_batch(
    name: str, record: Any, leading: Axes, lengths: Lengths, *, is_finite: bool = True
) -> PyTree:
    """Checks a batch of records, or a part of it, and returns JAX arrays.

    Parameters must satisfy their constraints, and have leading axes followed by the declared ones.
    Parameters without leading axes are shared by the whole batch. Other fields have the leading
    axes, and are not checked if there are none. They must be finite if the record declares no
    parameters and has no method `check_values(name)`, which checks conditions beyond constraints.

    Args:
        name: how messages call it.
        record: a record, or any pytree of arrays.
        leading: names of the axes of the batch.
        lengths: known lengths of the axes; the others are added.
        is_finite: whether arrays without declaration must be finite.
    """
    kind = type(record)
    has_own = hasattr(kind, "check_values")  # of the class; wrappers delegate
    fields = declared(kind) if dataclasses.is_dataclass(kind) else ()
    if not fields:

        def checked(place: str, leaf: jax.Array) -> jax.Array:
            rows = jax.ShapeDtypeStruct(jnp.shape(leaf)[: len(leading)], leaf.dtype)
            of_shape(place, rows, leading, lengths)
            return finite(place, leaf) if is_finite and not has_own else leaf

        record = _each_leaf(checked, name, as_arrays(name, record))
    given, constraints, inner, changes = {}, {}, dict(lengths), {}
    for key, constraint, extra in fields:
        value = getattr(record, key)
        if constraint is not None and not (value is None and "optional" in extra):
            constraints[key] = constraint
            given[key] = received(f"{name}.{key}", value, constraint.check, "mask" in extra)
    for key, value in _aligned(name, given, constraints).items():
        of_axes(f"{name}.{key}", value, constraints[key], leading, inner)
        changes[key] = constraints[key].check(f"{name}.{key}", value)
    lengths.update((axis, inner[axis]) for axis in leading if axis in inner)
    for key, constraint, extra in fields:
        value, axes = getattr(record, key), (*leading, *extra.get("axes", ()))
        if constraint is None and value is None and "logs" in extra:
            value = _logs(extra["logs"], *given.values())
        if constraint is None and value is not None and leading:
            known = {axis: inner[axis] for axis in axes if axis in inner} | lengths
            is_finite = not (has_own or given)
            place = f"{name}.{key}"
            changes[key] = checked_batch(place, value, axes, known, is_finite=is_finite)
            lengths.update((axis, known[axis]) for axis in leading)
    record = replaced(record, **changes)
    for key in given.keys() & {"loc", "values"}:
        refuse_rounded(f"{name}.{key}", given[key], changes[key], record)
    record = record.check_values(name) or record if has_own else record
    for key, _, extra in fields:
        if "numbers" in extra and getattr(record, key) is None:
            shape = [lengths[axis] for axis in leading]
            xp: Any = jnp if any(map(export.is_symbolic_dim, shape)) else np  # without a program
            index = xp.arange(math.prod(shape), dtype=int).reshape(shape)
            record = replaced(record, **{key: jax.device_put(index)})
    return record


def received(place: str, value: Any, check: Any, may_be_mask: bool = False) -> Any:
    """A parameter in its original precision; rounding errors of probabilities are removed.

    Rounding to float16 or bfloat16 changes sums, and moves probabilities past 0 and 1, by more than
    rounding to float32. Larger deviations are kept. A boolean mask of draws becomes their
    probabilities.
    """
    if isinstance(value, jax.Array) and value.dtype in (jnp.float32, jnp.float64):
        return value
    value = originals(place, value)
    value = jnp.asarray(value) if hasattr(value, "__jax_array__") else value  # a Bernoulli
    if check not in (simplex, unit_interval) or not hasattr(value, "dtype"):
        return value
    value, is_half = unrounded(value), value.dtype in (jnp.float16, jnp.bfloat16)
    is_mask = may_be_mask and value.dtype == np.bool_
    if check is unit_interval or not value.ndim or not (is_half or is_mask):
        return value
    xp: ModuleType = np if is_concrete(value) else jnp
    wide = xp.asarray(value, np.float32 if is_half else jnp.result_type(float))
    sums = wide.sum(-1, keepdims=True)
    is_rounded = is_mask or abs(sums - 1) <= _ROUNDINGS * float(jnp.finfo(value.dtype).eps)
    return wide / xp.where(is_rounded & (sums > 0), sums, 1)


def _logs(logs: Callable[[np.ndarray], np.ndarray], probs: Any) -> np.ndarray | None:
    """Logarithms of probabilities, computed before they are rounded to float32."""
    if has_64_bits() or not isinstance(probs, np.ndarray) or probs.dtype != np.float64:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return logs(probs)


def _aligned(name: str, received: dict[str, Any], constraints: dict[str, Any]) -> dict[str, Any]:
    """Parameters in one dtype; shared ones are broadcast to the leading axes of the batch."""
    values = {key: narrowed(f"{name}.{key}", value) for key, value in received.items()}
    for key, value in values.items():
        an_array(f"{name}.{key}", value)
    dtype = jnp.result_type(float, *values.values())
    longest: tuple[int, ...] = ()
    for key, value in values.items():
        is_integer = constraints[key].is_integer
        if is_integer or (is_integer is None and value.dtype.kind == "i"):
            value = integer(f"{name}.{key}", value, "numbers")
        else:
            value = floating(f"{name}.{key}", value, dtype)
            value = value.astype(dtype) if value.weak_type else value
        values[key] = value
        longest = max(longest, value.shape[: value.ndim - len(constraints[key].axes)], key=len)
    for key, value in values.items() if longest else ():
        # [n, d] for [d, d] is a mistake
        is_one = value.ndim < 2 or value.shape[-2] == value.shape[-1]
        if value.ndim == len(constraints[key].axes) and is_one:
            values[key] = jnp.broadcast_to(value, longest + value.shape)
    return values


def unnumbered(record: T) -> T:
    """Predictions as passed to kernels: without the numbers of `Ensemble.index`."""
    fields = declared(type(record)) if dataclasses.is_dataclass(type(record)) else ()
    inner = {key: unnumbered(getattr(record, key)) for key, _, _ in fields}
    return replaced(record, **inner | {key: None for key, _, extra in fields if "numbers" in extra})


def same_rows(**arguments: object) -> None:
    """Refuses tables of pandas whose rows have different labels: rows are paired by position.

    Samples are compared with samples, and locations, `at_`, with locations. Arguments of another
    length (refused by other checks) or without labels are skipped.
    """
    known: dict[bool, tuple[str, Any]] = {}
    for name, tree in arguments.items():
        for leaf in jax.tree.leaves(tree):
            labels: Any = getattr(leaf, "index", None)
            if not (hasattr(leaf, "to_numpy") and hasattr(labels, "equals")):
                continue
            place, others = known.setdefault(name.startswith("at_"), (name, labels))
            if len(labels) == len(others) and not labels.equals(others):
                got = f"{labels[:3].tolist()}, ... instead of {others[:3].tolist()}, ..."
                advice = "bring them into one order, or hand over .to_numpy()"
                expected = f"rows with the labels of {place}"
                raise ValueError(f"{name}: expected {expected}, got {got}; {advice}")


def points(name: str, values: Any, minimum: int = 1) -> PyTree:
    """Checks the points of a kernel or distance: a batch of distributions, or finite numbers."""
    if is_distribution(values):
        return unnumbered(batch(values, minimum=minimum, name=name))
    values = as_arrays(name, values)
    leading_size(name, values, minimum)
    if not all(leaf.size for leaf in jax.tree.leaves(values)):
        raise ValueError(f"{name}: expected at least one feature, got none")
    return _each_leaf(finite, name, values)


def method(name: str, predictions: Any, needed: str) -> None:
    """Refuses predictions, or components of mixtures, that lack a required method."""
    if not callable(getattr(predictions, needed, None)):
        expected = f"distributions with a method {needed}"
        raise TypeError(f"{name}: expected {expected}, got {described(predictions)}")
    if hasattr(predictions, "components"):
        method(f"{name}.components", predictions.components, needed)


def targets_of(predictions: Any, name: str, targets: ArrayLike) -> Any:
    """Checks targets by `check_targets` of the predictions; without it they must be finite."""
    if hasattr(predictions, "check_targets"):
        checked = predictions.check_targets(name, targets)
        return targets if checked is None else checked
    return jax.tree.map(lambda leaf: finite(name, leaf), targets)


def same_kind(
    name: str, tree: object, expected_name: str, expected: object, *, num_axes: int = 1
) -> None:
    """Refuses a batch whose structure, or whose shapes of entries, are not as expected.

    The lengths of the first `num_axes` axes may differ.
    """
    trees = expected, tree
    shapes = [[leaf.shape[num_axes:] for leaf in jax.tree.leaves(x)] for x in trees]
    if jax.tree.structure(tree) != jax.tree.structure(expected) or shapes[0] != shapes[1]:
        kinds = ("arrays" if isinstance(x, jax.Array) else type(x).__name__ for x in trees)
        one, two = (f"{k} with entries of shapes {x}" for k, x in zip(kinds, shapes, strict=True))
        like = f"entries like those of {expected_name}, {one}"
        raise ValueError(f"{name}: expected {like}, got {two}")


def refuse_rounded(name: str, given: object, converted: object, predictions: Any) -> None:
    """Refuses targets or locations that rounding moves by too large a part of a standard deviation.

    Args:
        name: how messages call the values.
        given: targets or locations as passed, in float64 or integers.
        converted: the same in JAX's precision.
        predictions: the converted batch, whose standard deviations are the scale.
    """
    for wide, narrow in zip(*map(jax.tree.leaves, (given, converted)), strict=True):
        is_rounded = narrow.dtype == jnp.float32 != getattr(wide, "dtype", jnp.float32)
        if not is_rounded or not is_concrete(narrow):
            continue
        wide, narrow = np.broadcast_to(wide, narrow.shape), np.asarray(narrow, np.float64)
        change = np.nan_to_num(abs(wide - narrow))  # infinite quantiles give NaN
        expected = f"values that float32 resolves to {_LARGEST:g} predicted standard deviations"
        hint = "; subtract a constant from targets and predictions, or set jax_enable_x64"
        bad = change > _LARGEST * _deviations(predictions, change.shape)
        refuse_where(bad, name, expected, wide, hint=hint)


def _deviations(predictions: Any, shape: tuple[int, ...]) -> Any:
    """Standard deviations of the predictions that fit values of a shape, NaN if unknown or zero."""
    inner = getattr(predictions, "distribution", predictions)
    inner = getattr(inner, "components", inner)
    with contextlib.suppress(Exception):  # tracers, and values with another meaning
        if hasattr(inner, "cov"):
            scale = np.sqrt(np.diagonal(np.asarray(inner.cov), axis1=-2, axis2=-1))
        elif hasattr(inner, "scale"):
            scale = np.asarray(inner.scale)
        else:
            scale = np.asarray(inner.values, np.float64).std(1, keepdims=True)  # of draws
        if scale.ndim > len(shape):
            scale = scale.min(1)  # a target is compared with the narrowest component
        return np.where(scale > 0, np.broadcast_to(scale, shape), np.nan)
    return np.nan


def counted(weights: jax.Array | None, samples: T, is_kept: jax.Array | None = None) -> T:
    """Samples, with those of weight 0 replaced by the sample of largest weight.

    For functions such as sorts, in which even samples of weight 0 take part: a copy of another
    sample with weight 0 changes nothing. `is_kept` masks the samples that are not replaced.
    """
    if weights is None:
        return samples
    is_used = weights > 0 if is_kept is None else is_kept
    index = jnp.where(is_used, jnp.arange(weights.size), jnp.argmax(weights))
    return jax.tree.map(lambda leaf: leaf[index], samples)
