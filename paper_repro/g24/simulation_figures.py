"""Fig. 1 of G24, and beside it the differences that its bars hide."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibjax.plotting.figures import BLUE, RED
from experiments.harness.figures import save_figure


def draw_risks(
    axes: Axes, x: np.ndarray, risks: np.ndarray, errors: np.ndarray, marked: float
) -> None:
    """Risks over a grid, with error bars, and a line at one hyperparameter."""
    order = np.argsort(x)  # grids may be joined from two
    axes.plot(x[order], risks[order], color=BLUE, linewidth=1.5, marker="o", markersize=3.5)
    style = {"fmt": "none", "ecolor": BLUE, "elinewidth": 0.9, "capsize": 2.5}
    axes.errorbar(x[order], risks[order], errors[order], **style)
    axes.axvline(marked, color=RED, linewidth=1, linestyle="--")
    axes.set_xscale("log" if x.min() > 0 and x.max() >= 50 * x.min() else "linear")


def plot(folder: Path, thetas: np.ndarray, risks: np.ndarray) -> None:
    """Draws the risks [data sets, k], and their differences from that at θ = 1."""
    figure = Figure(figsize=(7, 2.9), layout="constrained")
    panels = figure.subplots(1, 2)
    shown = {"risk": risks, "risk $-$ risk at $\\theta = 1$": risks - risks[:, thetas == 1]}
    for axes, (ylabel, values) in zip(panels, shown.items(), strict=True):
        draw_risks(axes, thetas, values.mean(0), values.std(0, ddof=1), 1.0)
        axes.set(xlabel="temperature parameter $\\theta$", ylabel=ylabel)
        axes.ticklabel_format(axis="y", scilimits=(-2, 2), useMathText=True)
    curve, line = panels[0].get_lines()[0], panels[0].get_lines()[-1]
    labels = [f"mean ± standard deviation of {len(risks)} data sets", "$\\theta = 1$, the truth"]
    figure.legend([curve, line], labels, loc="outside lower center", ncols=2)
    save_figure(folder, "figure_1", figure)
