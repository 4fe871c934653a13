"""What labels are called, and which of the classes they are."""

from collections.abc import Iterable, Sequence

import numpy as np

from calibjax._core import checks
from calibjax.command_line.tables import InputError, Table, as_integer, listed

BINARY_CLASSES = ("0", "1")
_MOST = 1000  # labels; targets of more different values are numbers
_TRUTH_VALUES = {"false": "0", "true": "1"}


def are_probabilities(table: Table, names: Iterable[str]) -> bool:
    """Whether columns, in [0, 1], sum to one in most rows, up to a mistake here or there."""
    values = table.values(names)
    known = checks.unrounded(values[~np.isnan(values)])
    is_inside = bool(len(known)) and bool(((known >= 0) & (known <= 1)).all())
    is_whole = np.abs(values.sum(1) - 1) < 0.01
    return values.shape[1] > 1 and is_inside and bool(is_whole.mean() > 0.5)


def different_labels(table: Table, target: str) -> tuple[str, ...]:
    """The different labels of a column, in their order; none if it holds fractions.

    Args:
        table: the file with the labels.
        target: their column.
    """
    if table.columns[target].dtype.kind not in "biufO":
        return ()
    known = table.take(~table.is_missing(target))
    texts = {as_integer(x) for x in known.texts(target)}
    numbers = known.values([target])[:, 0]
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
    found = different_labels(table, target)
    plain = {_TRUTH_VALUES.get(x.lower(), x) for x in found}
    if positive is None and plain and plain <= {*BINARY_CLASSES}:
        return BINARY_CLASSES
    if positive is None or len(found) != 2 or positive not in found:
        wanted = "labels 0 and 1" if positive is None else f"two labels, one of them {positive},"
        got = f"{listed(found) or 'numbers'}; --positive says of which of two labels {column} is "
        raise InputError(
            f"{table.path}: expected {wanted} in column {target}, got {got}the probability"
        )
    return next(x for x in found if x != positive), positive


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
    found = np.array([order.get(x, by_name.get(as_integer(x), -1)) for x in texts])
    expected = f"one of the labels {listed(labels)}"
    if first is None and class_names is None:
        expected += " (--class-names or --first-label says how the columns are called)"
    table.refuse_where(found < 0, expected, target)
    are_counted = all(x.isdecimal() for x in classes)
    return found, tuple(labels if are_counted else classes)
