"""Tables that are compared, and data like that of the papers."""

import csv

import numpy as np

from experiments.harness.source import ROOT
from paper_repro.data import cifar


def write_cifar10(data, *names, num):
    """Files of networks on CIFAR-10 in a folder like --data; returns it."""
    folder = data / cifar.CIFAR10
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.savetxt(folder / "labels.csv", 1 + np.arange(num) % 10, fmt="%d")
    for name in names:
        np.savetxt(folder / f"{name}.csv", rng.dirichlet(np.ones(10), num), delimiter=",")
    return data


def rows_of(path):
    """The rows of a table, by column."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def committed(experiment, table):
    """The rows of a committed table of ours."""
    return rows_of(ROOT / f"paper_repro/results/{experiment}/{table}.csv")
