"""The notebooks of docs/notebooks are run, and are pages with what they printed and drew.

The files have no outputs: what a page shows came from this version. A cell that fails fails the
build. Each page has a link to its notebook.
"""

import os
import pathlib

import nbconvert
import nbformat
import traitlets.config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbconvert.preprocessors import CellExecutionError

FOLDER = pathlib.Path(__file__).parents[1] / "notebooks"
DOWNLOAD = "[Download this page as a notebook]({name}.ipynb){{ .download }}\n"
SETTINGS = traitlets.config.Config(
    ExecutePreprocessor={"enabled": True, "timeout": 600},
    ExtractOutputPreprocessor={"output_filename_template": "{unique_key}_{index}{extension}"},
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page and its figures for each notebook."""
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # programs run once
    for path in sorted(FOLDER.glob("*.ipynb")):
        text, figures = run(path)
        text = text.rstrip() + "\n\n" + DOWNLOAD.format(name=path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in figures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def run(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
    """What a notebook says after it has been run, as Markdown, and its figures by name.

    Raises:
        PluginError: if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    try:
        text, resources = nbconvert.MarkdownExporter(config=SETTINGS).from_notebook_node(
            notebook, {"unique_key": path.stem, "metadata": {"path": str(path.parent)}}
        )
    except CellExecutionError as error:
        raise PluginError(f"{path.name}: {error}") from error
    return text, resources["outputs"]
