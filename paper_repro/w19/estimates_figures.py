"""Figures of the distributions of estimates: W19 Fig. 1, 3 to 34, and a summary of all of them."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from tqdm import tqdm

from experiments.harness.figures import COLORS, add_legend, panels, save_figure
from paper_repro.w19.authors_data import MODELS
from paper_repro.w19.estimates_panels import CONCENTRATIONS, figures, published
from paper_repro.w19.estimates_simulation import BETAS, NAME, SHARES
from paper_repro.w19.estimates_tables import LABELS, Group
from paper_repro.w19.figures import with_subscripts

FIRST_ESTIMATORS = ("ece_uniform", "biased_median", "unbiased_median", "block_median")
SUMMARY_ESTIMATORS = ("ece_uniform", "ece_median_variance", *FIRST_ESTIMATORS[1:])
X_LABEL = "calibration error estimate"
Y_LABEL = "number of data sets"
SYMBOLS = {"uniform": "$β$ uniform", "first": "$β = e_1$"}


def _panel(axes: Axes, group: Group, share: float, beta: str, estimator: str) -> None:
    values = group.of(share, beta, estimator)
    theirs = published()[estimator, group.concentration, beta, group.num_classes, share]
    shares = theirs.counts / theirs.counts.sum()
    axes.stairs(shares, theirs.edges, fill=True, color=COLORS[0], alpha=0.4, label="published")
    shares = np.histogram(values, theirs.edges)[0] / values.size
    axes.stairs(shares, theirs.edges, color="black", linewidth=0.8, label="ours")
    axes.axvline(theirs.mean, color=COLORS[0], linewidth=2.5, alpha=0.6, label="published mean")
    axes.axvline(values.mean(), color="black", linewidth=0.7, label="our mean")
    true_value = group.true_value(share, beta, estimator)
    axes.axvline(true_value, color=COLORS[1], linewidth=1.5, linestyle="--", label="true value")
    axes.set(yticks=[])
    axes.locator_params(axis="x", nbins=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.spines["left"].set_visible(False)
    axes.patch.set_visible(False)  # a white one, which would be in the file


def plot_first(folder: Path, group: Group) -> None:
    """Fig. 1: four estimators on the three models of ten classes."""
    figure, grid = panels(len(MODELS), len(FIRST_ESTIMATORS), 1.3)
    for row, (name, model) in zip(grid, MODELS.items(), strict=True):
        for axes, estimator in zip(row, FIRST_ESTIMATORS, strict=True):
            _panel(axes, group, model.share, model.beta, estimator)
        row[0].set_ylabel(name)
    for axes, estimator in zip(grid[0], FIRST_ESTIMATORS, strict=True):
        axes.set_title(with_subscripts(LABELS[estimator]))
    figure.supxlabel(X_LABEL)
    figure.supylabel(Y_LABEL)
    add_legend(figure, 5)
    save_figure(folder, "figure_1", figure)


def plot_histograms(folder: Path, groups: list[Group], count: int) -> None:
    """The first of Fig. 3 to 34: one estimator, a and β each, for all m (rows) and π (columns)."""
    for number, estimator, beta, a in tqdm(list(figures())[:count], desc=f"{NAME}: figures"):
        chosen = [group for group in groups if group.concentration == a]
        if not chosen:
            continue
        figure, grid = panels(len(chosen), len(SHARES), 1.3)
        for row, group in zip(grid, chosen, strict=True):
            for axes, share in zip(row, SHARES, strict=True):
                _panel(axes, group, share, beta, estimator)
            row[0].set_ylabel(f"$m$ = {group.num_classes}")
        for axes, share in zip(grid[0], SHARES, strict=True):
            axes.set_title(f"$π$ = {share}")
        title = with_subscripts(LABELS[estimator]).replace("\n", " ")
        figure.supxlabel(X_LABEL)
        figure.supylabel(Y_LABEL)
        add_legend(figure, 5, f"{title}; $a$ = {a:g}, {SYMBOLS[beta]}")
        save_figure(folder, f"figure_{number:02d}", figure)


def _summarize(
    axes: Axes, group: Group, beta: str, estimator: str, color: str, shift: float
) -> None:
    x = np.array(SHARES) + shift
    values = [group.of(share, beta, estimator) for share in SHARES]
    truth = [group.true_value(share, beta, estimator) for share in SHARES]
    low, high = np.quantile(values, [0.05, 0.95], axis=1)
    gaps = np.full_like(x, np.nan)  # so that all lines are one path
    ends = [np.stack(parts, 1).ravel() for parts in ((x, x, gaps), (low, high, gaps))]
    axes.plot(*ends, color=color, linewidth=1.5)
    label = f"$m$ = {group.num_classes}"
    axes.plot(x, np.mean(values, 1), "o", color=color, markersize=3, label=label)
    axes.plot(x, truth, "_", color="black", markersize=7, zorder=3, label="true value")


def plot_summary(folder: Path, groups: list[Group]) -> None:
    """Means and central 90 % of the estimates of all cells, with the true values."""
    columns = [(a, beta) for beta in BETAS for a in CONCENTRATIONS]
    shape = len(SUMMARY_ESTIMATORS), len(columns)
    figure, grid = panels(*shape, 1.5, sharex=True, sharey="row")
    sizes = sorted({group.num_classes for group in groups})
    for row, estimator in zip(grid, SUMMARY_ESTIMATORS, strict=True):
        for axes, (a, beta) in zip(row, columns, strict=True):
            for group in groups:
                if group.concentration == a:
                    i = sizes.index(group.num_classes)
                    shift = 0.045 * (i - (len(sizes) - 1) / 2)
                    _summarize(axes, group, beta, estimator, COLORS[i], shift)
            axes.axhline(0, color="gray", linewidth=0.5)
            axes.set(xticks=(0, 0.5, 1), xticklabels=("0", "0.5", "1"))
        row[0].set_ylabel(with_subscripts(LABELS[estimator].replace(", median heuristic", "")))
    for axes, (a, beta) in zip(grid[0], columns, strict=True):
        axes.set_title(f"$a$ = {a:g}, {SYMBOLS[beta]}")
    figure.supxlabel("share $π$ of labels from $β$")
    figure.supylabel(X_LABEL)
    add_legend(figure, 5, "dots: means of the estimates; bars: their central 90 %")
    save_figure(folder, "summary", figure)


def plot_all(folder: Path, groups: list[Group], count: int) -> None:
    """The summary and the first of Fig. 3 to 34."""
    plot_summary(folder, groups)
    plot_histograms(folder, groups, count)
