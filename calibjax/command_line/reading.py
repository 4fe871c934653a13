"""Reads files: their columns, what the columns mean, and the predictions and targets they hold.

Only what is certain is read. Where columns have two meanings or none, an `InputError` reports what
the file holds, and the options that name columns, with capitals in place of the user's names.
"""

import csv
import dataclasses
import fnmatch
import gzip
import io
import itertools
import re
import stat
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from calibjax._core import checks
from calibjax.distributions.base import Distribution

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # in lower case
TARGETS = ("target", "targets", "label", "labels", "y_true", "y")
OBSERVED = ("observation", "oracle_value")  # the targets of hubs
HUB = ("output_type", "output_type_id", "value")
OTHERS = ("groups", "features", "weights", "clusters")
_LARGEST = 2**30  # bytes of a file, unpacked
_SHOWN = 60  # characters of a value
_POSITIVE = "positive"
_ROUNDED = 0.0051  # that a sum of written probabilities may be off

# Options that name the columns of a kind of predictions, with places to fill in.
TEMPLATES = {
    "probability": "--probability COLUMN --positive VALUE",
    "classes": "--classes COLUMN=VALUE COLUMN=VALUE",
    "normal": "--mean COLUMN --sd COLUMN",
    "quantiles": "--quantiles LEVEL=COLUMN LEVEL=COLUMN",
    "interval": "--lower COLUMN --upper COLUMN --level LEVEL",
    "members": "--members COLUMN COLUMN",
    "models": "--models COLUMN COLUMN --positive VALUE",
}
# Names of columns that say what they hold.
_CERTAIN = (
    ("classes", r"prob_(?!pred$)(.+)"),  # scikit-learn has prob_true and prob_pred in curves
    ("classes", r"p_(.+)"),
    ("quantiles", r"q(\d*\.?\d+)"),
    ("members", r"member_(\d+)"),
)
# Names beside which `mean` and `sd` belong to other distributions, or are statistics of features.
_SHAPES = {"df", "nu", "shape", "power", "dist", "distribution", "family"}
_SHAPES |= {"n", "count", "se", "skew", "skewness", "kurtosis", "min", "max", "median"}
# Words of columns that may hold other targets, decisions of a model, and what the rows are of.
_TRUTHS = {"truth", "true", "actual", "observed", "observation", "obs", "outcome", "gold", "gt"}
_DECISIONS = r"(y_?)?(pred|hat|answer|decision|choice|cls|class|parsed|response)"
_RANKED = r"(pred|class|label|top)\D*2"  # beside the probability of the second likeliest class
_MODELS = {"model", "model_id", "model_name", "forecaster", "method", "algorithm", "split"}
_WEIGHTS = {"n", "count", "freq", "frequency", "sample_weight"}
_MARKS = "; --decimal MARK names the decimal mark, and thousands have to be without a mark"


class InputError(ValueError):
    """A message of one line: a file or an option of the user is not as expected."""

    def __init__(self, message: str) -> None:  # noqa: D107
        super().__init__(printable(" ".join(message.split())))


def refuse(place: object, expected: str, got: object) -> NoReturn:
    """Raises an InputError about a place: a file, a row or an option."""
    raise InputError(f"{place}: expected {expected}, got {got}")


def printable(text: str) -> str:
    """A text without control characters, which names in files may hold."""
    return "".join(x if x.isprintable() or x == "\n" else "?" for x in text)


def shown(text: str) -> str:
    """A text in a message, shortened if it is long."""
    text = repr(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names in a message, the first ones and the last of many."""
    names = [x if x.isprintable() and 0 < len(x) <= _SHOWN else shown(x) for x in names]
    return ", ".join([*names[: most - 1], "…", names[-1]] if len(names) > most else names)


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of texts.

    Attributes:
        path: the file.
        columns: stripped texts by name, objects, [n].
        rows: number of each row in the file, [n].
        missing: texts that stand for a missing value, in lower case.
        decimal: the named decimal mark; empty for a point that may stand between thousands.
    """

    path: Path
    columns: Mapping[str, np.ndarray]
    rows: np.ndarray
    missing: frozenset[str]
    decimal: str

    def __getitem__(self, name: str) -> np.ndarray:
        """The texts of a column; refuses other names."""
        if name not in self.columns:
            refuse(self.path, f"a column {name}", f"columns {listed(self.columns, 12)}")
        return self.columns[name]

    def take(self, rows: np.ndarray) -> "Table":
        """Some of the rows, by truth values or indices."""
        columns = {name: texts[rows] for name, texts in self.columns.items()}
        return dataclasses.replace(self, columns=columns, rows=self.rows[rows])

    def place(self, row: int) -> str:
        """How messages call the row of this index."""
        return f"{self.path}, row {self.rows[row]}"

    def refuse_where(self, bad: np.ndarray, expected: str, name: str, advice: str = "") -> None:
        """Raises an InputError for the first row in which a column is bad, if there is one."""
        if bad.any():
            row = int(bad.argmax())
            if self.is_missing(name)[row]:
                advice = "; --skip-missing leaves out such rows"
            got = f"{shown(self[name][row])}{advice}"
            refuse(self.place(row), f"{expected} in column {listed([name])}", got)

    def values(self, name: str) -> np.ndarray:
        """A column as numbers, float64 [n]; NaN for other texts."""
        return _numbers(self[name], self.decimal)

    def numbers(self, name: str, largest: float = np.finfo(float).max) -> np.ndarray:
        """A column of numbers up to a largest size, float64 [n]; refuses others."""
        numbers = self.values(name)
        bad = ~(np.abs(numbers) <= largest)
        is_marked = re.fullmatch(r"[+-]?\d*([.,' ]\d+)+", self[name][bad.argmax()])
        self.refuse_where(bad, "a finite number", name, _MARKS if is_marked else "")
        return numbers

    def is_missing(self, name: str) -> np.ndarray:
        """Whether there is no value, [n]."""
        return np.array([x.lower() in self.missing for x in self[name]], bool)

    def texts(self, name: str) -> list[str]:
        """A column; refuses missing values."""
        self.refuse_where(self.is_missing(name), "a value", name)
        return [*self[name]]


def _numbers(texts: Collection[str], decimal: str = "") -> np.ndarray:
    """Texts as numbers, float64 [n]; NaN for those that are none."""
    mark = decimal or "."
    digits = rf"(\d+{re.escape(mark)}?\d*|{re.escape(mark)}\d+)(e[+-]?\d+)?"
    is_number = re.compile(rf"[+-]?({digits}|inf(inity)?)", re.I | re.A).fullmatch
    return np.array([float(x.replace(mark, ".")) if is_number(x) else np.nan for x in texts], float)


def read(path: Path, options: Namespace) -> Table:
    """Reads a table of texts.

    Args:
        path: the file.
        options: the command line.

    Raises:
        InputError: if the file cannot be read, or has no rows.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            refuse(path, "a regular file", "a folder, pipe or device")
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            refuse(path, "at most 1 GiB", "more; take a sample of the rows")
        sep = (options.sep or ("tab" if ".tsv" in path.name.lower() else ",")).replace("tab", "\t")
        names, *cells = _rows(path, content, sep)
    except InputError:
        raise
    except Exception as error:  # of a damaged file
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(f"{path}: cannot be read ({reason or type(error).__name__})") from None
    columns = dict(zip(names, np.array(cells, object).reshape(-1, len(names)).T, strict=True))
    is_number = np.isfinite(_numbers(names, options.decimal or ""))
    if is_number.any() and (is_number | [x in ("", *columns[x]) for x in names]).all():
        refuse(f"{path}, row 1", "names of columns above the values", listed(names, 4))
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        refuse(path, "columns of different names", f"column {shown(name)} {count} times")
    missing = {x.strip().lower() for x in options.na or ()}
    missing = MISSING | missing | {f"{x}.0" for x in missing}
    return Table(path, columns, 2 + np.arange(len(cells)), missing, options.decimal or "")


def _rows(path: Path, content: bytes, sep: str) -> list[list[str]]:
    """Names of columns, and stripped texts of each row."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeError as error:
        refuse(path, "text in UTF-8", f"{error}; save it as CSV in UTF-8")
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    head = text.partition("\n")[0]
    if "\0" in text or not head.strip() or re.match(f"# |#[^{re.escape(sep)}]*$", head):
        expected = "names of columns in row 1, no comment, and no NUL character"
        refuse(path, expected, f"{shown(head)}; remove lines above the names, and # before them")
    others = [x for x in ",;\t| " if x in head.strip()]
    if others and sep not in head:
        option = others[0].replace("\t", "tab")
        got = f"{shown(head)}; --sep '{option}' names another separator"
        refuse(f"{path}, row 1", f"columns separated by {sep!r}", got)
    lines = (x.strip() if sep == " " else x for x in io.StringIO(text, newline=""))
    reader = csv.reader(lines, delimiter=sep, strict=True, skipinitialspace=sep == " ")
    rows = [[x.strip() for x in row] for row in reader]
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]):
            expected = f"{len(rows[0])} values as in the first row"
            refuse(f"{path}, row {i + 1}", expected, len(row))
    return rows


class Meaning(NamedTuple):
    """A kind of predictions, and its columns by class, level, member or parameter.

    Attributes:
        kind: a key of `TEMPLATES`.
        columns: names of columns in the order of the predictions.
    """

    kind: str
    columns: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Data:
    """Predictions and targets.

    Attributes:
        predictions: a batch of distributions; those of several models by name.
        targets: [n].
        classes: names of the classes, in the order of the labels; empty for other targets.
        groups: the group of each row, [n], by the name of the column; None without.
        features: [n, d], or None.
        weights: [n], or None.
        clusters: the cluster of each row as an integer, [n], or None.
        table: the file, without rows that were left out.
        facts: descriptions of what was read, by name; the first, `predictions`, of the model.
    """

    predictions: Distribution | Mapping[str, Distribution]
    targets: np.ndarray
    classes: tuple[str, ...]
    groups: dict[str, list[str]] | None
    features: np.ndarray | None
    weights: np.ndarray | None
    clusters: np.ndarray | None
    table: Table
    facts: dict[str, str]

    @property
    def options(self) -> dict[str, Any]:
        """Further arguments of `compare` if there are several models, else of `evaluate`."""
        if isinstance(self.predictions, Mapping):
            return {"weights": self.weights, "clusters": self.clusters}
        of_one = {"groups": self.groups, "features": self.features, "weights": self.weights}
        return of_one | {"class_names": self.classes or None}


def load_file(path: Path, options: Namespace) -> dict[str, Data]:
    """The models in a file by name; a single one is called "".

    Args:
        path: the file.
        options: the command line, see `program.parse`.

    Raises:
        InputError: if the file is not as needed, or its meaning is not certain.
    """
    table, unused = read(path, options), []
    named = meanings = _named(table, options)
    is_hub = not named and {*HUB} <= {*table.columns}
    predicted = [x for meaning in named.values() for x in meaning.columns.values()]
    target = options.target or _target(table, OBSERVED if is_hub else TARGETS, predicted)
    if is_hub:
        table, meanings, unused = _of_hub(table, target)
    other = {x: _matching(table, getattr(options, x) or ()) for x in OTHERS}
    used = [target, *itertools.chain(*other.values())]
    if not meanings:
        names = [x for x in table.columns if x not in used]
        meanings = {"": _certain(table, names, target, is_named=options.target is not None)}
    used += [x for meaning in meanings.values() for x in meaning.columns.values()]
    if len({*used}) < len(used):
        refuse(table.path, "one use of each column", listed(used))
    unused += [x for x in table.columns if x not in used]
    size = len(table.rows)
    classes = {x.lower() for meaning in meanings.values() for x in meaning.columns}
    table = dataclasses.replace(table, missing=table.missing - classes)  # a class may be "none"
    if options.skip_missing:
        table = table.take(~np.any([table.is_missing(x) for x in used], 0))
    if not len(table.rows):
        refuse(path, "rows that do not lack values", "none")
    _refuse_doubtful(table, used, options)
    left_out = f" ({size - len(table.rows)} more lack a value)" * (size > len(table.rows))
    facts = {"targets": f"column {target}", "rows": f"{len(table.rows)}{left_out}"}
    facts |= {name: f"columns {listed(x, 100)}" for name, x in other.items() if x}
    facts |= {"not used": listed(unused, 100)} if unused else {}
    features = [table.numbers(x) for x in other["features"]]
    clusters = [np.unique(table.texts(x), return_inverse=True)[1] for x in other["clusters"]]
    of_all: dict[str, Any] = {
        "groups": {x: table.texts(x) for x in other["groups"]} or None,
        "features": np.stack(features, 1) if features else None,
        "weights": next(map(table.numbers, other["weights"]), None),
        "clusters": next(iter(clusters), None),
    }
    models = {}
    for name, meaning in meanings.items():
        words, *model = _model(table, target, meaning, options)
        models[name] = Data(*model, **of_all, table=table, facts={"predictions": words, **facts})
    return models


def _refuse_doubtful(table: Table, names: Sequence[str], options: Namespace) -> None:
    """Refuses points that may stand between thousands, and numbers that may be missing values."""
    has_point = re.compile(r"[+-]?\d*\.\d*(e[+-]?\d+)?", re.I).fullmatch
    is_thousand = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}").fullmatch
    numbers = filter(has_point, (x for name in names for x in table[name]))
    first = next(numbers, "")
    if is_thousand(first) and not table.decimal and all(map(is_thousand, numbers)):
        refuse(table.path, "a certain decimal mark", f"{shown(first)}{_MARKS}")
    for name in names if options.na is None else ():
        values = table.values(name)
        nines = np.array([bool(re.fullmatch(r"-?99+(\.[09]+)?", x)) for x in table[name]])
        rest = values[~nines & np.isfinite(values)]
        low, high = (rest.min(), rest.max()) if rest.size else (np.nan, np.nan)
        # Nines that are farther from all other values than these from each other.
        is_code = nines & (np.maximum(low - values, values - high) > high - low)
        advice = "; --na TEXT ... names texts for missing values, if there are any"
        table.refuse_where(is_code, "a value that is certain", name, advice)


def _matching(table: Table, patterns: Iterable[str]) -> list[str]:
    """The columns that names or patterns stand for; a pattern without any is taken for a name."""
    columns: list[str] = []
    for pattern in patterns:
        matching = () if pattern in table.columns else fnmatch.filter(table.columns, pattern)
        columns += matching or [pattern]
    return [*dict.fromkeys(columns)]


def _assigned(kind: str, pairs: Sequence[str]) -> dict[str, str]:
    """Columns by classes, of COLUMN=VALUE; or by levels, of LEVEL=COLUMN."""
    assigned: dict[str, str] = {}
    for pair in pairs:
        column, sign, value = pair.rpartition("=")
        if kind == "quantiles":
            value, sign, column = pair.partition("=")
        if not sign or value.strip() in assigned:
            refuse(f"--{kind}", "pairs with = of different values", pair)
        assigned[value.strip()] = column
    return assigned


def _named(table: Table, options: Namespace) -> dict[str, Meaning]:
    """The predictions that options name, by model; nothing if they name none."""
    needed = {kind: re.findall(r"--(\w+)", x) for kind, x in TEMPLATES.items()}
    given = {x for x, value in vars(options).items() if value is not None} - {"positive"}
    kinds = [kind for kind, names in needed.items() if given & {*names}]
    if not kinds:
        return {}
    kind, *others = kinds
    if others:
        refuse(table.path, "options for one kind of predictions", f"those for {listed(kinds)}")
    for option in needed[kind]:
        if getattr(options, option) is None:
            refuse(f"--{option}", f"a value, as in calibjax FILE {TEMPLATES[kind]}", "none")
    if kind == "models":
        return {x: Meaning("probability", {_POSITIVE: x}) for x in _matching(table, options.models)}
    if kind == "members":
        columns = {x: x for x in _matching(table, options.members)}
    elif kind == "probability":
        columns = {_POSITIVE: options.probability}
    elif kind == "normal":
        columns = {"loc": options.mean, "scale": options.sd}
    elif kind == "interval":
        if not 0 < options.level < 1:
            refuse("--level", "a probability between 0 and 1, such as 0.9", f"{options.level:g}")
        ends = {-1: options.lower, 1: options.upper}
        columns = {str(round((1 + x * options.level) / 2, 12)): y for x, y in ends.items()}
        kind = "quantiles"
    else:
        columns = _assigned(kind, getattr(options, kind))
    return {"": Meaning(kind, columns)}


def _target(table: Table, usual: Sequence[str], named: Collection[str]) -> str:
    """The column of the targets by a usual name, if there is one beside the predictions."""
    others = [x for x in table.columns if x not in named]
    candidates = [x for x in usual if x in others]
    if usual is TARGETS:  # hubs have other columns of this kind
        pattern = "|".join(x for _, x in _CERTAIN)
        names = [x for x in others if x not in candidates and not re.fullmatch(pattern, x)]
        words = {x: {*re.split(r"[\W_]+", x.lower())} for x in names}
        candidates += [x for x in names if _TRUTHS & words[x] or x.lower() in usual]
        candidates += ["x"] * (candidates == ["y"] and "x" in names)
    if len(candidates) != 1 or candidates[0] not in usual:
        got = f"columns {listed(candidates or others, 12)}; name the one with the targets, "
        got += "which may have to be added from another file: calibjax FILE --target COLUMN"
        refuse(table.path, f"one column of targets ({', '.join(usual)})", got)
    return candidates[0]


def _certain(table: Table, names: Sequence[str], target: str, *, is_named: bool) -> Meaning:
    """What columns of predictions mean, if there is one meaning; else names the options."""
    meanings = _recognised(table, names, table.values(target))
    columns = [x for meaning in meanings for x in meaning.columns.values()]
    others = _alike(table, columns if is_named else [target, *columns], names)
    others += [x for x in names if x in _MODELS | _WEIGHTS and len({*table[x]}) > 1]
    if len(meanings) == 1 and columns and not others:
        return meanings[0]
    kinds = dict.fromkeys(x.kind for x in meanings)
    fit = f", which fit {' and '.join(kinds)}" if kinds else ""
    templates = " or ".join(TEMPLATES[x] for x in kinds or TEMPLATES)
    doubtful = listed([target, *columns[:4], *others] if others else names, 12)
    got = f"columns {doubtful or 'of targets'}{fit}; name them: calibjax FILE --target COLUMN "
    got += "[--groups COLUMN] [--weights COLUMN] " * bool(others) + templates
    refuse(table.path, "columns of one kind of predictions, and one of targets", got)


def _alike(table: Table, columns: Sequence[str], names: Iterable[str]) -> list[str]:
    """The names that begin with one of these columns, and may hold what it holds."""
    begins = re.compile(rf"({'|'.join(map(re.escape, columns)) or '(?!)'})[\W_\d]").match
    names = [x for x in names if begins(x) and x not in columns]
    texts = {x for name in columns if names for x in table[name]}
    return [x for x in names if np.isfinite(table.values(x)).any() or texts & {*table[x]}]


def _recognised(table: Table, names: Sequence[str], targets: np.ndarray) -> list[Meaning]:
    """Kinds of predictions by the names of columns; without columns if they are not certain."""
    meanings: list[Meaning] = []
    for kind, pattern in _CERTAIN:
        matches = filter(None, (re.fullmatch(pattern, x, re.S) for x in names))
        columns = {match[1]: match[0] for match in matches}
        if len(columns) > (kind != "quantiles"):
            meanings.append(Meaning(kind, columns))
    if {"mean", "sd"} <= {*names} and not _SHAPES & {*names}:
        meanings.append(Meaning("normal", {"loc": "mean", "scale": "sd"}))
    for kind, columns in meanings[:]:
        values = np.array([table.values(x) for x in columns.values()])
        if kind == "classes":  # the first may be the likeliest in each row
            is_falling = (np.diff(values, axis=0) <= 0).all() and np.diff(values).any()
            is_other = len(values) > 2 and is_falling
            is_other |= any(re.match(_RANKED, x, re.I) for x in names)
        else:  # they may be probabilities of one outcome, votes for classes, or features
            may_be_classes = kind == "normal" or (kind == "members" and _are_labels(values, 2.0))
            is_other = _are_labels(targets, 2.0 if may_be_classes else 1.0)
        if is_other:
            is_binary = kind != "classes" and _are_labels(targets, 1.0)
            meanings.append(Meaning("probability" if is_binary else "classes", {}))
    if "prob" in names:
        # The column may hold the confidence in a predicted label.
        is_confidence = _are_labels(np.floor(2 * table.values("prob")) - 1, 1.0)
        is_confidence |= any(re.match(_DECISIONS, x, re.I) for x in names)
        meanings.append(Meaning("probability", {} if is_confidence else {_POSITIVE: "prob"}))
    return meanings


def _are_labels(numbers: np.ndarray, most: float = np.inf) -> bool:
    """Whether numbers may be those of classes, but for missing ones."""
    known = numbers[~np.isnan(numbers)]
    is_label = (known >= 0) & (known <= most) & (known == np.floor(known))
    return known.size > 0 and bool(is_label.all())


def _of_hub(table: Table, target: str) -> tuple[Table, dict[str, Meaning], list[str]]:
    """The long format of forecast hubs with a row for each task, and its models.

    Returns:
        The table, the columns of each model, and descriptions of rows that are not used.
    """
    types = table.columns["output_type"]
    kinds = {"quantile", "sample"} & {*types}
    tasks = [x for x in table.columns if x not in ("", "model_id", target, *HUB)]
    if len(kinds) != 1 or not tasks:
        got = f"{listed(sorted({*types}))} and columns {listed(tasks)} of tasks"
        refuse(table.path, "output_type quantile or sample and columns of tasks", got)
    if others := (_MODELS | {"team", "team_name", "team_abbr"}) & {*tasks}:
        got = f"column {listed(others)}; call it model_id if it names the models"
        refuse(table.path, "models in column model_id", got)
    (kind,) = kinds
    table, unused = table.take(types == kind), [f"rows of {x}" for x in sorted({*types} - kinds)]
    names = table.columns.get("model_id", np.full(len(table.rows), "", object))
    observed, levels, number = table[target], table.columns["output_type_id"], Counter()
    first: dict[tuple[str, ...], int] = {}  # row of each task
    cells: dict[tuple[str, str], dict[tuple[str, ...], str]] = {}  # by model and level, and task
    for i, key in enumerate(zip(*(table.columns[x] for x in tasks), strict=True)):
        number[key, names[i]] += 1  # samples are counted, since tasks may name them differently
        level = levels[i] if kind == "quantile" else str(number[key, names[i]])
        column = cells.setdefault((names[i], level), {})
        if key in column:
            refuse(table.place(i), "one value of each task, model and level", "another")
        column[key] = table.columns["value"][i]
        if observed[i] != observed[first.setdefault(key, i)]:
            refuse(table.place(i), f"one value of {target} in all rows of the same task", "another")
    rows = table.take(np.array([first[key] for key in sorted(first)]))
    columns = {x: rows.columns[x] for x in (*tasks, target)}
    models: dict[str, Meaning] = {}
    for name in dict.fromkeys(names):
        of_model = {level: f"{name} {kind} {level}".strip() for _, level in cells}
        models[name] = Meaning(f"{kind}s".replace("sample", "member"), of_model)
        for level, column in of_model.items():  # a model without the level lacks its values
            texts = [cells.get((name, level), {}).get(key, "") for key in sorted(first)]
            columns[column] = np.array(texts, object)
    return dataclasses.replace(rows, columns=columns), models, unused


def _model(table: Table, target: str, meaning: Meaning, options: Namespace) -> tuple[Any, ...]:
    """Description of one model, its predictions, the targets, and the names of their classes."""
    (kind, columns), classes = meaning, ()
    if options.positive is not None and kind != "probability":
        refuse("--positive", "predictions of kind probability", kind)
    predictions, note = _predictions(table, meaning)
    words = f"{kind}: {listed(columns.values())}{note}"
    if kind == "probability":
        classes, targets = _two_labels(table, target, options.positive)
        words = f"probability of label {classes[1]}: {columns[_POSITIVE]}"
    elif kind == "classes":
        classes, targets = tuple(columns), _labels(table, target, columns)
    else:
        targets = table.numbers(target)
    decided = _decided(table, meaning, target, predictions, targets)
    if decided and options.target is None:
        advice = "; name the observed targets, even if these are: calibjax FILE --target COLUMN"
        refuse(table.path, "one column of observed targets", f"{decided}{advice}")
    return f"{words}{f'; {decided}' * bool(decided)}", predictions, targets, classes


def _decided(table: Table, meaning: Meaning, target: str, predictions: Any, targets: Any) -> str:
    """Says that the targets may be decisions of the model, if they look like it.

    Under calibration, the likeliest class is wrong in a row with probability 1 - max p, and
    decisions at another threshold are wrong more often. If 14 or more errors are expected, at most
    a twentieth of them has a probability below 1e-6: tails of Poisson distributions are longer.
    """
    if isinstance(predictions, distributions.Normal) and (predictions.loc == targets).all():
        return f"{target}, which is always the predicted mean"
    if not isinstance(predictions, distributions.Categorical | distributions.Bernoulli):
        return ""
    size, probs = len(targets), np.asarray(predictions.probs)
    probs = np.stack([1 - probs, probs], 1) if probs.ndim == 1 else probs
    is_likeliest = probs == probs.max(1, keepdims=True)
    errors = size - is_likeliest[np.arange(size), targets].sum()
    expected = probs[~is_likeliest].sum()
    labels = {*table.columns[target], *("01" if meaning.kind == "probability" else meaning.columns)}
    others = table.columns.keys() - {target, *meaning.columns.values()}
    for name in sorted(others) if not errors else ():
        texts = {*table.columns[name]}
        if len(texts) > 1 and texts <= labels:
            return f"{target}, which is always the likeliest label, and {name}"
    if probs.shape[1] == 2:  # another threshold
        zeros, ones = (np.sort(probs[targets == y, 1]) for y in (0, 1))
        cuts = np.unique(probs[:, 1])
        errors = (len(zeros) - np.searchsorted(zeros, cuts) + np.searchsorted(ones, cuts)).min()
    rarer = size - np.bincount(targets).max()  # rows without the most frequent label
    if not rarer or expected < 14 or errors > min(expected, rarer) / 20:
        return ""
    right = f"{size - errors} of {size} rows, where {expected:.0f} errors are expected"
    return f"{target}, which follows from the predictions in {right}"


def _labels(table: Table, target: str, columns: Mapping[str, str]) -> np.ndarray:
    """Positions of the labels among the names of the classes, [n]."""
    stem = re.sub(r"[^_.]+$", "", target)
    outcomes = [f"{stem}{x}" for x in columns]
    if {target} < {*outcomes} <= {*table.columns}:
        got = f"a column of each class, {listed(outcomes)}: the labels have to be in one column"
        refuse(table.path, "a column of labels", got)
    positions = {name: i for i, name in enumerate(columns)}
    indices = np.array([positions.get(x, -1) for x in table.texts(target)])
    pairs = " ".join(f"{x}=VALUE" for x in [*columns.values()][:4]) + " …" * (len(columns) > 4)
    advice = f"; name them: calibjax FILE --classes {pairs}"
    table.refuse_where(indices < 0, f"one of the labels {listed(columns)}", target, advice)
    return indices


def _two_labels(
    table: Table, target: str, positive: str | None
) -> tuple[tuple[str, str], np.ndarray]:
    """The negative and the positive label, and which of them each row has, [n]."""
    texts = table.texts(target)
    different = sorted({*texts})
    numbers = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
    if positive is None and {x.lower() for x in different} <= {*numbers}:
        return ("0", "1"), np.array([numbers[x.lower()] for x in texts])
    if len(different) == 2 and positive in different:
        negative = different[1 - different.index(positive)]
        return (negative, positive), np.array([int(x == positive) for x in texts])
    wanted = "labels 0 and 1" if positive is None else f"two labels, one of them {positive},"
    got = f"{listed(different)}; --positive VALUE names the label that has this probability"
    refuse(table.path, f"{wanted} in column {target}", got)


def _predictions(table: Table, meaning: Meaning) -> tuple[Distribution, str]:
    """The predictions, and what was done to the numbers, if anything."""
    kind, columns = meaning
    largest = np.inf if kind == "quantiles" else np.finfo(float).max
    values: list[Any] = [table.numbers(x, largest) for x in columns.values()]
    if kind == "normal":
        table.refuse_where(values[1] <= 0, "a positive number", columns["scale"])
        return distributions.Normal(*values), ""
    if len(values) < 2 and kind in ("classes", "members"):
        refuse(table.path, f"two or more {kind}", listed(columns))
    rows: Any = np.stack(values, 1)
    if kind == "members":
        return distributions.Ensemble(rows), ""
    if kind == "quantiles":
        levels = _numbers(columns)
        if not ((levels > 0) & (levels < 1)).all() or len(np.unique(levels)) < len(levels):
            got = f"{listed(columns)}; name them: calibjax FILE {TEMPLATES[kind]}"
            refuse(table.path, "different levels between 0 and 1", got)
        order = np.argsort(levels)
        each: Any = np.tile(levels[order], (len(rows), 1))
        return distributions.Quantiles(each, rows[:, order]), ""
    rows = checks.unrounded(rows)
    for name, column in zip(columns.values(), rows.T, strict=True):
        table.refuse_where(np.abs(column - 0.5) > 0.5, "a probability in [0, 1]", name)
    if kind == "probability":
        return distributions.Bernoulli(rows[:, 0]), ""
    sums = rows.sum(1)
    off = np.abs(sums - 1)
    if off.max() > _ROUNDED:
        row = int(off.argmax())
        expected = f"probabilities that sum to one in columns {listed(columns.values(), 3)}"
        refuse(table.place(row), expected, f"the sum {sums[row]:.7g}, the farthest off")
    is_off = off.max() > checks.simplex_tolerance(jnp.result_type(float))
    note = f", divided by their sums, which are from {sums.min():.4g} to {sums.max():.4g}"
    return distributions.Categorical(rows / sums[:, None]), note * bool(is_off)


def check_same_rows(first: Data, other: Data) -> None:
    """Refuses a file whose rows have other targets, weights or clusters than the first file."""
    path, columns = other.table.path, (first.table.columns, other.table.columns)
    for name in ("classes", "targets", "weights", "clusters"):
        if not np.array_equal(getattr(first, name), getattr(other, name)):
            refuse(path, f"the {name} of {first.table.path} in all rows", "others")
    for name in columns[0].keys() & columns[1].keys():  # which may identify the rows
        ours, theirs = ([*x[name]] for x in columns)
        if ours != theirs and len({*ours}) == len(ours) and {*ours} == {*theirs}:
            refuse(path, f"rows in the order of {first.table.path} by column {name}", "another")
