"""Figures of G24 §5.2 and App. B: roots of the estimates, and risks over the grids."""

import itertools
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.figures import draw_estimates, save_figure
from paper_repro.g24.networks_tables import TOP_LABEL, ZERO, Results, selected
from paper_repro.g24.simulation_figures import draw_risks

# Notion and data of the panels. Fig. 4 has a panel (a) for ImageNet, whose networks are missing.
PANELS = {
    "figure_2": (("top-label", "cifar10"), ("top-label", "cifar100")),
    "figure_3": (("canonical", "cifar100"),),
    "figure_4": (("canonical", "cifar10"),),
}
LABELS = {"top-label": "$\\mathrm{TCE}_2$", "canonical": "$\\mathrm{CCE}_2$"}
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
NETWORKS = {
    "densenet121": "DenseNet-121",
    "googlenet": "GoogLeNet",
    "resnet18": "ResNet-18",
    "vgg16_bn": "VGG-16",
    "resnet50": "ResNet-50",
    "resnet110": "ResNet-110",
    "logits_resnet110": "ResNet-110\n(logits)",
    "logits_densenet121": "DenseNet-121\n(logits)",
}


def plot(folder: Path, results: Results) -> None:
    """Fig. 2 to 4, of the networks that are there, and the risks over the grids for each."""
    results = {key: found for key, found in results.items() if key[2] != ZERO}
    places = {(notion, network.split("_")[0]) for network, notion, _ in results}
    for name, panels in PANELS.items():
        shown = [panel for panel in panels if panel in places]
        if shown:
            _plot_estimates(folder, name, results, shown)
    for network in dict.fromkeys(key[0] for key in results):
        _plot_risks(
            folder, network, {key[1:]: x for key, x in results.items() if key[0] == network}
        )


def _plot_estimates(
    folder: Path, name: str, results: Results, panels: list[tuple[str, str]]
) -> None:
    """Roots of the estimates, with standard errors over the folds."""

    def is_of(network: str, data: str) -> bool:
        return network.split("_")[0] == data

    networks = [
        [x for x in dict.fromkeys(key[0] for key in results if key[1] == notion) if is_of(x, data)]
        for notion, data in panels
    ]
    widths = [0.6 + len(found) for found in networks]
    figure = Figure(figsize=(1.6 + 1.25 * sum(widths), 3.1), layout="constrained")
    axes_of_panels = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for axes, (notion, data), found in zip(axes_of_panels, panels, networks, strict=True):
        # Those of both notions first: an estimator has one colour.
        names = [x for x in TOP_LABEL[::-1] if (found[0], notion, x) in results]
        roots, errors = (
            {x: np.array([results[n, notion, x][field] for n in found]) for x in names}
            for field in ("root", "root_standard_error")
        )
        labels = [NETWORKS.get(x.partition("_")[2], x) for x in found]
        ylabel = f"estimated {LABELS[notion]}"
        draw_estimates(axes, labels, roots, errors)
        axes.set(title=DATA[data], ylabel=ylabel)
        axes.set_ylim(0, 1.03 * axes.get_ylim()[1])  # with room for the whole bar
    handles, labels = axes_of_panels[0].get_legend_handles_labels()
    num = len(labels) if len(networks[0]) > 1 else 3
    figure.legend(handles, labels, loc="outside lower center", ncols=num)
    save_figure(folder, name, figure)


def _plot_risks(
    folder: Path, network: str, results: dict[tuple[str, str], dict[str, np.ndarray]]
) -> None:
    """Risk over the grid of each estimator that has one."""
    shown = {key: found for key, found in results.items() if found["grid"].size > 1}
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(2, -(-len(shown) // 2), squeeze=False).ravel()
    for axes, ((notion, name), found) in itertools.zip_longest(
        panels, shown.items(), fillvalue=((None, None), None)
    ):
        if found is None:
            axes.set_visible(False)
            continue
        risks = found["risks"]
        errors = risks.std(0, ddof=1) / np.sqrt(len(risks))
        draw_risks(axes, found["grid"], risks.mean(0), errors, float(selected(found)[0]))
        axes.set(xlabel=_hyperparameter(name), ylabel="risk")
        axes.set_title(f"{notion}, {name}", fontsize=9)
        axes.ticklabel_format(axis="y", scilimits=(-2, 2), useMathText=True)
        handles = axes.get_lines()[0], axes.get_lines()[-1]
    figure.suptitle(NETWORKS.get(network.partition("_")[2], network), fontsize=10)
    labels = ["risk ± standard error over the folds", "smallest risk"]
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    save_figure(folder, f"risks_{network}", figure)


def _hyperparameter(name: str) -> str:
    return {"bins": "number of bins", "kde": "bandwidth"}.get(name, "penalty $\\lambda$")
