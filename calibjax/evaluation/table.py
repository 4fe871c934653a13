"""An evaluation as plain text."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calibjax.evaluation.record import Entry, Evaluation, Section

_WIDTH = 100
_INDENT = "  "
_LARGEST = 6  # powers of ten that are written without an exponent
HEADER = ("", "value", "95 % interval", "if calibrated", "adjusted p")


def table(evaluation: "Evaluation") -> str:
    """The description, a table of each section, the sentences, and what to do."""
    rows = [[HEADER, *map(row_of, section.entries)] for section in evaluation.sections]
    columns = zip(*(row for section in rows for row in section), strict=True)
    widths = [max(map(len, column)) for column in columns]
    parts = [_filled(evaluation.description)]
    for section, cells in zip(evaluation.sections, rows, strict=True):
        parts.append("\n".join(_lines(section, cells, widths)))
    parts.append("\n".join(_filled(sentence) for sentence in evaluation.sentences))
    for advice in evaluation.advice:
        call = textwrap.indent(advice.call, 2 * _INDENT)
        parts.append("\n".join(filter(None, [_filled(advice.text), call])))
    return "\n\n".join(parts)


def _lines(section: "Section", rows: Sequence[tuple[str, ...]], widths: Sequence[int]) -> list[str]:
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


def row_of(entry: "Entry") -> tuple[str, ...]:
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
