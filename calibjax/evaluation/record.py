"""The result of an evaluation: entries, advice, sections and figures, and how it prints."""

import dataclasses
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibjax._core import environment
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Entry:
    """One number, how sure it is, and the call that gives it: a row of a table.

    Attributes:
        name: what it is; no two entries of an evaluation have the same name.
        value: a Python number; NaN if it does not exist, for the reason in `note`.
        expected: what is predicted, where the value is what was observed.
        standard_error: of the value over data sets; of a p-value its Monte Carlo error.
        low: lower end of a 95 % confidence interval.
        high: its upper end.
        by_chance: where a calibrated model has this value, and all values of the same kind in its
            section, in 95 % of data sets of as many samples.
        pvalue: of this value under calibration, adjusted for all others that sentences rest on.
        call: the Python expression that gives the value, of `predictions`, `targets`, `key`,
            `features` and `groups` as they were passed to `evaluate`, of `result`, the evaluation,
            and of the modules of calibjax, `jax` and `jnp`. If predictions were passed as an array,
            they are what the description says it was read as.
        note: what a reader has to know to understand the value; may be empty.
    """

    name: str
    value: float
    expected: float | None = None
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    by_chance: tuple[float, float] | None = None
    pvalue: float | None = None
    call: str = ""
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Observed minus predicted, None without a prediction."""
        return None if self.expected is None else self.value - self.expected

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None if there is none or one of them is not finite."""
        if self.low is None or self.high is None or not math.isfinite(self.high - self.low):
            return None
        return self.low, self.high


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to do about what was found.

    Attributes:
        text: what, and how sure it is that it helps.
        call: lines of Python that do it; may be empty.
    """

    text: str
    call: str = ""


_HELD_OUT = (
    " Fit it to data that the model was not trained on, and judge the result on data used for "
    "neither."
)
_UNTRIED = f" Whether that helps was not computed.{_HELD_OUT}"
_CALL = """\
method = recalibration.{}
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)"""
TEMPERATURE = Advice(
    f"Scale all predictions by one temperature.{_HELD_OUT}", _CALL.format("TemperatureScaling()")
)
GROUPS = Advice(
    "The errors differ between groups. Recalibrate within groups, if those of new samples are "
    f"known.{_UNTRIED}",
    """\
method = recalibration.GroupWise(recalibration.PlattScaling())
numbers = result.arrays["memberships"][:, {}].argmax(1)  # result: this evaluation
params = method.fit(predictions, targets, numbers)
repaired = method.apply(params, new_predictions, new_numbers)""",
)
SHIFTS = Advice(
    "Shift the quantiles of each level by that quantile of the errors on held-out data (conformal "
    "prediction): each level is then right on average over all samples; errors that differ between "
    f"samples remain.{_HELD_OUT}",
    _CALL.format("QuantileShift()"),
)
MAP_OF_QUANTILES = Advice(
    "Map the quantiles of all predicted distributions by one monotone function: it repairs what is "
    "wrong on average over all of them. If the shape of the targets is another one, predict with a "
    f"family that has it.{_UNTRIED}",
    _CALL.format('QuantileRecalibration("isotonic")'),
)
SCALING = Advice(
    f"Shift and scale the deviations of all predictions by the same numbers.{_UNTRIED}",
    _CALL.format("AffineScaling()"),
)
OTHER_COUNTS = Advice(
    "Predict with a family of counts whose variance is not given by its mean, such as "
    "NegativeBinomial of calibjax.distributions."
)
POSSIBLE = Advice(
    "Give everything that may happen a probability above 0: no temperature changes a probability "
    "of 0. Mixing the predictions with the frequencies of the outcomes in the training data does."
)
OTHER_CLASS = Advice(
    "Look up which class the probabilities are of. If it is the other one, evaluate one minus them."
)
OTHERWISE = Advice(
    "Which recalibration repairs this was not computed; calibjax.select_recalibration compares "
    "several. The errors say what the model gets wrong: look at its features and at the family of "
    "distributions that it predicts."
)


def map_of(task: str, size: int) -> Advice:
    """What may repair the predictions of a task, where one temperature is not enough."""
    if task in ("classification", "binary"):
        text = "A map of the probability of each class may repair these errors. Whether it does "
        text += f"was not computed, so compare scores on held-out data.{_HELD_OUT}"
        return Advice(
            text, _CALL.format("PlattScaling()" if size < 1000 else "IsotonicRegression()")
        )
    maps = {"regression": MAP_OF_QUANTILES, "quantiles": SHIFTS, "counts": OTHER_COUNTS}
    return maps.get(task, SCALING)


@dataclasses.dataclass(frozen=True)
class Section:
    """Entries that belong together.

    Attributes:
        title: what they are about.
        entries: the numbers.
        remark: how they were computed, and what they do not say.
        is_detail: whether a page shows it on demand only, such as numbers without a unit.
        test: the name of the test among `Evaluation.tests` that gives the p-values.
    """

    title: str
    entries: tuple[Entry, ...]
    remark: str = ""
    is_detail: bool = False
    test: str = ""


class Panel(NamedTuple):
    """One figure: a function of `calibjax.plotting` and what it draws.

    Attributes:
        name: of the figure.
        caption: what it shows, in one or two sentences.
        function: of `calibjax.plotting`, called as function(shown).
        shown: the record that it draws.
    """

    name: str
    caption: str
    function: Callable[..., "Axes"]
    shown: Any


@dataclasses.dataclass(frozen=True)
class Finding:
    """What is said where the p-value of an entry is at most 5 %.

    Attributes:
        entry: the name of the entry.
        word: what is wrong, in a few words.
        text: the numbers, in a sentence without a full stop. It is empty if the finding does not
            say what is wrong; regions are then searched.
        is_last: whether it is said only if nothing else is.
        advice: what to do about it, if anything is known.
        is_repaired: whether a temperature that helps makes the advice unnecessary.
    """

    entry: str
    word: str
    text: str
    is_last: bool = False
    advice: Advice | None = None
    is_repaired: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of the evaluation, or all of it.

    Attributes:
        sections: the numbers.
        findings: what may be said, the most important first.
        tests: by what is redrawn and by name; those that redraw the same share their redraws.
        kernels, other_kernels, panels: those of `Evaluation`.
        remarks: sentences that need no p-value, said after all others.
        advice: what to do about any error.
        warnings: what makes a model wrong without a test.
    """

    sections: tuple[Section, ...] = ()
    findings: tuple[Finding, ...] = ()
    tests: dict[tuple[str, str], CalibrationTestResult] = dataclasses.field(default_factory=dict)
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict)
    other_kernels: dict[str, Kernel] = dataclasses.field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    warnings: tuple[str, ...] = ()

    def __or__(self, other: "Part") -> "Part":
        """Both parts."""
        both = {x: (value, getattr(other, x)) for x, value in vars(self).items()}
        return Part(**{x: a | b if isinstance(a, dict) else a + b for x, (a, b) in both.items()})


_WIDTH = 100
_INDENT = "  "
_LARGEST = 6  # powers of ten that are written without an exponent
HEADER = ("", "value", "predicted", "difference", "95 % interval", "if calibrated", "p")


def to_do(advice: Sequence[Advice]) -> Iterator[str]:
    """What to do, and the calls, which open on demand."""
    for one in advice:
        yield environment.paragraph(one.text)
        if one.call:
            yield f"<details><summary>In Python</summary>{environment.code(one.call)}</details>"


def content(section: Section) -> Iterator[str]:
    """Tables and remark."""
    # What is wide scrolls in a box of its own, which the keyboard has to reach.
    label = escape(section.title, quote=True)
    yield f'<div class="wide" role="region" aria-label="{label}" tabindex="0">'
    header, *rows = _cells(section)
    if rows:
        yield from environment.table(header, rows)
    yield "</div>"
    if section.remark:
        yield environment.paragraph(section.remark, "remark")


def _cells(section: Section) -> list[list[str]]:
    """The columns that a section uses: their names, and the row of each entry."""
    rows = [row_of(entry) for entry in section.entries]
    filled = [i for i in range(len(HEADER)) if not i or any(row[i] for row in rows)]
    header = ["observed" if i == 1 and 2 in filled else HEADER[i] for i in filled]
    return [header, *([row[i] for i in filled] for row in rows)]


def _lines(section: Section) -> list[str]:
    """Title, the columns that this section uses, and remark."""
    cells = _cells(section)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [section.title]
    for first, *others in cells if section.entries else ():
        numbers = (x.rjust(width) for x, width in zip(others, widths[1:], strict=True))
        lines.append((_INDENT + _INDENT.join([first.ljust(widths[0]), *numbers])).rstrip())
    if section.remark:
        lines.append(_filled(section.remark, _INDENT))
    return lines


def row_of(entry: Entry) -> tuple[str, ...]:
    """The cells of an entry, below those of `HEADER`."""
    ends = () if entry.low is None or entry.high is None else (entry.low, entry.high)
    pairs = [ends, entry.by_chance or ()]
    own = [] if entry.expected is None else [entry.expected, entry.value - entry.expected]
    widths = [(pair[1] - pair[0]) / 4 for pair in pairs if pair]
    value, *others = numbers(entry.value, *own, *pairs[0], *pairs[1], error=max(widths, default=0))
    if entry.standard_error is not None:
        value += f" ± {number(entry.standard_error, 1)}"
    expected = others[: len(own)] or ["", ""]
    others = others[len(own) :]
    interval, range_ = (" to ".join(x) for x in (others[: len(ends)], others[len(ends) :]))
    p = "" if entry.pvalue is None else number(entry.pvalue, 2)
    name = entry.name + f" ({entry.note})" * bool(entry.note)
    return name, value, *expected, interval, range_, p


def numbers(*values: float, error: float = 0) -> list[str]:
    """Numbers with the same number of decimals: two significant digits of their error.

    Without an error they have three significant digits of the largest.
    """
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    first = math.floor(math.log10(max(sizes))) if sizes else 0
    if len(sizes) < 2 or not -_LARGEST < first < _LARGEST:
        return [number(value) for value in values]
    last = math.floor(math.log10(error)) if 0 < error < math.inf else first - 1
    decimals = min(max(0, 1 - last), max(0, 4 - first))
    # Adding zero makes -0 a 0.
    return [f"{round(value, decimals) + 0.0:.{decimals}f}" for value in values]


def number(value: float, digits: int = 3) -> str:
    """A number with that many significant digits."""
    text = f"{value:.{digits}g}"
    is_large = "e+" in text and abs(value) < 10**_LARGEST
    return f"{float(text):.0f}" if is_large else text


def with_ends(value: float, low: float, high: float) -> list[str]:
    """A number and its interval: two digits of the width, and at least one of the number."""
    return numbers(value, low, high, error=min(high - low, 10 * abs(value)))


def p_is(value: float) -> str:
    """A p-value."""
    return f"p = {value:.2g}"


def percents(one: float, other: float) -> tuple[str, str]:
    """Two shares that are compared, with the same number of decimals, and different if they are."""
    texts: list[str] = []
    for decimals in range(1, 6 + 1):
        texts = [f"{round(100 * share, decimals) + 0.0:.{decimals}f}" for share in (one, other)]
        if one == other or texts[0] != texts[1]:
            break
    if all(text.endswith(".0") for text in texts):
        texts = [text.removesuffix(".0") for text in texts]
    return f"{texts[0]} %", f"{texts[1]} %"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation:
    """What `calibjax.evaluate` found.

    `print` shows a table of all sections, followed by the sentences. It holds Python numbers and
    is no pytree.

    Attributes:
        task: "classification", "binary", "regression", "counts", "multivariate", "ensembles" or
            "quantiles".
        num_samples: n.
        description: what was evaluated, in words.
        sections: the numbers.
        sentences: what they mean, the verdict first.
        notes: what the p-values of the sentences are, below them.
        kernels: `kernels.default_kernels`, if they are tested together.
        other_kernels: "SKCE", `kernels.default_kernel`; "exact test", if all errors are tested
            with one kernel; "features", that looks at the features; of `compare` "given NAME", that
            look at that model, too.
        tests: the results of the exact tests by name, with their draws.
        arrays: what was computed from the data on the way: "pit", [n], the values of
            `estimators.pit_values`; "memberships" of the groups, [n, G]; "features", [n, d],
            divided by their standard deviations.
        panels: what `figures` draws.
        advice: what to do about it.
    """

    task: str
    num_samples: int
    description: str
    sections: tuple[Section, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...] = ()
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    other_kernels: dict[str, Kernel] = dataclasses.field(default_factory=dict, repr=False)
    tests: dict[str, CalibrationTestResult] = dataclasses.field(default_factory=dict, repr=False)
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, repr=False)
    panels: tuple[Panel, ...] = dataclasses.field(default=(), repr=False)
    advice: tuple[Advice, ...] = ()

    @property
    def entries(self) -> Iterator[Entry]:
        """The entries of all sections."""
        return (entry for section in self.sections for entry in section.entries)

    def __getitem__(self, name: str) -> Entry:
        """The entry of that name.

        Raises:
            KeyError: if there is none.
        """
        return {entry.name: entry for entry in self.entries}[name]

    def __repr__(self) -> str:
        """The description, what was found, what to do, a table of each section, and notes."""
        parts = [_filled(self.description), "\n".join(map(_filled, self.sentences))]
        for one in self.advice:
            call = textwrap.indent(one.call, 2 * _INDENT)
            parts.append("\n".join(filter(None, [_filled(one.text), call])))
        parts += ["\n".join(_lines(section)) for section in self.sections]
        parts += [_filled(note) for note in self.notes]
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """All but kernels, tests, arrays and figures: dictionaries, lists, numbers and strings.

        Numbers that are not finite are None.
        """
        return {x.name: _plain(getattr(self, x.name)) for x in dataclasses.fields(self) if x.repr}

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def figures(self) -> dict[str, "Figure"]:
        """One matplotlib figure for each of `captions`, which pyplot does not know of.

        There is none for targets that are vectors.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        return {x.name: x.function(x.shown).figure for x in self.panels}  # pyright: ignore[reportReturnType]

    @property
    def captions(self) -> dict[str, str]:
        """What each of the `figures` shows, in words."""
        return {panel.name: panel.caption for panel in self.panels}


def _plain(value: Any) -> Any:
    """A tree of dictionaries and lists, with None instead of numbers that are not finite."""
    if dataclasses.is_dataclass(value):
        return {name: _plain(item) for name, item in vars(value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
