"""The authors' statistics of W21 Fig. 3 and 12, and ours in the same form."""

from typing import NamedTuple

import numpy as np

from experiments.harness import command_line
from experiments.harness.data_files import DataError
from experiments.harness.tables import published_rows
from paper_repro.w21.friedman_networks import NUM_NETWORKS, NUM_SAMPLES
from paper_repro.w21.friedman_statistics import STATISTICS

FOLDER = "w21_friedman"
LENGTH = 5001  # iterations in each file
COLUMNS = {"iteration": int, "statistic": str, "estimate": float}
NETWORKS = [str(i) for i in range(1, NUM_NETWORKS + 1)]

Statistics = dict[str, dict[str, np.ndarray]]  # by data set and name


class Curves(NamedTuple):
    """Statistics at some iterations of training, in increasing order.

    Attributes:
        iterations: the iterations, [i].
        networks: of single networks, by data set and name, [i, networks].
        ensemble: of the ensemble, by data set and name, [i].
    """

    iterations: np.ndarray
    networks: Statistics
    ensemble: Statistics


def committed_curves() -> Curves:
    """The published numbers that are in the repository: those of the tables' iterations."""
    rows = published_rows(__file__)
    networks: Statistics = {split: {} for split in NUM_SAMPLES}
    ensemble: Statistics = {split: {} for split in NUM_SAMPLES}
    for split in NUM_SAMPLES:
        for name in STATISTICS:
            chosen = [row for row in rows if (row["data"], row["statistic"]) == (split, name)]
            values = [[float(row[column]) for column in NETWORKS] for row in chosen]
            networks[split][name] = np.array(values)
            ensemble[split][name] = np.array([float(row["ensemble"]) for row in chosen])
    iterations = sorted({int(row["iteration"]) for row in rows})
    return Curves(np.array(iterations), networks, ensemble)


def read_curves(run: command_line.Run) -> Curves:
    """The authors' files in --data, with all iterations; without them `committed_curves`."""
    if run.data is None or not (run.data / FOLDER).is_dir():
        return committed_curves()

    def read(source: str, split: str) -> dict[str, np.ndarray]:
        file = f"statistics_{source}_dataset={split}.csv"
        curves: dict[str, list[float]] = {name: [] for name in STATISTICS}
        for row in run.published(FOLDER, file, columns=COLUMNS) or ():
            curves.setdefault(row["statistic"], []).append(float(row["estimate"]))
        for name in STATISTICS:
            if len(curves[name]) != LENGTH:
                expected = f"--data: expected {LENGTH} rows of {name} in {FOLDER}/{file}"
                raise DataError(f"{expected}, got {len(curves[name])}")
        return {name: np.array(values) for name, values in curves.items()}

    ensemble = {split: read("ensembles", split) for split in NUM_SAMPLES}
    networks: Statistics = {}
    for split in NUM_SAMPLES:
        curves = [read(f"id={i}", split) for i in NETWORKS]
        networks[split] = {name: np.stack([x[name] for x in curves], 1) for name in STATISTICS}
    return Curves(np.arange(LENGTH), networks, ensemble)
