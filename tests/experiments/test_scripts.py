"""Every experiment can be started, and some run as a whole with little data."""

import csv
import importlib
import pkgutil

import pytest

import experiments
from experiments.power import bound
from experiments.training import study
from tests.experiments.test_gallery import FILES

MODULES = [
    module.name
    for module in pkgutil.walk_packages(experiments.__path__, "experiments.")
    if not module.name.endswith("__main__")
]
# Options, a table that is written, and the number of its rows.
RUNS = {
    "power.__main__": ("--num-datasets 2 --only horizons", "power_horizons", 4),
    "power.bound": ("--only binary", "power_bound_binary", len(bound.MODELS["binary"].laws)),
    "training.__main__": (
        *("--num-seeds 2 --num-steps 80 --only simulated", "training"),
        len(study.WEIGHTS) + 8,
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_import(name):
    importlib.import_module(name)


def run(name, options, folder, patch):
    """Files of an experiment that is run with these options, by name."""
    patch.setattr("sys.argv", [name, *options.split(), "--output", str(folder)])
    importlib.import_module(f"experiments.{name}").main()
    return {path.name: path for path in (folder / name.split(".")[0]).iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_tables_of_little_data(name, tmp_path, monkeypatch):
    options, table, num_rows = RUNS[name]
    monkeypatch.setattr(bound, "NUM_SETS", 2)
    monkeypatch.setattr(bound, "PER_CELL", 1)
    text = run(name, options, tmp_path, monkeypatch)[f"{table}.csv"].read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == num_rows
    if name == "training.__main__":
        losses = {row["loss"]: row["NLL"] for row in rows}
        assert len(losses) == num_rows
        assert losses["the truth"] < losses["NLL"]


@pytest.mark.slow
def test_all_figures_are_drawn(tmp_path, monkeypatch):
    assert run("gallery", "", tmp_path, monkeypatch).keys() == {x.name for x in FILES.values()}
