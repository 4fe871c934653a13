"""The page of a report: one file of HTML that needs no other, and no program."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from calibjax.command_line.style import STYLE
from calibjax.command_line.tables import listed
from calibjax.evaluation import Entry, Evaluation, Section
from calibjax.evaluation.table import HEADER, row_of

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
    setup: str,
    command: str,
) -> str:
    """HTML of a report: what was found in words, the numbers, the figures, how to get them again.

    Args:
        evaluation: what was found.
        title: of the page.
        remarks: sentences below those of the evaluation, such as what classes are called.
        facts: what was evaluated, by name.
        pictures: the addresses of its figures by name; their captions are the evaluation's.
        missing: why there are no figures, if there are none.
        setup: the lines of Python before the calls of the entries.
        command: the command that writes this page.
    """
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(evaluation.description)}</p>',
        '<section class="findings" aria-labelledby="findings">',
        '<h2 id="findings">What was found</h2>',
        *(f"<p>{escape(sentence)}</p>" for sentence in (*evaluation.sentences, *remarks)),
        "</section>",
        f'<p class="remark">{_READING}</p>',
        *(part for i, section in enumerate(evaluation.sections) for part in _section(i, section)),
        *_figures(evaluation, pictures, missing),
        *_origin(evaluation, facts, setup, command),
    ]
    body = "\n".join(parts)
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


def _section(index: int, section: Section) -> Iterator[str]:
    """Heading, table, remark, and the words that explain its numbers."""
    name = f"section-{index}"
    yield f'<h2 id="{name}">{escape(section.title)}</h2>'
    yield from _table(name, section.entries)
    if section.remark:
        yield f'<p class="remark">{escape(section.remark)}</p>'
    notes: dict[str, list[str]] = {}
    for entry in section.entries:
        if entry.note:
            notes.setdefault(entry.note, []).append(entry.name)
    if notes:
        yield "<dl>"
        for note, names in notes.items():
            yield f"<dt>{escape(listed(names, 3, '; '))}</dt><dd>{escape(note)}</dd>"
        yield "</dl>"


def _table(name: str, entries: Sequence[Entry]) -> Iterator[str]:
    """The entries, without columns that none of them uses."""
    rows = [["none" if cell == "nan" else cell for cell in row_of(entry)] for entry in entries]
    used = [i for i in range(len(HEADER)) if any(row[i] for row in rows)]
    # What is wide scrolls in a box of its own, which the keyboard has to reach.
    yield f'<div class="wide" role="region" aria-labelledby="{name}" tabindex="0"><table>'
    labels = {i: escape(HEADER[i] or "quantity", quote=True) for i in used}
    kinds = {i: 'scope="col"' + (' class="number"' if i else "") for i in used}
    yield f"<thead><tr>{''.join(f'<th {kinds[i]}>{labels[i]}</th>' for i in used)}</tr></thead>"
    yield "<tbody>"
    for row in rows:
        numbers = "".join(  # the labels are for narrow screens, which show one cell below the other
            f'<td class="number" data-label="{labels[i]}">{escape(row[i])}</td>' for i in used[1:]
        )
        yield f'<tr><th scope="row">{escape(row[0])}</th>{numbers}</tr>'
    yield "</tbody></table></div>"


def _figures(evaluation: Evaluation, pictures: Mapping[str, str], missing: str) -> Iterator[str]:
    if not pictures and not missing:
        return
    yield '<h2 id="figures">Figures</h2>'
    if missing:
        yield f"<p>{escape(missing)}</p>"
    yield '<div class="figures">'
    for name, address in pictures.items():
        caption, title = evaluation.captions[name], name[:1].upper() + name[1:]
        alternative = escape(f"{title}. {caption}", quote=True)
        yield f'<figure><img src="{address}" alt="{alternative}">'
        yield f"<figcaption><strong>{escape(title)}.</strong> {escape(caption)}</figcaption>"
        yield "</figure>"
    yield "</div>"


def _origin(
    evaluation: Evaluation, facts: Sequence[tuple[str, str]], setup: str, command: str
) -> Iterator[str]:
    """What was evaluated, and how to get every number again."""
    yield '<h2 id="origin">Where the numbers come from</h2>'
    yield '<div class="wide" role="region" aria-labelledby="origin" tabindex="0"><table><tbody>'
    for name, value in facts:
        yield f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
    yield "</tbody></table></div>"
    yield f"<h3>The same report</h3><pre><code>{escape(command)}</code></pre>"
    yield f"<h3>The same numbers in Python</h3><pre><code>{escape(setup)}</code></pre>"
    calls = [entry for entry in evaluation.entries if entry.function]
    if calls:
        yield "<details><summary>The call of each number</summary><dl>"
        for entry in calls:
            call = f"<code>{escape(entry.function)}</code>"
            yield f"<dt>{escape(entry.name)}</dt><dd>{call}</dd>"
        yield "</dl></details>"
