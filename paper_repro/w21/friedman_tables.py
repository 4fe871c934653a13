"""Tables of W21 App. A.3: networks "published / ours", the ensemble, p-values, claims."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.data_files import DataError
from experiments.harness.tables import write_table
from paper_repro.w21.friedman_statistics import STATISTICS

LEVEL = 0.05
WIDENING = 2  # standard deviations between data sets on each side of the published range
CALIBRATION_ERRORS = ("SKCE (unbiased)", "SKCE (biased)")
PVALUE = "p-value"
PUBLISHED_COLUMNS = {"dataset": str, "iteration": int, "statistic": str, "estimate": float}

Statistics = dict[str, dict[str, np.ndarray]]
Published = list[dict[str, str]] | None


@dataclasses.dataclass(frozen=True)
class Results:
    """What the networks and their ensemble were found to be.

    Attributes:
        table_iterations: iterations of the published table.
        networks: statistics by split and name, [iterations, networks].
        ensemble: statistics by split and name, [iterations].
        exact: p-values of the exact test at the table's iterations i, by split: `networks`
            [i][networks] and `ensemble` [i].
        reference: SKCE of the ensemble with the error of the reference package at the table's
            iterations, by split and name, [i].
    """

    table_iterations: list[int]
    networks: Statistics
    ensemble: Statistics
    exact: dict[str, dict[str, Any]]
    reference: dict[str, dict[str, Any]]

    @property
    def splits(self) -> list[str]:
        """Names of the two parts of the data, "train" and "test"."""
        return list(self.networks)


NETWORKS_NOTE = f"""
Statistics of single networks. Published: the range of three networks that were trained on one data
set. Low and high widen it by {WIDENING} standard deviations (sd) between data sets. Ours:
{{networks}} networks on each of {{data_sets}} data sets of their own. sd is that of the first
networks of the data sets; mean, median and share inside are those of all networks, and "figures
inside" counts those of the figures, which share one more data set. About nine in ten single
networks are expected inside, since both sides vary. "rank" is the number of our data sets whose
mean is below that of the published networks (ties count half): if data and networks of the paper
are like ours, all ranks from 0 to {{data_sets}} are equally probable.

Bounds and mean were chosen before any comparison, the median was added after it: at iteration 0
the NLL is that of a random standard deviation, and in the end the standard deviations collapse, so
that the NLL of the test data has heavy tails and its mean says little. Published p-values,
count / 1000, are shown as (1 + count) / 1001, as ours are.
"""

ENSEMBLE_NOTE = """
"mean" is that of the networks, "ensemble" the mixture of them with equal weights. "skipping" is the
SKCE of the ensemble without the pairs (i ≥ 2, 1) of components (pairs of samples in the order of
later and earlier one), which CalibrationErrors.jl skips by mistake: the published figures of the
ensemble are of this quantity, and ours must differ from them. It is not an estimate of the SKCE.
"""

PVALUES_NOTE = """
p-values of the bootstrap test of the paper and of the exact test, which redraws the targets from
the predictions: means over the networks, number of networks with p ≤ 0.05, and the ensemble.
On the training samples no test is valid, since the networks were fitted to them.
"""

CLAIMS_NOTE = """
W21: "all estimates indicate consistently that the models are overfit after 1500 training
iterations" (§5.2; "around 1000", App. A.3) and "apart from the unbiased estimates of the SKCE, the
estimates of the ensembles are consistently better than the average estimates of the ensemble
members". Best iteration: where the mean over the networks, or the ensemble, is smallest (p-value:
largest). Ensemble better: share of all iterations, and of those up to and after 1500, at which the
ensemble has a smaller value (p-value: larger) than the mean of the networks. Of the unbiased SKCE
zero is the best value; it is compared here by its size.
"""


def _rows_at(
    published: list[dict[str, str]], split: str, iteration: int, name: str
) -> list[dict[str, str]]:
    """Rows of the published networks at one place."""
    place = split, str(iteration), name
    columns = ("dataset", "iteration", "statistic")
    return [row for row in published if tuple(row[c] for c in columns) == place]


def check_published(published: Published, splits: Sequence[str], iterations: list[int]) -> None:
    """Raises a DataError where the published table lacks what ours is compared with."""
    for place in itertools.product(splits, iterations, STATISTICS) if published else ():
        if not _rows_at(published, *place):
            expected = "--data: expected rows of all statistics in w21_friedman/statistics.csv"
            raise DataError(f"{expected}, got none of {', '.join(map(str, place))}")


def _published_values(
    published: Published, split: str, iteration: int, name: str
) -> np.ndarray | None:
    """Values of the published networks at one place."""
    if published is None:
        return None
    rows = _rows_at(published, split, iteration, name)
    values = np.array([float(row["estimate"]) for row in rows])
    return (1 + np.round(1000 * values)) / 1001 if name == PVALUE else values


def network_row(
    published: np.ndarray | None, others: np.ndarray, networks: np.ndarray
) -> list[Any]:
    """Comparison of one statistic.

    Args:
        published: values of the published networks, or None.
        others: values of networks on other data sets, [data sets, networks].
        networks: values of the networks of the figures.

    Returns:
        The columns of the table: published minimum and maximum, sd, low, high, mean, whether it
        is inside, median, whether it is inside, share inside, networks of the figures inside, rank.
    """
    spread = float(others[:, 0].std(ddof=1))
    mean, median = float(others.mean()), float(np.median(others))
    if published is None:
        return [None, None, spread, None, None, mean, None, median, None, None, None, None]
    low = float(published.min()) - WIDENING * spread
    high = float(published.max()) + WIDENING * spread

    def inside(values: Any) -> np.ndarray:
        values = np.asarray(values)
        is_on_bound = np.isclose(values, low, atol=0) | np.isclose(values, high, atol=0)
        return ((low < values) & (values < high)) | is_on_bound

    return [
        float(published.min()),
        float(published.max()),
        spread,
        low,
        high,
        mean,
        "yes" if inside(mean) else "no",
        median,
        "yes" if inside(median) else "no",
        float(inside(others).mean()),
        int(inside(networks).sum()),
        _rank(float(published.mean()), others.mean(1)),
    ]


def _rank(value: float, others: np.ndarray) -> float:
    """Number of others that are smaller; of those that are equal up to rounding, half."""
    is_tie = np.isclose(others, value, atol=0)
    return float(np.sum((others < value) & ~is_tie) + 0.5 * np.sum(is_tie))


def network_rows(results: Results, others: Statistics, published: Published) -> list[list[Any]]:
    """Rows of the table of single networks."""
    rows = []
    for split in results.splits:
        for name in STATISTICS:
            for i, iteration in enumerate(results.table_iterations):
                values = _published_values(published, split, iteration, name)
                ours = others[split][name][:, i], results.networks[split][name][iteration]
                rows.append([split, name, iteration, *network_row(values, *ours)])
    return rows


def verdict(rows: list[list[Any]], data_sets: int) -> str:
    """How many rows of the table of single networks agree with the published numbers."""
    rows = [row for row in rows if row[9] is not None]
    if not rows:
        return "No published numbers were given (--data), so nothing is compared."
    means, medians = ([row[column] == "yes" for row in rows] for column in (9, 11))
    ends = sum(row[14] in (0, data_sets) for row in rows)
    outside = [f"{row[1]} ({row[0]}, {row[2]})" for row in rows if "no" in (row[9], row[11])]
    return (
        f"Of {len(rows)} rows, the mean is inside in {sum(means)}, the median in {sum(medians)}, "
        f"and {np.mean([row[12] for row in rows]):.1%} of the single values are; outside are mean "
        f"or median of {', '.join(outside) or 'none'}. The published mean is beyond all of ours in "
        f"{ends} rows; {2 * len(rows) / (data_sets + 1):.0f} are expected if paper and ours are "
        "alike, but the rows are far from independent."
    )


def ensemble_rows(results: Results) -> Iterator[list[Any]]:
    """Rows of the table of the ensemble."""
    for split in results.splits:
        networks, ensemble = results.networks[split], results.ensemble[split]
        for i, iteration in enumerate(results.table_iterations):
            row = [split, iteration]
            for name in STATISTICS:
                if name == PVALUE:
                    continue
                row += [float(networks[name][iteration].mean()), float(ensemble[name][iteration])]
                if name in CALIBRATION_ERRORS:
                    row.append(results.reference[split][name][i])
            yield row


def pvalue_rows(results: Results) -> Iterator[list[Any]]:
    """Rows of the table of p-values."""
    for split in results.splits:
        exact = results.exact[split]
        for i, iteration in enumerate(results.table_iterations):
            row = [split, iteration]
            for networks in (results.networks[split][PVALUE][iteration], exact["networks"][i]):
                row += [float(np.mean(networks)), int(np.sum(np.asarray(networks) <= LEVEL))]
            row += [float(results.ensemble[split][PVALUE][iteration]), exact["ensemble"][i]]
            yield row


def claim_rows(results: Results) -> Iterator[list[Any]]:
    """Rows of the table of claims."""
    for split in results.splits:
        for name in STATISTICS:
            mean = results.networks[split][name].mean(1)
            ensemble = results.ensemble[split][name]
            if name == PVALUE:
                mean, ensemble = -mean, -ensemble
            elif name == "SKCE (unbiased)":
                mean, ensemble = np.abs(mean), np.abs(ensemble)
            is_better = ensemble < mean
            early, late = is_better[:1501], is_better[1501:]
            shares = [float(x.mean()) if x.size else None for x in (is_better, early, late)]
            yield [split, name, int(mean.argmin()), int(ensemble.argmin()), *shares]


def write_tables(folder: Path, results: Results, others: Statistics, published: Published) -> None:
    """Writes all tables."""
    rows = network_rows(results, others, published)
    data_sets, networks = others["train"]["NLL"].shape[::2]
    note = NETWORKS_NOTE.format(networks=networks, data_sets=data_sets)
    header = ["data", "statistic", "iteration", "published min", "published max", "sd"]
    header += ["low", "high", "mean, ours", "inside", "median, ours", "inside"]
    header += ["share inside", "figures inside", "rank"]
    write_table(folder, "networks", header, rows, f"{note}\n{verdict(rows, data_sets)}")
    header = ["data", "iteration"]
    for name in STATISTICS[:-1]:
        header += [f"{name}, mean", "ensemble"] + ["skipping"] * (name in CALIBRATION_ERRORS)
    write_table(folder, "ensemble", header, ensemble_rows(results), ENSEMBLE_NOTE)
    header = ["data", "iteration"]
    for test in ("bootstrap", "exact"):
        header += [f"{test}, mean p", "p ≤ 0.05"]
    header += ["ensemble, bootstrap p", "exact p"]
    write_table(folder, "pvalues", header, pvalue_rows(results), PVALUES_NOTE)
    header = ["data", "statistic", "best iteration, mean", "best iteration, ensemble"]
    header += ["ensemble better", "up to 1500", "after 1500"]
    write_table(folder, "claims", header, claim_rows(results), CLAIMS_NOTE)
