"""The command line of all experiments: those of the papers, and our own studies."""

import argparse
import dataclasses
import functools
import gc
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from calibjax._core.environment import compile_quickly
from experiments.harness import source
from experiments.harness.cells import Store
from experiments.harness.data_files import DOWNLOAD, DataError, existing_file, read_table
from experiments.harness.extras import MissingExtra
from experiments.harness.messages import log

PRESETS = ("quick", "medium", "paper")  # of the experiments of the papers


@dataclasses.dataclass(frozen=True)
class Run:
    """Options of a run.

    Attributes:
        preset: name of the sizes, one of `PRESETS`; None for studies that have options for them.
        data: folder with the published data, or None.
        output: folder that the presets write their folders to.
        trust: whether cells that were computed by other code are kept.
    """

    preset: str | None
    data: Path | None
    output: Path
    trust: bool = False

    def folder(self, experiment: str) -> Path:
        """Folder of the results of an experiment, created if it is missing."""
        folder = self.output / (self.preset or "") / experiment
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def store(self, experiment: str, file: str) -> Store:
        """Store of the cells of an experiment; a line says so if some are of other code.

        Args:
            experiment: name of the experiment.
            file: `__file__` of its module.
        """
        store = Store(self.folder(experiment), source.fingerprint(file), self.trust)
        stale, number = store.stale()
        if stale:
            then = (
                "they are kept (--trust-cells), even those of older versions whose files do not "
                "say which cell they hold."
                if self.trust
                else "what is needed of them is computed again (--trust-cells keeps them)."
            )
            log(f"{experiment}: the code has changed since {stale} of {number} cells; {then}")
        return store

    def published(
        self, *parts: str, columns: Mapping[str, type] | None = None
    ) -> list[dict[str, str]] | None:
        """Rows of a CSV file of published numbers; None, and a line that says so, without data.

        A folder that is not below --data counts as data that was not given, since not everybody
        gets all of it.

        Args:
            parts: folders and name of the file below --data.
            columns: the columns that are needed, by name: `str`, `float`, or `int`.

        Raises:
            DataError: if the folder is there and does not hold the file, or not these columns.
        """
        if self.data is None or not self.data.joinpath(*parts[:-1]).is_dir():
            without = "No --data" if self.data is None else f"No {'/'.join(parts[:-1])} in --data"
            log(f"{without}: the published numbers of {'/'.join(parts)} are left empty.")
            return None
        return read_table(existing_file(self.data, *parts), columns or {})


def existing_folder(text: str) -> Path:
    """Option type: a folder that is there."""
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got {path}")
    return path


def output_folder(text: str) -> Path:
    """Option type: a folder that can be written to, or one that can be made."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, got the file {path}")
    try:  # before hours of work, and without leaving anything
        existing = next(folder for folder in (path, *path.parents) if folder.exists())
        with tempfile.TemporaryDirectory(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        expected = "expected a folder that can be written to"
        raise argparse.ArgumentTypeError(f"{expected}, got {path} ({reason})") from None
    return path


def positive_integer(text: str) -> int:
    """Option type: an integer above zero."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer above zero, got {value}")
    return value


def option_parser(
    file: str,
    description: str | None,
    *,
    data: Literal["none", "optional", "required"] = "none",
    presets: Sequence[str] = (),
    only: Collection[str] = (),
) -> argparse.ArgumentParser:
    """Parser with the options that an experiment asks for; more may be added to it.

    Args:
        file: `__file__` of the module that is run, from which its name and the default of --output
            follow.
        description: what it does; the first line is taken.
        data: whether there is an option --data.
        presets: what --preset accepts, the default first; without any there is no such option.
        only: names that --only accepts, all of them the default; without any there is no such
            option.
    """
    module = source.name_of(file)
    room = module.partition(".")[0]
    summary = (description or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=summary)
    if presets:
        parser.add_argument(
            "--preset", choices=presets, default=presets[0], help=f"default: {presets[0]}"
        )
    if data != "none":
        parser.add_argument(
            "--data",
            type=existing_folder,
            required=data == "required",
            metavar="DIR",
            help=f"folder with the public data, as `{DOWNLOAD}` makes it",
        )
    parser.add_argument(
        "--output",
        type=output_folder,
        metavar="DIR",
        default=source.ROOT / room / "output",
        help=f"default: {room}/output",
    )
    parser.add_argument(
        "--trust-cells",
        action="store_true",
        help="keep stored results that were computed before the code changed",
    )
    if only:
        text = f"some of {', '.join(only)}"
        parser.add_argument(
            "--only", nargs="+", choices=[*only], default=[*only], metavar="NAME", help=text
        )
    return parser


def parse(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
) -> tuple[Run, argparse.Namespace]:
    """Reads the command line.

    Args:
        parser: made by `option_parser`.
        arguments: the arguments; None for those of the process.

    Returns:
        The options that all experiments share, and all of them.
    """
    options = parser.parse_args(arguments)
    found = vars(options)
    shared = found.get("preset"), found.get("data"), options.output, options.trust_cells
    return Run(*shared), options


def program(main: Callable[..., None]) -> Callable[..., None]:
    """Decorates the function that a program runs.

    Where the data of the user, or a package, is not as needed, it ends with one line that says so
    and with the exit status of wrong arguments, 2.
    """

    @functools.wraps(main)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            main(*arguments, **options)
        except (DataError, MissingExtra) as error:
            log(str(error), sys.stderr)
            raise SystemExit(2) from None

    return wrapped


def set_up(run: Run) -> None:
    """Sets JAX up for experiments of a paper, before anything is computed.

    They are in float64. Those of the quick preset have so little data that compilation takes most
    of their time: their programs are not optimised, which a line says, and memory of Python's own
    is rarely searched, which takes a tenth of the time that it takes to trace programs.
    """
    jax.config.update("jax_enable_x64", True)
    if run.preset == "quick":
        log("Preset quick: programs are not optimised, so that times in its tables say little.")
        jax.config.update("jax_disable_most_optimizations", True)
        gc.set_threshold(200_000)
        compile_quickly()


@program
def main(
    experiment: Callable[[Run], None], file: str, description: str | None, *, data: bool = False
) -> None:
    """Runs one experiment of a paper from the command line, in float64.

    Args:
        experiment: runs it.
        file: `__file__` of its module.
        description: what it does; the first line is taken.
        data: whether it reads --data.
    """
    needed = "optional" if data else "none"
    parser = option_parser(file, description, presets=PRESETS, data=needed)
    run, _ = parse(parser)
    set_up(run)
    experiment(run)
