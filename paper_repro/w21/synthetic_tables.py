"""Tables "published / ours" of W21 App. A.2."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.w21.synthetic_simulation import EXACT_TESTS, Place

LEVEL = 0.05


@dataclasses.dataclass(frozen=True)
class Cell:
    """Values of a procedure on the data sets of a cell, and the seconds for one of them."""

    place: Place
    label: str
    values: list[float]
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies it in the published tables: model, procedure, d, n."""
        place = self.place
        return place.model, self.label, str(place.dimension), str(place.num_samples)

    @property
    def test_error(self) -> float:
        """Share of wrong decisions of a test; the authors do not reject where p = 0.05."""
        values = np.array(self.values)
        is_exact = self.label in {test.label for test in EXACT_TESTS.values()}
        rejected = values <= LEVEL if is_exact else values < LEVEL
        return float(np.mean(rejected if self.place.model == "calibrated" else ~rejected))


class ErrorRow(NamedTuple):
    """Mean absolute error and variance of the estimates of one cell, published and ours."""

    model: str
    d: int
    n: int
    estimator: str
    mean_published: float
    mean_ours: float
    mean_difference: float
    variance_published: float
    variance_ours: float
    variance_difference: float
    time_published: float
    time_ours: float


class TestRow(NamedTuple):
    """Test error of one cell, published and ours."""

    model: str
    d: int
    n: int
    test: str
    published: float | None
    ours: float | None
    time_published: float | None
    time_ours: float | None


def published_cells(name: str) -> dict[tuple[str, str, str, str], dict[str, str]]:
    """Published rows of "errors" or "tests" by model, procedure, d, n."""
    rows = published_rows(__file__, f"synthetic_{name}")
    procedure = "test" if name == "tests" else "estimator"
    return {(row["model"], row[procedure], row["dim"], row["nsamples"]): row for row in rows}


def error_rows(finished: Sequence[Cell]) -> list[ErrorRow]:
    """Rows of the estimators; the true SKCE of a calibrated model is 0."""
    published = published_cells("errors")
    truths = {
        (cell.place.model, cell.place.dimension): np.mean(cell.values)
        for cell in finished
        if cell.place.slug == "truth"
    }
    table = []
    for cell in finished:
        place, row = cell.place, published.get(cell.key)
        if row is None:
            continue
        truth = truths.get((place.model, place.dimension), 0.0)
        ours = (
            float(np.mean(np.abs(np.array(cell.values) - truth))),
            float(np.var(cell.values, ddof=1)),
        )
        compared = []
        for name, value in zip(("meanerror", "variance"), ours, strict=True):
            compared += [float(row[name]), value, value / float(row[name]) - 1]
        columns = place.model, place.dimension, place.num_samples, cell.label
        table.append(ErrorRow(*columns, *compared, float(row["mintime"]), cell.seconds))
    return table


def write_errors(folder: Path, finished: Sequence[Cell]) -> list[ErrorRow]:
    """Writes the table of the estimators: mean absolute errors, variances, times.

    Args:
        folder: folder of the experiment.
        finished: cells of the estimators, and of the true SKCE.

    Returns:
        The rows of the table.
    """
    table = error_rows(finished)
    note = note_of(__file__, "errors") + "\n"
    for cell in finished:
        if cell.place.slug == "truth":
            note += f"- true SKCE, d = {cell.place.dimension}: {np.mean(cell.values):.10g}\n"
    write_table(folder, "errors", table, note)
    return table


def write_tests(folder: Path, finished: Sequence[Cell]) -> list[TestRow]:
    """Writes the table of the tests: test errors and times.

    Args:
        folder: folder of the experiment.
        finished: cells of the tests.

    Returns:
        The rows of the table; those of tests that refuse as few samples as there are are last.
    """
    published = published_cells("tests")
    ours = {cell.key: cell for cell in finished}
    sizes = {key[2:] for key in ours}
    refused = [key for key in published if key[2:] in sizes and key not in ours]
    table = []
    for model, test, d, n in [*ours, *refused]:
        key = model, test, d, n
        row, cell = published.get(key), ours.get(key)
        theirs = (float(row["testerror"]), float(row["mintime"])) if row else (None, None)
        values = (cell.test_error, cell.seconds) if cell else (None, None)
        columns = theirs[0], values[0], theirs[1], values[1]
        table.append(TestRow(model, int(d), int(n), test, *columns))
    note = note_of(__file__, "tests") + "\n"
    for model in dict.fromkeys(row.model for row in table):
        both = [x for x in table if x.model == model and None not in (x.published, x.ours)]
        equal = sum(row.published == row.ours for row in both)
        note += f"- {model} model: equal in {equal} of {len(both)} cells\n"
    write_table(folder, "tests", table, note)
    return table
