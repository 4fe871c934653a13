"""W19 §7.1 and App. J.2.3, Fig. 1 and 3 to 34: distributions of calibration error estimates.

For m in {2, 10, 100, 1000} classes, a in {0.1, 1}, shares π and label distributions β, these are
the 10 000 data sets that the authors drew, of 250 predictions Dir(a, …, a) each. W19 shows the
estimates as histograms; the tables compare means and histograms of all 640 panels with those in the
plot sources of the authors (`estimates_panels.csv`), where all data sets are there. The median
heuristic is the median over the full matrix of distances, its zero diagonal included, as in the
code of the paper. All is in float64.

One panel of two classes is compared with the published one in all presets: `check.csv`.

`--only figure_1` computes Fig. 1 alone, `--only m1000` the cells of 1000 classes; tables and
figures hold what was chosen.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from experiments.harness import command_line
from experiments.harness.cells import Store
from paper_repro.w19.authors_data import MODELS, NUM_DATA_SETS, Model, finished
from paper_repro.w19.estimates_figures import plot_all, plot_first
from paper_repro.w19.estimates_panels import CONCENTRATIONS, write_check, write_panels
from paper_repro.w19.estimates_simulation import LABELLINGS, NAME, simulate
from paper_repro.w19.estimates_tables import Group, write_tables

FIRST = MODELS["M1"][:2]  # m and a of the models of Fig. 1


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        classes: numbers of classes m.
        data_sets: number of data sets of each model.
        figures: number of Fig. 3 to 34 that are drawn, from the first.
    """

    classes: tuple[int, ...]
    data_sets: int
    figures: int = 32


SETTINGS = {
    "quick": Settings((2,), 50, figures=1),
    "medium": Settings((2, 10, 100, 1000), 500),
    "paper": Settings((2, 10, 100, 1000), NUM_DATA_SETS),
}
PARTS = ("figure_1", *(f"m{m}" for m in SETTINGS["paper"].classes))


def finished_group(store: Store, settings: Settings, num_classes: int, a: float) -> Group:
    """Results of one m and a, computed or read; the data of a cell have at most 200 MB."""
    sizes = settings.data_sets, min(500, 100_000 // num_classes)
    estimates = []
    for labelling in LABELLINGS:
        model = Model(num_classes, a, *labelling)
        results = finished(store, model.name, *sizes, functools.partial(simulate, model))
        estimates.append(results["estimates"])
    return Group(num_classes, a, np.stack(estimates, 1))


def run(run: command_line.Run, parts: Sequence[str] = PARTS) -> None:
    """Runs the experiment, or some of its parts."""
    settings, store = SETTINGS[run.preset or ""], run.store(NAME, __file__)
    write_check(store.folder)
    wanted = [(m, a) for m in settings.classes if f"m{m}" in parts for a in CONCENTRATIONS]
    if "figure_1" in parts and FIRST not in wanted:
        wanted.append(FIRST)
    groups = [finished_group(store, settings, *group) for group in wanted]
    if "figure_1" in parts:
        plot_first(store.folder, next(group for group in groups if group.place == FIRST))
    if any(part != "figure_1" for part in parts):
        write_tables(store.folder, groups)
        write_panels(store.folder, groups)
        plot_all(store.folder, groups, settings.figures)


@command_line.program
def main() -> None:
    """Runs the chosen parts from the command line, in float64."""
    parser = command_line.option_parser(__file__, __doc__, presets=command_line.PRESETS, only=PARTS)
    chosen, options = command_line.parse(parser)
    command_line.set_up(chosen)
    run(chosen, [part for part in PARTS if part in options.only])


if __name__ == "__main__":
    main()
