"""Options of the command line."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import calibjax
from calibjax.command_line.columns import KINDS, TASKS
from calibjax.command_line.compilation import NO_CACHE

DEMOS = "digits", "diabetes"  # predictions that ship with the package
_DEMO_FOLDER = Path(__file__).parent / "demo"

DESCRIPTION = """\
Are the predictions of a file calibrated? Prints what is wrong, how much, and how sure that is;
--report writes a page with figures. Columns are found by their names:

  prob_NAME ...        probabilities of classes          label: one of the names
  prob                 probability of label 1            label: 0 or 1
  logit_NAME ...       logits of classes                 label: one of the names
  loc, scale           normal distributions              target
  member_NAME ...      members of ensembles              target
  quantile_LEVEL ...   quantiles                         target
  group, group_NAME    groups that are looked at, too
  feature_NAME ...     features that are looked at, too

or named by --task, --target and --predictions. Names that are usual elsewhere, such as y_true,
y_prob, p0, .pred_yes, mean and std, or q0.1, are known, too; where it is not clear what a column
is, an error shows the command that works. Parameters of other families (--task gamma) are columns
of their names. NumPy arrays [n, m] called NAME are columns NAME_0, ..., NAME_m-1.
"""
EPILOG = """\
Exit status: 0 if the predictions have been evaluated, 2 if a file or an option is not as needed.
"""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (--help shows the options)\n")


def _seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**31:
        raise argparse.ArgumentTypeError(f"expected an integer from 0 below 2**31, got {value}")
    return value


def _separator(text: str) -> str:
    text = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character or tab, got {text!r}")
    return text


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line.

    Args:
        arguments: without the name of the program; None for those of the process.

    Raises:
        SystemExit: if they are not as needed, with status 2.
    """
    parser = _Parser(
        prog="calibjax",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        nargs="?",
        help="CSV, TSV, NPY, NPZ or Parquet, by its ending",
    )
    parser.add_argument(
        "--demo",
        nargs="?",
        const="digits",
        metavar="NAME",
        help=f"evaluate a FILE that ships with calibjax, {' or '.join(DEMOS)} (default: digits), "
        "and write the page",
    )
    parser.add_argument("--version", action="version", version=f"calibjax {calibjax.__version__}")
    _add_columns(parser)
    _add_reading(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--report", type=Path, metavar="HTML", help="write a page with figures")
    output.add_argument("--json", action="store_true", help="print JSON instead of a table")
    output.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="of everything random (default: 0)"
    )
    output.add_argument(
        "--float64", action="store_true", help="compute in float64, which takes longer"
    )
    output.add_argument(
        NO_CACHE, action="store_true", help="keep no compiled programs for the next run"
    )
    options = parser.parse_args(arguments)
    options.arguments = list(sys.argv[1:] if arguments is None else arguments)
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
    options.report = options.report or Path(f"calibjax-demo-{options.demo}.html")
    return options


def _add_columns(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "columns", "Names, or patterns such as 'member*'; without names: 1, 2, ...."
    )
    tasks = f"one of {', '.join(TASKS)}; or regression or counts, one of the families of these"
    group.add_argument("--task", choices=(*TASKS, *KINDS), metavar="TASK", help=tasks)
    group.add_argument("--target", metavar="COLUMN", help="the labels or targets")
    group.add_argument(
        "--labels", type=Path, metavar="FILE", help="labels or targets are in a file of their own"
    )
    for name, text in (
        ("--predictions", "in the order of classes, levels or parameters; needs --task"),
        ("--groups", "groups, each column a division of its own"),
        ("--features", "features, all columns together"),
    ):
        group.add_argument(name, nargs="+", metavar="COLUMN", help=text)
    group.add_argument(
        "--weights", metavar="COLUMN", help="weights of the rows, such as survey weights"
    )
    group.add_argument(
        "--first-label", type=int, metavar="N", help="labels count the columns from N (default: 0)"
    )
    group.add_argument(
        "--positive", metavar="NAME", help="the one of two labels whose probability is predicted"
    )
    group.add_argument(
        "--class-names",
        nargs="+",
        metavar="NAME",
        help="the labels of the columns of classes, in their order",
    )
    group.add_argument(
        "--levels", type=float, nargs="+", metavar="LEVEL", help="of the columns of quantiles"
    )


def _add_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--separator",
        type=_separator,
        metavar="CHARACTER",
        help="between values; found out by default",
    )
    group.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="does the first row name the columns? (default: if not all of it are numbers)",
    )
    group.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out rows with a missing value (empty, NA, NaN, ...); the output says how many",
    )
    group.add_argument(
        "--normalize", action="store_true", help="divide rows of probabilities by their sums"
    )
    group.add_argument(
        "--sort-quantiles",
        action="store_true",
        help="sort the quantiles of each row, if they cross",
    )
