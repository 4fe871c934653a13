"""Which columns are the predictions, and which the targets: by their names, or as options say.

What is certain is read. Where the names say something else, an error says what was found.
"""

import dataclasses
import fnmatch
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from calibjax import distributions
from calibjax.command_line.names import are_probabilities
from calibjax.command_line.tables import InputError, Table, listed

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
_EXAMPLES = {
    "classification": "prob_NAME",
    "binary": "prob",
    "logits": "logit_NAME",
    "ensembles": "member_NAME",
    "quantiles": "quantile_LEVEL",
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
        found = _matched(table.path, names, _PATTERNS[task])
        return found if len(found) > (task != "quantiles") else {}
    if task == "binary":
        return {name: name for name in names if name in _BINARY}
    needed = {x: _ALSO.get(x, (x,)) if task == "normal" else (x,) for x in parameters(task)}
    found = {x: [name for name in names if name in called] for x, called in needed.items()}
    is_clear = all(len(columns) == 1 for columns in found.values())
    return {x: columns[0] for x, columns in found.items()} if is_clear else {}


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
            raise InputError(
                f"{table.path}: expected a column {pattern} ({option}), got {table.in_words}"
            )
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
    found = [name for name in table.columns if name in TARGETS]
    if len(found) == 1:
        return found[0]
    expected = "one column target or label (or --target COLUMN, --labels FILE)"
    raise InputError(f"{table.path}: expected {expected}, got {listed(found) or table.in_words}")


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
    own = {options.weights, *([] if is_own_file else [target])}
    names, task = [name for name in table.columns if name not in own], options.task
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
    found = {x: columns for x in allowed if (columns := _conventional(table, names, x))}
    if not found and "classification" in allowed:
        columns = _of_labels(table, names, labels)
        found = {"classification": columns} if columns else {}
    most = max((len(columns) for x, columns in found.items() if x in FAMILIES), default=0)
    fitting = [x for x, columns in found.items() if x not in FAMILIES or len(columns) == most]
    if "normal" in fitting:  # others with a location and a scale have to be asked for
        usual = set(parameters("normal"))
        others = [x for x in fitting if x not in FAMILIES or set(parameters(x)) != usual]
        fitting = ["normal", *others]
    if len(fitting) == 1:
        return fitting[0], found[fitting[0]]
    if fitting:
        got = f"got columns that fit {' and '.join(sorted(fitting, key=TASKS.index))}"
        raise InputError(f"{table.path}: expected --task, {got}")
    expected = "such as prob_NAME, or loc and scale, or member_NAME"
    if task is not None:
        needed = " and ".join(parameters(task)) if task in FAMILIES else _EXAMPLES[task]
        expected = f"{needed} ({task})"
    raise InputError(f"{table.path}: expected columns {expected}, got {table.in_words}; {_HINT}")


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
