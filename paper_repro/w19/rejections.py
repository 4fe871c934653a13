"""W19 §7.2, Fig. 2: test errors of calibration tests for classes, over all levels.

Data sets have 250 predictions Dir(0.1, …, 0.1) of ten classes, and labels from the prediction
(M1, calibrated), half from the prediction and half of class one (M2), or uniform (M3). W19
compares bounds of the p-value (D), asymptotic tests (A) and consistency resampling of the expected
calibration error (C) on 10⁴ data sets of each model; the exact test is an additional curve.

With --data the preset `paper` compares the 18 curves with those in the plot sources of the authors
(`w19_published/figure_2.csv`) at 99 levels. The length scale of the kernel is the median over the
full matrix of distances, its zero diagonal included, as in the code of the paper.

The exact test runs in single precision, which is twice as fast; at full size the note of the table
says how far its p-values are from those in double precision with the same redraws.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, write_table
from paper_repro.w19.figures import plot_rejections
from paper_repro.w19.simulation import EXACT, MODELS, NAME, TESTS, Chunk, simulate


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        chunks: number of chunks of data sets of each model, each a cell.
        chunk_size: number of data sets in a chunk.
        batch_size: number of data sets that share the random numbers of their tests.
        num_samples: n of each data set.
        draws: resamples or redraws of each test.
    """

    chunks: int
    chunk_size: int
    batch_size: int
    num_samples: int
    draws: int


SETTINGS = {"quick": Settings(2, 10, 10, 100, 99), "paper": Settings(40, 250, 25, 250, 1000)}
LEVELS = (0.01, 0.05, 0.1)
GRID = np.arange(1, 100) / 100
PUBLISHED = ("w19_published", "figure_2.csv")
PUBLISHED_DATA_SETS = 10_000

Finished = dict[str, list[dict[str, Any]]]
Curves = dict[tuple[str, str], np.ndarray]  # errors at the levels 0, 0.01, …, 1 by model and test


def chunks(settings: Settings) -> Iterator[Chunk]:
    """All chunks; the models take turns."""
    sizes = settings.chunk_size, settings.batch_size, settings.num_samples, settings.draws
    for index in range(settings.chunks):
        for model in MODELS:
            yield Chunk(model, index, *sizes)


def finished_cells(store: Store, settings: Settings) -> Finished:
    """Results of all chunks by model, computed or read."""
    finished: Finished = {model: [] for model in MODELS}
    for chunk in tqdm(list(chunks(settings)), desc=NAME, unit="cell"):
        compute = functools.partial(simulate, chunk, TESTS)
        result = cells.cell(store, chunk.name, dataclasses.asdict(chunk), compute)
        finished[chunk.model].append(result)
    return finished


def _pvalues(finished: Finished, model: str, slug: str) -> np.ndarray:
    return np.concatenate([result["pvalues"][slug] for result in finished[model]])


def test_errors(pvalues: np.ndarray, model: str, levels: np.ndarray) -> np.ndarray:
    """Share of p ≤ α for the calibrated model M1, of p > α for the others, for each level α."""
    rejected = np.searchsorted(np.sort(pvalues), levels, side="right") / pvalues.size
    return rejected if model == "M1" else 1 - rejected


def level_deviations(pvalues: np.ndarray) -> np.ndarray:
    """Deviations of the type I errors from the levels of `GRID`, in binomial standard errors.

    p-values by simulation are multiples of 1 / (B + 1), which alone keeps the errors up to
    1 / (B + 1) below the level.
    """
    errors = test_errors(pvalues, "M1", GRID)
    return (errors - GRID) / np.sqrt(GRID * (1 - GRID) / pvalues.size)


def _error_rows(finished: Finished) -> Iterator[dict[str, Any]]:
    for model in MODELS:
        for test in TESTS:
            pvalues = _pvalues(finished, model, test.slug)
            row: dict[str, Any] = {"model": model, "test": test.label}
            errors = test_errors(pvalues, model, np.array(LEVELS))
            for level, error in zip(LEVELS, errors, strict=True):
                row[f"error at {level}"] = float(error)
                row[f"SE at {level}"] = float(np.sqrt(error * (1 - error) / pvalues.size))
            yield row


def curve_rows(finished: Finished) -> Iterator[dict[str, Any]]:
    """Test errors at the levels 0, 0.01, …, 1, from which Fig. 2 is drawn."""
    levels = np.arange(101) / 100
    for model in MODELS:
        curves = {
            test.label: test_errors(_pvalues(finished, model, test.slug), model, levels)
            for test in TESTS
        }
        for i, level in enumerate(levels):
            errors = {label: float(errors[i]) for label, errors in curves.items()}
            yield {"model": model, "level": float(level)} | errors


def _position(errors: np.ndarray, num_data_sets: int) -> str:
    """Where a curve of test errors lies, beyond three standard errors of the diagonal."""
    deviations = (errors - GRID) / np.sqrt(GRID * (1 - GRID) / num_data_sets)
    parts = [
        f"{name} it at {np.mean(chosen):.0%} of the levels"
        for name, chosen in (("above", deviations > 3), ("below", deviations < -3))
        if chosen.any()
    ]
    return ", ".join(parts) or "on it at all levels"


def _claim_rows(finished: Finished) -> Iterator[dict[str, Any]]:
    for test in TESTS:
        calibrated = _pvalues(finished, "M1", test.slug)
        deviations = level_deviations(calibrated)
        worst = int(np.argmax(np.abs(deviations)))
        row: dict[str, Any] = {"test": test.label}
        for model in MODELS:
            pvalues = _pvalues(finished, model, test.slug)
            position = _position(test_errors(pvalues, model, GRID), pvalues.size)
            row[f"curve of {model} and the diagonal"] = position
        excess = test_errors(calibrated, "M1", GRID) - GRID
        yield row | {
            "largest z (M1)": float(deviations[worst]),
            "at level": float(GRID[worst]),
            "largest excess (M1)": float(excess.max()),
        }


def _time_note(finished: Finished) -> str:
    results = [result for model in MODELS for result in finished[model]]
    count = sum(len(result["pvalues"][EXACT.slug]) for result in results)
    labels = {test.slug: test.label for test in TESTS}
    totals = {
        name: sum(result["seconds"][name] for result in results) for name in results[0]["seconds"]
    }
    parts = ", ".join(
        f"{labels.get(name, name)} {1e3 * seconds / count:.2f}" for name, seconds in totals.items()
    )
    return (
        f"{count} data sets took {sum(totals.values()):.0f} s without compilation, added up over "
        f"the processes that shared the cells. Milliseconds per data set: {parts}. Times were "
        "measured on a machine that is shared and are upper bounds."
    )


def precision_note(settings: Settings) -> str:
    """How far the p-values of the exact test are from those in double precision."""
    chunk = next(chunks(settings))
    chunk = dataclasses.replace(chunk, data_sets=chunk.batch_size)
    in_double = dataclasses.replace(EXACT, dtype=jnp.float64)
    single, double = (
        np.array(simulate(chunk, (test,))["pvalues"][EXACT.slug]) for test in (EXACT, in_double)
    )
    changed = np.abs(single - double) > 0.5 / (settings.draws + 1)
    return (
        f"With the same redraws in double precision, {changed.sum()} of {single.size} p-values of "
        f"the exact test (M1) are different; the largest difference is "
        f"{np.abs(single - double).max():.1g}."
    )


def read_curves(run: command_line.Run) -> Curves | None:
    """The curves of the authors' Fig. 2; None without them.

    Raises:
        DataError: if the file is not as it should be.
    """
    columns = {"test": str, "model": str, "level": float, "test_error": float}
    rows = run.published(*PUBLISHED, columns=columns)
    if rows is None:
        return None
    curves: Curves = {}
    for row in rows:
        curve = curves.setdefault((row["model"], row["test"]), np.full(101, np.nan))
        curve[round(100 * float(row["level"]))] = float(row["test_error"])
    return curves


def _published_rows(finished: Finished, published: Curves) -> Iterator[dict[str, Any]]:
    for (model, test), curve in published.items():
        (slug,) = (x.slug for x in TESTS if x.label == test)
        pvalues, theirs = _pvalues(finished, model, slug), curve[1:100]
        ours = test_errors(pvalues, model, GRID)
        sizes = pvalues.size, PUBLISHED_DATA_SETS
        pooled = (sizes[0] * ours + sizes[1] * theirs) / sum(sizes)
        errors = np.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
        z = np.divide(ours - theirs, errors, where=errors > 0, out=np.zeros(99))
        worst = int(np.argmax(np.abs(z)))
        yield {
            "model": model,
            "test": test,
            "largest difference": float(np.abs(ours - theirs).max()),
            "largest z": float(z[worst]),
            "at level": float(GRID[worst]),
            "published there": float(theirs[worst]),
            "ours there": float(ours[worst]),
            "SE": float(errors[worst]),
            "levels with abs(z) > 2": int(np.sum(np.abs(z) > 2)),
            "levels with abs(z) > 3": int(np.sum(np.abs(z) > 3)),
        }


def write_published(folder: Path, finished: Finished, published: Curves) -> None:
    """The table that compares the curves with the published ones."""
    rows = list(_published_rows(finished, published))
    largest = max(abs(row["largest z"]) for row in rows)
    note = note_of(__file__, "published", levels=99 * len(rows), largest=largest)
    write_table(folder, "published", rows, note)


def write_tables(folder: Path, settings: Settings, finished: Finished) -> None:
    """Tables of the test errors, and of where the curves lie."""
    undefined = sum(
        sum(result["undefined"].values()) for model in MODELS for result in finished[model]
    )
    note = note_of(__file__, "errors", undefined=undefined)
    note = "\n".join([note, _time_note(finished)])
    if settings == SETTINGS["paper"]:  # two more programs
        note += f"\n\n{precision_note(settings)}"
    names = {f"SE at {level}": "SE" for level in LEVELS}
    write_table(folder, "errors", _error_rows(finished), note, names=names)
    write_table(folder, "claims", _claim_rows(finished), note_of(__file__, "claims"))


def run(run: command_line.Run) -> None:
    """Runs the experiment; published are the curves of the full size."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    finished = finished_cells(store, settings)
    write_tables(store.folder, settings, finished)
    curves = list(curve_rows(finished))
    write_table(store.folder, "curves", curves, note_of(__file__, "curves"))
    published = read_curves(run) if settings == SETTINGS["paper"] else None
    if published:
        write_published(store.folder, finished, published)
    plot_rejections(store.folder, curves, published or {})


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
