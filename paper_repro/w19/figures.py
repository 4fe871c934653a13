"""Figures of W19, except those of the distributions of estimates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import stand_in
from experiments.harness.figures import COLORS, add_legend, panels, save_figure

ERRORS = {"M1": "type I error", "M2": "type II error", "M3": "type II error"}


def with_subscripts(label: str) -> str:
    """A label of a table as mathematics, SKCE_uq with uq as a subscript, in lines at its commas."""
    label = label.replace(", ", ",\n").replace("dependent ", "dependent\n")
    return re.sub(r"_([\w-]+)", r"$_{\\text{\1}}$", label)


def plot_rejections(
    folder: Path, rows: Sequence[dict[str, Any]], published: Mapping[Any, Any]
) -> None:
    """Fig. 2, a row for each model and a column for each test.

    Args:
        folder: where to.
        rows: rows of the table `curves`: a model, a level, and the error of each test.
        published: errors at the same levels by model and test, where there are any.
    """
    models = list(dict.fromkeys(row["model"] for row in rows))
    tests = [name for name in rows[0] if name not in ("model", "level")]
    figure, grid = panels(len(models), len(tests), 1.2, sharex=True, sharey=True)
    for line, model in zip(grid, models, strict=True):
        chosen = [row for row in rows if row["model"] == model]
        levels = [row["level"] for row in chosen]
        for axes, test in zip(line, tests, strict=True):
            axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", lw=0.8, label="error = level")
            errors = [row[test] for row in chosen]
            style = {"clip_on": False, "zorder": 3}
            axes.plot(levels, errors, color=COLORS[0], linewidth=2.2, label="ours", **style)
            if (theirs := published.get((model, test))) is not None:
                style |= {"color": COLORS[1], "linestyle": (0, (2, 2)), "label": "published"}
                axes.plot(levels, theirs, linewidth=1.4, **style)
        ticks = {"xticks": (0, 1), "yticks": (0, 0.5, 1), "yticklabels": ("0", "0.5", "1")}
        line[0].set(ylabel=f"{model}\n{ERRORS[model]}", xlim=(0, 1), ylim=(0, 1), **ticks)
    for axes, test in zip(grid[0], tests, strict=True):
        axes.set_title(with_subscripts(test).replace(" (", "\n("))
    add_legend(figure, 3)
    figure.supxlabel("significance level")
    save_figure(folder, "figure_2", figure)


def plot_times(folder: Path, rows: Sequence[dict[str, Any]], published: Sequence[Any]) -> None:
    """Fig. 37, a row for each number of classes and a column for each estimator.

    Args:
        folder: where to.
        rows: rows of the table `times`: m, n, and the seconds of each procedure. "X with …" is
            drawn in the panel of X.
        published: m, n, estimator and published time of each panel.
    """
    procedures = [name for name in rows[0] if name not in ("m", "n")]
    estimators = list(dict.fromkeys(name.split(" with ")[0] for name in procedures))
    classes = list(dict.fromkeys(row["m"] for row in rows))
    figure, grid = panels(len(classes), len(estimators), 1.35, sharex=True, sharey=True)
    for line, m in zip(grid, classes, strict=True):
        chosen = [row for row in rows if row["m"] == m]
        for axes, estimator in zip(line, estimators, strict=True):
            theirs = [(x.n, x.published) for x in published if (x.m, x.estimator) == (m, estimator)]
            if theirs:
                axes.plot(*zip(*theirs, strict=True), "o", ms=5, mfc="white", label="published")
            for name in procedures:
                base, _, added = name.partition(" with ")
                if base == estimator:
                    label = f"ours, with {added}" if added else "ours"
                    values = [row[name] for row in chosen]
                    style = {"linestyle": "--", "c": COLORS[2]} if added else {"c": COLORS[1]}
                    axes.plot([row["n"] for row in chosen], values, label=label, **style)
            axes.set(xscale="log", yscale="log")
            axes.minorticks_off()
        line[0].set_ylabel(f"$m$ = {m}")
    for axes, estimator in zip(grid[0], estimators, strict=True):
        axes.set_title(with_subscripts(estimator))
    figure.supxlabel("number of samples $n$")
    figure.supylabel("time of one evaluation (s)")
    add_legend(figure, 3)
    save_figure(folder, "figure_37", figure)


def plot_errors(folder: Path, rows: Iterable[Any], labels: Mapping[str, str]) -> None:
    """Fig. 35, a panel for each estimator, the networks from top to bottom.

    Args:
        folder: where to.
        rows: rows `ErrorRow`.
        labels: of "published" and "ours", where they are other ones.
    """
    by_title: dict[str, list[Any]] = {}
    for row in rows:
        by_title.setdefault(row.estimator, []).append(row)
    num_networks = max(map(len, by_title.values()))
    figure, grid = panels(1, len(by_title), 0.7 + 0.25 * num_networks, sharey=True)
    for axes, (title, chosen) in zip(grid[0], by_title.items(), strict=True):
        names, ours = [row.network for row in chosen], [row.ours for row in chosen]
        scale = 1e4 if max(map(abs, ours)) < 0.01 else 1
        looks = {"ours": {"ms": 4, "color": COLORS[1]}}
        if not stand_in.header():
            looks["published"] = {"ms": 9, "mfc": "none", "color": COLORS[0]}
        for side, look in looks.items():
            values = np.array([getattr(row, side) for row in chosen], float)  # None becomes NaN
            axes.plot(scale * values, names, "o", label=labels.get(side, side), **look)
        title = with_subscripts(title)
        axes.set_title(title if scale == 1 else f"{title}\n$\\times 10^{{4}}$")
        axes.grid(axis="x", alpha=0.4)
        axes.locator_params(axis="x", nbins=3)
        axes.margins(x=0.2)
    grid[0, 0].invert_yaxis()
    grid[0, 0].margins(y=0.5 / num_networks)
    figure.supxlabel("calibration error estimate")
    add_legend(figure, 2)
    save_figure(folder, "figure_35", figure)
