"""Tables of W21 App. A.3: statistics beside the published ones, p-values, claims."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.tables import note_of, write_table
from paper_repro.w21.friedman_networks import NUM_NETWORKS
from paper_repro.w21.friedman_published import Curves, committed_curves
from paper_repro.w21.friedman_statistics import PVALUE, STATISTICS, UNBIASED, as_published

LEVEL = 0.05
TOLERANCE = 1e-8
PERIODS = ((0, 1000), (1001, 2000), (2001, 3000), (3001, 5000))


def _as_published(curves: Curves, split: str, name: str) -> np.ndarray:
    """A statistic of our ensemble, with the error of the authors' software where it has one."""
    values = curves.ensemble[split]
    return values.get(as_published(name), values[name])


def common(ours: Curves, published: Curves) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Iterations that both have, and their places in ours and in the published ones."""
    return np.intersect1d(ours.iterations, published.iterations, return_indices=True)


def network_rows(ours: Curves, published: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the table of single networks."""
    iterations, here, there = common(ours, published)
    for split, statistics in published.networks.items():
        for name in STATISTICS:
            a = ours.networks[split][name][here]
            b = statistics[name][there][:, : a.shape[1]]
            for i, values, theirs in zip(iterations, a, b, strict=True):
                row = {"data": split, "statistic": name, "iteration": int(i)}
                for kind, function in (("mean", np.mean), ("min", np.min), ("max", np.max)):
                    row[kind] = function(values)
                    row[f"published {kind}"] = function(theirs)
                yield row | {"largest difference": np.abs(values - theirs).max()}


def ensemble_rows(ours: Curves, published: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the table of the ensemble."""
    iterations, here, there = common(ours, published)
    for split in published.ensemble:
        for name in STATISTICS:
            wrong = _as_published(ours, split, name)
            for i, a, b in zip(iterations, here, there, strict=True):
                row = {"data": split, "statistic": name, "iteration": int(i)}
                row["networks, mean"] = ours.networks[split][name][a].mean()
                row["ensemble"] = ours.ensemble[split][name][a]
                row["as published"] = wrong[a]
                theirs = published.ensemble[split][name][b]
                is_same = ours.networks[split][name].shape[1] == NUM_NETWORKS
                row["published"] = theirs if is_same else None
                yield row | {"difference": abs(wrong[a] - theirs) if is_same else None}


def agreement_rows(ours: Curves, published: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the table of the largest differences from the published numbers."""
    iterations, here, there = common(ours, published)
    for split in published.networks:
        for name in STATISTICS:
            a = ours.networks[split][name][here]
            differences = {"networks": a - published.networks[split][name][there][:, : a.shape[1]]}
            if a.shape[1] == NUM_NETWORKS:
                wrong = _as_published(ours, split, name)[here]
                differences["ensemble"] = (wrong - published.ensemble[split][name][there])[:, None]
            for kind, difference in differences.items():
                size = np.abs(difference).max(1)
                row: dict[str, Any] = {"data": split, "statistic": name, "of": kind}
                for first, last in PERIODS:
                    part = size[(first <= iterations) & (iterations <= last)]
                    row[f"{first} to {last}"] = part.max() if part.size else None
                beyond = iterations[size > TOLERANCE]
                yield row | {"first above 1e-8": int(beyond[0]) if beyond.size else None}


def pvalue_rows(ours: Curves, exact: np.ndarray, table: np.ndarray) -> Iterator[dict[str, Any]]:
    """Rows of the table of p-values on the test data."""
    bootstrap = ours.networks["test"][PVALUE]
    for i, iteration in enumerate(table):
        place = int(np.searchsorted(ours.iterations, iteration))
        row: dict[str, Any] = {"iteration": int(iteration)}
        for kind, values in (("bootstrap", bootstrap[place]), ("exact", exact[i, :-1])):
            row[f"{kind}, mean p"] = values.mean()
            row[f"{kind}, p ≤ {LEVEL}"] = int(np.sum(values <= LEVEL))
        row["ensemble, bootstrap p"] = ours.ensemble["test"][PVALUE][place]
        row["as published"] = _as_published(ours, "test", PVALUE)[place]
        yield row | {"ensemble, exact p": exact[i, -1]}


def _at_ours(published: Curves, ours: Curves) -> Curves:
    """The published statistics at the iterations that ours have, too."""
    iterations, _, there = common(ours, published)
    parts = (
        {split: {name: v[there] for name, v in x.items()} for split, x in part.items()}
        for part in published[1:]
    )
    return Curves(iterations, *parts)


def claim_rows(source: str, curves: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the table of claims, of our numbers or of the published ones."""
    for split in curves.networks:
        for name in STATISTICS:
            mean = curves.networks[split][name].mean(1)
            ensemble = curves.ensemble[split][name]
            loss = {PVALUE: np.negative, UNBIASED: np.abs}.get(name, np.asarray)
            is_better = loss(ensemble) < loss(mean)
            early = curves.iterations <= 1500
            row = {"numbers": source, "data": split, "statistic": name}
            row["networks best at"] = int(curves.iterations[loss(mean).argmin()])
            row["ensemble best at"] = int(curves.iterations[loss(ensemble).argmin()])
            row["ensemble better"] = is_better.mean()
            row["up to 1500"] = is_better[early].mean()
            yield row | {"after 1500": is_better[~early].mean() if not early.all() else None}


def write_tables(folder: Path, ours: Curves, exact: np.ndarray, published: Curves) -> None:
    """Writes all tables.

    Args:
        folder: folder of the experiment.
        ours: statistics at all evaluated iterations.
        exact: p-values of the exact test on the test data, [i, networks and ensemble].
        published: those of the authors.
    """
    chosen = committed_curves()
    tables = {
        "networks": network_rows(ours, chosen),
        "ensemble": ensemble_rows(ours, chosen),
        "agreement": agreement_rows(ours, published),
        "pvalues": pvalue_rows(ours, exact, common(ours, chosen)[0]),
        "claims": itertools.chain(
            claim_rows("ours", ours), claim_rows("published", _at_ours(published, ours))
        ),
    }
    networks = ours.networks["train"][PVALUE].shape[1]
    numbers = {"networks": networks, "compared": len(common(ours, published)[0])}
    numbers |= {"evaluated": len(ours.iterations), "last": ours.iterations[-1]}
    for name, rows in tables.items():
        write_table(folder, name, rows, note_of(__file__, name, **numbers))
