"""Do the tests hold their level, and what is their power?

The simulated data sets are those of `experiments.synthetic_models`. All tests are compared on
scalar normal predictions and on ten classes; with ten-dimensional targets, two classes, and
uncalibrated models, the exact test with the bootstrap and a block test at small n.

The exact test can only reject less often than α where its statistic has ties, so with few class
labels its level lies below 0.05; with continuous targets and (B + 1) α an integer it equals 0.05
for every number B of redraws, which is why there are fewer of them where they cost most.

The tests are those of `experiments.power.compared`. The column "undefined" has the number of data
sets without a p-value. CME tests draw five locations anew for each data set: W21's for normal
predictions, predictions and labels of the model itself for classes.

Cells are stored, so that a run that was interrupted goes on where it was. On few cores set the
environment variable OPENBLAS_NUM_THREADS=1: threads that wait for each other take most of the
time of the small decompositions.

Run: python -m experiments.levels [--num-datasets 2000] [--output DIR]
"""

import itertools
import math
from typing import Any

import jax

from experiments.harness import command_line
from experiments.harness.cells import Case, Store, simulated
from experiments.harness.command_line import program
from experiments.harness.tables import note_of, write_table
from experiments.power.compared import (
    EXACT,
    GROUPS,
    NUM_LOCATIONS,
    counts,
    is_simulated,
)
from experiments.power.simulation import ALPHA
from experiments.synthetic_models import Model

POWER_BARS = {("uncalibrated", 1): 0.96, ("uncalibrated", 10): 0.93}  # exact test, n = 4
# (B + 1) α is an integer.
DRAWS = {4: 999, 16: 999, 64: 199, 256: 99, 1024: 99}
FEWER_DRAWS = {("exact", "calibrated", 1024): 19, ("consistency", "calibrated", 1024): 19} | {
    ("consistency", "classes", 1024): 19
}
MODELS = {"normal": Model("calibrated", 1), "classes": Model("classes", 10)}
OTHER_MODELS = (
    Model("calibrated", 10),
    Model("uncalibrated", 1),
    Model("uncalibrated", 10),
    Model("classes", 2),
)
SIZES = (16, 64, 256, 1024)


def draws_of(group: str, model: Model, num_samples: int) -> int:
    """Number of draws of the simulated tests."""
    return FEWER_DRAWS.get((group, model.name, num_samples), DRAWS[num_samples])


def all_cells() -> list[tuple[Model, int, str]]:
    """Models, numbers of samples and groups of tests, the cheap ones first."""
    all_models = (*MODELS.values(), *OTHER_MODELS)
    cells = [(model, 4, group) for model in all_models for group in ("exact", "few")]
    cells += [(model, 16, group) for model in OTHER_MODELS for group in ("exact", "few")]
    cells += [(Model("calibrated", 10), n, "exact") for n in (64, 256)]
    for model, n, group in itertools.product(MODELS.values(), SIZES, GROUPS):
        if group not in ("few", "chosen") and (group != "ece" or model.name == "classes"):
            cells.append((model, n, group))
    return sorted(cells, key=lambda cell: cell[1])


def level_row(line: dict[str, Any], rate: float, number: int) -> dict[str, Any]:
    """Adds standard error, deviation from the level, and the bar of the exact tests."""
    exact = line["test"].startswith("exact")
    error = math.sqrt(ALPHA * (1 - ALPHA) / number)
    calibrated = line["model"] != "uncalibrated"
    line |= {"rejection rate": rate, "s.e.": math.sqrt(rate * (1 - rate) / number)}
    line["(rate - 0.05) / s.e. at 0.05"] = (rate - ALPHA) / error if calibrated else None
    line |= {"bar": None, "met": None}
    if exact and line["model"] == "calibrated":
        line |= {"bar": "within 3 s.e. of 0.05", "met": abs(rate - ALPHA) <= 3 * error}
    elif exact and calibrated:
        line |= {"bar": "at most 0.05 + 3 s.e.", "met": rate <= ALPHA + 3 * error}
    elif line["test"] == EXACT and line["n"] == 4:
        bar = POWER_BARS[line["model"], line["d or m"]]
        line |= {"bar": f"at least {bar}", "met": rate >= bar}
    return line


def _case(model: Model, n: int, group: str, num_datasets: int) -> Case:
    parameters: dict[str, Any] = {"draws": draws_of(group, model, n)}
    if group == "exact":  # earlier cells hold the biased SKCE under the same name
        parameters["statistic"] = "omnibus"
    return Case(f"{model.name}{model.size}/{n}/{group}", num_datasets, n, parameters)


def _counts(case: tuple[Model, int, str], span: tuple[int, int]) -> dict[str, Any]:
    model, n, group = case
    label = f"levels/{model.name}/{model.size}/{n}"
    return counts(label, group, model, n, draws_of(group, model, n), span)


def levels(store: Store, num_datasets: int) -> list[dict[str, Any]]:
    """Rejection rates of all tests in all cells."""
    rows = []
    cases = {case: _case(*case, num_datasets) for case in all_cells()}
    for (model, n, group), chunks in simulated(store, "levels", cases, _counts).items():
        for test in chunks[0]:
            rejected = sum(chunk[test]["rejected"] for chunk in chunks)
            line = {
                "model": model.name,
                "d or m": model.size,
                "n": n,
                "test": test,
                "draws": draws_of(group, model, n) if is_simulated(test) else None,
                "data sets": num_datasets,
                "undefined": sum(chunk[test]["undefined"] for chunk in chunks),
            }
            rows.append(level_row(line, rejected / num_datasets, num_datasets))
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tests by kind of data and number of samples: rejections of calibrated data in percent."""
    rates = {
        (row["test"], label, row["n"]): f"{100 * row['rejection rate']:.1f}"
        for row in rows
        for label, model in MODELS.items()
        if (row["model"], row["d or m"]) == model
    }
    columns = list(itertools.product(MODELS, SIZES))
    names = dict.fromkeys(test for test, _, n in rates if n != 4)
    return [
        {"test": test} | {f"{label} {n}": rates.get((test, label, n)) for label, n in columns}
        for test in sorted(names, key=lambda test: not test.startswith("exact"))
    ]


@program
def main() -> None:
    """Writes the tables levels and levels_summary."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=2000)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    number = options.num_datasets
    rows = levels(run.store("levels", __file__), number)
    note = note_of(__file__, "levels", number=number, level=ALPHA)
    write_table(run.output, "levels", rows, note, show=True)
    note = note_of(__file__, "summary", number=number, locations=NUM_LOCATIONS)
    write_table(run.output, "levels_summary", summary(rows), note, show=True)


if __name__ == "__main__":
    main()
