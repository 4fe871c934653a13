"""Figures of the distributions of estimates: W19 Fig. 1, 3 to 34, and a summary of all of them."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from calibjax.plotting.figures import BLACK, BLUE, RED
from experiments.harness.figures import COLORS, save_figure
from paper_repro.w19.authors_data import MODELS
from paper_repro.w19.estimates_panels import CONCENTRATIONS, figures, published
from paper_repro.w19.estimates_simulation import BETAS, NAME, SHARES
from paper_repro.w19.estimates_tables import LABELS, Group
from paper_repro.w19.figures import add_legend, with_subscripts

FIRST_ESTIMATORS = ("ece_uniform", "biased_median", "unbiased_median", "block_median")
SUMMARY_ESTIMATORS = ("ece_uniform", "ece_median_variance", *FIRST_ESTIMATORS[1:])
X_LABEL = "calibration error estimate"
Y_LABEL = "number of data sets"
SYMBOLS = {"uniform": "$β$ uniform", "first": "$β = e_1$"}


def _panel(axes: Axes, group: Group, share: float, beta: str, estimator: str) -> None:
    values = group.of(share, beta, estimator)
    theirs = published()[estimator, group.concentration, beta, group.num_classes, share]
    shares = theirs.counts / theirs.counts.sum()
    axes.stairs(shares, theirs.edges, fill=True, color=BLUE, alpha=0.4, label="published")
    shares = np.histogram(values, theirs.edges)[0] / values.size
    axes.stairs(shares, theirs.edges, color=BLACK, linewidth=0.8, label="ours")
    axes.axvline(theirs.mean, color=BLUE, linewidth=2.5, alpha=0.6, label="published mean")
    axes.axvline(values.mean(), color=BLACK, linewidth=0.7, label="our mean")
    true_value = group.true_value(share, beta, estimator)
    axes.axvline(true_value, color=RED, linewidth=1.5, linestyle="--", label="true value")
    axes.set(yticks=[])
    axes.locator_params(axis="x", nbins=2)
    axes.tick_params(labelsize=7)
    axes.spines["left"].set_visible(False)
    axes.patch.set_visible(False)  # a white one, which would be in the file


def plot_first(folder: Path, group: Group) -> None:
    """Fig. 1: four estimators on the three models of ten classes."""
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    panels = figure.subplots(len(MODELS), len(FIRST_ESTIMATORS))
    for row, (name, model) in zip(panels, MODELS.items(), strict=True):
        for axes, estimator in zip(row, FIRST_ESTIMATORS, strict=True):
            _panel(axes, group, model.share, model.beta, estimator)
        row[0].set_ylabel(name)
    for axes, estimator in zip(panels[0], FIRST_ESTIMATORS, strict=True):
        axes.set_title(with_subscripts(LABELS[estimator]), fontsize=9)
    figure.supxlabel(X_LABEL, fontsize=9)
    figure.supylabel(Y_LABEL, fontsize=9)
    add_legend(figure, axes, "outside upper center")
    save_figure(folder, "figure_1", figure)


def plot_histograms(folder: Path, groups: list[Group], count: int) -> None:
    """The first of Fig. 3 to 34: one estimator, a and β each, for all m (rows) and π (columns)."""
    for number, estimator, beta, a in tqdm(list(figures())[:count], desc=f"{NAME}: figures"):
        chosen = [group for group in groups if group.concentration == a]
        if not chosen:
            continue
        height = 1.1 + 1.4 * len(chosen)
        figure = Figure(figsize=(10, height))  # a layout engine would take as long as the drawing
        figure.subplots_adjust(0.06, 0.75 / height, 0.98, 1 - 0.55 / height, 0.15, 0.3)
        panels = figure.subplots(len(chosen), len(SHARES), squeeze=False)
        for row, group in zip(panels, chosen, strict=True):
            for axes, share in zip(row, SHARES, strict=True):
                _panel(axes, group, share, beta, estimator)
            row[0].set_ylabel(f"$m$ = {group.num_classes}")
        for axes, share in zip(panels[0], SHARES, strict=True):
            axes.set_title(f"$π$ = {share}", fontsize=9)
        title = f"{with_subscripts(LABELS[estimator])}; $a$ = {a:g}, {SYMBOLS[beta]}"
        figure.suptitle(title, fontsize=10, y=1 - 0.1 / height, va="top")
        figure.supxlabel(X_LABEL, fontsize=9, y=0.3 / height)
        figure.supylabel(Y_LABEL, fontsize=9, x=0.01)
        add_legend(figure, axes, "lower center")
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
    figure = Figure(figsize=(9, 8.5), layout="constrained")
    columns = [(a, beta) for beta in BETAS for a in CONCENTRATIONS]
    panels = figure.subplots(len(SUMMARY_ESTIMATORS), len(columns), sharex=True, sharey="row")
    sizes = sorted({group.num_classes for group in groups})
    for row, estimator in zip(panels, SUMMARY_ESTIMATORS, strict=True):
        for axes, (a, beta) in zip(row, columns, strict=True):
            for group in groups:
                if group.concentration == a:
                    i = sizes.index(group.num_classes)
                    shift = 0.045 * (i - (len(sizes) - 1) / 2)
                    _summarize(axes, group, beta, estimator, COLORS[i], shift)
            axes.axhline(0, color="gray", linewidth=0.5)
        label = with_subscripts(LABELS[estimator].replace(", median heuristic", ""))
        row[0].set_ylabel(label.replace(", ", ",\n"), fontsize=9)
    for axes, (a, beta) in zip(panels[0], columns, strict=True):
        axes.set_title(f"$a$ = {a:g}, {SYMBOLS[beta]}", fontsize=10)
    for axes in panels[-1]:
        axes.set(xlabel="share $π$ of labels from $β$", xticks=SHARES)
    fullest = max(panels[0], key=lambda axes: len(axes.lines))  # with --only some are empty
    title = "dots: means of the estimates, bars: their central 90 %"
    add_legend(figure, fullest, "outside lower center", title=title)
    save_figure(folder, "summary", figure)


def plot_all(folder: Path, groups: list[Group], count: int) -> None:
    """The summary and the first of Fig. 3 to 34."""
    plot_summary(folder, groups)
    plot_histograms(folder, groups, count)
