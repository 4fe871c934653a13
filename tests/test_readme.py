"""README.md and docs/: examples print what stands below them, links lead somewhere."""

import contextlib
import importlib
import io
import pathlib
import re

import jax
import pytest

import calibjax

ROOT = pathlib.Path(__file__).parent.parent
README = ROOT / "README.md"
# A block of code, and what it prints where a block of text follows at once.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.S)
PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in [README, *sorted((ROOT / "docs").rglob("*.md"))]
    if BLOCK.search(page.read_text())
]
SLOW = {  # seven seconds to half a minute each
    "docs/comparing.md",
    "docs/evaluate.md",
    "docs/recalibration.md",
    "docs/regression.md",
    "docs/samples.md",
    "docs/sklearn.md",
    "docs/training_loop.md",
    "docs/which_test.md",
    "docs/your_program.md",
}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in PAGES]
)
def test_blocks_of_a_page(page):
    """They run one after the other, with the names of those before."""
    names = {"__name__": "page"}
    text = (ROOT / page).read_text()
    for block in BLOCK.finditer(text):
        code, printed = block.groups()
        line = text.count("\n", 0, block.start(1))
        output = io.StringIO()
        with jax.enable_x64(False), contextlib.redirect_stdout(output):
            exec(compile("\n" * line + code, str(ROOT / page), "exec"), names)
        assert output.getvalue() == (printed or ""), f"{page}, line {line + 1}"


def test_pages_with_code_are_found():
    assert {"README.md", "docs/index.md", "docs/your_own.md"} <= set(PAGES)


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


def test_the_reference_has_every_public_name():
    """Its pages list names by topic, so that a new one could be missing."""
    pages = {page.stem: page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md")}
    listed = {name for text in pages.values() for name in re.findall(r"^::: (\S+)", text, re.M)}
    assert {f"calibjax.{name}" for name in calibjax.__all__} <= listed
    for package in dir(calibjax):
        if package not in calibjax.__all__:
            names = importlib.import_module(f"calibjax.{package}").__all__
            missing = [name for name in names if f"calibjax.{package}.{name}" not in listed]
            assert missing == [], f"docs/reference/{package}.md"
