"""Power of e-processes in the simulation of Arnold, Henzi and Ziegel (2023).

Targets are standard normal, forecasts N(bias, 1 + dispersion), n = 180, 360 and 720, as in the
replication material of the R package epit (`simulate_pit`, `epit_sim_parameters.R`). Three
procedures at level 5 %:

- `default bets`: `e_process`, ever at least 20 up to n; one may look at it after every forecast;
- `shift and scale`: the same with this bet alone, whose alternative contains the truth;
- `KS test`: of the PIT values of all n, at which one may look once, as in the paper.

The paper shows its powers in colours, and the package has the numbers in a binary file only, so
that there are none to set beside these.

Run: python -m experiments.epit [--num-streams 200]
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from calibjax import distributions, hypothesis_tests, recalibration
from experiments.harness import cells, command_line
from experiments.harness.tables import note_of, write_table

NAME = "monitoring"
SIZES = 180, 360, 720
BIASES = 0.0, 0.1, 0.3, 0.5
DISPERSIONS = -0.5, -0.3, 0.0, 0.3, 0.5
LEVEL = 0.05
BETS: dict[str, Any] = {
    "default bets": None,
    "shift and scale": {"shift and scale": recalibration.AffineScaling()},
}
BATCH = 50  # streams that are computed at once


@functools.partial(jax.jit, static_argnames="name")
def crossings(name: str, predictions: Any, targets: jax.Array) -> jax.Array:
    """The number of forecasts after which each stream is rejected, 0 if it is not, [streams]."""

    def crossing(y: jax.Array) -> jax.Array:
        return hypothesis_tests.e_process(BETS[name], predictions, y, level=LEVEL).crossing

    return jax.lax.map(crossing, targets, batch_size=BATCH)


def simulate(bias: float, dispersion: float, num_streams: int) -> dict[str, list[int]]:
    """How many streams each procedure rejects, by n."""
    shape = num_streams, max(SIZES)
    scale = np.sqrt(1 + dispersion)
    targets = jax.random.normal(cells.key_of(f"epit/{bias}/{dispersion}"), shape)
    predictions = distributions.Normal(jnp.full(shape[1], bias), jnp.full(shape[1], scale))
    found = {}
    for name in BETS:
        times = np.asarray(crossings(name, predictions, targets))
        found[name] = [int(np.sum((times > 0) & (times <= n))) for n in SIZES]
    pit = stats.norm.cdf(np.asarray(targets), bias, scale)
    found["KS test"] = [
        int(np.sum(stats.kstest(pit[:, :n], "uniform", axis=1).pvalue <= LEVEL)) for n in SIZES
    ]
    return found


@command_line.program
def main() -> None:
    """Writes epit.csv and .md."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-streams", type=command_line.positive_integer, default=200)
    run, options = command_line.parse(parser)
    store, rows, number = run.store(NAME, __file__), [], options.num_streams
    for bias in BIASES:
        for dispersion in DISPERSIONS:
            compute = functools.partial(simulate, bias, dispersion, number)
            name = f"epit/{bias}/{dispersion}"
            for procedure, counts in cells.cell(store, name, {"streams": number}, compute).items():
                row = {"bias": bias, "dispersion": dispersion, "procedure": procedure}
                rows.append(
                    row | {f"n = {n}": x / number for n, x in zip(SIZES, counts, strict=True)}
                )
    error = f"{0.5 / np.sqrt(number):.3f}"
    note = note_of(__file__, "note", number=number, error=error)
    write_table(store.folder, "epit", rows, note, show=True)


if __name__ == "__main__":
    main()
