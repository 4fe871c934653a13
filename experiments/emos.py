"""Real temperature forecasts after EMOS, watched day by day.

The data are 2749 minimum temperatures with 11-member ensembles (`temp.csv` of the R package
ensemblepp), in the order of the file, which has no dates and leaves out days. Forecasts are made 18
to 30 hours ahead, so that the last but one temperature is the newest that is known: horizon 2, in
what watches as in what is fitted. Three forecasts are watched from row 367 on:

- `ensemble`: the members as they are, exchangeable with the temperature if all is well;
- `EMOS, once`: N(a + b m, c² + d² s²), with mean m and variance s² of the members, fitted by the
  mean CRPS to the first 365 rows;
- `EMOS, again`: the same, fitted after every 30 rows to the last 365 that are known.

Procedures: `EProcess` at level 5 %, and `EDetector` with a run length of 5000, which is started
anew after every alarm: calibrated forecasts have no alarm in more than half of such series.

Run: python -m experiments.emos --data DIR [--output DIR]
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.optimize import minimize

from calibjax import distributions, scores, streaming
from experiments.ensemble_scaling import read
from experiments.harness import command_line
from experiments.harness.messages import log
from experiments.harness.tables import note_of, write_table

NAME = "monitoring"
WINDOW = 365  # rows that are fitted to
HORIZON = 2
EVERY = 30  # rows, after which it is fitted again
STEPS = 30  # of BFGS
BLOCK = 50  # rows that are watched at once
LEVEL = 0.05


def normal(params: jax.Array, members: jax.Array) -> distributions.Normal:
    """N(a + b m, c² + d² s²) of ensembles [n, m]."""
    a, b, c, d = params
    mean, variance = members.mean(1), members.var(1, ddof=1)
    return distributions.Normal(a + b * mean, jnp.sqrt(c**2 + d**2 * variance))


def fitted(start: jax.Array, members: jax.Array, observed: jax.Array) -> jax.Array:
    """a, b, c and d with the least mean CRPS."""

    def loss(params: jax.Array) -> jax.Array:
        return scores.crps(normal(params, members), observed)

    return minimize(loss, start, method="BFGS", options={"maxiter": STEPS}).x


@jax.jit
def again(params: jax.Array, members: jax.Array, observed: jax.Array) -> distributions.Normal:
    """Forecasts from row WINDOW + HORIZON − 1 on, fitted again after every EVERY rows."""

    def one(start: jax.Array) -> jax.Array:
        past = (jax.lax.dynamic_slice_in_dim(x, start, WINDOW) for x in (members, observed))
        return fitted(params, *past)

    later = members[WINDOW + HORIZON - 1 :]
    found = jax.lax.map(one, jnp.arange(0, len(later), EVERY), batch_size=16)
    return normal(jnp.repeat(found, EVERY, 0)[: len(later)].T, later)


def alarms(detector: streaming.EDetector, predictions: Any, targets: jax.Array) -> list[int]:
    """Rows of all alarms, after each of which the detector starts anew."""
    number, found, start = len(targets), [], 0
    # The last block is whole, too; alarms in what is added do not count.
    data = jax.tree.map(lambda x: jnp.concatenate([x, x[:BLOCK]]), (predictions, targets))
    while True:
        state, alarm = detector.init(), 0
        for place in range(start, number, BLOCK):
            block = jax.tree.map(lambda x, place=place: x[place : place + BLOCK], data)
            state = detector.update(state, *block)
            if alarm := int(detector.result(state).alarm):
                break
        if alarm == 0 or start + alarm > number:
            return found
        start += alarm
        found.append(start)


def row(name: str, predictions: Any, targets: jax.Array) -> dict[str, Any]:
    """A line of the table."""
    options = {"horizon": HORIZON}
    log(f"{name}: {len(targets)} rows")
    process = streaming.EProcess(None, predictions, level=LEVEL, **options)
    result = process.result(process.update(process.init(), predictions, targets))
    detector = streaming.EDetector(None, predictions, **options)
    places = alarms(detector, predictions, targets)
    return {
        "forecasts": name,
        "rows": len(targets),
        "CRPS, °C": float(scores.crps(predictions, targets)),
        "p-value": float(result.pvalue),
        "first rejected after": int(result.crossing),
        "log wealth": float(result.log_wealth),
        "earned most": result.earned_most,
        "alarms": len(places),
        "first alarm after": places[0] if places else 0,
    }


@command_line.program
def main() -> None:
    """Writes emos.csv and .md."""
    parser = command_line.option_parser(__file__, __doc__, data="required")
    run, _ = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    observed, members = (jnp.asarray(x) for x in read(run.data))
    first = WINDOW + HORIZON - 1
    params = jax.jit(fitted)(jnp.array([0.0, 1, 1, 1]), members[:WINDOW], observed[:WINDOW])
    forecasts = {
        "ensemble": distributions.Samples(members[first:]),
        "EMOS, once": normal(params, members[first:]),
        "EMOS, again": again(params, members, observed),
    }
    rows = [row(name, p, observed[first:]) for name, p in forecasts.items()]
    write_table(run.folder(NAME), "emos", rows, note_of(__file__, "note"), show=True)


if __name__ == "__main__":
    main()
