"""Checks of options: numbers, choices, functions, records, random keys."""

import dataclasses
import functools
import inspect
import numbers
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core.checks.arrays import as_arrays, described, is_distribution, refuse_masked
from calibjax._core.checks.values import axis_lengths, constrained, record_values
from calibjax._core.pytree import T

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
MAX_DRAWS = 2**27  # their keys and values fill two gigabytes
_MAX_NUMBERS = 2**30  # that draws may hold in all


def size_in_range(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Returns an integer option after checking its range."""
    refuse_masked(name, value)
    try:
        if isinstance(value, bool):
            raise TypeError
        value = operator.index(value)
    except TypeError:
        plain = value is None or isinstance(value, str | numbers.Number)
        got = repr(value) if plain else described(value)
        raise TypeError(f"{name}: expected an integer, got {got}") from None
    if value < minimum or (maximum is not None and value > maximum):
        limit = f"between {minimum} and {maximum}" if maximum is not None else f">= {minimum}"
        raise ValueError(f"{name}: expected an integer {limit}, got {value}")
    return value


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


def choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Refuses options that are not among the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def function(
    kind: str, name: str, value: object, *arguments: str, keywords: tuple[str, ...] = ()
) -> None:
    """Refuses what cannot be called, with these arguments if any, and classes of records."""
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"{name}: expected a {kind}, got {described(value)}")
    try:
        hash(value)  # by which JAX finds its programs
    except TypeError:
        got = f"{described(value)} without one; define __hash__, or leave out __eq__"
        raise TypeError(f"{name}: expected a {kind} that has a hash, got {got}") from None
    if not arguments:
        return
    is_record = dataclasses.is_dataclass(type(value))
    if is_record and _records_take(type(value), arguments, keywords):
        return
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of some functions written in C
        return
    try:
        signature.bind(*arguments, **dict.fromkeys(keywords))
    except TypeError as error:
        called = getattr(value, "__name__", type(value).__name__)
        expected = f"({', '.join((*arguments, *(f'{key}={key}' for key in keywords)))})"
        raise TypeError(
            f"{name}: expected a {kind} that can be called with {expected}, got "
            f"{called}{signature}: {error}"
        ) from error


@functools.lru_cache
def _records_take(kind: type, arguments: tuple[str, ...], keywords: tuple[str, ...]) -> bool:
    """Whether instances can be called like this: once for all, as `signature` is slow."""
    try:
        inspect.signature(kind.__call__).bind(None, *arguments, **dict.fromkeys(keywords))
    except (TypeError, ValueError):
        return False
    return True


def kernel_values(kernel: T, name: str = "kernel") -> T:
    """As `kernel_or_function`, of a pytree, since it goes through `jax.jit`."""
    checked = kernel_or_function(kernel, name)
    no_plain_objects(name, checked)
    return checked


def kernel_or_function(kernel: T, name: str = "kernel") -> T:
    """The kernel, with the hyperparameters of it and of the kernels in it checked."""
    function("kernel record", name, kernel, "x", "y")
    if hasattr(type(kernel), "squared"):
        raise TypeError(
            f"{name}: expected a kernel record, got the distance {described(kernel)}; "
            f"kernels.Exponential(length_scale, {described(kernel)}()) is a kernel with it"
        )
    return record_values(kernel, name)


def distance_values(distance: T, name: str = "distance") -> T:
    """The distance, a record or a function, with its hyperparameters checked."""
    function("distance record", name, distance, "p", "q")
    if hasattr(type(distance), "double_expectation"):
        raise TypeError(
            f"{name}: expected a distance record, got the kernel {described(distance)}; "
            "distances.MaximumMeanDiscrepancy(kernel) is a distance with it"
        )
    return record_values(distance, name)


def no_plain_objects(name: str, record: object) -> None:
    """Refuses functions and objects of classes that are not pytrees, anywhere in a record."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(record):
        is_array = hasattr(leaf, "dtype") or isinstance(leaf, numbers.Number | str | type)
        if (callable(leaf) and not isinstance(leaf, type)) or not is_array:
            raise TypeError(
                f"{name}{jax.tree_util.keystr(path)}: expected a record, which can be handed to "
                f"compiled functions, got {described(leaf)}; decorate its class with "
                "calibjax.record, and make classes of functions: see 'A kernel of your own' in "
                "the documentation of calibjax.kernels"
            )


def fitted(name: str, value: object, expected: type, source: str = "fit") -> None:
    """Refuses params of another method, or what some function did not return.

    Records hold arrays of numbers, or Python's numbers; the dictionaries of `GroupWise` hold what
    the recalibrators of users return.
    """
    if not isinstance(value, expected):
        raise TypeError(
            f"{name}: expected {expected.__name__} as {source} returns it, got {described(value)}"
        )
    if dataclasses.is_dataclass(value):
        leaves = jax.tree_util.tree_leaves_with_path(value, is_leaf=lambda x: isinstance(x, list))
        for path, leaf in leaves:
            _refuse_no_numbers(name + jax.tree_util.keystr(path), leaf, source)


def _refuse_no_numbers(name: str, value: object, source: str) -> None:
    """Refuses everything but arrays of numbers, random keys and Python's numbers."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return
    if not hasattr(value, "dtype") and type(value) not in (bool, int, float):
        got = described(value)
        raise TypeError(f"{name}: expected an array of numbers, as {source} returns it, got {got}")
    as_arrays(name, value)


def learned(name: str, value: Any, expected: type[T], *, leading: tuple[str, ...] = ()) -> T:
    """Params as `fit` returns them, with arrays of the declared axes and values.

    Their fields are declared as `parameter(constraint)`, and a method `check_values(name)` checks
    what constraints cannot say; see `axis_lengths` for the arguments.
    """
    fitted(name, value, expected)
    value = as_arrays(name, value)
    axis_lengths(name, value, leading)
    return value.check_values(name) if hasattr(value, "check_values") else constrained(name, value)


def key_first(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function whose first argument is a random key, and which says so if that is left out."""

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if args and is_distribution(args[0]):
            random_key(cast(Any, args[0]))
        return function(*args, **kwargs)

    return checked


def random_key(key: jax.Array) -> jax.Array:
    """Returns a random key, old or new style, as one of the new style.

    Raises:
        TypeError: if it is not one key.
        ValueError: if it is masked.
    """
    refuse_masked("key", key)
    if isinstance(key, jax.Array) and jnp.shape(key) == ():
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
    elif isinstance(key, jax.Array | np.ndarray) and key.dtype == jnp.uint32 and key.ndim == 1:
        try:
            return jax.random.wrap_key_data(jnp.asarray(key))
        except TypeError:  # another number of words
            pass
    is_array = isinstance(key, jax.Array | np.ndarray)
    is_plain = key is None or isinstance(key, str | numbers.Number)
    got = repr(key) if is_plain else described(key)
    got = f"{key.dtype}{list(key.shape)}" if is_array else got
    raise TypeError(f"key: expected one random key such as jax.random.key(0), got {got}")
