"""Time and memory of estimators and tests as samples become more, or predictions larger.

Each evaluation runs in a process of its own. Sizes grow until a call would take longer than half a
minute. A run that was interrupted goes on where it stopped.

Run: python -m experiments.benchmark.growth [--data DIR] [--quick] [--only NAME ...] [--output DIR]
"""

import functools
import json
import math
import subprocess
import sys
from typing import Any

import jax
from tqdm import tqdm

from experiments.benchmark import growth_figures
from experiments.benchmark.growth_workload import (
    BATCH,
    FIXED,
    LINEAR,
    NUM_LANDMARKS,
    NUM_LOCATIONS,
    NUM_REDRAWS,
    QUADRATIC,
    WORKLOADS,
)
from experiments.harness import clocks, command_line
from experiments.harness.cells import Store, cell
from experiments.harness.tables import note_of, write_table

LIMIT = 30.0  # seconds that a call may take
PUBLISHED = "skce of CalibrationErrors.jl (published, 3.6 GHz)"
DENSE = 16_000  # beyond, the matrices of NumPy do not fit
GROWTH = {LINEAR: "linear", QUADRATIC: "quadratic"}


def sizes_of(name: str) -> list[int]:
    """Numbers of samples up to a million, or sizes of a prediction up to a thousand."""
    if WORKLOADS[name].over == "m":
        return [4**k for k in range(1, 6)]
    if WORKLOADS[name].growth == LINEAR:
        return [1000 * 4**k for k in range(6)]
    return [1000 * 2**k for k in range(8)]


def measured(name: str, size: int) -> dict[str, float]:
    """Seconds of a call, of the first one, and growth of the peak memory in bytes."""
    command = [sys.executable, "-m", "experiments.benchmark.growth_workload", name, str(size)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(result.stdout)


def row(what: str, over: str, size: int, seconds: float, **others: float | str) -> dict[str, Any]:
    """One line of the table."""
    empty = dict.fromkeys(("growth", "first call", "MB", "per doubling"))
    return {"what": what, "over": over, "size": size, "seconds": seconds} | empty | others


def rows_of(store: Store, name: str, sizes: list[int]) -> list[dict[str, Any]]:
    """One row for each size, until a call takes too long; what was measured before is kept."""
    found, rows = WORKLOADS[name], []
    doublings = math.log2(sizes[1] / sizes[0])
    for size in sizes:
        if name == "skce_numpy" and size > DENSE:
            break
        compute = functools.partial(measured, name, size)
        one = cell(store, f"{name}/{size}", {"name": name, "size": size}, compute)
        others = {
            "growth": GROWTH[found.growth],
            "first call": one["first"],
            "MB": one["bytes"] / 1e6,
        }
        if rows:
            others["per doubling"] = (one["seconds"] / rows[-1]["seconds"]) ** (1 / doublings)
        rows.append(row(name, found.over, size, one["seconds"], **others))
        if not one["seconds"] * 2 ** (doublings * found.growth) <= LIMIT:
            break
    return rows


def published_rows(run: command_line.Run) -> list[dict[str, Any]]:
    """Shortest times of CalibrationErrors.jl in double precision, on its authors' machine."""
    columns = {"estimator": str, "dim": int, "nsamples": int, "mintime": float}
    lines = run.published("w21_synthetic", "errors_calibrated_model.csv", columns=columns) or []
    return [
        row(PUBLISHED, "n", int(line["nsamples"]), float(line["mintime"]))
        for line in lines
        if line["estimator"] == "SKCE" and int(line["dim"]) == 1 and int(line["nsamples"]) >= 256
    ]


@command_line.program
def main() -> None:
    """Writes the table and the figure benchmark_growth."""
    parser = command_line.option_parser(__file__, __doc__, data="optional", only=WORKLOADS)
    parser.add_argument("--quick", action="store_true", help="two sizes, to see that it runs")
    run, options = command_line.parse(parser)
    rows: list[dict[str, Any]] = []
    load, store = clocks.machine_load(), run.store("benchmark", __file__)
    for name in tqdm([name for name in WORKLOADS if name in options.only], unit="function"):
        sizes = sizes_of(name)
        rows += rows_of(store, name, sizes[:2] if options.quick else sizes)
    rows += published_rows(run)
    values = {"redraws": NUM_REDRAWS, "landmarks": NUM_LANDMARKS, "locations": NUM_LOCATIONS}
    values |= {"batch": BATCH, "fixed": FIXED, "devices": len(jax.devices()), "load": load}
    platform = jax.devices()[0].platform.upper()
    after = clocks.machine_load()
    note = note_of(__file__, "growth", platform=platform, after=after, **values)
    name = "benchmark_growth_quick" if options.quick else "benchmark_growth"
    write_table(store.folder, name, rows, note, show=True)
    growth_figures.draw(store.folder, name, rows)


if __name__ == "__main__":
    main()
