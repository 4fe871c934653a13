"""The predictions that ship with the package, and the option that evaluates them."""

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

from calibjax.command_line import load
from calibjax.command_line.program import DEMOS, main
from experiments import demo
from experiments.harness.source import ROOT

FOLDER = ROOT / "calibjax" / "command_line" / "demo"


@pytest.mark.parametrize(
    ("arguments", "name", "family", "size"),
    [([], "digits", "Categorical", 300), (["diabetes"], "diabetes", "Normal", 221)],
)
def test_option(arguments, name, family, size, tmp_path, capsys, monkeypatch, calls):
    monkeypatch.chdir(tmp_path)
    data = load(["--demo", *arguments])
    assert type(data.predictions).__name__ == family
    assert data.targets.shape == (size,)
    assert main(["--demo", *arguments]) == 0
    page = tmp_path / f"calibjax-demo-{name}.html"
    output = capsys.readouterr()
    assert output.err.endswith(f"\ncalibjax: the page is {page.resolve()}\n")
    assert f"file: {FOLDER / name}.csv\n" in output.out
    assert str(FOLDER / name) in page.read_text()
    assert main(["--demo", *arguments, "--report", "other.html"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {page.name, "other.html"}


def rows_of(path):
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    return names, np.array(rows, float)


def test_files_are_those_of_the_script(tmp_path):
    """To a unit of the last decimal, since versions of scikit-learn differ in rounding."""
    demo.write(tmp_path)
    assert {path.stem for path in FOLDER.iterdir()} == set(DEMOS)
    for name, unit in (("digits", 1e-4), ("diabetes", 0.1)):
        names, rows = rows_of(tmp_path / f"{name}.csv")
        shipped_names, shipped = rows_of(FOLDER / f"{name}.csv")
        assert names == shipped_names
        np.testing.assert_allclose(rows, shipped, rtol=0, atol=1.01 * unit)
        np.testing.assert_array_equal(rows[:, -1], shipped[:, -1])


def test_rounded_rows_sum_to_one():
    probs = np.random.default_rng(0).dirichlet(np.full(10, 0.05), 200)
    units = demo.rounded(probs)
    np.testing.assert_array_equal(units.sum(1), demo.UNITS)
    assert units.min() >= 1
    exact = 1 + (demo.UNITS - 10) * probs
    assert np.abs(units - exact).max() < 1


def test_files_are_small_and_in_the_package():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 30_000
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = options["package-data"]["calibjax"]
    packed = {path for pattern in patterns for path in Path(ROOT, "calibjax").glob(pattern)}
    assert {*FOLDER.iterdir()} <= packed
