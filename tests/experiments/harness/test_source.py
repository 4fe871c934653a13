"""A change of code that does something is seen, and no other one."""

import pytest

from experiments.harness import source

FILES = {
    "calibjax/__init__.py": "from calibjax import kernels\n",
    "calibjax/kernels.py": "from calibjax import _parts\n\n\ndef f(x):\n    return x\n",
    "calibjax/_parts.py": "A = 1\n",
    "calibjax/scores.py": "B = 1\n",
    "experiments/__init__.py": "",
    "experiments/other.py": "def unused():\n    return 1\n",
    "experiments/harness/__init__.py": "",
    "experiments/harness/tables.py": "def write():\n    return 1\n",
    "paper_repro/__init__.py": "import experiments.harness\n",
    "paper_repro/one/__init__.py": "",
    "paper_repro/one/main.py": (
        '"""Runs."""\nfrom calibjax import kernels\n'
        "from paper_repro.one import main_figures, parts\n\n\n"
        'def run():\n    """Runs."""\n'
    ),
    "paper_repro/one/main_figures.py": "WIDTH = 3\n",
    "paper_repro/one/parts.py": (
        "def g():\n    from experiments.harness.tables import write\n\n    return 2  # two\n"
    ),
}


@pytest.fixture
def main(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "paper_repro/one/main.py"


def fingerprint_of(main):
    root = main.parents[2]
    return source.fingerprint(main, root, root / "calibjax")


CHANGES = {
    "a function of an imported module": ("paper_repro/one/parts.py", "2  # two", "3  # two"),
    "a module imported within a function": ("experiments/harness/tables.py", "1", "2"),
    "what a part of the library imports": ("calibjax/_parts.py", "1", "2"),
    "a package of a module": ("paper_repro/__init__.py", "import", "import os\nimport"),
}
NO_CHANGES = {
    "a comment": ("paper_repro/one/parts.py", "# two", "# 2"),
    "a new docstring": ("calibjax/kernels.py", "    return", '    """x."""\n    return'),
    "a module that draws": ("paper_repro/one/main_figures.py", "3", "4"),
    "another part of the library": ("calibjax/scores.py", "1", "2"),
    "a module that is not imported": ("experiments/other.py", "1", "2"),
}


@pytest.mark.parametrize(
    ("change", "is_seen"),
    [*((x, True) for x in CHANGES.values()), *((x, False) for x in NO_CHANGES.values())],
    ids=[*CHANGES, *NO_CHANGES],
)
def test_fingerprints(main, change, is_seen):
    before = fingerprint_of(main)
    assert fingerprint_of(main) == before
    name, old, new = change
    path = main.parents[2] / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert (fingerprint_of(main) != before) == is_seen
