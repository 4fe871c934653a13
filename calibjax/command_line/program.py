"""Are the predictions in a file calibrated?

Prints what is wrong, by how much, and how sure that is; --report writes a page with figures.
Several files are compared. These columns are recognised:

  prob_CLASS ...       probabilities of classes          label: one of these classes
  prob                 probability of label 1            label: 0 or 1
  mean, sd             normal distributions              target: a number
  q0.05 ...            quantiles                         target
  member_1 ...         members of ensembles              target
  output_type, output_type_id, value                     observation: forecasts of hubs

All other columns are named by options. Where columns have two meanings, nothing is read, and the
message shows the options. Put FILE first: options that take several columns take all that follows.
Exit status: 0 if the predictions have been evaluated, 1 if the output cannot be written, 2 if a
file or option is wrong.
"""

import argparse
import base64
import contextlib
import dataclasses
import io
import json
import os
import re
import secrets
import shlex
import string
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NoReturn

import jax

import calibjax
from calibjax import _start
from calibjax._core import environment
from calibjax.command_line.reading import (
    Data,
    InputError,
    check_same_rows,
    listed,
    load_file,
    printable,
    refuse,
)
from calibjax.evaluation.assembly import evaluate
from calibjax.evaluation.comparing import compare
from calibjax.evaluation.record import Evaluation, Section, content, to_do

DEMOS = "digits", "diabetes"  # predictions that ship with the package


class _Parser(argparse.ArgumentParser):
    """Reports a wrong option in one line."""

    def error(self, message: str) -> NoReturn:
        line = printable(" ".join(message.split()))
        self.exit(2, f"{self.prog}: {line} (--help shows the options)\n")


# Options, what stands for their values ("...": several), what they are for, and settings.
_OPTIONS: Sequence[tuple[Any, ...]] = (
    ("--target", "COLUMN", "the labels or targets"),
    ("--probability", "COLUMN", "the probability of the label --positive"),
    ("--positive", "VALUE", "the label whose probability is predicted"),
    ("--classes", "COLUMN=VALUE ...", "probabilities of these labels"),
    ("--mean", "COLUMN", "the mean of normal distributions"),
    ("--sd", "COLUMN", "their standard deviation"),
    ("--quantiles", "LEVEL=COLUMN ...", "quantiles of these levels"),
    ("--members", "COLUMN ...", "members of ensembles, names or patterns such as 'member*'"),
    ("--lower", "COLUMN", "the lower end of central prediction intervals"),
    ("--upper", "COLUMN", "their upper end"),
    ("--level", "LEVEL", "their probability, such as 0.9", {"type": float}),
    ("--models", "COLUMN ...", "probabilities of --positive by several models; compared"),
    ("--groups", "COLUMN ...", "groups, each column a division of its own"),
    ("--features", "COLUMN ...", "features, all columns together"),
    ("--weights", "COLUMN", "weights of the rows, such as survey weights", {"nargs": 1}),
    ("--clusters", "COLUMN", "clusters of dependent rows, for comparisons", {"nargs": 1}),
    ("--sep", "CHARACTER", "between values, or tab (default: comma; tab in .tsv)"),
    ("--decimal", "MARK", "decimal mark (default: a point)", {"choices": (".", ",")}),
    ("--na", "TEXT ...", "more texts for missing values, besides NA, NaN, null, ?, ..."),
    ("--skip-missing", "", "leave out rows with a missing value; the output says how many"),
    ("--report", "HTML", "write a page with figures", {"type": Path}),
    ("--json", "", "print JSON instead of a table"),
    ("--seed", "N", "seed of all random numbers (default: 0)", {"type": int, "default": 0}),
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line.

    Args:
        arguments: without the name of the program.

    Raises:
        SystemExit: if they are not as needed, with status 2.
    """
    parser = _Parser(
        prog="calibjax",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    files = "CSV or TSV; several are models of the same targets"
    parser.add_argument("files", nargs="*", metavar="FILE", help=files, type=Path)
    parser.add_argument("--version", action="version", version=f"calibjax {calibjax.__version__}")
    demo = "evaluate a FILE that ships with calibjax (default: digits), and write the page"
    parser.add_argument("--demo", nargs="?", const="digits", choices=DEMOS, help=demo)
    for name, value, words, *settings in _OPTIONS:
        more: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
        if value.endswith(" ..."):
            more = {"metavar": value.removesuffix(" ..."), "nargs": "+"}
        parser.add_argument(name, help=words, **more, **dict(*settings))
    options = parser.parse_args(arguments)
    if options.demo is not None and options.files:
        parser.error(f"--demo: expected no FILE, since it brings its own, got {options.files[0]}")
    if options.demo is not None:
        options.files = [Path(__file__).parent / "demo" / f"{options.demo}.csv"]
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
    environment.compile_quickly()
    if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:  # but of programs that run long
        jax.config.update("jax_disable_most_optimizations", True)
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    with contextlib.suppress(OSError, RuntimeError):  # there is no home, or it cannot be written to
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "calibjax")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def say(line: str) -> None:
    """A line on the standard error, if that is possible."""
    with contextlib.suppress(OSError):
        print(printable(f"calibjax: {line}"), file=sys.stderr, flush=True)


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
    data = _read(options)
    evaluation = _evaluated(options, data)
    if options.report is not None:
        say("figures and report")
        _write(options.report, printable(_page(evaluation, data, options, arguments)))
    if options.json:
        return json.dumps({"input": data.facts} | json.loads(evaluation.to_json()), indent=2)
    facts = (f"{name}: {x}" for name, x in data.facts.items())
    return printable("\n".join([*facts, "", str(evaluation)]))


def _write(path: Path, content: str) -> None:
    """Writes a file completely or not at all; links are followed, and its mode stays."""
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".calibjax-{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content.encode())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(*arguments: str | Path | Sequence[str | Path]) -> Data:
    """The predictions and targets that a command line names.

    Args:
        *arguments: files and options, as the program takes them; or a list of them.

    Raises:
        InputError: if a file is not as needed, or its targets are not those of the first.
        SystemExit: if the options are not as needed.

    >>> from calibjax import command_line
    >>> data = command_line.load("predictions.csv", "--target", "y")  # doctest: +SKIP
    """
    several = ([x] if isinstance(x, str | Path) else x for x in arguments)
    return _read(parse([str(x) for one in several for x in one]))


def _read(options: Namespace) -> Data:
    """The predictions in all files, which have the same targets."""
    names = [path.name.partition(".")[0] for path in options.files]
    if len({*names}) < len(names):
        refuse("FILE", "files of different names", listed(names))
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
    facts = {"computed by": f"calibjax {calibjax.__version__}"}
    facts["file"] = "; ".join(map(str, options.files))
    for name, data in models.items():
        facts[f"model {name}" if others else "predictions"] = data.facts.pop("predictions")
    facts |= first.facts | {"seed": str(options.seed)}
    predictions: Any = {name: data.predictions for name, data in models.items()}
    predictions = predictions if others else first.predictions
    return dataclasses.replace(first, predictions=predictions, facts=facts)


def _evaluated(options: Namespace, data: Data) -> Evaluation:
    call: Any = compare if isinstance(data.predictions, Mapping) else evaluate
    arguments = jax.random.key(options.seed), data.predictions, data.targets
    try:
        return call(*arguments, **data.options, progress=lambda name, *_: say(name))
    except ValueError as error:
        place = ", ".join(map(str, options.files))
        row = re.search(r"got (?:predictions|targets|weights)[\w.]*\[(\d+)", str(error))
        place += f", row {data.table.rows[int(row[1])]}" if row else ""
        reason = str(error).replace("jax_enable_x64", "the environment variable JAX_ENABLE_X64=1")
        raise InputError(f"{place}: {reason}") from error


def _check_output(options: Namespace) -> None:
    """Refuses a place for the report before anything is computed."""
    if options.report is None:
        return
    path = Path(os.path.realpath(options.report))
    is_input = any(x.exists() and path.exists() and path.samefile(x) for x in options.files)
    is_other = path.exists() and not path.is_file()  # a folder or device
    if is_input or is_other or not os.access(path.parent, os.W_OK):
        refuse("--report", "another file in a folder that can be written", options.report)


def _page(evaluation: Evaluation, data: Data, options: Namespace, arguments: Sequence[str]) -> str:
    """HTML of a report: what was found and what to do, figures, numbers, how to get them again.

    Args:
        evaluation: what was found.
        data: what was evaluated.
        options: the command line, see `parse`.
        arguments: its words.
    """
    is_one = not isinstance(data.predictions, Mapping)
    files = listed([path.name for path in options.files])
    texts = {
        "title": f"{'Calibration' if is_one else 'Comparison'} of {files}",
        "arguments": str([*arguments]),
        "seed": str(options.seed),
        "call": "evaluate" if is_one else "compare",
        "command": f"python -m calibjax {shlex.join(arguments)}",
    }
    parts = {
        "style": [Path(__file__).with_name("style.css").read_text("utf-8")],
        "description": [escape(evaluation.description)],
        "verdict": map(escape, evaluation.sentences[:1]),
        "sentences": map(environment.paragraph, evaluation.sentences[1:]),
        "advice": to_do(evaluation.advice),
        "figures": _figures(evaluation),
        "sections": map(_section, range(len(evaluation.sections)), evaluation.sections),
        "notes": (environment.paragraph(note, "remark") for note in evaluation.notes),
        "facts": environment.table((), [*data.facts.items()]),
        "calls": (
            f"<dt>{escape(entry.name)}</dt><dd><code>{escape(entry.call)}</code></dd>"
            for entry in evaluation.entries
            if entry.call
        ),
    }
    template = string.Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    parts |= {name: [escape(text)] for name, text in texts.items()}
    return template.substitute({name: "\n".join(lines) for name, lines in parts.items()})


def _section(index: int, section: Section) -> str:
    """Heading, tables and words; or what opens on demand."""
    name, title, lines = f"section-{index}", escape(section.title), "\n".join(content(section))
    if section.is_detail:
        return f'<details id="{name}"><summary>{title}</summary>\n{lines}\n</details>'
    return f'<h2 id="{name}">{title}</h2>\n{lines}'


def _figures(evaluation: Evaluation) -> Iterator[str]:
    """Drawings (SVG) as data: addresses, the same for the same figure, and their captions."""
    try:
        import matplotlib

        figures = evaluation.figures()
    except ImportError as error:
        yield environment.paragraph(f"The figures are left out: {error}", "remark")
        return
    for name, figure in figures.items():
        file = io.BytesIO()
        # Text stays text only if the reader has the font; as curves it looks the same for all.
        with matplotlib.rc_context({"svg.hashsalt": "calibjax", "svg.fonttype": "path"}):
            figure.savefig(file, format="svg", metadata={"Date": None}, facecolor="white")
        address = f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"
        caption, title = escape(evaluation.captions[name]), escape(name[:1].upper() + name[1:])
        words = f"<figcaption><strong>{title}.</strong> {caption}</figcaption>"
        yield f'<figure><img src="{address}" alt="{title}. {caption}">\n{words}\n</figure>'
