"""Labels of classes: how a file writes them, and the integers that stand for them."""

from collections.abc import Sequence

import numpy as np

from calibjax.command_line.names import folded
from calibjax.command_line.tables import InputError, Options, Table, as_integer, listed

BINARY_CLASSES = ("0", "1")
_MOST = 1000  # labels; targets of more different values are numbers
_TRUTH_VALUES = {"false": "0", "true": "1"}


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


def two_labels(
    table: Table, target: str, column: str, suffix: str, positive: str | None
) -> tuple[str, str]:
    """The label of which a column is one minus the probability, and the one of which it is.

    Args:
        table: the file with the labels.
        target: their column.
        column: the probabilities.
        suffix: what the name of this column says, a label or something else.
        positive: what --positive says.

    Raises:
        InputError: if there are other labels, or it is not clear which one is meant.
    """
    found = different_labels(table, target)
    plain = {_TRUTH_VALUES.get(x.lower(), x) for x in found}
    suffix = suffix if folded(suffix) in map(folded, found) else ""
    wanted = positive or suffix
    if positive is None and plain <= {*BINARY_CLASSES} and suffix in ("", "1"):
        return BINARY_CLASSES
    if positive is None and plain == {"-1", "1"} and suffix in ("", "1"):
        return ("-1", "1")
    if wanted:
        matching = [x for x in found if x == wanted] or [
            x for x in found if folded(x) == folded(wanted)
        ]
        if len(found) != 2 or len(matching) != 1:
            raise InputError(
                f"{table.path}: expected two labels in column {target}, one of them "
                f"{wanted} (--positive), got {listed(found) or 'numbers'}",
                [{"--positive": [x]} for x in reversed(found) if len(found) == 2],
            )
        return next(x for x in found if x != matching[0]), matching[0]
    if len(found) == 2 and not any(x.isdecimal() for x in found):
        raise InputError(
            f"{table.path}: expected --positive, the label of which column {column} is the "
            f"probability, got labels {' and '.join(found)}",
            [{"--positive": [found[1]]}, {"--positive": [found[0]]}],
        )
    if len(found) > 2 and not plain & {*BINARY_CLASSES}:
        raise InputError(
            f"{table.path}: expected two labels in column {target}, since {column} is the "
            f"probability of one of them, got {listed(found)}; {len(found)} classes need as many "
            "columns of probabilities, such as prob_NAME"
        )
    return BINARY_CLASSES


def labels_of_classes(
    table: Table,
    target: str,
    classes: Sequence[str],
    *,
    first: int | None = None,
    class_names: Sequence[str] | None = None,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as positions of their columns, integers from 0, [n], and what the file calls them.

    Labels are the names of their classes where these are all numbers, as in prob_1, …, prob_10, or
    where labels are texts; other numbers count the columns from `first`. A label that is no name as
    it is written is compared as an integer, and then in whatever case: 1.0 is 1, and 1 is 01 where
    there is no 1.

    Args:
        table: the file with the labels.
        target: their column.
        classes: names of the classes, as their columns have them.
        first: number of the first class, 0 by default.
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
    are_numbers = table.has_only_numbers(target, classes)
    labels = [*classes]
    is_integer = [x.lstrip("-").isdecimal() for x in classes]
    if first is not None or (are_numbers and not all(is_integer)):
        labels = [str((first or 0) + i) for i in range(len(classes))]
    order = {name: i for i, name in enumerate(labels)}
    found = np.array([order.get(x, -1) for x in texts])
    for alike in (as_integer, folded):
        names = [alike(name) for name in labels]
        by_name = {x: i for i, x in enumerate(names) if names.count(x) == 1}
        found = np.array(
            [by_name.get(alike(x), -1) if i < 0 else i for i, x in zip(found, texts, strict=True)]
        )
    expected = f"one of the labels {listed(labels)}"
    if first is None and are_numbers:
        expected += " (--first-label counts them from another number)"
    elif len(different_labels(table, target)) <= len(classes) and all(is_integer):
        expected += " (--class-names says which labels they are, in the order of the columns)"
    table.refuse_where(found < 0, expected, target, _options(table, target, classes))
    are_counted = all(x.isdecimal() for x in classes)
    return found, tuple(labels if are_counted else classes)


def _options(table: Table, target: str, classes: Sequence[str]) -> list[Options]:
    """Options with which labels that are no names of classes may fit as many columns."""
    size = len(classes)
    labels = different_labels(table, target)
    if all(x.isdecimal() for x in labels):
        numbers = sorted(map(int, labels))
        is_range = bool(numbers) and numbers[0] in (0, 1) and numbers[-1] - numbers[0] < size
        return [{"--first-label": [str(numbers[0])]}] if is_range else []
    # Models of scikit-learn, and factors of R, have their classes in this order.
    are_others = len(labels) == size and not {*labels} & {*classes}
    return [{"--class-names": labels}] if are_others else []
