"""Which columns are the predictions, and which the targets: by their names, or as options say."""

import dataclasses
import fnmatch
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calibjax import distributions
from calibjax.command_line import guesses
from calibjax.command_line.names import (
    called_targets,
    common_sum,
    folded,
    levels_of,
    one_probability,
    with_other_names,
)
from calibjax.command_line.tables import InputError, Table, listed

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
PREFIXES = {
    "classification": "prob",
    "logits": "logit",
    "ensembles": "member",
    "quantiles": "quantile",
}
BINARY = ("prob", "probs")  # without anything behind it: the probability of label 1
TASKS = ("classification", "binary", "logits", "ensembles", "quantiles", *FAMILIES)
# What --task takes beside TASKS, and which of these it stands for, the first unless columns differ.
COUNTS = ("poisson", "negative_binomial")
KINDS: Mapping[str, tuple[str, ...]] = {
    "regression": tuple(x for x in FAMILIES if x not in COUNTS),
    "counts": COUNTS,
    "classes": ("classification",),
    "ensemble": ("ensembles",),
}


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
            is_target = option == "--target"
            options = guesses.targets(table, called_targets(table.columns)) if is_target else ()
            raise InputError(
                f"{table.path}: expected a column {pattern} ({option}), got {_names(table)}",
                options,
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
    found = called_targets(table.columns)
    if len(found) == 1:
        return found[0]
    expected = "one column target or label (or --target COLUMN, --labels FILE)"
    got = listed([x for x in table.columns if x in found]) or _names(table)
    raise InputError(f"{table.path}: expected {expected}, got {got}", guesses.targets(table, found))


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
    names = [name for name in table.columns if name not in own]
    tasks = KINDS.get(options.task, (options.task,)) if options.task is not None else ()
    if options.predictions:
        chosen = _matching(table, options.predictions, "--predictions")
        if not tasks:
            guessed = guesses.predictions(table, chosen, labels, None)
            raise InputError(
                f"--predictions: expected --task, too: one of {', '.join(TASKS)}",
                [{"--task": x["--task"]} for x in guessed],
            )
        task = next((x for x in tasks if _takes(x, len(chosen))), tasks[0])
        suffixes = _suffixes_of(table, task, chosen, labels)
    else:
        task, columns = _detected(table, names, labels, tasks)
        suffixes, chosen = tuple(columns), tuple(columns.values())
    others = {
        option: _matching(table, given, option)
        if given is not None
        else _optional(table.path, names, prefix)
        for option, given, prefix in (
            ("--groups", options.groups, "group"),
            ("--features", options.features, "feature"),
        )
    }
    weights = (
        _matching(table, [options.weights], "--weights", exact=True) if options.weights else ()
    )
    groups, features = others.values()
    choice = Choice(task, chosen, suffixes, target, groups, features, weights)
    if not is_own_file and target in choice.inputs:
        raise InputError(f"--predictions: expected columns beside the target, got {target}")
    _check_number(table, choice)
    return choice


def _takes(task: str, number: int) -> bool:
    return task not in FAMILIES or len(parameters(task)) == number


def _optional(path: Path, names: Sequence[str], prefix: str) -> tuple[str, ...]:
    plain = [name for name in names if name in (prefix, f"{prefix}s")]
    return (*plain, *_with_prefix(path, names, prefix).values())


def _suffixes_of(
    table: Table, task: str, chosen: tuple[str, ...], labels: Sequence[str]
) -> tuple[str, ...]:
    """What distinguishes columns that --predictions names."""
    if task in FAMILIES:
        return parameters(task)
    if task in PREFIXES:
        by_prefix = _with_prefix(table.path, chosen, PREFIXES[task])
        if len(by_prefix) == len(chosen):
            return tuple(by_prefix)
    if task == "quantiles" and len(levels := levels_of(chosen)) == len(chosen):
        return tuple(levels)
    if task == "binary":
        named = one_probability(table, chosen, labels) if table.has_names else {}
        return tuple(named) or ("",)
    return chosen


def _detected(
    table: Table, names: Sequence[str], labels: Sequence[str], tasks: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """The task, one of those that --task stands for, and its columns by what distinguishes them.

    Columns that are called as documented come first, those that have other names next.
    """
    if not table.has_names:
        return _without_names(table, names, labels, tasks)
    allowed = tasks or TASKS
    found = {x: columns for x in allowed if (columns := conventional(table.path, names, x))}
    has_one_class = len(found.get("classification", ())) == 1
    if has_one_class or not found:
        families = {x: parameters(x) for x in FAMILIES}
        others = with_other_names(table, names, labels, families)
        if has_one_class and "binary" in others and "binary" in allowed:  # of one of two labels
            found["binary"] = others["binary"]
            del found["classification"]
        found = found or {x: others[x] for x in allowed if x in others}
    most = max((len(columns) for x, columns in found.items() if x in FAMILIES), default=0)
    # A normal distribution where only loc and scale are there: others have to be asked for.
    fitting = [x for x, columns in found.items() if x not in FAMILIES or len(columns) == most]
    if len(fitting) > 1 and len(tasks) != 1:
        usual = set(parameters("normal"))
        fitting = [
            x for x in fitting if x not in FAMILIES or x == "normal" or set(parameters(x)) != usual
        ]
    if len(fitting) == 1:
        return fitting[0], found[fitting[0]]
    if fitting:
        options = [{"--task": [x]} for x in fitting]
        got = f"got columns that fit {' and '.join(fitting)}"
        raise InputError(f"{table.path}: expected --task, {got}", options)
    [task] = tasks if len(tasks) == 1 else [None]
    expected = "such as prob_0, prob_1 or loc, scale or member_0, member_1"
    hint = "; --task and --predictions name them" + _lacking(table, names, labels)
    if task is not None:
        needed = " and ".join(parameters(task)) if task in FAMILIES else _convention(task)
        expected, hint = f"{needed} ({task})", "; --predictions names them"
    raise InputError(
        f"{table.path}: expected columns {expected}, got {_names(table)}{hint}",
        guesses.predictions(table, names, labels, task),
    )


def _lacking(table: Table, names: Sequence[str], labels: Sequence[str]) -> str:
    """What columns with usual names lack, in words."""
    called = {folded(x) for x in names}
    without = [x for x in labels if folded(x) not in called]
    if 0 < len(without) < len(labels) > 2:
        return f"; each label needs its column, and there is none for {listed(without)}"
    numbers = [name for name in names if not np.isnan(table.values([name])).any()]
    total = common_sum(table, numbers) if len(numbers) == len(labels) > 1 else None
    if total is not None and not 0.99 < total < 1.01:
        return (
            f"; {listed(numbers)} sum to {total:.4g} in all rows: divided by that, they may be "
            "probabilities, in columns prob_NAME"
        )
    found = {folded(x).replace("_", "") for x in names}
    if {"lower", "upper"} <= found:
        levels = "--task quantiles --predictions lower upper --levels 0.05 0.95"
        return f"; the ends of intervals need levels, as in {levels}"
    if found & {"var", "variance"}:
        column = next(x for x in names if folded(x).replace("_", "") in {"var", "variance"})
        return (
            "; the scale is a standard deviation, the root of a variance: with pandas, "
            f'table["scale"] = table["{column}"] ** 0.5'
        )
    if found & {"ypred", "pred", "prediction", "predicted", "yhat"}:
        return "; a prediction without an uncertainty is not a distribution"
    return ""


def _convention(task: str) -> str:
    return "prob" if task == "binary" else f"{PREFIXES[task]}_…"


def _without_names(
    table: Table, names: Sequence[str], labels: Sequence[str], tasks: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """All columns but the target, for a task that has to be named."""
    if not tasks:
        raise InputError(
            f"{table.path}: expected --task for a file without names of columns: one of "
            f"{', '.join(TASKS)}",
            guesses.predictions(table, names, labels, None),
        )
    task = next((x for x in tasks if _takes(x, len(names))), tasks[0])
    if task in FAMILIES:
        return task, dict(zip(parameters(task), names, strict=False))
    if task == "binary" and len(names) == 1:
        return task, {"": names[0]}  # which says nothing of the label
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
