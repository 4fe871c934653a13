"""Tables of L21 §5.2 and 5.4 for image classifiers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.l21.crime_correlations import (
    PUBLISHED_CORRELATIONS,
    correlations_of,
    label_of,
)
from paper_repro.l21.crime_tables import NLL, Results
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import (
    CLIPS,
    GLOBAL,
    GROUP_WISE,
    LOCAL,
    methods_of,
)

RATIOS = np.logspace(0.1, 2, 39)  # of the costs w / u
# L21 Table 4: PRR, ECE, NLL and Brier score of a ResNet-50 on ImageNet.
IMAGENET = {row.pop("method"): row for row in published_rows(__file__)}


def missing_methods(result: dict[str, Any]) -> list[str]:
    """The methods that have no optimum on the calibration part of a classifier."""
    methods = methods_of(has_groups="groups" in result)
    return [method for method in methods if method not in result["methods"]]


def missing_note(results: dict[str, dict[str, Any]]) -> str:
    """A paragraph that names the methods that were left out; empty if there are none."""
    missing = {name: ", ".join(missing_methods(result)) for name, result in results.items()}
    found = "; ".join(f"{name}: {methods}" for name, methods in missing.items() if methods)
    return f"\nNo optimum on the calibration part, therefore empty: {found}.\n" if found else ""


def decision_rows(results: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of Table 4; what is not known of a method is None."""
    scores = ("PRR", "ECE", "NLL", "Brier")
    for name, result in results.items():
        for method in methods_of(has_groups="groups" in result):
            row: dict[str, Any] = {"classifier": name, "method": method}
            published = IMAGENET.get(method)
            row |= {f"{x}, ImageNet": published and float(published[x]) for x in scores}
            row |= dict.fromkeys((*scores, "cost", "gain", "infinite"))
            metrics = result["methods"].get(method)
            if metrics is not None:
                row |= {x: metrics[x] for x in ("PRR", "ECE", "cost", "gain", "infinite")}
                row["NLL"] = metrics.get("class NLL", metrics[NLL])
                row["Brier"] = metrics.get("class Brier", metrics["Brier"])
            yield row


def local_rows(results: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the table of local errors; what is not known of a method is None."""
    for name, result in results.items():
        methods = result["methods"]
        for method in methods_of(has_groups="groups" in result):
            metrics = methods.get(method)
            row: dict[str, Any] = {"classifier": name, "method": method}
            row |= {"accuracy": result["accuracy"], "MCE": metrics["MCE"] if metrics else None}
            for embedding, local in zip(LENGTH_SCALES, LOCAL, strict=True):
                for column in (f"MLCE ({embedding})", f"mean LCE ({embedding})"):
                    row[column] = metrics[column] if metrics else None
                row[f"{local} lower"] = None
                if metrics and method != local:
                    curve = f"MLCE curve ({embedding})"
                    ours, other = np.array(methods[local][curve]), np.array(metrics[curve])
                    row[f"{local} lower"] = int(np.sum(ours < other))
            yield row


def group_rows(results: list[dict[str, Any]]) -> Iterator[tuple]:
    """Rows of the table of files with groups."""
    together = Results({"files": results})
    for method in (*GLOBAL, *GROUP_WISE, *LOCAL):
        maximum, large = (
            together.mean_and_sd("files", method, quantity)
            for quantity in ("maximum", "large_cells")
        )
        yield (method, *maximum, *large)


class CorrelationRow(NamedTuple):
    """Correlations of a metric with the maximum group-wise MCE."""

    metric: str
    pooled: float
    se: float
    methods: float
    files: float


def file_correlation_rows(results: list[dict[str, Any]]) -> Iterator[CorrelationRow]:
    """Rows of the table of correlations over files with groups."""
    together = Results({"files": results})
    for name in PUBLISHED_CORRELATIONS:
        yield CorrelationRow(label_of(name), *correlations_of(together, "files", name))


def write_tables(folder: Path, results: dict[str, dict[str, Any]]) -> None:
    """Writes the table of decisions and the one of local errors, and that of groups."""
    missing = missing_note(results)
    write_table(
        folder,
        "table_4",
        decision_rows(results),
        note_of(__file__, "decisions", clips_0=CLIPS[0]) + missing,
    )
    write_table(folder, "local_errors", local_rows(results), note_of(__file__, "local") + missing)
    with_groups = [result for result in results.values() if "groups" in result]
    if with_groups:
        note = note_of(
            __file__,
            "groups",
            num=len(with_groups),
            missing=sum(result["groups without temperature"] for result in with_groups),
            of=sum(len(result["groups"]) for result in with_groups),
        )
        note += missing
        names = {"deviation": "sd", "deviation_of_large": "sd"}
        write_table(folder, "groups", group_rows(with_groups), note, names=names)
    complete = [result for result in with_groups if not missing_methods(result)]
    if len(complete) > 1:
        note = (
            "Correlations with the maximum group-wise MCE, as in Table 2 of L21, over the "
            f"{len(complete)} files with groups where no method is left out."
        )
        write_table(folder, "correlations", file_correlation_rows(complete), note)
