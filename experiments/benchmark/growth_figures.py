"""Figure of time and memory against the number of samples."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure

STYLES = "-", "--", ":"


def draw(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Two panels with logarithmic axes."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    names = list(dict.fromkeys(row["what"] for row in rows))
    for column, panel, title in zip(
        ("seconds", "MB"), panels, ("time (s)", "growth of the peak memory (MB)"), strict=True
    ):
        for i, what in enumerate(names):
            own = [row for row in rows if row["what"] == what and row[column] is not None]
            panel.plot(
                [row["n"] for row in own],
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
        panel.set_xlabel("number of samples $n$")
        panel.set_ylabel(title)
    panels[0].grid(alpha=0.3)
    panels[1].grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    save_figure(folder, name, figure)
