"""The program: reads a file, evaluates it, prints, and writes the report."""

import calendar
import datetime
import json
import os
import shlex
import sys
import textwrap
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import jax
import numpy as np

import calibjax
from calibjax._core import environment
from calibjax.command_line import page
from calibjax.command_line.columns import Choice, choose, target_of
from calibjax.command_line.compilation import prepare, suitably
from calibjax.command_line.data import Data, build, check_rows
from calibjax.command_line.names import different_labels
from calibjax.command_line.options import parse
from calibjax.command_line.reading import read
from calibjax.command_line.tables import InputError, listed, shown
from calibjax.evaluation import Evaluation, compare, evaluate

_IMPORTS = """\
import jax, jax.numpy as jnp
from calibjax import *
from calibjax import command_line

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
data = command_line.load_models({arguments})
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


def load(arguments: Sequence[str]) -> Data:
    """The predictions and targets that a command line names.

    Args:
        arguments: as those of the program.

    Raises:
        InputError: if a file is not as needed, or there are several.
        SystemExit: if the options are not as needed.
    """
    models = load_models(arguments)
    if len(models) > 1:
        raise InputError(f"expected one file, got {listed(list(models))}; see load_models")
    return next(iter(models.values()))


def load_models(arguments: Sequence[str]) -> dict[str, Data]:
    """The predictions and targets of several files that a command line names.

    Args:
        arguments: as those of the program.

    Returns:
        The data of each file by its name without ending, or by its path if two are named alike.

    Raises:
        InputError: if a file is not as needed, or the targets are not those of the first.
        SystemExit: if the options are not as needed.
    """
    return _read(parse(arguments))[0]


def _read(options: Namespace) -> tuple[dict[str, Data], list[tuple[str, str]]]:
    """What is evaluated, and what a report says of it; several files have the same targets."""
    stems = [path.name.partition(".")[0] for path in options.files]
    is_clear = len(set(stems)) == len(stems)
    names = stems if is_clear else [str(path) for path in options.files]
    if len(set(names)) < len(names):
        raise InputError(f"expected different files, got {listed(names)}")
    found = [_read_as_told(Namespace(**vars(options) | {"file": x})) for x in options.files]
    models = dict(zip(names, (data for data, _ in found), strict=True))
    facts = found[0][1]
    if len(found) == 1:
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
        raise InputError(
            f"{table.path}: expected {len(first.table)} rows as in {path}, got {len(table)}"
        )
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
    used = {*choice.inputs, *(() if is_own_file else (target,))}
    unused = [name for name in table.columns if name not in used]
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
        made=f"Made by calibjax {calibjax.__version__} on {_today()}.",
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
        reason = error.strerror or type(error).__name__
        raise InputError(f"--report: {options.report} cannot be written ({reason})") from None


def _today() -> str:
    """The date in words, such as 3 May 2026."""
    today = datetime.date.today()
    return f"{today.day} {calendar.month_name[today.month]} {today.year}"


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
