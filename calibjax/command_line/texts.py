"""Reading tables from texts: separators, names of columns and of rows, decimal commas."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from calibjax.command_line.tables import MISSING, InputError, Table, shown

SEPARATORS = (",", ";", "\t", "|", " ")  # in the order in which they are tried
Header = Literal["auto", "yes", "no"]
_WITH_COMMA = re.compile(r"\s*[-+]?(\d+(,\d*)?|,\d+)(e[-+]?\d+)?\s*", re.IGNORECASE | re.ASCII)


def read_text(
    path: Path, content: bytes, *, separator: str | None, default: str, header: Header
) -> Table:
    """A table from a text.

    Args:
        path: the file.
        content: what it contains.
        separator: between the values of a row; None to find it out.
        default: the separator where several fit, or none.
        header: whether the first row names the columns; "auto" if it is unlike the others.

    Raises:
        InputError: if it is no table.
    """
    text = _decoded(path, content)
    separator = separator or _separator(text, default)
    lines, numbers = _split(path, text, separator)
    first = [x.strip() for x in lines[0]]
    has_names = header == "yes" or (header == "auto" and _has_names(first, lines[1:]))
    if has_names:
        first = _with_row_names(first, lines[1:])
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
    values = [np.array(column, object) for column in zip(*lines, strict=True)]
    if separator != ",":
        values = _with_points(values)
    columns = dict(zip(names, values, strict=True))
    return Table(path, columns, np.array(numbers), is_text=True, has_names=has_names)


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = content.count(b"\n", 0, error.start) + 1
        got = f"byte {content[error.start]:#04x}"
        raise InputError(f"{path}, row {row}: expected text in UTF-8, got {got}") from None


def _separator(text: str, default: str) -> str:
    """The first separator that divides the first two rows, the first without another one in values.

    Values may contain a comma as a decimal one where something else separates them.
    """
    lines = text.splitlines()[:2]
    for separator in (default, *(x for x in SEPARATORS if x != default)):
        try:
            rows = [*csv.reader(lines, delimiter=separator, strict=True)]
        except csv.Error:
            continue
        others = {*SEPARATORS} - {separator, " "} - ({","} if separator != "," else set())
        is_whole = '"' in text.partition("\n")[0] or not any(x in others for x in "".join(rows[0]))
        if min(map(len, rows)) > 1 and is_whole:
            return separator
    return default


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


def _has_names(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: not all numbers, or 0, 1, ... above fractions."""
    if not all(map(_is_number, first)):
        return True
    counts = [str(i) for i in range(len(first))]
    is_fraction = (not x.strip().isdecimal() for line in others for x in line)
    return len(first) > 1 and [*first] == counts and bool(others) and all(is_fraction)


def _is_number(text: str) -> bool:
    if _WITH_COMMA.fullmatch(text):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _with_row_names(names: list[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """The names of columns, with one for the rows' names where R has left it out.

    These are texts or count the rows, so that a name that was lost is no reason to shift columns.
    """
    if not lines or any(len(line) != len(names) + 1 for line in lines):
        return names
    rows = [line[0] for line in lines]
    are_texts = not any(map(_is_number, rows)) and len({*rows}) == len(rows)
    are_counts = rows == [str(i + 1) for i in range(len(rows))]
    return ["", *names] if are_texts or are_counts else names


def _check_names(path: Path, row: int, names: list[str], separator: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        found = f"column {shown(repeated[0])} {Counter(names)[repeated[0]]} times"
        raise InputError(f"{path}, row {row}: expected columns of different names, got {found}")
    others = [x for x in SEPARATORS[:3] if x != separator and len(names) == 1 and x in names[0]]
    if others:
        shorter, option = shown(names[0]), "tab" if others[0] == "\t" else others[0]
        raise InputError(
            f"{path}, row {row}: expected columns separated by {separator!r}, got {shorter}; "
            f"try --separator {option!r}",
            [{"--separator": [option]}],
        )


def _with_points(columns: list[np.ndarray]) -> list[np.ndarray]:
    """Columns of numbers with decimal commas as such with points, if no number has a point."""
    cells = [[x for x in column if x.strip().lower() not in MISSING] for column in columns]
    have_commas = [all(map(_WITH_COMMA.fullmatch, x)) and any("," in y for y in x) for x in cells]
    have_points = any("." in x and _is_number(x) for column in cells for x in column)
    if have_points or not any(have_commas):
        return columns
    return [
        np.array([x.replace(",", ".") for x in column], object) if has_comma else column
        for column, has_comma in zip(columns, have_commas, strict=True)
    ]
