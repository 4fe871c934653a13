"""What columns and labels are called: as the documentation has it, or as other programs do."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from calibjax._core import checks
from calibjax.command_line.tables import InputError, Options, Table, as_integer, listed

# Names of the targets, written as `_plain` does; those of a row are looked at only if the file has
# none of the rows before.
TARGETS = (
    (
        *("target", "targets", "label", "labels", "y_true", "y_test", "y_val", "ytrue", "ytest"),
        *("truth", "true_label", "true_labels", "true_class", "ground_truth", "gt"),
    ),
    (
        *("y", "class", "classes", "true", "obs", "observed", "observation", "observations"),
        *("actual", "actuals", "outcome", "response"),
    ),
)
# One column with one of these names is the probability of one of two labels.
ONE_PROBABILITY = (
    *("prob", "probs", "proba", "probability", "p", "p_hat", "phat", "score", "scores", "y_score"),
    *("y_scores", "y_prob", "y_probs", "y_proba", "y_pred_prob", "y_pred_proba", "pred_prob"),
    *("pred_proba", "predict_proba"),
)
# So is one of these, unless all are at least 1/2: they may be those of the predicted label then.
CONFIDENCES = ("confidence", "confidences")
_CLASSES = (
    "y_pred_proba|y_pred_prob|pred_proba|pred_prob|predict_proba|y_proba|y_prob|probability|proba|"
    "probs|prob|softmax|p|pr"
)
# These may be anything, such as members of an ensemble: their values have to be probabilities.
_CLASSES_IF_PROBABILITIES = "y_pred|pred|prediction|predictions|confidence|confidences|scores|score"
_NO_CLASSES = {
    *("class", "label", "value", "values", "lower", "upper", "low", "high", "mean", "std", "sd"),
    *("var", "se", "res", "min", "max", "interval", "time", "id"),
}
_MEMBERS = "members|member|ensemble|ens|samples|sample|draws|draw|forecast|fc|m"
_LEVEL = re.compile(
    r"((?:quantiles?|percentiles?|q)[ _.=-]*)?(\d+|\d*[.,]\d+)(%?)", re.IGNORECASE | re.ASCII
)
_PARAMETERS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "normal": {
        "loc": (
            *("loc", "mean", "mu", "y_mean", "pred_mean", "mean_pred", "y_pred", "pred", "y_hat"),
            *("yhat", "prediction", "predicted", "forecast", "fit"),
        ),
        "scale": (
            *("scale", "std", "sd", "sigma", "stddev", "stdev", "std_dev", "y_std", "y_sd"),
            *("pred_std", "pred_sd", "std_pred", "y_sigma", "sigma_pred", "pred_sigma"),
        ),
    },
    "poisson": {"rate": ("rate", "lambda", "lam")},
}
BINARY_CLASSES = ("0", "1")
_MOST = 1000  # labels; targets of more different values are numbers
_TRUTH_VALUES = {"false": "0", "true": "1"}


def _plain(name: str) -> str:
    """A name in lower case, with `_` between its words."""
    return re.sub(r"[ .-]+", "_", name.strip().lower()).strip("_")


def folded(label: str) -> str:
    """How labels and names of columns are compared where they are not written alike."""
    return as_integer(label.strip()).casefold()


def called_targets(names: Iterable[str]) -> list[str]:
    """Columns with usual names of targets, the likeliest first."""
    for row in TARGETS:
        if found := [name for name in names if _plain(name) in row]:
            return sorted(found, key=lambda name: row.index(_plain(name)))
    return []


def with_other_names(
    table: Table, names: Sequence[str], labels: Sequence[str], families: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, str]]:
    """The tasks whose columns have names that are usual elsewhere.

    Args:
        table: the file.
        names: its columns without the targets.
        labels: the different labels, empty if the targets are no labels.
        families: the parameters of each family of numbers.

    Returns:
        For each task what distinguishes its columns, and their names.
    """
    found = {"ensembles": _numbered(names, _MEMBERS), "quantiles": levels_of(names)}
    if labels:
        found["binary"] = one_probability(table, names, labels)
        found["classification"] = _classes(table, names, labels)
        found["logits"] = _numbered(names, "logits|logit")
    for family, parameters in families.items():
        aliases = _PARAMETERS.get(family, {})
        columns = [
            [name for name in names if _plain(name) in aliases.get(x, (x,))] for x in parameters
        ]
        if all(len(x) == 1 for x in columns):
            found[family] = dict(zip(parameters, (x[0] for x in columns), strict=True))
    several = ("classification", "logits", "ensembles")
    return {task: x for task, x in found.items() if len(x) > (task in several)}


def _groups(names: Sequence[str], prefixes: str) -> list[dict[str, str]]:
    """Columns PREFIX_NAME, or PREFIX and a number, by NAME: a group for each prefix."""
    pattern = re.compile(rf"\.?({prefixes})(?:[ _.:=-]+(.+)|(\d+))", re.IGNORECASE | re.DOTALL)
    groups: dict[str, dict[str, str]] = {}
    for name in names:
        if match := pattern.fullmatch(name.strip()):
            groups.setdefault(match[1].lower(), {}).setdefault(match[2] or match[3], name)
    return [*groups.values()]


def _numbered(names: Sequence[str], prefixes: str) -> dict[str, str]:
    groups = [x for x in _groups(names, prefixes) if all(k.isdecimal() for k in x)]
    return groups[0] if len(groups) == 1 else {}


def _are_counted(names: Collection[str]) -> bool:
    """Whether names are numbers of classes, 0, 1, ... or 1, 2, ...."""
    numbers = sorted(int(x) for x in names if x.isdecimal())
    first = min(numbers, default=2)
    return first < 2 and numbers == list(range(first, first + len(names)))


def _of_classes(groups: list[dict[str, str]], known: Collection[str]) -> list[dict[str, str]]:
    """The same without columns of something else, such as .pred_class."""
    return [
        {k: x for k, x in group.items() if folded(k) in known or _plain(k) not in _NO_CLASSES}
        for group in groups
    ]


def _classes(table: Table, names: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Columns of the probabilities of classes by the names of these; none if two sets fit."""
    known = {folded(x) for x in labels}
    are_named = _of_classes(_groups(names, _CLASSES), known)
    others = [*_groups(names, _CLASSES_IF_PROBABILITIES), {x: x for x in names}]
    of_labels = [{k: x for k, x in group.items() if folded(k) in known} for group in others]
    numbers = [{k: x for k, x in group.items() if k.isdecimal()} for group in others]
    fitting: list[dict[str, str]] = []
    for group in are_named + of_labels + numbers:
        has_all = known <= {folded(k) for k in group} or _are_counted(group)
        if len(group) > 1 and has_all and group not in fitting:
            fitting.append(group)
    fitting = [x for x in fitting if x in are_named or are_probabilities(table, x.values())]
    return fitting[0] if len(fitting) == 1 else {}


def one_probability(table: Table, names: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """The column of the probability of one of two labels, by this label if its name says which.

    Args:
        table: the file.
        names: its columns without the targets.
        labels: the different labels.

    Returns:
        Its name by the label, or by "" if the name says none; empty if there is none, or several.
    """
    if len(labels) > 2:
        return {}
    known = {folded(x): x for x in labels}
    is_zero_or_one = known.keys() <= {"0", "1"}
    groups = _of_classes(_groups(names, f"{_CLASSES}|{_CLASSES_IF_PROBABILITIES}"), known)
    pairs = [pair for group in groups if len(group) == 1 for pair in group.items()]
    pairs += [(name, name) for name in names if are_inside(table, [name])]
    of_a_label = [
        (known.get(folded(k), k), name)
        for k, name in pairs
        if (folded(k) in known and len(known) == 2) or (folded(k) == "1" and is_zero_or_one)
    ]
    plain = [
        ("", name)
        for name in names
        if _plain(name) in ONE_PROBABILITY
        or (_plain(name) in CONFIDENCES and (table.values([name]) < 0.5).any())
    ]
    found = of_a_label or plain
    return dict(found) if len(found) == 1 else {}


def levels_of(names: Sequence[str]) -> dict[str, str]:
    """Columns of quantiles by their levels, as in q0.1, "quantile= 0.1", 10%, or q10, q50, q90."""
    columns = [(match, name) for name in names if (match := _LEVEL.fullmatch(name.strip()))]
    numbers = [float(match[2].replace(",", ".")) for match, _ in columns]
    is_percent = [bool(match[3]) for match, _ in columns]
    if numbers and all(match[1] for match, _ in columns) and min(numbers) >= 1:
        # Which quantiles q1, q2, q3 are, nobody knows.
        is_percent = [10 <= max(numbers) < 100] * len(numbers)
    levels = [x / 100 if y else x for x, y in zip(numbers, is_percent, strict=True)]
    is_clear = len({*levels}) == len(levels) and all(0 < x < 1 for x in levels)
    named = zip((f"{x:.10g}" for x in levels), (name for _, name in columns), strict=True)
    return dict(named) if is_clear else {}


def are_inside(table: Table, names: Iterable[str]) -> bool:
    """Whether columns hold numbers in [0, 1], apart from what is missing."""
    return _are_inside(table.values(names))


def _are_inside(values: np.ndarray) -> bool:
    known = checks.unrounded(values[~np.isnan(values)])
    return bool(len(known)) and bool(((known >= 0) & (known <= 1)).all())


def common_sum(table: Table, names: Iterable[str]) -> float | None:
    """What non-negative columns sum to in all rows, such as 100 of percentages; else None."""
    values = table.values(names)
    sums = values.sum(1)
    is_same = values.shape[1] > 1 and bool(np.all(np.abs(sums - sums[0]) <= 0.01 * sums[0]))
    return float(sums[0]) if is_same and bool((values >= 0).all()) else None


def are_probabilities(table: Table, names: Iterable[str]) -> bool:
    """Whether columns, in [0, 1], sum to one in most rows, up to a mistake here or there."""
    values = table.values(names)
    is_whole = np.abs(values.sum(1) - 1) < 0.01
    return values.shape[1] > 1 and _are_inside(values) and bool(is_whole.mean() > 0.5)


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
    """Two labels, of which a column holds the probability of the second.

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
    where labels are texts; other numbers count the columns from `first`. A label that matches no
    name exactly is compared as an integer, and then regardless of case: 1.0 is 1, and 1 is 01 where
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
    """Options that may match labels to as many columns of other names."""
    size = len(classes)
    labels = different_labels(table, target)
    if all(x.isdecimal() for x in labels):
        numbers = sorted(map(int, labels))
        is_range = bool(numbers) and numbers[0] in (0, 1) and numbers[-1] - numbers[0] < size
        return [{"--first-label": [str(numbers[0])]}] if is_range else []
    # Models of scikit-learn, and factors of R, have their classes in this order.
    are_others = len(labels) == size and not {*labels} & {*classes}
    return [{"--class-names": labels}] if are_others else []
