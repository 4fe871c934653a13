"""Columns of a file, and messages that say where in it something is wrong."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # in lower case
_SHOWN = 60  # characters of a value


class InputError(ValueError):
    """What is wrong with a file or an option of the user, in one line."""

    def __init__(self, message: str) -> None:  # noqa: D107
        # Names of columns and labels may hold whatever a file holds.
        super().__init__("".join(x if x.isprintable() or x.isspace() else "?" for x in message))


def shown(value: object) -> str:
    """A value of a file in a message: printable, and of a length that can be read."""
    value = value.item() if isinstance(value, np.generic) else value
    text = repr(value) if isinstance(value, str) else str(value)
    text = "".join(x if x.isprintable() else "?" for x in text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of one length.

    Attributes:
        path: the file.
        columns: values by name, [n]: numbers, or objects, which are texts in CSV files.
        rows: number of each row in the file, [n].
        is_text: whether rows are lines of a text, counted from 1; otherwise rows of arrays, from 0.
        has_names: whether the file has names of columns; otherwise they are "1", "2", ….
    """

    path: Path
    columns: Mapping[str, np.ndarray]
    rows: np.ndarray
    is_text: bool
    has_names: bool

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, keep: np.ndarray) -> "Table":
        """Some of the rows; the others keep their numbers.

        Args:
            keep: which ones, truth values [n].
        """
        columns = {name: values[keep] for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=columns, rows=self.rows[keep])

    def place(self, row: int) -> str:
        """How messages call a row.

        Args:
            row: index in the columns.
        """
        note = "" if self.is_text else " (the first is 0)"
        return f"{self.path}, row {self.rows[row]}{note}"

    @property
    def in_words(self) -> str:
        """The columns and what they hold."""
        return f"columns {listed([self._held(name) for name in self.columns], 6)}"

    def _held(self, name: str) -> str:
        numbers = self.values([name])[:, 0]
        known = numbers[np.isfinite(numbers)]
        what = f"as {shown(self.columns[name][0])}"
        if len(known) > len(numbers) / 2:
            what = f"{known.min():.3g} to {known.max():.3g}"
        return f"{name or 'without a name'} ({what})"

    def refuse(self, row: int, expected: str, where: str, got: object) -> None:
        """Raises an InputError that names a row."""
        text = got if isinstance(got, str) else shown(got)
        raise InputError(f"{self.place(row)}: expected {expected} in {where}, got {text}")

    def refuse_where(self, bad: np.ndarray, expected: str, name: str) -> None:
        """Raises an InputError that names the first row in which a column is bad, if there is one.

        Args:
            bad: [n].
            expected: what was expected.
            name: name of the column.
        """
        if bad.any():
            row = int(bad.argmax())
            got = shown(self.columns[name][row])
            if self.is_missing(name)[row]:
                got += "; --skip-missing leaves out such rows"
            self.refuse(row, expected, f"column {name}", got)

    def values(self, names: Iterable[str]) -> np.ndarray:
        """Columns as numbers, float64 [n, m]; NaN for what is no number."""
        columns = [self.columns[name] for name in names]
        read = [x.astype(np.float64) if x.dtype.kind in "biuf" else _numbers(x) for x in columns]
        return np.stack(read, 1) if read else np.zeros((len(self), 0))

    def is_missing(self, name: str, known: Collection[str] = ()) -> np.ndarray:
        """Whether there is no value, [n]: NaN, or one of the texts that stand for it.

        Args:
            name: of the column.
            known: texts that are values, even if they stand for a missing one elsewhere.
        """
        values = self.columns[name]
        if values.dtype.kind == "f":
            return np.isnan(values)
        if values.dtype.kind != "O":
            return np.zeros(len(values), bool)
        missing = [x is None or x != x or _is_missing_text(x, known) for x in values]
        return np.array(missing, bool)

    def numbers(self, name: str, largest: float = np.finfo(float).max) -> np.ndarray:
        """A column of finite numbers, float64 [n], or of others up to the largest size.

        Raises:
            InputError: if it holds something else.
        """
        dtype = self.columns[name].dtype
        if dtype.kind not in "biufO":
            raise InputError(
                f"{self.path}: expected numbers in column {name}, got values of {dtype}"
            )
        numbers = self.values([name])[:, 0]
        self.refuse_where(~(np.abs(numbers) <= largest), "a finite number", name)
        return numbers

    def texts(self, name: str, known: Collection[str] = ()) -> list[str]:
        """A column as texts: those of the file as written, other whole numbers as integers.

        Args:
            name: of the column.
            known: texts that are values, see `is_missing`.

        Raises:
            InputError: if a value is missing.
        """
        self.refuse_where(self.is_missing(name, known), "a value", name)
        return [_text(x) for x in self.columns[name]]


def _is_missing_text(value: object, known: Collection[str]) -> bool:
    if not isinstance(value, str):
        return False
    text = value.strip()
    return text.lower() in MISSING and text not in known


def _numbers(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "O":  # complex numbers, dates
        return np.full(len(values), np.nan)
    return np.array([_number(x) for x in values], np.float64)


def _number(value: Any) -> float:
    """NaN for what is no number. `float` would take 1_000."""
    try:
        return np.nan if isinstance(value, str) and "_" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    value = value.item() if isinstance(value, np.generic) else value
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def as_integer(text: str) -> str:
    """A text that is a whole number, such as 01 or 1.0, as an integer; any other as it is."""
    number = _number(text)
    is_whole = number.is_integer() and abs(number) < 2**53
    return str(int(number)) if is_whole else text


def first_refused(check: Callable[[np.ndarray], object], values: np.ndarray) -> int | None:
    """The first row that a check of an array refuses, or None; by bisection.

    Args:
        check: raises a ValueError or TypeError where a row is wrong; it looks at each by itself.
        values: [n, ...].
    """

    def is_refused(stop: int) -> bool:
        try:
            check(values[:stop])
        except (TypeError, ValueError):
            return True
        return False

    low, high = 0, len(values)
    if not is_refused(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_refused(middle) else (middle, high)
    return low


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a message, the first few and the last of many."""
    shortened = [*names[: most - 1], "…", names[-1]] if len(names) > most else names
    return ", ".join(
        (x or "(without a name)") if x.isprintable() and len(x) <= _SHOWN else shown(x)
        for x in shortened
    )
