"""Checks of arrays: their values, dtypes and shapes."""

import dataclasses
import functools
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._core.checks.arrays import (
    as_arrays,
    described,
    is_concrete,
    is_missing,
    nan_unless,
    of_float64,
    refuse_where,
)
from calibjax._core.matrices import cholesky
from calibjax._core.pytree import PyTree, T

_SIMPLEX_TOLERANCE = {4: 3e-4, 8: 1e-6}  # by item size: rows written with 7 digits still pass
_ROUNDINGS = 4  # units in the last place of one, by which probabilities are beyond their ends


def real(name: str, value: Any) -> Any:
    """Returns a real number as it is, everything else as an array of real numbers."""
    if type(value) in (int, float):
        value = of_float64(name, value)
        return value if abs(value) < 2**31 else float(value)  # beyond, JAX takes no integers
    if isinstance(value, str | bool | list | tuple | dict) or value is None:
        raise TypeError(f"{name}: expected a number, got {described(value)}")
    if isinstance(value, complex) or jnp.issubdtype(_dtype(value), jnp.complexfloating):
        raise TypeError(f"{name}: expected a real number, got {_dtype(value)}")
    converted = as_arrays(name, value)
    an_array(name, converted, "a number")
    if converted.dtype == jnp.bool_:
        raise TypeError(f"{name}: expected a number, got {converted.dtype}")
    is_masked = isinstance(value, np.ma.MaskedArray)  # nowhere, but JAX takes none
    is_kept = _dtype(value) in (np.float32, np.float64, converted.dtype) and not is_masked
    return value if is_kept else converted


def _dtype(value: object) -> DTypeLike:
    """Dtype of an array of NumPy or JAX."""
    return value.dtype if isinstance(value, np.ndarray | np.generic | jax.Array) else type(value)


def satisfying(
    name: str, values: Any, condition: Callable[[Any], Any], expected: str
) -> jax.Array | float:
    """The values, where they satisfy a condition.

    This is how all values are checked: concrete ones are refused if they are wrong, and traced
    ones, which nobody can look at, become NaN, so that everything that depends on them is NaN and
    never a plausible number.

    Args:
        name: how messages call them.
        values: numbers.
        condition: values → truth values; false for NaN, and written for NumPy and JAX.
        expected: the condition in words.
    """
    if not _is_number(values):
        an_array(name, values, "an array of numbers")
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~condition(array), name, expected, array)
        return values
    return nan_unless(condition(values), values)


def finite(name: str, values: Any) -> Any:
    """Refuses NaN and infinities, which no integer is."""
    if not jnp.issubdtype(_dtype(values), jnp.inexact):
        return values
    return satisfying(name, values, lambda x: abs(x) < np.inf, "finite values")


def positive(name: str, values: Any) -> Any:
    """Refuses everything that is not a finite number above zero.

    The limit is the smallest normal number, since processors take smaller ones for zero.
    """
    smallest, dtype = smallest_normal(values)
    largest = float(jnp.finfo(dtype).max)
    if is_concrete(values):
        array = np.asarray(values)
        if ((array >= smallest) & (array <= largest)).all():
            return values  # before any messages are written
        satisfying(name, values, lambda x: (x > 0) & (x < np.inf), "positive finite values")
    expected = (
        f"values from {smallest:.3g}, the smallest normal number of {dtype}, to {largest:.3g}"
    )
    return satisfying(name, values, lambda x: (x >= smallest) & (x <= largest), expected)


def smallest_normal(values: ArrayLike) -> tuple[float, DTypeLike]:
    """Smallest normal number of the precision in which JAX computes with values, and that."""
    dtype = jax.dtypes.canonicalize_dtype(_dtype(values))
    if not jnp.issubdtype(dtype, jnp.floating):
        dtype = jnp.result_type(float)
    return float(jnp.finfo(dtype).tiny), dtype


def positive_scalar(name: str, value: Any) -> Any:
    """Refuses hyperparameters that are not one positive finite number."""
    value = real(name, value)
    shape(name, value, (), "() (a scalar)")
    return positive(name, value)


def positive_number(name: str, value: object, dtype: DTypeLike) -> jax.Array:
    """Returns one positive finite number as an array of a dtype."""
    value = jnp.asarray(positive_scalar(name, value), dtype)
    return positive(name, value)  # in this precision


def proportion(name: str, value: object) -> jax.Array:
    """Refuses everything but one number in (0, 1)."""
    return proportions(name, positive_scalar(name, value))


def proportions(name: str, values: ArrayLike) -> Any:
    """Refuses everything outside (0, 1)."""
    smallest, _ = smallest_normal(values)
    return satisfying(name, values, lambda x: (x >= smallest) & (x < 1), "values in (0, 1)")


def length_scales(name: str, values: ArrayLike) -> jax.Array:
    """Refuses everything but one positive finite number, or an array [G] of them."""
    values = real(name, values)
    if jnp.ndim(values) > 1 or jnp.size(values) == 0:
        raise ValueError(f"{name}: expected a number or shape [G], got {jnp.shape(values)}")
    return positive(name, values)


def unit_interval(name: str, values: ArrayLike) -> Any:
    """Refuses everything outside [0, 1], apart from rounding."""
    expected = "probabilities in [0, 1]"
    return satisfying(name, unrounded(values), lambda x: (x >= 0) & (x <= 1), expected)


def unrounded(values: Any) -> Any:
    """Probabilities, with those that rounding pushed past 0 or 1 moved to these ends.

    The precision of the rounding is that of the values, or that to which JAX rounds them.
    """
    dtype = jax.dtypes.canonicalize_dtype(_dtype(values))
    if not jnp.issubdtype(dtype, jnp.floating):
        return values
    if is_concrete(values) and ((np.asarray(values) >= 0) & (np.asarray(values) <= 1)).all():
        return values
    xp: Any = np if isinstance(values, np.ndarray) else jnp
    array, limit = xp.asarray(values), _ROUNDINGS * float(jnp.finfo(dtype).eps)
    nearest = xp.where(array < 0, 0, xp.where(array > 1, 1, array)).astype(array.dtype)
    return xp.where(abs(array - nearest) <= limit, nearest, array)


def simplex(name: str, values: Any) -> jax.Array:
    """Refuses rows that are not probability vectors."""
    expected = "probabilities in [0, 1] (not logits or percentages)"
    values = satisfying(name, unrounded(values), lambda x: (x >= 0) & (x <= 1), expected)
    tolerance = simplex_tolerance(values.dtype)
    if is_concrete(values):
        sums = _row_sums(values)
        off = abs(sums - 1) > tolerance
        hint = f"; if they are to be normalised, {name} / {name}.sum(-1, keepdims=True) does it"
        place, expected = f"{name}.sum(-1)", "rows that sum to one (not logits)"
        refuse_where(off, place, expected, sums, hint=hint)
        return values
    sums = jnp.sum(lax.stop_gradient(values), -1, keepdims=True)
    return nan_unless(jnp.abs(sums - 1) <= tolerance, values)


def equal_weights(name: str, weights: Any) -> Any:
    """Refuses weights of members, [n, m], that differ where they are not zero."""
    if weights is None:
        return None
    expected = "None, or a mask of the members that are not missing: others have no ranks"
    is_equal = lambda w: (w == 0) | (w > (1 - 1e-5) * w.max(-1, keepdims=True))  # noqa: E731
    return satisfying(f"{name}.weights", weights, is_equal, expected)


def simplex_tolerance(dtype: DTypeLike) -> float:
    """How far the sum of probabilities of a precision may be from one."""
    return _SIMPLEX_TOLERANCE[np.dtype(dtype).itemsize]


def _row_sums(values: np.ndarray | jax.Array) -> Any:
    """Sums over the last axis, of numbers that are known."""
    return np.asarray(values).sum(-1, dtype=np.float64)


def is_simplex(values: np.ndarray | jax.Array) -> bool:
    """Whether all rows are probability vectors, of numbers that are known."""
    values = np.asarray(values)  # which stays known while something else is traced
    array, tolerance = unrounded(values), simplex_tolerance(values.dtype)
    is_inside = (array >= 0).all() & (array <= 1).all()
    return bool(is_inside) and bool((abs(_row_sums(values) - 1) <= tolerance).all())


def positive_definite(name: str, values: Any) -> jax.Array:
    """Refuses matrices [..., d, d] that are not symmetric positive definite to their precision.

    The correlation matrices decide, so that units of the components do not matter.
    """
    values = finite(name, values)
    tolerance = jnp.shape(values)[-1] * np.finfo(values.dtype).eps
    if not is_concrete(values):
        return nan_unless(_is_positive_definite(lax.stop_gradient(values), tolerance), values)
    if np.size(values):
        matrices = np.asarray(values, np.float64)
        variances = np.diagonal(matrices, axis1=-2, axis2=-1)
        bad = variances < smallest_normal(values)[0]
        refuse_where(bad, f"{name}.diagonal", "positive variances", variances)
        correlations, asymmetry = _correlations(matrices)
        bad = asymmetry > 100 * tolerance
        refuse_where(bad, f"{name}.asymmetry", "symmetric matrices", asymmetry)
        try:  # many times as fast as the eigenvalues
            np.linalg.cholesky(correlations - tolerance * np.eye(correlations.shape[-1]))
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(correlations)[..., 0]
            place = f"{name}.correlation.smallest_eigenvalue"
            others = "" if values.dtype == np.float64 else " (float64, jax_enable_x64, holds more)"
            expected = f"positive definite matrices in {values.dtype}{others}"
            refuse_where(smallest <= tolerance, place, expected, smallest)
    return values


def _correlations(matrices: np.ndarray | jax.Array) -> tuple[Any, Any]:
    """Correlation matrices of covariance matrices, and how far they are from symmetric."""
    scales = matrices.diagonal(0, -2, -1) ** 0.5
    correlations = matrices / scales[..., :, None] / scales[..., None, :]
    return correlations, abs(correlations - correlations.swapaxes(-1, -2)).max((-2, -1))


def _is_positive_definite(matrices: jax.Array, tolerance: float) -> jax.Array:
    """Whether traced matrices are symmetric and have a Cholesky factor, [..., 1, 1]."""
    correlations, asymmetry = _correlations(matrices)
    factor = jnp.vectorize(cholesky, signature="(d,d)->(d,d)")
    roots = jnp.diagonal(factor(correlations), axis1=-2, axis2=-1)
    is_definite = jnp.all(roots > 0, -1) & (asymmetry <= 100 * tolerance)
    return is_definite[..., None, None]


def labels(name: str, values: ArrayLike, num_classes: int) -> jax.Array:
    """Refuses labels outside 0, ..., num_classes - 1."""
    expected = f"labels in 0, ..., {num_classes - 1}"
    if is_concrete(values) and np.size(values):
        array = np.asarray(values)
        if (array.min(), array.max()) == (1, num_classes):
            expected += f" (subtract 1 from labels 1, ..., {num_classes})"
    return satisfying_integers(name, values, lambda x: (x >= 0) & (x < num_classes), expected)


def satisfying_integers(
    name: str, values: Any, condition: Callable[[Any], Any], expected: str
) -> Any:
    """As `satisfying`; traced integers become the smallest one, which stands for NaN."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~condition(array), name, expected, array)
        return values
    if values.dtype == jnp.bool_:
        return values
    return jnp.where(condition(values), values, jnp.iinfo(values.dtype).min)


def an_array(name: str, values: object, expected: str = "an array") -> None:
    """Refuses what is not an array: None, dicts, tuples of arrays."""
    if not hasattr(values, "shape"):
        raise TypeError(f"{name}: expected {expected}, got {described(values)}")


def floating(name: str, values: Any, dtype: DTypeLike | None = None) -> jax.Array:
    """Returns an array of real numbers as one of float32 or float64; truth values are refused.

    Args:
        name: how messages call it.
        values: what `as_arrays` returned.
        dtype: what integers become; JAX's own floating-point dtype by default.
    """
    an_array(name, values)
    source = _dtype(values)
    if source in (jnp.float32, jnp.float64):
        return values
    if not jnp.issubdtype(source, jnp.integer):
        raise TypeError(f"{name}: expected numbers (of float32 or float64), got {source}")
    converted = jnp.asarray(values, dtype or float)
    if is_concrete(values):
        exact = np.asarray(values, np.int64)
        bad = exact != np.asarray(converted, np.float64)
        expected = f"integers that {converted.dtype} holds exactly (see jax_enable_x64)"
        refuse_where(bad, name, expected, exact)
        return converted
    return nan_unless(~is_missing(values), converted)


def integer(name: str, values: Any, kind: str = "class labels") -> jax.Array:
    """Returns an array of integers or truth values; whole numbers become integers.

    Traced floating-point numbers are refused, since nobody can see whether they are whole.
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

    Subnormal numbers count as zero, as they do where JAX sorts.
    """
    size = jnp.shape(values)[-1]
    before, is_first = np.maximum(np.arange(size) - 1, 0), np.arange(size) == 0
    smallest, _ = smallest_normal(values)

    def is_right(x: Any) -> Any:
        x = x * (abs(x) >= smallest)
        return is_first | ((x > x[..., before]) if strictly else (x >= x[..., before]))

    return satisfying(name, values, is_right, expected)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Number)


def shape(
    name: str, values: Any, expected: tuple[Any, ...], described: str, *, hint: str = ""
) -> None:
    """Refuses arrays of another shape; None in `expected` matches every length."""
    if not _is_number(values):
        an_array(name, values, f"an array of shape {described}")
    actual = jnp.shape(values)

    def matches(actual: tuple[int, ...]) -> bool:
        pairs = zip(expected, actual, strict=False)
        return len(actual) == len(expected) and all(e is None or e == a for e, a in pairs)

    if not matches(actual):
        if actual[-1:] == (1,) and matches(actual[:-1]):
            hint = f"; take {name}[..., 0]"
        raise ValueError(f"{name}: expected shape {described}, got {actual}{hint}")


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
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{name}: expected leading axes of one length, got {sizes}")
    size = next(iter(sizes.values()))
    if size < minimum:
        samples = "sample" if minimum == 1 else "samples"
        raise ValueError(f"{name}: expected at least {minimum} {samples}, got {size}")
    return size


@functools.cache
def declared(kind: type) -> tuple[tuple[str, Any, Any], ...]:
    """Names, constraints (None without) and metadata of the fields that are no static ones."""
    fields = [x for x in dataclasses.fields(kind) if not x.metadata.get("static")]
    return tuple((x.name, x.metadata.get("constraint"), x.metadata) for x in fields)


def axis_lengths(record: Any, leading: tuple[str, ...] = ("n",)) -> dict[str, int]:
    """Lengths of the axes of the parameters of a checked batch, by the names that they declare."""
    lengths: dict[str, int] = {}
    for key, constraint, extra in declared(type(record)):
        value = getattr(record, key)
        if constraint is not None:
            axes = (*leading, *constraint.axes, *constraint.optional)
            lengths |= dict(zip(axes, jnp.shape(value), strict=False)) if value is not None else {}
        elif dataclasses.is_dataclass(value):
            lengths |= axis_lengths(value, (*leading, *extra.get("axes", ())))
    return lengths


def of_axes(
    place: str, value: Any, constraint: Any, leading: tuple[str, ...], lengths: dict[str, int]
) -> None:
    """Refuses a parameter without the declared axes; those whose lengths are known have them."""
    axes, last = (*leading, *constraint.axes), len(leading) + len(constraint.axes) - 1
    if jnp.ndim(value) == len(axes) + len(constraint.optional):
        axes += constraint.optional
    advice = f"; {constraint.advice}" if constraint.advice else ""
    of_shape(place, jnp.shape(value), axes, lengths, advice)
    if axes and (lengths[axes[last]] < constraint.min_size or 0 in jnp.shape(value)[1:]):
        least = f"[{', '.join(axes)}] with {axes[last]} >= {constraint.min_size}"
        raise ValueError(f"{place}: expected shape {least}, got {jnp.shape(value)}{advice}")


def of_shape(
    place: str,
    actual: tuple[int, ...],
    axes: tuple[str, ...],
    lengths: dict[str, int],
    advice: str = "",
) -> None:
    """Refuses shapes without axes of these names; lengths that are not known yet are added."""
    fits = all(lengths.get(axis, size) == size for axis, size in zip(axes, actual, strict=False))
    if len(actual) != len(axes) or not fits:
        names = dict.fromkeys(axis for axis in axes if axis in lengths)
        known = ", ".join(f"{axis} = {lengths[axis]}" for axis in names)
        shown = f"[{', '.join(axes)}]{' with ' * bool(known)}{known}" if axes else "() (a scalar)"
        if actual == (*(lengths.get(x, y) for x, y in zip(axes, actual, strict=False)), 1):
            advice = f"; take {place}[..., 0]"
        raise ValueError(f"{place}: expected shape {shown}, got {actual}{advice}")
    lengths.update(zip(axes, actual, strict=True))


def constrained(name: str, record: T, leading: tuple[str, ...] | None = None) -> T:
    """A record whose parameters satisfy their constraints; invalid traced ones become NaN.

    Args:
        name: how messages call it.
        record: a record with fields `parameter(constraint)`, which are arrays.
        leading: names of the axes before those that are declared; None if shapes are known.
    """
    checked, lengths = {}, {}
    for key, constraint, _ in declared(type(record)):
        if constraint is not None:
            place, value = f"{name}.{key}", getattr(record, key)
            if leading is not None:
                (integer if constraint.is_integer else floating)(place, value)
                of_axes(place, value, constraint, leading, lengths)
            checked[key] = constraint.check(place, value)
    return replaced(record, **checked)


def replaced(record: Any, **fields: object) -> PyTree:
    """A record with other fields; the same object where nothing changes."""
    changes = {key: value for key, value in fields.items() if value is not getattr(record, key)}
    return dataclasses.replace(record, **changes) if changes else record
