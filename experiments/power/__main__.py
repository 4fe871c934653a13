"""Tests of calibration where their assumptions fail, or few samples are all there is.

The models of W21 with four samples; ensembles of few members; calibrated but dependent data; and a
posterior that is the prior. Power against many alternatives is in `experiments.power.bound`. All
tests see the same data sets. Cells are stored, so that a run that was interrupted goes on where it
was.

Run: python -m experiments.power [--num-datasets 500] [--only w21 …] [--output DIR]
"""

from experiments.harness import command_line
from experiments.harness.command_line import program
from experiments.harness.tables import write_table
from experiments.power import dependence, ensembles, posteriors, w21
from experiments.power.simulation import ALPHA, DRAWS, Study, rates
from experiments.power.tables import Found, bars, table

NOTES = {
    "w21": "The models of W21 (App. A.2) in one dimension. Median heuristic: exp(-W²/(2 l²)) times "
    "exp(-(y - z)²/(2 s²)), l the median Wasserstein distance of two predictions, s the median "
    "predicted standard deviation; exponential: exp(-W/l) instead; W21: exp(-W) exp(-(y - z)²/2).",
    "ensembles": "m members N(c, 1), c standard normal; targets N(c, 1) shifted by 0.5, with "
    "standard deviation 1.5 (ensembles too narrow) and 0.67 (too wide), and shifted by 0.5 times "
    "the sign of c. Median heuristic as for w21, from the pool of members and target. "
    f"aggregated_skce_test up to {ensembles.LARGEST_AGGREGATED} members only, since it is "
    "slow beyond when it is compiled for traced values, as here.",
    "clusters": f"Calibrated predictions N(m, 0.1²); {dependence.NUM_CLUSTERS} clusters of 5, with "
    "this correlation of the errors within a cluster; m uniform on [0, 1], drawn for each sample "
    "(unrelated predictions) or each cluster (one prediction). Kernel: median heuristic.",
    "horizons": "Calibrated forecasts N(φ^h x_t, Σ_{i<h} φ^{2i}) of an AR(1) with φ = 0.9 at every "
    "step. Kernel: median heuristic.",
    "one_step": "Calibrated one-step-ahead forecasts N(φ x_t, 1) of an AR(1) that starts at zero. "
    "Kernel: median heuristic.",
    "posteriors": "Parameter θ standard normal, data x = θ + standard normal noise. Kernels: "
    "exp(-W) on the predictions, exp(-(x - x')²/2) on the features, times exp(-(y - z)²/2).",
}
KINDS: dict[str, tuple[Study, ...]] = {
    "w21": (w21.W21,),
    "ensembles": ensembles.ENSEMBLES,
    "clusters": (dependence.CLUSTERS,),
    "horizons": (dependence.HORIZON,),
    "one_step": (dependence.ONE_STEP,),
    "posteriors": (posteriors.POSTERIORS,),
}
MODULES = {
    w21.__file__: ("w21",),
    ensembles.__file__: ("ensembles",),
    dependence.__file__: ("clusters", "horizons", "one_step"),
    posteriors.__file__: ("posteriors",),
}


@program
def main() -> None:
    """Writes the tables power_NAME, and with all of them power_bars."""
    parser = command_line.option_parser(__file__, __doc__, only=KINDS)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=500)
    run, options = command_line.parse(parser)
    folder, found = run.folder("power"), []
    for file, kinds in MODULES.items():
        for kind in (kind for kind in kinds if kind in options.only):
            lines = []
            for study in KINDS[kind]:
                # A change of one study leaves the cells of the others as they are.
                store = run.store(f"power/{study.name}", file)
                found.append((study, rates(store, study, options.num_datasets)))
                members = {"members": study.settings[0]} if kind == "ensembles" else {}
                lines += [members | line for line in table(*found[-1])]
            note = (
                f"Rejections in percent at level {100 * ALPHA:.0f} %, {DRAWS} draws. Data sets: of "
                "calibrated data / of others, where the numbers differ; the standard error is that "
                "of a rate of 50 % of the smaller number. Undefined: data sets without p-value, "
                f"counted as not rejected. {NOTES[kind]} Made by `python -m experiments.power "
                f"--num-datasets {options.num_datasets}`."
            )
            write_table(folder, f"power_{kind}", lines, note, show=True)
    rates_found = Found(found)
    if {*options.only} == {*KINDS}:
        note = "From the other tables, as shares; s.e. of levels: of a rate of 0.05."
        write_table(folder, "power_bars", bars(rates_found), note, show=True)


if __name__ == "__main__":
    main()
