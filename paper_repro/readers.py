"""Reading what a user hands over by --data and --npz.

Everything that is wrong with a file raises a `DataError`, a line that names the file, the row
where there is one, what was expected and what came.
"""

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Of a float32 softmax that was written with all digits. Ours on real data: at most 1e-6.
SUM_TOLERANCE = 1e-4


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
        raise DataError(f"--data: expected a folder with {'/'.join(parts)}, got {found} in {data}")
    return path


def refuse_rows(path: Path, wrong: np.ndarray, expected: str, values: Sequence[Any]) -> None:
    """Raises a DataError that names the first row that is wrong.

    Args:
        path: the file.
        wrong: whether each row is, [n].
        expected: what was expected.
        values: what came, [n].
    """
    if np.any(wrong):
        row = int(np.argmax(wrong))
        value = values[row]
        value = value.item() if isinstance(value, np.generic) else value
        raise DataError(f"expected {expected}, got {value} in row {row + 1} of {path}")


def read_lines(path: Path) -> list[str]:
    """Lines of a text file, without empty ones at its end; there is at least one.

    Raises:
        DataError: if it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"expected a text file, got {path} ({error})") from None
    if not text:
        raise DataError(f"expected rows in {path}, got an empty file")
    return text.split("\n")


def number_of(path: Path, row: int, text: str) -> float:
    """A finite number.

    Args:
        path: the file.
        row: number of the line, from 1.
        text: what is there.

    Raises:
        DataError: if it is something else.
    """
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value) or "_" in text:  # float takes 1_000
        raise DataError(f"expected a finite number, got {text.strip()!r} in row {row} of {path}")
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
                f"expected {len(rows[0])} numbers, got {len(rows[-1])} in row {i} of {path}"
            )
    return np.array(rows)


def read_table(path: Path, columns: Mapping[str, type]) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, at least one.

    Args:
        path: the file.
        columns: names of the columns that are needed, and `float` where they hold numbers.

    Raises:
        DataError: if it is empty, a column is missing, or a row is not as it should be.
    """
    lines = csv.DictReader(io.StringIO("\n".join(read_lines(path)), newline=""))
    header, rows = lines.fieldnames or [], list(lines)
    missing = [name for name in columns if name not in header]
    if missing or not rows:
        what = f"columns {', '.join(missing)}" if missing else "rows below the header"
        raise DataError(f"expected {what} in {path}, got {', '.join(header)}")
    for i, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise DataError(
                f"expected {len(header)} values in row {i} of {path}, got another number"
            )
        for name, kind in columns.items():
            if kind is float:
                number_of(path, i, row[name])
    return rows


def read_array(path: Path) -> np.ndarray:
    """The array of numbers in a file of `numpy.save`, with at least one row.

    Raises:
        DataError: if it is something else.
    """
    try:
        array = np.load(io.BytesIO(path.read_bytes()))
    except Exception as error:  # what damaged files raise is no closed list
        raise DataError(f"expected a file of numpy.save, got {path} ({error})") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or not array.size:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "several"
        raise DataError(f"expected an array of numbers in {path}, got {found}")
    return array


def check_labels(path: Path, labels: np.ndarray, first: int, last: int) -> np.ndarray:
    """Labels as integers from 0.

    Args:
        path: the file that they are in.
        labels: labels, [n], of any type.
        first: the smallest label.
        last: the largest one.

    Raises:
        DataError: if one of them is no such label.
    """
    wrong = ~np.isin(labels, np.arange(first, last + 1))
    refuse_rows(path, wrong, f"a label {first}, ..., {last}", labels)
    return labels.astype(int) - first


def check_probs(path: Path, probs: np.ndarray, num_classes: int) -> None:
    """Raises a DataError where rows are not the probabilities of so many classes."""
    if probs.shape[1] != num_classes:
        raise DataError(f"expected {num_classes} columns in {path}, got {probs.shape[1]}")
    wrong = np.any((probs < 0) | (probs > 1), 1)
    refuse_rows(path, wrong, "probabilities in [0, 1]", probs.tolist())
    sums = probs.sum(1)
    wrong = np.abs(sums - 1) > SUM_TOLERANCE
    refuse_rows(path, wrong, "probabilities that sum to one", [f"the sum {x:.6g}" for x in sums])


def check_length(path: Path, labels: Sequence[Any], num: int, other: Path) -> None:
    """Raises a DataError where there is not one label for each prediction.

    Args:
        path: the file of the labels.
        labels: the labels.
        num: number of predictions.
        other: the file that they are in.
    """
    if len(labels) != num:
        raise DataError(
            f"--data: expected one label for each of the {num} predictions in {other.name}, "
            f"got {len(labels)} in {path}"
        )
