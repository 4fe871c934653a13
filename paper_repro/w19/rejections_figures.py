"""Fig. 2 of W19: test errors over the significance level."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure
from paper_repro.w19.figures import add_legend, with_subscripts

ERRORS = {"M1": "type I error", "M2": "type II error", "M3": "type II error"}


def plot(folder: Path, rows: Sequence[dict[str, Any]], published: Mapping[Any, Any]) -> None:
    """Fig. 2, a row for each model and a column for each test.

    Args:
        folder: where to.
        rows: rows of the table `curves`: a model, a level, and the error of each test.
        published: errors at the same levels by model and test, where there are any.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    tests = [name for name in rows[0] if name not in ("model", "level")]
    figure = Figure(figsize=(0.6 + 1.25 * len(tests), 4.2), layout="constrained")
    panels = figure.subplots(len(models), len(tests), sharex=True, sharey=True, squeeze=False)
    for line, model in zip(panels, models, strict=True):
        chosen = [row for row in rows if row["model"] == model]
        levels = [row["level"] for row in chosen]
        for axes, test in zip(line, tests, strict=True):
            axes.plot([0, 1], [0, 1], color="gray", linestyle="--", linewidth=0.8)
            errors = [row[test] for row in chosen]
            style = {"clip_on": False, "zorder": 3}
            axes.plot(levels, errors, color=COLORS[0], linewidth=2.2, label="ours", **style)
            if (theirs := published.get((model, test))) is not None:
                style |= {"color": COLORS[1], "linestyle": (0, (2, 2)), "label": "published"}
                axes.plot(levels, theirs, linewidth=1.4, **style)
        ticks = {"xticks": (0, 0.5, 1), "yticks": (0, 0.5, 1)}
        labels = {"xticklabels": ("0", "0.5", "1"), "yticklabels": ("0", "0.5", "1")}
        line[0].set(ylabel=f"{model}\n{ERRORS[model]}", xlim=(0, 1), ylim=(0, 1), **ticks, **labels)
    for axes, test in zip(panels[0], tests, strict=True):
        axes.set_title(with_subscripts(test))
    add_legend(figure, panels[0, 0], "outside upper center")
    figure.supxlabel("significance level (dashed: error = level)", fontsize=9)
    save_figure(folder, "figure_2", figure)
