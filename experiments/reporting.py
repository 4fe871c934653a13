"""What the experiments share: options, data files, tables of records, clocks."""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from paper_repro import cells

DEFAULT_OUTPUT = Path(__file__).parent / "output"


def option_parser(description: str | None, *, needs_data: bool = False) -> argparse.ArgumentParser:
    """Parser with the options that all experiments have."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help="default: experiments/output",
    )
    if needs_data:
        text = "folder of the real data, laid out as their authors publish them"
        parser.add_argument("--data", type=Path, required=True, metavar="DIR", help=text)
    return parser


def positive_integer(text: str) -> int:
    """Option type: an integer above zero."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer above zero, got {value}")
    return value


def data_file(data: Path, *parts: str) -> Path:
    """Path of a file below `--data`.

    Raises:
        SystemExit: if there is no such file.
    """
    path = data.joinpath(*parts)
    if not path.is_file():
        raise SystemExit(f"--data: expected a folder with {'/'.join(parts)}, got {data}")
    return path


def _plain(value: Any) -> Any:
    """A value as Python has it, truth values as words."""
    value = value.item() if isinstance(value, np.generic) else value
    return ("yes" if value else "no") if isinstance(value, bool) else value


def write_records(
    folder: Path, name: str, records: Sequence[dict[str, Any]], note: str = ""
) -> None:
    """Writes records with the same keys as NAME.csv and NAME.md, and prints the latter."""
    header = list(records[0])
    rows = [[_plain(record[column]) for column in header] for record in records]
    cells.write_table(folder, name, header, rows, note)
    print((folder / f"{name}.md").read_text(encoding="utf-8"), flush=True)


def machine_load() -> float | None:
    """Mean number of running processes in the last minute, where the system tells."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


class Seconds(NamedTuple):
    """Time of a call: on the clock, and of all threads of the process together."""

    wall: float
    cpu: float


def minimum_seconds(
    functions: dict[str, Callable[[], Any]], repetitions: int
) -> dict[str, Seconds]:
    """Shortest times of each function over interleaved repetitions, after a call to warm up.

    Interleaving exposes all of them to the same disturbances, and the minimum is what is least
    disturbed. JAX results are waited for.
    """
    for function in functions.values():
        jax.block_until_ready(function())
    times: dict[str, list[Seconds]] = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            jax.block_until_ready(function())
            wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
            times[name].append(Seconds(wall, cpu))
    return {name: Seconds(*map(min, zip(*values, strict=True))) for name, values in times.items()}
