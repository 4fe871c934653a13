"""The table of wrong values, by kind of argument.

A `Mutant` takes the place of one argument. Its `meanings` are the values that it may be taken for:
a list of the same numbers means the numbers. Without any it means nothing, and no number may come.
Wrong numbers of the right shape and dtype can be traced as well; they are wrong in one row or all.
"""

import dataclasses
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, kernels
from calibjax.distributions import constraints
from calibjax.kernels.base import Scaled, Sum
from calibjax.kernels.stationary import PowerExponential
from calibjax.streaming.sums import State
from tests.registry.arguments import ARRAYS, NUMBERS, Argument


@dataclasses.dataclass(frozen=True)
class Mutant:
    """Of wrong numbers `is_one_row` says whether they are in one row or in all."""

    name: str
    value: Any
    meanings: tuple[Any, ...] = ()
    is_one_row: bool = True


def mutants(argument, valid):
    """All wrong values in place of a valid one, but for those that the registry leaves out."""
    found = wrong_values(argument, valid)
    for name, value in _OF_KIND[argument.kind](argument, valid).items():
        found.append(value if isinstance(value, Mutant) else Mutant(name, value))
    return [m for m in found if m.name not in argument.without]


def same(meaning, **named):
    """Values that may be taken for a right one."""
    return {
        name: Mutant(name.replace("_", " "), value, (meaning,)) for name, value in named.items()
    }


def row_of(array):
    """The sample that is made wrong."""
    return min(2, len(array) - 1)


def with_number(array, value):
    """A copy with another first number in one row, which is the whole of a scalar."""
    changed = np.array(array)
    changed[(row_of(array), *(0 for _ in array.shape[1:])) if array.ndim else ()] = value
    return changed


def _with_row(array, row):
    changed = np.array(array)
    changed[row_of(array)] = row
    return changed


def _subnormal(dtype):
    """Half of the smallest normal number, which processors take for zero."""
    return float(np.finfo(dtype).tiny) / 2


_NOT_FINITE = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
_OUTSIDE = {
    "positive": {"0": 0, "-0.0": -0.0, "negative": -1.5},
    "weights": {"-0.1": -0.1, "-1e30": -1e30},
    "unit": {"-0.1": -0.1, "1.1": 1.1, "55": 55},
    "truths": {"0.5": 0.5, "2": 2, "-1": -1},
    "proportion": {"0": 0, "1": 1, "-0.5": -0.5, "1.5": 1.5},
    "scale": {"0": 0, "-1": -1},
    "at_least_one": {"0.5": 0.5, "0": 0, "-1": -1},
}


def wrong_values(argument, valid):
    """Wrong numbers of the right shape and dtype: eagerly refused, NaN under `jit`."""
    kind, outside = argument.kind, _OUTSIDE.get(argument.kind, {})
    if kind in NUMBERS:
        numbers = {**_NOT_FINITE, **outside}
        if kind in ("proportion", "scale"):
            numbers["subnormal"] = _subnormal(jnp.result_type(type(valid)))
        return [Mutant(k, type(valid)(v), (), False) for k, v in numbers.items()]
    if kind not in ARRAYS or kind == "integers":
        return []
    a = np.asarray(valid)
    if a.dtype.kind in "iu":
        limit = {"labels": argument.limit, "truths": 2}.get(kind)
        numbers = {"-1": -1, "-2^31": -(2**31)}
        if limit is not None:
            numbers |= {"m": limit, "2^31-1": 2**31 - 1}
        found = [Mutant(k, with_number(a, v)) for k, v in numbers.items()]
        return [*found, Mutant("all -1", np.full_like(a, -1), (), False)]
    if kind == "positive" and "0" not in argument.without:
        outside = {**outside, "subnormal": _subnormal(a.dtype)}
    found = [Mutant(k, with_number(a, v)) for k, v in {**_NOT_FINITE, **outside}.items()]
    whole, rows = {"all nan": np.full_like(a, np.nan)}, {}
    if kind in ("positive", "weights"):
        whole["all negative"] = -a
    if kind == "weights":
        whole["all zero"] = np.zeros_like(a)
    if kind in ("unit", "simplex"):
        whole["percent"] = 100 * a
    if kind == "simplex":
        whole["logits"] = np.log(a)
        rows = {"negative": np.r_[-0.5, np.full(a.shape[-1] - 1, 1.5 / (a.shape[-1] - 1))]}
        rows |= {"twice": 2 * a[row_of(a)], "zeros": 0}
    if kind == "matrix":  # of a kernel
        whole |= {"asymmetric": np.triu(a), "indefinite": 3 - a}
    if kind == "spd":
        one = np.eye(a.shape[-1])
        skew = one + 0.9 * np.eye(len(one), k=len(one) - 1)
        rows = {"indefinite": 2 - one, "asymmetric": skew, "zeros": 0, "negative": -one}
    found += [Mutant(k, _with_row(a, row)) for k, row in rows.items()]
    return [*found, *(Mutant(k, v, (), False) for k, v in whole.items())]


class ArrayLike:
    """What NumPy converts by `__array__`, as tensors and data frames."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


@dataclasses.dataclass
class Unregistered:
    """A dataclass that is no pytree, with the methods of many things."""

    loc: Any = None

    def __call__(self, x, y=None):
        return jnp.exp(-jnp.sum(jnp.square(x - y)))

    def sample(self, key):
        return self.loc


def _objects(*without):
    """What is no array of numbers."""
    found = {
        "None": None,
        "string": "no",
        "dict": {"a": 1.0},
        "empty list": [],
        "lambda": lambda *arguments: 1.0,
        "class": distributions.Normal,
        "object": object(),
        "key": jax.random.key(7),
    }
    return {name: value for name, value in found.items() if name not in without}


def _tables(a):
    """Of pandas and torch where these are installed, which nothing here needs."""
    found: dict[str, Any] = {}
    if importlib.util.find_spec("pandas") is not None and a.ndim <= 2:
        import pandas

        table = pandas.Series(a) if a.ndim == 1 else pandas.DataFrame(a)
        missing = table.astype("Int64" if a.dtype.kind in "iu" else "Float64")
        found |= same(a, table=table, nullable_table=missing.copy())
        missing.iloc[(row_of(a), 0)[: a.ndim]] = pandas.NA
        found["table, missing"] = missing
    if importlib.util.find_spec("torch") is not None and a.dtype.kind in "if":
        import torch

        found |= same(a, tensor=torch.tensor(a))
    return found


def _of_array(argument, a):
    rows, is_first = a.tolist(), np.arange(a.size).reshape(a.shape) == row_of(a)
    found = {
        **_objects(),
        **same(a, list=rows, object_array=a.astype(object), strings=a.astype(str)),
        **same(a, array_like=ArrayLike(a), jax=jnp.asarray(a), one_more_axis=a[..., None]),
        **same(np.repeat(a[:1], len(a), 0), one_row=a[:1]),
        **same(np.full_like(a, a.flat[0]), scalar=a.flat[0]),
        **_tables(a),
        **_other_dtypes(argument, a),
        "empty": a[:0],
        "one row less": a[:-1],
        "one row more": np.concatenate([a, a[:1]]),
        "leading axis": a[None],
        "ragged": [rows[0], [rows[1]], *rows[2:]],
        "masked": np.ma.masked_array(a, is_first),
        "complex": a + 0.5j,
        "dates": np.zeros(a.shape, "M8[D]"),
        "words": np.full(a.shape, "a"),
    }
    if a.ndim == 1:
        return {**found, "matrix": np.repeat(a[:, None], 2, 1)}
    columns = {"first column": a[:, 0], "no columns": a[:, :0], "transposed": np.moveaxis(a, 0, -1)}
    return found | columns


def _other_dtypes(argument, a):
    """Numbers of other types, the same or not."""
    has_64_bits = jax.config.jax_enable_x64
    if a.dtype.kind not in "iu":
        half = a.astype(np.float16)
        wide = half.astype(np.float32)
        rounded = wide / wide.sum(-1, keepdims=True) if argument.kind == "simplex" else wide
        ones = np.ones_like(a) / (a.shape[-1] if argument.kind == "simplex" else 1)  # as a mask
        found = same(a, float64=a.astype(np.float64)) | same(ones, bool=a == a)
        found["float16"] = Mutant("float16", half, (rounded, wide.astype(np.float64)))
        if not has_64_bits and argument.kind in ("real", "positive"):
            found["1e300"] = with_number(a.astype(np.float64), 1e300)
        return found
    wide = {"2^32+1": 2**32 + 1, "-2^32": -(2**32), "nan as int64": np.iinfo(np.int64).min}
    if argument.kind == "counts" and has_64_bits:  # which are counts then
        wide.pop("2^32+1")
    if argument.kind == "integers" and has_64_bits:
        wide = {}
    found = {k: with_number(a.astype(np.int64), v) for k, v in wide.items()}
    floats = {f"float {v}": with_number(a.astype(np.float64), v) for v in (0.5, np.nan, np.inf)}
    if a.min() >= 0:
        kinds = np.uint8, np.int64, np.uint64, np.float16, np.float64
        floats |= same(a, **{np.dtype(t).name: a.astype(t) for t in kinds})
    if argument.kind == "labels" and a.ndim:
        found |= {"from one": a + 1, "one-hot": np.eye(argument.limit, dtype=np.int32)[a]}
    # Truth values are labels 0 and 1.
    return found | floats | same((a > 0).astype(np.int32), bool=a > 0)


def _of_number(argument, value):
    vector = np.array([value])
    likes = {"float64": np.float64(value), "array": np.array(value), "jax": jnp.asarray(value)}
    likes |= {"vector": vector, "list": [value], "number as string": str(value)}
    found = {k: Mutant(k, v, (value, vector)) for k, v in likes.items()}
    wrong = {"True": True, "two": [value, value], "complex": complex(value, 1)}
    wrong |= {"matrix": np.full((2, 2), value), "empty": np.zeros(0), "masked": np.ma.masked}
    if argument.limit == "vector":  # one number or several
        wrong.pop("two")
    return _objects() | found | wrong


def _of_integer(argument, value):
    likes = {"int64": np.int64(value), "array": np.array(value), "float": float(value)}
    likes |= {"string": str(value), "list": [value], "vector": np.array([value])}
    huge = (argument.limit,) if argument.limit is not None else ()
    wrong = {"True": True, "nan": np.nan, "inf": np.inf, "half": value + 0.5, "-1": -1, "0": 0}
    found = _objects(*["None"] * (argument.value is None)) | wrong
    return found | same(value, **likes) | {"10^12": Mutant("10^12", 10**12, huge)}


def _of_truth(argument, value):
    likes = {"numpy": np.bool_(value), "integer": int(value), "jax": jnp.asarray(value)}
    wrong = {"False as string": "False", "2": 2, "nan": np.nan, "two": np.array([value, value])}
    return _objects() | wrong | same(value, **likes)


def _of_choice(argument, value):
    wrong = {"capital": value.title() + "!", "0": 0, "True": True, "nan": np.nan}
    return _objects() | wrong | same(value, numpy=np.str_(value))


def _of_key(argument, value):
    old = jax.random.key_data(value)
    wrong = {"0": 0, "float": 0.5, "float key": np.zeros(2), "int key": np.zeros(2, np.int64)}
    wrong |= {"keys": jax.random.split(value, 8), "list": [0, 0], "one": np.uint32(3)}
    likes = same(value, old_style=old, numpy=np.asarray(old), array_of_one=value[None])
    return _objects("key") | wrong | likes


def _of_kernel(argument, value):
    of_pairs = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    tiny = kernels.SquaredExponential(1e-25)  # right, but for squares that underflow
    wrong = {
        "length scale 0.0": kernels.SquaredExponential(0.0),
        "exponent 3": PowerExponential(1.0, 3),
        "class": kernels.SquaredExponential,
        "base": kernels.Kernel(),
        "distance": distances.Euclidean(),
        "empty sum": Sum(()),
        "sum of others": Sum((value, 1.0)),
        "wrong distance": kernels.Exponential(1.0, "tv"),
        "kernel as distance": kernels.Exponential(1.0, kernels.White()),
        "other tensor product": kernels.TensorProduct(1.0, kernels.White()),
        "no target kernel": kernels.TensorProduct(kernels.Exponential(), None),
        "nested": kernels.TensorProduct(of_pairs, kernels.White()),
        "unregistered": Unregistered(),
        "string valued": lambda x, y: "a",
        "vector valued": lambda x, y: jnp.ones(2),
    }
    right = {"same as lambda": lambda x, y: value(x, y), "once": Scaled(1.0, value)}
    right |= {"sum of one": Sum((value,))}
    found = _objects("lambda") | wrong | {k: Mutant(k, v, (value,)) for k, v in right.items()}
    return found | same(tiny, tiny_length_scale=tiny)


def _of_distance(argument, value):
    wrong = {
        "class": distances.Euclidean,
        "base": distances.Distance(),
        "kernel": kernels.White(),
        "string valued": lambda x, y: "a",
        "nan valued": lambda x, y: jnp.nan * value(x, y),
        "negative": lambda x, y: -1.0 - value(x, y),
        "vector valued": lambda x, y: jnp.ones(2),
    }
    return _objects("lambda") | wrong | same(value, same_as_lambda=lambda x, y: value(x, y))


def _of_binning(argument, value):
    def length(p):
        return jax.tree.leaves(p)[0].shape[0]

    wrong = {
        "class": type(value),
        "two arguments": lambda p, q: p,
        "string valued": lambda p: "a",
        "fractions": lambda p: jnp.full(length(p), 0.5),
        "negative": lambda p: jnp.full(length(p), -1),
        "too large": lambda p: jnp.full(length(p), length(p)),
        "int64": lambda p: np.full(length(p), 2**32),
        "too few": lambda p: jnp.zeros(length(p) - 1, int),
        "matrix": lambda p: jnp.zeros((length(p), 1), int),
    }
    return _objects("lambda", "None") | wrong | same(value, same_as_lambda=lambda p: value(p))


def _of_function(argument, value):
    wrong = {
        "class": kernels.White,
        "number": 1.0,
        "no arguments": lambda: 1.0,
        "five arguments": lambda a, b, c, d, e: 1.0,
        "string valued": lambda *a: "a",
        "nan valued": lambda *a: jnp.nan * jnp.sum(jnp.asarray(value(*a))),
        "complex valued": lambda *a: 1j * value(*a),
    }
    return _objects("lambda") | wrong | same(value, same_as_lambda=lambda *a: value(*a))


def _of_predictions(argument, value):
    """In place of a whole batch."""
    leaf = np.asarray(jax.tree.leaves(value)[0])
    fields = [f.name for f in dataclasses.fields(value)]
    wrong = {
        "class": type(value),
        "array": leaf,
        "list of records": [value, value],
        "no leading axis": jax.tree.map(lambda x: x[0], value),
        "empty": jax.tree.map(lambda x: x[:0], value),
        "unregistered": Unregistered(leaf),
        "None inside": dataclasses.replace(value, **dict.fromkeys(fields)),
        "strings inside": dataclasses.replace(value, **dict.fromkeys(fields, "a")),
        "kernel": kernels.White(),
    }
    draws = getattr(value, "draws", value)
    if getattr(draws, "index", None) is not None:
        index = np.asarray(draws.index)
        others = {"concatenated": np.tile(index[: len(index) // 2], 2), "zero indices": 0 * index}
        others["too few indices"] = index[:-1]
        for name, other in others.items():
            changed = dataclasses.replace(draws, index=other)
            is_draws = draws is value
            wrong[name] = changed if is_draws else dataclasses.replace(value, draws=changed)
    return _objects() | wrong


def _of_record(argument, value):
    """In place of something that a function of the package returned, params or results."""
    wrong = {"number": 1.0, "array": np.ones(3), "pair": (1.0, 2.0), "other": kernels.White()}
    wrong |= {"its class": type(value)}
    if isinstance(value, State):
        for key, count in value.counts.items():
            changed = dataclasses.replace(value, counts=value.counts | {key: -1 - count})
            wrong[f"{key}: negative"] = changed
    elif dataclasses.is_dataclass(value):
        wrong |= _of_constrained(value)
    return _objects() | wrong


def _of_constrained(record):
    """Params with wrong numbers, shapes and kinds in place of each of their arrays."""
    wrong = {}
    for field in dataclasses.fields(record):
        constraint, key = field.metadata.get("constraint"), field.name
        if constraint is None:
            continue
        array = np.asarray(getattr(record, key))
        numbers = {"-7": -7} if constraint.check != constraints.real.check else {}
        if array.dtype.kind == "f":
            numbers |= {"nan": np.nan, "inf": np.inf}
        changed = {name: with_number(array, number) for name, number in numbers.items()}
        changed |= {"one more axis": array[None], "words": np.full(array.shape, "a")}
        changed |= {"string": "no", "None": None} | ({"empty": array[:0]} if array.ndim else {})
        for name, value in changed.items():
            wrong[f"{key}: {name}"] = dataclasses.replace(record, **{key: value})
    return wrong


_OF_KIND: dict[str, Callable[[Argument, Any], dict[str, Any]]] = {
    "integer": _of_integer,
    "truth": _of_truth,
    "choice": _of_choice,
    "key": _of_key,
    "kernel": _of_kernel,
    "distance": _of_distance,
    "binning": _of_binning,
    "function": _of_function,
    "predictions": _of_predictions,
    "record": _of_record,
    **dict.fromkeys(ARRAYS, _of_array),
    **dict.fromkeys(NUMBERS, _of_number),
}
