"""Correlations of the maximum group-wise MCE with other metrics (L21 Table 2), and the claim."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats  # comes with scikit-learn

from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.l21.crime_tables import LEVEL, NLL, VERDICTS, Results
from paper_repro.l21.methods import GLOBAL, LOCAL

# L21 Table 2, setting 1.
PUBLISHED_CORRELATIONS = {
    row["metric"]: float(row["correlation"]) for row in published_rows(__file__)
}


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson correlation of the entries, NaN if some do not vary."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x.ravel(), y.ravel())[0, 1])


def correlation_of_means(x: np.ndarray, y: np.ndarray) -> float:
    """Correlation of the means over the seeds, of arrays [methods, seeds]."""
    return correlation(x.mean(1), y.mean(1))


def correlation_within(x: np.ndarray, y: np.ndarray) -> float:
    """Correlation over the seeds, mean over the methods that vary, of arrays [methods, seeds]."""
    within = np.array([*map(correlation, x, y)])
    within = within[np.isfinite(within)]
    return float(within.mean()) if len(within) else float("nan")


CORRELATIONS = {
    "pooled": correlation,
    "methods": correlation_of_means,
    "networks": correlation_within,
}


def jackknife_error(statistic: Callable[..., float], *arrays: np.ndarray) -> float:
    """Standard error of a function of arrays [methods, seeds], over the seeds."""
    seeds = np.arange(arrays[0].shape[1])
    without = [statistic(*(x[:, seeds != i] for x in arrays)) for i in seeds]
    return float(np.std(without) * np.sqrt(len(seeds) - 1))


class Correlations(NamedTuple):
    """The kinds of correlation, the first of them with its standard error."""

    pooled: float
    error: float
    methods: float
    networks: float


def correlations_of(results: Results, variant: str, name: str) -> Correlations:
    """Correlations of a metric with the maximum group-wise MCE."""
    arrays = _of_methods(results, variant, name), _of_methods(results, variant, "maximum")
    pooled, methods, networks = (statistic(*arrays) for statistic in CORRELATIONS.values())
    return Correlations(pooled, jackknife_error(correlation, *arrays), methods, networks)


def label_of(name: str) -> str:
    """Name of a metric in the tables."""
    return "NLL" if name == NLL else name


def correlation_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Rows of Table 2."""
    for name, published in PUBLISHED_CORRELATIONS.items():
        row: dict[str, Any] = {"metric": label_of(name), "published": published}
        for variant in results.variants:
            found = correlations_of(results, variant, name)
            columns = ("pooled", "se", "methods", "networks")
            row |= {f"{variant}: {x}": y for x, y in zip(columns, found, strict=True)}
        yield row


def _of_methods(results: Results, variant: str, name: str) -> np.ndarray:
    """One quantity of the methods of Table 3, [methods, seeds]."""
    return np.array([results.values(variant, method, name) for method in (*GLOBAL, *LOCAL)])


class Difference(NamedTuple):
    """Difference of two correlations, its standard error, and the verdict on its sign."""

    value: float
    error: float
    verdict: str


def correlation_differences(
    local: np.ndarray, other: np.ndarray, maximum: np.ndarray, pairs: int
) -> dict[str, Difference]:
    """Differences of two correlations with the maximum, by kind."""
    result = {}
    for kind, statistic in CORRELATIONS.items():

        def difference(
            x: np.ndarray, y: np.ndarray, z: np.ndarray, statistic: Callable[..., float] = statistic
        ) -> float:
            return statistic(x, z) - statistic(y, z)

        found = difference(local, other, maximum)
        error = jackknife_error(difference, local, other, maximum)
        pvalue = 2 * scipy.stats.t.sf(abs(found), maximum.shape[1] - 1, scale=error)
        is_clear = pairs * pvalue <= LEVEL
        verdict = ("confirmed" if found > 0 else "refuted") if is_clear else "undecided"
        result[kind] = Difference(found, error, verdict)
    return result


def difference_rows(results: Results) -> list[dict[str, Any]]:
    """Rows of the table of differences of correlations, MLCE minus global metrics."""
    local = [name for name in PUBLISHED_CORRELATIONS if name.startswith("MLCE")]
    other = [name for name in PUBLISHED_CORRELATIONS if name not in local]
    pairs = list(itertools.product(local, other))
    rows = []
    for variant, (one, two) in itertools.product(results.variants, pairs):
        arrays = (_of_methods(results, variant, name) for name in (one, two, "maximum"))
        published = PUBLISHED_CORRELATIONS[one] - PUBLISHED_CORRELATIONS[two]
        row: dict[str, Any] = {"variant": variant, "MLCE": one, "other": label_of(two)}
        row["published"] = round(published, 3)
        for kind, found in correlation_differences(*arrays, len(pairs)).items():
            row |= {kind: found.value, f"{kind}: se": found.error}
            row[f"{kind}: verdict"] = found.verdict
        rows.append(row)
    return rows


def write_tables(folder: Path, results: Results) -> None:
    """Writes Table 2, and the differences of its correlations."""
    seeds = len(next(iter(results.variants.values())))
    note = note_of(__file__, "correlations", seeds=seeds)
    write_table(folder, "table_2", correlation_rows(results), note)
    _write_differences(folder, results, seeds)


def _write_differences(folder: Path, results: Results, seeds: int) -> None:
    """The differences of the correlations of Table 2, and how many have which verdict."""
    rows = difference_rows(results)
    pairs, df = len(rows) // len(results.variants), seeds - 1
    bound = scipy.stats.t.isf(LEVEL / (2 * pairs), df)
    lines = []
    for variant in results.variants:
        for kind in CORRELATIONS:
            chosen = [row for row in rows if row["variant"] == variant]
            found = {}
            for verdict in VERDICTS:
                others = [x["other"] for x in chosen if x[f"{kind}: verdict"] == verdict]
                against = f" (against {', '.join(dict.fromkeys(others))})" if others else ""
                found[verdict] = f"{len(others)} {verdict}{against}"
            lines.append(f"- {variant}, {kind}, {pairs} pairs: {', '.join(found.values())}")
    note = note_of(
        __file__, "differences", seeds=seeds, df=df, pairs=pairs, level=LEVEL, bound=bound
    )
    note += "\n" + "\n".join(lines)
    write_table(folder, "table_2_differences", rows, note)
