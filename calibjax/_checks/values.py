"""Checks of arrays: their values, dtypes and shapes."""

import dataclasses
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._arithmetic import floating_dtype
from calibjax._checks.arrays import (
    as_arrays,
    described,
    is_concrete,
    of_float64,
    refuse_where,
)

_SIMPLEX_TOLERANCE = {4: 3e-4, 8: 1e-6}  # by item size: rows written with 7 digits still pass


def real(name: str, value: Any) -> Any:
    """Returns a real number as it is, everything else as an array of real numbers."""
    if type(value) in (int, float):
        return of_float64(name, value)
    if isinstance(value, str | bool | list | tuple | dict) or value is None:
        raise TypeError(f"{name}: expected a number, got {described(value)}")
    if isinstance(value, complex) or jnp.issubdtype(_dtype(value), jnp.complexfloating):
        raise TypeError(f"{name}: expected a real number, got {_dtype(value)}")
    value = as_arrays(name, value)
    an_array(name, value, "a number")
    if value.dtype == jnp.bool_:
        raise TypeError(f"{name}: expected a number, got {value.dtype}")
    return value


def _dtype(value: Any) -> Any:
    """Dtype of an array of NumPy or JAX."""
    return value.dtype if isinstance(value, np.ndarray | np.generic | jax.Array) else type(value)


def finite(name: str, values: Any) -> None:
    """Refuses NaN and infinities."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~np.isfinite(array), name, "finite values", array)


def positive_scalar(name: str, value: Any) -> None:
    """Refuses hyperparameters that are not one positive finite number."""
    real(name, value)
    shape(name, value, (), "() (a scalar)")
    positive(name, value)


def positive_number(name: str, value: Any, dtype: Any) -> jax.Array:
    """Returns one positive finite number as an array; NaN for traced ones that are not."""
    positive_scalar(name, value)
    value = jnp.asarray(value, dtype)
    positive(name, value)  # in this precision
    return jnp.where((value > 0) & jnp.isfinite(value), value, jnp.nan)


def proportion(name: str, value: Any) -> None:
    """Refuses everything but one number in (0, 1)."""
    positive_scalar(name, value)
    if is_concrete(value):
        refuse_where(np.asarray(value) >= 1, name, "values in (0, 1)", value)


def positive(name: str, values: Any) -> None:
    """Refuses everything that is not a finite number above zero."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~((array > 0) & np.isfinite(array)), name, "positive finite values", array)


def length_scales(name: str, values: Any) -> None:
    """Refuses everything but one positive finite number, or an array [G] of them."""
    real(name, values)
    if jnp.ndim(values) > 1 or jnp.size(values) == 0:
        raise ValueError(f"{name}: expected a number or shape [G], got {jnp.shape(values)}")
    positive(name, values)


def positive_definite(name: str, values: Any) -> None:
    """Refuses matrices [..., d, d] that are not symmetric positive definite to their precision.

    The correlation matrices decide, so that units of the components do not matter.
    """
    finite(name, values)
    if is_concrete(values) and np.size(values):
        matrices = np.asarray(values)
        tolerance = matrices.shape[-1] * np.finfo(matrices.dtype).eps
        matrices = matrices.astype(np.float64)
        variances = np.diagonal(matrices, axis1=-2, axis2=-1)
        refuse_where(variances <= 0, f"{name}.diagonal", "positive variances", variances)
        scales = np.sqrt(variances)
        correlations = matrices / scales[..., :, None] / scales[..., None, :]
        asymmetry = np.abs(correlations - np.swapaxes(correlations, -1, -2)).max((-2, -1))
        bad = asymmetry > 100 * tolerance
        refuse_where(bad, f"{name}.asymmetry", "symmetric matrices", asymmetry)
        try:  # many times as fast as the eigenvalues
            np.linalg.cholesky(correlations - tolerance * np.eye(correlations.shape[-1]))
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(correlations)[..., 0]
            place = f"{name}.correlation.smallest_eigenvalue"
            refuse_where(smallest <= tolerance, place, "positive definite matrices", smallest)


def unit_interval(name: str, values: Any) -> None:
    """Refuses everything outside [0, 1]."""
    if is_concrete(values):
        array = np.asarray(values)
        refuse_where(~((array >= 0) & (array <= 1)), name, "probabilities in [0, 1]", array)


def simplex(name: str, values: Any) -> None:
    """Refuses rows that are not probability vectors."""
    if is_concrete(values):
        array = np.asarray(values)
        unit_interval(name, array)
        sums = array.sum(-1, dtype=np.float64)
        off = np.abs(sums - 1) > _SIMPLEX_TOLERANCE.get(array.dtype.itemsize, 1e-2)
        refuse_where(off, f"{name}.sum(-1)", "rows that sum to one (not logits)", sums)


def labels(name: str, values: Any, num_classes: int) -> None:
    """Refuses labels outside 0, ..., num_classes - 1."""
    if is_concrete(values):
        array = np.asarray(values)
        bad = (array < 0) | (array >= num_classes)
        refuse_where(bad, name, f"labels in 0, ..., {num_classes - 1}", array)


def an_array(name: str, values: Any, expected: str = "an array") -> None:
    """Refuses what is no array: None, dicts, tuples of arrays."""
    if not hasattr(values, "shape"):
        raise TypeError(f"{name}: expected {expected}, got {described(values)}")


def floating(name: str, values: Any, dtype: Any = None) -> jax.Array:
    """Returns an array of real numbers as one of float32 or float64; truth values are none.

    Args:
        name: how messages call it.
        values: what `as_arrays` returned.
        dtype: what integers become; JAX's own floating-point dtype by default.
    """
    an_array(name, values)
    found = jnp.result_type(values)
    if found in (jnp.float32, jnp.float64):
        return values
    if not jnp.issubdtype(found, jnp.integer):
        raise TypeError(f"{name}: expected numbers (of float32 or float64), got {found}")
    converted = jnp.asarray(values, dtype or float)
    if is_concrete(values):
        exact = np.asarray(values, np.int64)
        bad = exact != np.asarray(converted, np.float64)
        expected = f"integers that {converted.dtype} holds exactly (see jax_enable_x64)"
        refuse_where(bad, name, expected, exact)
        return converted
    return jnp.where(values == jnp.iinfo(found).min, jnp.nan, converted)


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
    found = np.asarray(values)
    limit = 2.0 ** (np.finfo(found.dtype).nmant + 1)  # beyond, not every integer is a float
    is_whole = (np.abs(found) <= min(limit, 2**31 - 1)) & (np.rint(found) == found)
    refuse_where(~is_whole, name, f"integer {kind}", found)
    return jnp.asarray(found.astype(np.int32))


def shape(name: str, values: Any, expected: tuple[Any, ...], described: str) -> None:
    """Refuses arrays of another shape; None in `expected` matches every length."""
    if not isinstance(values, numbers.Number):
        an_array(name, values, f"an array of shape {described}")
    actual = jnp.shape(values)

    def matches(actual: tuple[int, ...]) -> bool:
        pairs = zip(expected, actual, strict=False)
        return len(actual) == len(expected) and all(e is None or e == a for e, a in pairs)

    if not matches(actual):
        hint = ""
        if actual[-1:] == (1,) and matches(actual[:-1]):
            hint = f"; take {name}[..., 0]"
        raise ValueError(f"{name}: expected shape {described}, got {actual}{hint}")


def full(name: str, record: Any) -> Any:
    """A batch whose parameters are floating-point arrays with all leading axes.

    The class says in `parameter_axes` how many axes each parameter of one distribution has. A
    parameter without leading axes is the same for all distributions of the batch.
    """
    changes = {}
    for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = full(f"{name}.{field.name}", value)
    axes = getattr(type(record), "parameter_axes", {})
    given = {key: getattr(record, key) for key in axes if getattr(record, key) is not None}
    dtype = floating_dtype([x for x in given.values() if not getattr(x, "weak_type", False)])
    for key, value in given.items():
        value = floating(f"{name}.{key}", value, dtype)
        changes[key] = value.astype(dtype) if getattr(value, "weak_type", False) else value
    leading = {key: jnp.shape(changes[key])[: jnp.ndim(changes[key]) - axes[key]] for key in given}
    longest = max(leading.values(), key=len, default=())
    for key in given:
        if leading[key] == () and jnp.ndim(changes[key]) == axes[key]:
            changes[key] = jnp.broadcast_to(changes[key], longest + jnp.shape(changes[key]))
    return replaced(record, **changes)


def replaced(record: Any, **fields: Any) -> Any:
    """A record with other fields; the same object where nothing changes."""
    changes = {key: value for key, value in fields.items() if value is not getattr(record, key)}
    return dataclasses.replace(record, **changes) if changes else record


def leading_size(name: str, tree: Any, minimum: int = 1) -> int:
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
        raise ValueError(f"{name}: expected at least {minimum} samples, got {size}")
    return size


def record_values(record: Any, name: str) -> None:
    """Calls `check_values` of a record, or of its fields; bare arrays must be finite."""
    if hasattr(record, "check_values"):
        record.check_values(name)
    elif dataclasses.is_dataclass(record):
        for field in dataclasses.fields(record):
            record_values(getattr(record, field.name), f"{name}.{field.name}")
    elif hasattr(record, "shape"):
        finite(name, record)
