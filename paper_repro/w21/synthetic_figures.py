"""Draws the figures of W21 App. A.2 from the rows of its tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from experiments.harness.figures import COLORS, add_legend, panels, save_figure
from paper_repro.w21.synthetic_tables import LEVEL, ErrorRow, TestRow

ERROR_FIGURES = {
    "figure_6": ("calibrated", 1),
    "figure_7": ("calibrated", 10),
    "figure_8": ("uncalibrated", 1),
    "figure_9": ("uncalibrated", 10),
}
# Fig. 2 and 11 of the paper have the same caption: the same panels.
TEST_FIGURES = {"figure_2": 10, "figure_10": 1, "figure_11": 10}


class Style(NamedTuple):
    """What a procedure is called in a legend, and how it is drawn.

    Where curves meet, the larger markers of those that are drawn first show around the others.
    """

    label: str
    color: str
    marker: str
    size: float


STYLES = {
    "CME": Style("CME", COLORS[4], "D", 8),
    "exact CME (ours)": Style("exact, CME (ours)", COLORS[5], "s", 7),
    "exact (ours)": Style("exact, SKCE$_k$ (ours)", COLORS[6], "o", 6),
    "SKCE": Style("SKCE$_k$", COLORS[3], "s", 8),
    "SKCE (B = 2)": Style("SKCE$_{k,2}$", COLORS[1], "v", 5),
    "SKCE (B = √n)": Style(r"SKCE$_{k,\sqrt{n}}$", COLORS[2], "^", 5),
    "SKCE (B = n)": Style("SKCE$_{k,n}$", COLORS[0], "o", 3),
}
PUBLISHED: dict[str, Any] = {"linewidth": 6, "alpha": 0.3, "solid_capstyle": "round"}


class Row(NamedTuple):
    """A row of panels: values over n, and over the time of one evaluation.

    Attributes:
        label: of the vertical axis.
        rows: of the table.
        ours: column of our values.
        published: column of the published values.
    """

    label: str
    rows: Sequence[Any]
    ours: str
    published: str


def _draw(axes: Axes, row: Row, x: dict[str, str]) -> None:
    """Curves of all procedures; `x` are the columns of the horizontal axis, as those of values."""
    for procedure, (label, color, marker, size) in STYLES.items():
        rows = [each for each in row.rows if each[3] == procedure]
        for side, value in (("published", row.published), ("ours", row.ours)):
            points = [(getattr(each, x[side]), getattr(each, value)) for each in rows]
            points = sorted(point for point in points if None not in point)
            look: dict[str, Any] = PUBLISHED
            if side == "ours":
                look = {"marker": marker, "markersize": size, "linewidth": 1.2, "label": label}
            if points:
                axes.plot(*zip(*points, strict=True), color=color, **look)


def _figure(folder: Path, name: str, title: str, rows_of_panels: Sequence[Row]) -> Any:
    """Two rows of panels, as in the paper; nothing if none of the values is ours."""
    rows = [each for row in rows_of_panels for each in row.rows]
    if all(each.time_ours is None for each in rows):
        return
    figure, grid = panels(2, 2, 2.5, sharex="col", sharey="row")
    times = {"published": "time_published", "ours": "time_ours"}
    for axes, row in zip(grid, rows_of_panels, strict=True):
        for panel, x in zip(axes, ({"published": "n", "ours": "n"}, times), strict=True):
            _draw(panel, row, x)
        if row.label.startswith("type"):
            for panel in axes:
                style = {"color": "0.5", "linestyle": "--", "linewidth": 1}
                panel.axhline(LEVEL, label=f"level {LEVEL}", **style)
        else:
            axes[0].set_yscale("log")
        axes[0].set(ylabel=row.label)
    grid[1, 0].set_xscale("log", base=2)
    grid[1, 0].set(xlabel="number of samples")
    grid[1, 1].set(xscale="log", xlabel="time of one evaluation (s)")
    grid[0, 0].plot([], [], color="0.3", label="published", **PUBLISHED)
    add_legend(figure, 4, title)
    save_figure(folder, name, figure)


def plot_errors(folder: Path, rows: Sequence[ErrorRow]) -> None:
    """Fig. 6 to 9: mean absolute error and variance of the estimators over n and over time.

    Args:
        folder: where to.
        rows: of the table of the estimators.
    """
    for name, (model, d) in ERROR_FIGURES.items():
        chosen = [row for row in rows if (row.model, row.d) == (model, d)]
        rows_of_panels = [
            Row("mean error", chosen, "mean_ours", "mean_published"),
            Row("variance", chosen, "variance_ours", "variance_published"),
        ]
        _figure(folder, name, f"{model} model, $d = {d}$", rows_of_panels)


def plot_tests(folder: Path, rows: Sequence[TestRow]) -> None:
    """Fig. 2, 10 and 11: errors of the tests at level 0.05 over n and over time.

    Args:
        folder: where to.
        rows: of the table of the tests.
    """
    for name, d in TEST_FIGURES.items():
        rows_of_panels = [
            Row(label, [x for x in rows if (x.model, x.d) == (model, d)], "ours", "published")
            for label, model in (
                ("type I error (calibrated)", "calibrated"),
                ("type II error (uncalibrated)", "uncalibrated"),
            )
        ]
        _figure(folder, name, f"tests at level {LEVEL}, $d = {d}$", rows_of_panels)
