"""Tables of W21 App. A.3: networks "published / ours", the ensemble, p-values, claims."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.harness.data_files import DataError
from experiments.harness.tables import note_of, write_table
from paper_repro.w21.friedman_statistics import STATISTICS

LEVEL = 0.05
WIDENING = 2  # standard deviations between data sets on each side of the published range
CALIBRATION_ERRORS = ("SKCE (unbiased)", "SKCE (biased)")
PVALUE = "p-value"
POSITIVE = ("MSE", "pinball", "SKCE (biased)", PVALUE)  # are compared on a logarithmic scale
PUBLISHED_COLUMNS = {"dataset": str, "iteration": int, "statistic": str, "estimate": float}

Statistics = dict[str, dict[str, np.ndarray]]
Curves = Statistics  # at all iterations
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
    return comparable(name, np.array([float(row["estimate"]) for row in rows]))


def comparable(name: str, values: np.ndarray) -> np.ndarray:
    """Published values of a statistic; p-values, count / 1000, as (1 + count) / 1001, as ours."""
    return (1 + np.round(1000 * values)) / 1001 if name == PVALUE else values


class NetworkRow(NamedTuple):
    """Comparison of one statistic; what needs published numbers is None without them.

    Attributes:
        data: "train" or "test".
        statistic: its name.
        iteration: number of the iteration.
        published_min: smallest published value.
        published_max: largest published value.
        spread: standard deviation between our data sets, of logarithms where `scale` says so.
        scale: "log" or "linear".
        mean: ours, a geometric one on a logarithmic scale.
        beyond: distance of the mean from the published range, in standard errors of the mean.
        low: lower bound of the widened range.
        high: upper bound.
        mean_inside: of the widened range, "yes" or "no".
        median: ours.
        median_inside: "yes" or "no".
        share_inside: of our networks on other data sets.
        figures_inside: number of networks of the figures.
        rank: of the published mean among ours.
    """

    data: str
    statistic: str
    iteration: int
    published_min: float | None
    published_max: float | None
    scale: str
    spread: float
    mean: float
    beyond: float | None
    low: float | None
    high: float | None
    mean_inside: str | None
    median: float
    median_inside: str | None
    share_inside: float | None
    figures_inside: int | None
    rank: float | None


def network_row(
    place: tuple[str, str, int],
    published: np.ndarray | None,
    others: np.ndarray,
    networks: np.ndarray,
) -> NetworkRow:
    """Comparison of one statistic.

    Args:
        place: data, statistic and iteration.
        published: values of the published networks, or None.
        others: values of networks on other data sets, [data sets, networks].
        networks: values of the networks of the figures.
    """
    is_positive = place[1] in POSITIVE
    there, back = (np.log, np.exp) if is_positive else (np.asarray, np.asarray)
    ours = there(others)
    spread = float(ours[:, 0].std(ddof=1))
    means = ours.mean(1)
    row = NetworkRow(
        **dict.fromkeys(NetworkRow._fields)
        | dict(zip(("data", "statistic", "iteration"), place, strict=True))
        | {"scale": "log" if is_positive else "linear", "spread": spread}
        | {"mean": float(back(means.mean())), "median": float(np.median(others))}
    )
    if published is None:
        return row
    bounds = there(published)
    error = means.std(ddof=1) / np.sqrt(means.size)
    outside = max(bounds.min() - means.mean(), means.mean() - bounds.max(), 0.0)
    low = float(back(bounds.min() - WIDENING * spread))
    high = float(back(bounds.max() + WIDENING * spread))

    def inside(values: Any) -> np.ndarray:
        values = np.asarray(values)
        is_on_bound = np.isclose(values, low, atol=0) | np.isclose(values, high, atol=0)
        return ((low < values) & (values < high)) | is_on_bound

    return row._replace(
        published_min=float(published.min()),
        published_max=float(published.max()),
        beyond=float(outside / error) if outside else 0.0,
        low=low,
        high=high,
        mean_inside="yes" if inside(row.mean) else "no",
        median_inside="yes" if inside(row.median) else "no",
        share_inside=float(inside(others).mean()),
        figures_inside=int(inside(networks).sum()),
        rank=_rank(float(there(published).mean()), means),
    )


def _rank(value: float, others: np.ndarray) -> float:
    """Number of others that are smaller; of those that are equal up to rounding, half."""
    is_tie = np.isclose(others, value, atol=0)
    return float(np.sum((others < value) & ~is_tie) + 0.5 * np.sum(is_tie))


def network_rows(results: Results, others: Statistics, published: Published) -> list[NetworkRow]:
    """Rows of the table of single networks."""
    rows = []
    for split in results.splits:
        for name in STATISTICS:
            for i, iteration in enumerate(results.table_iterations):
                values = _published_values(published, split, iteration, name)
                ours = others[split][name][:, i], results.networks[split][name][iteration]
                rows.append(network_row((split, name, iteration), values, *ours))
    return rows


def verdict(rows: list[NetworkRow], data_sets: int) -> str:
    """How many rows of the table of single networks agree with the published numbers."""
    rows = [row for row in rows if row.mean_inside is not None]
    if not rows:
        return "No published numbers were given (--data), so nothing is compared."
    beyond = np.array([row.beyond for row in rows])
    widened = np.array([row.mean_inside == "yes" for row in rows])
    share = np.mean([row.share_inside for row in rows])
    ends = sum(row.rank in (0, data_sets) for row in rows)
    return (
        f"Of {len(rows)} rows, our mean is in the published range in {sum(beyond == 0)}, and in it "
        f"or within 3 standard errors of it in {sum(beyond <= 3)}. It is in the widened range in "
        f"{sum(widened)}, and {share:.1%} of the single values are: a weak test where that range "
        f"is wide. The published mean is beyond all of ours in {ends} rows; "
        f"{2 * len(rows) / (data_sets + 1):.0f} are expected if paper and ours are alike, but the "
        "rows are far from independent. The standard errors are those of our mean alone: that the "
        "published networks share one data set is only in the widened range."
    )


def ensemble_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Rows of the table of the ensemble."""
    for split in results.splits:
        networks, ensemble = results.networks[split], results.ensemble[split]
        for i, iteration in enumerate(results.table_iterations):
            row: dict[str, Any] = {"data": split, "iteration": iteration}
            for name in STATISTICS[:-1]:
                row[f"{name}, mean"] = float(networks[name][iteration].mean())
                row[f"{name}, ensemble"] = float(ensemble[name][iteration])
                if name in CALIBRATION_ERRORS:
                    row[f"{name}, skipping"] = results.reference[split][name][i]
            yield row


def pvalue_rows(results: Results) -> Iterator[tuple]:
    """Rows of the table of p-values."""
    for split in results.splits:
        exact = results.exact[split]
        for i, iteration in enumerate(results.table_iterations):
            found = []
            for networks in (results.networks[split][PVALUE][iteration], exact["networks"][i]):
                found += [float(np.mean(networks)), int(np.sum(np.asarray(networks) <= LEVEL))]
            ensemble = float(results.ensemble[split][PVALUE][iteration]), exact["ensemble"][i]
            yield (split, iteration, *found, *ensemble)


def claim_rows(results: Results) -> Iterator[tuple]:
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
            yield (split, name, int(mean.argmin()), int(ensemble.argmin()), *shares)


def write_tables(folder: Path, results: Results, others: Statistics, published: Published) -> None:
    """Writes all tables."""
    rows = network_rows(results, others, published)
    data_sets, networks = others["train"]["NLL"].shape[::2]
    note = note_of(__file__, "networks", widening=WIDENING, networks=networks, data_sets=data_sets)
    note += f"\n{verdict(rows, data_sets)}"
    write_table(folder, "networks", rows, note)
    names = {f"{x}, {column}": column for x in STATISTICS for column in ("ensemble", "skipping")}
    write_table(
        folder, "ensemble", ensemble_rows(results), note_of(__file__, "ensemble"), names=names
    )
    write_table(folder, "pvalues", pvalue_rows(results), note_of(__file__, "pvalues"))
    write_table(folder, "claims", claim_rows(results), note_of(__file__, "claims"))
