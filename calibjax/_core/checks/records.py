"""Checks of records: their fields, and the constraints that these declare."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core.arithmetic import floating_dtype
from calibjax._core.checks.arrays import is_concrete
from calibjax._core.checks.values import finite, floating, integer, real, shape
from calibjax._core.pytree import PyTree, T


def axis_lengths(name: str, record: Any, leading: tuple[str, ...] = ()) -> dict[str, int]:
    """Lengths of the axes that parameters declare, after a check of dtypes and shapes.

    Args:
        name: how messages call the record.
        record: a record with fields `parameter(constraint)`, which are arrays.
        leading: names of the axes before those that are declared, such as ("n",) of a batch.
    """
    sizes: dict[str, int] = {}
    first = ""
    for key, constraint in constraints_of(record).items():
        place, value = f"{name}.{key}", getattr(record, key)
        if constraint.is_integer:
            integer(place, value, "numbers")
        else:
            floating(place, value)
        axes = (*leading, *constraint.axes)
        shown = f"[{', '.join(axes)}]" if axes else "() (a scalar)"
        expected = tuple(sizes.get(axis) for axis in axes)
        known = [f"{k} = {sizes[k]}" for k in axes[len(leading) :] if k in sizes]
        shape(place, value, expected, ", ".join([shown + first, *known]))
        found = jnp.shape(value)
        if constraint.axes and found[-1] < constraint.min_size:
            least = f"{axes[-1]} >= {constraint.min_size}"
            raise ValueError(f"{place}: expected {shown} with {least}, got shape {found}")
        first = first or (f", as {key} {shown}" if axes else "")
        sizes.update(zip(axes, found, strict=True))
    return sizes


def constraints_of(record: Any) -> dict[str, Any]:
    """The constraints of the parameters of a record."""
    found = {f.name: f.metadata.get("constraint") for f in dataclasses.fields(record)}
    return {name: constraint for name, constraint in found.items() if constraint is not None}


def constrained(name: str, record: T) -> T:
    """A record whose parameters satisfy their constraints; invalid traced ones become NaN."""
    checked = {
        key: constraint.check(f"{name}.{key}", getattr(record, key))
        for key, constraint in constraints_of(record).items()
    }
    return replaced(record, **checked)


def full(name: str, record: T) -> T:
    """A batch whose parameters are floating-point arrays with all leading axes.

    A parameter is a field with a constraint, which names the axes that it has in one distribution
    (see `distributions.parameter`). Without leading axes it is the same for the whole batch.
    """
    changes, axes = {}, {}
    for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
        if "constraint" in field.metadata:
            axes[field.name] = len(field.metadata["constraint"].axes)
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = full(f"{name}.{field.name}", value)
    given = {key: getattr(record, key) for key in axes if getattr(record, key) is not None}
    dtype = floating_dtype([x for x in given.values() if not getattr(x, "weak_type", False)])
    for key, value in given.items():
        value = floating(f"{name}.{key}", value, dtype)
        changes[key] = value.astype(dtype) if getattr(value, "weak_type", False) else value
    leading = {key: jnp.shape(changes[key])[: jnp.ndim(changes[key]) - axes[key]] for key in given}
    longest = max(leading.values(), key=len, default=())
    for key in given:
        own = jnp.shape(changes[key])
        is_shared = leading[key] == () and len(own) == axes[key]
        if is_shared and (len(own) < 2 or own[-2] == own[-1]):  # [n, d] for [d, d] is a mistake
            shared = changes[key]
            is_known = is_concrete(shared)  # NumPy compiles nothing
            shared = np.asarray(shared) if is_known else shared
            changes[key] = (np if is_known else jnp).broadcast_to(shared, longest + own)
            changes[key] = jax.device_put(changes[key]) if is_known else changes[key]
    return replaced(record, **changes)


def replaced(record: Any, **fields: object) -> PyTree:
    """A record with other fields; the same object where nothing changes."""
    changes = {key: value for key, value in fields.items() if value is not getattr(record, key)}
    return dataclasses.replace(record, **changes) if changes else record


def record_values(record: Any, name: str) -> PyTree:
    """What `check_values` of a record, or of its fields, returns.

    Without that method fields `parameter(constraint)` satisfy their constraint, fields
    `part(check)` pass the check, and bare arrays are finite.
    """
    if hasattr(record, "check_values"):
        checked = record.check_values(name)
        return record if checked is None else checked
    if dataclasses.is_dataclass(record):
        fields = dataclasses.fields(record)
        checked = {x.name: _field_value(x, getattr(record, x.name), name) for x in fields}
        return replaced(record, **checked)
    return finite(name, record) if hasattr(record, "shape") else record


def _field_value(field: dataclasses.Field[Any], value: Any, name: str) -> PyTree:
    """The value of a field of a record with this name, checked."""
    place, constraint = f"{name}.{field.name}", field.metadata.get("constraint")
    if constraint is None:
        return field.metadata.get("check", record_values)(value, place)
    value = real(place, value)
    if not constraint.axes:
        shape(place, value, (), "() (a scalar)")
    return constraint.check(place, value)
