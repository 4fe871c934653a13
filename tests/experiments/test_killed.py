"""What is killed gives the same tables as what is not, bit for bit."""

import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from experiments import sensitivity
from experiments.harness import figures, source
from experiments.harness.cells import Store
from experiments.harness.tables import write_table


def counts(rng, label, group, *rest):
    return {f"exact {group}": {"rejected": int(rng.integers(50)), "undefined": 0}}


def run_power(store):
    found = sensitivity.rejections(store, 50)
    write_table(store.folder, "table", sensitivity.rows(found), show=True)


class StandIn:
    """Computes cells from a hash of the arguments; the process is killed at one of them."""

    def __init__(self, function, killed_at=0):
        self.function, self.killed_at, self.calls = function, killed_at, 0

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        rng = np.random.default_rng(zlib.crc32(repr(arguments).encode()))
        return self.function(rng, *arguments)


def run(folder, killed_at=0):
    """Runs an experiment; returns the number of cells that were computed."""
    with pytest.MonkeyPatch.context() as patch:
        stand_in = StandIn(counts, killed_at)
        patch.setattr(sensitivity, "counts", stand_in)
        patch.setattr(figures, "_drawn", lambda *arguments: b"")
        run_power(Store(Path(folder), "code"))
    return stand_in.calls


def tables_of(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.*")}


def test_tables_are_the_same(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    number = run(whole)
    assert number > 8
    command = f"from tests.experiments.test_killed import run; run({str(killed)!r}, 8)"
    found = subprocess.run(
        [sys.executable, "-c", command], cwd=source.ROOT, capture_output=True, check=False
    )
    assert found.returncode == -signal.SIGKILL
    assert len([*(killed / "cells").rglob("*.json")]) == 7
    assert not tables_of(killed)
    assert run(killed) == number - 7
    assert tables_of(killed) == tables_of(whole)
    assert run(killed) == 0
