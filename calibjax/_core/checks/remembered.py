"""What was found of the same arrays before, so that one data set is not checked again and again."""

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax

from calibjax._core.checks.arrays import has_64_bits, is_concrete, is_outermost
from calibjax._core.sharding import is_spread

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_MOST = 64  # values of one function that are kept at once
_LARGEST = 2**24  # bytes of one of them
_PLAIN = type(None), str, int, bool, float


class _Known(NamedTuple):
    """A value of a function, and what it is the value of; all arguments are weak references.

    Attributes:
        references: to the arguments; the value goes with the first of them.
        leaves, structure: what the arguments held.
        value: the value, with references in place of arguments in it.
    """

    references: tuple[Any, ...]
    leaves: list[Any]
    structure: Any
    value: object


def remembered(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that looks again only at what it has not seen yet.

    Its value is that of an earlier call with the same objects if they still hold the same arrays of
    JAX, which never change. What holds arrays of NumPy, which may, is looked at in every call, and
    so is what is traced or split over devices. What is found of known arguments while a program is
    traced is remembered on its own. No value is kept longer than the arguments.
    """
    values: dict[Any, _Known] = {}

    @functools.wraps(function)
    def call(*args: Parameters.args, **options: Parameters.kwargs) -> Result:
        names = (x if type(x) in _PLAIN else id(x) for x in args)
        key = (*names, *options.items(), has_64_bits(), is_outermost())
        try:
            known = values.get(key)
            leaves, structure = jax.tree.flatten(args)
        except (TypeError, ValueError):  # unhashable options, or no pytree
            return function(*args, **options)
        if known is not None and structure == known.structure and _are(known.leaves, leaves):
            return _resolved(known.value)
        value = function(*args, **options)
        if all(map(_stays, leaves)) and is_concrete(value) and _is_small(value, leaves):
            forget = lambda _: values.pop(key, None)  # noqa: E731
            objects = [x for x in args if type(x) not in _PLAIN]
            try:
                references = tuple(weakref.ref(x, forget) for x in objects)
            except TypeError:  # tuples, for example, take no weak references
                return value
            if len(values) >= _MOST:
                values.clear()
            held = [_reference(leaf) for leaf in leaves]
            values[key] = _Known(references, held, structure, _referring(value, objects))
        return value

    return call


def _is_small(value: object, given: list[Any]) -> bool:
    """Whether a value, apart from what was given, may stay in memory as long as its arguments."""
    known = {id(leaf) for leaf in given}
    new = (leaf for leaf in jax.tree.leaves(value) if id(leaf) not in known)
    return sum(getattr(leaf, "nbytes", 0) for leaf in new) <= _LARGEST


def _stays(leaf: object) -> bool:
    """Whether a leaf never changes, and is not traced or split over devices."""
    is_array = isinstance(leaf, jax.Array) and is_concrete(leaf) and not is_spread(leaf)
    return is_array or type(leaf) in _PLAIN


def _reference(leaf: object) -> Any:
    return leaf if type(leaf) in _PLAIN else weakref.ref(leaf)


def _are(known: list[Any], leaves: list[Any]) -> bool:
    """Whether leaves are those that are known."""
    return all(_resolved(x) is leaf for x, leaf in zip(known, leaves, strict=True))


def _referring(value: object, objects: list[Any]) -> Any:
    """A value, or a tuple of values, with references to those that are among the objects."""
    if isinstance(value, tuple):
        return _like(value, (_referring(part, objects) for part in value))
    return weakref.ref(value) if any(value is x for x in objects) else value


def _resolved(value: object) -> Any:
    """What `_referring` was given."""
    if isinstance(value, tuple):
        return _like(value, map(_resolved, value))
    return value() if type(value) is weakref.ref else value


def _like(value: tuple[Any, ...], parts: Iterable[Any]) -> tuple[Any, ...]:
    """A tuple of the same class."""
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
