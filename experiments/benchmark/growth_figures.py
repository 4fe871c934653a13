"""Figure of time and memory against the size that grows."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure

STYLES = "-", "--", ":"
LABELS = {"n": "number of samples $n$", "m": "classes, dimensions, members or components $m$"}


def draw(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Logarithmic axes: time and memory in a row for each size that grows, with one legend."""
    sizes = [over for over in LABELS if any(row["over"] == over for row in rows)]
    figure = Figure(figsize=(11, 4.5 * len(sizes)), layout="constrained")
    panels = figure.subplots(len(sizes), 2, squeeze=False)
    for over, (times, memory) in zip(sizes, panels, strict=True):
        own = [row for row in rows if row["over"] == over]
        _lines(times, own, "seconds", "time (s)")
        _lines(memory, own, "MB", "growth of the peak memory (MB)")
        for panel in (times, memory):
            panel.set_xlabel(LABELS[over])
        memory.legend(
            *times.get_legend_handles_labels(),
            loc="center left",
            bbox_to_anchor=(1.02, 0.5),
            fontsize="small",
            frameon=False,
        )
    save_figure(folder, name, figure)


def _lines(panel: Axes, rows: list[dict[str, Any]], column: str, title: str) -> None:
    for i, what in enumerate(dict.fromkeys(row["what"] for row in rows)):
        own = [row for row in rows if row["what"] == what and row[column] is not None]
        panel.plot(
            [row["size"] for row in own],
            [row[column] for row in own],
            STYLES[i // len(COLORS) % len(STYLES)],
            color=COLORS[i % len(COLORS)],
            marker="o",
            markersize=3,
            linewidth=1.2,
            label=what,
        )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylabel(title)
    panel.grid(alpha=0.3)
