"""Who may import whom among the experiments."""

import ast

import pytest

from experiments.harness.source import ROOT, name_of

PAPERS = ("w19", "w21", "l21", "g24")
FILES = sorted(
    path for room in ("experiments", "paper_repro") for path in (ROOT / room).rglob("*.py")
)
assert len(FILES) > 50


def imports_of(text):
    """Names of the project's modules that are imported, and of what is imported from them."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{'.' * node.level}{node.module or ''}.{x.name}" for x in node.names}
    return {x for x in found if x.startswith((".", "experiments.", "paper_repro."))}


def allowed(module):
    """Beginnings of the names of modules that a module may import."""
    room, _, rest = module.partition(".")
    part = rest.partition(".")[0]
    if part == "harness":
        return ("experiments.harness.",)
    if room == "experiments":
        return ("experiments.", "paper_repro.data.")
    if part == "data":
        return ("experiments.harness.", "paper_repro.data.")
    if part in PAPERS:
        shared = ("experiments.harness.", "paper_repro.data.", "paper_repro.julia_random.")
        return (*shared, f"paper_repro.{part}.")
    if part == "julia_random":
        return ()
    assert module == "paper_repro", f"{module} is in no room"
    return ("experiments.harness", *(f"paper_repro.{paper}." for paper in PAPERS))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(path):
    first = allowed(name_of(path))
    found = imports_of(path.read_text(encoding="utf-8"))
    assert not {name for name in found if not f"{name}.".startswith(first)}
