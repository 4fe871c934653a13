"""Runs the experiments of the papers: `python -m paper_repro --preset quick`."""

import time

import jax

from paper_repro import (
    cells,
    g24_networks,
    g24_simulation,
    l21_crime,
    l21_networks,
    w19_estimates,
    w19_networks,
    w19_tests,
    w19_timings,
    w21_friedman,
    w21_ols,
    w21_synthetic,
)

MODULES = (
    w19_estimates,
    w19_tests,
    w19_networks,
    w19_timings,
    w21_ols,
    w21_synthetic,
    w21_friedman,
    l21_crime,
    l21_networks,
    g24_simulation,
    g24_networks,
)
EXPERIMENTS = {module.NAME: module.run for module in MODULES}


@cells.program
def main() -> None:
    """Runs the chosen experiments one after the other, in float64."""
    description = f"Experiments: {', '.join(EXPERIMENTS)}; --only NAME ... chooses among them."
    run, names = cells.parse(None, "paper_repro", description, list(EXPERIMENTS))
    jax.config.update("jax_enable_x64", True)
    for i, name in enumerate(names, start=1):
        cells.log(f"[{i}/{len(names)}] {name}, preset {run.preset}")
        start = time.perf_counter()
        EXPERIMENTS[name](run)
        cells.log(f"[{i}/{len(names)}] {name} took {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
