"""W19 §7.2, Fig. 2: test errors of calibration tests for classes, over all levels.

Data sets are the authors': 10 000 of each of three models, with 250 predictions Dir(0.1, …, 0.1) of
ten classes and labels from the prediction (M1, calibrated), half from the prediction and half of
class one (M2), or uniform (M3). W19 compares bounds of the p-value (D), asymptotic tests (A) and
consistency resampling of the expected calibration error (C), whose resamples here are the authors',
too. The exact test is an additional curve, on fewer data sets.

The preset `paper` compares the 18 curves with those in the plot source of the authors
(`rejections.csv`) at 101 levels.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.harness import command_line
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.w19.authors_data import MODELS, NUM_DATA_SETS, finished
from paper_repro.w19.figures import plot_rejections
from paper_repro.w19.procedures import EXACT
from paper_repro.w19.rejections_simulation import (
    NAME,
    WITH_DRAWS,
    exact,
    with_draws,
    without_draws,
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        data_sets: number of data sets of each model.
        exact: the same for the exact test.
        chunk_size: number of data sets in a cell.
    """

    data_sets: int
    exact: int
    chunk_size: int = 250


SETTINGS = {
    "quick": Settings(20, 5, 20),
    "medium": Settings(2000, 250),
    "paper": Settings(NUM_DATA_SETS, 1000),
}
TESTS = ("C", "D_b", "D_uq", "D_ul", "A_uq", "A_l", EXACT.label)
ERROR_LEVELS = (0.01, 0.05, 0.1)
LEVELS = np.arange(101) / 100

Pvalues = dict[tuple[str, str], np.ndarray]  # of the data sets, by model and test


def finished_tests(store: Store, settings: Settings) -> Pvalues:
    """p-values of all tests; those that draw have streams of data sets of their own."""
    streams = {"without": without_draws, "exact": exact} | {
        label: functools.partial(with_draws, label) for label in WITH_DRAWS
    }
    pvalues: Pvalues = {}
    for stream, compute in streams.items():
        number = settings.exact if stream == "exact" else settings.data_sets
        for model in MODELS:
            chunks = f"{stream}/{model}", number, settings.chunk_size
            results = finished(store, *chunks, functools.partial(compute, model))
            pvalues |= {(model, label): values for label, values in results.items()}
    return pvalues


def test_errors(pvalues: np.ndarray, model: str, levels: np.ndarray) -> np.ndarray:
    """Share of p ≤ α for the calibrated model M1, of p > α for the others, for each level α."""
    rejected = np.searchsorted(np.sort(pvalues), levels, side="right") / pvalues.size
    return rejected if model == "M1" else 1 - rejected


def _error_rows(pvalues: Pvalues) -> Iterator[dict[str, Any]]:
    for model in MODELS:
        for test in TESTS:
            values = pvalues[model, test]
            row: dict[str, Any] = {"model": model, "test": test, "data sets": values.size}
            errors = test_errors(values, model, np.array(ERROR_LEVELS))
            for level, error in zip(ERROR_LEVELS, errors, strict=True):
                row[f"error at {level}"] = float(error)
                row[f"SE at {level}"] = float(np.sqrt(error * (1 - error) / values.size))
            yield row


def curve_rows(pvalues: Pvalues) -> Iterator[dict[str, Any]]:
    """Test errors at the levels 0, 0.01, …, 1, from which Fig. 2 is drawn."""
    for model in MODELS:
        curves = {test: test_errors(pvalues[model, test], model, LEVELS) for test in TESTS}
        for i, level in enumerate(LEVELS):
            errors = {label: float(errors[i]) for label, errors in curves.items()}
            yield {"model": model, "level": float(level)} | errors


def _deviations(errors: np.ndarray, num_data_sets: int) -> np.ndarray:
    """Deviations from the levels 0.01, …, 0.99 in binomial standard errors."""
    levels = LEVELS[1:-1]
    return (errors[1:-1] - levels) / np.sqrt(levels * (1 - levels) / num_data_sets)


def _position(deviations: np.ndarray) -> str:
    """Where a curve of test errors lies, beyond three standard errors of the diagonal."""
    parts = [
        f"{name} it at {np.mean(chosen):.0%} of the levels"
        for name, chosen in (("above", deviations > 3), ("below", deviations < -3))
        if chosen.any()
    ]
    return ", ".join(parts) or "on it at all levels"


def _claim_rows(pvalues: Pvalues) -> Iterator[dict[str, Any]]:
    for test in TESTS:
        row: dict[str, Any] = {"test": test}
        for model in MODELS:
            values = pvalues[model, test]
            deviations = _deviations(test_errors(values, model, LEVELS), values.size)
            row[f"curve of {model} and the diagonal"] = _position(deviations)
        excess = test_errors(pvalues["M1", test], "M1", LEVELS) - LEVELS
        yield row | {"largest excess (M1)": float(excess[1:-1].max())}


def read_curves() -> dict[tuple[str, str], np.ndarray]:
    """The published curves, by model and test."""
    rows = published_rows(__file__)
    curves = {(model, test): f"{model} {test}" for model in MODELS for test in TESTS[:-1]}
    return {key: np.array([float(row[name]) for row in rows]) for key, name in curves.items()}


def _published_rows(pvalues: Pvalues) -> Iterator[dict[str, Any]]:
    for (model, test), theirs in read_curves().items():
        differences = np.abs(test_errors(pvalues[model, test], model, LEVELS) - theirs)
        worst = int(differences.argmax())
        yield {
            "model": model,
            "test": test,
            "levels": differences.size,
            "equal": int(np.sum(differences < 1e-12)),
            "largest difference": float(differences[worst]),
            "at level": float(LEVELS[worst]),
        }


def write_tables(folder: Path, settings: Settings, pvalues: Pvalues) -> None:
    """Tables of the test errors, of where the curves lie, and beside the published curves."""
    names = {f"SE at {level}": "SE" for level in ERROR_LEVELS}
    write_table(folder, "errors", _error_rows(pvalues), note_of(__file__, "errors"), names=names)
    write_table(folder, "claims", _claim_rows(pvalues), note_of(__file__, "claims"))
    write_table(folder, "curves", curve_rows(pvalues), note_of(__file__, "curves"))
    if settings.data_sets == NUM_DATA_SETS:
        rows = list(_published_rows(pvalues))
        counts = {"equal": sum(row["equal"] for row in rows)}
        counts["levels"] = sum(row["levels"] for row in rows)
        note = note_of(__file__, "published", **counts)
        write_table(folder, "published", rows, note)


def run(run: command_line.Run) -> None:
    """Runs the experiment; the published curves are behind ours."""
    settings, store = SETTINGS[run.preset or ""], run.store(NAME, __file__)
    pvalues = finished_tests(store, settings)
    write_tables(store.folder, settings, pvalues)
    plot_rejections(store.folder, list(curve_rows(pvalues)), read_curves())


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
