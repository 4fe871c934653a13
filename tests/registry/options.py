"""Wrong values in place of options, keys, records and functions."""

import dataclasses
import decimal
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, kernels
from calibjax._core import checks
from calibjax.distributions import constraints
from calibjax.kernels.base import Product, Scaled, Sum
from calibjax.kernels.stationary import PowerExponential
from calibjax.streaming.base import State
from tests.registry.arguments import Argument
from tests.registry.wrong_values import Mutant, Unregistered, Unrelated, objects, with_number


def of_integer(argument: Argument, value: int) -> list[Mutant]:
    wrong = {**objects(), "True": True, "np.True_": np.True_, "nan": np.nan, "inf": np.inf}
    wrong |= {"masked": np.ma.masked_array(value, True)}
    wrong |= {"half": value + 0.5, "-1": -1, "0": 0, "complex": 1j, "two": np.array([value, value])}
    if argument.value is None or "None" in argument.without:
        wrong.pop("None")
    same = {"int64": np.int64(value), "array": np.array(value), "uint8": np.uint8(value)}
    same |= {
        "float": float(value),
        "string": str(value),
        "list": [value],
        "jax": jnp.asarray(value),
    }
    same |= {"Decimal": decimal.Decimal(value), "vector": np.array([value])}
    huge = (argument.limit,) if argument.limit is not None else ()
    return [
        *(Mutant(k, v) for k, v in wrong.items()),
        *(Mutant(k, v, (value,)) for k, v in same.items()),
        Mutant("10^12", 10**12, huge),
        Mutant("10^30", 10**30, huge),
    ]


def of_truth(argument: Argument, value: bool) -> list[Mutant]:
    wrong = {**objects(), "no": "no", "False as string": "False", "2": 2, "nan": np.nan}
    wrong |= {"two": np.array([value, value]), "-1": -1}
    wrong |= {"masked": np.ma.masked_array(value, True)}
    same = {"numpy": np.bool_(value), "array": np.array(value), "integer": int(value)}
    same |= {"jax": jnp.asarray(value)}
    return [
        *(Mutant(k, v) for k, v in wrong.items()),
        *(Mutant(k, v, (value,)) for k, v in same.items()),
    ]


def of_choice(argument: Argument, value: str) -> list[Mutant]:
    wrong = {**objects(), "other": "no", "capital": value.title() + "!", "0": 0, "True": True}
    wrong |= {"array": np.array([1, 2]), "nan": np.nan}
    return [*(Mutant(k, v) for k, v in wrong.items()), Mutant("numpy", np.str_(value), (value,))]


def of_key(argument: Argument, value: Any) -> list[Mutant]:
    wrong = {k: v for k, v in objects().items() if k not in ("key",)}
    wrong |= {"0": 0, "float": 0.5, "float key": np.zeros(2), "four": np.zeros(4, np.uint32)}
    wrong |= {"int key": np.zeros(2, np.int64), "nan": np.nan, "True": True, "one": np.uint32(3)}
    wrong |= {"list": [0, 0], "empty": np.zeros(0, np.uint32)}
    old = jax.random.key_data(value)
    wrong |= {"masked": np.ma.masked_array(old, [False, True])}
    same = {"old style": old, "numpy": np.asarray(old), "array of one": value[None]}
    return [
        *(Mutant(k, v) for k, v in wrong.items()),
        *(Mutant(k, v, (value,)) for k, v in same.items()),
    ]


def of_kernel(argument: Argument, value: Any) -> list[Mutant]:
    scales = (np.nan, np.inf, 0.0, -1.0, "1", None, True, np.True_, [1.0], np.ones(2), 1j)
    wrong = {f"length scale {v!r}": kernels.SquaredExponential(v) for v in scales}
    tiny = kernels.SquaredExponential(1e-25)  # right, but for squares that underflow
    wrong |= {f"exponent {v!r}": PowerExponential(1.0, v) for v in (np.nan, 0, -1, 3, "1")}
    wrong |= {f"times {v!r}": Scaled(v, value) for v in (-1, 0, np.nan, "1", None, True)}
    wrong |= {
        "class": kernels.SquaredExponential,
        "base": kernels.Kernel(),
        "distance": distances.Euclidean(),
        "number": 1.0,
        "empty sum": Sum(()),
        "empty product": Product(()),
        "sum of others": Sum((value, 1.0)),
        "sum, no tuple": Sum(value),
        "product of others": Product((value, None)),
        "wrong distance": kernels.Exponential(1.0, "tv"),
        "kernel as distance": kernels.Exponential(1.0, kernels.White()),
        "matrix of nan": kernels.LabelKernel(np.full((3, 3), np.nan)),
        "asymmetric matrix": kernels.LabelKernel(np.triu(np.ones((3, 3)))),
        "other tensor product": kernels.TensorProduct(1.0, kernels.White()),
        "no target kernel": kernels.TensorProduct(kernels.Exponential(), None),
        "nested": kernels.TensorProduct(
            kernels.TensorProduct(kernels.Exponential(), kernels.White()), kernels.White()
        ),
        "unregistered": Unregistered(),
        "predictions": distributions.Normal(np.zeros(3), np.ones(3)),
        "of one point": lambda x: 1.0,
        "string valued": lambda x, y: "a",
        "complex valued": lambda x, y: jnp.array(1j),
        "vector valued": lambda x, y: jnp.ones(2),
        "no value": lambda x, y: None,
    }
    plain = {k: v for k, v in objects().items() if k not in ("lambda", "object")}
    return [
        *(Mutant(k, v) for k, v in {**plain, **wrong}.items() if k not in argument.without),
        Mutant("same as lambda", lambda x, y: value(x, y), (value,)),
        Mutant("tiny length scale", tiny, (tiny,)),
        Mutant("once", Scaled(1.0, value), (value,)),
        Mutant("sum of one", Sum((value,)), (value,)),
    ]


def of_distance(argument: Argument, value: Any) -> list[Mutant]:
    wrong = {
        "class": distances.Euclidean,
        "base": distances.Distance(),
        "kernel": kernels.White(),
        "number": 1.0,
        "order": distances.MixtureWasserstein(0.5),
        "of one point": lambda x: 1.0,
        "string valued": lambda x, y: "a",
        "complex valued": lambda x, y: jnp.array(1j),
        "nan valued": lambda x, y: jnp.nan * value(x, y),
        "negative": lambda x, y: -1.0 - value(x, y),
        "vector valued": lambda x, y: jnp.ones(2),
        "no value": lambda x, y: None,
    }
    plain = {k: v for k, v in objects().items() if k not in ("lambda", "object")}
    wrong = {k: v for k, v in {**plain, **wrong}.items() if k not in argument.without}
    return [
        *(Mutant(k, v) for k, v in wrong.items()),
        Mutant("same as lambda", lambda x, y: value(x, y), (value,)),
    ]


def of_binning(argument: Argument, value: Any) -> list[Mutant]:
    def length(p: Any) -> int:
        return jax.tree.leaves(p)[0].shape[0]

    wrong = {
        "class": type(value),
        "number": 10,
        "no arguments": lambda: 1,
        "two arguments": lambda p, q: p,
        "string valued": lambda p: "a",
        "no value": lambda p: None,
        "floats": lambda p: jnp.zeros(length(p)),
        "bools": lambda p: jnp.zeros(length(p), bool),
        "negative": lambda p: jnp.full(length(p), -1),
        "too large": lambda p: jnp.full(length(p), length(p)),
        "int64": lambda p: np.full(length(p), 2**32),
        "missing": lambda p: np.full(length(p), np.iinfo(np.int64).min),
        "too few": lambda p: jnp.zeros(length(p) - 1, int),
        "scalar": lambda p: 0,
        "matrix": lambda p: jnp.zeros((length(p), 1), int),
        "masked": lambda p: np.ma.masked_array(np.zeros(length(p), int), np.ones(length(p), bool)),
    }
    plain = {k: v for k, v in objects().items() if k not in ("lambda", "object", "None")}
    return [
        *(Mutant(k, v) for k, v in {**plain, **wrong}.items()),
        Mutant("same as lambda", lambda p: value(p), (value,)),
        Mutant("uint8", lambda p: jnp.asarray(value(p)).astype(jnp.uint8), (value,)),
        Mutant("list valued", lambda p: np.asarray(value(p)).tolist(), (value,)),
    ]


def of_function(argument: Argument, value: Any) -> list[Mutant]:
    wrong = {
        "class": kernels.White,
        "number": 1.0,
        "no arguments": lambda: 1.0,
        "five arguments": lambda a, b, c, d, e: 1.0,
        "string valued": lambda *a: "a",
        "no value": lambda *a: None,
        "nan valued": lambda *a: jnp.nan * jnp.sum(jnp.asarray(value(*a))),
        "complex valued": lambda *a: 1j * value(*a),
    }
    plain = {k: v for k, v in objects().items() if k not in ("lambda", "object")}
    return [
        *(Mutant(k, v) for k, v in {**plain, **wrong}.items() if k not in argument.without),
        Mutant("same as lambda", lambda *a: value(*a), (value,)),
    ]


def _filled(record: Any, content: Any) -> Any:
    return dataclasses.replace(record, **{f.name: content for f in dataclasses.fields(record)})


def of_predictions(argument: Argument, value: Any) -> list[Mutant]:
    """In place of a whole batch."""
    leaf = np.asarray(jax.tree.leaves(value)[0])
    wrong = {
        "class": type(value),
        "array": leaf,
        "list of records": [value, value],
        "no leading axis": jax.tree.map(lambda x: x[0], value),
        "empty": jax.tree.map(lambda x: x[:0], value),
        "unregistered": Unregistered(leaf),
        "duck without sample": Unrelated(),
        "None inside": _filled(value, None),
        "strings inside": _filled(value, "a"),
        "kernel": kernels.White(),
        "binning": estimators.UniformBins(3),
        "pair": (value, value),
    }
    draws = getattr(value, "draws", value)
    if getattr(draws, "index", None) is not None:
        index = np.asarray(draws.index)
        others = {
            "concatenated": np.tile(index[: len(index) // 2], 2),
            "zero indices": 0 * index,
            "fractions as indices": index + 0.5,
            "too few indices": index[:-1],
        }
        for name, other in others.items():
            changed = dataclasses.replace(draws, index=other)
            is_draws = draws is value
            wrong[name] = changed if is_draws else dataclasses.replace(value, draws=changed)
    return [Mutant(k, v) for k, v in {**objects(), **wrong}.items() if k not in argument.without]


def _of_constrained(record: Any) -> dict[str, Any]:
    """Params with wrong numbers, shapes and kinds in place of each of their arrays."""
    wrong = {}
    for key, constraint in checks.constraints_of(record).items():
        array = np.asarray(getattr(record, key))
        numbers = {"-7": -7} if constraint.words != constraints.real.words else {}
        if array.dtype.kind == "f":
            numbers |= {"nan": np.nan, "inf": np.inf}
        changed = {name: with_number(array, number) for name, number in numbers.items()}
        changed |= {"one more axis": array[None], "words": np.full(array.shape, "a")}
        changed |= {"string": "no", "None": None, "masked": np.ma.masked_array(array, True)}
        if array.ndim:
            changed |= {"empty": array[:0], "no axes": array.flat[0]}
        for name, value in changed.items():
            wrong[f"{key}: {name}"] = dataclasses.replace(record, **{key: value})
    return wrong


def _of_state(state: State) -> dict[str, Any]:
    """States with a negative count."""
    return {
        f"{key}: negative": dataclasses.replace(state, counts=state.counts | {key: -1 - count})
        for key, count in state.counts.items()
    }


def of_record(argument: Argument, value: Any) -> list[Mutant]:
    """In place of something that a function of the package returned, params or results."""
    wrong = {"number": 1.0, "array": np.ones(3), "pair": (1.0, 2.0), "other": kernels.White()}
    wrong |= {"its class": type(value)}
    if isinstance(value, State):
        wrong |= _of_state(value)
    elif dataclasses.is_dataclass(value):
        wrong |= _of_constrained(value)
    return [Mutant(k, v) for k, v in {**objects(), **wrong}.items() if k not in argument.without]
