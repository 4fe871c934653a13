"""The page of a report: one HTML file that needs no other files and no scripts."""

import base64
import io
import string
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from calibjax._core import environment
from calibjax.evaluation.record import (
    FOUND,
    TO_DO,
    Advice,
    Evaluation,
    Section,
    content,
    to_do,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FOLDER = Path(__file__).parent
_ARGUMENTS = (
    '<p class="remark"><code>predictions</code> and <code>targets</code> are those of '
    '<a href="#python">The same numbers in Python</a>, <code>new_predictions</code> those that '
    "are to be repaired.</p>"
)


def page(
    evaluation: Evaluation,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    pictures: Mapping[str, str],
    missing: str = "",
    made: str,
    setup: str,
    command: str,
) -> str:
    """HTML of a report: what was found and what to do, figures, numbers, how to get them again.

    Args:
        evaluation: what was found.
        title: of the page.
        facts: what was evaluated, by name.
        pictures: the addresses of its figures by name; their captions are the evaluation's.
        missing: why there are no figures, if there are none.
        made: by what and when the page was made.
        setup: the lines of Python before the calls of the entries.
        command: the command that writes this page.
    """
    parts = {
        "title": [escape(title)],
        "style": [(_FOLDER / "style.css").read_text("utf-8")],
        "description": [escape(evaluation.description)],
        "made": [escape(made)],
        "found": [FOUND],
        "verdict": map(escape, evaluation.sentences[:1]),
        "sentences": map(environment.paragraph, evaluation.sentences[1:]),
        "advice": _advice(evaluation.advice),
        "missing": map(environment.paragraph, filter(None, [missing])),
        "figures": (_figure(evaluation, *picture) for picture in pictures.items()),
        "sections": map(_section, range(len(evaluation.sections)), evaluation.sections),
        "notes": (environment.paragraph(note, "remark") for note in evaluation.notes),
        "facts": environment.table((), facts),
        "command": [environment.code(command)],
        "setup": [environment.code(setup)],
        "calls": (
            f"<dt>{escape(entry.name)}</dt><dd><code>{escape(entry.call)}</code></dd>"
            for entry in evaluation.entries
            if entry.call
        ),
    }
    template = string.Template((_FOLDER / "page.html").read_text("utf-8"))
    return template.substitute({name: "\n".join(lines) for name, lines in parts.items()})


def _advice(advice: Sequence[Advice]) -> Iterator[str]:
    """What to do."""
    if advice:
        yield f'<section class="advice" aria-labelledby="advice"><h2 id="advice">{TO_DO}</h2>'
        yield from to_do(advice)
        if any(one.call for one in advice):
            yield _ARGUMENTS
        yield "</section>"


def _section(index: int, section: Section) -> str:
    """Heading, tables and words; or what opens on demand."""
    name, title, lines = f"section-{index}", escape(section.title), "\n".join(content(section))
    if section.is_detail:
        return f'<details id="{name}"><summary>{title}</summary>\n{lines}\n</details>'
    return f'<h2 id="{name}">{title}</h2>\n{lines}'


def _figure(evaluation: Evaluation, name: str, address: str) -> str:
    caption, title = escape(evaluation.captions[name]), escape(name[:1].upper() + name[1:])
    picture = f'<img src="{address}" alt="{title}. {caption}">'
    words = f"<strong>{title}.</strong> {caption}"
    return f"<figure>{picture}\n<figcaption>{words}</figcaption>\n</figure>"


def data_address(figure: "Figure") -> str:
    """A drawing (SVG) as a data: address.

    Args:
        figure: of matplotlib. The same figure gives the same address.
    """
    import matplotlib

    file = io.BytesIO()
    # Lines of text stay text only if the reader has the font; as curves they look the same for all.
    with matplotlib.rc_context({"svg.hashsalt": "calibjax", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
