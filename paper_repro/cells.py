"""What all experiments share: options, resumable cells, tables, figures.

A cell is the smallest piece of an experiment that is computed, stored and resumed on its own. Its
random key is derived from its name, so that every order and every subset of the cells gives the
same numbers. Its file records the parameters it was computed with, among them a digest of the data
that it depends on, and is computed again where they differ, or where it is damaged.
"""

import argparse
import csv
import dataclasses
import functools
import hashlib
import io
import json
import os
import platform
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np
from matplotlib.figure import Figure
from PIL import Image  # comes with matplotlib
from tqdm import tqdm

from paper_repro.extras import MissingExtra
from paper_repro.readers import DataError, existing_file, read_table

PRESETS = ("quick", "paper")
OUTPUT = Path(__file__).parent / "output"


@dataclasses.dataclass(frozen=True)
class Run:
    """Options of a run.

    Attributes:
        preset: "quick" or "paper".
        data: folder with the published numbers, or None.
        output: folder that the presets write their folders to.
        npz: files with data of the user's own, see `l21_classifiers`.
    """

    preset: str
    data: Path | None
    output: Path
    npz: tuple[Path, ...] = ()

    def folder(self, experiment: str) -> Path:
        """Folder of the results of an experiment, created if it is missing."""
        folder = self.output / self.preset / experiment
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def published(
        self, *parts: str, columns: Mapping[str, type] | None = None
    ) -> list[dict[str, str]] | None:
        """Rows of a CSV file of published numbers; None, and a line that says so, without data.

        Args:
            parts: folders and name of the file below --data.
            columns: the columns that are needed, by name: `str`, `float`, or `int`.

        Raises:
            DataError: if the folder given by --data does not hold the file, or not these columns.
        """
        if self.data is None:
            log(f"No --data: the published numbers of {'/'.join(parts)} are left empty.")
            return None
        return read_table(existing_file(self.data, *parts), columns or {})


def log(message: str, file: TextIO | None = None) -> None:
    """Prints a line without breaking a progress bar, to the standard output by default."""
    tqdm.write(message, file=file)


def existing_folder(text: str) -> Path:
    """Option type: a folder that is there."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got {path}")
    return path


def output_folder(text: str) -> Path:
    """Option type: a folder, or one that will be made."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got the file {path}")
    return path


def parse(
    arguments: Sequence[str] | None, prog: str, description: str, experiments: Sequence[str] = ()
) -> tuple[Run, list[str]]:
    """Reads the command line.

    Args:
        arguments: the arguments; None for those of the process.
        prog: how the program is called.
        description: what the program does.
        experiments: names that --only accepts; without any there is no such option.

    Returns:
        The options, and the chosen experiments in their given order.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--preset", choices=PRESETS, default="quick", help="default: quick")
    text = "folder with the published numbers"
    parser.add_argument("--data", type=existing_folder, metavar="DIR", help=text)
    text = "default: paper_repro/output"
    parser.add_argument("--output", type=output_folder, metavar="DIR", default=OUTPUT, help=text)
    parser.add_argument(
        "--npz",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="classifiers for l21_networks beside those of --data: features, confidences, correct, "
        "as described at the top of paper_repro/l21_classifiers.py",
    )
    if experiments:
        parser.add_argument("--only", nargs="+", choices=experiments, metavar="NAME")
    options = parser.parse_args(arguments)
    for path in options.npz:
        if not path.is_file():
            parser.error(f"--npz: expected a file, got {path}")
    chosen = getattr(options, "only", None) or experiments
    run = Run(options.preset, options.data, options.output, tuple(options.npz))
    return run, [name for name in experiments if name in chosen]


def program(main: Callable[..., None]) -> Callable[..., None]:
    """Decorates the function that a program runs.

    Where the data of the user, or a package, is not as needed, it ends with one line that says so
    and with the exit status of wrong arguments, 2.
    """

    @functools.wraps(main)
    def wrapped(*arguments: Any) -> None:
        try:
            main(*arguments)
        except (DataError, MissingExtra) as error:
            log(str(error), sys.stderr)
            raise SystemExit(2) from None

    return wrapped


@program
def main(experiment: Callable[[Run], None], name: str, description: str | None) -> None:
    """Runs one experiment from the command line, in float64."""
    run, _ = parse(None, f"paper_repro.{name}", (description or "").splitlines()[0])
    jax.config.update("jax_enable_x64", True)
    experiment(run)


def key_of(name: str) -> jax.Array:
    """Random key that belongs to a name."""
    digest = hashlib.sha256(name.encode()).digest()
    return jax.random.key(int.from_bytes(digest[:4], "big"))


def write(path: Path, content: str | bytes) -> None:
    """Writes a file that is either there completely or not at all.

    Two processes, or threads, may write the same file. What a process that was killed left behind
    is removed by the next one that writes to the folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_suffix(os.getpid())}")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # or the name may survive a loss of power, and not the content
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _suffix(process: int | str) -> str:
    """End of the names of temporary files of a process of this machine."""
    return f".{platform.node()}-{process}.tmp"


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of processes of this machine that do not run any more."""
    before, after = _suffix("#").split("#")
    with os.scandir(folder) as entries:
        names = [x.name for x in entries if x.name.startswith(".") and x.name.endswith(after)]
    for name in names:
        _, found, process = name.removesuffix(after).rpartition(before)
        if found and process.isdecimal() and not _is_running(int(process)):
            (folder / name).unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":  # where nobody can ask without sending a signal
        return True
    try:
        os.kill(process, 0)  # which sends nothing
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _stored(path: Path, read: Callable[[Path], tuple[Any, Any]], parameters: Any) -> Any:
    """Result in the file of a cell; None where there is none, of these parameters, or a whole one.

    Args:
        path: the file.
        read: reads parameters and result of the file.
        parameters: those of the wanted result.
    """
    if not path.exists():
        return None
    try:
        found, result = read(path)
    except Exception as error:  # what readers of damaged files raise is no closed list
        reason = str(error).partition("\n")[0] or type(error).__name__
        log(f"{path} is damaged ({reason}) and computed again.")
        return None
    return result if found == parameters else None


def cell(
    folder: Path, name: str, parameters: dict[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Result of a cell: read where it was computed with the same parameters, else computed.

    A file that cannot be read is computed again, and a line says so.

    Args:
        folder: folder of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns the result, a dictionary that JSON can hold.
    """
    path = folder / "cells" / f"{name}.json"
    parameters = json.loads(json.dumps(parameters))
    result = _stored(path, _read_json, parameters)
    if result is None:
        result = json.loads(json.dumps(compute(), allow_nan=False))
        write(path, json.dumps({"parameters": parameters, "result": result}))
    return result


def _read_json(path: Path) -> tuple[Any, dict[str, Any]]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    is_cell = isinstance(stored, dict) and stored.keys() == {"parameters", "result"}
    if not (is_cell and isinstance(stored["result"], dict)):
        raise ValueError("expected parameters and a result")
    return stored["parameters"], stored["result"]


def arrays(
    folder: Path,
    name: str,
    parameters: dict[str, Any],
    compute: Callable[[], dict[str, np.ndarray]],
) -> dict[str, np.ndarray]:
    """Result of a cell that consists of arrays: read where it was computed, else computed.

    A file that cannot be read is computed again, and a line says so.

    Args:
        folder: folder of the experiment.
        name: name of the cell, unique within the experiment; it may contain slashes.
        parameters: all that the result depends on beside the code, for data their `digest`;
            stored with it.
        compute: returns arrays by name; no name is "parameters".
    """
    path = folder / "cells" / f"{name}.npz"
    parameters = json.loads(json.dumps(parameters))
    result = _stored(path, _read_npz, parameters)
    if result is None:
        result = compute()
        buffer = io.BytesIO()
        np.savez(buffer, parameters=json.dumps(parameters), **result)
        write(path, buffer.getvalue())
    return result


def _read_npz(path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    stored = np.load(io.BytesIO(path.read_bytes()))
    if not isinstance(stored, np.lib.npyio.NpzFile) or "parameters" not in stored:
        raise ValueError("expected parameters and arrays")
    result = dict(stored)
    return json.loads(str(result.pop("parameters"))), result


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write_table(
    folder: Path, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]], note: str = ""
) -> None:
    """Writes a table as NAME.csv, with all digits, and NAME.md, rounded, with a note below it.

    Args:
        folder: folder of the experiment.
        name: name of the files without suffix.
        header: names of the columns.
        rows: their values: strings, numbers, or None for an empty place.
        note: what a reader of the table has to know, in Markdown.
    """
    rows = list(rows)
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    write(folder / f"{name}.csv", buffer.getvalue())
    lines = [header, ["---"] * len(header), *([_text(value) for value in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    write(folder / f"{name}.md", f"{table}\n" + (f"\n{note.strip()}\n" if note else ""))
    log(f"wrote {folder / name}.md")


def save_figure(folder: Path, name: str, figure: Figure) -> None:
    """Writes a figure as NAME.png, with a palette of 64 colours, which makes it small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)  # a bare Figure draws with Agg
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    write(folder / f"{name}.png", small.getvalue())
    log(f"wrote {folder / name}.png")
