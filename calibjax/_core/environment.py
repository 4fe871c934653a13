"""What lies outside: optional packages, files, and tables of HTML without scripts and styles."""

import importlib
import os
import secrets
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from types import ModuleType


def imported(module: str, use: str, extra: str) -> ModuleType:
    """A module of an optional dependency.

    Args:
        module: its name.
        use: what needs which package, the beginning of the message of the error.
        extra: the extra of calibjax that installs the package.

    Raises:
        ImportError: if it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{use}, which is not installed: pip install 'calibjax[{extra}]'"
        ) from error


def write(path: Path, content: str | bytes) -> None:
    """Writes a file that is either there completely or not at all.

    Two processes, or threads, may write the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # or the name may survive a loss of power, and not the content
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
