"""Records: frozen dataclasses that are JAX pytrees."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

T = TypeVar("T")

# Any pytree of arrays.
PyTree: TypeAlias = Any
# Anything that the gate converts to an array: lists, and arrays of NumPy, JAX, pandas and PyTorch.
Numbers: TypeAlias = Any

Pair: TypeAlias = tuple[jax.Array, jax.Array]
Weights: TypeAlias = jax.Array | None  # of samples; None if all count equally

_SHOWN = 32  # entries of an array; larger ones are summarised


def parameter(constraint: object, **default: Any) -> Any:
    """Field of a distribution for a parameter with a constraint.

    >>> from calibjax import distributions, record
    >>> @record
    ... class Rayleigh(distributions.Distribution):
    ...     scale: float = parameter(distributions.constraints.positive)
    """
    return dataclasses.field(metadata={"constraint": constraint}, **default)


def part(check: Callable[[Any, str], Any], **default: Any) -> Any:
    """Field for a record or a function; `check(value, name)` returns or refuses its value."""
    return dataclasses.field(metadata={"check": check}, **default)


@dataclass_transform(
    frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field, parameter, part)
)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass and register it as a pytree.

    Every field is a child of the pytree, except fields marked as static by
    `dataclasses.field(metadata={"static": True})`. Fields are not converted or checked when a
    record is made, because JAX also makes records of placeholders; functions check the values.
    Records of one class are equal if all static fields are equal, and all arrays have equal shapes,
    types and entries; NaN equals NaN. A traced array only equals itself. Printing shows the fields,
    with type, shape and mean of arrays with more than 32 entries.

    Use it for distributions, distances and kernels of your own instead of
    `jax.tree_util.register_dataclass`: in jaxlib 0.10.2, tree structures of two classes registered
    by the latter are equal if they have equally many fields. If their hashes partly collide, a
    compiled function may run the code for the other class.

    >>> import jax
    >>> @record
    ... class Scale:
    ...     value: float
    >>> print(jax.tree.map(lambda leaf: 2 * leaf, Scale(1.5)))
    Scale(value=3.0)
    """
    if "__repr__" not in vars(cls):
        cls.__repr__ = _shown_record
    if "__eq__" not in vars(cls):
        cls.__eq__, cls.__hash__ = _are_equal, _hash
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields: Any = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    statics = tuple(x.name for x in fields if x.metadata.get("static"))
    children = tuple(x.name for x in fields if not x.metadata.get("static"))
    keys = tuple(map(jax.tree_util.GetAttrKey, children))

    def flatten(instance: T) -> tuple[tuple, tuple]:
        values, static_values = ([getattr(instance, x) for x in y] for y in (children, statics))
        return tuple(values), tuple(static_values)

    def flatten_with_keys(instance: T) -> tuple[tuple, tuple]:
        values, static_values = flatten(instance)
        return tuple(zip(keys, values, strict=True)), static_values

    def unflatten(static_values: tuple, values: Iterable[Any]) -> T:
        return cls(**dict(zip(children + statics, (*values, *static_values), strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _are_equal(self: Any, other: object) -> bool:
    return are_same(self, other) if type(self) is type(other) else NotImplemented


def are_same(one: PyTree, other: PyTree) -> bool:
    """Whether two pytrees are equal, as records are; traced arrays only if they are identical."""
    (leaves, structure), (others, other_structure) = map(jax.tree.flatten, (one, other))
    return structure == other_structure and all(map(_is_same, leaves, others))


def _is_same(one: Any, other: Any) -> bool:
    is_traced = isinstance(one, Tracer) or isinstance(other, Tracer)
    if one is other or _kind(one) != _kind(other) or is_traced:
        return one is other
    if isinstance(getattr(one, "dtype", None), np.dtype):  # no keys; JAX would compile programs
        one, other = np.asarray(one), np.asarray(other)
    return bool(np.all((one == other) | ((one != one) & (other != other))))


def _kind(leaf: Any) -> tuple[Any, ...]:
    """Type and shape of a leaf, for comparing leaves."""
    is_array = hasattr(leaf, "dtype")  # NumPy's float64 equals Python's float
    return is_array, leaf.dtype if is_array else type(leaf), np.shape(leaf)


def _hash(self: Any) -> int:
    leaves, structure = jax.tree.flatten(self)
    numbers = (x if type(x) in (bool, int, float) else _kind(x) for x in leaves)
    return hash((type(self), structure, *numbers))


def _shown_record(self: Any) -> str:
    """Representation like that of `dataclasses`, with summaries of large arrays."""
    shown = ", ".join(
        f"{field.name}={jax.tree.map(_summary, getattr(self, field.name))!r}"
        for field in dataclasses.fields(self)
        if field.repr
    )
    return f"{type(self).__qualname__}({shown})"


_shown_record.__name__ = "__repr__"  # the name that `help` shows


class Text(str):
    """Text whose representation has no quotes."""

    __repr__ = str.__str__


def _summary(leaf: Any) -> Any:
    """Number of a scalar array; type, shape and mean of a large array."""
    is_array = isinstance(leaf, jax.Array | np.ndarray) and not isinstance(leaf, Tracer)
    if not is_array or (leaf.ndim > 0 and leaf.size <= _SHOWN):
        return leaf
    if not leaf.ndim and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        number = leaf.item()
        return Text(f"{number:.6g}" if isinstance(number, float) else repr(number))
    is_shown = jnp.issubdtype(leaf.dtype, np.number)
    mean = f", mean={np.mean(np.asarray(leaf), dtype=np.float64):.4g}" if is_shown else ""
    return Text(f"Array({leaf.dtype}{list(leaf.shape)}{mean})")


def varying_as(first: T, data: PyTree) -> T:
    """Initial value of a loop, marked as varying over the devices of `shard_map` as the data are.

    Data that have to be computed are passed as a function that returns them.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return first
    differs = jnp.array(False)
    for leaf in jax.tree.leaves(data() if callable(data) else data):
        differs |= jnp.any(leaf != leaf)
    return jax.tree.map(lambda x: jnp.where(differs, x, x), first)  # x, but for its type
