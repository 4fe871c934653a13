"""What L21 says of LoRe, on each classifier: §5.2, §5.4 and App. B in numbers of classifiers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.tables import note_of, write_table
from paper_repro.l21.embeddings import LENGTH_SCALES
from paper_repro.l21.methods import GLOBAL, LOCAL, ORIGINAL

OF_ALL_CLASSES = ("NLL", "Brier")
Methods = dict[str, dict[str, Any]]  # metrics by method


def _below(methods: Methods, local: str, curve: str) -> np.ndarray:
    """Whether LoRe is below each other method at each length scale, [5, 40]."""
    ours = np.array(methods[local][curve])
    return np.array([ours < np.array(methods[x][curve]) for x in GLOBAL])


def _is_best(methods: Methods, local: str, metric: str, *, largest: bool = False) -> bool:
    name = f"class {metric}" if metric in OF_ALL_CLASSES else metric  # as in Table 4
    sign = -1 if largest else 1
    return all(sign * methods[local][name] < sign * methods[x][name] for x in GLOBAL)


def _most_rewards(methods: Methods, local: str) -> bool:
    ours = np.array(methods[local]["gain curve"])
    others = [np.array(methods[x]["gain curve"]) for x in GLOBAL]
    return bool(np.mean(np.all(ours > np.array(others), 0)) > 0.5)


def verdicts(methods: Methods, local: str, features: str) -> dict[tuple[str, str], bool]:
    """What is true of one classifier, by claim and place in the paper."""
    found = {}
    for curve, where in (("MLCE", "Fig. 8, 9"), ("mean LCE", "Fig. 16")):
        below = _below(methods, local, f"{curve} curve ({features})")
        text = f"lower {curve} for most length scales than"
        found[f"{text} no recalibration", where] = bool(below[GLOBAL.index(ORIGINAL)].mean() > 0.5)
        found[f"{text} each method", where] = bool(np.all(below.mean(1) > 0.5))
        found[f"{text} all methods at once", where] = bool(below.all(0).mean() > 0.5)
    found["highest PRR", "Table 4"] = _is_best(methods, local, "PRR", largest=True)
    for metric in ("ECE", "NLL", "Brier"):
        found[f"lowest {metric}", "Table 4"] = _is_best(methods, local, metric)
    found["highest reward at w/u = 10", "Fig. 4"] = _is_best(methods, local, "gain", largest=True)
    found["highest reward for most ratios of costs", "Fig. 4"] = _most_rewards(methods, local)
    return found


def claim_rows(results: dict[str, dict[str, Any]]) -> Iterator[tuple]:
    """Rows of the table of claims, of the classifiers that have LoRe."""
    by_name = {name: x["methods"] for name, x in results.items()}
    for local, features in zip(LOCAL, LENGTH_SCALES, strict=True):
        found = {name: verdicts(x, local, features) for name, x in by_name.items()}
        for claim in next(iter(found.values()), ()):
            names = [name for name, x in found.items() if x[claim]]
            yield (*claim, features, len(names), len(found), ", ".join(names) or "none")


def write_tables(folder: Path, results: dict[str, dict[str, Any]], ratios: np.ndarray) -> None:
    """Writes the table of claims."""
    note = note_of(__file__, "note", ratios=len(ratios), first=ratios[0], last=ratios[-1])
    write_table(folder, "claims", claim_rows(results), note)
