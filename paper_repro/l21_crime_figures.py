"""Figures of L21 for setting 1: local calibration errors for all length scales."""

from pathlib import Path

from matplotlib.figure import Figure

from calibjax import plotting
from paper_repro import cells
from paper_repro.l21_crime_tables import Results
from paper_repro.l21_embeddings import LENGTH_SCALES
from paper_repro.l21_methods import CURVE_LENGTH_SCALES, GLOBAL, LOCAL

FIGURES = {"figure_5": "MLCE", "figure_17": "mean LCE"}


def plot(folder: Path, results: Results) -> None:
    """Fig. 5 and 17, the latter with both features: means over the networks, bands of one sd."""
    variants = list(results.variants)[:2]
    methods = (*GLOBAL, *LOCAL)
    for figure_name, quantity in FIGURES.items():
        figure = Figure(figsize=(7.5, 2.6 * len(variants) + 0.7), layout="constrained")
        panels = figure.subplots(len(variants), 2, sharex=True, sharey=True)
        for row, variant in zip(panels, variants, strict=True):
            for axes, embedding in zip(row, LENGTH_SCALES, strict=True):
                name = f"{quantity} curve ({embedding})"
                curves = {x: results.values(variant, x, name) for x in methods}
                plotting.bandwidth_curves(CURVE_LENGTH_SCALES, curves, ylabel=quantity, axis=axes)
                axes.set_title(f"{embedding} features, {variant}", fontsize=10)
                axes.label_outer()
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
        cells.save_figure(folder, figure_name, figure)
