"""Options of the command line."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import calibjax
from calibjax.command_line.columns import TASKS
from calibjax.command_line.compilation import NO_CACHE

DEMOS = "digits", "diabetes"  # predictions that ship with the package
_DEMO_FOLDER = Path(__file__).parent / "demo"

DESCRIPTION = """\
Are the predictions in a file calibrated? Prints what is wrong, by how much, and how sure that is;
--report writes a page with figures. Several files are compared. Columns are found by their names:

  prob_NAME ...        probabilities of classes          label: one of the names
  prob                 probability of label 1            label: 0 or 1
  logit_NAME ...       logits of classes                 label: one of the names
  loc, scale           normal distributions              target
  member_NAME ...      members of ensembles              target
  quantile_LEVEL ...   quantiles                         target
  group, group_NAME    groups, which are tested one by one
  feature_NAME ...     features, given which the predictions are tested

or named by --task, --target and --predictions. Columns of classes may be called as the labels are,
loc and scale mean and sd, quantiles q0.1. Where it is unclear what a column is, an error says what
was found. Parameters of other families (--task gamma) are columns of their names. NumPy arrays
[n, m] called NAME are columns NAME_0, ..., NAME_m-1.
"""
EPILOG = """\
Exit status: 0 if the predictions have been evaluated, 2 if a file or an option is wrong.
"""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (--help shows the options)\n")


def _seed(text: str) -> int:
    value = int(text) if text.isdecimal() else -1
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"expected an integer from 0 below 2**31, got {text}")
    return value


def _separator(text: str) -> str:
    text = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character or tab, got {text!r}")
    return text


def _value(name: str, text: str, kind: Callable[[str], Any] = str, **more: Any) -> dict[str, Any]:
    return {"metavar": name, "help": text, "type": kind, **more}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


_TASKS = f"one of {', '.join(TASKS)}"
_SHIPPED = f"evaluate a FILE that ships with calibjax, {' or '.join(DEMOS)} (default: digits), and "
_NAMED = "does the first row name the columns? (default: yes if it is not all numbers)"
_MISSING = "leave out rows with a missing value (empty, NA, NaN, ...); the output says how many"
_OPTIONS: Mapping[str, tuple[str | None, Mapping[str, Mapping[str, Any]]]] = {
    "": (
        None,
        {"--demo": _value("NAME", f"{_SHIPPED}write the page", nargs="?", const="digits")},
    ),
    "columns": (
        "Names, or patterns such as 'member*'; without names: 1, 2, ....",
        {
            "--task": _value("TASK", _TASKS, choices=TASKS),
            "--target": _value("COLUMN", "the labels or targets"),
            "--labels": _value("FILE", "labels or targets are in a file of their own", Path),
            "--predictions": _value(
                "COLUMN", "in the order of classes, levels or parameters; needs --task", nargs="+"
            ),
            "--groups": _value("COLUMN", "groups, each column a division of its own", nargs="+"),
            "--features": _value("COLUMN", "features, all columns together", nargs="+"),
            "--weights": _value("COLUMN", "weights of the rows, such as survey weights"),
            "--first-label": _value("N", "labels count the columns from N", int),
            "--positive": _value("NAME", "the one of two labels whose probability is predicted"),
            "--class-names": _value(
                "NAME", "the labels of the columns of classes, in their order", nargs="+"
            ),
            "--levels": _value("LEVEL", "of the columns of quantiles", float, nargs="+"),
        },
    ),
    "reading": (
        None,
        {
            "--separator": _value(
                "CHARACTER", "between values (default: a comma, of .tsv a tab)", _separator
            ),
            "--header": {"choices": ("auto", "yes", "no"), "default": "auto", "help": _NAMED},
            "--skip-missing": _flag(_MISSING),
            "--normalize": _flag("divide rows of probabilities by their sums"),
            "--sort-quantiles": _flag("sort the quantiles of each row, if they cross"),
        },
    ),
    "output": (
        None,
        {
            "--report": _value("HTML", "write a page with figures", Path),
            "--repairs": _flag("ask which recalibration repairs the model, which takes a minute"),
            "--json": _flag("print JSON instead of a table"),
            "--seed": _value("N", "seed of all random numbers (default: 0)", _seed, default=0),
            "--float64": _flag("compute in float64, which takes longer"),
            NO_CACHE: _flag("keep no compiled programs for the next run"),
        },
    ),
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line.

    Args:
        arguments: without the name of the program; None for those of the process.

    Raises:
        SystemExit: if they are not as needed, with status 2.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    parser = _Parser(
        prog="calibjax",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    files = "CSV, TSV, NPY, NPZ or Parquet, by its ending; several are models of the same targets"
    parser.add_argument("files", nargs="*", **_value("FILE", files, Path))
    parser.add_argument("--version", action="version", version=f"calibjax {calibjax.__version__}")
    for title, (description, group_of) in _OPTIONS.items():
        group = parser.add_argument_group(title, description) if title else parser
        for name, settings in group_of.items():
            group.add_argument(name, **settings)
    options = parser.parse_args(arguments)
    options.file = next(iter(options.files), None)
    if options.repairs and len(options.files) > 1:
        parser.error(f"--repairs: expected one FILE, got {len(options.files)}")
    return _with_demo(parser, options)


def _with_demo(parser: _Parser, options: argparse.Namespace) -> argparse.Namespace:
    """Options with the file, and the place of the report, that --demo stands for."""
    if options.demo is None:
        if options.file is None:
            parser.error("the following arguments are required: FILE (or --demo)")
        return options
    if options.demo not in DEMOS:
        expected = f"expected {' or '.join(DEMOS)}, and no FILE"
        parser.error(f"--demo: {expected}, got {options.demo}")
    if options.file is not None:
        parser.error(f"--demo: expected no FILE, since it brings its own, got {options.file}")
    options.file = _DEMO_FOLDER / f"{options.demo}.csv"
    options.files = [options.file]
    options.report = options.report or Path(f"calibjax-demo-{options.demo}.html")
    return options
