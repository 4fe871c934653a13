"""Fig. 35 and 36 of W19: calibration errors and p-values of networks, a panel for each column."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import stand_in
from experiments.harness.figures import COLORS, save_figure
from paper_repro.w19.figures import add_legend, with_subscripts


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
