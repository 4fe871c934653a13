"""The page of a report: one HTML file that needs no other files and no scripts."""

import base64
import io
import shlex
import string
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from calibjax._core import environment
from calibjax.command_line.reading import Data, listed
from calibjax.evaluation.record import Evaluation, Section, content, to_do

_FOLDER = Path(__file__).parent


def page(evaluation: Evaluation, data: Data, options: Namespace, arguments: Sequence[str]) -> str:
    """HTML of a report: what was found and what to do, figures, numbers, how to get them again.

    Args:
        evaluation: what was found.
        data: what was evaluated.
        options: the command line, see `program.parse`.
        arguments: its words.
    """
    is_one = not isinstance(data.predictions, Mapping)
    files = listed([path.name for path in options.files])
    texts = {
        "title": f"{'Calibration' if is_one else 'Comparison'} of {files}",
        "arguments": str([*arguments]),
        "seed": str(options.seed),
        "call": "evaluate" if is_one else "compare",
        "command": f"python -m calibjax {shlex.join(arguments)}",
    }
    parts = {
        "style": [(_FOLDER / "style.css").read_text("utf-8")],
        "description": [escape(evaluation.description)],
        "verdict": map(escape, evaluation.sentences[:1]),
        "sentences": map(environment.paragraph, evaluation.sentences[1:]),
        "advice": to_do(evaluation.advice),
        "figures": _figures(evaluation),
        "sections": map(_section, range(len(evaluation.sections)), evaluation.sections),
        "notes": (environment.paragraph(note, "remark") for note in evaluation.notes),
        "facts": environment.table((), [*data.facts.items()]),
        "calls": (
            f"<dt>{escape(entry.name)}</dt><dd><code>{escape(entry.call)}</code></dd>"
            for entry in evaluation.entries
            if entry.call
        ),
    }
    template = string.Template((_FOLDER / "page.html").read_text("utf-8"))
    parts |= {name: [escape(text)] for name, text in texts.items()}
    return template.substitute({name: "\n".join(lines) for name, lines in parts.items()})


def _section(index: int, section: Section) -> str:
    """Heading, tables and words; or what opens on demand."""
    name, title, lines = f"section-{index}", escape(section.title), "\n".join(content(section))
    if section.is_detail:
        return f'<details id="{name}"><summary>{title}</summary>\n{lines}\n</details>'
    return f'<h2 id="{name}">{title}</h2>\n{lines}'


def _figures(evaluation: Evaluation) -> Iterator[str]:
    """Drawings (SVG) as data: addresses, the same for the same figure, and their captions."""
    try:
        import matplotlib

        figures = evaluation.figures()
    except ImportError as error:
        yield environment.paragraph(f"The figures are left out: {error}", "remark")
        return
    for name, figure in figures.items():
        file = io.BytesIO()
        # Text stays text only if the reader has the font; as curves it looks the same for all.
        with matplotlib.rc_context({"svg.hashsalt": "calibjax", "svg.fonttype": "path"}):
            figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")
        address = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
        caption, title = escape(evaluation.captions[name]), escape(name[:1].upper() + name[1:])
        words = f"<figcaption><strong>{title}.</strong> {caption}</figcaption>"
        yield f'<figure><img src="{address}" alt="{title}. {caption}">\n{words}\n</figure>'
