"""Reads files: their columns, what the columns mean, and the predictions and targets they hold.

Only what is certain is read. Where columns have two meanings or none, an `InputError` reports what
the file holds, and the options that name columns, with capitals in place of the user's names.
"""

import bisect
import codecs
import contextlib
import csv
import dataclasses
import fnmatch
import gzip
import io
import re
import stat
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from calibjax._core import checks, environment
from calibjax._core.gate import passed
from calibjax.distributions.base import Distribution

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # in lower case
TEXTS = {".csv": ",", ".tsv": "\t", ".txt": ","}  # and their separators
ENDINGS = (*TEXTS, ".parquet")
TARGETS = ("target", "targets", "label", "labels", "y_true", "y")
HUB = ("output_type", "output_type_id", "value")
_LARGEST = 2**30  # bytes of a file, unpacked
_SHOWN = 60  # characters of a value
_POSITIVE = "positive"
_GROUPED = re.compile(r"[+-]?(0|[1-9]\d{0,2}(\.\d{3})*)")  # whole, or with three digits a point

# Families with scalar parameters: student_t is StudentT.
_FAMILIES = "normal laplace logistic student_t generalized_normal log_normal gamma beta uniform"
FAMILIES: Mapping[str, type] = {
    name: getattr(distributions, name.title().replace("_", ""))
    for name in f"{_FAMILIES} poisson negative_binomial".split()
}
# Options that name the columns of a kind of predictions, with places to fill in.
TEMPLATES = {
    "probability": "--probability COLUMN --positive VALUE",
    "classes": "--classes COLUMN=VALUE COLUMN=VALUE",
    "logits": "--logits COLUMN=VALUE COLUMN=VALUE",
    "normal": "--mean COLUMN --sd COLUMN",
    "quantiles": "--quantiles LEVEL=COLUMN LEVEL=COLUMN",
    "interval": "--lower COLUMN --upper COLUMN --level LEVEL",
    "members": "--members COLUMN COLUMN",
    "family": "--family NAME --parameters NAME=COLUMN",
    "models": "--models COLUMN COLUMN --positive VALUE",
}
_COMMON = "probability", "classes", "normal", "quantiles", "interval"
# Names of columns that say what they hold: a prefix, and what distinguishes the columns.
_CERTAIN = {
    "classes": r"((?:probs?|p)[_.])(.+)",
    "logits": r"(logits?[_.])(.+)",
    "quantiles": r"(?:quantiles?[_.]|q)()(\d*\.?\d+)",
    "members": r"(members?[_.])(\d+)",
}


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


def shown(value: object, length: int = _SHOWN) -> str:
    """A value in a message, shortened if it is long."""
    value = value.item() if isinstance(value, np.generic) else value
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= length else f"{text[:length]}…"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names in a message, the first ones and the last of many."""
    names = list(names)
    shortened = [*names[: most - 1], "…", names[-1]] if len(names) > most else names
    return ", ".join(
        (x or "(without a name)") if x.isprintable() and len(x) <= _SHOWN else shown(x)
        for x in shortened
    )


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns of texts.

    Attributes:
        path: the file.
        columns: stripped texts by name, objects, [n].
        rows: number of each row in the file, [n].
        missing: texts that stand for a missing value, in lower case.
        marks: the decimal mark of numbers, and the one between thousands or nothing.
        is_open: whether nothing says which mark a point is, as in texts with semicolons.
    """

    path: Path
    columns: Mapping[str, np.ndarray]
    rows: np.ndarray
    missing: frozenset[str] = MISSING
    marks: tuple[str, str] = (".", "")
    is_open: bool = False

    def __len__(self) -> int:
        return len(self.rows)

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
            text = self.columns[name][row]
            advice = advice or _advice(text)
            if self.is_missing(name)[row]:
                advice = "; --skip-missing leaves out such rows"
            expected = f"{expected} in column {listed([name])}"
            refuse(self.place(row), expected, f"{shown(text)}{advice}")

    def values(self, name: str, *, is_percent: bool = False) -> np.ndarray:
        """A column as numbers, float64 [n]; NaN for other texts."""
        numbers = _numbers(self.columns[name], *self.marks, "%" * is_percent)
        return numbers / 100 if is_percent else numbers

    def numbers(
        self, name: str, largest: float = np.finfo(float).max, *, is_percent: bool = False
    ) -> np.ndarray:
        """A column of numbers up to a largest size, float64 [n]; refuses others."""
        numbers = self.values(name, is_percent=is_percent)
        self.refuse_where(~(np.abs(numbers) <= largest), "a finite number", name)
        points = np.array(["." in x for x in self.columns[name]])
        if self.is_open and all(map(_GROUPED.fullmatch, self.columns[name])):
            advice = ", a fraction or thousands; say --decimal . or --decimal , --thousands ."
            self.refuse_where(points, "a number that can be read in one way", name, advice)
        return numbers

    def is_missing(self, name: str, labels: Collection[str] = ()) -> np.ndarray:
        """Whether there is no value, [n]; the names of `labels` are values in any case."""
        texts = self.columns[name]
        return np.array([x.lower() in self.missing and x not in labels for x in texts], bool)

    def texts(self, name: str, labels: Collection[str] = ()) -> list[str]:
        """A column; refuses missing values."""
        self.refuse_where(self.is_missing(name, labels), "a value", name)
        return [*self.columns[name]]


def _numbers(
    texts: Iterable[str], decimal: str = ".", thousands: str = "", sign: str = ""
) -> np.ndarray:
    """Texts as numbers, float64 [n]; NaN for those that are none."""
    texts = [*texts]
    if (decimal, thousands, sign) == (".", "", "") and "_" not in "".join(texts):
        with contextlib.suppress(ValueError):  # `float` takes 1_000
            return np.array(texts, object).astype(np.float64)
    groups = rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+|" if thousands else ""
    digits = rf"(?:{groups}\d*)(?:{re.escape(decimal)}\d*)?(?:e[+-]?\d+)?"
    pattern = re.compile(rf"[+-]?(?:{digits}|inf|infinity|nan)", re.I)

    def number(text: str) -> float:
        text = text.removesuffix(sign).strip()
        with contextlib.suppress(ValueError):
            if pattern.fullmatch(text):
                return float(text.replace(thousands, "").replace(decimal, "."))
        return np.nan

    return np.array([number(x) for x in texts], np.float64)


def _advice(text: str) -> str:
    """Options for a text that should be a number."""
    comma, thousands = "; --decimal , reads a decimal comma", "--thousands , thousands"
    patterns = {
        r".*\d ?%": "; --percent reads percentages",
        r"[+-]?\d{1,3}(,\d{3})+": f"{comma}, {thousands}",
        r"[+-]?\d*,\d+": comma,
        r"[+-]?\d{1,3}([.,' ]\d{3})+[.,]\d+": "; see --decimal and --thousands",
    }
    return next((advice for x, advice in patterns.items() if re.fullmatch(x, text)), "")


@contextlib.contextmanager
def _refusing_damage(path: Path, how: str = "") -> Iterator[None]:
    """Names the file in any error that a damaged file raises."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        reason = reason or type(error).__name__
        raise InputError(f"{path}: cannot be read{how} ({reason})") from None


def read(path: Path, options: Namespace, number: int | None = None) -> Table:
    """Reads a table; the ending of the file's name decides its format.

    Args:
        path: the file.
        options: the command line.
        number: of rows that are expected of a file with one column, with or without a header.

    Raises:
        InputError: if the file cannot be read, or has no rows.
    """
    is_packed = path.suffix.lower() == ".gz"
    kind = Path(path.stem if is_packed else path).suffix.lower()
    if kind not in ENDINGS:
        refuse(path, f"a file {', '.join(ENDINGS)} (or these with .gz)", f"{path.name}")
    with _refusing_damage(path):
        if not stat.S_ISREG(path.stat().st_mode):
            refuse(path, "a regular file", "a folder, pipe or device")
        with gzip.open(path) if is_packed else path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            refuse(path, "at most 1 GiB", "more; take a sample of the rows")
    start, marks = 1, (".", "")
    if kind == ".parquet":
        with _refusing_damage(path, " as Parquet"):
            use = "Parquet is read with pyarrow"
            parquet = environment.imported("pyarrow.parquet", use, "report")
            read_columns = parquet.read_table(io.BytesIO(content)).to_pydict()
        names = [*read_columns]
        columns = [[str(x).strip() for x in values] for values in read_columns.values()]
    else:
        names, columns, start = _columns_of_text(path, content, TEXTS[kind], options, number)
        marks = options.decimal or ".", options.thousands or ""
    (name, count), *_ = Counter(names).most_common(1) or [("", 0)]
    if count > 1:
        refuse(path, "columns of different names", f"column {shown(name)} {count} times")
    texts = {x: np.array(y, object) for x, y in zip(names, columns, strict=True)}
    if not texts or not len(texts[name]):
        refuse(path, "rows", "none")
    rows = start + np.arange(len(texts[name]))
    missing = MISSING | {x.strip().lower() for x in options.na or ()}
    is_open = options.sep == ";" and not (options.decimal or options.thousands)
    return Table(path, texts, rows, missing, marks, is_open)


def _columns_of_text(
    path: Path, content: bytes, sep: str, options: Namespace, number: int | None
) -> tuple[Sequence[str], np.ndarray, int]:
    """Names of columns, their texts, objects [m, n], and the number of the first row."""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = options.encoding or ("utf-16" if is_utf16 else "utf-8-sig")
    try:
        text = content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    except (UnicodeError, LookupError) as error:
        expected = f"text in {encoding.upper().removesuffix('-SIG')}"
        refuse(path, expected, f"{error}; --encoding names another encoding")
    head = text.partition("\n")[0]
    if "\0" in text or not head.strip():
        got = "a NUL character" if "\0" in text else "an empty line" if text else "nothing"
        refuse(path, "names of columns in row 1", got)
    others = [x for x in (",", ";", "\t") if x in head and sep not in head]
    if others and not options.sep:
        option = others[0].replace("\t", "tab")
        got = f"{shown(head)}; --sep '{option}' names another separator"
        refuse(f"{path}, row 1", f"columns separated by {sep!r}", got)
    sep = options.sep or sep
    cells = _cells(path, text, sep)
    has_names = options.header
    if has_names is None and cells.shape[1] == 1 and number in (len(cells), len(cells) - 1):
        has_names = len(cells) != number
    elif has_names is None:
        has_names = True
        if np.isfinite(_numbers(cells[0], options.decimal or ".")).all():
            got = f"numbers ({listed(cells[0], 4)}); say --no-header, or --header if they are names"
            refuse(f"{path}, row 1", "names of columns", got)
    names = [*cells[0]] if has_names else [str(i + 1) for i in range(len(cells[0]))]
    return names, cells[int(has_names) :].T, 1 + has_names


def _cells(path: Path, text: str, sep: str) -> np.ndarray:
    """Stripped values of a text, objects [n, m], without empty rows at its end."""
    with _refusing_damage(path, " as CSV"):
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=sep, strict=True)
        rows = [[x.strip() for x in row] for row in reader]
    while len(rows) > 1 and not any(rows[-1]):
        rows.pop()
    number = len(rows[0])
    for i, row in enumerate(rows):
        if len(row) != number:
            expected = f"{number} values as in the first row"
            refuse(f"{path}, row {i + 1}", expected, len(row))
    return np.array(rows, object)


class Meaning(NamedTuple):
    """A kind of predictions, and its columns by class, level, member or parameter.

    Attributes:
        kind: a key of `TEMPLATES` or `FAMILIES`.
        columns: names of columns in the order of the predictions.
    """

    kind: str
    columns: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Data:
    """Predictions and targets.

    Attributes:
        predictions: a batch of distributions.
        targets: [n].
        groups: the group of each row, [n], by the name of the column; None without.
        features: [n, d], or None.
        weights: [n], or None.
        clusters: the cluster of each row as an integer, [n], or None.
        classes: names of the classes, in the order of the labels; empty for other targets.
        table: the file, without rows that were left out.
        facts: descriptions of what was read, by name; the first is about the predictions.
    """

    predictions: Distribution
    targets: np.ndarray
    groups: dict[str, list[str]] | None
    features: np.ndarray | None
    weights: np.ndarray | None
    clusters: np.ndarray | None
    classes: tuple[str, ...]
    table: Table
    facts: tuple[tuple[str, str], ...]


def load_file(path: Path, options: Namespace) -> dict[str, Data]:
    """The models in a file by name; a single one is called "".

    Args:
        path: the file.
        options: the command line, see `program.parse`.

    Raises:
        InputError: if the file is not as needed, or its meaning is not certain.
    """
    table, labels, observed, unused = read(path, options), None, TARGETS, []
    if options.labels is not None:
        labels = read(options.labels, options, len(table))
    meanings = _named(table, options)
    if not meanings and {*HUB} <= {*table.columns}:
        table, meanings, unused = _of_hub(table)
        observed = ("observation", "oracle_value", *(["value"] if labels else []))
    other = {x: _chosen(table, x, getattr(options, x)) for x in OTHERS}
    others = [x for columns in other.values() for x in columns]
    target = _target(labels or table, options.target, observed)
    if not meanings:
        names = [x for x in table.columns if x not in others and (labels or x != target)]
        meanings = {"": _certain(table, names, (labels or table).values(target))}
    columns = [x for meaning in meanings.values() for x in meaning.columns.values()]
    inputs = [*others, *columns]
    (name, count), *_ = Counter([*inputs, *([] if labels else [target])]).most_common(1)
    if count > 1:
        refuse(path, f"one use of column {name}", count)
    places = np.arange(len(table)) if labels is None else _places(table, labels, target)
    keep = places >= 0
    labels = (labels or table).take(np.maximum(places, 0))
    if options.skip_missing:
        keep &= ~np.any([table.is_missing(x) for x in inputs], 0)
        keep &= ~labels.is_missing(target, next(iter(meanings.values())).columns)
        if not keep.any():
            refuse(path, "rows without missing values", "none")
    elif not keep.all():
        got = f"none in {options.labels}; --skip-missing leaves out such rows"
        refuse(table.place(int(keep.argmin())), "a row of labels with the same values", got)
    number = np.sum(~keep)
    used = {*inputs, *([] if options.labels else [target])}
    unused += [x for x in table.columns if x not in used]
    facts = [
        ("targets", f"column {target}{f' of {options.labels}' if options.labels else ''}"),
        ("rows", f"{np.sum(keep)}{f' ({number} more lack a value)' if number else ''}"),
        *((name, f"columns {listed(x, 100)}") for name, x in other.items() if x),
        *([("not used", listed(unused, 100))] if unused else []),
    ]
    return {
        name: _data(table.take(keep), labels.take(keep), target, meaning, other, options, facts)
        for name, meaning in meanings.items()
    }


OTHERS = ("groups", "features", "weights", "clusters")


def _chosen(table: Table, option: str, names: Sequence[str] | None) -> tuple[str, ...]:
    """Columns of groups or features, by an option or by their names; others by an option."""
    if names is not None:
        return _matching(table, names, f"--{option}")
    pattern = re.compile(rf"{option[:-1]}s?([_.].+)?", re.S)
    is_named = option in ("groups", "features")
    return tuple(x for x in table.columns if is_named and pattern.fullmatch(x))


def _matching(table: Table, patterns: Iterable[str], option: str) -> tuple[str, ...]:
    """The columns that names or patterns stand for; refuses a pattern without any."""
    columns: list[str] = []
    for pattern in patterns:
        matching = [pattern] if pattern in table.columns else []
        if not matching and any(x in pattern for x in "*?["):
            matching = fnmatch.filter(table.columns, pattern)
        if not matching:
            refuse(
                table.path, f"a column {pattern} ({option})", f"columns {listed(table.columns, 12)}"
            )
        columns += matching
    if len({*columns}) < len(columns):
        refuse(option, "different columns", listed(columns))
    return tuple(columns)


def _assigned(table: Table, option: str, pairs: Sequence[str]) -> dict[str, str]:
    """Columns by classes, of COLUMN=VALUE; or by levels or parameters, of VALUE=COLUMN.

    For classes, a pattern with one * stands for all columns that match it; their classes are the
    texts that * stands for.
    """
    assigned: list[tuple[str, str]] = []
    is_first = option in ("--classes", "--logits")
    for pair in pairs:
        left, sign, right = pair.rpartition("=") if is_first else pair.partition("=")
        pattern = re.compile("(.+)".join(map(re.escape, pair.split("*"))), re.S)
        column, value = (left, right) if is_first else (right, left)
        if sign:
            assigned.append((value.strip(), _matching(table, [column], option)[0]))
        elif is_first and pair.count("*") == 1 and any(map(pattern.fullmatch, table.columns)):
            assigned += [(x[1], x[0]) for x in map(pattern.fullmatch, table.columns) if x]
        else:
            refuse(option, "pairs with =", pair)
    if len({x for x, _ in assigned}) < len(assigned):
        refuse(option, "different values", listed(x for x, _ in assigned))
    return dict(assigned)


# Options that need another one.
_TOGETHER = {"probability": "positive", "models": "positive", "mean": "sd", "sd": "mean"}
_TOGETHER |= {"lower": "upper", "upper": "level", "level": "lower", "parameters": "family"}
# Options of some kinds only.
_NEEDS = {"positive": ("probability",), "percent": ("probability", "classes")}
_NEEDS |= {"normalize": ("classes",), "sort_quantiles": ("quantiles",)}


def _named(table: Table, options: Namespace) -> dict[str, Meaning]:
    """The predictions that options name, by model; nothing if they name none."""
    for option, needed in _TOGETHER.items():
        if getattr(options, option) is not None and getattr(options, needed) is None:
            template = next(x for x in TEMPLATES.values() if f"--{option} " in x)
            refuse(f"--{option}", f"--{needed}, too", f"none: calibjax FILE {template}")

    options_of_kinds = {template.split()[0][2:] for template in TEMPLATES.values()}
    chosen = sorted(x for x in options_of_kinds if getattr(options, x) is not None)
    if len(chosen) > 1:
        got = " and ".join(f"--{x}" for x in chosen)
        refuse(table.path, "options for one kind of predictions", got)
    if not chosen:
        return {}

    def one(option: str) -> str:
        return _matching(table, [getattr(options, option)], f"--{option}")[0]

    (option,) = chosen
    given = getattr(options, option)
    if option in ("members", "models"):
        columns = _matching(table, given, f"--{option}")
        if option == "models":
            return {x: Meaning("probability", {_POSITIVE: x}) for x in columns}
        meaning = Meaning("members", {x: x for x in columns})
    elif option == "probability":
        meaning = Meaning("probability", {_POSITIVE: one("probability")})
    elif option == "mean":
        meaning = Meaning("normal", {"loc": one("mean"), "scale": one("sd")})
    elif option == "lower":
        levels = [str(round((1 + sign * options.level) / 2, 12)) for sign in (-1, 1)]
        meaning = Meaning("quantiles", {levels[0]: one("lower"), levels[1]: one("upper")})
    elif option == "family":
        needed = parameters(given)
        pairs = options.parameters or [f"{x}={x}" for x in needed]
        columns = _assigned(table, "--parameters", pairs)
        if {*columns} != {*needed}:
            expected = f"the parameters {listed(needed)} of {given}"
            refuse("--parameters", expected, listed(columns))
        meaning = Meaning(given, {x: columns[x] for x in needed})
    else:
        meaning = Meaning(option, _assigned(table, f"--{option}", given))
    return {"": meaning}


def parameters(family: str) -> tuple[str, ...]:
    """Names of the parameters of a family of `FAMILIES`."""
    fields = dataclasses.fields(FAMILIES[family])  # pyright: ignore[reportArgumentType]
    return tuple(x.name.strip("_") for x in fields if "constraint" in x.metadata)


def _target(table: Table, name: str | None, usual: Sequence[str]) -> str:
    """The column of the targets: the one that an option names, the only one, or a usual name."""
    columns = [*table.columns]
    if name is not None:
        return _matching(table, [name], "--target")[0]
    candidates = columns if len(columns) == 1 else [x for x in usual if x in columns]
    if len(candidates) != 1:
        got = listed(candidates) if candidates else f"columns {listed(columns, 12)}"
        templates = "calibjax FILE --target COLUMN or calibjax FILE --labels FILE"
        expected = f"one column of targets ({', '.join(usual)})"
        refuse(table.path, expected, f"{got}; name it: {templates}")
    return candidates[0]


def _certain(table: Table, names: Sequence[str], targets: np.ndarray) -> Meaning:
    """What columns of predictions mean, if there is one meaning; else names the options."""
    meanings = _recognised(table, names, targets)
    if len(meanings) == 1 and meanings[0].columns:
        return meanings[0]
    kinds = dict.fromkeys(x.kind for x in meanings)
    got = f"columns {listed(names, 12)}" if names else "no other column"
    fit = f", which fit {' and '.join(kinds)}" if kinds else ""
    templates = " or ".join(f"calibjax FILE {TEMPLATES[x]}" for x in kinds or _COMMON)
    expected = "columns of one kind of predictions"
    refuse(table.path, expected, f"{got}{fit}; name them: {templates}")


def _recognised(table: Table, names: Sequence[str], targets: np.ndarray) -> list[Meaning]:
    """Kinds of predictions by the names of columns; without columns if they are not certain."""
    meanings: list[Meaning] = []
    for kind, pattern in _CERTAIN.items():
        groups: dict[str, dict[str, str]] = {}
        for match in filter(None, (re.fullmatch(pattern, x, re.S) for x in names)):
            columns = groups.setdefault(match[1], {})
            columns[match[2] if match[2] not in columns else match[0]] = match[0]
        for columns in groups.values():
            if kind == "quantiles":
                meanings.append(Meaning(kind, columns if _are_levels(columns) else {}))
            elif len(columns) > 1:
                meanings.append(Meaning(kind, columns))
    single = [x for x in ("prob", "probs", "p") if x in names]
    if len(single) == 1:
        # The column may hold the confidence in a predicted label.
        known = {*np.unique(targets[~np.isnan(targets)]).tolist()} or {0.0, 1.0}
        others = (table.values(x) for x in names if x != single[0])
        is_label = any(re.match(r"(y_?)?(pred|hat)", x, re.I) for x in names)
        is_label |= any({*np.unique(x).tolist()} <= known for x in others)
        is_confidence = is_label and not (table.values(single[0]) < 0.5).any()
        meanings.append(Meaning("probability", {} if is_confidence else {_POSITIVE: single[0]}))
    locs = [x for x in ("mean", "loc") if x in names]
    scales = [x for x in ("sd", "std", "scale") if x in names]
    if locs and scales:
        is_one = len(locs) == len(scales) == 1
        meanings.append(Meaning("normal", {"loc": locs[0], "scale": scales[0]} if is_one else {}))
        means, labels = (x[~np.isnan(x)] for x in (table.values(locs[0]), targets))
        if means.size and np.isin(labels, (0, 1)).all() and (np.abs(means - 0.5) <= 0.5).all():
            meanings.append(Meaning("probability", {}))  # with a standard error
    others = [x for x in map(parameters, FAMILIES) if x != ("loc", "scale")]
    meanings += [Meaning("family", {}) for needed in others if {*needed} <= {*names}]
    return meanings


def _are_levels(texts: Collection[str]) -> bool:
    levels = _numbers(texts)
    return bool(((levels > 0) & (levels < 1)).all()) and len({*levels.tolist()}) == len(texts)


def _places(table: Table, labels: Table, target: str) -> np.ndarray:
    """The row of labels that belongs to each row of a table, [n]; -1 if there is none.

    Rows belong together that are equal in the columns that both files have. Files of the same rows
    may repeat them, and a file with nothing but the labels has none.
    """
    names = [x for x in labels.columns if x not in (target, *HUB)]
    keys = [x for x in names if x in table.columns]
    ours, theirs = ([[*x.columns[k]] for k in keys] for x in (table, labels))
    if len(labels) == len(table) and ours == theirs and len(keys) == len(names):
        return np.arange(len(table))
    if not keys:
        sizes = f"{len(table)} rows as in {table.path}", len(labels)
        own = "a column that both files have, or the labels alone", f"columns {listed(names)}"
        refuse(labels.path, *(own if names else sizes))
    dates = [x for x in names if re.match(r"\d{4}-\d\d", labels.columns[x][0])]
    others = [x for x in dates if x not in keys]
    # The date of what is forecast tells horizons apart.
    tasks = ["target", "variable", *["horizon"] * (not any("target" in x for x in keys))]
    rivals = [x for x in tasks if x in table.columns and x not in keys]
    rivals = [x for x in rivals if len({*table.columns[x]}) > 1]
    places = {row: i for i, row in enumerate(zip(*theirs, strict=True))}
    if others or rivals or len(places) < len(labels):
        got = f"one for all values of {rivals[0]}" if rivals else "several for some values"
        got = f"dates {others[0]} of this file only" if others else got
        expected = f"one row for each value of {listed(keys)}, which both files have"
        refuse(labels.path, expected, got)
    return np.array([places.get(row, -1) for row in zip(*ours, strict=True)])


def _of_hub(table: Table) -> tuple[Table, dict[str, Meaning], list[str]]:
    """The long format of forecast hubs with a row for each task, and its models.

    Returns:
        The table, the columns of each model, and descriptions of rows that are not used.
    """
    types = table.columns["output_type"]
    kinds = {"quantile", "sample"} & {*types}
    tasks = [x for x in table.columns if x not in ("", "model_id", *HUB)]
    if len(kinds) != 1 or not tasks:
        got = f"{listed(sorted({*types}))} and columns {listed(tasks)} of tasks"
        refuse(table.path, "output_type quantile or sample and columns of tasks", got)
    (kind,) = kinds
    table, unused = table.take(types == kind), [f"rows of {x}" for x in sorted({*types} - kinds)]
    keys = [*zip(*(table.columns[x] for x in tasks), strict=True)]
    names = table.columns.get("model_id", [""] * len(table))
    levels = [*table.columns["output_type_id"]]
    if kind == "sample":  # counts them, since tasks may have samples of other names
        numbers = Counter()
        for i, key in enumerate(zip(names, keys, strict=True)):
            numbers[key] += 1
            levels[i] = str(numbers[key])
    rows: dict[tuple[str, ...], int] = {}  # the first of each task
    models: dict[str, dict[str, dict[tuple[str, ...], Any]]] = {}
    for i, (key, name, level) in enumerate(zip(keys, names, levels, strict=True)):
        values = models.setdefault(name, {}).setdefault(level, {})
        if key in values:
            refuse(table.place(i), "one value of each task, model and level", "another")
        values[key] = table.columns["value"][i]
        rows.setdefault(key, i)
    keys = sorted(rows)
    first = table.take(np.array([rows[key] for key in keys]))
    columns, meanings = {x: first.columns[x] for x in tasks}, {}
    for name, values_of in models.items():
        different = {*values_of} ^ {*next(iter(models.values()))}
        if different:
            got = f"{listed(sorted(different))} not of all (such as {name})"
            refuse(table.path, f"equal {kind}s of all models", got)
        named = {level: f"{name} {kind} {level}".strip() for level in values_of}
        meanings[name] = Meaning("quantiles" if kind == "quantile" else "members", named)
        for level, values in values_of.items():
            columns[named[level]] = np.array([values.get(key, "") for key in keys], object)
    return dataclasses.replace(first, columns=columns), meanings, unused


def _data(
    table: Table,
    labels: Table,
    target: str,
    meaning: Meaning,
    other: Mapping[str, Sequence[str]],
    options: Namespace,
    facts: Sequence[tuple[str, str]],
) -> Data:
    (kind, columns), classes = meaning, ()
    for name, kinds in _NEEDS.items():
        if getattr(options, name) not in (None, False) and kind not in kinds:
            expected = f"predictions of kind {' or '.join(kinds)}"
            refuse(f"--{name.replace('_', '-')}", expected, kind)
    predictions = _predictions(table, meaning, options)
    words = f"{kind}: {listed(columns.values())}"
    if kind == "probability":
        classes, targets = _two_labels(labels, target, columns[_POSITIVE], options.positive)
        words = f"probability of label {classes[1]}: {columns[_POSITIVE]}"
    elif kind in ("classes", "logits"):
        classes, targets = tuple(columns), _labels(labels, target, meaning)
    else:
        targets = labels.numbers(target)
    if classes and options.target is None:
        rows = np.asarray(jax.tree.leaves(predictions)[0])
        likeliest = rows.argmax(1) if rows.ndim == 2 else rows >= 0.5
        others = table.columns.keys() - {target, *columns.values()}
        for name in sorted(others) if (likeliest == targets).all() else ():
            texts = {x.lower().removesuffix(".0") for x in table.columns[name]}
            if texts <= {x.lower() for x in classes}:  # the target may be predicted
                got = f"{target}, always the likeliest label, and {name}"
                refuse(table.path, "one column of targets", f"{got}: calibjax FILE --target COLUMN")
    features = [table.numbers(x) for x in other["features"]]
    clusters = [np.unique(table.texts(x), return_inverse=True)[1] for x in other["clusters"]]
    return Data(
        predictions=predictions,
        targets=targets,
        groups={x: table.texts(x) for x in other["groups"]} or None,
        features=np.stack(features, 1) if features else None,
        weights=next(map(table.numbers, other["weights"]), None),
        clusters=next(iter(clusters), None),
        classes=classes,
        table=table,
        facts=(("predictions", words), *facts),
    )


def _labels(table: Table, target: str, meaning: Meaning) -> np.ndarray:
    """Positions of the labels among the names of the classes, [n].

    Labels are the names. A label that is none is compared as a number, if one class is equal to it
    and no other label is.
    """
    texts, names = table.texts(target, meaning.columns), [*meaning.columns]
    positions = {name: i for i, name in enumerate(names)}
    different = [*dict.fromkeys(texts)]
    classes, labels = _numbers(names), _numbers(different)
    for text, label in zip(different, labels, strict=True):
        if np.sum(classes == label) == np.sum(labels == label) == 1:
            positions.setdefault(text, int(np.argmax(classes == label)))
    indices = np.array([positions.get(x, -1) for x in texts])
    pairs = [f"{x}=VALUE" for x in [*meaning.columns.values()][:4]]
    template = f"--{meaning.kind} {' '.join(pairs)}{' …' if len(names) > 4 else ''}"
    expected = f"one of the labels {listed(names)}"
    table.refuse_where(indices < 0, expected, target, f"; name them: calibjax FILE {template}")
    return indices


def _two_labels(
    table: Table, target: str, column: str, positive: str | None
) -> tuple[tuple[str, str], np.ndarray]:
    """The negative and the positive label, and which of them each row has, [n]."""
    texts = table.texts(target)
    different = sorted({*texts})
    numbers = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
    if positive is None and {x.lower() for x in different} <= {*numbers}:
        return ("0", "1"), np.array([numbers[x.lower()] for x in texts])
    if len(different) == 2 and positive in different:
        negative = next(x for x in different if x != positive)
        return (negative, positive), np.array([int(x == positive) for x in texts])
    wanted = "labels 0 and 1" if positive is None else f"two labels, one of them {positive},"
    template = f"calibjax FILE --probability {column} --positive VALUE"
    got = f"{listed(different)}; name the label with this probability: {template}"
    refuse(table.path, f"{wanted} in column {target}", got)


def _predictions(table: Table, meaning: Meaning, options: Namespace) -> Distribution:
    kind, columns = meaning
    largest = np.inf if kind == "quantiles" else np.finfo(float).max
    values = [table.numbers(x, largest, is_percent=options.percent) for x in columns.values()]
    if kind in FAMILIES:
        return FAMILIES[kind](*values)
    if len(values) < 2 and kind in ("classes", "logits", "members"):
        refuse(table.path, f"two or more {kind}", listed(columns))
    rows: Any = np.stack(values, 1)
    if kind == "quantiles":
        if not _are_levels(columns):
            refuse(table.path, "different levels between 0 and 1", listed(columns))
        levels = np.array([*map(float, columns)])
        order = np.argsort(levels)
        fields: Any = np.tile(levels[order], (len(rows), 1)), rows[:, order]
        of_rows = distributions.Quantiles
        return of_rows.sorted(*fields) if options.sort_quantiles else of_rows(*fields)
    if kind in ("probability", "classes"):
        rows = _probabilities(table, columns, rows, options)
    if kind == "probability":
        return distributions.Bernoulli(rows[:, 0])
    names = {"classes": "Categorical", "logits": "CategoricalLogits", "members": "Ensemble"}
    return getattr(distributions, names[kind])(rows)


def _probabilities(
    table: Table, columns: Mapping[str, str], values: np.ndarray, options: Namespace
) -> np.ndarray:
    """Probabilities of a label, [n, 1], or of classes, [n, m], which sum to one."""
    values = checks.unrounded(values)
    sums, is_one, largest = values.sum(1), values.shape[1] == 1, values.max()
    tolerance = checks.simplex_tolerance(jnp.result_type(float))
    advice = "; --normalize divides each row by its sum" if (np.abs(sums - 1) < 0.1).all() else ""
    if (10 < largest <= 100) if is_one else (np.abs(sums - 100) < 5).all():  # not scores up to 10
        advice = "; --percent reads percentages"
    for name, column in zip(columns.values(), values.T, strict=True):
        bad = (column < 0) | ((column > 1) & is_one)
        table.refuse_where(bad, "a probability in [0, 1]", name, advice)
    bad = sums <= 0 if options.normalize else np.abs(sums - 1) > tolerance
    if bad.any() and not is_one:
        row = int(bad.argmax())
        expected = "a positive sum" if options.normalize else "probabilities that sum to one"
        expected += f" in columns {listed(columns.values(), 3)}"
        refuse(table.place(row), expected, f"the sum {sums[row]:.7g}{advice}")
    return values / sums[:, None] if options.normalize else values


# Advice of the library, and the options that follow it.
_ADVICE = {
    "jax_enable_x64": "the environment variable JAX_ENABLE_X64=1",
    "distributions.Quantiles.sorted(levels, values)": "--sort-quantiles",
}


def check_rows(data: Data) -> None:
    """Refuses the first row that the library refuses with the precision of JAX, for any reason."""

    def refusal(low: int, high: int) -> str:
        some = jax.tree.map(lambda leaf: leaf[low:high], data.predictions)
        try:
            passed(predictions=some, targets=data.targets[low:high])
        except (TypeError, ValueError) as error:
            return str(error)
        return ""

    size = len(data.table)
    if refusal(0, size):
        row = bisect.bisect(range(size), False, key=lambda i: bool(refusal(0, i + 1)))
        reason = refusal(row, row + 1)
        for advice, option in _ADVICE.items():
            reason = reason.replace(advice, option)
        raise InputError(f"{data.table.place(row)}: {reason}")


def check_same_rows(first: Data, other: Data) -> None:
    """Refuses a file whose rows have other targets, weights or clusters than the first file."""
    path, table = first.table.path, other.table
    if len(first.table) != len(table):
        refuse(table.path, f"{len(first.table)} rows as in {path}", len(table))
    if first.classes != other.classes:
        expected, got = (f"classes {listed(x.classes, 100)}" for x in (first, other))
        refuse(table.path, f"{expected} as in {path}", got)
    for name in first.table.columns.keys() & table.columns.keys():  # which may identify the rows
        ours, theirs = ([*x.columns[name]] for x in (first.table, table))
        if ours != theirs and len({*ours}) == len(ours) and {*ours} == {*theirs}:
            refuse(table.path, f"rows in the order of {path} by column {name}", "another order")
    for name in ("targets", "weights", "clusters"):
        values, others = getattr(first, name), getattr(other, name)
        if values is not None and others is not None and (values != others).any():
            row = int((values != others).argmax())
            expected = f"{name} {shown(values[row])} as in {path}"
            refuse(table.place(row), expected, shown(others[row]))
