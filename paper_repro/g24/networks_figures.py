"""Figures of G24 §5.2 and App. B: roots of the estimates."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from experiments.harness.figures import COLORS, add_legend, panels, save_figure
from paper_repro.g24.networks_tables import TOP_LABEL, Results
from paper_repro.g24.paper_tables import label_of, networks_of
from paper_repro.g24.published import PUBLISHED

# Notion and data of the rows of panels. ImageNet, in Fig. 4 (a), is missing.
PANELS = {
    "figure_2": (("top-label", "cifar10"), ("top-label", "cifar100")),
    "figure_3": (("canonical", "cifar100"),),
    "figure_4": (("canonical", "cifar10"),),
}
LABELS = {"top-label": "$\\mathrm{TCE}_2$", "canonical": "$\\mathrm{CCE}_2$"}
MARKERS = "osD^v"
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def plot(folder: Path, results: Results) -> None:
    """Fig. 2 to 4: the published estimates, and ours ± 2 standard errors over the folds."""
    for name, rows in PANELS.items():
        figure, grid = panels(len(rows), 2, 2.7)
        for (left, right), (notion, data) in zip(grid, rows, strict=True):
            published, networks = PUBLISHED[data, notion], networks_of(results, data, notion)
            estimators = [x for x in TOP_LABEL[::-1] if x in published]  # same colours in both
            theirs = {x: [y.estimate for y in published[x].values()] for x in estimators}
            _draw(left, list(published[estimators[0]]), theirs)
            ours, errors = (
                {x: [k * results[n, notion, x][field] for n in networks] for x in estimators}
                for k, field in ((1, "root"), (2, "root_standard_error"))
            )
            _draw(right, [label_of(x) for x in networks], ours, errors)
            left.set(title=f"{DATA[data]}: published", xlabel=f"estimated {LABELS[notion]}")
            right.set(
                title=f"{DATA[data]}: ours ± 2 s.e.",
                xlabel=f"estimated {LABELS[notion]}",
            )
        add_legend(figure, 5)
        save_figure(folder, name, figure)


def _draw(axes: Axes, networks: list[str], values: dict, errors: dict | None = None) -> None:
    """A row for each network, with a mark for each estimator."""
    for i, (name, color, marker) in enumerate(zip(values, COLORS, MARKERS, strict=False)):
        y = np.arange(len(networks)) + 0.16 * (i - (len(values) - 1) / 2)
        style = {
            "color": color,
            "markersize": 3.5,
            "elinewidth": 1.2,
            "capsize": 2.5,
            "label": name,
        }
        axes.errorbar(values[name], y, xerr=errors and errors[name], fmt=marker, **style)
    axes.set_yticks(np.arange(len(networks)), networks)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.4)
    axes.locator_params(axis="x", nbins=4)
