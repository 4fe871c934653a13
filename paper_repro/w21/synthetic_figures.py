"""Figures of W21 App. A.2."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import save_figure
from paper_repro.w21.synthetic_simulation import ESTIMATORS, TESTS, Procedure
from paper_repro.w21.synthetic_tables import LEVEL, Cell

ERROR_FIGURES = {
    ("calibrated", 1): "figure_6",
    ("calibrated", 10): "figure_7",
    ("uncalibrated", 1): "figure_8",
    ("uncalibrated", 10): "figure_9",
}
TEST_FIGURES = {1: "figure_10", 10: "figure_11"}
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")
PUBLISHED = dict(linestyle=":", marker="x", linewidth=1, alpha=0.6)
OURS = dict(linestyle="-", marker="o", markersize=4)

Published = dict[tuple[str, str, str], dict[str, str]]


def _select(finished: Iterable[Cell], procedure: Procedure, model: str, d: int) -> list[Cell]:
    return [
        cell
        for cell in finished
        if cell.procedure is procedure
        and (cell.simulation.model, cell.simulation.dimension) == (model, d)
    ]


def _draw_curves(
    axes: Axes,
    procedures: tuple[Procedure, ...],
    choose: Callable[[Procedure], list[Cell]],
    value: Callable[[Cell], float],
    published: Published,
    column: str,
    *,
    over_time: bool,
) -> None:
    """One curve for each procedure, over n or over time; published ones dotted."""
    sizes: set[int] = set()
    for procedure, color in zip(procedures, COLORS, strict=False):
        chosen = choose(procedure)
        sizes |= {cell.simulation.num_samples for cell in chosen}
        x = [cell.seconds if over_time else cell.simulation.num_samples for cell in chosen]
        axes.plot(x, [value(cell) for cell in chosen], color=color, label=procedure.label, **OURS)
        rows = [(cell, published.get(cell.place)) for cell in chosen]
        rows = [(cell, row) for cell, row in rows if row and cell.simulation.model == "calibrated"]
        if rows:
            x = [float(r["mintime"]) if over_time else c.simulation.num_samples for c, r in rows]
            axes.plot(x, [float(row[column]) for _, row in rows], color=color, **PUBLISHED)
    axes.set(xscale="log", xlabel="time of one evaluation [s]" if over_time else "samples n")
    if not over_time:
        axes.set_xticks(sorted(sizes), [str(n) for n in sorted(sizes)])
        axes.set_xticks([], minor=True)


def _finish(figure: Figure, axes: Axes, published: Published, folder: Path, name: str) -> None:
    if published:
        axes.plot([], [], color="gray", label="published", **PUBLISHED)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
    save_figure(folder, name, figure)


def plot_errors(
    folder: Path,
    finished: list[Cell],
    truth: dict[tuple[str, int], np.ndarray],
    published: Published,
) -> None:
    """Fig. 6 to 9: mean absolute error and variance of the estimators over time."""
    for (model, d), name in ERROR_FIGURES.items():
        figure = Figure(figsize=(8, 3.8), layout="constrained")
        true_value = truth[model, d].mean()
        panels = {
            "meanerror": lambda cell, t=true_value: np.abs(cell.values - t).mean(),
            "variance": lambda cell: cell.values.var(ddof=1),
        }
        shown = published if model == "calibrated" else {}
        for axes, (column, value) in zip(figure.subplots(1, 2), panels.items(), strict=True):

            def choose(procedure: Procedure, model: str = model, d: int = d) -> list[Cell]:
                return _select(finished, procedure, model, d)

            _draw_curves(axes, ESTIMATORS, choose, value, shown, column, over_time=True)
            label = "mean absolute error" if column == "meanerror" else "variance"
            axes.set(yscale="log", ylabel=label, title=f"{model} model, d = {d}")
        _finish(figure, axes, shown, folder, name)


def _draw_test_errors(
    axes: Axes, finished: list[Cell], model: str, d: int, published: Published, *, over_time: bool
) -> None:
    def choose(procedure: Procedure) -> list[Cell]:
        return _select(finished, procedure, model, d)

    def value(cell: Cell) -> float:
        return cell.test_error

    _draw_curves(axes, TESTS, choose, value, published, "testerror", over_time=over_time)
    kind = "type I error" if model == "calibrated" else "type II error"
    axes.axhline(LEVEL, color="black", linestyle="--", linewidth=1)
    axes.set(ylabel=kind, title=f"{model} model, d = {d}", ylim=(-0.01, None))


def plot_tests(folder: Path, finished: list[Cell], published: Published) -> None:
    """Fig. 10 and 11: test errors over time; Fig. 2: for d = 10 over n."""
    figures: list[tuple[str, int, bool]] = [(name, d, True) for d, name in TEST_FIGURES.items()]
    for name, d, over_time in [*figures, ("figure_2", 10, False)]:
        figure = Figure(figsize=(8, 3.8), layout="constrained")
        panels: Any = zip(figure.subplots(1, 2), ("calibrated", "uncalibrated"), strict=True)
        for axes, model in panels:
            _draw_test_errors(axes, finished, model, d, published, over_time=over_time)
        _finish(figure, axes, published, folder, name)
