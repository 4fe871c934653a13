"""Figure of the power against the number of samples."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.harness.figures import COLORS, label_lines, save_figure
from experiments.power import normals
from experiments.power.simulation import ALPHA, CALIBRATED, PIT
from experiments.power.tables import Found

LABELS = {
    normals.AGGREGATED: "aggregated",
    normals.MEDIAN: "exact, median heuristic",
    normals.BIASED: "exact, biased",
    normals.BOOTSTRAP: "bootstrap (W21)",
    PIT: "KS test of the PIT",
    normals.KERNELS: "best kernel (hindsight)",
}


def draw(folder: Path, found: Found) -> None:
    """One panel for each alternative."""
    names = [name for name in normals.NORMALS.alternatives if name != CALIBRATED]
    figure = Figure(figsize=(12, 6), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True, sharey=True).flat
    for panel, name in zip(panels, (CALIBRATED, *names), strict=True):
        _draw_one(panel, found, name)
    figure.supxlabel("number of samples $n$")
    figure.supylabel("rejections at level 5 % (%)")
    save_figure(folder, "power_normals", figure)


def _draw_one(panel: Axes, found: Found, name: str) -> None:
    sizes = [*normals.NORMALS.sizes]
    panel.set_xscale("log")
    panel.axhline(100 * ALPHA, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    lines = []
    for color, (test, label) in zip(COLORS, LABELS.items(), strict=False):
        rates = [100 * found.rate("normals", name, n, "", test) for n in sizes]
        style = "--" if test == normals.KERNELS else "-"
        lines += panel.plot(
            sizes, rates, style, marker="o", markersize=3, linewidth=1.2, color=color, label=label
        )
    panel.set_title("calibrated" if name == CALIBRATED else name)
    panel.set_xticks(sizes, map(str, sizes))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_ylim(-3, 103)
    label_lines(panel, lines, gap=0.085)
