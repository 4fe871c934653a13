"""The record of an evaluation: numbers with the calls that give them, and sentences."""

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from calibjax.evaluation import shown
from calibjax.evaluation.entries import Advice, Entry, Panel, Section, small_multiples
from calibjax.hypothesis_tests import CalibrationTestResult
from calibjax.kernels import Kernel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        kernels: `kernels.default_kernels`, if they are tested together.
        other_kernels: "SKCE", `kernels.default_kernel`; "exact test", if all errors are
            tested with one kernel; "features" and "features, all pairs", that look at the features;
            of `compare` "given NAME", that look at that model, too.
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
        found = {entry.name: entry for entry in self.entries}
        if name not in found:
            raise KeyError(f"{name!r}: expected one of {', '.join(map(repr, found))}")
        return found[name]

    def __str__(self) -> str:
        """The table and the sentences."""
        return shown.text(self.description, self.sections, self.sentences, self.advice)

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return shown.notebook(self.description, self.sections, self.sentences, self.advice)

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
        return small_multiples(self.panels)


def _finite(value: Any) -> Any:
    """A tree with None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
