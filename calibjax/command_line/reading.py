"""Reading tables from CSV, NPY, NPZ and Parquet files, also packed by gzip.

Whatever is wrong with a file raises an `InputError`, one line that names the file, the row where
there is one, what was expected and what came.
"""

import gzip
import io
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibjax import _extras
from calibjax.command_line.tables import InputError, Table, listed, shown
from calibjax.command_line.texts import Header, read_text

TEXTS = {".csv": ",", ".tsv": "\t", ".txt": ","}
ENDINGS = (*TEXTS, ".npy", ".npz", ".parquet")


def read(path: Path, *, separator: str | None = None, header: Header = "auto") -> Table:
    """Reads a table; its ending says which format it has.

    Args:
        path: the file.
        separator: between the values of a row of a text; None to find it out.
        header: whether the first row of a text names the columns; "auto" if not all of it are
            numbers, or if it is 0, 1, ... above fractions.

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
        return read_text(path, content, separator=separator, default=TEXTS[kind], header=header)
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
    try:
        with warnings.catch_warnings():  # of headers of old versions
            warnings.simplefilter("ignore")
            found = np.load(io.BytesIO(content), allow_pickle=False)
        return found if isinstance(found, np.ndarray) else dict(found)
    except Exception as error:  # what damaged files raise is no closed list
        reason = str(error).partition("\n")[0] or type(error).__name__
        if "pickle" in reason:  # NumPy proposes to load it unsafely
            reason = "it holds pickled objects, or no NumPy array"
        raise InputError(f"{path}: cannot be read by numpy.load ({shown(reason)})") from None


def _columns_of(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """A matrix [n, m] as columns NAME_0, …, NAME_m−1; vectors as they are."""
    return (
        {name: array}
        if array.ndim == 1
        else {f"{name}_{i}": array[:, i] for i in range(array.shape[1])}
    )


def _table_of_array(path: Path, array: np.ndarray) -> Table:
    if array.dtype.names:
        return _table_of_arrays(path, {name: array[name] for name in array.dtype.names})
    if array.ndim not in (1, 2):
        raise InputError(f"{path}: expected an array [n] or [n, m], got shape {array.shape}")
    matrix = array.reshape(len(array), -1) if array.size else array
    columns = {str(i + 1): matrix[:, i] for i in range(matrix.shape[1] if matrix.ndim == 2 else 0)}
    return _checked(path, columns, has_names=False)


def _table_of_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Table:
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
            found = f"shape {array.shape}" if isinstance(array, np.ndarray) else "a file"
            raise InputError(
                f"{path}: expected arrays [n] or [n, m], got {found} called {shown(name)}"
            )
        for column, values in _columns_of(name, array).items():
            if column in columns:
                found = f"column {shown(column)} twice"
                raise InputError(f"{path}: expected columns of different names, got {found}")
            columns[column] = values
    return _checked(path, columns, has_names=True)


def _checked(path: Path, columns: Mapping[str, np.ndarray], *, has_names: bool) -> Table:
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
        parquet = _extras.imported("pyarrow.parquet", "Parquet is read with pyarrow", "report")
    except ImportError as error:
        raise InputError(f"{path}: {error}") from None
    try:
        table = parquet.read_table(io.BytesIO(content))
        columns = [
            (table.column_names[i], table.column(i).to_numpy()) for i in range(table.num_columns)
        ]
    except Exception as error:  # what damaged files raise is no closed list
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path}: cannot be read as Parquet ({shown(reason)})") from None
    repeated = [name for name, count in Counter(x for x, _ in columns).items() if count > 1]
    if repeated:
        found = f"column {shown(repeated[0])} twice"
        raise InputError(f"{path}: expected columns of different names, got {found}")
    return _checked(path, dict(columns), has_names=True)
