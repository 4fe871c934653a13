"""Tables of L21 §5.2 and 5.4 for image classifiers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import CLIPS, LOCAL

RATIOS = np.logspace(0.1, 2, 39)  # of the costs w / u
# L21 Table 4: PRR, ECE, NLL and Brier score of a ResNet-50 on ImageNet.
IMAGENET = {row.pop("method"): row for row in published_rows(__file__)}


def decision_rows(results: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of Table 4."""
    for name, result in results.items():
        for method, metrics in result["methods"].items():
            row: dict[str, Any] = {"classifier": name, "method": method}
            published = IMAGENET.get(method)
            scores = ("PRR", "ECE", "NLL", "Brier")
            row |= {f"{x}, ImageNet": published and float(published[x]) for x in scores}
            row |= {"PRR": metrics["PRR"], "ECE": metrics["ECE"]}
            row |= {x: metrics[f"class {x}"] for x in ("NLL", "Brier")}
            yield row | {x: metrics[x] for x in ("cost", "gain", "infinite")}


def local_rows(results: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the table of local errors."""
    for name, result in results.items():
        methods = result["methods"]
        for method, metrics in methods.items():
            row: dict[str, Any] = {"classifier": name, "method": method}
            row |= {"accuracy": result["accuracy"], "MCE": metrics["MCE"]}
            for embedding, local in zip(LENGTH_SCALES, LOCAL, strict=True):
                row |= {x: metrics[x] for x in (f"MLCE ({embedding})", f"mean LCE ({embedding})")}
                curve = f"MLCE curve ({embedding})"
                lower = np.sum(np.less(methods[local][curve], metrics[curve]))
                row[f"{local} lower"] = int(lower) if method != local else None
            yield row


def write_tables(folder: Path, results: dict[str, dict[str, Any]]) -> None:
    """Writes the table of decisions and the one of local errors."""
    note = note_of(__file__, "decisions", clip=CLIPS[0])
    write_table(folder, "table_4", decision_rows(results), note)
    write_table(folder, "local_errors", local_rows(results), note_of(__file__, "local"))
