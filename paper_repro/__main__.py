"""Runs the experiments of the papers: `python -m paper_repro --preset quick`."""

import time
from types import ModuleType

import paper_repro.g24.networks
import paper_repro.g24.simulation
import paper_repro.l21.crime
import paper_repro.l21.networks
import paper_repro.w19.estimates
import paper_repro.w19.networks
import paper_repro.w19.tests
import paper_repro.w19.timings
import paper_repro.w21.friedman
import paper_repro.w21.ols
import paper_repro.w21.synthetic
from experiments.harness import command_line
from experiments.harness.messages import log

MODULES: tuple[ModuleType, ...] = (
    paper_repro.w19.estimates,
    paper_repro.w19.tests,
    paper_repro.w19.networks,
    paper_repro.w19.timings,
    paper_repro.w21.ols,
    paper_repro.w21.synthetic,
    paper_repro.w21.friedman,
    paper_repro.l21.crime,
    paper_repro.l21.networks,
    paper_repro.g24.simulation,
    paper_repro.g24.networks,
)
EXPERIMENTS = {module.NAME: module.run for module in MODULES}


@command_line.program
def main() -> None:
    """Runs the chosen experiments one after the other, in float64."""
    parser = command_line.option_parser(
        __file__,
        __doc__,
        presets=command_line.PRESETS,
        data="optional",
        npz=True,
        only=EXPERIMENTS,
    )
    run, options = command_line.parse(parser)
    names = [name for name in EXPERIMENTS if name in options.only]
    reader = paper_repro.l21.networks.NAME
    if run.npz and reader not in names:
        parser.error(f"argument --npz: only {reader} reads it, got --only {' '.join(names)}")
    command_line.set_up(run)
    for i, name in enumerate(names, start=1):
        log(f"[{i}/{len(names)}] {name}, preset {run.preset}")
        start = time.perf_counter()
        EXPERIMENTS[name](run)
        log(f"[{i}/{len(names)}] {name} took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
