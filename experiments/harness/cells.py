"""Resumable cells of experiments, and their random keys.

A cell is the smallest piece of an experiment that is computed, stored and resumed on its own. Its
random key is derived from its name, so that every order and every subset of the cells gives the
same numbers. Its file records the parameters it was computed with, among them a digest of the data
that it depends on, and is computed again where they differ, or where it is damaged.
"""

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.harness.files import write
from experiments.harness.messages import log

BLOCK = 500  # data sets whose keys come from one name


def key_of(name: str) -> jax.Array:
    """Random key that belongs to a name."""
    digest = hashlib.sha256(name.encode()).digest()
    return jax.random.key(int.from_bytes(digest[:4], "big"))


def spans(number: int, num_samples: int) -> list[tuple[int, int]]:
    """First and last (excluded) data set of each cell: some minutes' work of most tests at most.

    Args:
        number: number of data sets.
        num_samples: number of samples of each.
    """
    size = BLOCK if num_samples <= 256 else BLOCK // 10
    return [(first, min(first + size, number)) for first in range(0, number, size)]


def keys_of(name: str, part: str, span: tuple[int, int]) -> jax.Array:
    """Keys of the data sets of a cell, which do not depend on how they are divided into cells.

    Args:
        name: name of the kind of data set.
        part: what the keys are for.
        span: first and last (excluded) data set, of one block.
    """
    start = span[0] // BLOCK * BLOCK
    keys = jax.random.split(key_of(f"{name}/{start}/{part}"), BLOCK)
    return keys[span[0] - start : span[1] - start]


def _stored(path: Path, read: Callable[[Path], tuple[Any, Any]], parameters: Any) -> Any:
    """Result in the file of a cell; None where there is none, of these parameters, or a whole one.

    Args:
        path: the file.
        read: reads parameters and result of the file.
        parameters: those of the wanted result.
    """
    if not path.exists():
        return None
    try:
        found, result = read(path)
    except Exception as error:  # what readers of damaged files raise is no closed list
        reason = str(error).partition("\n")[0] or type(error).__name__
        log(f"{path} is damaged ({reason}) and computed again.")
        return None
    return result if found == parameters else None


def cell(
    folder: Path, name: str, parameters: dict[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Result of a cell: read where it was computed with the same parameters, else computed.

    A file that cannot be read is computed again, and a line says so.

    Args:
        folder: folder of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns the result, a dictionary that JSON can hold.
    """
    path = folder / "cells" / f"{name}.json"
    parameters = json.loads(json.dumps(parameters))
    result = _stored(path, _read_json, parameters)
    if result is None:
        result = json.loads(json.dumps(compute(), allow_nan=False))
        write(path, json.dumps({"parameters": parameters, "result": result}))
    return result


def _read_json(path: Path) -> tuple[Any, dict[str, Any]]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    is_cell = isinstance(stored, dict) and stored.keys() == {"parameters", "result"}
    if not (is_cell and isinstance(stored["result"], dict)):
        raise ValueError("expected parameters and a result")
    return stored["parameters"], stored["result"]


def arrays(
    folder: Path,
    name: str,
    parameters: dict[str, Any],
    compute: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Result of a cell that consists of arrays: read where it was computed, else computed.

    A file that cannot be read is computed again, and a line says so.

    Args:
        folder: folder of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns arrays by name; no name is "parameters".
    """
    path = folder / "cells" / f"{name}.npz"
    parameters = json.loads(json.dumps(parameters))
    result = _stored(path, _read_npz, parameters)
    if result is None:
        result = compute()
        buffer = io.BytesIO()
        np.savez(buffer, parameters=json.dumps(parameters), **result)
        write(path, buffer.getvalue())
    return result


def _read_npz(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    stored = np.load(io.BytesIO(path.read_bytes()))
    if not isinstance(stored, np.lib.npyio.NpzFile) or "parameters" not in stored:
        raise ValueError("expected parameters and arrays")
    result = dict(stored)
    return json.loads(str(result.pop("parameters"))), result
