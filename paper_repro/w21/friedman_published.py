"""The authors' own curves of W21 Fig. 12: the paper's claim in them, and ours beside them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import command_line
from experiments.harness.tables import note_of, write_table
from paper_repro.w21.friedman_statistics import STATISTICS
from paper_repro.w21.friedman_tables import (
    CALIBRATION_ERRORS,
    PVALUE,
    Curves,
    Results,
    Statistics,
    comparable,
)

FOLDER = "w21_friedman"
NETWORKS = range(1, 8)  # of ten: the others have no files
COLUMNS = {"iteration": int, "statistic": str, "estimate": float}
UNBIASED = CALIBRATION_ERRORS[0]


def read_curves(run: command_line.Run, splits: tuple[str, ...]) -> tuple[Curves, Curves] | None:
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
            loss = {PVALUE: np.negative, UNBIASED: np.abs}.get(name, np.asarray)
            losses, of_ensemble = loss(mean), loss(values)
            row = {
                "data": split,
                "statistic": name,
                "ensemble better": (of_ensemble < losses).mean(),
            }
            best = {"networks best at": losses.argmin(), "ensemble best at": of_ensemble.argmin()}
            row |= {key: int(iteration) for key, iteration in best.items()}
            rows.append(row | {"ensemble at the end": values[-1], "networks at the end": mean[-1]})
    iterations = len(next(iter(ensemble["train"].values())))
    note = note_of(
        __file__, "note", iterations=iterations, networks=f"{NETWORKS[0]} to {NETWORKS[-1]}"
    )
    write_table(folder, "published_claims", rows, note)


def probability_inside(ours: int, theirs: int) -> float:
    """Probability that the median of some draws of a law lies within the range of other draws.

    Args:
        ours: number of draws that have the median, which is the mean of the middle two if even.
        theirs: number of the others.

    Returns:
        The probability; for an even number, of which the median depends on the law, that of the
        upper one of the middle two, and of the lower one, to be in the range, averaged.
    """
    ranks = ((ours + 1) // 2, ours // 2 + 1)

    def all_above(rank: int) -> float:
        """Probability that all others are above our draw of this rank."""
        return math.comb(ours, rank) / math.comb(ours + theirs, rank) if rank else 1.0

    outside = [all_above(rank) + all_above(ours + 1 - rank) for rank in ranks]
    return 1 - sum(outside) / 2


def _is_inside(values: np.ndarray, networks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether values are below, and above, the range of networks on the last axis."""
    low, high = networks.min(-1), networks.max(-1)
    equal = np.isclose(values, low, rtol=1e-9, atol=0) | np.isclose(values, high, rtol=1e-9, atol=0)
    return (values < low) & ~equal, (values > high) & ~equal


def range_rows(results: Results, others: Statistics, networks: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the table of our median against the authors' range."""
    for split in results.splits:
        for name in STATISTICS:
            ours = results.networks[split][name]
            theirs = comparable(name, networks[split][name][: ours.shape[0]])
            below, above = _is_inside(np.median(ours, 1), theirs)
            inside = ~(below | above)
            medians = np.median(others[split][name], -1)
            seven = ours[results.table_iterations][:, : theirs.shape[1]]
            lower, upper = _is_inside(medians, seven[None])
            late = inside[1501:]
            yield {
                "data": split,
                "statistic": name,
                "inside": inside.mean(),
                "below": below.mean(),
                "above": above.mean(),
                "inside up to 1500": inside[:1501].mean(),
                "inside after 1500": late.mean() if late.size else None,
                "our data sets in range": 1 - np.mean(lower | upper),
            }


def write_ranges(folder: Path, results: Results, others: Statistics, networks: Curves) -> None:
    """Table: how often the median of our networks lies within the range of the authors' networks.

    Args:
        folder: folder of the experiment.
        results: ours in each iteration.
        others: ours on other data sets, by split and name, [data sets, i, networks].
        networks: those of the authors, by split and name, [iterations, networks].
    """
    length, ours = results.networks["train"][PVALUE].shape
    data_sets, reached, per_data_set = others["train"][PVALUE].shape
    note = note_of(
        __file__,
        "ranges",
        ours=ours,
        networks=f"{NETWORKS[0]} to {NETWORKS[-1]}",
        last=length - 1,
        probability=probability_inside(ours, len(NETWORKS)),
        data_sets=data_sets,
        reached=reached,
        per_data_set=per_data_set,
    )
    write_table(folder, "published_ranges", range_rows(results, others, networks), note)


def write_ensembles(folder: Path, results: Results, networks: Curves, ensemble: Curves) -> None:
    """Table: the ensembles at the last iteration, the authors' and ours.

    Args:
        folder: folder of the experiment.
        results: ours in each iteration.
        networks: those of the authors, by split and name, [iterations, networks].
        ensemble: that of the authors, by split and name, [iterations].
    """
    last = results.networks["train"][PVALUE].shape[0] - 1
    rows = []
    for split in results.splits:
        for name in STATISTICS:
            ours = results.ensemble[split][name]
            theirs = comparable(name, networks[split][name][last])
            single = results.networks[split][name][last]
            reference = results.reference[split].get(name)
            rows.append(
                {
                    "data": split,
                    "statistic": name,
                    "published ensemble": float(comparable(name, ensemble[split][name][last])),
                    "our ensemble": float(ours[last]),
                    "ours, skipping": None if reference is None else reference[-1],
                    "published networks, min": theirs.min(),
                    "published networks, max": theirs.max(),
                    "our networks, min": single.min(),
                    "our networks, max": single.max(),
                }
            )
    note = note_of(
        __file__, "ensembles", iteration=last, networks=f"{NETWORKS[0]} to {NETWORKS[-1]}"
    )
    write_table(folder, "published_ensemble", rows, note)
