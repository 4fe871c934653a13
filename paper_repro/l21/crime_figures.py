"""Figures of L21 for setting 1: local calibration errors for all length scales."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness.figures import save_figure
from paper_repro.l21.crime_tables import Results
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import CURVE_LENGTH_SCALES, GLOBAL, LOCAL
from paper_repro.l21.networks_figures import draw_curves

METHODS = (*GLOBAL, *LOCAL)


def _draw(axes: Axes, results: Results, variant: str, quantity: str, embedding: str) -> None:
    name = f"{quantity} curve ({embedding})"
    curves = {method: results.values(variant, method, name) for method in METHODS}
    draw_curves(axes, CURVE_LENGTH_SCALES, curves)
    axes.set_ylabel(quantity)
    axes.set_title(f"{embedding} features, {variant}", fontsize=10)
    axes.set_xlabel("length scale $\\gamma$ of the kernel")
    axes.set_ylim(bottom=0)
    axes.label_outer()


def plot(folder: Path, results: Results) -> None:
    """Fig. 5 and 17: means over the networks, in bands of one standard deviation.

    Fig. 17, the mean LCE, is drawn for the t-SNE features only, as in the paper; the table
    `curves` has both.
    """
    variants = list(results.variants)[:2]
    for name, quantity, embeddings in (
        ("figure_5", "MLCE", list(LENGTH_SCALES)),
        ("figure_17", "mean LCE", ["t-SNE"]),
    ):
        num = len(embeddings)
        figure = Figure(figsize=(7.5, 2.6 * num + 0.7), layout="constrained")
        panels = figure.subplots(num, len(variants), sharex=True, sharey=True, squeeze=False)
        for row, embedding in zip(panels, embeddings, strict=True):
            for axes, variant in zip(row, variants, strict=True):
                _draw(axes, results, variant, quantity, embedding)
        handles, labels = panels[0, 0].get_legend_handles_labels()
        title = "means over the networks, in bands of ± one standard deviation"
        figure.legend(handles, labels, loc="outside lower center", ncols=4, title=title)
        save_figure(folder, name, figure)
