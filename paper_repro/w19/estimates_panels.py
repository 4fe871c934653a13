"""The 640 panels of W19 Fig. 3 to 34: means and true values of the authors, and ours."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness.command_line import Run
from experiments.harness.tables import note_of, write_table
from paper_repro.w19.estimates_simulation import BANDWIDTHS, BETAS, ECES, ESTIMATORS, SHARES
from paper_repro.w19.estimates_tables import LABELS, Biases, Group, rounded, unbiased
from paper_repro.w19.simulation import CONCENTRATION, NUM_CLASSES

PUBLISHED = ("w19_published", "panel_means.csv")
PUBLISHED_DATA_SETS = 10_000
COLUMNS = {"estimator": str, "alpha_i": float, "only_firstclass": str, "m": int, "pi": float}
VALUES = {"mean": float, "true_value": float}
_KINDS = {"SKCEb": "biased", "SKCEuq": "unbiased", "SKCEul": "block"}
# Our names of the estimators by the authors' ones.
OURS = {"ECE_uniform": "ece_uniform", "ECE_dynamic": "ece_median_variance"} | {
    f"{theirs}_{scale}": f"{ours}_{scale}"
    for theirs, ours in _KINDS.items()
    for scale in BANDWIDTHS
}
# W19 numbers its figures by estimator, then β, then α in this order.
CONCENTRATIONS = (1.0, 0.1)

Panels = Mapping[tuple[str, float, str, int, float], tuple[float, float]]


def figures() -> Iterator[tuple[int, str, str, float]]:
    """Number, estimator, β and a of Fig. 3 to 34."""
    number = 3
    for estimator in ESTIMATORS:
        for beta in BETAS:
            for a in CONCENTRATIONS:
                yield number, estimator, beta, a
                number += 1


def read_panels(run: Run) -> Panels | None:
    """Published mean and true value by estimator, a, β, m and π; None without them.

    Raises:
        DataError: if the file is not as it should be.
    """
    rows = run.published(*PUBLISHED, columns=COLUMNS | VALUES)
    if rows is None:
        return None
    panels = {}
    for row in rows:
        beta = "first" if row["only_firstclass"] == "true" else "uniform"
        cell = float(row["alpha_i"]), beta, int(row["m"]), float(row["pi"])
        panels[OURS[row["estimator"]], *cell] = float(row["mean"]), float(row["true_value"])
    return panels


def biases(published: Panels) -> Biases:
    """Published means minus true values in the models of Fig. 1, by estimator, π and β."""

    def bias(estimator: str, share: float, beta: str) -> float:
        mean, truth = published[estimator, CONCENTRATION, beta, NUM_CLASSES, share]
        return mean - truth

    return bias


class PanelRow(NamedTuple):
    """Mean and true value of a panel, published and ours."""

    figure: int
    estimator: str
    a: float
    beta: str
    m: int
    share: float
    published: float
    ours: float
    error: float
    z: float
    published_truth: float
    truth: float
    truth_error: float | None
    truth_z: float | None


def _panel_row(
    figure: int, group: Group, share: float, beta: str, estimator: str, published: tuple
) -> PanelRow:
    values = group.of(share, beta, estimator)
    theirs, their_truth = published
    variance = values.var(ddof=1)
    error = math.sqrt(variance / values.size + variance / PUBLISHED_DATA_SETS)
    truth = group.true_value(share, beta, estimator)
    truth_error, truth_z = None, None
    if estimator not in ECES:  # the published one is the mean of SKCE_uq
        expected, observed = (
            f(share, beta, unbiased(estimator)).var(ddof=1) for f in (group.expected_of, group.of)
        )
        ours = expected / values.size if share else 0.0
        truth_error = rounded(math.sqrt(ours + observed / PUBLISHED_DATA_SETS))
        truth_z, truth = rounded((truth - their_truth) / truth_error), rounded(truth, 8)
    mean = values.mean()
    cell = figure, LABELS[estimator], group.concentration, beta, group.num_classes, share
    means = theirs, rounded(mean, 8), rounded(error), rounded((mean - theirs) / error)
    truths = their_truth, truth, truth_error, truth_z
    return PanelRow(*cell, *means, *truths)


def panel_rows(groups: list[Group], published: Panels) -> Iterator[PanelRow]:
    """Rows of all panels of the groups, figure by figure."""
    for figure, estimator, beta, a in figures():
        for group in groups:
            for share in SHARES if group.concentration == a else ():
                theirs = published[estimator, a, beta, group.num_classes, share]
                yield _panel_row(figure, group, share, beta, estimator, theirs)


def _count_row(label: str, rows: list[PanelRow]) -> tuple:
    z = np.abs([row.z for row in rows])
    worst = rows[int(z.argmax())]
    truths = [abs(row.truth_z) for row in rows if row.truth_z is not None]
    exact = [abs(row.truth - row.published_truth) for row in rows if row.truth_z is None]
    return (
        label,
        len(rows),
        int(np.sum(z > 2)),
        int(np.sum(z > 3)),
        float(np.sqrt(np.mean(z**2))),
        float(z.max()),
        f"Fig. {worst.figure}, m = {worst.m}, π = {worst.share}",
        max(exact, default=None),
        sum(value > 3 for value in truths) if truths else None,
        max(truths, default=None),
    )


def count_rows(rows: list[PanelRow]) -> Iterator[tuple]:
    """Rows of the estimators, and of all panels."""
    for label in LABELS.values():
        yield _count_row(label, [row for row in rows if row.estimator == label])
    yield _count_row("all", rows)


def write_panels(folder: Path, groups: list[Group], published: Panels) -> None:
    """Tables of all panels, and of how many are how far from the published ones."""
    rows = list(panel_rows(groups, published))
    sizes = {"published": PUBLISHED_DATA_SETS, "ours": len(groups[0].estimates)}
    write_table(folder, "panels", rows, note_of(__file__, "panels", **sizes))
    two, three = (len(rows) * math.erfc(z / math.sqrt(2)) for z in (2, 3))
    note = note_of(__file__, "counts", panels=len(rows), two=two, three=three)
    write_table(folder, "panel_counts", count_rows(rows), note)
