"""The committed tables and figures are files of the site, at the paths they have here."""

import pathlib

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ("paper_repro/results", "experiments/results")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds them."""
    for folder in RESULTS:
        for path in sorted((ROOT / folder).rglob("*.*")):
            uri = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tables have no title of their own: it is their path."""
    uri = page.file.src_uri
    if uri.startswith(RESULTS) and not markdown.startswith("#"):
        return f"# {uri.removesuffix('.md')}\n\n{markdown}"
    return markdown
