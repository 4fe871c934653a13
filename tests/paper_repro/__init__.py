"""Tables that are compared."""

import csv

import pytest

from experiments.harness.source import ROOT


def rows_of(path):
    """The rows of a table, by column."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def committed(experiment, table):
    """The rows of a committed table of ours."""
    return rows_of(ROOT / f"paper_repro/results/{experiment}/{table}.csv")


def authors_rows(data_dir, path):
    """The rows of a table of the authors."""
    if not (data_dir / path).is_file():
        pytest.skip(f"no file {path} in the data")
    return rows_of(data_dir / path)
