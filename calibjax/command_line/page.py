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
    Advice,
    Evaluation,
    Section,
    content,
    to_do,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FOLDER = Path(__file__).parent


def page(
    evaluation: Evaluation,
    figures: "Mapping[str, Figure]",
    facts: Sequence[tuple[str, str]],
    **texts: str,
) -> str:
    """HTML of a report: what was found and what to do, figures, numbers, how to get them again.

    Args:
        evaluation: what was found.
        figures: its figures by name; their captions are the evaluation's.
        facts: what was evaluated, by name.
        texts: title; how Python gets the data (arguments, seed and call); and the command that
            writes this page.
    """
    parts = {
        "style": [(_FOLDER / "style.css").read_text("utf-8")],
        "description": [escape(evaluation.description)],
        "verdict": map(escape, evaluation.sentences[:1]),
        "sentences": map(environment.paragraph, evaluation.sentences[1:]),
        "advice": _advice(evaluation.advice),
        "figures": (_figure(evaluation, *one) for one in figures.items()),
        "sections": map(_section, range(len(evaluation.sections)), evaluation.sections),
        "notes": (environment.paragraph(note, "remark") for note in evaluation.notes),
        "facts": environment.table((), facts),
        "calls": (
            f"<dt>{escape(entry.name)}</dt><dd><code>{escape(entry.call)}</code></dd>"
            for entry in evaluation.entries
            if entry.call
        ),
    }
    template = string.Template((_FOLDER / "page.html").read_text("utf-8"))
    parts |= {name: [escape(text)] for name, text in texts.items()}
    return template.substitute({name: "\n".join(lines) for name, lines in parts.items()})


def _advice(advice: Sequence[Advice]) -> Iterator[str]:
    """What to do."""
    if advice:
        yield '<section class="advice" aria-labelledby="advice"><h2 id="advice">What to do</h2>'
        yield from to_do(advice)
        yield "</section>"


def _section(index: int, section: Section) -> str:
    """Heading, tables and words; or what opens on demand."""
    name, title, lines = f"section-{index}", escape(section.title), "\n".join(content(section))
    if section.is_detail:
        return f'<details id="{name}"><summary>{title}</summary>\n{lines}\n</details>'
    return f'<h2 id="{name}">{title}</h2>\n{lines}'


def _figure(evaluation: Evaluation, name: str, figure: "Figure") -> str:
    """A drawing (SVG) as a data: address, the same for the same figure, and its caption."""
    import matplotlib

    file = io.BytesIO()
    # Lines of text stay text only if the reader has the font; as curves they look the same for all.
    with matplotlib.rc_context({"svg.hashsalt": "calibjax", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")
    address = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
    caption, title = escape(evaluation.captions[name]), escape(name[:1].upper() + name[1:])
    words = f"<figcaption><strong>{title}.</strong> {caption}</figcaption>"
    return f'<figure><img src="{address}" alt="{title}. {caption}">\n{words}\n</figure>'
