"""Predictions and targets among the columns of a file: by their names, or as options say."""

import dataclasses
import fnmatch
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from calibjax import distributions
from calibjax._core import checks
from calibjax._core.gate import passed
from calibjax.command_line.tables import InputError, Table, as_integer, listed, shown
from calibjax.distributions.base import Distribution
from calibjax.distributions.ensembles import Quantiles
from calibjax.evaluation.data import in_order

BINARY_CLASSES = ("0", "1")
_MOST = 1000  # labels; targets of more different values are numbers
_TRUTH_VALUES = {"false": "0", "true": "1"}


def are_probabilities(table: Table, names: Iterable[str]) -> bool:
    """Whether columns, in [0, 1], sum to one in most rows, up to a mistake here or there."""
    values = table.values(names)
    present = checks.unrounded(values[~np.isnan(values)])
    is_inside = bool(len(present)) and bool(((present >= 0) & (present <= 1)).all())
    is_whole = np.abs(values.sum(1) - 1) < 0.01
    return values.shape[1] > 1 and is_inside and bool(is_whole.mean() > 0.5)


def different_labels(table: Table, target: str) -> tuple[str, ...]:
    """The different labels of a column, in their order; none if it holds fractions.

    Args:
        table: the file with the labels.
        target: their column.
    """
    present = table.take(~table.is_missing(target))
    texts = {as_integer(x) for x in present.texts(target)}
    numbers = present.values([target])[:, 0]
    is_label = np.isnan(numbers) | (numbers == np.rint(numbers))
    return tuple(sorted(texts)) if is_label.all() and len(texts) <= _MOST else ()


def two_labels(table: Table, target: str, column: str, positive: str | None) -> tuple[str, str]:
    """Two labels, of which a column holds the probability of the second.

    Args:
        table: the file with the labels.
        target: their column.
        column: the probabilities.
        positive: what --positive says; None for label 1.

    Raises:
        InputError: if there are other labels.
    """
    labels = different_labels(table, target)
    plain = {_TRUTH_VALUES.get(x.lower(), x) for x in labels}
    if positive is None and plain and plain <= {*BINARY_CLASSES}:
        return BINARY_CLASSES
    if positive is None or len(labels) != 2 or positive not in labels:
        wanted = "labels 0 and 1" if positive is None else f"two labels, one of them {positive},"
        got = f"{listed(labels) or 'numbers'}; --positive says of which of two labels {column} is"
        raise InputError(
            f"{table.path}: expected {wanted} in column {target}, got {got} the probability"
        )
    return next(x for x in labels if x != positive), positive


def labels_of_classes(
    table: Table,
    target: str,
    classes: Sequence[str],
    *,
    first: int | None = None,
    class_names: Sequence[str] | None = None,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as positions of their columns, integers from 0, [n], and what the file calls them.

    Labels are the names of their classes, or count the columns from `first`. A label that matches
    no name exactly is compared as an integer: 1.0 is 1, and 1 is 01 where there is no 1.

    Args:
        table: the file with the labels.
        target: their column.
        classes: names of the classes, as their columns have them.
        first: number of the first class; None if labels are names.
        class_names: other names for them, those of the labels.

    Raises:
        InputError: if a label is none of the classes.
    """
    if class_names is not None and len(class_names) != len(classes):
        expected = f"{len(classes)} names, one for each column of predictions"
        raise InputError(f"--class-names: expected {expected}, got {len(class_names)}")
    classes = class_names or classes
    texts = table.texts(target, classes)
    if tuple(classes) == BINARY_CLASSES:
        texts = [_TRUTH_VALUES.get(x.lower(), x) for x in texts]
    labels = [*classes] if first is None else [str(first + i) for i in range(len(classes))]
    names = [as_integer(name) for name in labels]
    by_name = {x: i for i, x in enumerate(names) if names.count(x) == 1}
    order = {name: i for i, name in enumerate(labels)}
    indices = np.array([order.get(x, by_name.get(as_integer(x), -1)) for x in texts])
    expected = f"one of the labels {listed(labels)}"
    if first is None and class_names is None:
        expected += " (--class-names or --first-label says how the columns are called)"
    table.refuse_where(indices < 0, expected, target)
    are_counted = all(x.isdecimal() for x in classes)
    return indices, tuple(labels if are_counted else classes)


TARGETS = ("target", "targets", "label", "labels", "y_true", "y")

# Families with scalar parameters, of which a column each is named after a parameter.
FAMILIES: Mapping[str, type] = {
    "normal": distributions.Normal,
    "laplace": distributions.Laplace,
    "logistic": distributions.Logistic,
    "student_t": distributions.StudentT,
    "generalized_normal": distributions.GeneralizedNormal,
    "log_normal": distributions.LogNormal,
    "gamma": distributions.Gamma,
    "beta": distributions.Beta,
    "uniform": distributions.Uniform,
    "poisson": distributions.Poisson,
    "negative_binomial": distributions.NegativeBinomial,
}
# Tasks whose columns are numbered, or named after a class or a level.
_PATTERNS = {
    "classification": r"(?:probs?|p)[_.](.+)",
    "logits": r"logits?[_.](.+)",
    "ensembles": r"members?[_.](.+)",
    "quantiles": r"(?:quantiles?[_.]|q(?=0?\.\d))(.+)",
}
_BINARY = ("prob", "probs")  # without anything behind it: the probability of label 1
_ALSO = {"loc": ("loc", "mean"), "scale": ("scale", "sd", "std")}  # of the normal distribution
TASKS = ("classification", "binary", "logits", "ensembles", "quantiles", *FAMILIES)
_HINT = "--task, --predictions and --target name them"


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
        weights: name of the column of weights, or none.
    """

    task: str
    predictions: tuple[str, ...]
    suffixes: tuple[str, ...]
    target: str
    groups: tuple[str, ...]
    features: tuple[str, ...]
    weights: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """All columns but the target."""
        return (*self.predictions, *self.groups, *self.features, *self.weights)


def parameters(task: str) -> tuple[str, ...]:
    """Names of the parameters of a family of `FAMILIES`."""
    fields = dataclasses.fields(FAMILIES[task])  # pyright: ignore[reportArgumentType]
    return tuple(x.name.strip("_") for x in fields if "constraint" in x.metadata)


def _conventional(table: Table, names: Sequence[str], task: str) -> dict[str, str]:
    """Columns of a task by the convention: what distinguishes each, and its name."""
    if task in _PATTERNS:
        matching = _matched(table.path, names, _PATTERNS[task])
        return matching if len(matching) > (task != "quantiles") else {}
    if task == "binary":
        return {name: name for name in names if name in _BINARY}
    needed = {x: _ALSO.get(x, (x,)) if task == "normal" else (x,) for x in parameters(task)}
    matching = {x: [name for name in names if name in called] for x, called in needed.items()}
    is_clear = all(len(columns) == 1 for columns in matching.values())
    return {x: columns[0] for x, columns in matching.items()} if is_clear else {}


def _of_labels(table: Table, names: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Columns of probabilities that are called as the labels are."""
    for columns in (names, [x for x in names if x in labels]):
        if labels and {*labels} <= {*columns} and are_probabilities(table, columns):
            return {name: name for name in columns}
    return {}


def _matched(path: Path, names: Sequence[str], pattern: str) -> dict[str, str]:
    """The columns that match a pattern, by what stands in its bracket."""
    pairs = [(x[1], name) for name in names if (x := re.fullmatch(pattern, name, re.S))]
    found: dict[str, str] = {}
    for x, name in pairs:
        if found.setdefault(x, name) != name:
            got = f"{found[x]} and {name} for {x}; --predictions chooses"
            raise InputError(f"{path}: expected one column, got {got}")
    return found


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
            expected = f"a column {pattern} ({option})"
            raise InputError(f"{table.path}: expected {expected}, got {table.in_words}")
        again = [x for x in matching if x in found]
        if again:
            raise InputError(f"{option}: expected different columns, got {again[0]} twice")
        found += matching
    return tuple(found)


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
    targets = [name for name in table.columns if name in TARGETS]
    if len(targets) == 1:
        return targets[0]
    expected = "one column target or label (or --target COLUMN, --labels FILE)"
    raise InputError(f"{table.path}: expected {expected}, got {listed(targets) or table.in_words}")


def choose(
    table: Table, target: str, labels: Sequence[str], options: Namespace, *, is_own_file: bool
) -> Choice:
    """The columns of predictions, groups and features.

    Args:
        table: the file.
        target: the column of the targets.
        labels: the different labels in it, see `names.different_labels`.
        options: the command line: --task, --predictions, --groups, --features and --weights.
        is_own_file: whether the targets are in a file of their own.

    Raises:
        InputError: if columns are missing, or it is not clear which ones are meant.
    """
    reserved = {options.weights, *([] if is_own_file else [target])}
    names, task = [name for name in table.columns if name not in reserved], options.task
    if options.predictions:
        chosen = _matching(table, options.predictions, "--predictions")
        if task is None:
            raise InputError(f"--predictions: expected --task, too: one of {', '.join(TASKS)}")
        named = _matched(table.path, chosen, _PATTERNS[task]) if task in _PATTERNS else {}
        suffixes = tuple(named) if len(named) == len(chosen) else chosen
    else:
        task, columns = _detected(table, names, labels, task)
        suffixes, chosen = tuple(columns), tuple(columns.values())
    groups, features = (
        _matching(table, given, f"--{prefix}s")
        if given is not None
        else tuple(x for x in names if re.fullmatch(rf"{prefix}s?([_.].+)?", x, re.S))
        for given, prefix in ((options.groups, "group"), (options.features, "feature"))
    )
    weights = (
        _matching(table, [options.weights], "--weights", exact=True) if options.weights else ()
    )
    choice = Choice(task, chosen, suffixes, target, groups, features, weights)
    if not is_own_file and target in choice.inputs:
        raise InputError(f"--predictions: expected columns beside the target, got {target}")
    _check_number(table, choice)
    return choice


def _detected(
    table: Table, names: Sequence[str], labels: Sequence[str], task: str | None
) -> tuple[str, dict[str, str]]:
    """The task, and its columns by what distinguishes them."""
    if not table.has_names:
        if task is None:
            expected = f"--task for a file without names of columns: one of {', '.join(TASKS)}"
            raise InputError(f"{table.path}: expected {expected}")
        return task, {str(i): name for i, name in enumerate(names)}
    allowed = TASKS if task is None else (task,)
    by_task = {x: columns for x in allowed if (columns := _conventional(table, names, x))}
    if not by_task and "classification" in allowed:
        columns = _of_labels(table, names, labels)
        by_task = {"classification": columns} if columns else {}
    most = max((len(columns) for x, columns in by_task.items() if x in FAMILIES), default=0)
    fitting = [x for x, columns in by_task.items() if x not in FAMILIES or len(columns) == most]
    if "normal" in fitting:  # others with a location and a scale have to be asked for
        usual = set(parameters("normal"))
        others = [x for x in fitting if x not in FAMILIES or set(parameters(x)) != usual]
        fitting = ["normal", *others]
    if len(fitting) == 1:
        return fitting[0], by_task[fitting[0]]
    if fitting:
        got = f"got columns that fit {' and '.join(sorted(fitting, key=TASKS.index))}"
        raise InputError(f"{table.path}: expected --task, {got}")
    expected = "such as prob_NAME, or loc and scale, or member_NAME"
    if task is not None:
        needed = " and ".join(parameters(task)) if task in FAMILIES else "as --help says"
        expected = f"{needed} ({task})"
    raise InputError(f"{table.path}: expected columns {expected}, got {table.in_words}; {_HINT}")


def _check_number(table: Table, choice: Choice) -> None:
    """Refuses too few columns, or too many, for a task."""
    number, task = len(choice.predictions), choice.task
    exact = len(parameters(task)) if task in FAMILIES else 1 if task == "binary" else number
    if number != exact or not number:
        needed = f"{exact or 'some'} columns of predictions ({task})"
        got = listed(choice.predictions) or "none"
        raise InputError(f"{table.path}: expected {needed}, got {got}")


# What takes all columns of a row at once; typed as what takes arrays of NumPy, which they do.
_BATCHES: Mapping[str, Callable[..., Any]] = {
    "classification": distributions.Categorical,
    "logits": distributions.CategoricalLogits,
    "ensembles": distributions.Ensemble,
}
_WITH_CLASSES = ("classification", "logits")
# Options that only some tasks have, and these in words.
_OPTIONS: Mapping[str, tuple[Sequence[str], str]] = {
    "--first-label": (_WITH_CLASSES, "the task classification or logits"),
    "--class-names": (_WITH_CLASSES, "the task classification or logits"),
    "--positive": (("binary",), "the task binary"),
    "--levels": (("quantiles",), "the task quantiles"),
    "--sort-quantiles": (("quantiles",), "the task quantiles"),
    "--normalize": (("classification",), "the task classification"),
}


@dataclasses.dataclass(frozen=True)
class Data:
    """What is evaluated.

    Attributes:
        predictions: a batch of distributions.
        targets: [n].
        groups: the group of each row by its name, [n]; of several columns memberships in the G
            groups of all of them, 0 or 1, [n, G]; None without.
        group_names: names of the G groups, "COLUMN = VALUE"; empty where the groups are names.
        features: [n, d], or None.
        weights: [n], or None.
        classes: names of the classes, in the order of the labels; empty for other targets.
        num_skipped: number of rows that were left out since a value was missing.
        table: the file that was read, without those rows.
        choice: the task, and the columns that were used.
    """

    predictions: Distribution
    targets: np.ndarray
    groups: np.ndarray | None
    group_names: tuple[str, ...]
    features: np.ndarray | None
    weights: np.ndarray | None
    classes: tuple[str, ...]
    num_skipped: int
    table: Table
    choice: Choice


def build(table: Table, targets: Table, choice: Choice, options: Namespace) -> Data:
    """Reads the chosen columns and checks every row.

    Args:
        table: the file of the predictions.
        targets: the file of the targets, maybe the same.
        choice: the columns.
        options: the command line, see `options.parse`.

    Raises:
        InputError: if a value is not as needed; names the row.
    """
    if len(targets) != len(table):
        expected = f"{len(table)} rows as in {table.path}"
        raise InputError(f"{targets.path}: expected {expected}, got {len(targets)}")
    num_rows = len(table)
    if options.skip_missing:
        missing = np.any([table.is_missing(x) for x in choice.inputs], 0)
        names = choice.suffixes if choice.task in _WITH_CLASSES else ()
        keep = ~(missing | targets.is_missing(choice.target, names))
        table, targets = table.take(keep), targets.take(keep)
        if not keep.any():
            raise InputError(f"{table.path}: expected rows without missing values, got none")
    _check_options(choice.task, options)
    y, classes = _targets(targets, choice, options)
    predictions = _predictions(table, choice, options)
    groups, group_names = _groups({name: table.texts(name) for name in choice.groups})
    features = [table.numbers(name) for name in choice.features]
    return Data(
        predictions=predictions,
        targets=y,
        groups=groups,
        group_names=group_names,
        features=np.stack(features, 1) if features else None,
        weights=next(map(table.numbers, choice.weights), None),
        classes=classes,
        num_skipped=num_rows - len(table),
        table=table,
        choice=choice,
    )


def _check_options(task: str, options: Namespace) -> None:
    """Refuses options that the task does not have."""
    for name, (tasks, words) in _OPTIONS.items():
        value = getattr(options, name.removeprefix("--").replace("-", "_"))
        if value is not None and value is not False and task not in tasks:
            raise InputError(f"{name}: expected {words}, got {task}")


def _targets(
    table: Table, choice: Choice, options: Namespace
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Targets [n], and names of the classes where they are labels."""
    if choice.task not in (*_WITH_CLASSES, "binary"):
        return table.numbers(choice.target), ()
    classes = choice.suffixes
    if choice.task == "binary":
        classes = two_labels(table, choice.target, choice.predictions[0], options.positive)
    return labels_of_classes(
        table, choice.target, classes, first=options.first_label, class_names=options.class_names
    )


def check_rows(data: Data) -> None:
    """Refuses the first row that the library refuses, for whatever reason.

    What it looks at depends on the precision that JAX computes with.

    Raises:
        InputError: if there is such a row.
    """

    def refusal(low: int, high: int) -> str:
        some = jax.tree.map(lambda leaf: leaf[low:high], data.predictions)
        try:
            passed(predictions=some, targets=data.targets[low:high])
        except (TypeError, ValueError) as error:
            return str(error).replace("jax_enable_x64", "--float64")
        return ""

    low, high = 0, len(data.table)
    reason = refusal(low, high)
    while reason and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refusal(low, middle) else (middle, high)
        reason = refusal(low, high)
    if reason:
        raise InputError(f"{data.table.place(low)}: {reason}")


def _groups(texts: Mapping[str, list[str]]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The groups of columns, and their names where several columns make them memberships."""
    columns = {name: np.array(values) for name, values in texts.items()}
    if len(columns) <= 1:
        return next(iter(columns.values()), None), ()
    different = {name: in_order(np.unique(values)) for name, values in columns.items()}
    members = [columns[name][:, None] == different[name] for name in columns]
    names = [f"{name} = {value}" for name, values in different.items() for value in values]
    return np.concatenate(members, 1).astype(float), tuple(names)


def _predictions(table: Table, choice: Choice, options: Namespace) -> Distribution:
    task = choice.task
    more = (np.inf,) if task == "quantiles" else ()
    values = np.stack([table.numbers(name, *more) for name in choice.predictions], 1)
    if task == "quantiles":
        return _quantiles(table, choice, values, options)
    if task == "classification":
        values = _probabilities(table, choice, values, options)
    if task in _BATCHES:
        return _BATCHES[task](values)
    return FAMILIES.get(task, distributions.Bernoulli)(*values.T)


def _probabilities(
    table: Table, choice: Choice, values: np.ndarray, options: Namespace
) -> np.ndarray:
    values = checks.unrounded(values)
    normalize, sums = options.normalize, values.sum(1)
    for name, column in zip(choice.predictions, values.T, strict=True):
        table.refuse_where(column < 0, f"numbers that are not negative ({choice.task})", name)
    tolerance = checks.simplex_tolerance(np.float64 if options.float64 else np.float32)
    off = sums <= 0 if normalize else np.abs(sums - 1) > tolerance
    if off.any():
        row = int(off.argmax())
        expected = "a positive sum" if normalize else "probabilities that sum to one"
        hint = "" if normalize else "; --normalize divides each row by its sum"
        got = f"the sum {sums[row]:.7g}{hint}"
        table.refuse(row, expected, listed(choice.predictions, 3), got)
    return values / sums[:, None] if normalize else values


def _quantiles(table: Table, choice: Choice, values: np.ndarray, options: Namespace) -> Quantiles:
    levels: Sequence[float] | None = options.levels
    if levels is None:
        pairs = zip(choice.suffixes, choice.predictions, strict=True)
        levels = tuple(_level(table, suffix, name) for suffix, name in pairs)
    if len(levels) != len(choice.predictions):
        needed = f"{len(choice.predictions)} levels, one for each column of predictions"
        raise InputError(f"--levels: expected {needed}, got {len(levels)}")
    order = np.argsort(levels)
    sorted_levels = np.array(levels)[order]
    values = values[:, order]
    crossing = (np.diff(values, axis=1) < 0).any(1)
    if crossing.any() and not options.sort_quantiles:
        row = int(crossing.argmax())
        got = f"{listed([shown(x) for x in values[row]])}; --sort-quantiles sorts them"
        names = [choice.predictions[i] for i in order]
        table.refuse(row, "quantiles that do not cross", listed(names, 3), got)
    return distributions.Quantiles.sorted(np.tile(sorted_levels, (len(values), 1)), values)


def _level(table: Table, suffix: str, name: str) -> float:
    try:
        level = float(suffix)
    except ValueError:
        level = np.nan
    if not 0 < level < 1:
        expected = "columns quantile_LEVEL with levels in (0, 1)"
        raise InputError(f"{table.path}: expected {expected}, got column {name}; see --levels")
    return level
