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
from experiments.harness.tables import write_table
from experiments.power.bound import bound_figures
from experiments.power.bound.models import MODELS
from experiments.power.bound.shared_redraws import DRAWS
from experiments.power.bound.simulation import ALPHA, BOUND, NUM_SAMPLES, is_stored, rates, size_of
from experiments.power.bound.tables import bars, rows

NOTE = f"""Rejections in percent at level {100 * ALPHA:.0f} %, {DRAWS} draws. {BOUND}: the test that
knows the alternative, with its critical value from 999 draws. Data sets: sets of predictions x data
sets that share these; standard errors are those between sets of predictions. normals: N(m, 0.1²), m
uniform on [0, 1]; heteroscedastic: the same with log scales of standard deviation 0.5; the error of
the targets in units of the scale is e ± 0.3, 1.4 e, 0.7 e, e ± 2 for 0.4 < m < 0.5,
e + 0.8 sin 8πm, ±0.9 + √0.19 e, a gamma variable of shape 4 (skewness 1) or its mirror image,
e exp(±0.35 s) with the standardised log scale s. binary: logit N(0, 1.5²), of which 1/T times or
± 0.3 is true; p ± 0.15 for 0.6 < p < 0.8, p + 0.1 sin 6πp. classes: Dirichlet(½); labels ∝ p^(1/T),
first class times a factor, 15 % uniform, 60 % of the second and third exchanged. counts: negative
binomial, log rates N(log 4, 0.7²), concentration 4; other rates and concentrations, rates between 4
and 6 times 2 or 1/2, rates times exp(0.4 sin(4 log rate)).
median heuristic: `exact_skce_test` with one kernel; score test: with `Fisher` of a temperature, or
of shift and scale. Made by `python -m experiments.power.bound`."""


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
    write_table(folder, "power_bound", rows(found), NOTE)
    note = (
        "From the table power_bound, as shares. Within two standard errors of a bar counts as met; "
        "cells of n >= 16 where the aggregated test is further below the best other than the bar."
    )
    write_table(folder, "power_bound_bars", bars(found), note, show=True)
    bound_figures.draw(folder, found)


if __name__ == "__main__":
    main()
