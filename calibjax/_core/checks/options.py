"""Checks of options: numbers, choices, functions, records and their fields, random keys."""

import dataclasses
import functools
import numbers
import operator
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core.checks.arrays import as_arrays, described, is_distribution
from calibjax._core.checks.values import (
    constrained,
    finite,
    real,
    replaced,
    shape,
)
from calibjax._core.pytree import PyTree, T

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
MAX_DRAWS = 2**27  # their keys and values fill two gigabytes
_MAX_NUMBERS = 2**30  # that draws may hold in all


def size_in_range(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Returns an integer option after checking its range."""
    limit = f">= {minimum}" if maximum is None else f"between {minimum} and {maximum}"
    try:
        index = operator.index(value)
    except TypeError:
        index = None
    if index is None or isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer {limit}, got {_shown(value)}")
    if index < minimum or (maximum is not None and index > maximum):
        raise ValueError(f"{name}: expected an integer {limit}, got {index}")
    return index


def _shown(value: object) -> str:
    """A value in a message: what it is, where it is not short."""
    is_plain = value is None or isinstance(value, str | numbers.Number)
    return repr(value) if is_plain else described(value)


def number_of_draws(name: str, value: object, minimum: int = 1, *, numbers_each: int = 1) -> int:
    """Returns a number of draws after checking that it is in range and that memory holds them."""
    value = size_in_range(name, value, minimum)
    maximum = max(minimum, min(MAX_DRAWS, _MAX_NUMBERS // max(1, numbers_each)))
    if value > maximum:
        raise ValueError(
            f"{name}: expected an integer between {minimum} and {maximum}, of which the draws can "
            f"be held in memory, got {value}"
        )
    return value


def truth_value(name: str, value: object) -> bool:
    """Returns an option that is True or False, Python's or NumPy's, and refuses everything else."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def choice(name: str, value: Any, choices: tuple[Any, ...]) -> Any:
    """Refuses options that are not among the choices, strings or truth values."""
    if not isinstance(value, bool | str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def option(name: str, value: Any, annotation: Any) -> Any:
    """An option of which the annotation says what it may be: choices, truth values, integers."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        kinds = typing.get_args(annotation)
        return value if value is None and type(None) in kinds else option(name, value, kinds[0])
    if typing.get_origin(annotation) is Literal:
        return choice(name, value, typing.get_args(annotation))
    if annotation is bool:
        return truth_value(name, value)
    return size_in_range(name, value, 1) if annotation is int else value


def record_values(record: Any, name: str) -> PyTree:
    """What `check_values` of a record, or of its fields, returns.

    Without that method fields `parameter(constraint)` satisfy their constraint, fields
    `part(check)` pass the check, static ones are what they are annotated as, and bare arrays are
    finite.
    """
    if isinstance(record, type):
        return record
    if hasattr(record, "check_values"):
        checked = record.check_values(name)
        return record if checked is None else checked
    if dataclasses.is_dataclass(record) and is_distribution(record):
        return constrained(name, record)
    if dataclasses.is_dataclass(record):
        fields = dataclasses.fields(record)
        checked = {x.name: _field_value(x, getattr(record, x.name), name) for x in fields}
        return replaced(record, **checked)
    return finite(name, record) if hasattr(record, "shape") else record


def _field_value(field: dataclasses.Field[Any], value: Any, name: str) -> PyTree:
    """The value of a field of a record with this name, checked."""
    place, constraint = f"{name}.{field.name}", field.metadata.get("constraint")
    if constraint is None:
        if field.metadata.get("static"):
            value = option(place, value, field.type)
        return field.metadata.get("check", record_values)(value, place)
    value = real(place, value)
    if not constraint.axes:
        shape(place, value, (), "() (a scalar)")
    return constraint.check(place, value)


def function(
    kind: str, name: str, value: object, *arguments: str, keywords: tuple[str, ...] = ()
) -> None:
    """Refuses what cannot be called, classes of records, and what JAX cannot find again."""
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"{name}: expected a {kind}, got {_shown(value)}")
    try:
        hash(value)  # by which JAX finds its programs
    except TypeError:
        raise TypeError(f"{name}: expected a {kind} that has a hash, got none") from None


def kernel_values(kernel: T, name: str = "kernel") -> T:
    """As `kernel_or_function`, of a pytree, since it goes through `jax.jit`."""
    checked = kernel_or_function(kernel, name)
    no_plain_objects(name, checked)
    return checked


def kernel_or_function(kernel: T, name: str = "kernel") -> T:
    """The kernel, with the hyperparameters of it and of the kernels in it checked."""
    function("kernel record", name, kernel)
    if hasattr(type(kernel), "squared"):
        got = f"the distance {described(kernel)}; kernels.Exponential(1.0, distance) has it"
        raise TypeError(f"{name}: expected a kernel record, got {got}")
    return record_values(kernel, name)


def distance_values(distance: T, name: str = "distance") -> T:
    """The distance, a record or a function, with its hyperparameters checked."""
    function("distance record", name, distance)
    if hasattr(type(distance), "double_expectation"):
        got = f"the kernel {described(distance)}; distances.MaximumMeanDiscrepancy(kernel) has it"
        raise TypeError(f"{name}: expected a distance record, got {got}")
    return record_values(distance, name)


def no_plain_objects(name: str, record: object) -> None:
    """Refuses functions and objects of classes that are not pytrees, anywhere in a record."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(record):
        if not (hasattr(leaf, "dtype") or isinstance(leaf, numbers.Number | str | type)):
            raise TypeError(
                f"{name}{jax.tree_util.keystr(path)}: expected a record, which compiled functions "
                f"take, got {described(leaf)}; decorate its class with calibjax.record"
            )


def fitted(name: str, value: object, expected: type, source: str = "fit") -> None:
    """Refuses params of another method, or what some function did not return."""
    if not isinstance(value, expected):
        got = described(value)
        raise TypeError(f"{name}: expected {expected.__name__} as {source} returns it, got {got}")
    if dataclasses.is_dataclass(value):
        no_plain_objects(name, value)


def learned(name: str, value: Any, expected: type[T], *, leading: tuple[str, ...] = ()) -> T:
    """Params as `fit` returns them, with arrays of the declared axes and values.

    Their fields are declared as `parameter(constraint)`, and a method `check_values(name)` checks
    what constraints cannot say; see `constrained` for the arguments.
    """
    fitted(name, value, expected)
    value = as_arrays(name, value)
    value = constrained(name, value, leading)
    return value.check_values(name) if hasattr(value, "check_values") else value


def key_first(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function whose first argument is a random key, and which says so if that is left out."""

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if args and is_distribution(args[0]):
            random_key(cast(Any, args[0]))
        return function(*args, **kwargs)

    return checked


def random_key(key: Any) -> jax.Array:
    """Returns a random key, old or new style, as one of the new style.

    Raises:
        TypeError: if it is not one key.
    """
    is_array = isinstance(key, jax.Array | np.ndarray)
    is_new = is_array and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if is_new and isinstance(key, jax.Array) and key.shape == ():
        return key
    if is_array and key.dtype == jnp.uint32 and key.ndim == 1:
        try:
            return jax.random.wrap_key_data(jnp.asarray(key))
        except TypeError:  # another number of words
            pass
    got = f"{key.dtype}{list(key.shape)}" if is_array else _shown(key)
    raise TypeError(f"key: expected one random key such as jax.random.key(0), got {got}")
