"""Tables of HTML, for pages and for notebooks: escaped, without scripts and without styles."""

from collections.abc import Iterator, Sequence
from html import escape


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table whose first column names the rows.

    Args:
        header: what the columns are called; may be empty, as well as single names.
        rows: cells, as many in each as there are columns.
    """
    yield "<table>"
    labels = [escape(label or "quantity", quote=True) for label in header]
    if labels:
        kinds = ['scope="col"' + (' class="number"' if i else "") for i in range(len(labels))]
        cells = "".join(f"<th {k}>{x}</th>" for k, x in zip(kinds, labels, strict=True))
        yield f"<thead><tr>{cells}</tr></thead>"
    yield "<tbody>"
    for name, *cells in rows:
        # The labels are for narrow screens, which show one cell below the other.
        marks = [f' class="number" data-label="{x}"' for x in labels[1:]] or [""] * len(cells)
        values = "".join(f"<td{m}>{escape(x)}</td>" for m, x in zip(marks, cells, strict=True))
        yield f'<tr><th scope="row">{escape(name)}</th>{values}</tr>'
    yield "</tbody></table>"


def code(text: str) -> str:
    """Lines of a program."""
    return f"<pre><code>{escape(text)}</code></pre>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph, of a class if it has one."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"
