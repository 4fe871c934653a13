"""W21 App. A.2: errors, variances, test errors and times on synthetic models.

Predictions are N(c 1_d, 0.1² I_d) with c ~ U(0, 1). Targets are drawn from them (calibrated
model), or with 0.1 as mean of the first component (uncalibrated model). On 500 data sets for each
n in {4, 16, 64, 256, 1024} and d in {1, 10}, W21 compares estimators of the SKCE (Fig. 6 to 9)
and tests of calibration (Fig. 2, 10 and 11). The exact tests, with the SKCE and with the statistic
of the CME test, are additional curves. The CME test with 10 locations has no covariance at n = 4
and is refused there.

Conventions matter most at n = 4, where the block tests have two blocks. We divide their variance
by m − 1; dividing by m makes z √2 times as large, and the rejections of calibrated data sets about
half as many again as the published ones. For the bootstrap, (1 + count) / (B + 1) or count / B
makes no visible difference. All procedures see the same data sets; at n = 4 the blocks of size 2
and √n are the same.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from paper_repro.w21.synthetic_figures import plot_errors, plot_tests
from paper_repro.w21.synthetic_simulation import (
    ESTIMATORS,
    EXACT_CME,
    TESTS,
    Procedure,
    Simulation,
    simulate,
)
from paper_repro.w21.synthetic_tables import Cell, write_errors, write_tests

NAME = "w21_synthetic"
MODELS = ("calibrated", "uncalibrated")
UNBIASED = ESTIMATORS[-1]
_PLACE = {"dim": int, "nsamples": int, "mintime": float}
PUBLISHED_COLUMNS = {
    "errors": {"estimator": str, "meanerror": float, "variance": float} | _PLACE,
    "tests": {"test": str, "testerror": float} | _PLACE,
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        dimensions: d of the targets.
        sizes: numbers of samples n.
        data_sets: number of data sets for each n.
        resamples: resamples of the bootstrap test.
        max_redraws: bound on the redraws of the exact test.
        cme_redraws: redraws of the exact CME test.
        truth: number of data sets, and of samples in each, that the true SKCE is averaged over.
        timing: seconds spent on timing each procedure.
    """

    dimensions: tuple[int, ...]
    sizes: tuple[int, ...]
    data_sets: int
    resamples: int
    max_redraws: int
    cme_redraws: int
    truth: tuple[int, int]
    timing: float


SETTINGS = {
    # One d, and one n that all tests accept; the truth shares the compilation of its estimates.
    "quick": Settings((1,), (16,), 50, 200, 99, 19, (50, 16), 0.0),
    "paper": Settings((1, 10), (4, 16, 64, 256, 1024), 500, 1000, 999, 199, (1000, 1000), 0.5),
}


def num_redraws(settings: Settings, dimension: int, num_samples: int) -> int:
    """Redraws of the exact test: fewer where they cost most.

    The level of the test is exact for every number, and few cost only a little power.
    (redraws + 1) / 20 is an integer, or the level would be below 0.05.
    """
    if num_samples > 256:
        return min(99 if dimension == 1 else 19, settings.max_redraws)
    return min(999 if num_samples <= 64 else 199, settings.max_redraws)


def _is_included(procedure: Procedure, num_samples: int) -> bool:
    """Whether a procedure is applied to data sets of n samples."""
    is_too_expensive = procedure is EXACT_CME and num_samples > 256
    return num_samples >= procedure.min_samples and not is_too_expensive


def simulations(settings: Settings) -> Iterator[tuple[str, Procedure, Simulation]]:
    """All cells with their names, the most expensive ones last."""
    for n in settings.sizes:
        for d in settings.dimensions:
            for kind, procedures in (("estimates", ESTIMATORS), ("tests", TESTS)):
                for procedure in procedures:
                    if not _is_included(procedure, n):
                        continue
                    draws = {
                        "resamples": settings.resamples,
                        "redraws": num_redraws(settings, d, n),
                        "CME redraws": settings.cme_redraws,
                    }
                    for model in MODELS:
                        simulation = Simulation(
                            model,
                            d,
                            n,
                            settings.data_sets,
                            draws.get(procedure.draws),
                            settings.timing,
                        )
                        yield f"{kind}/{model}_d{d}_n{n}_{procedure.slug}", procedure, simulation


def true_values(store: Store, settings: Settings) -> dict[tuple[str, int], np.ndarray]:
    """Estimates of the SKCE of each model and dimension, whose means are taken as its truth."""
    values = {("calibrated", d): np.zeros(1) for d in settings.dimensions}
    data_sets, num_samples = settings.truth
    for d in tqdm(settings.dimensions, desc=f"{NAME}: true SKCE", unit="cell"):
        simulation = Simulation("uncalibrated", d, num_samples, data_sets)
        compute = functools.partial(simulate, UNBIASED, simulation, "truth")
        result = cells.cell(store, f"truth/d{d}", dataclasses.asdict(simulation), compute)
        values["uncalibrated", d] = np.array(result["values"])
    return values


def finished_cells(store: Store, settings: Settings) -> dict[str, list[Cell]]:
    """All simulations, computed or read: "estimates" and "tests"."""
    finished: dict[str, list[Cell]] = {"estimates": [], "tests": []}
    for name, procedure, simulation in (bar := tqdm(list(simulations(settings)), unit="cell")):
        bar.set_description(f"{NAME}: {name}")
        compute = functools.partial(simulate, procedure, simulation, NAME)
        result = cells.cell(store, name, dataclasses.asdict(simulation), compute)
        done = Cell(procedure, simulation, np.array(result["values"]), result["seconds"])
        finished[name.split("/")[0]].append(done)
    return finished


def run(run: command_line.Run) -> None:
    """Runs the experiment."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    errors, tests = (
        {
            model: run.published(NAME, f"{name}_{model}_model.csv", columns=columns)
            for model in MODELS
        }
        for name, columns in PUBLISHED_COLUMNS.items()
    )
    truth = true_values(store, settings)
    finished = finished_cells(store, settings)
    error_rows = write_errors(store.folder, finished["estimates"], truth, errors)
    plot_errors(store.folder, error_rows)
    plot_tests(store.folder, write_tests(store.folder, finished["tests"], tests))


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
