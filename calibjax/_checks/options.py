"""Checks of options: numbers, choices, functions, records, random keys."""

import numbers
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._checks.arrays import described
from calibjax._checks.values import record_values


def size_in_range(name: str, value: Any, minimum: int, maximum: int | None = None) -> int:
    """Returns an integer option after checking its range."""
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


def truth_value(name: str, value: Any) -> None:
    """Refuses options that are neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: expected True or False, got {value!r}")


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Refuses options that are not among the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def one_of(**options: Any) -> None:
    """Refuses calls with none or several of the options."""
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        raise TypeError(f"expected one of {' and '.join(options)}, got {got}")


def function(kind: str, name: str, value: Any) -> None:
    """Refuses what cannot be called, and classes in place of their instances."""
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"{name}: expected a {kind}, got {described(value)}")


def kernel_values(kernel: Any, name: str = "kernel") -> None:
    """Checks the hyperparameters of a kernel and of the kernels in it."""
    function("kernel record", name, kernel)
    record_values(kernel, name)


def fitted(name: str, value: Any, expected: type, source: str = "fit") -> None:
    """Refuses params of another method, or what some function did not return."""
    if not isinstance(value, expected):
        raise TypeError(
            f"{name}: expected {expected.__name__} as {source} returns it, got {described(value)}"
        )


def random_key(key: Any) -> jax.Array:
    """Returns a random key, old or new style, as one of the new style.

    Raises:
        TypeError: if it is not one key.
    """
    if isinstance(key, jax.Array) and jnp.shape(key) == ():
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            return key
    elif isinstance(key, jax.Array | np.ndarray) and key.dtype == jnp.uint32 and key.ndim == 1:
        return jax.random.wrap_key_data(jnp.asarray(key))
    got = f"{key.dtype}{list(key.shape)}" if hasattr(key, "shape") else repr(key)
    raise TypeError(f"key: expected one random key such as jax.random.key(0), got {got}")
