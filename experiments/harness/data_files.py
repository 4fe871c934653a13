"""Reading what a user hands over by --data, and writing files.

Everything that is wrong with a file raises a `DataError`, a line that names the file, the row
where there is one, what was expected and what came.
"""

import csv
import hashlib
import io
import os
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DOWNLOAD = "python -m paper_repro.data DIR"  # the program that gets the public data


class DataError(ValueError):
    """A file of the user's that is missing, cannot be read, or holds what it should not."""


def digest(*arrays: Any) -> str:
    """Identifies data by types, shapes and values: a parameter of each cell that depends on it.

    Args:
        arrays: NumPy or JAX arrays; None counts as an array that is not there.
    """
    found = hashlib.sha256()
    for array in arrays:
        if array is None:
            found.update(b"None")
            continue
        values = np.ascontiguousarray(array)
        found.update(f"{values.dtype.str}{values.shape}".encode())
        found.update(values.tobytes())
    return found.hexdigest()


def existing_file(data: Path, *parts: str) -> Path:
    """Path of a file below --data.

    Raises:
        DataError: if there is no such file.
    """
    path = data.joinpath(*parts)
    if not path.is_file():
        found = "a folder of this name" if path.is_dir() else "none"
        expected = f"--data: expected a folder with {'/'.join(parts)}, got {found} in {data}"
        raise DataError(f"{expected}; `{DOWNLOAD}` gets it")
    return path


def refuse_where(
    option: str, place: Any, wrong: np.ndarray, expected: str, array: np.ndarray
) -> None:
    """Raises a DataError that names the first row where something is wrong.

    Args:
        option: "--data".
        place: the file; lines of text are counted from one, rows of arrays from zero.
        wrong: where something is wrong, of the shape of the array.
        expected: what was expected.
        array: what came, [n, ...].
    """
    if np.any(wrong):
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        is_text = isinstance(place, Path) and place.suffix == ".csv"
        row = f"row {index[0] + 1}" if is_text else f"row {index[0]} (the first is 0)"
        value = array[index].item()
        raise DataError(f"{option}: expected {expected}, got {value} in {row} of {place}")


def read_lines(path: Path) -> list[str]:
    """Lines of a text file, without empty ones at its end; there is at least one.

    Raises:
        DataError: if it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--data: expected a text file, got {path} ({error})") from None
    if not text:
        raise DataError(f"--data: expected rows in {path}, got an empty file")
    return text.split("\n")


def number_of(path: Path, row: int, text: str, missing: Collection[str] = ()) -> float:
    """A finite number, or NaN where it is missing.

    Args:
        path: the file.
        row: number of the line, from 1.
        text: what is there.
        missing: what stands for a number that is missing.

    Raises:
        DataError: if it is something else.
    """
    if text.strip() in missing:
        return np.nan
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or "_" in text:  # float takes 1_000
        found = f"got {text.strip()!r} in row {row} of {path}"
        raise DataError(f"--data: expected a finite number, {found}")
    return value


def read_numbers(path: Path) -> np.ndarray:
    """Numbers of a CSV file without a header, float64 [rows, columns].

    Raises:
        DataError: if it is empty, rows differ in length, or hold something else.
    """
    rows: list[list[float]] = []
    for i, line in enumerate(read_lines(path), start=1):
        rows.append([number_of(path, i, text) for text in line.split(",")])
        if len(rows[-1]) != len(rows[0]):
            raise DataError(
                f"--data: expected {len(rows[0])} numbers, got {len(rows[-1])} in row {i} of {path}"
            )
    return np.array(rows)


def read_table(path: Path, columns: Mapping[str, type]) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, at least one.

    Args:
        path: the file.
        columns: the columns that are needed, by name: `str`, `float`, or `int` from zero on.

    Raises:
        DataError: if it is empty, a column is missing, or a row is not as it should be.
    """
    header, *lines = csv.reader(read_lines(path))
    missing = [name for name in columns if name not in header]
    if missing or not lines:
        what = f"columns {', '.join(missing)}" if missing else "rows below the header"
        raise DataError(f"--data: expected {what} in {path}, got {', '.join(header)}")
    rows = []
    for i, line in enumerate(lines, start=2):
        if len(line) != len(header):
            found = f"{len(line)} in row {i} of {path}"
            raise DataError(f"--data: expected {len(header)} values, got {found}")
        rows.append(dict(zip(header, line, strict=True)))
        for name, kind in columns.items():
            text = rows[-1][name]
            if kind is not str:
                number_of(path, i, text)
            if kind is int and not text.isdecimal():
                expected = f"--data: expected a whole number for {name}"
                raise DataError(f"{expected}, got {text!r} in row {i} of {path}")
    return rows


def read_array(path: Path) -> np.ndarray:
    """The array of numbers in a file of `numpy.save`, with at least one row.

    Raises:
        DataError: if it is something else.
    """
    try:
        array = np.load(io.BytesIO(path.read_bytes()))
    except Exception as error:  # damaged files raise all kinds of errors
        raise DataError(f"--data: expected a file of numpy.save, got {path} ({error})") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or not array.size:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "several"
        raise DataError(f"--data: expected an array of numbers in {path}, got {found}")
    return array


def write(path: Path, content: str | bytes) -> None:
    """Writes a file atomically, also if other processes write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
