"""What W19 App. J.3 says in words about Fig. 35 and 36, counted over the networks."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness.tables import note_of, write_table


def _smallest(values: np.ndarray, names: Sequence[str]) -> str:
    return f"at most {values.max():.3g} for all {values.size}"


def _extremes(values: np.ndarray, names: Sequence[str]) -> str:
    low, high = int(values.argmin()), int(values.argmax())
    return f"{values[low]:.3f} ({names[low]}) to {values[high]:.3f} ({names[high]})"


def _loose(values: np.ndarray, names: Sequence[str]) -> str:
    return f"{np.sum(values >= 0.99)} of {values.size}, the smallest {values.min():.3f}"


# The statement, the tests that it is about, and what is said of their p-values.
STATEMENTS: tuple[tuple[str, tuple[str, ...], Callable[..., str]], ...] = (
    ("C_uniform: almost always zero, apart from GoogLeNet", ("C_uniform",), _smallest),
    ("C_data-dependent: almost always zero", ("C_data-dependent",), _smallest),
    ("A_uq: zero for all", ("A_uq",), _smallest),
    ("A_l: around 0.18 (ResNet18) to 0.91 (GoogLeNet)", ("A_l",), _extremes),
    ("D: most between 0.99 and 1", ("D_b", "D_uq", "D_l"), _loose),
)


def _disagreements(first: np.ndarray, other: np.ndarray) -> str:
    """How many pairs of networks two estimators rank differently."""
    i, j = np.triu_indices(len(first), 1)
    differ = (first[i] < first[j]) != (other[i] < other[j])
    return f"{differ.sum()} of {differ.size} pairs of networks are ranked differently"


def claim_rows(
    errors: Sequence[Any], pvalues: Sequence[Any], estimators: Sequence[tuple[str, str]]
) -> Iterator[tuple]:
    """Rows of the statements.

    Args:
        errors: rows `ErrorRow`.
        pvalues: rows `PvalueRow`.
        estimators: pairs of estimators that may rank the networks differently.
    """
    for statement, tests, summary in STATEMENTS:
        rows = [row for row in pvalues if row.test in tests]
        names = [row.network for row in rows]
        texts = (
            summary(np.array([getattr(row, field) for row in rows], float), names)
            for field in ("published", "ours")
        )
        yield (statement, *texts)
    for labels in estimators:
        texts = []
        for field in ("published", "ours"):
            values = ([getattr(x, field) for x in errors if x.estimator == y] for y in labels)
            texts.append(_disagreements(*map(np.array, values)))
        yield (f"{' and '.join(labels)}: another order", *texts)


def write_claims(folder: Path, errors: Sequence[Any], pvalues: Sequence[Any], draws: int) -> None:
    """The table of the statements."""
    uniform, dynamic, _, unbiased, _ = dict.fromkeys(row.estimator for row in errors)
    rows = claim_rows(errors, pvalues, ((uniform, dynamic), (uniform, unbiased)))
    write_table(folder, "claims", rows, note_of(__file__, "note", bound=draws + 1))
