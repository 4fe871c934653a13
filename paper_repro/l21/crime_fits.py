"""Table 1 of L21, and which combination of what it leaves open fits which of its numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.harness.tables import note_of, write_table
from paper_repro.l21.crime_combinations import Combination
from paper_repro.l21.crime_models import Settings
from paper_repro.l21.crime_tables import NLL, PUBLISHED, Column, Results, columns_of, names_of
from paper_repro.l21.methods import GLOBAL, GROUP_WISE, LOCAL

Found = dict[Combination, list[dict[str, dict[str, float]]]]  # by network, method, quantity

PUBLISHED_SEEDS = 60
LARGEST = 2.0  # standard errors that a number may be off
COLUMNS = {  # of Table 1
    "200 epochs": Combination(),
    "stopped": Combination(training="best"),
    "income groups": Combination(grouping="incomes"),
    "bins of P(y = 1)": Combination(bins="P(y = 1)"),
    "income groups and bins of P(y = 1)": Combination(grouping="incomes", bins="P(y = 1)"),
}
SAME = "same 500"  # communities for recalibration and evaluation


class Fit(NamedTuple):
    """A published mean and ours: mean, standard deviation, and standard errors between them."""

    mean: float
    deviation: float
    distance: float

    @property
    def is_close(self) -> bool:
        """Whether ours fits."""
        return self.distance <= LARGEST


class Published(NamedTuple):
    """A published mean with its standard deviation.

    Attributes:
        quantity: name of the column in the paper.
        method: the row.
        mean, deviation: in the unit of ours.
        rounding: half a unit of the last digit.
        field: name of the quantity in ours.
    """

    quantity: str
    method: str
    mean: float
    deviation: float
    rounding: float
    field: str


def published() -> list[Published]:
    """The numbers of Tables 1 and 3, setting 1."""
    units = {"maximum": 1, "ECE": 0.01, "NLL": 1, "Brier": 1}
    digits = {"maximum": 0.0005, "ECE": 0.05}
    found = []
    for name, of_methods in PUBLISHED.items():
        unit, rounding = units[name], units[name] * digits.get(name, 0.005)
        field = NLL if name == "NLL" else name
        for method, (mean, sd) in of_methods.items():
            found.append(Published(name, method, unit * mean, unit * sd, rounding, field))
    return found


def values_of(found: Found, combination: Combination, method: str, field: str) -> np.ndarray:
    """One quantity for each network; those that have no optimum of the method are left out."""
    networks = (network.get(method) for network in found[combination])
    return np.array([x[field] for x in networks if x is not None], float)


def mean_and_sd(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation; NaN where fewer than two networks have an optimum."""
    if len(values) < 2:
        return np.nan, np.nan
    return float(values.mean()), float(values.std(ddof=1))


def compared(number: Published, values: np.ndarray) -> Fit:
    """How far the mean of ours is from the published one; infinitely where there is no mean."""
    mean, deviation = mean_and_sd(values)
    if np.isnan(mean):
        return Fit(mean, deviation, np.inf)
    error = np.sqrt(deviation**2 / len(values) + number.deviation**2 / PUBLISHED_SEEDS)
    distance = max(abs(mean - number.mean) - number.rounding, 0.0)
    return Fit(mean, deviation, float(distance / error))


def described(combination: Combination) -> dict[str, str]:
    """A combination as columns of a table."""
    (shared, complete), training, grouping, bins = combination
    return {
        "communities": f"1494/{SAME}" if shared else "994/500",
        "columns": "99" if complete else "100",
        "training": "200 epochs" if training == "last" else "stopped",
        "groups": grouping,
        "bins": bins,
    }


class FitRow(NamedTuple):
    """The verdict on a published number."""

    quantity: str
    method: str
    published: float
    sd: float
    lowest_floor: float | None
    closest: str
    ours: float
    our_sd: float
    distance: float
    fitting: int
    verdict: str


def _lowest_floor(found: Found, method: str) -> float:
    """Smallest floor of the combinations that do not recalibrate with labels of the evaluation."""
    honest = [combination for combination in found if not combination.reading.shared]
    floors = (mean_and_sd(values_of(found, x, method, "floor"))[0] for x in honest)
    return min((floor for floor in floors if not np.isnan(floor)), default=np.nan)


def fit_rows(found: Found) -> Iterator[FitRow]:
    """Rows of the table of verdicts."""
    for number in published():
        fits = {
            combination: compared(
                number, values_of(found, combination, number.method, number.field)
            )
            for combination in found
        }
        closest = min(fits, key=lambda combination: fits[combination].distance)
        num = sum(fit.is_close for fit in fits.values())
        verdict, floor = "fits" if num else "none fits", None
        if number.field == "maximum":
            floor = _lowest_floor(found, number.method)
            error = number.deviation / np.sqrt(PUBLISHED_SEEDS)
            if not num and number.mean + LARGEST * error < floor:
                verdict = "below the floor"
        name = ", ".join(described(closest).values())
        first = (number.quantity, number.method, number.mean, number.deviation, floor)
        yield FitRow(*first, name, *fits[closest], num, verdict)


def combination_rows(found: Found) -> Iterator[dict[str, Any]]:
    """Rows of the table of combinations."""
    numbers = published()
    for combination in found:
        row: dict[str, Any] = described(combination)
        total = 0
        for quantity in dict.fromkeys(number.quantity for number in numbers):
            chosen = [number for number in numbers if number.quantity == quantity]
            fitting = [
                number.method
                for number in chosen
                if compared(
                    number, values_of(found, combination, number.method, number.field)
                ).is_close
            ]
            total += len(fitting)
            row[f"{quantity}, of {len(chosen)}"] = len(fitting)
            if quantity == "maximum":
                names = ", ".join(fitting) or "none"
        yield row | {f"all, of {len(numbers)}": total, "rows of Table 1": names}


def value_rows(found: Found) -> Iterator[dict[str, Any]]:
    """All means and standard deviations."""
    fields = {"maximum": "maximum", "floor": "floor", "ECE": "ECE", NLL: "NLL", "Brier": "Brier"}
    for combination in found:
        for method in (*GLOBAL, *GROUP_WISE, *LOCAL):
            row: dict[str, Any] = described(combination) | {"method": method}
            for field, name in fields.items():
                values = values_of(found, combination, method, field)
                row |= dict(zip((name, f"{name}, sd"), mean_and_sd(values), strict=True))
            yield row


def maximum_rows(found: Found) -> Iterator[dict[Column, Any]]:
    """Rows of Table 1."""
    for method, numbers in PUBLISHED["maximum"].items():
        row: dict[Column, Any] = {"method": method} | columns_of("published", numbers)
        for name, combination in COLUMNS.items():
            if combination not in found:
                continue
            values, floors = (
                values_of(found, combination, method, field) for field in ("maximum", "floor")
            )
            row |= columns_of(name, mean_and_sd(values))
            row[f"{name}: floor"] = mean_and_sd(floors)[0]
        yield row


def write_tables(folder: Path, found: Found, results: Results, settings: Settings) -> None:
    """Writes Table 1, and the tables of combinations and of what fits."""
    rows = list(maximum_rows(found))
    every = [result for results in results.variants.values() for result in results]
    groups = [np.array([x["groups"] for x in found]) for found in results.variants.values()]
    sizes = [", ".join(f"{x:.0f}" for x in sizes.mean(0)) for sizes in groups]
    note = note_of(
        __file__,
        "maximum",
        seeds=settings.seeds,
        redraws=settings.redraws,
        sizes=", or ".join(dict.fromkeys(sizes)),
        missing=sum(result["groups without temperature"] for result in every),
        of=sum(len(result["groups"]) for result in every),
    )
    write_table(folder, "table_1", rows, note, names=names_of(rows[0]))
    fits = list(fit_rows(found))
    note = note_of(
        __file__,
        "fits",
        largest=LARGEST,
        num=len(found),
        seeds=settings.seeds,
        summary=_summary(found, fits),
    )
    write_table(folder, "fits", fits, note)
    note = note_of(__file__, "combinations", same=SAME, seeds=settings.seeds)
    write_table(folder, "combinations", combination_rows(found), note)
    write_table(folder, "combination_values", value_rows(found), "See `combinations`.")


def _summary(found: Found, fits: list[FitRow]) -> str:
    """How many numbers have which verdict, and the combination that fits most of them."""
    counts = {}
    for fit in fits:
        counts[fit.verdict] = counts.get(fit.verdict, 0) + 1
    verdicts = ", ".join(f"{name} {count}" for name, count in counts.items())
    rows = list(combination_rows(found))
    best = max(rows, key=lambda row: row[f"all, of {len(fits)}"])
    name = ", ".join(list(best.values())[:5])
    return (
        f"Of {len(fits)} numbers: {verdicts}. Most of them, {best[f'all, of {len(fits)}']}, are "
        f"fitted by: {name}."
    )
