"""The page of a report: one file of HTML that needs no other, and no program."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from calibjax import _html
from calibjax.command_line.style import STYLE
from calibjax.evaluation import Evaluation, Section
from calibjax.evaluation.shown import FOUND, TO_DO, content, to_do

_BESIDE = 1  # figures that stand beside what was found
_READING = (
    "How to read the tables: the number after ± is the standard error. “If calibrated” is the "
    "range that contains the values of a calibrated model in 95 % of data sets of this size: all "
    "values of the same kind in a table at once. A value outside speaks against calibration. "
    "“Adjusted p” is the probability that a calibrated model shows any value of the same kind that "
    "is at least as far off; at most 5 % means outside of the range. The p-values in the sentences "
    "are adjusted for the number of tests as well, which makes them larger."
)


def page(
    evaluation: Evaluation,
    *,
    title: str,
    remarks: Sequence[str],
    facts: Sequence[tuple[str, str]],
    pictures: Mapping[str, str],
    missing: str = "",
    made: str = "",
    setup: str,
    command: str,
) -> str:
    """HTML of a report: what was found and what to do, figures, numbers, how to get them again.

    Args:
        evaluation: what was found.
        title: of the page.
        remarks: sentences below those of the evaluation, such as what classes are called.
        facts: what was evaluated, by name.
        pictures: the addresses of its figures by name; their captions are the evaluation's.
        missing: why there are no figures, if there are none.
        made: by what and when the page was made.
        setup: the lines of Python before the calls of the entries.
        command: the command that writes this page.
    """
    names = list(pictures)
    sections = [_section(i, section) for i, section in enumerate(evaluation.sections)]
    body = "\n".join(
        [
            f"<h1>{escape(title)}</h1>",
            _html.paragraph(evaluation.description, "lead"),
            *([_html.paragraph(made, "made")] if made else []),
            f'<div class="{"top" if names else "alone"}">',
            *_words(evaluation, remarks, missing),
            *_figures(evaluation, pictures, names[:_BESIDE], "beside"),
            "</div>",
            *_figures(evaluation, pictures, names[_BESIDE:], "figures"),
            *(line for section in sections for line in section),
            _html.paragraph(_READING, "remark"),
            *_origin(evaluation, facts, setup, command),
        ]
    )
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _words(evaluation: Evaluation, remarks: Sequence[str], missing: str) -> Iterator[str]:
    """What was found, and what to do."""
    yield '<div><section class="findings" aria-labelledby="findings">'
    yield f'<h2 id="findings">{FOUND}</h2>'
    yield from map(_html.paragraph, (*evaluation.sentences, *remarks))
    yield "</section>"
    if evaluation.advice:
        yield f'<section class="advice" aria-labelledby="advice"><h2 id="advice">{TO_DO}</h2>'
        yield from to_do(evaluation.advice)
        if any(one.call for one in evaluation.advice):
            yield (
                '<p class="remark"><code>predictions</code> and <code>targets</code> are those of '
                '<a href="#python">The same numbers in Python</a>, <code>new_predictions</code> '
                "those that are to be repaired.</p>"
            )
        yield "</section>"
    if missing:
        yield _html.paragraph(missing)
    yield "</div>"


def _section(index: int, section: Section) -> Iterator[str]:
    """Heading, tables and words; or what opens on demand."""
    name = f"section-{index}"
    if section.is_detail:
        yield f'<details id="{name}"><summary>{escape(section.title)}</summary>'
        yield from content(section)
        yield "</details>"
        return
    yield f'<h2 id="{name}">{escape(section.title)}</h2>'
    yield from content(section)


def _figures(
    evaluation: Evaluation, pictures: Mapping[str, str], names: Sequence[str], kind: str
) -> Iterator[str]:
    if not names:
        return
    yield f'<div class="{kind}">'
    for name in names:
        caption, title = evaluation.captions[name], name[:1].upper() + name[1:]
        alternative = escape(f"{title}. {caption}", quote=True)
        yield f'<figure><img src="{pictures[name]}" alt="{alternative}">'
        yield f"<figcaption><strong>{escape(title)}.</strong> {escape(caption)}</figcaption>"
        yield "</figure>"
    yield "</div>"


def _origin(
    evaluation: Evaluation, facts: Sequence[tuple[str, str]], setup: str, command: str
) -> Iterator[str]:
    """What was evaluated, and how to get every number again."""
    yield '<h2 id="origin">Where the numbers come from</h2>'
    yield '<div class="wide facts" role="region" aria-labelledby="origin" tabindex="0">'
    yield from _html.table((), facts)
    yield "</div>"
    yield f"<h3>The same report</h3>{_html.code(command)}"
    yield f'<h3 id="python">The same numbers in Python</h3>{_html.code(setup)}'
    calls = [entry for entry in evaluation.entries if entry.function]
    if calls:
        yield "<details><summary>The call of each number</summary><dl>"
        for entry in calls:
            call = f"<code>{escape(entry.function)}</code>"
            yield f"<dt>{escape(entry.name)}</dt><dd>{call}</dd>"
        yield "</dl></details>"
