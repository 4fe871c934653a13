"""The script that changes lines: what it changes, and that tests notice it."""

import ast
import pathlib

import pytest

from tests import mutation

SOURCE = '''
def area(width: float, height=2.0) -> float:
    """Area of n > 1 things: a + b."""
    if width < 0:
        raise ValueError("expected 1 + 1 or more")
    return width * height - 0.5
'''
CHANGES = {
    *("2.0 → 4.0", "width < 0 → width <= 0", "0 → 1", "0.5 → 1.0"),
    *("width * height - 0.5 → width * height + 0.5", "width * height - 0.5 → width * height"),
    *("width * height → width / height", "width * height → width"),
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A package of five lines with a test."""
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    for name in ("calibjax/shapes", "tests/shapes"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "calibjax/shapes/plane.py").write_text(SOURCE)
    test = (
        "from calibjax.shapes.plane import area\n\n\ndef test_area():\n    assert area(3) == 5.5\n"
    )
    (tmp_path / "tests/shapes/test_plane.py").write_text(test)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['a']\n")


@pytest.fixture
def every(tree):
    """All changes of it by what is said of them."""
    parsed = ast.parse(SOURCE)
    found = mutation.changes(pathlib.Path("calibjax/shapes/plane.py"), parsed, parsed)
    return {x.words: x for x in found}


def test_changes(every):
    assert every.keys() == CHANGES
    sources = {x.source() for x in every.values()}
    assert len(sources) == len(CHANGES)
    assert ast.unparse(ast.parse(SOURCE)) not in sources


def test_one_change_of_each_line_is_drawn(every):
    assert sorted(x.line for x in mutation.drawn(1, 10)) == [2, 4, 6]
    assert {x.words for seed in range(50) for x in mutation.drawn(seed, 3)} == CHANGES
    assert [*map(str, mutation.drawn(1, 2))] == [*map(str, mutation.drawn(1, 2))]


def test_what_catches_a_change(every):
    caught = mutation.tried(every["width * height → width"], 60)
    assert caught == "caught by tests/shapes/test_plane.py::test_area"
    assert mutation.tried(every["width < 0 → width <= 0"], 60) == "SURVIVED"
