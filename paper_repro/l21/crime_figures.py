"""Figures of L21 for setting 1: local calibration errors for all length scales."""

from pathlib import Path

from matplotlib.axes import Axes

from experiments.harness.figures import add_legend, panels, save_figure
from paper_repro.l21.crime_tables import Results
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import CURVE_LENGTH_SCALES
from paper_repro.l21.networks_figures import LENGTH_SCALE, METHODS, draw_curves


def _draw(axes: Axes, results: Results, variant: str, quantity: str, embedding: str) -> None:
    name = f"{quantity} curve ({embedding})"
    curves = {method: results.values(variant, method, name) for method in METHODS}
    draw_curves(axes, CURVE_LENGTH_SCALES, curves)
    axes.set(xlabel=LENGTH_SCALE, ylabel=quantity, title=f"{embedding} features, {variant}")
    axes.set_ylim(bottom=0)
    axes.label_outer()


def plot(folder: Path, results: Results) -> None:
    """Fig. 5 and 17: means over the networks, in bands of one standard error.

    Fig. 17, the mean LCE, is drawn for the t-SNE features only, as in the paper; the table
    `curves` has both.
    """
    variants = list(results.variants)[:2]
    for name, quantity, embeddings in (
        ("figure_5", "MLCE", list(LENGTH_SCALES)),
        ("figure_17", "mean LCE", ["t-SNE"]),
    ):
        figure, grid = panels(len(embeddings), len(variants), 2.5, sharex=True, sharey=True)
        for row, embedding in zip(grid, embeddings, strict=True):
            for axes, variant in zip(row, variants, strict=True):
                _draw(axes, results, variant, quantity, embedding)
        add_legend(figure, 3, "means over the networks, in bands of ± one standard error")
        save_figure(folder, name, figure)
