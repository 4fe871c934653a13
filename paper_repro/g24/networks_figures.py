"""Figures of G24 §5.2 and App. B: roots of the estimates."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibjax.plotting.figures import CURVE_MARKERS
from experiments.harness.figures import COLORS, draw_estimates, save_figure
from paper_repro.g24.networks_tables import TOP_LABEL, Results
from paper_repro.g24.paper_tables import label_of, networks_of
from paper_repro.g24.published import PUBLISHED

# Notion and data of the panels. Fig. 4 has a panel (a) for ImageNet, whose networks are missing.
PANELS = {
    "figure_2": (("top-label", "cifar10"), ("top-label", "cifar100")),
    "figure_3": (("canonical", "cifar100"),),
    "figure_4": (("canonical", "cifar10"),),
}
LABELS = {"top-label": "$\\mathrm{TCE}_2$", "canonical": "$\\mathrm{CCE}_2$"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def plot(folder: Path, results: Results) -> None:
    """Fig. 2 to 4, ours beside the published estimates."""
    for name, panels in PANELS.items():
        figure = Figure(figsize=(7.6 * len(panels), 3.3), layout="constrained")
        for axes, place in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
            _draw_panel(axes, results, *place)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        save_figure(folder, name, figure)


def _draw_panel(axes: Axes, results: Results, notion: str, data: str) -> None:
    """Published estimates (hollow) to the left of ours, with standard errors over the folds."""
    published, networks = PUBLISHED[data, notion], networks_of(results, data, notion)
    names = [x for x in TOP_LABEL[::-1] if x in published]  # as in both notions: same colours
    theirs = list(published[names[0]])
    nothing = np.full(len(theirs), np.nan)
    estimates, errors = (
        {x: np.append(nothing, [results[n, notion, x][field] for n in networks]) for x in names}
        for field in ("root", "root_standard_error")
    )
    draw_estimates(axes, theirs + [label_of(x) for x in networks], estimates, errors)
    for i, (name, color, marker) in enumerate(zip(names, COLORS, CURVE_MARKERS, strict=False)):
        x = np.arange(len(theirs)) + 0.8 / len(names) * (i - (len(names) - 1) / 2)
        y = [published[name][network].estimate for network in theirs]
        axes.plot(x, y, marker, color=color, markerfacecolor="white", markersize=4)
    axes.axvline(len(theirs) - 0.5, color="0.7", linewidth=0.8)
    axes.set(title=f"{DATA[data]}: paper | here", ylabel=f"estimated {LABELS[notion]}")
    axes.tick_params(axis="x", rotation=30)
    axes.set_ylim(0, 1.03 * axes.get_ylim()[1])  # with room for the whole bar
