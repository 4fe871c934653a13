"""Tables "published / ours" of W21 App. A.2, with Monte Carlo errors of the differences."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.harness.tables import note_of, write_table
from paper_repro.w21.synthetic_simulation import Procedure, Simulation

LEVEL = 0.05
PUBLISHED_DATA_SETS = 500


@dataclasses.dataclass(frozen=True)
class Cell:
    """A finished simulation: the procedure, what it was applied to, and what came out."""

    procedure: Procedure
    simulation: Simulation
    values: np.ndarray
    seconds: float

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What identifies the simulation in the published tables: model, procedure, d, n."""
        simulation = self.simulation
        sizes = str(simulation.dimension), str(simulation.num_samples)
        return simulation.model, self.procedure.label, *sizes

    @property
    def test_error(self) -> float:
        """Share of wrong decisions of a test."""
        rejected = self.values <= LEVEL
        return float(np.mean(rejected if self.simulation.model == "calibrated" else ~rejected))


Place = tuple[str, str, str, str]
Published = Mapping[str, list[dict[str, str]] | None]  # rows of each model, None without data


def published_cells(published: Published, procedure: str) -> dict[Place, dict[str, str]]:
    """Published rows by model, procedure, d, n; empty without published data."""
    return {
        (model, row[procedure], row["dim"], row["nsamples"]): row
        for model, rows in published.items()
        for row in rows or ()
    }


def _number(cell: Cell, published: dict[Place, dict[str, str]], column: str) -> float | None:
    return float(published[cell.place][column]) if cell.place in published else None


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


def _compared(published: float | None, ours: float, variance: float) -> Compared:
    """Compares two numbers; `variance` is that of their difference."""
    if published is None:
        return Compared(None, ours, None, None)
    error = float(np.sqrt(variance))
    # Without a difference and without an error, as for two shares of zero, z is zero.
    z = (ours - published) / error if ours != published else 0.0
    return Compared(published, ours, error, z)


def _summary(kinds: Mapping[str, Sequence[tuple[str, float | None]]]) -> str:
    """How many of the z are large, by what is compared and by model.

    Args:
        kinds: pairs (model, z), by the name of what is compared.
    """
    lines = []
    for kind, scores in kinds.items():
        for model in dict.fromkeys(model for model, _ in scores):
            z = np.array([z for other, z in scores if other == model and z is not None])
            if z.size:
                lines.append(
                    f"- {kind}, {model} model: of {z.size} comparisons, "
                    f"{np.sum(np.abs(z) > 2)} have |z| > 2 and {np.sum(np.abs(z) > 3)} |z| > 3; "
                    f"the largest |z| is {np.abs(z).max():.2f}, the root mean square of z "
                    f"{np.sqrt(np.mean(z**2)):.2f}"
                )
    nothing = "No published numbers were given (--data), so nothing is compared."
    return "\n".join(lines) or nothing


def _error_row(cell: Cell, truths: np.ndarray, published: dict[Place, dict[str, str]]) -> ErrorRow:
    size = 1 / cell.values.size + 1 / PUBLISHED_DATA_SETS
    truth = truths.mean()
    errors = np.abs(cell.values - truth)
    # Both sides have a truth of their own, which the mean error depends on by its slope.
    slope = float(np.mean(np.sign(truth - cell.values)))
    of_truths = 2 * slope**2 * truths.var(ddof=1) / truths.size if truths.size > 1 else 0.0
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
            size * float(errors.var(ddof=1)) + of_truths,
        ),
        *_compared(_number(cell, published, "variance"), variance, size * spread),
        _number(cell, published, "mintime"),
        cell.seconds,
    )


def write_errors(
    folder: Path,
    finished: list[Cell],
    truth: dict[tuple[str, int], np.ndarray],
    published: Published,
) -> list[ErrorRow]:
    """Writes the table of the estimators: mean absolute errors, variances, times.

    Args:
        folder: folder of the experiment.
        finished: cells of the estimators.
        truth: independent estimates of the true SKCE by model and dimension.
        published: rows of the published tables by model, None without data.

    Returns:
        The rows of the table.
    """
    rows = published_cells(published, "estimator")
    table = []
    for cell in finished:
        truths = truth[cell.simulation.model, cell.simulation.dimension]
        table.append(_error_row(cell, truths, rows))
    scores = {
        "mean errors": [(row.model, row.mean_z) for row in table],
        "variances": [(row.model, row.variance_z) for row in table],
    }
    lines = [note_of(__file__, "errors"), _summary(scores), ""]
    for (model, dimension), values in truth.items():
        error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else 0.0
        lines.append(f"- true SKCE, {model}, d = {dimension}: {values.mean():.5g} (SE {error:.1g})")
    write_table(folder, "errors", table, "\n".join(lines))
    return table


def _test_row(cell: Cell, published: dict[Place, dict[str, str]]) -> TestRow:
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


def _refused_rows(finished: list[Cell], published: dict[Place, dict[str, str]]) -> list[TestRow]:
    """Rows with the published numbers of tests that refuse as few samples as there are."""
    sizes = {str(cell.simulation.num_samples) for cell in finished}
    labels = {cell.procedure.label for cell in finished}
    refused = {place: row for place, row in published.items() if place[3] in sizes}
    for cell in finished:
        refused.pop(cell.place, None)
    table = []
    for (model, label, dimension, n), row in refused.items():
        if label in labels:
            compared = Compared(float(row["testerror"]), None, None, None)
            place = model, int(dimension), int(n), label
            table.append(TestRow(*place, None, *compared, float(row["mintime"]), None))
    return table


def write_tests(folder: Path, finished: list[Cell], published: Published) -> list[TestRow]:
    """Writes the table of the tests: test errors and times.

    Args:
        folder: folder of the experiment.
        finished: cells of the tests.
        published: rows of the published tables by model, None without data.

    Returns:
        The rows of the table.
    """
    rows = published_cells(published, "test")
    table = [_test_row(cell, rows) for cell in finished]
    table += _refused_rows(finished, rows)
    note = (
        note_of(__file__, "tests")
        + "\n"
        + _summary({"test errors": [(row.model, row.z) for row in table]})
    )
    trivial = [row.model for row in table if row.published == row.ours == 0]
    if trivial:
        counts = (f"{trivial.count(model)} ({model})" for model in dict.fromkeys(trivial))
        note += f"\n\nBoth shares are 0, which gives z = 0, in {' and '.join(counts)} of these."
    write_table(folder, "tests", table, note)
    return table
