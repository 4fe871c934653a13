"""Runs the experiments of the papers: `python -m paper_repro --preset quick`."""

import argparse
import time
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import paper_repro.g24.networks
import paper_repro.g24.simulation
import paper_repro.l21.crime
import paper_repro.l21.networks
import paper_repro.w19.estimates
import paper_repro.w19.networks
import paper_repro.w19.rejections
import paper_repro.w19.timings
import paper_repro.w21.friedman
import paper_repro.w21.ols
import paper_repro.w21.synthetic
from experiments.harness import command_line
from experiments.harness.messages import log

MODULES: tuple[ModuleType, ...] = (
    paper_repro.w19.estimates,
    paper_repro.w19.rejections,
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
PAPERS = "w19", "w21", "l21", "g24"  # for all experiments of one


class About(NamedTuple):
    """What an experiment makes, the folders of --data that it reads, and about how long it takes.

    Attributes:
        makes: figures and tables, numbered as in its paper.
        data: what it reads.
        time: of the preset `paper` on one core.
    """

    makes: str
    data: str
    time: str


_NETWORKS = "cifar10_networks, cifar10_logits, cifar100_logits"
ABOUT = {
    "w19_estimates": About("W19 Fig. 1, 3-34", "nothing", "hours"),
    "w19_tests": About("W19 Fig. 2", "nothing", "an hour"),
    "w19_networks": About("W19 Fig. 35, 36", "cifar10_networks", "8 minutes"),
    "w19_timings": About("W19 Fig. 37", "nothing", "7 minutes"),
    "w21_ols": About("W21 Fig. 1, 4, 5", "nothing", "35 seconds"),
    "w21_synthetic": About("W21 Fig. 2, 6-11", "nothing", "40 minutes"),
    "w21_friedman": About("W21 Fig. 3, 12", "w21_friedman, for the agreement", "30 minutes"),
    "l21_crime": About("L21 Tables 1-3, Fig. 5, 17", "communities_crime", "20 minutes"),
    "l21_networks": About("L21 Table 4, Fig. 1, 2, 4, 8, 9, 14-16", _NETWORKS, "an hour"),
    "g24_simulation": About("G24 Fig. 1", "nothing", "2 minutes"),
    "g24_networks": About("G24 Tables 1-3, 5, Fig. 2-4", _NETWORKS, "two hours"),
}


def list_of_experiments() -> str:
    """The end of the help: a paragraph for each experiment."""
    lines = [
        "experiments, with the time that the preset paper takes on one core (quick takes about",
        "two minutes for all of them, medium about ten for one), and what of --data they read:",
    ]
    for name, about in ABOUT.items():
        lines.append(f"  {name:<16}{about.makes}; {about.time}")
        lines.append(f"{'':<18}reads {about.data}")
    return "\n".join([*lines, "", "It is run in the root of the repository."])


def chosen(only: Sequence[str]) -> list[str]:
    """The experiments of these names and papers, in their order."""
    return [name for name in EXPERIMENTS if name.startswith(tuple(only))]


@command_line.program
def main() -> None:
    """Runs the chosen experiments one after the other, in float64."""
    parser = command_line.option_parser(
        __file__,
        __doc__,
        presets=command_line.PRESETS,
        data="optional",
        only=[*EXPERIMENTS, *PAPERS],
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = list_of_experiments()
    run, options = command_line.parse(parser)
    names = chosen(options.only)
    command_line.set_up(run)
    for i, name in enumerate(names, start=1):
        log(f"[{i}/{len(names)}] {name}, preset {run.preset}")
        start = time.perf_counter()
        EXPERIMENTS[name](run)
        log(f"[{i}/{len(names)}] {name} took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
