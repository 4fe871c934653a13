"""Predictions and targets from the columns of tables."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from calibjax import _checks, distributions
from calibjax.command_line.columns import BINARY_CLASSES, FAMILIES, Choice, labels_of_classes
from calibjax.command_line.tables import InputError, Table, first_refused, listed, shown
from calibjax.evaluation.data import in_order

# What takes all columns of a row at once; typed as what takes arrays of NumPy, which they do.
_BATCHES: Mapping[str, Callable[..., Any]] = {
    "classes": distributions.Categorical,
    "logits": distributions.CategoricalLogits,
    "ensemble": distributions.Samples,
    "quantiles": distributions.Quantiles,
}
TOLERANCE = 1e-6  # of the sum of probabilities, as the library has it for float64


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
        classes: names of the classes, in the order of the labels; empty for other targets.
        num_skipped: number of rows that were left out since a value was missing.
        table: the file that was read, without those rows.
    """

    predictions: Any
    targets: np.ndarray
    groups: np.ndarray | None
    group_names: tuple[str, ...]
    features: np.ndarray | None
    classes: tuple[str, ...]
    num_skipped: int
    table: Table


def build(
    table: Table,
    targets: Table,
    choice: Choice,
    *,
    first_label: int | None = None,
    normalize: bool = False,
    skip_missing: bool = False,
    levels: Sequence[float] | None = None,
) -> Data:
    """Reads the chosen columns and checks every row.

    Args:
        table: the file of the predictions.
        targets: the file of the targets, maybe the same.
        choice: the columns.
        first_label: number of the first class in the column of labels.
        normalize: whether probabilities are divided by their sums.
        skip_missing: whether rows with a missing value are left out.
        levels: of quantiles, by default what their columns are called.

    Raises:
        InputError: if a value is not as needed; names the row.
    """
    if len(targets) != len(table):
        raise InputError(
            f"{targets.path}: expected {len(table)} rows as in {table.path}, got {len(targets)}"
        )
    num_rows = len(table)
    if skip_missing:
        missing = np.any([table.is_missing(x) for x in choice.inputs], 0)
        names = choice.suffixes if choice.task in ("classes", "logits") else ()
        keep = ~(missing | targets.is_missing(choice.target, names))
        table, targets = table.take(keep), targets.take(keep)
        if not keep.any():
            raise InputError(f"{table.path}: expected rows without missing values, got none")
    classes: tuple[str, ...] = ()
    if choice.task in ("classes", "logits", "binary"):
        classes = BINARY_CLASSES if choice.task == "binary" else choice.suffixes
        y, classes = labels_of_classes(targets, choice.target, classes, first_label)
    elif first_label is not None:
        raise InputError(f"--first-label: expected a task with classes, got {choice.task}")
    else:
        y = targets.numbers(choice.target)
    predictions = _predictions(table, choice, levels=levels, normalize=normalize)
    _check_targets(targets, choice, predictions, y)
    groups, group_names = _groups({name: table.texts(name) for name in choice.groups})
    features = [table.numbers(name) for name in choice.features]
    return Data(
        predictions=predictions,
        targets=y,
        groups=groups,
        group_names=group_names,
        features=np.stack(features, 1) if features else None,
        classes=classes,
        num_skipped=num_rows - len(table),
        table=table,
    )


def check_rows(data: Data) -> None:
    """Refuses the first row that the library refuses, for whatever reason.

    What it looks at depends on the precision that JAX computes with.

    Raises:
        InputError: if there is such a row.
    """

    def check(rows: np.ndarray) -> None:
        some = jax.tree.map(lambda leaf: leaf[rows], data.predictions)
        _checks.predictions_and_targets(some, data.targets[rows])

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


def _predictions(
    table: Table, choice: Choice, *, levels: Sequence[float] | None, normalize: bool
) -> Any:
    task = choice.task
    if levels is not None and task != "quantiles":
        raise InputError(f"--levels: expected the task quantiles, got {task}")
    if normalize and task != "classes":
        raise InputError(f"--normalize: expected the task classes, got {task}")
    values = np.stack([table.numbers(name) for name in choice.predictions], 1)
    if task == "quantiles":
        return _quantiles(table, choice, values, levels)
    if task == "classes":
        values = _probabilities(table, choice, values, normalize)
    if task in _BATCHES:
        return _BATCHES[task](values)
    return _family(table, choice, FAMILIES.get(task, distributions.Bernoulli), values)


def _family(table: Table, choice: Choice, family: Any, values: np.ndarray) -> Any:
    """A batch of a family with scalar parameters, each of which has a constraint."""
    fields = [x for x in dataclasses.fields(family) if "constraint" in x.metadata]
    for field, name, column in zip(fields, choice.predictions, values.T, strict=True):
        constraint = field.metadata["constraint"]
        row = first_refused(functools.partial(constraint.check, name), column)
        if row is not None:
            table.refuse(row, constraint.words, f"column {name}", column[row])
    return family(*values.T)


def _probabilities(table: Table, choice: Choice, values: np.ndarray, normalize: bool) -> np.ndarray:
    for name, column in zip(choice.predictions, values.T, strict=True):
        bad = (column < 0) | ((column > 1) & (not normalize))
        expected = "probabilities in [0, 1]" if not normalize else "numbers that are not negative"
        table.refuse_where(bad, f"{expected} ({choice.task})", name)
    sums = values.sum(1)
    off = sums <= 0 if normalize else np.abs(sums - 1) > TOLERANCE
    if off.any():
        row = int(off.argmax())
        expected = "a positive sum" if normalize else "probabilities that sum to one"
        hint = "" if normalize else "; --normalize divides each row by its sum"
        got = f"the sum {sums[row]:.7g}{hint}"
        table.refuse(row, expected, listed(choice.predictions, 3), got)
    return values / sums[:, None] if normalize else values


def _quantiles(
    table: Table, choice: Choice, values: np.ndarray, levels: Sequence[float] | None
) -> Any:
    if levels is None:
        pairs = zip(choice.suffixes, choice.predictions, strict=True)
        levels = tuple(_level(table, suffix, name) for suffix, name in pairs)
    if len(levels) != len(choice.predictions):
        needed = f"{len(choice.predictions)} levels, one for each column of predictions"
        raise InputError(f"--levels: expected {needed}, got {len(levels)}")
    order = np.argsort(levels)
    sorted_levels = np.array(levels)[order]
    if not (np.diff(sorted_levels) > 0).all():
        raise InputError(f"--levels: expected different levels, got {listed([*map(str, levels)])}")
    values = values[:, order]

    def check(rows: np.ndarray) -> object:
        return _BATCHES["quantiles"](sorted_levels, rows).check_values("quantiles")

    row = first_refused(check, values)
    if row is not None:
        got = listed([shown(x) for x in values[row]])
        names = [choice.predictions[i] for i in order]
        table.refuse(row, "quantiles that do not cross", listed(names, 3), got)
    return _BATCHES["quantiles"](np.tile(sorted_levels, (len(values), 1)), values)


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
