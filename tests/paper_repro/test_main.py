import hashlib
import re
import subprocess
import sys

import pytest

from experiments.harness import command_line, source
from paper_repro import __main__ as everything
from paper_repro.data import download


def test_the_help_describes_every_experiment():
    """And names only folders that the download command knows."""
    text = everything.list_of_experiments()
    assert list(everything.ABOUT) == list(everything.EXPERIMENTS)
    assert all(f"  {name} " in text for name in everything.EXPERIMENTS)
    assert "root of the repository" in text
    assert max(map(len, text.splitlines())) < 90
    folders = {file.folder for file in download.read_files()}
    for about in everything.ABOUT.values():
        assert set(re.findall(r"[a-z0-9]+_[a-z]+", about.data)) <= folders


def test_every_experiment_is_one_of_a_paper():
    """`make paper` runs one paper after the other."""
    of_papers = [name for paper in everything.PAPERS for name in everything.chosen([paper])]
    assert of_papers == list(everything.EXPERIMENTS) == everything.chosen(everything.PAPERS)
    makefile = (source.ROOT / "Makefile").read_text()
    assert f"\nPAPERS = {' '.join(everything.PAPERS)}\n" in makefile
    assert "\npaper: $(PAPERS:%=paper-%) " in makefile


def test_every_experiment_has_every_preset():
    for module in everything.MODULES:
        settings = getattr(module, "SETTINGS", command_line.PRESETS)  # of one size
        assert set(settings) == set(command_line.PRESETS), module.__name__


# Numbers of the authors that are in the package: each file was compared with theirs, number by
# number, and these are the beginnings of its SHA-256 from then on.
COPIES = {
    "w19/estimates_panels.csv": "bc20ef7795e7ac6f0dfe",
    "w19/rejections.csv": "31cd2817f0915739cb93",
    "w19/timings.csv": "940b197aae649ee60a03",
    "w21/friedman_published.csv": "67b3d1773ef70a011cef",
    "w21/synthetic_errors.csv": "a4c7267f32b9bd473a68",
    "w21/synthetic_tests.csv": "32c74cd3651de5eab441",
}


@pytest.mark.parametrize("file", COPIES)
def test_numbers_of_the_authors_stay(file):
    content = (source.ROOT / "paper_repro" / file).read_bytes()
    assert hashlib.sha256(content).hexdigest().startswith(COPIES[file])


@pytest.mark.slow
def test_smoke(tmp_path):
    """Without data everything runs, and what is not the paper's data says so."""
    command = [sys.executable, "-m", "paper_repro", "--output", str(tmp_path)]
    subprocess.run(command, cwd=source.ROOT, capture_output=True, check=True)
    for name in everything.EXPERIMENTS:
        folder = tmp_path / "quick" / name
        tables = [path.read_text(encoding="utf-8") for path in folder.glob("*.csv")]
        assert tables
        assert [*folder.glob("*.svg"), *folder.glob("*.png")]
        headers = [table.partition("\n")[0] for table in tables]
        assert {table.startswith("stand-in data,") for table in headers} == {
            name in ("w19_networks", "l21_crime", "l21_networks", "g24_networks")
        }
        words = ("published", "verdict", "ImageNet")
        assert not any(word in x for x in headers if x.startswith("stand-in") for word in words)
