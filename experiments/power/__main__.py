"""Tests of calibration where their assumptions fail, or few samples are all there is.

Ensembles of few members, and calibrated but dependent data. Power against many alternatives is in
`experiments.power.bound`. All tests see the same data sets. Cells are stored, so that a run that
was interrupted goes on where it was.

Run: python -m experiments.power [--num-datasets 500] [--only clusters …] [--output DIR]
"""

from experiments.harness import command_line
from experiments.harness.command_line import program
from experiments.harness.tables import note_of, write_table
from experiments.power import dependence, ensembles
from experiments.power.simulation import ALPHA, DRAWS, Study, rates
from experiments.power.tables import table

KINDS: dict[str, tuple[Study, ...]] = {
    "ensembles": ensembles.ENSEMBLES,
    "clusters": (dependence.CLUSTERS,),
    "horizons": (dependence.HORIZON,),
    "one_step": (dependence.ONE_STEP,),
}
MODULES = {
    ensembles.__file__: ("ensembles",),
    dependence.__file__: ("clusters", "horizons", "one_step"),
}


@program
def main() -> None:
    """Writes the tables power_NAME."""
    parser = command_line.option_parser(__file__, __doc__, only=KINDS)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=500)
    run, options = command_line.parse(parser)
    folder = run.folder("power")
    for file, kinds in MODULES.items():
        for kind in (kind for kind in kinds if kind in options.only):
            lines = []
            for study in KINDS[kind]:
                # A change of one study leaves the cells of the others as they are.
                store = run.store(f"power/{study.name}", file)
                found = rates(store, study, options.num_datasets)
                members = {"members": study.settings[0]} if kind == "ensembles" else {}
                lines += [members | line for line in table(study, found)]
            values = {"level": 100 * ALPHA, "draws": DRAWS, "number": options.num_datasets}
            note = note_of(__file__, "all", kind=note_of(__file__, kind).strip(), **values)
            write_table(folder, f"power_{kind}", lines, note, show=True)


if __name__ == "__main__":
    main()
