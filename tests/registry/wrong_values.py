"""Wrong values that several kinds of arguments share.

A `Mutant` takes the place of one argument. Its `meanings` are the values that it may be taken for:
a list of the same numbers means the numbers. Without any it means nothing, and must be refused.
"""

import dataclasses
import datetime
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from tests.registry.arguments import NUMBERS, Argument


def row_of(array: np.ndarray) -> int:
    """The sample that is made wrong."""
    return min(2, len(array) - 1)


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    value: Any
    meanings: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class WrongValues:
    """An array of the valid one's shape and dtype with wrong numbers, in one row or in all."""

    name: str
    value: Any
    is_one_row: bool


def with_number(array: np.ndarray, value: Any) -> np.ndarray:
    """A copy with another first number in one row, which is the whole of a scalar."""
    changed = np.array(array)
    index = (row_of(array), *(0 for _ in array.shape[1:])) if array.ndim else ()
    changed[index] = value
    return changed


def _with_row(array: np.ndarray, row: Any) -> np.ndarray:
    changed = np.array(array)
    changed[row_of(array)] = row
    return changed


def subnormal(dtype: Any) -> float:
    """Half of the smallest normal number, which processors take for zero."""
    return float(np.finfo(dtype).tiny) / 2


_NOT_FINITE = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}


def wrong_values(argument: Argument, valid: Any) -> list[WrongValues]:
    """Wrong numbers of the right shape and dtype: eagerly refused, NaN under `jit`."""
    kind = argument.kind
    if kind in NUMBERS:
        outside = {"proportion": (0, 1, -0.5, 1.5), "number": (), "scale": (0, -1)}
        numbers = {str(v): v for v in outside.get(kind, (0.5, 0, -1))}
        if kind in ("proportion", "scale"):
            numbers["subnormal"] = subnormal(jnp.result_type(type(valid)))
        return [
            WrongValues(k, type(valid)(v), False) for k, v in {**_NOT_FINITE, **numbers}.items()
        ]
    a = np.asarray(valid)
    if kind == "integers":
        return []
    if a.dtype.kind in "iu":
        limit = {"labels": argument.limit, "truths": 2}.get(kind)
        numbers = {"-1": -1, "-2^31": -(2**31)}
        if limit is not None:
            numbers |= {"m": limit, "2^31-1": 2**31 - 1}
        found = [WrongValues(k, with_number(a, v), True) for k, v in numbers.items()]
        return [*found, WrongValues("all -1", np.full_like(a, -1), False)]
    outside = {
        "positive": {"0": 0, "-0.0": -0.0, "negative": -1.5},
        "weights": {"-0.1": -0.1, "-1e30": -1e30},
        "unit": {"-0.1": -0.1, "1.1": 1.1, "55": 55},
        "truths": {"0.5": 0.5, "2": 2, "-1": -1},
    }.get(kind, {})
    if kind == "positive" and "0" not in argument.without:
        outside = {**outside, "subnormal": subnormal(a.dtype)}
    found = [WrongValues(k, with_number(a, v), True) for k, v in {**_NOT_FINITE, **outside}.items()]
    found.append(WrongValues("all nan", np.full_like(a, np.nan), False))
    if kind in ("positive", "weights"):
        found.append(WrongValues("all negative", -a, False))
    if kind == "weights":
        found.append(WrongValues("all zero", np.zeros_like(a), False))
    if kind == "unit":
        found.append(WrongValues("percent", 100 * a, False))
    if kind == "simplex":
        m = a.shape[-1]
        rows = {
            "negative": np.array([-0.5, *np.full(m - 1, 1.5 / (m - 1))]),
            "twice": 2 * a[row_of(a)] if a.ndim > 1 else 2 * a,
            "zeros": np.zeros(a.shape[1:] if a.ndim > 1 else a.shape),
        }
        change = _with_row if a.ndim > 1 else lambda a, row: row
        for name, row in rows.items():
            broadcast = np.broadcast_to(row, a.shape[1:] if a.ndim > 1 else a.shape)
            found.append(WrongValues(name, change(a, broadcast).astype(a.dtype), a.ndim > 1))
        found.append(WrongValues("percent", 100 * a, False))
        found.append(WrongValues("logits", np.log(a), False))
    if kind == "matrix":  # of a kernel
        found.append(WrongValues("asymmetric", np.triu(a), False))
        found.append(WrongValues("indefinite", 3 - a, False))
    if kind == "spd":
        d = a.shape[-1]
        skew = np.eye(d)
        skew[0, -1] = 0.9
        rows = {"indefinite": 2 - np.eye(d), "asymmetric": skew, "zeros": np.zeros((d, d))}
        rows["negative"] = -np.eye(d)
        found += [WrongValues(k, _with_row(a, row), True) for k, row in rows.items()]
    return found


class ArrayLike:
    """What NumPy converts by `__array__`, as tensors and data frames."""

    def __init__(self, values: Any):
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype)


class Unrelated:
    """An object of a user."""

    def __call__(self, x: Any, y: Any = None) -> Any:
        return 1.0


@dataclasses.dataclass
class Unregistered:
    """A dataclass that is no pytree."""

    loc: Any = None

    def __call__(self, x: Any, y: Any = None) -> Any:
        return jnp.exp(-jnp.sum(jnp.square(x - y)))

    def sample(self, key: Any) -> Any:
        return self.loc


def objects() -> dict[str, Any]:
    """What is no array of numbers."""
    return {
        "None": None,
        "string": "no",
        "bytes": b"no",
        "dict": {"a": 1.0},
        "empty dict": {},
        "set": {1, 2},
        "empty list": [],
        "lambda": lambda *arguments: 1.0,
        "class": distributions.Normal,
        "object": Unrelated(),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(7), 8),
        "date": datetime.date(2020, 1, 1),
        "module": np,
    }
