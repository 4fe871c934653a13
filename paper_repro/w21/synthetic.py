"""W21 App. A.2: errors, variances, test errors and times on synthetic models.

Predictions are N(c 1_d, 0.1² I_d) with c ~ U(0, 1). Targets are drawn from them (calibrated
model), or with 0.1 as mean of the first component (uncalibrated model). On 500 data sets for each
n in {4, 16, 64, 256, 1024} and d in {1, 10}, W21 compares estimators of the SKCE (Fig. 6 to 9)
and tests of calibration (Fig. 2, 10 and 11). Data sets, test locations and resamples are the
authors', drawn from the seeds of their script. The exact tests, with the SKCE and with the
statistic of the CME test, are additional curves.

The authors' data sets follow each other in one stream, so that those before the last one that is
evaluated are drawn in every preset.
"""

import dataclasses

from tqdm import tqdm

from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from paper_repro.w21.synthetic_figures import plot_errors, plot_tests
from paper_repro.w21.synthetic_simulation import (
    DIMENSIONS,
    EXACT_TESTS,
    MODELS,
    SIZES,
    Place,
    Procedure,
    evaluate,
    places,
    stream,
)
from paper_repro.w21.synthetic_tables import Cell, write_errors, write_tests

NAME = "w21_synthetic"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which of the authors' cells are evaluated.

    Attributes:
        sizes: numbers of samples n.
        models: models on which estimators are evaluated; the true SKCE of the uncalibrated one
            takes 1000 estimates with n = 1000.
        dimensions: d of the data sets.
        tests: slugs of the tests; the authors' CME test comes after 10⁹ numbers of the bootstrap.
        exact: whether the exact tests are added.
    """

    sizes: tuple[int, ...]
    models: tuple[str, ...] = MODELS
    dimensions: tuple[int, ...] = DIMENSIONS
    tests: tuple[str, ...] = ("block_2", "block_sqrt", "bootstrap", "cme")
    exact: bool = True

    def includes(self, place: Place) -> bool:
        """Whether a cell is evaluated."""
        chosen = self.models if place.kind == "estimates" else self.tests
        name = place.model if place.kind == "estimates" else place.slug
        is_size = place.slug == "truth" or place.num_samples in self.sizes
        return is_size and place.dimension in self.dimensions and name in chosen

    def procedures(self, place: Place, procedure: Procedure) -> list[Procedure]:
        """The authors' procedure and an exact test, those that accept as many samples."""
        candidates = [procedure]
        if self.exact and place.kind == "tests":
            candidates += [EXACT_TESTS[place.slug]] if place.slug in EXACT_TESTS else []
        n = place.num_samples
        return [p for p in candidates if p.sizes[0] <= n <= p.sizes[1]]


SETTINGS = {
    "quick": Settings((4, 16), MODELS[:1], (1,), ("block_2", "block_sqrt", "bootstrap"), False),
    "medium": Settings(SIZES[:-1], exact=False),
    "paper": Settings(SIZES),
}


def finished_cells(store: Store, settings: Settings, kind: str) -> list[Cell]:
    """All cells of one kind, computed or read."""
    finished = []
    for model in MODELS:
        left = sum(settings.includes(place) for place, _ in places(kind, model))
        if not left:
            continue
        bar = tqdm(total=left, unit="cell")
        for place, procedure, parts in stream(kind, model):
            if not settings.includes(place):
                continue
            bar.set_description(f"{NAME}: {place.name}")
            procedures = settings.procedures(place, procedure)
            parameters = {"procedures": [p.label for p in procedures]}
            compute = lambda p=procedures, x=parts: {"results": evaluate(p, x)}  # noqa: E731
            results = cells.cell(store, place.name, parameters, compute)["results"]
            finished += [
                Cell(place, p.label, **result)
                for p, result in zip(procedures, results, strict=True)
            ]
            bar.update()
            left -= 1
            if not left:
                break
    return finished


def run(run: command_line.Run) -> None:
    """Runs the experiment."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    estimates = finished_cells(store, settings, "estimates")
    plot_errors(store.folder, write_errors(store.folder, estimates))
    tests = finished_cells(store, settings, "tests")
    plot_tests(store.folder, write_tests(store.folder, tests))


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
