"""Draws the figures of W21 App. A.2 from the rows of its tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure
from paper_repro.w21.synthetic_tables import LEVEL, ErrorRow, TestRow

# Fig. 2 and 11 of the paper have the same caption: the same panels.
ERROR_FIGURES = {
    "figure_6": ("calibrated", 1),
    "figure_7": ("calibrated", 10),
    "figure_8": ("uncalibrated", 1),
    "figure_9": ("uncalibrated", 10),
}
TEST_FIGURES = {"figure_2": 10, "figure_10": 1, "figure_11": 10}
ERROR_PANELS = {
    "mean absolute error": ("mean_ours", "mean_published"),
    "variance": ("variance_ours", "variance_published"),
}
TEST_PANELS = {"type I error": "calibrated", "type II error": "uncalibrated"}


class Style(NamedTuple):
    """What a procedure is called in a legend, and how it is drawn.

    Where curves meet, the larger markers of those that are drawn first show around the others.
    """

    label: str
    color: str
    marker: str
    size: float


ESTIMATOR_STYLES = {
    "SKCE": Style("SKCE$_k$ (biased)", COLORS[4], "s", 8),
    "SKCE (B = 2)": Style("SKCE$_{k,2}$", COLORS[1], "v", 5),
    "SKCE (B = √n)": Style(r"SKCE$_{k,\sqrt{n}}$", COLORS[2], "^", 5),
    "SKCE (B = n)": Style("SKCE$_{k,n}$", COLORS[0], "o", 3),
}
TEST_STYLES = {
    "CME": Style("CME, $J = 10$", COLORS[7], "D", 8),
    "exact CME (ours)": Style("exact, CME (ours)", COLORS[6], "s", 7),
    "exact (ours)": Style("exact, SKCE$_k$ (ours)", COLORS[5], "o", 6),
    "SKCE (B = 2)": Style("SKCE$_{k,2}$", COLORS[1], "v", 5),
    "SKCE (B = √n)": Style(r"SKCE$_{k,\sqrt{n}}$", COLORS[2], "^", 4),
    "SKCE (B = n)": Style("SKCE$_{k,n}$, bootstrap", COLORS[0], "o", 3),
}
PUBLISHED: dict[str, Any] = {"marker": "x", "markersize": 6, "linestyle": ":", "linewidth": 1}
SHARES = (0, 0.05, 0.1, 0.2, 0.5, 1)  # ticks, linear up to 0.1 and logarithmic above


class Curve(NamedTuple):
    """What is drawn of one procedure: points (n, time, value), ours and published."""

    style: Style
    ours: list[tuple[float, float, float]]
    published: list[tuple[float, float, float]]


def _points(rows: Sequence[Any], value: str, time: str) -> list[tuple[float, float, float]]:
    """Points (n, time, value) of the rows that have them, by n."""
    points = [(row.n, getattr(row, time), getattr(row, value)) for row in rows]
    return sorted(point for point in points if None not in point)


def _line(points: list[tuple[float, float, float]], column: int) -> tuple[list, list]:
    return [point[column] for point in points], [point[2] for point in points]


def _draw(axes: Axes, curves: Sequence[Curve], column: int) -> None:
    """Values over n (column 0) or over the time of one evaluation (column 1)."""
    for style, ours, published in curves:
        look: dict[str, Any] = {"marker": style.marker, "markersize": style.size, "linewidth": 1.2}
        axes.plot(*_line(ours, column), color=style.color, label=style.label, **look)
        axes.plot(*_line(published, column), color=style.color, zorder=3, **PUBLISHED)
    sizes = sorted({int(point[0]) for curve in curves for point in curve.ours})
    axes.set(xscale="log", xlabel="time of one evaluation (s)" if column else "samples $n$")
    if not column:
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.set_xticks([], minor=True)


def _finished(figure: Figure, folder: Path, name: str, *, is_published: bool) -> None:
    """Adds the legend and saves the figure."""
    axes = figure.axes[0]
    if is_published:
        axes.plot([], [], color="0.3", label="published", **PUBLISHED)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5 if len(labels) == 5 else 4)
    save_figure(folder, name, figure)


def plot_errors(folder: Path, rows: Sequence[ErrorRow]) -> None:
    """Fig. 6 to 9: mean absolute error and variance of the estimators over n and over time.

    Args:
        folder: where to.
        rows: of the table of the estimators.
    """
    for name, (model, d) in ERROR_FIGURES.items():
        chosen = [row for row in rows if (row.model, row.d) == (model, d)]
        if not chosen:
            continue
        figure = Figure(figsize=(7.5, 6), layout="constrained")
        figure.suptitle(f"{model} model, $d = {d}$")
        for panels, (label, (ours, published)) in zip(
            figure.subplots(2, 2, sharex="col", sharey="row"), ERROR_PANELS.items(), strict=True
        ):
            curves = [
                Curve(
                    style,
                    _points(found, ours, "time_ours"),
                    _points(found, published, "time_published"),
                )
                for procedure, style in ESTIMATOR_STYLES.items()
                if (found := [row for row in chosen if row.estimator == procedure])
            ]
            for column, axes in enumerate(panels):
                _draw(axes, curves, column)
                axes.label_outer()
            panels[0].set(yscale="log", ylabel=label)
        is_published = any(row.mean_published is not None for row in chosen)
        _finished(figure, folder, name, is_published=is_published)


def plot_tests(folder: Path, rows: Sequence[TestRow]) -> None:
    """Fig. 2, 10 and 11: errors of the tests at level 0.05 over n and over time.

    Args:
        folder: where to.
        rows: of the table of the tests.
    """
    for name, d in TEST_FIGURES.items():
        chosen = [row for row in rows if row.d == d]
        if not chosen:
            continue
        figure = Figure(figsize=(7.5, 6), layout="constrained")
        figure.suptitle(f"tests at level {LEVEL}, $d = {d}$")
        for panels, (label, model) in zip(
            figure.subplots(2, 2, sharex="col", sharey="row"), TEST_PANELS.items(), strict=True
        ):
            curves = [
                Curve(
                    style,
                    _points(found, "ours", "time_ours"),
                    _points(found, "published", "time_published"),
                )
                for procedure, style in TEST_STYLES.items()
                if (found := [row for row in chosen if (row.model, row.test) == (model, procedure)])
            ]
            for column, axes in enumerate(panels):
                axes.axhline(LEVEL, color="black", linestyle="--", linewidth=1)
                _draw(axes, curves, column)
                axes.label_outer()
            panels[0].set_yscale("symlog", linthresh=0.1)
            panels[0].set(ylabel=f"{label} ({model} model)", ylim=(-0.01, 1.1))
            panels[0].set_yticks(SHARES, [f"{share:g}" for share in SHARES])
            panels[0].set_yticks([], minor=True)
        is_published = any(row.published is not None for row in chosen)
        _finished(figure, folder, name, is_published=is_published)
