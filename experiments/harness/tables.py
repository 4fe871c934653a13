"""Tables: one file with all digits, one that is rounded and read by people."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.files import write
from experiments.harness.messages import log


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write_table(
    folder: Path, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]], note: str = ""
) -> None:
    """Writes a table as NAME.csv, with all digits, and NAME.md, rounded, with a note below it.

    Args:
        folder: folder of the experiment.
        name: name of the files without suffix.
        header: names of the columns.
        rows: their values: strings, numbers, or None for an empty place.
        note: what a reader of the table has to know, in Markdown.
    """
    rows = list(rows)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    write(folder / f"{name}.csv", buffer.getvalue())
    lines = [header, ["---"] * len(header), *([_text(value) for value in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    write(folder / f"{name}.md", f"{table}\n" + (f"\n{note.strip()}\n" if note else ""))
    log(f"wrote {folder / name}.md")


def _plain(value: Any) -> Any:
    """A value as Python has it, truth values as words."""
    value = value.item() if isinstance(value, np.generic) else value
    return ("yes" if value else "no") if isinstance(value, bool) else value


def write_records(
    folder: Path, name: str, records: Sequence[dict[str, Any]], note: str = ""
) -> None:
    """Writes records with the same keys as NAME.csv and NAME.md, and prints the latter."""
    header = list(records[0])
    rows = [[_plain(record[column]) for column in header] for record in records]
    write_table(folder, name, header, rows, note)
    print((folder / f"{name}.md").read_text(encoding="utf-8"), flush=True)
