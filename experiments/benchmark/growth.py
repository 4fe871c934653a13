"""Time and memory of estimators and tests as the number of samples grows.

Each evaluation runs in a process of its own. Sizes grow until a call would take longer than a
minute.

Run: python -m experiments.benchmark.growth [--data DIR] [--quick] [--only NAME ...] [--output DIR]
"""

import json
import subprocess
import sys
from typing import Any

import jax
from tqdm import tqdm

from experiments.benchmark import growth_figures
from experiments.benchmark.growth_workload import NUM_REDRAWS, QUADRATIC, WORKLOADS
from experiments.harness import clocks, command_line
from experiments.harness.tables import write_table

SIZES = {QUADRATIC: [1000 * 2**k for k in range(8)], "linear": [1000 * 4**k for k in range(6)]}
LIMIT = 60.0  # seconds that a call may take
PUBLISHED = "skce of CalibrationErrors.jl (published, 3.6 GHz)"
DENSE = 16_000  # beyond, the matrices of NumPy do not fit


def measured(name: str, num_samples: int) -> dict[str, float]:
    """Seconds of the second call, of the first one, and growth of the peak memory in bytes."""
    command = [sys.executable, "-m", "experiments.benchmark.growth_workload", name]
    command.append(str(num_samples))
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(result.stdout)


def row(what: str, n: int, seconds: float, **others: float | str) -> dict[str, Any]:
    """One line of the table."""
    empty = dict.fromkeys(("growth", "first call", "MB", "ratio to the row before"))
    return {"what": what, "n": n, "seconds": seconds} | empty | others


def rows_of(name: str, sizes: list[int]) -> list[dict[str, Any]]:
    """One row for each size, until a call takes too long."""
    growth, rows = WORKLOADS[name][0], []
    factor = (sizes[1] / sizes[0]) ** (2 if growth == QUADRATIC else 1)
    for n in sizes:
        if name == "skce_numpy" and n > DENSE:
            break
        found = measured(name, n)
        others = {"growth": growth, "first call": found["first"], "MB": found["bytes"] / 1e6}
        if rows:
            others["ratio to the row before"] = found["seconds"] / rows[-1]["seconds"]
        rows.append(row(name, n, found["seconds"], **others))
        if not found["seconds"] * factor <= LIMIT:
            break
    return rows


def published_rows(run: command_line.Run) -> list[dict[str, Any]]:
    """Shortest times of CalibrationErrors.jl in double precision, on its authors' machine."""
    columns = {"estimator": str, "dim": int, "nsamples": int, "mintime": float}
    lines = run.published("w21_synthetic", "errors_calibrated_model.csv", columns=columns) or []
    return [
        row(PUBLISHED, int(line["nsamples"]), float(line["mintime"]))
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
    load = clocks.machine_load()
    for name in tqdm([name for name in WORKLOADS if name in options.only], unit="function"):
        sizes = SIZES[WORKLOADS[name][0]]
        rows += rows_of(name, sizes[:2] if options.quick else sizes)
    rows += published_rows(run)
    note = (
        f"Scalar normal predictions in float32, {NUM_REDRAWS} redraws or resamples; a second call "
        f"(the first one compiles), and growth of the peak memory of the process by both. "
        f"{len(jax.devices())} {jax.devices()[0].platform.upper()} device, load of the machine "
        f"{load} at the start and {clocks.machine_load()} at the end."
    )
    name = "benchmark_growth_quick" if options.quick else "benchmark_growth"
    write_table(run.output, name, rows, note, show=True)
    growth_figures.draw(run.output, name, rows)


if __name__ == "__main__":
    main()
