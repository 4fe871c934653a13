"""Parts of an evaluation in HTML: for the page of a report, and for notebooks."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from calibjax import _html
from calibjax.evaluation.table import HEADER, row_of

if TYPE_CHECKING:
    from calibjax.evaluation.record import Entry, Evaluation, Section

_NAMES = 3  # of entries that share a note
TO_DO = "What to do"
FOUND = "What was found"


def notebook(evaluation: "Evaluation") -> str:
    """What was found, what to do, and the tables, which open on demand."""
    parts = ["<div>", _html.paragraph(evaluation.description), f"<h4>{FOUND}</h4>"]
    parts += map(_html.paragraph, evaluation.sentences)
    if evaluation.advice:
        parts += [f"<h4>{TO_DO}</h4>", *advice(evaluation)]
    for section in evaluation.sections:
        parts += [f"<details><summary>{escape(section.title)}</summary>"]
        parts += [*content(section), "</details>"]
    return "\n".join([*parts, "</div>"])


def advice(evaluation: "Evaluation") -> Iterator[str]:
    """What to do, and the calls."""
    for one in evaluation.advice:
        yield _html.paragraph(one.text)
        if one.call:
            yield _html.code(one.call)


def content(section: "Section") -> Iterator[str]:
    """Tables, remark, and the words that explain its numbers."""
    # What is wide scrolls in a box of its own, which the keyboard has to reach.
    label = escape(section.title, quote=True)
    yield f'<div class="wide" role="region" aria-label="{label}" tabindex="0">'
    for header, rows in _tables(section.entries):
        yield from _html.table(header, rows)
    yield "</div>"
    if section.remark:
        yield _html.paragraph(section.remark, "remark")
    notes: dict[str, list[str]] = {}
    for entry in section.entries:
        if entry.note:
            notes.setdefault(entry.note, []).append(entry.name)
    if notes:
        yield "<dl>"
        for note, names in notes.items():
            yield f"<dt>{escape(_listed(names))}</dt><dd>{escape(note)}</dd>"
        yield "</dl>"


def _tables(entries: Sequence["Entry"]) -> list[tuple[list[str], list[list[str]]]]:
    """Headers and rows, in one table for all entries that have the same columns."""
    tables: dict[tuple[int, ...], list[list[str]]] = {}
    for entry in entries:
        cells = ["none" if cell == "nan" else cell for cell in row_of(entry)]
        used = tuple(i for i, cell in enumerate(cells) if cell or not i)
        tables.setdefault(used, []).append([cells[i] for i in used])
    return [([HEADER[i] for i in used], rows) for used, rows in tables.items()]


def _listed(names: Sequence[str]) -> str:
    """The first few names, and the last of many."""
    shown = [*names[: _NAMES - 1], "…", names[-1]] if len(names) > _NAMES else names
    return "; ".join(shown)
