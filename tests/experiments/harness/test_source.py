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
def test_fingerprints(tmp_path, change, is_seen):
    name, old, new = change
    found = []
    for changed in (FILES, FILES, FILES | {name: FILES[name].replace(old, new)}):
        for file, text in changed.items():
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        main, library = tmp_path / "paper_repro/one/main.py", tmp_path / "calibjax"
        found.append(source.fingerprint(main, tmp_path, library))
    assert old in FILES[name]
    assert found[0] == found[1]
    assert (found[2] != found[0]) == is_seen
