"""Which test sees which kind of miscalibration? Both signs of each.

The models of `experiments.synthetic_models` that are wrong in one way, scalar normal predictions
(n = 64) and ten classes (n = 100), with all tests of `experiments.power.compared`. A test with
power has to reject; one that rejects less often than calibrated data, at most 5 %, is blind. Beside
it stands what it rejects of calibrated data, without which a power says little: the CME test and
consistency resampling of the ECE reject too much of everything.

Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.sensitivity [--num-datasets 500] [--output DIR]
"""

import math
from typing import Any

from experiments.harness import command_line
from experiments.harness.cells import Case, Store, simulated
from experiments.harness.command_line import program
from experiments.harness.tables import note_of, write_table
from experiments.power.compared import GROUPS, counts
from experiments.power.simulation import ALPHA
from experiments.synthetic_models import WRONG_CLASSES, WRONG_NORMALS, Model

DRAWS = 199  # (B + 1) α is an integer
SIZES = {"normal": 64, "classes": 100}
NORMALS = [Model(name, 1) for name in ("calibrated", *WRONG_NORMALS)]
CLASSES = [Model(name, 10) for name in ("classes", *WRONG_CLASSES)]


def all_cells() -> list[tuple[Model, str]]:
    """Models and groups of tests."""
    cells = [(model, group) for group in GROUPS for model in (*NORMALS, *CLASSES)]
    return [
        (model, group)
        for model, group in cells
        if group != "few" and (group != "ece" or model.is_of_classes)
    ]


def rejections(store: Store, num_datasets: int) -> dict[tuple[str, str], float]:
    """Share of data sets that are rejected, by test and name of the model."""

    def size(model: Model) -> int:
        return SIZES["classes" if model.is_of_classes else "normal"]

    def compute(case: tuple[Model, str], span: tuple[int, int]) -> dict[str, Any]:
        model, group = case
        label = f"power/{model.name}/{size(model)}"
        return counts(label, group, model, size(model), DRAWS, span)

    cases = {
        (model, group): Case(
            f"{model.name}{model.size}/{group}",
            num_datasets,
            size(model),
            {"n": size(model), "draws": DRAWS},
        )
        for model, group in all_cells()
    }
    found: dict[tuple[str, str], float] = {}
    for (model, _), chunks in simulated(store, "sensitivity", cases, compute).items():
        for test in chunks[0]:
            rejected = sum(chunk[test]["rejected"] for chunk in chunks)
            found[test, model.name] = rejected / num_datasets
    return found


def rows(found: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """A line for each test, the exact ones first; models as columns, in percent."""
    labels = {
        f"{'classes' if model.is_of_classes else 'normal'}, "
        f"{'calibrated' if model.calibrated else model.name}": model.name
        for model in (*NORMALS, *CLASSES)
    }
    tests = sorted(
        dict.fromkeys(test for test, _ in found), key=lambda t: not t.startswith("exact")
    )
    return [
        {"test": test}
        | {
            label: f"{100 * found[test, name]:.1f}" if (test, name) in found else None
            for label, name in labels.items()
        }
        for test in tests
    ]


@program
def main() -> None:
    """Writes the table sensitivity."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=500)
    run, options = command_line.parse(parser)
    found = rejections(run.store("sensitivity", __file__), options.num_datasets)
    number = options.num_datasets
    values = {"level": 100 * ALPHA, "number": number, "worst": 100 * math.sqrt(0.25 / number)}
    note = note_of(__file__, "sensitivity", draws=DRAWS, **values, **SIZES)
    write_table(run.output, "sensitivity", rows(found), note, show=True)


if __name__ == "__main__":
    main()
