"""Figures of W21 App. A.3."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import save_figure
from paper_repro.w21.friedman_tables import Published, Results

# Statistics and range of iterations: Fig. 3 is the part of Fig. 12 where the networks are best.
FIGURES = {
    "figure_3": (("MSE", "NLL", "SKCE (biased)", "p-value"), (10, 1500)),
    "figure_12": (
        ("NLL", "MSE", "pinball", "SKCE (unbiased)", "SKCE (biased)", "p-value"),
        (0, 5000),
    ),
}
# Colours of the paper: those of the networks and of their ensemble.
COLORS = {"train": ("tab:green", "tab:orange"), "test": ("tab:blue", "tab:purple")}
LABELS = {"train": "training data", "test": "test data"}
SCALES = {
    "NLL": {"value": "symlog", "linthresh": 10},
    "MSE": {"value": "log"},
    "pinball": {"value": "log"},
    "SKCE (unbiased)": {"value": "symlog", "linthresh": 0.01},
    "SKCE (biased)": {"value": "log"},
    "p-value": {"value": "linear"},
}


def _draw(
    axes: Axes, results: Results, name: str, split: str, published: Published, shown: range
) -> None:
    networks, ensemble = results.networks[split][name], results.ensemble[split][name]
    color, ensemble_color = COLORS[split]
    iterations = np.arange(networks.shape[0])[shown.start : shown.stop]
    networks, ensemble = networks[iterations], ensemble[iterations]
    low, high = networks.min(1), networks.max(1)
    axes.fill_between(iterations, low, high, color=color, alpha=0.25, linewidth=0)
    label = f"networks, {LABELS[split]}"
    axes.plot(iterations, networks.mean(1), color=color, linewidth=0.8, label=label)
    label = f"ensemble, {LABELS[split]}"
    axes.plot(iterations, ensemble, color=ensemble_color, linewidth=0.8, label=label)
    points = [
        (int(row["iteration"]), float(row["estimate"]))
        for row in published or []
        if (row["dataset"], row["statistic"]) == (split, name)
    ]
    points = [(x, y) for x, y in points if x in shown and x <= iterations[-1]]
    if points:
        label = f"published, {LABELS[split]}"
        style = {"color": color, "markersize": 3, "zorder": 3, "label": label}
        axes.plot(*zip(*points, strict=True), ".", **style)


def plot(folder: Path, results: Results, published: Published) -> None:
    """Fig. 3 and 12: statistics of the networks and of their ensemble over the iterations.

    Lines are means of the networks and values of the ensemble, bands the range of the networks,
    points the three published networks.
    """
    trained = results.networks["train"]["NLL"].shape[0] - 1
    for figure_name, (names, (first, last)) in FIGURES.items():
        last = min(last, trained)
        first = min(first, last - 1)
        columns = len(names) // 2
        figure = Figure(figsize=(3.4 * columns, 6), layout="constrained")
        panels = figure.subplots(2, columns, sharex=True)
        for axes, name in zip(panels.flat, names, strict=True):
            for split in results.splits:
                _draw(axes, results, name, split, published, range(first, last + 1))
            axes.set_yscale(**SCALES[name])
            if SCALES[name]["value"] == "symlog":
                axes.yaxis.get_major_locator().set_params(numticks=8)
            axes.set_title(name, fontsize=10)
            axes.set_xlim(first, last)
            if name == "p-value":
                axes.set_ylim(-0.03, 1.03)
        for axes in panels[-1]:
            axes.set_xlabel("iteration")
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
        save_figure(folder, figure_name, figure)
