"""What the figures of W19 share."""

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def with_subscripts(label: str) -> str:
    """A label of a table as mathematics: SKCE_uq with uq as a subscript."""
    return re.sub(r"_([\w-]+)", r"$_{\\text{\1}}$", label)


def add_legend(figure: Figure, axes: Axes, place: str, title: str | None = None) -> None:
    """The legend of one panel for all of them, in one line and each label once."""
    pairs = zip(*reversed(axes.get_legend_handles_labels()), strict=True)
    entries = dict(reversed(list(pairs)))  # from the last: what all series share is the last entry
    labels, handles = (list(reversed(x)) for x in (entries.keys(), entries.values()))
    columns = max(len(labels), 1)
    figure.legend(handles, labels, loc=place, ncols=columns, title=title, title_fontsize=8)
