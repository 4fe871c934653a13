"""Tables: one file with all digits, one that is rounded and read by people."""

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import stand_in
from experiments.harness.data_files import write
from experiments.harness.messages import log

STAND_IN = """
**{mark}.** What follows is written about the data of the paper; these numbers judge none of its
claims.
"""


def write_table(
    folder: Path,
    name: str,
    records: Iterable[Any],
    note: str = "",
    *,
    names: Mapping[Any, str] | None = None,
    show: bool = False,
) -> None:
    """Writes a table as NAME.csv, with all digits, and NAME.md, rounded, with a note below it.

    Where the data is stand-in data, the first column says so, and published numbers are left out.

    Args:
        folder: folder of the experiment.
        name: name of the files without suffix.
        records: its rows: tuples, dataclasses, or, where columns depend on the settings,
            dictionaries with the same keys. Values are strings, numbers, truth values, or None for
            an empty place.
        note: what a reader of the table has to know, in Markdown. Its first line may be that of a
            table, `| a | b |`: what the columns are called.
        names: what columns are called, by field, where it is something else than the field; of a
            table without rows it has to name all of them.
        show: whether the rounded table is printed, too.
    """
    rows, names = list(records), names or {}
    header, note = _header_of(note)
    if not header:
        rows = [_fields(record) for record in rows]
        fields = [*(rows[0] if rows else names)]
        header = [names.get(field, field) for field in fields]
        rows = [[row[field] for field in fields] for row in rows]
    values = [[_plain(v) for _, v in zip(header, row, strict=True)] for row in rows]
    if mark := stand_in.header():
        header, values = _marked(mark, header, values)
        note = f"{STAND_IN.format(mark=mark)}\n{note}" if note else note
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *values])
    write(folder / f"{name}.csv", buffer.getvalue())
    lines = [header, ["---"] * len(header), *([_text(value) for value in row] for row in values)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = f"{table}\n" + (f"\n{note.strip()}\n" if note else "")
    write(folder / f"{name}.md", text)
    log(f"wrote {folder / name}.md")
    if show:
        log(text)


def note_of(file: str, name: str, **values: Any) -> str:
    """A text of the Markdown file beside a module, with values in its places `{value}`.

    Args:
        file: `__file__` of the module; the texts are in the file of this name with the ending .md.
        name: heading of the text, `# NAME`.
        values: what is put in, by name.
    """
    texts = Path(file).with_suffix(".md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^# (\w+)\n(.*?)(?=^# |\Z)", texts, re.M | re.S))
    return f"\n{sections[name].strip()}\n".format(**values)


def published_rows(file: str, name: str = "") -> list[dict[str, str]]:
    """Rows of the CSV file NAME.csv beside a module, by default of the module's own name."""
    path = Path(file).with_name(f"{name or Path(file).stem}.csv")
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _header_of(note: str) -> tuple[list[str], str]:
    """Names of columns in the first line of a note, if there are any, and the rest of it."""
    first, _, rest = note.lstrip().partition("\n")
    if not first.startswith("| "):
        return [], note
    return first.strip("| ").split(" | "), rest


def _fields(record: Any) -> Mapping[Any, Any]:
    """Values of a record by field."""
    if isinstance(record, Mapping):
        return record
    if dataclasses.is_dataclass(record):
        names = [field.name for field in dataclasses.fields(record)]
    else:
        names = record._fields
    return {name: getattr(record, name) for name in names}


def _marked(
    mark: str, header: list[str], values: list[list[Any]]
) -> tuple[list[str], list[list[Any]]]:
    """The table with another first column, and without published numbers and their deviations."""
    kept: list[int] = []
    for i, name in enumerate(header):
        after = i > 0 and name.endswith("sd") and stand_in.is_published(header[i - 1])
        if not (after or stand_in.is_published(name)):
            kept.append(i)
    kind, what = mark.split(": ", 1)
    return [kind, *(header[i] for i in kept)], [[what, *(row[i] for i in kept)] for row in values]


def _plain(value: Any) -> Any:
    """A value as Python has it, truth values as words."""
    value = value.item() if isinstance(value, np.generic) else value
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
