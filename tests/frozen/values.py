"""Frozen calls to numbers, what differs, and the file."""

import functools
import itertools
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from tests.frozen.calls import calls
from tests.registry.outcomes import evaluate

FILE = pathlib.Path(__file__).parent / "numbers.json"
PRECISIONS = {"float32": np.float32, "float64": np.float64}
# Relative to the largest number beside it, absolute, and digits that are kept.
_TOLERANCES = {"float32": (1e-4, 1e-6, 6), "float64": (1e-9, 1e-13, 12)}
_EVALUATED = itertools.count(1)
_FEW = 6  # arrays with more numbers are reduced


def names() -> list[str]:
    """Names of all frozen calls, each with a precision."""
    return [f"{name} {precision}" for name in calls() for precision in PRECISIONS]


def numbers(name: str) -> dict[str, Any]:
    """The numbers of a call, by their place in its result; of large arrays only a few."""
    if next(_EVALUATED) % 50 == 0:
        jax.clear_caches()  # or programs fill the memory
    name, precision = name.rsplit(" ", 1)
    call, dtype = calls()[name], PRECISIONS[precision]
    with jax.enable_x64(dtype == np.float64):
        result = evaluate(call, call.values(dtype))
        leaves = jax.tree_util.tree_leaves_with_path(result)
        place = functools.partial(jax.tree_util.keystr, simple=True, separator=".")
        return {place(path): _few(leaf, precision) for path, leaf in leaves}


def _few(leaf: Any, precision: str) -> Any:
    """A number or a short list; for large arrays size, infinite ones, and three sums."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        return str(leaf)
    if array.dtype.kind != "f":
        array = array.astype(int)
    if array.size > _FEW:
        finite = array[np.isfinite(array)].astype(float)
        sums = abs(finite).sum(), finite.sum(), finite @ np.cos(np.arange(finite.size))
        return [array.size, array.size - finite.size, *(_rounded(x, precision) for x in sums)]
    found = [int(x) if array.dtype.kind == "i" else _rounded(x, precision) for x in array.ravel()]
    return found if array.ndim else found[0]


def _rounded(x: float, precision: str) -> float:
    return float(f"{x:.{_TOLERANCES[precision][2]}g}")


def differences(name: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What is not the same up to rounding: where, both numbers, and their relative difference."""
    singles = "float32", "[weights] float64", "lce[neighbourhood] float64"  # of single data
    is_single = name.endswith(singles)
    relative, absolute, _ = _TOLERANCES["float32" if is_single else "float64"]
    for place in before | now:
        old, new = (x.get(place, "missing") for x in (before, now))
        olds, news = (x if isinstance(x, list) else [x] for x in (old, new))
        if len(olds) != len(news):
            yield f"{place}: {old} -> {new}"
            continue
        floats = [abs(x) for x in olds if isinstance(x, float) and math.isfinite(x)]
        scale = max(floats, default=0.0)
        for x, y in zip(olds, news, strict=True):
            if not _is_close(x, y, relative * scale + absolute):
                change = f" ({abs(y - x) / (scale or 1):.1e})" if _are_floats(x, y) else ""
                yield f"{place}: {x} -> {y}{change}"


def _are_floats(*values: Any) -> bool:
    return all(isinstance(x, float) for x in values)


def _is_close(x: Any, y: Any, tolerance: float) -> bool:
    if not _are_floats(x, y) or math.isinf(x):
        return x == y
    return abs(x - y) <= tolerance or (math.isnan(x) and math.isnan(y))


def read() -> dict[str, Any]:
    """The frozen numbers of calls."""
    return json.loads(FILE.read_text())["calls"]


def write(frozen: dict[str, Any]) -> None:
    """One line for each call, in the order of their names."""
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(frozen.items()))
    FILE.write_text('{\n"calls": {\n' + ",\n".join(lines) + "\n}\n}\n")
