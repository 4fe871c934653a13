"""Fig. 37 of W19: time of each estimator over the number of samples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure
from paper_repro.w19.figures import with_subscripts


def plot(folder: Path, rows: Sequence[dict[str, Any]], published: Sequence[Any]) -> None:
    """Fig. 37, a panel for each number of classes.

    Args:
        folder: where to.
        rows: rows of the table `times`: m, n, and the seconds of each procedure. What is called
            "X with …" has the colour of X and is dashed.
        published: m, n, estimator and published time of each panel, drawn as crosses.
    """
    procedures = [name for name in rows[0] if name not in ("m", "n")]
    bases = list(dict.fromkeys(name.split(" with ")[0] for name in procedures))
    classes = list(dict.fromkeys(row["m"] for row in rows))
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    panels = figure.subplots(1, len(classes), sharey=True, squeeze=False)[0]
    for axes, m in zip(panels, classes, strict=True):
        chosen = [row for row in rows if row["m"] == m]
        for name in procedures:
            base, _, added = name.partition(" with ")
            style = {"linestyle": "--" if added else "-", "color": COLORS[bases.index(base)]}
            style["linewidth"] = 3.5 if base == "SKCE_b" else 1.3  # SKCE_uq takes the same time
            values = [row[name] for row in chosen]
            label = with_subscripts(name)
            axes.plot([row["n"] for row in chosen], values, "o", ms=3, label=label, **style)
        axes.set(xscale="log", yscale="log", xlabel="samples $n$", title=f"$m$ = {m}")
        for x in published:
            if x.m == m:
                axes.plot(x.n, x.published, "x", color=COLORS[bases.index(x.estimator)], ms=5)
    if published:
        panels[0].plot([], [], "x", color="black", ms=5, label="published (length scale given)")
    panels[0].set_ylabel("time of one evaluation (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    save_figure(folder, "figure_37", figure)
