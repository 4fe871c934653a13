"""Fig. 1 of G24 before the published one, and the differences that its bars hide."""

from pathlib import Path

import numpy as np

from experiments.harness.figures import COLORS, add_legend, panels, save_figure

GREY = "0.55"


def plot(
    folder: Path, thetas: np.ndarray, risks: np.ndarray, published: dict[str, np.ndarray]
) -> None:
    """Draws the risks [data sets, k], and their differences from that at θ = 1."""
    figure, ((left, right),) = panels(1, 2, 2.6)
    x, mean, sd = (published[name] for name in ("theta", "figure mean", "figure sd"))
    left.plot(x, mean, color=GREY, linewidth=3, label="Fig. 1 of the paper")
    left.fill_between(x, mean - sd, mean + sd, color=GREY, alpha=0.3, linewidth=0)
    truth = np.abs(thetas - 1).argmin()
    label = f"mean ± standard deviation of {len(risks)} data sets"
    for axes, values in ((left, risks), (right, risks - risks[:, [truth]])):
        mean, sd = values.mean(0), values.std(0, ddof=1)
        axes.plot(thetas, mean, color=COLORS[0], linewidth=1.5, label=label)
        axes.fill_between(thetas, mean - sd, mean + sd, color=COLORS[0], alpha=0.2, linewidth=0)
        axes.axvline(1, color=COLORS[1], linewidth=1, label="$\\theta = 1$, the truth")
        axes.set(xscale="log", xlabel="$\\theta$")
        axes.ticklabel_format(axis="y", scilimits=(-2, 2), useMathText=True)
    left.set_ylabel("empirical risk")
    right.set_ylabel("risk $-$ risk at $\\theta = 1$")
    add_legend(figure, 3)
    save_figure(folder, "figure_1", figure)
