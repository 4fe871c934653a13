"""W21 Fig. 12 on the authors' own files: is the ensemble better than the mean of its networks?"""

from pathlib import Path

import numpy as np

from experiments.harness import command_line
from experiments.harness.tables import write_table
from paper_repro.w21.friedman_statistics import STATISTICS
from paper_repro.w21.friedman_tables import CALIBRATION_ERRORS, PVALUE, Statistics

FOLDER = "w21_friedman"
NETWORKS = range(1, 8)  # of ten: the others have no files
COLUMNS = {"iteration": int, "statistic": str, "estimate": float}
UNBIASED = CALIBRATION_ERRORS[0]
NOTE = """
The authors' files: their ensemble of ten networks beside the mean of networks {networks}, which are
the ones with files. "ensemble better" is the share of all {iterations} iterations at which the
ensemble has the smaller value, the smaller absolute value of the unbiased SKCE, or the larger
p-value; equal values are not better. The SKCE and the p-values of the ensemble contain the error
of CalibrationErrors.jl, see the differences.
"""


def read_curves(
    run: command_line.Run, splits: tuple[str, ...]
) -> tuple[Statistics, Statistics] | None:
    """Statistics of the authors' networks, [iterations, 7], and of their ensemble, [iterations].

    Returns:
        Both by split and name; None without data.
    """
    networks: Statistics = {}
    ensemble: Statistics = {}
    for split in splits:
        sources = ["ensembles", *(f"id={i}" for i in NETWORKS)]
        curves = []
        for source in sources:
            rows = run.published(
                FOLDER, f"statistics_{source}_dataset={split}.csv", columns=COLUMNS
            )
            if rows is None:
                return None
            found: dict[str, list[float]] = {name: [] for name in STATISTICS}
            for row in rows:
                found[row["statistic"]].append(float(row["estimate"]))
            curves.append({name: np.array(values) for name, values in found.items()})
        ensemble[split], *others = curves
        networks[split] = {name: np.stack([x[name] for x in others], 1) for name in STATISTICS}
    return networks, ensemble


def write_published(folder: Path, networks: Statistics, ensemble: Statistics) -> None:
    """Table of the authors' claim that ensembles are consistently better."""
    rows = []
    for split, curves in ensemble.items():
        for name, values in curves.items():
            mean = networks[split][name].mean(1)
            if name == PVALUE:
                is_better = values > mean
            elif name == UNBIASED:
                is_better = abs(values) < abs(mean)
            else:
                is_better = values < mean
            row = {"data": split, "statistic": name, "ensemble better": is_better.mean()}
            rows.append(row | {"ensemble at the end": values[-1], "networks at the end": mean[-1]})
    iterations = len(next(iter(ensemble["train"].values())))
    note = NOTE.format(iterations=iterations, networks=f"{NETWORKS[0]} to {NETWORKS[-1]}")
    write_table(folder, "published_claims", rows, note)
