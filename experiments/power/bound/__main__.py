"""Power of the tests beside that of the likelihood ratio test, which no test exceeds.

Run: python -m experiments.power.bound [--only normals …] [--sizes 64 …] [--output DIR]
"""

from tqdm import tqdm

from experiments.harness import command_line
from experiments.harness.command_line import program
from experiments.power.bound.models import MODELS
from experiments.power.bound.simulation import SIZES, rates


@program
def main() -> None:
    """Writes the tables power_bound and power_bars, and the figure."""
    parser = command_line.option_parser(__file__, __doc__, only=MODELS)
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, default=[*SIZES])
    run, options = command_line.parse(parser)
    store = run.store("power/bound", __file__)
    found = {}
    for n in tqdm(options.sizes):
        for name in options.only:
            found[name, n] = rates(store, name, n, SIZES[n])
            print(name, n, {t: [round(100 * r.rate) for r in x.values()] for t, x in found[name, n].items()}, flush=True)


if __name__ == "__main__":
    main()
