"""Figures of G24 §5.2 and App. B: roots of the estimates, and risks over the grids."""

import itertools
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from calibjax import plotting
from experiments.harness.figures import save_figure
from paper_repro.g24.networks_tables import TOP_LABEL, ZERO, Results, selected


def plot(folder: Path, results: Results) -> None:
    """Fig. 2 to 4 in form, and the risks over the grids for each network."""
    drawn = [key for key in results if key[2] != ZERO]
    networks, notions = (list(dict.fromkeys(key[i] for key in drawn)) for i in (0, 1))
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    panels = figure.subplots(1, len(notions), squeeze=False)[0]
    for axes, notion in zip(panels, notions, strict=True):
        # Those of both notions first: an estimator has one colour.
        names = [x for x in TOP_LABEL[::-1] if (networks[0], notion, x) in results]
        roots, errors = (
            {x: np.array([results[n, notion, x][field] for n in networks]) for x in names}
            for field in ("root", "root_standard_error")
        )
        labels = [name.replace("_", "\n", 1) for name in networks]
        plotting.estimate_comparison(labels, roots, errors=errors, axis=axes)
        axes.set_title(notion, fontsize=10)
        axes.tick_params(axis="x", labelsize=6.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)
    save_figure(folder, "estimates", figure)
    for network in networks:
        _plot_risks(
            folder, network, {key[1:]: x for key, x in results.items() if key[0] == network}
        )


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
        style = {"marked": selected(found)[0], "xlabel": "", "axis": axes}
        plotting.risk_curve(found["grid"], risks.mean(0), errors=errors, **style)
        axes.set_title(f"{notion}, {name}", fontsize=9)
        axes.ticklabel_format(axis="y", scilimits=(-2, 2))
    figure.suptitle(f"{network}: risk over the grid, standard errors over the folds", fontsize=10)
    save_figure(folder, f"risks_{network}", figure)
