"""What the experiments say where a package is missing, or the data is not there."""

import subprocess
import sys

import pytest

from calibjax import interoperability
from experiments.harness import extras

# As `python -m` runs it, after the packages of the first argument were made impossible to import.
START = """
import runpy, sys
package, program, *sys.argv[1:] = sys.argv[1:]
sys.modules[package] = None
sys.argv[0] = "-m"
runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("package", "program", "use", "extra"),
    [
        ("sklearn", "paper_repro", "some experiments use scikit-learn", "repro"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (
                    "tqdm",
                    "paper_repro.w19.rejections",
                    "the experiments show their progress with tqdm",
                    "repro",
                ),
                (
                    "matplotlib",
                    "experiments.levels",
                    "the experiments draw with matplotlib",
                    "repro",
                ),
            )
        ),
    ],
)
def test_a_program_without_a_package_says_so(package, program, use, extra):
    command = [sys.executable, "-c", START, package, program, "--preset", "quick"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    message = f"{use}, which is not installed: pip install 'calibjax[{extra}]'\n"
    assert (found.returncode, found.stderr) == (2, message)


def test_modules_without_a_package_raise(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    for call in (lambda: extras.require("sklearn"), lambda: extras.imported("sklearn.manifold")):
        with pytest.raises(extras.MissingExtra, match=r"scikit-learn, which is not installed: pip"):
            call()


def test_numpyro_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpyro", None)
    monkeypatch.setitem(sys.modules, "numpyro.distributions", None)
    message = r"numpyro, which is not installed: pip install 'calibjax\[numpyro\]'"
    with pytest.raises(ImportError, match=message):
        interoperability.from_numpyro(3)
