"""Wrong values in place of arrays and numbers."""

import decimal
import fractions
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from tests.registry.arguments import Argument
from tests.registry.wrong_values import (
    ArrayLike,
    Mutant,
    objects,
    row_of,
    with_number,
    wrong_values,
)


class Tagged(np.ndarray):
    """Arrays of another library that are NumPy's too."""


def _containers(a: np.ndarray) -> list[Mutant]:
    """The same numbers in other clothes."""
    same = {
        "list": a.tolist(),
        "tuple": tuple(a.tolist()),
        "list of scalars": list(a),
        "object array": a.astype(object),
        "longdouble": a.astype(np.longdouble),
        "Fortran order": np.asfortranarray(a),
        "strided": np.repeat(a, 2, 0)[::2],
        "other byte order": a.astype(a.dtype.newbyteorder()),
        "masked, no mask": np.ma.masked_array(a, np.zeros(a.shape, bool)),
        "array-like": ArrayLike(a),
        "jax": jnp.asarray(a),
        "one more axis": a[..., None],
        "complex, real": a.astype(np.complex64),
        "subclass": a.view(Tagged),
        "strings": a.astype(str),
    }
    if a.ndim == 1:
        same["Decimal"] = [decimal.Decimal(str(v)) for v in a.tolist()]
        same["Fraction"] = [fractions.Fraction(v) for v in a.tolist()]
    if a.ndim == 2:
        same["sparse"] = scipy.sparse.csr_matrix(a)
        same["structured"] = np.ascontiguousarray(a).view(
            [(f"f{i}", a.dtype) for i in range(a.shape[1])]
        )
    return [Mutant(name, value, (a,)) for name, value in same.items()]


def _data_frames(a: np.ndarray) -> list[Mutant]:
    """Where pandas is installed, which nothing here needs."""
    if importlib.util.find_spec("pandas") is None or a.ndim > 2:
        return []
    import pandas

    if a.ndim == 2:
        frame = pandas.DataFrame(a)
        missing = frame.astype("Float64")
        missing.iloc[row_of(a), 0] = pandas.NA
        return [
            Mutant("DataFrame", frame, (a,)),
            Mutant("nullable DataFrame", frame.astype("Float64"), (a,)),
            Mutant("DataFrame, missing", missing),
        ]
    series = pandas.Series(a)
    nullable = series.astype("Int64" if a.dtype.kind in "iu" else "Float64")
    missing = nullable.copy()
    missing[row_of(a)] = pandas.NA
    return [
        Mutant("Series", series, (a,)),
        Mutant("nullable Series", nullable, (a,)),
        Mutant("Series, missing", missing),
        Mutant("categorical Series", series.astype("category"), (a,)),
        Mutant("one-column DataFrame", series.to_frame(), (a,)),
    ]


def _tensors(a: np.ndarray) -> list[Mutant]:
    """Where torch is installed, which nothing here needs."""
    if importlib.util.find_spec("torch") is None or a.dtype.kind not in "if":
        return []
    import torch

    found = [Mutant("tensor", torch.tensor(a), (a,))]
    if a.dtype.kind == "f":
        found.append(Mutant("tensor with gradient", torch.tensor(a, requires_grad=True)))
    return found


def _other_types(argument: Argument, a: np.ndarray) -> list[Mutant]:
    """Numbers of other types, the same or not."""
    found = []
    if a.dtype.kind in "iu":
        wide = {"2^32": 2**32, "2^32+1": 2**32 + 1, "2^40": 2**40, "-2^32": -(2**32)}
        wide |= {"nan as int64": np.iinfo(np.int64).min}
        if argument.kind != "integers" or not jax.config.jax_enable_x64:
            if argument.kind == "counts" and jax.config.jax_enable_x64:  # which are counts then
                wide = {k: v for k, v in wide.items() if v < 0}
            wide = {k: with_number(a.astype(np.int64), v) for k, v in wide.items()}
            found += [Mutant(f"int64 {k}", v) for k, v in wide.items()]
            found.append(Mutant("uint64 2^63", with_number(a.astype(np.uint64), 2**63)))
        if a.min() >= 0 and a.max() < 127:
            kinds = (np.int8, np.uint8, np.uint16, np.int64, np.uint32, np.uint64, np.float16)
            kinds += (np.float32, np.float64, jnp.bfloat16)
            found += [Mutant(np.dtype(t).name, a.astype(t), (a,)) for t in kinds]
        floats = {v: with_number(a.astype(np.float64), v) for v in (0.5, np.nan, np.inf)}
        found += [Mutant(f"float {k}", v) for k, v in floats.items()]
        # Truth values are labels 0 and 1.
        found.append(Mutant("bool", a > 0, ((a > 0).astype(np.int32),)))
    else:
        found += [
            Mutant("float64", a.astype(np.float64), (a,)),
            *(
                Mutant(np.dtype(t).name, a.astype(t), _of_few_digits(argument, a.astype(t)))
                for t in (np.float16, jnp.bfloat16)
            ),
            Mutant("bool", np.ones(a.shape, bool), (np.ones_like(a),)),
        ]
        if not jax.config.jax_enable_x64 and argument.kind in ("real", "positive"):
            found.append(Mutant("1e300", with_number(a.astype(np.float64), 1e300)))
    return found


def _of_few_digits(argument: Argument, rounded: np.ndarray) -> tuple[np.ndarray, ...]:
    """What half precision stands for: the rounded numbers, and rows that sum to one again."""
    wide = rounded.astype(np.float32)
    if argument.kind == "simplex":
        return (wide / wide.sum(-1, keepdims=True),)
    return wide, wide.astype(np.float64)


def _with_mask(entries: list, row: int) -> list:
    """Lists of lists with a masked number in one row."""
    changed = list(entries)
    is_list = isinstance(changed[row], list)
    changed[row] = _with_mask(changed[row], 0) if is_list else np.ma.masked
    return changed


def _shapes(a: np.ndarray) -> list[Mutant]:
    """Other shapes, and masks."""
    masked = np.ma.masked_array(a, np.arange(a.size).reshape(a.shape) == row_of(a))
    found = [
        Mutant("empty", a[:0]),
        Mutant("one row less", a[:-1]),
        Mutant("one row more", np.concatenate([a, a[:1]])),
        Mutant("one row", a[:1], (np.repeat(a[:1], len(a), 0),)),
        Mutant("leading axis", a[None]),
        Mutant("ragged", [a.tolist()[0], [a.tolist()[1]], *a.tolist()[2:]]),
        Mutant("masked", masked),
        Mutant("list of masked rows", list(masked)),
        Mutant("lists with a mask", _with_mask(a.tolist(), row_of(a))),
        Mutant("list of rows, no mask", [np.ma.masked_array(row) for row in a], (a,)),
        Mutant("all masked", np.ma.masked_array(a, np.ones(a.shape, bool))),
        Mutant("complex", a + 0.5j),
        Mutant("dates", np.zeros(a.shape, "M8[D]")),
        Mutant("durations", np.zeros(a.shape, "m8[h]")),
        Mutant("words", np.full(a.shape, "a")),
        Mutant("Nones", np.full(a.shape, None)),
        Mutant("keys", jax.random.split(jax.random.key(0), a.shape)),
        Mutant("scalar", a.flat[0], (np.full_like(a, a.flat[0]),)),
    ]
    if a.ndim == 1:
        found.append(Mutant("matrix", np.repeat(a[:, None], 2, 1)))
    else:
        found += [
            Mutant("first column", a[:, 0]),
            Mutant("no columns", a[:, :0]),
            Mutant("transposed", np.moveaxis(a, 0, -1)),
        ]
    return found


def of_array(argument: Argument, a: np.ndarray) -> list[Mutant]:
    values = [Mutant(w.name, w.value) for w in wrong_values(argument, a)]
    plain = [Mutant(name, value) for name, value in objects().items()]
    others = _containers(a) + _data_frames(a) + _tensors(a) + _other_types(argument, a) + _shapes(a)
    return values + plain + others


def of_number(argument: Argument, value: float) -> list[Mutant]:
    found = [Mutant(w.name, w.value) for w in wrong_values(argument, value)]
    found += [Mutant(k, v) for k, v in objects().items()]
    vector = np.array([value])
    same = {
        "float64": np.float64(value),
        "array": np.array(value),
        "jax": jnp.asarray(value),
        "Decimal": decimal.Decimal(str(value)),
        "Fraction": fractions.Fraction(value),
        "number as string": str(value),
        "string array": np.array(str(value)),
        "vector": vector,
        "list": [value],
        "array-like": ArrayLike(value),
        "longdouble": np.longdouble(value),
        "complex, real": complex(value),
    }
    found += [Mutant(k, v, (value, vector)) for k, v in same.items()]
    wrong = {
        "True": True,
        "np.True_": np.True_,
        "two": [value, value],
        "complex": complex(value, 1),
        "matrix": np.full((2, 2), value),
        "empty": np.zeros(0),
        "masked": np.ma.masked,
        "masked array": np.ma.masked_array(value, True),
        "date": np.datetime64("2020-01-01"),
        "duration": np.timedelta64(1, "h"),
        "10^400": 10**400,
    }
    if argument.limit == "vector":  # one number or several
        wrong.pop("two")
    return found + [Mutant(k, v) for k, v in wrong.items()]
