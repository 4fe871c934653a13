"""The notebooks of docs/notebooks are run, and are pages with what they printed and drew.

The files have no outputs: what a page shows came from this version. A cell that fails fails the
build. Each page has a link to its notebook.
"""

import base64
import os
import pathlib
from collections.abc import Iterator

import nbclient
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
SECONDS = 600  # for a cell


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page and its figures for each notebook."""
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # programs run once
    for path in sorted(FOLDER.glob("*.ipynb")):
        figures: dict[str, bytes] = {}
        parts = [*page_of(executed(path), path.stem, figures)]
        text = "\n\n".join([*parts, f"[Download this page as a notebook]({path.name})\n"])
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in figures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def executed(path: pathlib.Path) -> nbformat.NotebookNode:
    """A notebook with the outputs of its cells.

    Raises:
        PluginError: if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    try:
        return nbclient.NotebookClient(notebook, timeout=SECONDS).execute()
    except nbclient.exceptions.CellExecutionError as error:
        raise PluginError(f"{path.name}: {error}") from error


def page_of(notebook: nbformat.NotebookNode, name: str, figures: dict[str, bytes]) -> Iterator[str]:
    """The cells as Markdown; what they drew is added to `figures`, by name."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source
            continue
        yield f"```python\n{cell.source}\n```"
        printed = "".join(x.text for x in cell.outputs if x.get("name") == "stdout")
        if printed:
            yield f"```text\n{printed}```"
        for data in (x.data for x in cell.outputs if "data" in x):
            if "image/png" in data:
                figure = f"{name}-{len(figures)}.png"
                figures[figure] = base64.b64decode(data["image/png"])
                yield f"![What the lines above draw]({figure}){{ .drawn }}"
            else:
                yield data.get("text/html") or f"```text\n{data['text/plain']}\n```"
