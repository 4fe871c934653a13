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
    "def area(width: float, height=«2.0») -> float: → 4.0",
    *("if «width < 0»: → width <= 0", "if width < «0»: → 1"),
    *("return width * height - «0.5» → 1.0", "return «width * height» - 0.5 → width / height"),
    *("return «width * height» - 0.5 → width", "return «width * height - 0.5» → width * height"),
    "return «width * height - 0.5» → width * height + 0.5",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A package of five lines with a test."""
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    monkeypatch.setattr(mutation, "LAWS", ())
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
    """All changes of it by their names."""
    parsed = ast.parse(SOURCE)
    found = mutation.changes(pathlib.Path("calibjax/shapes/plane.py"), parsed, parsed)
    return {str(x).removeprefix("calibjax/shapes/plane.py | "): x for x in found}


def test_changes(every):
    assert every.keys() == CHANGES
    sources = {x.source() for x in every.values()}
    assert len(sources) == len(CHANGES)
    assert ast.unparse(ast.parse(SOURCE)) not in sources
    drawn = {*(str(x) for seed in range(50) for x in mutation.drawn(seed, 3))}
    assert drawn == {str(x) for x in every.values()}
    assert sorted(x.old.lineno for x in mutation.drawn(1, 10)) == [2, 4, 6]  # one of each line
    assert [*map(str, mutation.drawn(1, 2))] == [*map(str, mutation.drawn(1, 2))]


def test_what_catches_a_change(every, monkeypatch):
    def tried(change):
        return mutation.tried(change, change.source(), 60)

    caught = tried(every["return «width * height» - 0.5 → width"])
    assert caught == "caught by tests/shapes/test_plane.py::test_area"
    right = every["if «width < 0»: → width <= 0"]
    assert tried(right) == "SURVIVED"
    monkeypatch.setattr(mutation, "EQUIVALENT", {str(right): "no area"})
    assert tried(right) == "equivalent: no area"
