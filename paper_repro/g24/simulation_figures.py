"""Fig. 1 of G24 before the published one, and the differences that its bars hide."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from calibjax.plotting.figures import BLUE, RED
from experiments.harness.figures import save_figure

GREY = "0.55"


def plot(
    folder: Path, thetas: np.ndarray, risks: np.ndarray, published: dict[str, np.ndarray]
) -> None:
    """Draws the risks [data sets, k], and their differences from that at θ = 1."""
    figure = Figure(figsize=(8, 3.1), layout="constrained")
    panels = figure.subplots(1, 2)
    x, mean, sd = (published[name] for name in ("theta", "figure mean", "figure sd"))
    panels[0].plot(x, mean, color=GREY, linewidth=3)
    panels[0].fill_between(x, mean - sd, mean + sd, color=GREY, alpha=0.3, linewidth=0)
    truth = np.abs(thetas - 1).argmin()
    shown = {"empirical risk": risks, "risk $-$ risk at $\\theta = 1$": risks - risks[:, [truth]]}
    for axes, (ylabel, values) in zip(panels, shown.items(), strict=True):
        mean, sd = values.mean(0), values.std(0, ddof=1)
        axes.plot(thetas, mean, color=BLUE, linewidth=1.5)
        axes.fill_between(thetas, mean - sd, mean + sd, color=BLUE, alpha=0.2, linewidth=0)
        axes.axvline(1, color=RED, linewidth=1)
        axes.set(xscale="log", xlabel="$\\theta$", ylabel=ylabel)
        axes.ticklabel_format(axis="y", scilimits=(-2, 2), useMathText=True)
    labels = ["Fig. 1 of the paper", f"mean ± standard deviation of {len(risks)} data sets"]
    lines = panels[0].get_lines()
    figure.legend(lines, [*labels, "$\\theta = 1$, the truth"], loc="outside lower center", ncols=3)
    save_figure(folder, "figure_1", figure)
