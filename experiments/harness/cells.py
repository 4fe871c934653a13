"""Resumable cells of experiments, and their random keys.

A cell is the smallest piece of an experiment that is computed, stored and resumed on its own. Its
random key is derived from its name, so that every order and every subset of the cells gives the
same numbers. Its file records the parameters it was computed with, among them a digest of the data
that it depends on, and the fingerprint of the code, and is computed again where they differ, or
where it is damaged.
"""

import dataclasses
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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


@dataclasses.dataclass(frozen=True)
class Store:
    """Where the cells of an experiment are kept.

    Attributes:
        folder: folder of the experiment; cells are in its folder `cells`.
        fingerprint: digest of the code that computes them, see `source.fingerprint`; it is stored
            with each cell, and cells of other code are computed again.
        trust: whether cells of other code are kept.
    """

    folder: Path
    fingerprint: str
    trust: bool = False

    def stale(self) -> tuple[int, int]:
        """Number of stored cells of other code, and of all that can be read."""
        folder = self.folder / "cells"
        readers = {"*.json": _fingerprint_of_json, "*.npz": _fingerprint_of_npz}
        found = [read(path) for suffix, read in readers.items() for path in folder.rglob(suffix)]
        found = [fingerprint for fingerprint in found if fingerprint is not None]
        return sum(fingerprint != self.fingerprint for fingerprint in found), len(found)


def _fingerprint_of_json(path: Path) -> str | None:
    with path.open("rb") as file:  # which may be long: the fingerprint comes first
        start = file.read(1000)
    if not start.startswith(_START):
        return None
    return start[len(_START) :].partition(b'"')[0].decode("utf-8", "replace")


def _fingerprint_of_npz(path: Path) -> str | None:
    try:
        with np.load(path) as stored:
            return str(stored["fingerprint"])
    except Exception:  # what readers of damaged files raise is no closed list
        return None


class _Stored(NamedTuple):
    """What is in the file of a cell."""

    fingerprint: str
    parameters: Any
    result: Any


def _read(
    store: Store, path: Path, read: Callable[[Path], _Stored], parameters: Any
) -> dict[str, Any] | None:
    """Result in the file of a cell; None if there is no complete result of what is wanted.

    Args:
        store: says of which code the result has to be.
        path: the file.
        read: reads the file.
        parameters: those of the wanted result.
    """
    if not path.exists():
        return None
    try:
        found = read(path)
    except Exception as error:  # what readers of damaged files raise is no closed list
        reason = str(error).partition("\n")[0] or type(error).__name__
        log(f"{path} is damaged ({reason}) and computed again.")
        return None
    is_known = store.trust or found.fingerprint == store.fingerprint
    return found.result if is_known and found.parameters == parameters else None


def cell(
    store: Store, name: str, parameters: dict[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Result of a cell: read where the same code computed it with the same parameters.

    A file that cannot be read is computed again, and a line says so.

    Args:
        store: the store of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns the result, a dictionary that JSON can hold.
    """
    path = store.folder / "cells" / f"{name}.json"
    parameters = json.loads(json.dumps(parameters))
    result = _read(store, path, _read_json, parameters)
    if result is None:
        result = json.loads(json.dumps(compute(), allow_nan=False))
        stored = _Stored(store.fingerprint, parameters, result)
        write(path, json.dumps(stored._asdict()))
    return result


_START = b'{"fingerprint": "'  # of the files of `cell`


def _read_json(path: Path) -> _Stored:
    stored = json.loads(path.read_text(encoding="utf-8"))
    is_cell = isinstance(stored, dict) and tuple(stored) == _Stored._fields
    if not (is_cell and isinstance(stored["result"], dict)):
        raise ValueError("expected a fingerprint, parameters and a result")
    return _Stored(**stored)


def arrays(
    store: Store,
    name: str,
    parameters: dict[str, Any],
    compute: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Result of a cell that consists of arrays: read, or computed, as `cell` does.

    Args:
        store: the store of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns arrays by name; no name is "fingerprint" or "parameters".
    """
    path = store.folder / "cells" / f"{name}.npz"
    parameters = json.loads(json.dumps(parameters))
    result = _read(store, path, _read_npz, parameters)
    if result is None:
        result = compute()
        buffer = io.BytesIO()
        about = {"fingerprint": store.fingerprint, "parameters": json.dumps(parameters)}
        np.savez(buffer, **about, **result)
        write(path, buffer.getvalue())
    return result


def _read_npz(path: Path) -> _Stored:
    stored = np.load(io.BytesIO(path.read_bytes()))
    is_cell = isinstance(stored, np.lib.npyio.NpzFile)
    if not (is_cell and {"fingerprint", "parameters"} <= stored.keys()):
        raise ValueError("expected a fingerprint, parameters and arrays")
    result = dict(stored)
    fingerprint, parameters = str(result.pop("fingerprint")), str(result.pop("parameters"))
    return _Stored(fingerprint, json.loads(parameters), result)
