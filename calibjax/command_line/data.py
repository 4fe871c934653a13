"""Predictions and targets from the columns of tables."""

import dataclasses
import functools
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from calibjax import distributions
from calibjax._core import checks
from calibjax.command_line.columns import FAMILIES, Choice
from calibjax.command_line.names import labels_of_classes, two_labels
from calibjax.command_line.tables import InputError, Table, first_refused, listed, shown
from calibjax.distributions.base import Distribution
from calibjax.distributions.quantiles import Quantiles
from calibjax.evaluation.data import in_order

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
        raise InputError(
            f"{targets.path}: expected {len(table)} rows as in {table.path}, got {len(targets)}"
        )
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
    _check_targets(targets, choice, predictions, y)
    groups, group_names = _groups({name: table.texts(name) for name in choice.groups})
    features = [table.numbers(name) for name in choice.features]
    return Data(
        predictions=predictions,
        targets=y,
        groups=groups,
        group_names=group_names,
        features=np.stack(features, 1) if features else None,
        weights=_weights(table, choice),
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

    def check(rows: np.ndarray) -> None:
        some = jax.tree.map(lambda leaf: leaf[rows], data.predictions)
        checks.predictions_and_targets(some, data.targets[rows])

    row = first_refused(check, np.arange(len(data.table)))
    if row is not None:
        try:
            check(np.array([row]))
        except (TypeError, ValueError) as error:
            reason = str(error).replace("jax_enable_x64", "--float64")
            raise InputError(f"{data.table.place(row)}: {reason}") from None


def _groups(texts: Mapping[str, list[str]]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The groups of columns, and their names where several columns make them memberships."""
    columns = {name: np.array(values) for name, values in texts.items()}
    if len(columns) <= 1:
        return next(iter(columns.values()), None), ()
    different = {name: in_order(np.unique(values)) for name, values in columns.items()}
    members = [columns[name][:, None] == different[name] for name in columns]
    names = [f"{name} = {value}" for name, values in different.items() for value in values]
    return np.concatenate(members, 1).astype(float), tuple(names)


def _weights(table: Table, choice: Choice) -> np.ndarray | None:
    """Weights of the rows."""
    if not choice.weights:
        return None
    [name] = choice.weights
    values = table.numbers(name)
    table.refuse_where(~((values >= 0) & (values < np.inf)), "finite weights >= 0", name)
    return values


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
    return _family(table, choice, FAMILIES.get(task, distributions.Bernoulli), values)


def _family(table: Table, choice: Choice, family: type, values: np.ndarray) -> Distribution:
    """A batch of a family with scalar parameters, each of which has a constraint."""
    fields = [x for x in dataclasses.fields(family) if "constraint" in x.metadata]
    for field, name, column in zip(fields, choice.predictions, values.T, strict=True):
        constraint = field.metadata["constraint"]
        row = first_refused(functools.partial(constraint.check, name), column)
        if row is not None:
            table.refuse(row, constraint.words, f"column {name}", column[row])
    return family(*values.T)


def _probabilities(
    table: Table, choice: Choice, values: np.ndarray, options: Namespace
) -> np.ndarray:
    values = checks.unrounded(values)
    normalize, sums = options.normalize, values.sum(1)
    for name, column in zip(choice.predictions, values.T, strict=True):
        bad = (column < 0) | ((column > 1) & (not normalize))
        expected = "probabilities in [0, 1]" if not normalize else "numbers that are not negative"
        table.refuse_where(bad, f"{expected} ({choice.task})", name)
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
    if not ((np.diff(sorted_levels) > 0).all() and 0 < sorted_levels[0] <= sorted_levels[-1] < 1):
        expected = "different levels in (0, 1)"
        raise InputError(f"--levels: expected {expected}, got {listed([*map(str, levels)])}")
    values = values[:, order]
    crossing = (np.diff(values, axis=1) < 0).any(1)
    if crossing.any() and not options.sort_quantiles:
        row = int(crossing.argmax())
        got = listed([shown(x) for x in values[row]])
        got += (
            f"; they cross in {crossing.sum()} of {len(values)} rows; --sort-quantiles sorts them"
        )
        names = [choice.predictions[i] for i in order]
        expected = "quantiles that do not cross"
        table.refuse(row, expected, listed(names, 3), got)
    return distributions.Quantiles.sorted(np.tile(sorted_levels, (len(values), 1)), values)


def _level(table: Table, suffix: str, name: str) -> float:
    try:
        level = float(suffix)
    except ValueError:
        level = np.nan
    if not 0 < level < 1:
        raise InputError(
            f"{table.path}: expected columns quantile_LEVEL with levels in (0, 1), got column "
            f"{name}; --levels says them"
        )
    return level


def _check_targets(targets: Table, choice: Choice, predictions: Any, y: np.ndarray) -> None:
    """Refuses targets outside the support, such as counts that are no counts."""
    support = getattr(predictions, "support", None)
    if support is None or choice.task not in FAMILIES:
        return
    if support.is_integer:
        bad = np.rint(y) != y
        targets.refuse_where(bad, support.words, choice.target)
    row = first_refused(functools.partial(support.check, choice.target), y)
    if row is not None:
        targets.refuse(row, support.words, f"column {choice.target}", y[row])
