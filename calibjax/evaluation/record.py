"""The record of an evaluation: numbers with the calls that give them, and sentences."""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from calibjax.evaluation.markup import notebook
from calibjax.evaluation.table import table
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.kernels import Kernel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from calibjax.evaluation.figures import Panel


@dataclasses.dataclass(frozen=True)
class Entry:
    """One number, how sure it is, and the call that gives it.

    Attributes:
        name: what it is; no two entries of an evaluation have the same name.
        value: a Python number; NaN if it does not exist, for the reason in `note`.
        standard_error: of the value over data sets; of a p-value its Monte Carlo error.
        low: lower end of a 95 % confidence interval.
        high: its upper end.
        by_chance: where a calibrated model has this value, and all values of the same kind in its
            section, in 95 % of data sets of as many samples. A value with a p-value is outside if
            and only if that is at most 0.05.
        pvalue: exact p-value of this value, adjusted for all of the same kind in its section.
        function: the call that gives the value, a Python expression of `predictions`, `targets`,
            `key`, `features` and `groups` as they were passed to `evaluate`, of `result`, the
            evaluation, and of the modules of calibjax, `jax` and `jnp`. If predictions were passed
            as an array, they are what the description says it was read as.
        note: what a reader has to know to understand the value; may be empty.
    """

    name: str
    value: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    by_chance: tuple[float, float] | None = None
    pvalue: float | None = None
    function: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to do about what was found.

    Attributes:
        text: what, and how sure it is that it helps.
        call: lines of Python that do it; may be empty.
    """

    text: str
    call: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """Entries that belong together.

    Attributes:
        title: what they are about.
        entries: the numbers.
        remark: how they were computed, and what they do not say.
        is_detail: whether a page shows it on demand only, such as numbers without a unit.
    """

    title: str
    entries: tuple[Entry, ...]
    remark: str = ""
    is_detail: bool = False


@dataclasses.dataclass(frozen=True)
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
        sentences: what they mean, for a report.
        kernels: `hypothesis_tests.default_kernels`, if they are tested together.
        other_kernels: "SKCE", `hypothesis_tests.default_kernel`, and that of each lens; "exact
            test", if all errors are tested with one kernel; "features" and "features, all pairs",
            that look at the features.
        tests: the results of the exact tests by name, with their draws.
        arrays: what was computed from the data on the way: "pit", [n], the values of
            `estimators.pit_values`; "memberships" of the groups, [n, G]; "features", [n, d],
            divided by their standard deviations.
        panels: what `figure` draws.
        advice: what to do about it.
    """

    task: str
    num_samples: int
    description: str
    sections: tuple[Section, ...]
    sentences: tuple[str, ...]
    kernels: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    other_kernels: dict[str, Kernel] = dataclasses.field(default_factory=dict, repr=False)
    tests: dict[str, CalibrationTestResult] = dataclasses.field(default_factory=dict, repr=False)
    arrays: dict[str, jax.Array] = dataclasses.field(default_factory=dict, repr=False)
    panels: tuple["Panel", ...] = dataclasses.field(default=(), repr=False)
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
        found = {entry.name: entry for entry in self.entries}
        if name not in found:
            raise KeyError(f"{name!r}: expected one of {', '.join(map(repr, found))}")
        return found[name]

    def __str__(self) -> str:
        """The table and the sentences."""
        return table(self)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return notebook(self)

    def to_dict(self) -> dict[str, Any]:
        """All but kernels, tests, arrays and figures: dictionaries, lists, numbers and strings."""
        return {
            "task": self.task,
            "num_samples": self.num_samples,
            "description": self.description,
            "sections": [dataclasses.asdict(section) for section in self.sections],
            "sentences": list(self.sentences),
            "advice": [dataclasses.asdict(one) for one in self.advice],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON, in which numbers that are not finite are null."""
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    def figures(self) -> dict[str, "Figure"]:
        """One matplotlib figure for each of `captions`, which pyplot does not know of.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        return {panel.name: panel.figure() for panel in self.panels}

    @property
    def captions(self) -> dict[str, str]:
        """What each of the `figures` shows, in words."""
        return {panel.name: panel.caption for panel in self.panels}

    def figure(self) -> "Figure":
        """All figures side by side in one.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: if there is none, as for targets that are vectors.
        """
        from calibjax.evaluation.figures import small_multiples

        return small_multiples(self.panels)


def _finite(value: Any) -> Any:
    """A tree with None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
