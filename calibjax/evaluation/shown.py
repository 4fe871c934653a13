"""An evaluation as plain text, and in HTML: for the page of a report, and for notebooks."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from calibjax._core import environment
from calibjax.evaluation.entries import Advice, Entry, Section

_WIDTH = 100
_INDENT = "  "
_LARGEST = 6  # powers of ten that are written without an exponent
HEADER = ("", "value", "95 % interval", "if calibrated", "adjusted p")
_NAMES = 3  # of entries that share a note
TO_DO = "What to do"
FOUND = "What was found"


def text(
    description: str,
    sections: Sequence[Section],
    sentences: Sequence[str],
    advice: Sequence[Advice],
) -> str:
    """The description, a table of each section, the sentences, and what to do."""
    rows = [[HEADER, *map(row_of, section.entries)] for section in sections]
    columns = zip(*(row for section in rows for row in section), strict=True)
    widths = [max(map(len, column)) for column in columns]
    parts = [_filled(description)]
    for section, cells in zip(sections, rows, strict=True):
        parts.append("\n".join(_lines(section, cells, widths)))
    parts.append("\n".join(map(_filled, sentences)))
    for one in advice:
        call = textwrap.indent(one.call, 2 * _INDENT)
        parts.append("\n".join(filter(None, [_filled(one.text), call])))
    return "\n\n".join(parts)


def notebook(
    description: str,
    sections: Sequence[Section],
    sentences: Sequence[str],
    advice: Sequence[Advice],
) -> str:
    """What was found, what to do, and the tables, which open on demand."""
    parts = ["<div>", environment.paragraph(description), f"<h4>{FOUND}</h4>"]
    parts += map(environment.paragraph, sentences)
    if advice:
        parts += [f"<h4>{TO_DO}</h4>", *to_do(advice)]
    for section in sections:
        parts += [f"<details><summary>{escape(section.title)}</summary>"]
        parts += [*content(section), "</details>"]
    return "\n".join([*parts, "</div>"])


def to_do(advice: Sequence[Advice]) -> Iterator[str]:
    """What to do, and the calls."""
    for one in advice:
        yield environment.paragraph(one.text)
        if one.call:
            yield environment.code(one.call)


def content(section: Section) -> Iterator[str]:
    """Tables, remark, and the words that explain its numbers."""
    # What is wide scrolls in a box of its own, which the keyboard has to reach.
    label = escape(section.title, quote=True)
    yield f'<div class="wide" role="region" aria-label="{label}" tabindex="0">'
    for header, rows in _tables(section.entries):
        yield from environment.table(header, rows)
    yield "</div>"
    if section.remark:
        yield environment.paragraph(section.remark, "remark")
    notes: dict[str, list[str]] = {}
    for entry in section.entries:
        if entry.note:
            notes.setdefault(entry.note, []).append(entry.name)
    if notes:
        yield "<dl>"
        for note, names in notes.items():
            yield f"<dt>{escape(_listed(names))}</dt><dd>{escape(note)}</dd>"
        yield "</dl>"


def _tables(entries: Sequence[Entry]) -> list[tuple[list[str], list[list[str]]]]:
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


def _lines(section: Section, rows: Sequence[tuple[str, ...]], widths: Sequence[int]) -> list[str]:
    """Title, columns that this section uses, and remark."""
    used = [i == 0 or any(row[i] for row in rows[1:]) for i in range(len(HEADER))]
    lines = [section.title]
    for row in rows:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            if used[i]
        ]
        lines.append((_INDENT + _INDENT.join(cells)).rstrip())
    for entry in section.entries:
        if math.isnan(entry.value) and entry.note:
            lines.append(_filled(f"{entry.name}: {entry.note}", _INDENT))
    if section.remark:
        lines.append(_filled(section.remark, _INDENT))
    return lines


def row_of(entry: Entry) -> tuple[str, ...]:
    """The cells of an entry, below those of `HEADER`, with the same number of decimals."""
    chance = entry.by_chance or ()
    ends = () if entry.low is None or entry.high is None else (entry.low, entry.high)
    value, *others = numbers(entry.value, *ends, *chance)
    if entry.standard_error is not None:
        value += f" ± {number(entry.standard_error, 1)}"
    interval, range_ = (" to ".join(x) for x in (others[: len(ends)], others[len(ends) :]))
    return entry.name, value, interval, range_, "" if entry.pvalue is None else number(entry.pvalue)


def numbers(*values: float) -> list[str]:
    """Numbers with the same number of decimals: three significant digits of the largest."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    first = math.floor(math.log10(max(sizes))) if sizes else 0
    if len(sizes) < 2 or not -_LARGEST < first < _LARGEST:
        return [number(value) for value in values]
    return [f"{value:.{max(0, 2 - first)}f}" for value in values]


def number(value: float, digits: int = 3) -> str:
    """A number with that many significant digits."""
    text = f"{value:.{digits}g}"
    is_large = "e+" in text and abs(value) < 10**_LARGEST
    return f"{float(text):.0f}" if is_large else text


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
