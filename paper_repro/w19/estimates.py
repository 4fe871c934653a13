"""W19 §7.1 and App. J.2.3, Fig. 1 and 3 to 34: distributions of calibration error estimates.

For m in {2, 10, 100, 1000} classes and a in {0.1, 1}, 10⁴ data sets of 250 predictions Dir(a, …, a)
are drawn, and for each of them labels of all shares π and label distributions β, so that the data
sets of one cell are independent and those of different cells share predictions. W19 shows the
estimates as histograms; here there are tables of them as well, with the analytic ECE and with the
expectation of the SKCE estimators given the predictions, which is known exactly. With --data the
preset `paper` compares means and true values of all 640 panels with those in the plot sources of
the authors (`w19_published/panel_means.csv`). The median heuristic is the median over the full
matrix of distances, its zero diagonal included, as in the code of the paper. All is in float64.

`--only figure_1` computes Fig. 1 alone, `--only m1000` the cells of 1000 classes; tables and
figures hold what was chosen.
"""

import dataclasses
import functools
import os
import resource
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
from tqdm import tqdm

from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.messages import log
from paper_repro.w19.estimates_figures import plot_all, plot_first
from paper_repro.w19.estimates_panels import biases, read_panels, write_panels
from paper_repro.w19.estimates_simulation import NAME, Chunk, compiled, simulate
from paper_repro.w19.estimates_tables import Group, write_tables
from paper_repro.w19.simulation import CONCENTRATION, NUM_CLASSES

CONCENTRATIONS = (0.1, 1.0)
FIRST = (NUM_CLASSES, CONCENTRATION)  # the models of Fig. 1


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        classes: numbers of classes m.
        chunks: number of chunks of data sets for each m and a, each a cell.
        chunk_size: number of data sets of predictions in a chunk.
        num_samples: n of each data set.
        figures: number of Fig. 3 to 34 that are drawn, from the first.
    """

    classes: tuple[int, ...]
    chunks: int
    chunk_size: int
    num_samples: int
    figures: int = 32


SETTINGS = {
    "quick": Settings((10,), 2, 10, 100, figures=1),
    "paper": Settings((2, 10, 100, 1000), 100, 100, 250),
}
PARTS = ("figure_1", *(f"m{m}" for m in SETTINGS["paper"].classes))


def chunks(settings: Settings, num_classes: int, concentration: float) -> list[Chunk]:
    """Chunks of one m and a."""
    sizes = settings.chunk_size, settings.num_samples
    return [Chunk(num_classes, concentration, i, *sizes) for i in range(settings.chunks)]


def _finished_cell(store: Store, chunk: Chunk) -> dict[str, Any]:
    with jax.enable_x64(True):  # which is a setting of each thread
        compute = functools.partial(simulate, chunk)
        return cells.cell(store, chunk.name, dataclasses.asdict(chunk), compute)


def finished_group(store: Store, settings: Settings, num_classes: int, a: float) -> Group:
    """Results of one m and a, computed by one thread for each core, or read."""
    todo = chunks(settings, num_classes, a)
    with jax.enable_x64(True):
        compiled(settings.chunk_size, settings.num_samples, num_classes)
    # Memory grows with the threads, by some 0.4 GB each for 1000 classes.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as threads:
        finished = threads.map(functools.partial(_finished_cell, store), todo)
        bar = tqdm(finished, desc=f"{NAME}: m = {num_classes}, a = {a}", total=len(todo))
        return Group.from_cells(num_classes, a, list(bar))


def run(run: command_line.Run, parts: Sequence[str] = PARTS) -> None:
    """Runs the experiment, or some of its parts; published are the panels of the full size."""
    start, cpu_start = time.perf_counter(), time.process_time()
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    wanted = [(m, a) for m in settings.classes if f"m{m}" in parts for a in CONCENTRATIONS]
    if "figure_1" in parts and FIRST not in wanted:
        wanted.append(FIRST)
    groups = [finished_group(store, settings, *group) for group in wanted]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    log(f"{NAME}: {seconds:.0f} s, {cpu:.0f} s of CPU time, at most {memory:.2f} GB")
    if "figure_1" in parts:
        plot_first(store.folder, next(group for group in groups if group.place == FIRST))
    if any(part != "figure_1" for part in parts):
        is_full_size = settings.num_samples == SETTINGS["paper"].num_samples
        published = read_panels(run) if is_full_size else None
        write_tables(store.folder, groups, published and biases(published))
        if published:
            write_panels(store.folder, groups, published)
        plot_all(store.folder, groups, settings.figures)


@command_line.program
def main() -> None:
    """Runs the chosen parts from the command line, in float64."""
    options = {"presets": command_line.PRESETS, "data": "optional", "only": PARTS}
    parser = command_line.option_parser(__file__, __doc__, **options)
    chosen, options = command_line.parse(parser)
    command_line.set_up(chosen)
    run(chosen, [part for part in PARTS if part in options.only])


if __name__ == "__main__":
    main()
