"""The 640 panels of W19 Fig. 3 to 34: means and histograms of the authors, and ours."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.julia_random import seeded
from paper_repro.w19.authors_data import NUM_DATA_SETS, SEED, Model, draw
from paper_repro.w19.estimates_simulation import (
    BETAS,
    BINNINGS,
    ECES,
    ESTIMATORS,
    SHARES,
    bins_of,
    ece,
)
from paper_repro.w19.estimates_tables import LABELS, Group

# W19 numbers its figures by estimator, then β, then α in this order.
CONCENTRATIONS = (1.0, 0.1)
DIGITS = 1e-12  # relative differences of means that count as equal


class Panel(NamedTuple):
    """A published panel: the mean of its estimates, and its histogram.

    Attributes:
        mean: mean of the estimates.
        counts: numbers of estimates in the bars, [number of bars].
        edges: the edges of the bars, which belong to the bar on their right, [number of bars + 1].
    """

    mean: float
    counts: np.ndarray
    edges: np.ndarray


@functools.cache
def published() -> dict[tuple[str, float, str, int, float], Panel]:
    """The panels by estimator, a, β, m and π."""
    panels = {}
    for row in published_rows(__file__):
        counts = np.array(row["counts"].split(), int)
        edges = float(row["first edge"]) + float(row["width"]) * np.arange(counts.size + 1)
        panel = Panel(float(row["mean"]), counts, edges.round(12))
        for beta in BETAS if row["β"] == "any" else [row["β"]]:
            cell = float(row["a"]), beta, int(row["m"]), float(row["π"])
            panels[row["estimator"], *cell] = panel
    return panels


def figures() -> Iterator[tuple[int, str, str, float]]:
    """Number, estimator, β and a of Fig. 3 to 34."""
    number = 3
    for estimator in ESTIMATORS:
        for beta in BETAS:
            for a in CONCENTRATIONS:
                yield number, estimator, beta, a
                number += 1


class PanelRow(NamedTuple):
    """The mean of a panel, published and ours, and the estimates that are in other bars."""

    figure: int
    estimator: str
    a: float
    beta: str
    m: int
    share: float
    published: float
    ours: float
    relative: float
    in_other_bars: int


def panel_rows(groups: list[Group]) -> Iterator[PanelRow]:
    """Rows of all panels of the groups, figure by figure."""
    for figure, estimator, beta, a in figures():
        for group in (group for group in groups if group.concentration == a):
            for share in SHARES:
                theirs = published()[estimator, a, beta, group.num_classes, share]
                values = group.of(share, beta, estimator)
                ours = values.mean()
                relative = abs(ours - theirs.mean) / np.abs(values).mean()
                counts = np.histogram(values, np.append(theirs.edges[:-1], np.inf))[0]
                moved = int(np.abs(counts - theirs.counts).sum() + values.size - counts.sum()) // 2
                cell = figure, LABELS[estimator], a, beta, group.num_classes, share
                yield PanelRow(*cell, theirs.mean, ours, relative, moved)


def count_rows(rows: list[PanelRow]) -> Iterator[tuple]:
    """Rows of the estimators, and of all panels: how many are equal, and how far others are off."""
    for label in (*LABELS.values(), "all"):
        chosen = [row for row in rows if label in (row.estimator, "all")]
        relative = np.array([row.relative for row in chosen])
        equal, moved = relative <= DIGITS, [row.in_other_bars for row in chosen]
        others = f"{relative[~equal].max():.1g}" if not equal.all() else None
        largest = relative[equal].max(initial=0)
        yield label, len(chosen), int(equal.sum()), largest, others, moved.count(0), max(moved)


def write_panels(folder: Path, groups: list[Group]) -> None:
    """Tables of all panels, and of how many are equal to the published ones."""
    groups = [group for group in groups if len(group.estimates) == NUM_DATA_SETS]
    if groups:
        rows = list(panel_rows(groups))
        write_table(folder, "panels", rows, note_of(__file__, "panels"))
        write_table(folder, "panel_counts", count_rows(rows), note_of(__file__, "counts"))


def write_check(folder: Path) -> None:
    """The table of one panel of Fig. 3, which takes a second."""
    model = Model(2, 1.0, 0.0, BETAS[0])
    probs, labels = draw(seeded(SEED), model, NUM_DATA_SETS)
    bins = np.asarray(bins_of(probs, BINNINGS[0]))
    ours = np.mean([ece(*sample) for sample in zip(probs, labels, bins, strict=True)])
    theirs = published()[ECES[0], 1.0, BETAS[0], 2, 0.0].mean
    row = theirs, ours, abs(ours / theirs - 1), bool(abs(ours / theirs - 1) <= DIGITS)
    write_table(folder, "check", [row], note_of(__file__, "check"), show=True)
