"""The program: reads a file, evaluates it, prints, and writes the report."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from calibjax.command_line.columns import choose, target_of
from calibjax.command_line.data import Data, build
from calibjax.command_line.options import parse
from calibjax.command_line.reading import read
from calibjax.command_line.tables import InputError

evaluate = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program.

    Args:
        arguments: without the name of the program; None for those of the process.

    Returns:
        The exit status: 0, or 2 if a file is not as needed, which one line on the standard error
        says.

    Raises:
        SystemExit: with status 2 if the options are not as needed, with status 0 after --help.
    """
    options = parse(arguments)
    try:
        _check_output(options)
        data = load(options)
    except InputError as error:
        print(f"calibjax: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def load(options: Namespace) -> Data:
    """Reads and checks the files that the options name.

    Raises:
        InputError: if they are not as needed.
    """
    table = read(options.file, separator=options.separator, header=options.header)
    targets = table
    if options.labels is not None:
        targets = read(options.labels, separator=options.separator, header=options.header)
    is_own_file = options.labels is not None
    target = target_of(targets, options.target, is_own_file=is_own_file)
    choice = choose(
        table,
        target,
        is_own_file=is_own_file,
        task=options.task,
        predictions=options.predictions,
        groups=options.groups,
        features=options.features,
    )
    return build(
        table,
        targets,
        choice,
        first_label=options.first_label,
        normalize=options.normalize,
        skip_missing=options.skip_missing,
        levels=options.levels,
    )


def _check_output(options: Namespace) -> None:
    """Refuses a place for the report before anything is computed."""
    path: Path | None = options.report
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"--report: expected a file in a folder that can be written, got {path}")
    inputs = [x for x in (options.file, options.labels) if x is not None and x.exists()]
    if path.exists() and any(path.samefile(x) for x in inputs):
        raise InputError(f"--report: expected another file than those that are read, got {path}")
