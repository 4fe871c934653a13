"""Fig. 1 of G24, and beside it the differences that its bars hide."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from calibjax import plotting
from experiments.harness.figures import save_figure


def plot(folder: Path, thetas: np.ndarray, risks: np.ndarray) -> None:
    """Draws the risks [data sets, k], and their differences from that at θ = 1."""
    figure = Figure(figsize=(7, 2.9), layout="constrained")
    panels = figure.subplots(1, 2)
    shown = {"risk": risks, "risk $-$ risk at $\\theta = 1$": risks - risks[:, thetas == 1]}
    for axes, (ylabel, values) in zip(panels, shown.items(), strict=True):
        style = {"marked": 1.0, "xlabel": "temperature parameter $\\theta$", "ylabel": ylabel}
        plotting.risk_curve(thetas, values, **style, ax=axes)
        axes.ticklabel_format(axis="y", scilimits=(-2, 2), useMathText=True)
    curve, line = panels[0].get_lines()[0], panels[0].get_lines()[-1]
    labels = [f"mean ± standard deviation of {len(risks)} data sets", "$\\theta = 1$, the truth"]
    figure.legend([curve, line], labels, loc="outside lower center", ncols=2)
    save_figure(folder, "figure_1", figure)
