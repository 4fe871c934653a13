"""What an evaluation consists of: numbers with the calls that give them, advice, and figures."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from calibjax._core import environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND_LEVEL = 0.95  # of bands, as of all ranges in the tables


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
class Panel:
    """One figure: a function of `calibjax.plotting` and what it draws.

    Attributes:
        name: of the figure.
        caption: what it shows, in one or two sentences.
        function: of `calibjax.plotting`, called as function(shown, ax=...).
        shown: the record that it draws.
        place: where it stands among others: small numbers come first.
    """

    name: str
    caption: str
    function: Callable[..., "Axes"]
    shown: Any
    place: int = 1

    def draw(self, ax: "Axes | None" = None) -> "Axes":
        """Draws on the Axes, or on those of a new figure if there are none."""
        return self.function(self.shown, ax=ax)

    def figure(self) -> "Figure":
        """A figure of its own."""
        figure = self.draw().figure
        return figure  # pyright: ignore[reportReturnType]  # these Axes are in no SubFigure


def small_multiples(panels: Sequence[Panel]) -> "Figure":
    """All panels in one figure, at most three in a row.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there are none.
    """
    if not panels:
        raise ValueError("figure: expected an evaluation with something to draw, got one without")
    environment.imported("matplotlib", "calibjax draws with matplotlib", "plot")
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 4.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for ax, panel in zip(grid.flat, panels, strict=False):
        panel.draw(ax)
        ax.set_title(panel.name, fontsize="medium")
    for ax in list(grid.flat)[len(panels) :]:
        ax.set_visible(False)
    return figure
