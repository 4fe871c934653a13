"""Reading tables from CSV, NPY, NPZ and Parquet files, also packed by gzip.

Whatever is wrong with a file raises an `InputError`, one line that names the file, the row where
there is one, what was expected and what came.
"""

import contextlib
import csv
import gzip
import io
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from calibjax._core import environment
from calibjax.command_line.tables import InputError, Table, listed, shown

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
        got = "".join(path.suffixes[-2:]) if is_packed else kind or "no ending"
        raise InputError(
            f"{path}: expected a file {', '.join(ENDINGS)} (or these with .gz), got {got}"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{path}: cannot be read ({reason})") from None
    content = _unpacked(path, content) if is_packed else content
    if not content:
        raise InputError(f"{path}: expected rows, got an empty file")
    if kind in TEXTS:
        return _read_text(path, content, separator or TEXTS[kind], header)
    if kind == ".npy":
        return _table_of_array(path, _loaded(path, content))
    if kind == ".npz":
        if not zipfile.is_zipfile(io.BytesIO(content)):  # NumPy would propose to load it unsafely
            raise InputError(f"{path}: expected a file of numpy.savez, got no zip archive")
        return _table_of_arrays(path, _loaded(path, content))
    return _read_parquet(path, content)


def _unpacked(path: Path, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be unpacked by gzip ({shown(reason)})") from None


def _loaded(path: Path, content: bytes) -> Any:
    with _refusing_damage(path, "by numpy.load"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers of old versions
        found = np.load(io.BytesIO(content), allow_pickle=False)
        return found if isinstance(found, np.ndarray) else dict(found)


@contextlib.contextmanager
def _refusing_damage(path: Path, how: str) -> Iterator[None]:
    """Names the file in whatever error a damaged file raises."""
    try:
        yield
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        if "pickle" in reason:  # NumPy proposes to load it unsafely
            reason = "it holds pickled objects, or no NumPy array"
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
            found = f"shape {array.shape}" if isinstance(array, np.ndarray) else "a file"
            raise InputError(
                f"{path}: expected arrays [n] or [n, m], got {found} called {shown(name)}"
            )
        if array.ndim == 1:
            columns.append((name, array))
        else:  # NAME_0, …, NAME_m−1
            columns += [(f"{name}_{i}", column) for i, column in enumerate(array.T)]
    return _checked(path, columns, has_names=True)


def _checked(path: Path, pairs: Sequence[tuple[str, Any]], *, has_names: bool) -> Table:
    _refuse_repeated(str(path), [name for name, _ in pairs], "twice")
    columns = dict(pairs)
    lengths = {name: len(values) for name, values in columns.items()}
    if not lengths or not any(lengths.values()):
        raise InputError(f"{path}: expected rows, got none")
    if len(set(lengths.values())) > 1:
        found = listed([f"{size} of {name}" for name, size in lengths.items()])
        raise InputError(f"{path}: expected as many rows of each array, got {found}")
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


def _refuse_repeated(place: str, names: Sequence[str], times: str = "{} times") -> None:
    repeated = [(name, count) for name, count in Counter(names).items() if count > 1]
    if repeated:
        (name, count), *_ = repeated
        found = f"column {shown(name)} {times.format(count)}"
        raise InputError(f"{place}: expected columns of different names, got {found}")


def _read_text(path: Path, content: bytes, separator: str, header: Header) -> Table:
    """A table from a text."""
    lines, numbers = _split(path, _decoded(path, content), separator)
    first = [x.strip() for x in lines[0]]
    has_names = header == "yes" or (header == "auto" and not all(map(_is_number, first)))
    if has_names:
        _check_names(path, int(numbers[0]), first, separator)
        lines, numbers = lines[1:], numbers[1:]
    names = first if has_names else [str(i + 1) for i in range(len(first))]
    if not lines:
        raise InputError(f"{path}: expected rows below the header, got none")
    for line, number in zip(lines, numbers, strict=True):
        if len(line) != len(names):
            like = "in the header" if has_names else f"in row {numbers[0]}"
            raise InputError(
                f"{path}, row {number}: expected {len(names)} values as {like}, got {len(line)}"
            )
    values = (np.array(column, object) for column in zip(*lines, strict=True))
    columns = dict(zip(names, values, strict=True))
    return Table(path, columns, np.array(numbers), is_text=True, has_names=has_names)


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        got = f"byte {content[error.start]:#04x}"
        raise InputError(f"{path}, row {row}: expected text in UTF-8, got {got}") from None


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


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_names(path: Path, row: int, names: list[str], separator: str) -> None:
    _refuse_repeated(f"{path}, row {row}", names)
    others = [x for x in _OTHERS if x != separator and len(names) == 1 and x in names[0]]
    if others:
        shorter, option = shown(names[0]), "tab" if others[0] == "\t" else others[0]
        raise InputError(
            f"{path}, row {row}: expected columns separated by {separator!r}, got {shorter}; "
            f"try --separator {option!r}"
        )
