"""The program: options, settings of the process, the evaluation, and its output."""

import argparse
import contextlib
import datetime
import functools
import hashlib
import json
import os
import platform
import secrets
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax

import calibjax
from calibjax import _start
from calibjax._core.environment import compile_quickly
from calibjax.command_line import page
from calibjax.command_line.reading import (
    Data,
    InputError,
    check_rows,
    check_same_rows,
    listed,
    load_file,
    printable,
    refuse,
)
from calibjax.evaluation.assembly import evaluate
from calibjax.evaluation.comparing import compare
from calibjax.evaluation.record import Evaluation

DEMOS = "digits", "diabetes"  # predictions that ship with the package
_DEMO_FOLDER = Path(__file__).parent / "demo"

DESCRIPTION = """\
Are the predictions in a file calibrated? Prints what is wrong, by how much, and how sure that is;
--report writes a page with figures. Several files are compared. These columns are recognised:

  prob_CLASS ...       probabilities of classes          label: one of these classes
  prob                 probability of label 1            label: 0 or 1
  mean, sd             normal distributions              target: a number
  q0.05 ...            quantiles                         target
  member_1 ...         members of ensembles              target
  output_type, output_type_id, value                     observation: forecasts of hubs

All other columns are named by options. Where columns have two meanings, nothing is read, and the
message shows the options.
Put FILE first: options that take several columns take all that follows. Exit status: 0 if the
predictions have been evaluated, 1 if the output cannot be written, 2 if a file or option is wrong.
"""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong option in one line."""

    def error(self, message: str) -> NoReturn:
        line = printable(" ".join(message.split()))
        self.exit(2, f"{self.prog}: {line} (--help shows the options)\n")


def _separator(text: str) -> str:
    text = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(f"expected one character or tab, got {text!r}")
    return text


# By title: options, what stands for their values, and what they are for. Of several values: "...".
_OPTIONS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "predictions (names of columns, or patterns such as 'member*' where several are taken)": [
        ("--target", "COLUMN", "the labels or targets"),
        ("--probability", "COLUMN", "the probability of the label --positive"),
        ("--positive", "VALUE", "the label whose probability is predicted"),
        ("--classes", "COLUMN=VALUE ...", "probabilities of these labels"),
        ("--mean", "COLUMN", "the mean of normal distributions"),
        ("--sd", "COLUMN", "their standard deviation"),
        ("--quantiles", "LEVEL=COLUMN ...", "quantiles of these levels"),
        ("--members", "COLUMN ...", "members of ensembles"),
        ("--lower", "COLUMN", "the lower end of central prediction intervals"),
        ("--upper", "COLUMN", "their upper end"),
        ("--level", "LEVEL", "their probability, such as 0.9"),
        ("--models", "COLUMN ...", "probabilities of --positive by several models; compared"),
    ],
    "other columns": [
        ("--groups", "COLUMN ...", "groups, each column a division of its own"),
        ("--features", "COLUMN ...", "features, all columns together"),
        ("--weights", "COLUMN", "weights of the rows, such as survey weights"),
        ("--clusters", "COLUMN", "clusters of dependent rows, for comparisons"),
    ],
    "reading": [
        ("--sep", "CHARACTER", "between values (default: comma; tab in .tsv)"),
        ("--decimal", "MARK", "decimal mark (default: a point)"),
        ("--na", "TEXT ...", "more texts for missing values, besides NA, NaN, null, ?, ..."),
        ("--skip-missing", "", "leave out rows with a missing value; the output says how many"),
        ("--percent", "", "probabilities are percentages"),
    ],
    "output": [
        ("--report", "HTML", "write a page with figures"),
        ("--json", "", "print JSON instead of a table"),
        ("--seed", "N", "seed of all random numbers (default: 0)"),
    ],
}
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "--level": {"type": float},
    "--weights": {"nargs": 1},
    "--clusters": {"nargs": 1},
    "--sep": {"type": _separator},
    "--decimal": {"choices": (".", ",")},
    "--report": {"type": Path},
    "--seed": {"type": int, "default": 0},
}
_DEMO = "evaluate a FILE that ships with calibjax (default: digits), and write the page"


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
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    files = "CSV or TSV; several are models of the same targets"
    parser.add_argument("files", nargs="*", metavar="FILE", help=files, type=Path)
    parser.add_argument("--version", action="version", version=f"calibjax {calibjax.__version__}")
    parser.add_argument("--demo", nargs="?", const="digits", choices=DEMOS, help=_DEMO)
    for title, rows in _OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, value, words in rows:
            more: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
            if value.endswith(" ..."):
                more = {"metavar": value.removesuffix(" ..."), "nargs": "+"}
            group.add_argument(name, help=words, **more, **_SETTINGS.get(name, {}))
    options = parser.parse_args(arguments)
    if options.demo is not None and options.files:
        parser.error(f"--demo: expected no FILE, since it brings its own, got {options.files[0]}")
    if options.demo is not None:
        options.files = [_DEMO_FOLDER / f"{options.demo}.csv"]
        options.report = options.report or Path(f"calibjax-demo-{options.demo}.html")
    if not options.files:
        parser.error("the following arguments are required: FILE (or --demo)")
    return options


_LARGEST = 200 * 2**20  # bytes of compiled programs, above which all are removed


def prepare() -> None:
    """Settings of this process, before JAX computes anything.

    Programs are compiled quickly, and kept in the user's cache folder for the next run. The user's
    settings in the environment stay.
    """
    compile_quickly()
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:  # but of programs that run long
        jax.config.update("jax_disable_most_optimizations", True)
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    with contextlib.suppress(OSError, RuntimeError):  # there is no home, or it cannot be written to
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        cache = cache if cache.is_absolute() else Path.home() / ".cache"  # by its specification
        folder = cache / "calibjax" / _machine()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if os.name == "posix" and (status.st_uid != os.getuid() or status.st_mode & 0o077):
            return  # others have access
        programs = [*folder.iterdir()]
        if sum(path.stat().st_size for path in programs) > _LARGEST:
            for path in programs:
                path.unlink(missing_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        if not os.environ.get("JAX_LOGGING_LEVEL"):
            # XLA takes settings of the programs in the cache for those of another processor.
            jax.config.update("jax_logging_level", "CRITICAL")


def _machine() -> str:
    """A name for the kind of processor, which programs are compiled for."""
    described = platform.processor()
    with contextlib.suppress(OSError):  # Linux has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += "".join(sorted({x for x in lines if x.startswith(("flags", "Features"))}))
    return f"{platform.machine()}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"


_IMPORTS = """\
import jax, jax.numpy as jnp
from calibjax import *
from calibjax import command_line, distances, distributions, estimators, hypothesis_tests
from calibjax import kernels, recalibration, scores

"""
_SETUP = """\
data = command_line.load({arguments})
predictions, targets, weights = data.predictions, data.targets, data.weights
groups, features, names = data.groups, data.features, data.classes or None
key = jax.random.key({seed})
options = {{"groups": groups, "features": features, "weights": weights, "class_names": names}}
result = evaluate(key, predictions, targets, **options)"""
_SETUP_OF_SEVERAL = """\
data = command_line.load({arguments})
models = {{name: one.predictions for name, one in data.items()}}
first = next(iter(data.values()))
targets, weights, clusters = first.targets, first.weights, first.clusters
key = jax.random.key({seed})
result = compare(key, models, targets, weights=weights, clusters=clusters)"""


def say(line: str) -> None:
    """A line on the standard error, if that is possible."""
    with contextlib.suppress(OSError):
        print(printable(f"calibjax: {line}"), file=sys.stderr, flush=True)


def say_stage(start: float, name: str, number: int, total: int) -> None:
    """Says that a stage of the evaluation begins, see `evaluate`, and the seconds so far."""
    say(f"{number + 1}/{total} {name} (after {time.monotonic() - start:.0f} s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program.

    Args:
        arguments: without the name of the program; None for those of the process.

    Returns:
        The exit status: 0; 1 if the output cannot be written; 2 if a file is not as needed. One
        line on the standard error tells the reason.

    Raises:
        SystemExit: with status 2 if the options are not as needed, with status 0 after --help.
    """
    is_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if is_process:
        _start.end_if_interrupted()
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        try:
            options = parse(arguments)
        finally:  # --help and --version print
            print(end="", flush=True)
        if is_process:
            prepare()
        print(_result(options, arguments), flush=True)
        if options.demo is not None:
            say(f"the page is {options.report.resolve()}")
        return 0
    except InputError as error:
        status, line = 2, str(error)
    except MemoryError:
        status, line = 2, "the files need more memory than there is; take a sample of the rows"
    except OSError as error:
        status, line = 1, f"the output cannot be written ({error.strerror})"
        if isinstance(error, BrokenPipeError):  # `| head`
            line = ""
        if is_process:  # or Python tries it again at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if line:
        say(line)
    return status


def _result(options: Namespace, arguments: Sequence[str]) -> str:
    """Reads, evaluates and writes the report; what is printed."""
    _check_output(options)
    models = _read(options)
    for data in models.values():
        check_rows(data)
    evaluation = _evaluated(options, models)
    facts = _facts(options, models)
    if options.report is not None:
        say("figures and report")
        content = _page(options, arguments, evaluation, facts, is_one=len(models) == 1)
        try:
            _write(options.report, content)
        except OSError as error:
            place = f"{options.report} cannot be written"
            raise InputError(f"--report: {place} ({error.strerror})") from None
    if options.json:
        return json.dumps({"input": dict(facts)} | json.loads(evaluation.to_json()), indent=2)
    read_from = "\n".join(f"{name}: {value}" for name, value in facts)
    return printable(f"{read_from}\n\n{evaluation}")


def load(*arguments: str | Path | Sequence[str | Path], **options: Any) -> Data | dict[str, Data]:
    """The predictions and targets that a command line names.

    Args:
        *arguments: files, and options as the program takes them; or a list of them.
        **options: more options, such as `target="y"`, `classes=["p1=home", "p2=away"]` or
            `skip_missing=True`.

    Returns:
        The data, or a dictionary of them by the names of several models.

    Raises:
        InputError: if a file is not as needed, or its targets are not those of the first.
        SystemExit: if the options are not as needed.

    >>> from calibjax import command_line
    >>> data = command_line.load("predictions.csv", target="y")  # doctest: +SKIP
    """
    words: list[str] = []
    for argument in arguments:
        several = [argument] if isinstance(argument, str | Path) else argument
        words += map(str, several)
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, str | int | float | Path) and not isinstance(value, bool):
            words.append(f"{option}={value}")
        elif value is not False and value is not None:
            words += [option, *(() if value is True else map(str, value))]
    models = _read(parse(words))
    return models if len(models) > 1 else next(iter(models.values()))


def _read(options: Namespace) -> dict[str, Data]:
    """The models of all files by name, which have the same targets."""
    paths = [*map(str, options.files)]
    stems = [path.name.partition(".")[0] for path in options.files]
    names = stems if len({*stems}) == len(stems) else paths
    if len({*names}) < len(names):
        refuse("FILE", "different files", listed(names))
    models: dict[str, Data] = {}
    for name, path in zip(names, options.files, strict=True):
        for model, data in load_file(path, options).items():
            models[f"{name if len(names) > 1 or not model else ''} {model}".strip()] = data
    first, *others = models.values()
    for other in others:
        check_same_rows(first, other)
    if options.clusters and not others:
        refuse("--clusters", "several models", "one")
    if (options.groups or options.features) and others:
        refuse("--groups and --features", "one model", len(models))
    return models


def _facts(options: Namespace, models: Mapping[str, Data]) -> list[tuple[str, str]]:
    """What was read, by name."""
    first = next(iter(models.values()))
    facts = [("computed by", f"calibjax {calibjax.__version__}")]
    facts.append(("file", "; ".join(map(str, options.files))))
    if len(models) > 1:
        facts += [(f"model {name}", data.facts[0][1]) for name, data in models.items()]
        facts += first.facts[1:]
    else:
        facts += first.facts
    return [*facts, ("seed", str(options.seed))]


def _evaluated(options: Namespace, models: Mapping[str, Data]) -> Evaluation:
    first = next(iter(models.values()))
    progress = functools.partial(say_stage, time.monotonic())
    of_all = {"weights": first.weights, "progress": progress}
    try:
        key = jax.random.key(options.seed)
        if len(models) > 1:
            predictions = {name: one.predictions for name, one in models.items()}
            return compare(key, predictions, first.targets, clusters=first.clusters, **of_all)
        return evaluate(
            key,
            first.predictions,
            first.targets,
            groups=first.groups,
            features=first.features,
            class_names=first.classes or None,
            **of_all,
        )
    except ValueError as error:
        raise InputError(f"{', '.join(map(str, options.files))}: {error}") from error


def _page(
    options: Namespace,
    arguments: Sequence[str],
    evaluation: Evaluation,
    facts: Sequence[tuple[str, str]],
    *,
    is_one: bool,
) -> str:
    missing, addresses = "", {}
    try:
        addresses = {name: page.data_address(x) for name, x in evaluation.figures().items()}
    except ImportError as error:
        missing = f"The figures are left out: {error}"
        say(missing)
    files = listed([path.name for path in options.files])
    setup = _IMPORTS + (_SETUP if is_one else _SETUP_OF_SEVERAL)
    return page.page(
        evaluation,
        title=f"{'Calibration' if is_one else 'Comparison'} of {files}",
        facts=facts,
        pictures=addresses,
        missing=missing,
        made=f"Made by calibjax {calibjax.__version__} on {datetime.date.today()}.",
        setup=setup.format(arguments=arguments, seed=options.seed),
        command=f"python -m calibjax {shlex.join(arguments)}",
    )


def _write(path: Path, content: str) -> None:
    """Writes a file completely or not at all; links are followed, and its mode stays."""
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".calibjax-{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(printable(content).encode())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_output(options: Namespace) -> None:
    """Refuses a place for the report before anything is computed."""
    if options.report is None:
        return
    with contextlib.suppress(OSError):  # of names that are too long
        path = Path(os.path.realpath(options.report))
        inputs = [x for x in options.files if x.exists()]
        is_good = not path.exists() or (path.is_file() and not any(map(path.samefile, inputs)))
        if is_good and os.access(path.parent, os.W_OK):
            return
    expected = "a file that is not read, in a folder that can be written"
    refuse("--report", expected, options.report)
