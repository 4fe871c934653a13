"""Power of the tests beside that of the likelihood ratio test, which no test exceeds.

Every alternative is a known law of the targets given the predictions. The most powerful test
against it (Neyman and Pearson) ranks its likelihood ratio among those of targets drawn from the
predictions; it is no test that anybody could use, but a bound. Data sets with the same predictions
share their redraws, which changes no p-value. Cells are stored, so that a run that was interrupted
goes on where it was.

Run: python -m experiments.power.bound [--only normals …] [--sizes 64 …] [--output DIR]
"""

from tqdm import tqdm

from experiments.harness import command_line
from experiments.harness.command_line import program
from experiments.harness.tables import note_of, write_table
from experiments.power.bound import bound_figures
from experiments.power.bound.models import MODELS
from experiments.power.bound.shared_redraws import DRAWS
from experiments.power.bound.simulation import ALPHA, BOUND, NUM_SAMPLES, is_stored, rates, size_of
from experiments.power.bound.tables import bars, rows


@program
def main() -> None:
    """Writes the tables power_bound and power_bound_bars, and the figure."""
    parser = command_line.option_parser(__file__, __doc__, only=MODELS)
    parser.add_argument("--sizes", type=int, nargs="+", choices=NUM_SAMPLES, default=NUM_SAMPLES)
    parser.add_argument("--stored", action="store_true", help="tables of finished cells only")
    run, options = command_line.parse(parser)
    store = run.store("power/bound", __file__)
    cases = [(name, n) for name in options.only for n in options.sizes if size_of(name, n)]
    if options.stored:
        cases = [case for case in cases if is_stored(store, *case)]
    found = {case: rates(store, *case) for case in tqdm(cases, unit="case")}
    folder = run.folder("power")
    write_table(
        folder,
        "power_bound",
        rows(found),
        note_of(__file__, "note", level=100 * ALPHA, draws=DRAWS, bound=BOUND),
    )
    note = (
        "From the table power_bound, as shares. Within two standard errors of a bar counts as met; "
        "cells of n >= 16 where the aggregated test is further below the best other than the bar."
    )
    write_table(folder, "power_bound_bars", bars(found), note, show=True)
    bound_figures.draw(folder, found)


if __name__ == "__main__":
    main()
