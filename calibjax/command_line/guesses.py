"""Options that may be missing, guessed from the values of columns whose names say nothing.

Nothing is evaluated by a guess: an error shows it, and the user decides.
"""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from calibjax.command_line.names import are_inside, are_probabilities, common_sum
from calibjax.command_line.tables import InputError, Options, Table

_TRIES = 16  # of commands that may work
_MOST = 4  # guesses of the column of targets
_ROW_NAMES = re.compile(r"|(unnamed.*|index|id|row|rownames|row_?names?|\.row)", re.IGNORECASE)
_NO_SCALE = re.compile(r".*(lo|up|hi|min|max|left|right|q|var|ci|\d).*", re.IGNORECASE)
_NO_MEMBER = re.compile(r"(q\d|.*(quantile|percentile|lower|upper)).*", re.IGNORECASE)
_WITH_DIGITS = re.compile(r"[a-z]+[ _.]?(\d\d+)", re.IGNORECASE | re.ASCII)  # q025, q500, q975
_WITH_NUMBER = re.compile(r"(.*?)[ _.]?\d+", re.ASCII)
_NO_TARGET = re.compile(r".*(pred|prob|score|logit|conf|hat|mean|std|scale|loc).*", re.IGNORECASE)


def targets(table: Table, called: Sequence[str]) -> list[Options]:
    """Which column the targets may be in, the likeliest first.

    Args:
        table: the file.
        called: the columns that are called as targets are.
    """
    names = [*called] or [*table.columns]
    prefixes = [x[1] if (x := _WITH_NUMBER.fullmatch(name)) else None for name in names]
    if table.has_names and not called:  # one column of y_0, y_1, y_2 is not what the labels are
        pairs = zip(names, prefixes, strict=True)
        names = [name for name, prefix in pairs if prefix is None or prefixes.count(prefix) == 1]

    def rank(name: str) -> tuple[bool, bool, bool]:
        values = table.values([name])[:, 0]
        is_fraction = bool((values != np.rint(values)).any()) and not np.isnan(values).all()
        is_named = table.has_names
        return (
            is_named and bool(_ROW_NAMES.fullmatch(name) or _NO_TARGET.fullmatch(name)),
            is_fraction,
            _counts_rows(values),
        )

    if not called:  # the last column is the likeliest of several that look alike
        names = sorted(reversed(names), key=rank)
    return [{"--target": [name]} for name in names[:_MOST]]


def predictions(
    table: Table, names: Sequence[str], labels: Sequence[str], task: str | None
) -> Iterator[Options]:
    """Which columns the predictions may be in, and of which task; the likeliest first.

    Args:
        table: the file.
        names: its columns without the targets.
        labels: the different labels, empty if the targets are no labels.
        task: what --task says.
    """
    values = {name: table.values([name])[:, 0] for name in names}
    numbers = [
        name
        for name, column in values.items()
        if not np.isnan(column).all()
        and not _counts_rows(column)
        and not (table.has_names and _ROW_NAMES.fullmatch(name))
    ]
    found = _of_labels(table, numbers, labels) if labels else iter(())
    if all(x.lstrip("-").isdecimal() for x in labels):
        found = itertools.chain(found, _of_numbers(values, numbers))
    for guess, columns in found:
        if task in (None, guess) and columns:
            named = {"--predictions": _shortened(table, columns)} if table.has_names else {}
            levels = {"--levels": _digits(columns)} if guess == "quantiles" else {}
            yield {"--task": [guess], **named, **levels}


def _of_labels(
    table: Table, numbers: Sequence[str], labels: Sequence[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    inside = [name for name in numbers if are_inside(table, [name])]
    if are_probabilities(table, inside):
        yield "classification", inside
    for name in inside if len(labels) <= 2 else ():
        values = table.values([name])
        if (values != np.rint(values)).any():  # others are predicted labels
            yield "binary", [name]
    are_logits = len(numbers) > 2 and len(numbers) == len(labels) and not inside
    if are_logits and common_sum(table, numbers) is None:  # percentages are not
        yield "logits", numbers


def _of_numbers(
    values: dict[str, np.ndarray], numbers: Sequence[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    levels = _digits(numbers)
    if len(levels) > 1 and levels == sorted({*levels}):
        yield "quantiles", numbers
    if len(numbers) == 2 and not any(map(_NO_SCALE.fullmatch, numbers)):
        for loc, scale in itertools.permutations(numbers):
            if (values[scale] > 0).all():
                yield "normal", [loc, scale]
    if len(numbers) > 2 and not any(map(_NO_MEMBER.fullmatch, numbers)):
        yield "ensembles", numbers


def _digits(names: Sequence[str]) -> list[str]:
    """The levels of columns such as q025, q500, q975: 0.025, 0.500, 0.975; none for others."""
    found = [x[1] for name in names if (x := _WITH_DIGITS.fullmatch(name))]
    return [f"0.{x}" for x in found if int(x)] if len(found) == len(names) else []


def _counts_rows(column: np.ndarray) -> bool:
    """Whether these are numbers of rows."""
    return len(column) > 1 and column[0] in (0, 1) and bool((np.diff(column) == 1).all())


def _shortened(table: Table, names: Sequence[str]) -> Sequence[str]:
    """A pattern for exactly these columns, if there are many and one exists."""
    if len(names) <= 8:
        return names
    for prefix in (re.match(r"[^\d\[*?]*", names[0]), re.match("", "")):
        pattern = f"{prefix[0] if prefix else ''}[0-9]*"
        found = [x for x in table.columns if re.match(rf"{re.escape(pattern[:-6])}[0-9]", x)]
        if found == [*names]:
            return [pattern]
    return names


def advised(
    error: InputError, arguments: Sequence[str], read: Callable[[Sequence[str]], object]
) -> InputError:
    """The error, with a command line that has been tried, and that reads the files.

    Args:
        error: what is wrong with the files, or with the options.
        arguments: the command line that they came from.
        read: reads what a command line names, or raises an `InputError`.
    """
    waiting = [_with(arguments, x) for x in error.options]
    for _ in range(_TRIES):
        if not waiting:
            break
        candidate = waiting.pop(0)
        command = f"python -m calibjax {shlex.join(candidate)}"
        if not command.isprintable() or " ".join(command.split()) != command:
            continue  # a message is one line
        try:
            read(candidate)
        except InputError as another:
            waiting[:0] = [_with(candidate, x) for x in another.options]
        else:
            return InputError(f"{error}; try: {command}")
    return error


def _with(arguments: Sequence[str], options: Options) -> list[str]:
    """A command line with further options, which count more than those before."""
    words: list[str] = []
    arguments = [*arguments]
    for option, values in options.items():
        place = arguments.index(option) if option in arguments else len(arguments)
        is_option = [x.startswith("--") for x in arguments[place + 1 : place + 3]]
        if is_option in ([False], [False, True]):  # it has one value
            del arguments[place : place + 2]
        begins = any(x.startswith("-") for x in values)  # after an equals sign they are values, too
        words += [f"{option}={x}" for x in values] if begins else [option, *values]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], *words, *arguments[end:]]
