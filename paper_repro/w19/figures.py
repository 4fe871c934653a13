"""Figures of W19, but for those of the distributions of estimates, and what all of them share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import stand_in
from experiments.harness.figures import COLORS, save_figure


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


ERRORS = {"M1": "type I error", "M2": "type II error", "M3": "type II error"}


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


def plot_times(folder: Path, rows: Sequence[dict[str, Any]], published: Sequence[Any]) -> None:
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


def _panel(axes: Axes, title: str, rows: list[Any], labels: Mapping[str, str]) -> None:
    names = [row.network for row in rows]
    style = {"color": COLORS[0], "ms": 9, "mfc": "none", "mew": 0.9}
    if not stand_in.header():
        label = labels.get("published", "published")
        axes.plot([row.published for row in rows], names, "o", label=label, **style)
    ours = [row.ours for row in rows]
    axes.plot(ours, names, "o", color=COLORS[1], label=labels.get("ours", "ours"), ms=4)
    axes.set_title(with_subscripts(title))
    axes.grid(axis="x", alpha=0.4)


def _panels(
    rows: Iterable[Any], field: str, width: float, labels: Mapping[str, str]
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with a panel for each estimator or test, the networks from top to bottom."""
    by_title: dict[str, list[Any]] = {}
    for row in rows:
        by_title.setdefault(getattr(row, field), []).append(row)
    num_networks = max(map(len, by_title.values()))
    size = (1.2 + width * len(by_title), 1.3 + 0.28 * num_networks)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(by_title), sharey=True, squeeze=False)[0]
    for axes, (title, chosen) in zip(panels, by_title.items(), strict=True):
        chosen = [row._replace(published=_or_nan(row.published)) for row in chosen]
        _panel(axes, title, chosen, labels)
    panels[0].invert_yaxis()
    panels[0].margins(y=0.5 / num_networks)
    add_legend(figure, panels[0], "outside upper center")
    return figure, panels


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def plot_errors(folder: Path, rows: Iterable[Any], labels: Mapping[str, str]) -> None:
    """Fig. 35 from rows `ErrorRow`; labels of "published" and "ours" where they are other ones."""
    figure, panels = _panels(rows, "estimator", 2.0, labels)
    for axes in panels:
        axes.ticklabel_format(axis="x", scilimits=(-2, 2))
        axes.locator_params(axis="x", nbins=3)
        axes.margins(x=0.2)
    figure.supxlabel("calibration error estimate", fontsize=9)
    save_figure(folder, "figure_35", figure)


def plot_pvalues(folder: Path, rows: Iterable[Any], labels: Mapping[str, str]) -> None:
    """Fig. 36 from rows `PvalueRow`; labels as in `plot_errors`."""
    figure, panels = _panels(rows, "test", 1.25, labels)
    for axes in panels:
        axes.set(xlim=(-0.08, 1.08), xticks=(0, 0.5, 1), xticklabels=("0", "0.5", "1"))
    figure.supxlabel("p-value, or its bound", fontsize=9)
    save_figure(folder, "figure_36", figure)
