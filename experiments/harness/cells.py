"""Resumable cells of experiments, and their random keys.

A cell is the smallest piece of an experiment that is computed, stored and resumed on its own. Its
random key is derived from its name, so that every order and every subset of the cells gives the
same numbers. Its file records its name, the parameters it was computed with, among them a digest of
the data that it depends on, the fingerprint of the code, and a digest of the result. It is computed
again where one of these differs, or where the file is damaged.
"""

import dataclasses
import functools
import hashlib
import io
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from tqdm import tqdm

from experiments.harness import data_files
from experiments.harness.data_files import write
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
    except Exception:  # readers of damaged files raise all kinds of errors
        return None


class _Stored(NamedTuple):
    """What is in the file of a cell; older files have neither name nor digest."""

    fingerprint: str
    parameters: Any
    result: Any
    name: str | None = None
    digest: str | None = None


_OLD_FIELDS = _Stored._fields[:3]


def _read(
    store: Store, path: Path, read: Callable[[Path], _Stored], name: str, parameters: Any
) -> dict[str, Any] | None:
    """Result in the file of a cell; None if there is no complete result of what is wanted.

    Args:
        store: says of which code the result has to be.
        path: the file.
        read: reads the file.
        name: name of the wanted cell.
        parameters: those of the wanted result.
    """
    if not path.exists():
        return None
    try:
        found = read(path)
    except Exception as error:  # readers of damaged files raise all kinds of errors
        reason = str(error).partition("\n")[0] or type(error).__name__
        log(f"{path} is damaged ({reason}) and computed again.")
        return None
    is_known = store.trust or found.fingerprint == store.fingerprint
    if not is_known or found.parameters != parameters:
        return None
    if found.name == name or (found.name is None and store.trust):
        return found.result
    # A copy of another cell, whose parameters may be the same; or the file of an older version.
    holds = "a cell without a name" if found.name is None else f"the cell {found.name}"
    log(f"{path} holds {holds}, and is computed again.")
    return None


def cell(
    store: Store, name: str, parameters: dict[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Result of a cell: read where the same code computed it with the same parameters.

    A file that cannot be read, or that is not the one of this cell, is computed again, and a line
    says so.

    Args:
        store: the store of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns the result, a dictionary that JSON can hold.
    """
    path = store.folder / "cells" / f"{name}.json"
    parameters = json.loads(json.dumps(parameters))
    result = _read(store, path, _read_json, name, parameters)
    if result is None:
        result = json.loads(json.dumps(compute(), allow_nan=False))
        digest = _digest_of_json(result)
        stored = _Stored(store.fingerprint, parameters, result, name, digest)
        write(path, json.dumps(stored._asdict()))
    return result


_START = b'{"fingerprint": "'  # of the files of `cell`


def _digest_of_json(result: Any) -> str:
    return hashlib.sha256(json.dumps(result).encode()).hexdigest()


def _read_json(path: Path) -> _Stored:
    stored = json.loads(path.read_text(encoding="utf-8"))
    is_cell = isinstance(stored, dict) and tuple(stored) in (_Stored._fields, _OLD_FIELDS)
    if not (is_cell and isinstance(stored["result"], dict)):
        raise ValueError("expected a fingerprint, parameters, a result, a name and a digest")
    return _checked(_Stored(**stored), _digest_of_json(stored["result"]))


def _checked(stored: _Stored, digest: str) -> _Stored:
    """What was stored, if its result has the digest that it had when it was stored."""
    if stored.digest is not None and stored.digest != digest:
        raise ValueError("its result was changed after it had been stored")
    return stored


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
        compute: returns arrays by name; no name is "fingerprint", "parameters", "name" or
            "digest".
    """
    path = store.folder / "cells" / f"{name}.npz"
    parameters = json.loads(json.dumps(parameters))
    result = _read(store, path, _read_npz, name, parameters)
    if result is None:
        result = compute()
        buffer = io.BytesIO()
        about = {
            "fingerprint": store.fingerprint,
            "parameters": json.dumps(parameters),
            "name": name,
            "digest": _digest_of_arrays(result),
        }
        np.savez(buffer, **about, **result)
        write(path, buffer.getvalue())
    return result


def _digest_of_arrays(result: dict[str, np.ndarray]) -> str:
    names = sorted(result)
    return data_files.digest(np.array(names), *(result[name] for name in names))


def _read_npz(path: Path) -> _Stored:
    stored = np.load(io.BytesIO(path.read_bytes()))
    is_cell = isinstance(stored, np.lib.npyio.NpzFile)
    if not (is_cell and {"fingerprint", "parameters"} <= stored.keys()):
        raise ValueError("expected a fingerprint, parameters and arrays")
    result = dict(stored)
    about = {key: str(result.pop(key)) for key in _Stored._fields if key in result}
    parameters = json.loads(about.pop("parameters"))
    if {"name", "digest"} & about.keys() not in ({"name", "digest"}, set()):
        raise ValueError("expected a name and a digest")
    stored = _Stored(parameters=parameters, result=result, **about)
    return _checked(stored, _digest_of_arrays(result))


class Job(NamedTuple):
    """The arguments of `cell` or `arrays` after the store."""

    name: str
    parameters: dict[str, Any]
    compute: Callable[[], dict[str, Any]]


def finished(
    store: Store,
    label: str,
    jobs: Iterable[Job],
    kind: Callable[..., dict[str, Any]] = cell,
    total: int | None = None,
) -> list[dict[str, Any]]:
    """Results of cells one after the other, with a progress bar.

    Args:
        store: the store of the experiment.
        label: what the bar is called.
        jobs: the cells.
        kind: `cell` or `arrays`.
        total: how many there are, of jobs that are made one by one.
    """
    results = []
    jobs = list(jobs) if total is None else jobs
    for job in (bar := tqdm(jobs, unit="cell", total=total)):
        bar.set_description(f"{label}: {job.name}")
        results.append(kind(store, *job))
    return results


class Case(NamedTuple):
    """Simulated data sets of one kind.

    Attributes:
        name: folder of their cells.
        number: of data sets.
        num_samples: of each of them.
        parameters: those of their cells, beside the last data set.
    """

    name: str
    number: int
    num_samples: int
    parameters: dict[str, Any]


_Kind = TypeVar("_Kind", bound=Hashable)


def simulated(
    store: Store,
    label: str,
    cases: Mapping[_Kind, Case],
    compute: Callable[[_Kind, tuple[int, int]], dict[str, Any]],
) -> dict[_Kind, list[dict[str, Any]]]:
    """Results of the spans of data sets of each case, a cell each.

    Args:
        store: the store of the experiment.
        label: what the progress bar is called.
        cases: by what they are called in `compute`.
        compute: result of a case and a span, first and last (excluded) data set.
    """
    parts = {key: spans(case.number, case.num_samples) for key, case in cases.items()}
    results = iter(
        finished(
            store,
            label,
            (
                Job(
                    f"{case.name}/{span[0]}",
                    case.parameters | {"last": span[1]},
                    functools.partial(compute, key, span),
                )
                for key, case in cases.items()
                for span in parts[key]
            ),
        )
    )
    return {key: [next(results) for _ in spans_of] for key, spans_of in parts.items()}
