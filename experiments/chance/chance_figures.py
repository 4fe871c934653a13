"""The figure of `experiments.chance`."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.chance.measures import MEASURES
from experiments.harness.figures import COLORS, save_figure

MARKERS = ("o", "s", "^", "D")


def draw(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Shares of decided pairs and the smallest decided difference against n, by family."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    sizes = {family: {row["n"] for row in rows if row["family"] == family} for family in families}
    families = [family for family in families if len(sizes[family]) > 1]
    if not families:
        return
    figure = Figure(figsize=(3 * len(families), 5.6), layout="constrained")
    axes = figure.subplots(2, len(families), squeeze=False, sharex=True, sharey="row")
    for column, family in zip(axes.T, families, strict=True):
        for measure, color, marker in zip(MEASURES, COLORS, MARKERS, strict=False):
            own = [row for row in rows if (row["family"], row["measure"]) == (family, measure)]
            n = [row["n"] for row in own]
            style = {"color": color, "marker": marker, "markersize": 4}
            column[0].plot(n, [100 * row["decided"] for row in own], label=measure, **style)
            shares = [100 * row["decided alone"] for row in own]
            column[0].plot(n, shares, linestyle=":", linewidth=1, color=color)
            column[1].plot(n, [row["within chance below"] for row in own], **style)
        column[0].set(title=family, xscale="log", ylim=(-2, 102))
        column[1].set(xlabel="number of samples n", yscale="log")
    axes[0, 0].set_ylabel("pairs decided [%]\n(dotted: without adjustment)")
    axes[1, 0].set_ylabel("differences below this\nare within chance (median)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(MEASURES))
    save_figure(folder, "chance", figure)
