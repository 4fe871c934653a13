"""The figures of an evaluation."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from calibjax import _extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND_LEVEL = 0.95  # of bands, as of all ranges in the tables


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
    _extras.imported("matplotlib", "calibjax draws with matplotlib", "plot")
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
