"""What the experiments say where a package is missing, or the data is not there."""

import subprocess
import sys

import pytest

from experiments.harness import extras

# As `python -m` runs it, after the packages of the first argument were made impossible to import.
START = """
import runpy, sys
package, program, *sys.argv[1:] = sys.argv[1:]
sys.modules[package] = None
sys.argv[0] = "-m"
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


def test_a_program_without_a_package_says_so():
    command = [sys.executable, "-c", START, "sklearn", "paper_repro", "--preset", "quick"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    message = "use scikit-learn, which is not installed: pip install 'calibjax[repro]'\n"
    assert found.returncode == 2
    assert found.stderr.endswith(message)


def test_modules_without_a_package_raise(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    for call in (lambda: extras.require("sklearn"), lambda: extras.imported("sklearn.manifold")):
        with pytest.raises(extras.MissingExtra, match=r"scikit-learn, which is not installed: pip"):
            call()
