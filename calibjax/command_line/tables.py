"""Columns of a file: how files are read, and messages that say where something is wrong."""

import contextlib
import csv
import dataclasses
import gzip
import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from calibjax._core import environment

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
        held = [f"{x or 'without a name'} (as {shown(y[0])})" for x, y in self.columns.items()]
        return f"columns {listed(held, 6)}"

    def refuse(self, row: int, expected: str, where: str, got: str) -> None:
        """Raises an InputError that names a row."""
        raise InputError(f"{self.place(row)}: expected {expected} in {where}, got {got}")

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
        texts = [str(x).strip() for x in values]  # of no value: None, nan
        return np.array([x.lower() in MISSING and x not in known for x in texts], bool)

    def numbers(self, name: str, largest: float = np.finfo(float).max) -> np.ndarray:
        """A column of finite numbers, float64 [n], or of others up to the largest size.

        Raises:
            InputError: if it holds something else.
        """
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


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a message, the first few and the last of many."""
    shortened = [*names[: most - 1], "…", names[-1]] if len(names) > most else names
    return ", ".join(
        (x or "(without a name)") if x.isprintable() and len(x) <= _SHOWN else shown(x)
        for x in shortened
    )


TEXTS = {".csv": ",", ".tsv": "\t", ".txt": ","}
_OTHERS = (",", ";", "\t")
Header = Literal["auto", "yes", "no"]
ENDINGS = (*TEXTS, ".npy", ".npz", ".parquet")


def read(path: Path, *, separator: str | None = None, header: Header = "auto") -> Table:
    """Reads a table; its ending says which format it has.

    Args:
        path: the file.
        separator: between the values of a row of a text; None for a comma, of .tsv a tab.
        header: whether the first row of a text names the columns; "auto" if not all of it are
            numbers.

    Raises:
        InputError: if the file cannot be read, or has no rows.
        ImportError: if a package for this format is not installed.
    """
    is_packed = path.suffix.lower() == ".gz"
    kind = Path(path.stem if is_packed else path).suffix.lower()
    if kind not in ENDINGS:
        raise InputError(f"{path}: expected a file {', '.join(ENDINGS)} (or these with .gz)")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if is_packed:
        with _refusing_damage(path, "by gzip"):
            content = gzip.decompress(content)
    if kind in TEXTS:
        return _read_text(path, content, separator or TEXTS[kind], header)
    if kind == ".parquet":
        return _read_parquet(path, content)
    with _refusing_damage(path, "by numpy.load"):
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        loaded = loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    of_one = isinstance(loaded, np.ndarray)
    return _table_of_array(path, loaded) if of_one else _table_of_arrays(path, loaded)


@contextlib.contextmanager
def _refusing_damage(path: Path, how: str) -> Iterator[None]:
    """Names the file in whatever error a damaged file raises."""
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path}: cannot be read {how} ({shown(reason)})") from None


def _table_of_array(path: Path, array: np.ndarray) -> Table:
    if array.dtype.names:
        return _table_of_arrays(path, {name: array[name] for name in array.dtype.names})
    if array.ndim not in (1, 2):
        raise InputError(f"{path}: expected an array [n] or [n, m], got shape {array.shape}")
    columns = array.reshape(len(array), -1).T if array.size else ()
    pairs = [(str(i + 1), column) for i, column in enumerate(columns)]
    return _checked(path, pairs, has_names=False)


def _table_of_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Table:
    columns: list[tuple[str, np.ndarray]] = []
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
            got = f"shape {np.shape(array)} called {shown(name)}"
            raise InputError(f"{path}: expected arrays [n] or [n, m], got {got}")
        if array.ndim == 1:
            columns.append((name, array))
        else:  # NAME_0, …, NAME_m−1
            columns += [(f"{name}_{i}", column) for i, column in enumerate(array.T)]
    return _checked(path, columns, has_names=True)


def _checked(path: Path, pairs: Sequence[tuple[str, Any]], *, has_names: bool) -> Table:
    _refuse_repeated(str(path), [name for name, _ in pairs])
    columns = dict(pairs)
    lengths = {name: len(values) for name, values in columns.items()}
    if not lengths or not any(lengths.values()):
        raise InputError(f"{path}: expected rows, got none")
    if len(set(lengths.values())) > 1:
        got = listed([f"{size} of {name}" for name, size in lengths.items()])
        raise InputError(f"{path}: expected as many rows of each array, got {got}")
    objects = {name: _with_objects(values) for name, values in columns.items()}
    rows = np.arange(next(iter(lengths.values())))
    return Table(path, objects, rows, is_text=False, has_names=has_names)


def _with_objects(values: np.ndarray) -> np.ndarray:
    """Texts as objects; numbers as they are."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace").astype(object)
    return values.astype(object) if values.dtype.kind in "UT" else values


def _read_parquet(path: Path, content: bytes) -> Table:
    try:
        parquet = environment.imported("pyarrow.parquet", "Parquet is read with pyarrow", "report")
    except ImportError as error:
        raise InputError(f"{path}: {error}") from None
    with _refusing_damage(path, "as Parquet"):
        table = parquet.read_table(io.BytesIO(content))
        columns = [
            (table.column_names[i], table.column(i).to_numpy()) for i in range(table.num_columns)
        ]
    return _checked(path, columns, has_names=True)


def _refuse_repeated(place: str, names: Sequence[str]) -> None:
    (name, count), *_ = Counter(names).most_common(1) or [("", 0)]
    if count > 1:
        got = f"column {shown(name)} {count} times"
        raise InputError(f"{place}: expected columns of different names, got {got}")


def _read_text(path: Path, content: bytes, separator: str, header: Header) -> Table:
    """A table from a text."""
    with _refusing_damage(path, "as UTF-8"):
        text = content.decode("utf-8-sig")
    lines, numbers = _split(path, text, separator)
    first = [x.strip() for x in lines[0]]
    are_numbers = all(x.lower() == "nan" or not np.isnan(_number(x)) for x in first)
    has_names = header == "yes" or (header == "auto" and not are_numbers)
    if has_names:
        _check_names(path, int(numbers[0]), first, separator)
        lines, numbers = lines[1:], numbers[1:]
    names = first if has_names else [str(i + 1) for i in range(len(first))]
    if not lines:
        raise InputError(f"{path}: expected rows below the header, got none")
    for line, number in zip(lines, numbers, strict=True):
        if len(line) != len(names):
            like = f"{len(names)} values as in " + ("the header" if has_names else "the first")
            raise InputError(f"{path}, row {number}: expected {like}, got {len(line)}")
    values = (np.array(column, object) for column in zip(*lines, strict=True))
    columns = dict(zip(names, values, strict=True))
    return Table(path, columns, np.array(numbers), is_text=True, has_names=has_names)


def _split(path: Path, text: str, separator: str) -> tuple[list[list[str]], list[int]]:
    """Rows of a text, without empty ones at its end, and the numbers of their first lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines: list[list[str]] = []
    numbers: list[int] = []
    start = 1
    try:
        for line in reader:
            lines.append(line)
            numbers.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}, row {start}: cannot be read as CSV ({error})") from None
    while lines and not any(x.strip() for x in lines[-1]):
        lines.pop()
        numbers.pop()
    if not lines:
        raise InputError(f"{path}: expected rows, got empty lines only")
    return lines, numbers


def _check_names(path: Path, row: int, names: list[str], separator: str) -> None:
    _refuse_repeated(f"{path}, row {row}", names)
    others = [x for x in _OTHERS if x != separator and len(names) == 1 and x in names[0]]
    if others:
        option = "tab" if others[0] == "\t" else others[0]
        got = f"{shown(names[0])}; try --separator {option!r}"
        expected = f"columns separated by {separator!r}"
        raise InputError(f"{path}, row {row}: expected {expected}, got {got}")
