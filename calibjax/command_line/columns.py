"""Which columns are the predictions, and which the targets: by their names, or as options say."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calibjax import distributions
from calibjax.command_line.tables import InputError, Table, as_integer, listed

TARGETS = ("target", "targets", "label", "labels")
# Families with scalar parameters, of which a column each is named after a parameter.
FAMILIES: Mapping[str, type] = {
    "normal": distributions.Normal,
    "laplace": distributions.Laplace,
    "student_t": distributions.StudentT,
    "generalized_normal": distributions.GeneralizedNormal,
    "log_normal": distributions.LogNormal,
    "gamma": distributions.Gamma,
    "beta": distributions.Beta,
    "uniform": distributions.Uniform,
    "poisson": distributions.Poisson,
    "negative_binomial": distributions.NegativeBinomial,
}
# Tasks whose columns are numbered, or named after a class or a level: PREFIX_NAME.
PREFIXES = {"classes": "prob", "logits": "logit", "ensemble": "member", "quantiles": "quantile"}
BINARY = ("prob", "probs")  # without anything behind it: the probability of label 1
BINARY_CLASSES = ("0", "1")
TASKS = ("classes", "binary", "logits", "ensemble", "quantiles", *FAMILIES)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The columns that are used.

    Attributes:
        task: one of `TASKS`.
        predictions: names of columns, in the order of classes, members, levels or parameters.
        suffixes: what distinguishes them: names of the classes, levels, parameters.
        target: name of the column of the targets.
        groups: names of columns of groups.
        features: names of columns of features.
    """

    task: str
    predictions: tuple[str, ...]
    suffixes: tuple[str, ...]
    target: str
    groups: tuple[str, ...]
    features: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """All columns but the target."""
        return (*self.predictions, *self.groups, *self.features)


def parameters(task: str) -> tuple[str, ...]:
    """Names of the parameters of a family of `FAMILIES`."""
    fields = dataclasses.fields(FAMILIES[task])  # pyright: ignore[reportArgumentType]
    return tuple(x.name for x in fields if "constraint" in x.metadata)


def conventional(path: Path, names: Sequence[str], task: str) -> dict[str, str]:
    """Columns of a task by the convention: what distinguishes each, and its name."""
    if task in PREFIXES:
        return _with_prefix(path, names, PREFIXES[task])
    if task == "binary":
        return {name: name for name in names if name in BINARY}
    needed = parameters(task)
    return {x: x for x in needed} if set(needed) <= set(names) else {}


def _with_prefix(path: Path, names: Sequence[str], prefix: str) -> dict[str, str]:
    """The columns PREFIX_NAME, by NAME; plurals and a dot are taken, too."""
    pattern = re.compile(rf"{prefix}s?[_.](.+)", re.S)
    found = [(match[1], name) for name in names if (match := pattern.fullmatch(name))]
    repeated = {x for i, (x, _) in enumerate(found) if x in [y for y, _ in found[:i]]}
    if repeated:
        same = listed([name for x, name in found if x in repeated])
        hint = "; --predictions chooses"
        raise InputError(f"{path}: expected one column for each {prefix}, got {same}{hint}")
    return dict(found)


def _matching(
    table: Table, patterns: Sequence[str], option: str, *, exact: bool = False
) -> tuple[str, ...]:
    """The columns that names or patterns stand for, in the order of the patterns and of the file.

    Raises:
        InputError: if a pattern stands for none, or two of them for the same column.
    """
    found: list[str] = []
    for pattern in patterns:
        matching = [pattern] if pattern in table.columns else []
        if not matching and not exact:
            matching = [x for x in table.columns if fnmatch.fnmatchcase(x, pattern)]
        if not matching:
            raise InputError(
                f"{table.path}: expected a column {pattern} ({option}), got {_names(table)}"
            )
        again = [x for x in matching if x in found]
        if again:
            raise InputError(f"{option}: expected different columns, got {again[0]} twice")
        found += matching
    return tuple(found)


def _names(table: Table) -> str:
    if table.has_names:
        return f"columns {listed([*table.columns])}"
    return f"{len(table.columns)} columns without names"


def target_of(table: Table, target: str | None, *, is_own_file: bool) -> str:
    """The column of the targets.

    Args:
        table: the file.
        target: what --target says.
        is_own_file: whether the file has been given for the targets alone.

    Raises:
        InputError: if there is none, or it is not clear which.
    """
    if target is not None:
        return _matching(table, [target], "--target", exact=True)[0]
    if is_own_file and len(table.columns) == 1:
        return next(iter(table.columns))
    found = [name for name in table.columns if name in TARGETS]
    if len(found) == 1:
        return found[0]
    expected = "one column target or label (or --target COLUMN, --labels FILE)"
    raise InputError(f"{table.path}: expected {expected}, got {listed(found) or _names(table)}")


def choose(
    table: Table,
    target: str,
    *,
    is_own_file: bool,
    task: str | None,
    predictions: Sequence[str] | None,
    groups: Sequence[str] | None,
    features: Sequence[str] | None,
) -> Choice:
    """The columns of predictions, groups and features.

    Args:
        table: the file.
        target: the column of the targets.
        is_own_file: whether the targets are in a file of their own.
        task: what --task says.
        predictions: what --predictions says: names, or patterns such as 'member*'.
        groups: what --groups says.
        features: what --features says.

    Raises:
        InputError: if columns are missing, or it is not clear which ones are meant.
    """
    names = [name for name in table.columns if is_own_file or name != target]
    if predictions:
        if task is None:
            raise InputError(f"--predictions: expected --task, too: one of {', '.join(TASKS)}")
        chosen = _matching(table, predictions, "--predictions")
        suffixes = _suffixes_of(table.path, task, chosen)
    else:
        task, columns = _detected(table, names, task)
        suffixes, chosen = tuple(columns), tuple(columns.values())
    others = {
        option: _matching(table, given, option)
        if given is not None
        else _optional(table.path, names, prefix)
        for option, given, prefix in (
            ("--groups", groups, "group"),
            ("--features", features, "feature"),
        )
    }
    choice = Choice(task, chosen, suffixes, target, others["--groups"], others["--features"])
    if not is_own_file and target in choice.inputs:
        raise InputError(f"--predictions: expected columns beside the target, got {target}")
    _check_number(table, choice)
    return choice


def _optional(path: Path, names: Sequence[str], prefix: str) -> tuple[str, ...]:
    plain = [name for name in names if name in (prefix, f"{prefix}s")]
    return (*plain, *_with_prefix(path, names, prefix).values())


def _suffixes_of(path: Path, task: str, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """What distinguishes columns that --predictions names."""
    if task in FAMILIES:
        return parameters(task)
    if task in PREFIXES:
        by_prefix = _with_prefix(path, chosen, PREFIXES[task])
        if len(by_prefix) == len(chosen):
            return tuple(by_prefix)
    return chosen


def _detected(table: Table, names: Sequence[str], task: str | None) -> tuple[str, dict[str, str]]:
    """The task, and its columns by what distinguishes them."""
    if not table.has_names:
        return _without_names(table, names, task)
    if task is not None:
        columns = conventional(table.path, names, task)
        if not columns:
            needed = " and ".join(parameters(task)) if task in FAMILIES else _convention(task)
            found = f"got {_names(table)}; --predictions names them"
            raise InputError(f"{table.path}: expected columns {needed} ({task}), {found}")
        return task, columns
    found = {x: columns for x in TASKS if (columns := conventional(table.path, names, x))}
    most = max((len(columns) for x, columns in found.items() if x in FAMILIES), default=0)
    # A normal distribution where only loc and scale are there: others have to be asked for.
    fitting = [x for x, columns in found.items() if x not in FAMILIES or len(columns) == most]
    fitting = [x for x in fitting if x not in ("laplace", "log_normal")]
    if len(fitting) > 1:
        raise InputError(
            f"{table.path}: expected --task, got columns that fit {' and '.join(fitting)}"
        )
    if not fitting:
        raise InputError(
            f"{table.path}: expected columns such as prob_0, prob_1 or loc, scale or member_0, "
            f"member_1, got {_names(table)}; --task and --predictions name them"
        )
    return fitting[0], found[fitting[0]]


def _convention(task: str) -> str:
    return "prob" if task == "binary" else f"{PREFIXES[task]}_…"


def _without_names(
    table: Table, names: Sequence[str], task: str | None
) -> tuple[str, dict[str, str]]:
    """All columns but the target, for a task that has to be named."""
    if task is None:
        raise InputError(
            f"{table.path}: expected --task for a file without names of columns: one of "
            f"{', '.join(TASKS)}"
        )
    if task in FAMILIES:
        return task, dict(zip(parameters(task), names, strict=False))
    return task, {str(i): name for i, name in enumerate(names)}


def _check_number(table: Table, choice: Choice) -> None:
    """Refuses too few columns, or too many, for a task."""
    number, task = len(choice.predictions), choice.task
    exact = len(parameters(task)) if task in FAMILIES else 1 if task == "binary" else None
    least = 1 if task == "quantiles" else 2
    if (exact is None and number < least) or (exact is not None and number != exact):
        needed = f"{least} or more" if exact is None else str(exact)
        found = listed(choice.predictions) or "none"
        raise InputError(
            f"{table.path}: expected {needed} columns of predictions ({task}), got {found}"
        )


def labels_of_classes(
    table: Table, target: str, classes: Sequence[str], first: int | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as positions of their columns, integers from 0, [n], and what the file calls them.

    Labels are the names of their classes where these are all numbers, as in prob_1, …, prob_10, or
    where labels are texts; other numbers count the columns from `first`. A label that is no name as
    it is written is compared as an integer: 1.0 is 1, and 1 is 01 where there is no 1.

    Args:
        table: the file with the labels.
        target: their column.
        classes: names of the classes.
        first: number of the first class, 0 by default.

    Raises:
        InputError: if a label is none of the classes.
    """
    texts = table.texts(target, classes)
    if tuple(classes) == BINARY_CLASSES:
        texts = [{"false": "0", "true": "1"}.get(x.lower(), x) for x in texts]
    are_numbers = table.has_only_numbers(target, classes)
    labels = [*classes]
    if first is not None or (are_numbers and not all(x.lstrip("-").isdecimal() for x in classes)):
        labels = [str((first or 0) + i) for i in range(len(classes))]
    order = {name: i for i, name in enumerate(labels)}
    integers = [as_integer(name) for name in labels]
    by_integer = {x: i for i, x in enumerate(integers) if integers.count(x) == 1}
    found = np.array([order.get(x, by_integer.get(as_integer(x), -1)) for x in texts])
    expected = f"one of the labels {listed(labels)}"
    if first is None and are_numbers:
        expected += " (--first-label counts them from another number)"
    table.refuse_where(found < 0, expected, target)
    are_counted = all(x.isdecimal() for x in classes)
    return found, tuple(labels if are_counted else classes)
