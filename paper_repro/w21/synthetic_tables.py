"""Tables "published / ours" of W21 App. A.2, with Monte Carlo errors of the differences."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.harness.tables import write_table
from paper_repro.w21.synthetic_simulation import Procedure, Simulation

LEVEL = 0.05
PUBLISHED_DATA_SETS = 500

ERRORS_NOTE = """
Mean absolute error and variance of the estimates. SE is the Monte Carlo standard error of the
difference between ours and the published number, from the second and fourth moments of our
estimates, and z the difference in units of it; only results of the calibrated model are
published. Times are of one evaluation, in seconds: published is the minimum over data sets in
Julia on another machine, ours the mean over data sets in one compiled loop, in float64, on a
machine that is shared.
"""

TESTS_NOTE = """
Test errors at level 0.05: share of rejections (p ≤ 0.05) for the calibrated model, of
non-rejections for the uncalibrated one. SE is the binomial standard error of the difference
between ours and the published number, z the difference in units of it. SKCE (B = n) is the
bootstrap test. The exact test redraws the targets from the predictions; its level is exact for
every number of redraws, so there are fewer where they cost most. Times as for the errors; those of
simulated p-values grow with the number of draws.

CME is the test with the mean embedding at 10 test locations that are drawn anew for each data set,
exact CME (n ≤ 256) the exact test with the same statistic. With n = 4 samples the covariance of
ten locations is singular and `cme_test` refuses the data, so that ours is empty beside the
published number. Where it is singular up to rounding, as rarely at n = 16, the model is not
rejected.
"""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A finished simulation: the procedure, what it was applied to, and what came out."""

    procedure: Procedure
    simulation: Simulation
    values: np.ndarray
    seconds: float

    @property
    def place(self) -> tuple[str, str, str]:
        """What identifies the simulation in the published tables: procedure, d, n."""
        simulation = self.simulation
        return self.procedure.label, str(simulation.dimension), str(simulation.num_samples)

    @property
    def test_error(self) -> float:
        """Share of wrong decisions of a test."""
        rejected = self.values <= LEVEL
        return float(np.mean(rejected if self.simulation.model == "calibrated" else ~rejected))


def published_cells(
    rows: list[dict[str, str]] | None, procedure: str
) -> dict[tuple[str, str, str], dict[str, str]]:
    """Published rows by procedure, d, n; empty without published data."""
    return {(row[procedure], row["dim"], row["nsamples"]): row for row in rows or ()}


def _number(cell: Cell, published: dict[Any, dict[str, str]], column: str) -> float | None:
    # Only the results of the calibrated model are published.
    if cell.simulation.model != "calibrated" or cell.place not in published:
        return None
    return float(published[cell.place][column])


class Compared(NamedTuple):
    """A number, published and ours, with the standard error of the difference."""

    published: float | None
    ours: float | None
    error: float | None
    z: float | None


class ErrorRow(NamedTuple):
    """What the estimates of one cell are like, published and ours."""

    model: str
    d: int
    n: int
    estimator: str
    mean_published: float | None
    mean_ours: float
    mean_error: float | None
    mean_z: float | None
    variance_published: float | None
    variance_ours: float
    variance_error: float | None
    variance_z: float | None
    time_published: float | None
    time_ours: float


ERROR_NAMES = {
    "mean_published": "mean error, published",
    "mean_ours": "mean error, ours",
    "mean_error": "SE",
    "mean_z": "z",
    "variance_published": "variance, published",
    "variance_ours": "variance, ours",
    "variance_error": "SE",
    "variance_z": "z",
    "time_published": "time, published",
    "time_ours": "time, ours",
}


class TestRow(NamedTuple):
    """Test error of one cell, published and ours."""

    model: str
    d: int
    n: int
    test: str
    draws: int | None
    published: float | None
    ours: float | None
    error: float | None
    z: float | None
    time_published: float | None
    time_ours: float | None


TEST_NAMES = {
    "published": "test error, published",
    "ours": "test error, ours",
    "error": "SE",
    "time_published": "time, published",
    "time_ours": "time, ours",
}


def _compared(published: float | None, ours: float, variance: float) -> Compared:
    """Compares two numbers; `variance` is that of their difference."""
    if published is None:
        return Compared(None, ours, None, None)
    error = float(np.sqrt(variance))
    # Without a difference and without an error, as for two shares of zero, z is zero.
    z = (ours - published) / error if ours != published else 0.0
    return Compared(published, ours, error, z)


def _summary(scores: Iterable[float | None]) -> str:
    """How many of the z are large."""
    z = np.array([score for score in scores if score is not None])
    if not z.size:
        return "No published numbers were given (--data), so nothing is compared."
    return (
        f"Of {z.size} comparisons, {np.sum(np.abs(z) > 2)} have |z| > 2 and "
        f"{np.sum(np.abs(z) > 3)} have |z| > 3; the root mean square of z is "
        f"{np.sqrt(np.mean(z**2)):.2f}."
    )


def _error_row(cell: Cell, truth: float, published: dict[Any, dict[str, str]]) -> ErrorRow:
    size = 1 / cell.values.size + 1 / PUBLISHED_DATA_SETS
    errors = np.abs(cell.values - truth)
    deviations = cell.values - cell.values.mean()
    variance = float(cell.values.var(ddof=1))
    spread = float(np.mean(deviations**4)) - variance**2
    simulation = cell.simulation
    return ErrorRow(
        simulation.model,
        simulation.dimension,
        simulation.num_samples,
        cell.procedure.label,
        *_compared(
            _number(cell, published, "meanerror"),
            float(errors.mean()),
            size * float(errors.var(ddof=1)),
        ),
        *_compared(_number(cell, published, "variance"), variance, size * spread),
        _number(cell, published, "mintime"),
        cell.seconds,
    )


def write_errors(
    folder: Path,
    finished: list[Cell],
    truth: dict[tuple[str, int], np.ndarray],
    rows: list[dict[str, str]] | None,
) -> list[ErrorRow]:
    """Writes the table of the estimators: mean absolute errors, variances, times.

    Args:
        folder: folder of the experiment.
        finished: cells of the estimators.
        truth: independent estimates of the true SKCE by model and dimension.
        rows: rows of the published table, or None.

    Returns:
        The rows of the table.
    """
    published = published_cells(rows, "estimator")
    table = []
    for cell in finished:
        true_value = truth[cell.simulation.model, cell.simulation.dimension].mean()
        table.append(_error_row(cell, true_value, published))
    scores = [z for row in table for z in (row.mean_z, row.variance_z)]
    lines = [ERRORS_NOTE, _summary(scores), ""]
    for (model, dimension), values in truth.items():
        error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
        lines.append(f"- true SKCE, {model}, d = {dimension}: {values.mean():.5g} (SE {error:.1g})")
    write_table(folder, "errors", table, "\n".join(lines), names=ERROR_NAMES)
    return table


def _test_row(cell: Cell, published: dict[Any, dict[str, str]]) -> TestRow:
    number = _number(cell, published, "testerror")
    ours, count = cell.test_error, cell.values.size
    pooled = ours
    if number is not None:
        pooled = (ours * count + number * PUBLISHED_DATA_SETS) / (count + PUBLISHED_DATA_SETS)
    variance = pooled * (1 - pooled) * (1 / count + 1 / PUBLISHED_DATA_SETS)
    simulation = cell.simulation
    return TestRow(
        simulation.model,
        simulation.dimension,
        simulation.num_samples,
        cell.procedure.label,
        simulation.draws,
        *_compared(number, ours, variance),
        _number(cell, published, "mintime"),
        cell.seconds,
    )


def _refused_rows(finished: list[Cell], published: dict[Any, dict[str, str]]) -> list[TestRow]:
    """Rows with the published numbers of tests that refuse as few samples as there are."""
    sizes = {str(cell.simulation.num_samples) for cell in finished}
    labels = {cell.procedure.label for cell in finished}
    refused = {place: row for place, row in published.items() if place[2] in sizes}
    for cell in finished:
        refused.pop(cell.place, None)
    table = []
    for (label, dimension, n), row in refused.items():
        if label in labels:
            compared = Compared(float(row["testerror"]), None, None, None)
            place = "calibrated", int(dimension), int(n), label
            table.append(TestRow(*place, None, *compared, float(row["mintime"]), None))
    return table


def write_tests(
    folder: Path, finished: list[Cell], rows: list[dict[str, str]] | None
) -> list[TestRow]:
    """Writes the table of the tests: test errors and times.

    Args:
        folder: folder of the experiment.
        finished: cells of the tests.
        rows: rows of the published table, or None.

    Returns:
        The rows of the table.
    """
    published = published_cells(rows, "test")
    table = [_test_row(cell, published) for cell in finished]
    table += _refused_rows(finished, published)
    note = TESTS_NOTE + "\n" + _summary(row.z for row in table)
    write_table(folder, "tests", table, note, names=TEST_NAMES)
    return table
