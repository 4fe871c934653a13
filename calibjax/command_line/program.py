"""The program: options, how it compiles, what it evaluates, and what it writes."""

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import platform
import shlex
import sys
import textwrap
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

import jax
import numpy as np

import calibjax
from calibjax._core import environment
from calibjax._core.environment import compile_quickly
from calibjax.command_line import page
from calibjax.command_line.columns import (
    TASKS,
    Choice,
    Data,
    build,
    check_rows,
    choose,
    different_labels,
    target_of,
)
from calibjax.command_line.tables import InputError, listed, read, shown
from calibjax.distributions.base import Distribution
from calibjax.evaluation.assembly import evaluate
from calibjax.evaluation.comparing import compare
from calibjax.evaluation.record import Evaluation

NO_CACHE = "--no-cache"
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
EPILOG = "Exit status: 0 if the predictions have been evaluated, 2 if a file or option is wrong."


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong with the options."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())} (--help shows the options)\n")


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
        {
            "--demo": _value(
                "NAME", f"{_SHIPPED}write the page", nargs="?", const="digits", choices=DEMOS
            )
        },
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
            "--seed": _value("N", "seed of all random numbers (default: 0)", int, default=0),
            "--float64": _flag("compute in float64, which takes longer"),
            NO_CACHE: _flag("keep no compiled programs for the next run"),
        },
    ),
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line.

    Args:
        arguments: without the name of the program.

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
    if options.file is not None:
        parser.error(f"--demo: expected no FILE, since it brings its own, got {options.file}")
    options.file = _DEMO_FOLDER / f"{options.demo}.csv"
    options.files = [options.file]
    options.report = options.report or Path(f"calibjax-demo-{options.demo}.html")
    return options


_LARGEST = 200 * 2**20  # bytes that are kept
_FEW = 20_000  # predicted numbers, up to which compiling well takes longer than it saves


def prepare(*, keeps_programs: bool) -> str:
    """Settings of this process, before JAX computes anything.

    What the user has set in the environment stays.

    Args:
        keeps_programs: in the user's cache folder, for the next run.

    Returns:
        Where programs are kept, in words, if the folder is new; else nothing.
    """
    compile_quickly()
    # XLA warns of each program of the cache that it takes settings for another processor.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not keeps_programs or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return ""
    folder = _user_folder() / "calibjax" / _machine()
    is_new = not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own(folder):
            return f"compiled programs are not kept: others have access to {folder}"
        _forget_oldest(folder)
    except OSError as error:
        return f"compiled programs are not kept: {folder}: {error.strerror}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if not is_new:
        return ""
    text = "the first run compiles its programs, which takes most of its time; they are kept in "
    return f"{text}{folder}; {NO_CACHE} keeps none"


@contextlib.contextmanager
def suitably(predictions: Distribution) -> Iterator[None]:
    """Programs are hardly optimised where that would take longer than they run."""
    is_small = sum(map(np.size, jax.tree.leaves(predictions))) <= _FEW
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, before or is_small)
    try:
        yield
    finally:
        jax.config.update(name, before)


def _is_own(folder: Path) -> bool:
    """Whether a folder belongs to the user, and nobody else may look into it."""
    if not hasattr(os, "getuid"):  # Windows keeps it in the user's profile
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o077


def _machine() -> str:
    """A name for the kind of processor, which programs are compiled for."""
    described = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):  # Linux has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += "".join(sorted({x for x in lines if x.startswith(("flags", "Features"))}))
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


def _user_folder() -> Path:
    """Where programs of this user keep what they can make again."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return cache if cache.is_absolute() else Path.home() / ".cache"  # as the specification says


def _forget_oldest(folder: Path) -> None:
    """Removes the programs that were not used for longest from a folder that has become large."""
    programs = []
    for path in filter(Path.is_file, folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # another process may remove it, too
            status = path.stat()
            programs.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    size = 0
    for _, bytes_, path in sorted(programs, reverse=True):
        size += bytes_
        if size > _LARGEST:
            path.unlink(missing_ok=True)


_IMPORTS = """\
import jax, jax.numpy as jnp
from calibjax import *
from calibjax import command_line, distances, distributions, estimators, hypothesis_tests
from calibjax import kernels, recalibration, scores

jax.config.update("jax_enable_x64", {float64})
"""
_SETUP = """\
data = command_line.load({arguments})
predictions, targets, weights = data.predictions, data.targets, data.weights
groups, features, names = data.groups, data.features, data.classes or None
key = jax.random.key({seed})
options = {{"groups": groups, "features": features, "weights": weights, "class_names": names}}
result = evaluate(key, predictions, targets, **options{repairs})"""
_SETUP_OF_SEVERAL = """\
data = command_line.load({arguments})
models = {{name: one.predictions for name, one in data.items()}}
first = next(iter(data.values()))
targets, weights = first.targets, first.weights
key = jax.random.key({seed})
result = compare(key, models, targets, weights=weights)"""
_OF_SEVERAL = "computed by", "task", "column of targets", "rows", "columns of weights"
_OF_SEVERAL += "computed in", "seed"


class Stages:
    """A line for each stage, with the seconds so far."""

    def __init__(self, file: TextIO, *, has_report: bool) -> None:
        """Writes to `file`; a report is one more stage."""
        self._file = file
        self._more, self._total = int(has_report), 1
        self._start = time.monotonic()

    def __call__(self, name: str, number: int, total: int) -> None:
        """Says that a stage of the evaluation begins, see `evaluate`."""
        self._total = total + self._more
        seconds = time.monotonic() - self._start
        self.say(f"{number + 1}/{self._total} {name} (after {seconds:.0f} s)")

    def report(self) -> None:
        """Says that the report, the last stage, begins."""
        self("figures and report", self._total - 1, self._total - self._more)

    def say(self, message: str) -> None:
        """A line of its own."""
        print(f"calibjax: {message}", file=self._file, flush=True)


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
    is_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = parse(arguments)
    kept = prepare(keeps_programs=not options.no_cache) if is_process else ""
    stages = Stages(sys.stderr, has_report=options.report is not None)
    return _run(options, arguments, stages, kept)


def _run(options: Namespace, arguments: Sequence[str], stages: Stages, kept: str) -> int:
    """Reads, evaluates, prints and writes; the exit status."""
    try:
        _check_output(options)
        models, facts = _read(options)
        group_names = next(iter(models.values())).group_names if len(models) == 1 else ()
        names = [f"{name} (group {i})" for i, name in enumerate(group_names)]
        remarks = [f"Groups are numbered from 0: {listed(names, 100)}."] if names else []
        with jax.enable_x64(options.float64):
            for data in models.values():
                check_rows(data)
        if kept:
            stages.say(kept)
        evaluation = _evaluated(options, models, stages)
        if options.report is not None:
            _write_report(options, arguments, evaluation, facts, remarks, stages)
    except InputError as error:
        print(f"calibjax: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    if options.json:
        about = {"input": dict(facts), "remarks": remarks}
        print(json.dumps(about | json.loads(evaluation.to_json()), indent=2))
    else:
        read_from = "\n".join(f"{name}: {value}" for name, value in facts)
        below = [textwrap.fill(remark, 100) for remark in remarks]
        print("\n\n".join([read_from, str(evaluation), *below]))
    if options.demo is not None and options.report is not None:
        print(f"calibjax: the page is {Path(options.report).resolve()}", file=sys.stderr)
    return 0


def load(arguments: Sequence[str]) -> Data | dict[str, Data]:
    """The predictions and targets that a command line names.

    Args:
        arguments: as those of the program.

    Returns:
        The data of the file. If there are several files, a dictionary of their data by name
        without ending, or by path if two are named alike.

    Raises:
        InputError: if a file is not as needed, or its targets are not those of the first.
        SystemExit: if the options are not as needed.
    """
    models = _read(parse(arguments))[0]
    return models if len(models) > 1 else next(iter(models.values()))


def _read(options: Namespace) -> tuple[dict[str, Data], list[tuple[str, str]]]:
    """What is evaluated, and what a report says of it; several files have the same targets."""
    stems = [path.name.partition(".")[0] for path in options.files]
    is_clear = len(set(stems)) == len(stems)
    names = stems if is_clear else [str(path) for path in options.files]
    if len(set(names)) < len(names):
        raise InputError(f"expected different files, got {listed(names)}")
    files_read = [_read_as_told(Namespace(**vars(options) | {"file": x})) for x in options.files]
    models = dict(zip(names, (data for data, _ in files_read), strict=True))
    facts = files_read[0][1]
    if len(files_read) == 1:
        return models, facts
    first, *others = models.values()
    for other in others:
        _check_same_rows(first, other)
    files = "; ".join(f"{name}: {path}" for name, path in zip(names, options.files, strict=True))
    kept = [(name, value) for name, value in facts if name in _OF_SEVERAL]
    return models, [kept[0], ("models", files), *kept[1:]]


def _check_same_rows(first: Data, other: Data) -> None:
    """Refuses a file whose rows have other targets or weights than those of the first."""
    path, table = first.table.path, other.table
    if len(table) != len(first.table):
        expected = f"{len(first.table)} rows as in {path}"
        raise InputError(f"{table.path}: expected {expected}, got {len(table)}")
    if first.classes != other.classes:
        expected, got = listed(first.classes), listed(other.classes)
        raise InputError(f"{table.path}: expected the classes {expected} as in {path}, got {got}")
    columns = [("target", first.targets, other.targets, other.choice.target)]
    if first.weights is not None and other.weights is not None:
        columns.append(("weight", first.weights, other.weights, other.choice.weights[0]))
    for what, values, others, column in columns:
        bad = np.asarray(values != others)
        if bad.any():
            row = int(bad.argmax())
            expected, got = shown(values[row]), shown(others[row])
            table.refuse(row, f"the {what} {expected} as in {path}", column, got)


def _read_as_told(options: Namespace) -> tuple[Data, list[tuple[str, str]]]:
    how = {"separator": options.separator, "header": options.header}
    is_own_file = options.labels is not None
    table = read(options.file, **how)
    targets = read(options.labels, **how) if is_own_file else table
    target = target_of(targets, options.target, is_own_file=is_own_file)
    labels = different_labels(targets, target)
    choice = choose(table, target, labels, options, is_own_file=is_own_file)
    data = build(table, targets, choice, options)
    chosen = {*choice.inputs, *(() if is_own_file else (target,))}
    unused = [name for name in table.columns if name not in chosen]
    return data, _facts(options, choice, data, unused, table.has_names)


def _facts(
    options: Namespace, choice: Choice, data: Data, unused: Sequence[str], has_names: bool
) -> list[tuple[str, str]]:
    """What was read, by name."""
    version = f"calibjax {calibjax.__version__}"
    facts = [("computed by", version), ("file", str(options.file)), ("task", choice.task)]
    note = "" if has_names else " (counted, since they have no names)"
    facts.append(("columns of predictions", f"{listed(choice.predictions)}{note}"))
    of_file = f" of {options.labels}" if options.labels is not None else ""
    facts.append(("column of targets", f"{choice.target}{of_file}"))
    if choice.task == "binary":
        facts.append(("probability of", f"label {data.classes[1]}"))
    rows = str(len(data.targets))
    if data.num_skipped:
        rows += f" ({data.num_skipped} more were left out, since a value was missing)"
    facts.append(("rows", rows))
    for name, columns in (
        ("groups", choice.groups),
        ("features", choice.features),
        ("weights", choice.weights),
    ):
        if columns:
            facts.append((f"columns of {name}", listed(columns)))
    if data.classes != tuple(map(str, range(len(data.classes)))):
        names = [f"{i}: {name}" for i, name in enumerate(data.classes)]
        facts.append(("classes in the names of kernels", listed(names, 100)))
    if unused:
        facts.append(("columns that were not used", listed(unused)))
    facts.append(("computed in", "float64" if options.float64 else "float32"))
    facts.append(("seed", str(options.seed)))
    return facts


def _evaluated(options: Namespace, models: dict[str, Data], stages: Stages) -> Evaluation:
    data = next(iter(models.values()))

    with jax.enable_x64(options.float64), suitably(data.predictions):
        key = jax.random.key(options.seed)
        try:
            if len(models) > 1:
                predictions = {name: one.predictions for name, one in models.items()}
                return compare(
                    key, predictions, data.targets, weights=data.weights, progress=stages
                )
            return evaluate(
                key,
                data.predictions,
                data.targets,
                groups=data.groups,
                features=data.features,
                weights=data.weights,
                class_names=data.classes or None,
                repairs=options.repairs,
                progress=stages,
            )
        except ValueError as error:
            place = "" if len(models) > 1 else f"{options.file}: "
            raise InputError(f"{place}{error}") from error


def _write_report(
    options: Namespace,
    arguments: Sequence[str],
    evaluation: Evaluation,
    facts: Sequence[tuple[str, str]],
    remarks: Sequence[str],
    stages: Stages,
) -> None:
    """Writes all of the page, or nothing.

    Raises:
        InputError: if it cannot be written.
    """
    stages.report()
    missing, addresses = "", {}
    try:
        addresses = {name: page.data_address(x) for name, x in evaluation.figures().items()}
    except ImportError as error:
        missing = f"The figures are left out: {error}"
        stages.say(missing)
    is_one = len(options.files) == 1
    files_in_words = listed([path.name for path in options.files])
    setup = _IMPORTS + (_SETUP if is_one else _SETUP_OF_SEVERAL)
    content = page.page(
        evaluation,
        title=f"{'Calibration' if is_one else 'Comparison'} of {files_in_words}",
        remarks=remarks,
        facts=facts,
        pictures=addresses,
        missing=missing,
        made=f"Made by calibjax {calibjax.__version__} on {datetime.date.today()}.",
        setup=setup.format(
            arguments=list(arguments),
            seed=options.seed,
            float64=options.float64,
            repairs=", repairs=True" if options.repairs else "",
        ),
        command=f"python -m calibjax {shlex.join(arguments)}",
    )
    try:
        environment.write(options.report, content)
    except OSError as error:
        place = f"{options.report} cannot be written"
        raise InputError(f"--report: {place} ({error.strerror})") from None


def _check_output(options: Namespace) -> None:
    """Refuses a place for the report before anything is computed."""
    path: Path | None = options.report
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"--report: expected a file in a folder that can be written, got {path}")
    inputs = [x for x in (*options.files, options.labels) if x is not None and x.exists()]
    if path.exists() and any(path.samefile(x) for x in inputs):
        raise InputError(f"--report: expected another file than those that are read, got {path}")
