"""How soon are forecasts found that were calibrated, and are so no longer?

Streams of 1500 forecasts, the first 1000 of which are calibrated: `normals` (location uniform on
[0, 1], standard deviation 0.1), `classes` (ten, probabilities from a Dirichlet law with parameters
1/2) and `counts` (Poisson, rate uniform on [1, 9]). Then they are

- `abrupt`: shifted by half a standard deviation; at a temperature of 1.5; more by a fifth;
- `gradual`: the same, growing linearly over the last 500 forecasts, to twice that;
- `in one region`: shifted by 1.5 standard deviations where the location is above 0.8; class 0 half
  as often where it has at least a tenth; more by a half where the rate is above 7;
- `never`: calibrated to the end.

Four procedures watch them: `EProcess` without forgetting, at level 5 %; `EDetector` with a run
length of 5000; `repeated tests`, which compute the p-value of a z-test of the mean residual of the
last 100 forecasts every 20 forecasts and reject at 5 %, as a dashboard may; and `PIT only`, an
`EDetector` with the bet on a shift and scale of all predictions alone (of classes: on a
temperature).

Run: python -m experiments.monitoring [--num-streams 200]
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions, recalibration, streaming
from experiments.harness import cells, command_line
from experiments.harness.tables import note_of, write_table

NAME = "monitoring"
LENGTH, CHANGE = 1500, 1000
DRIFTS = "abrupt", "gradual", "in one region", "never"
EVERY, RECENT = 20, 100  # of repeated tests
BATCH = 50  # streams that are computed at once
BETS = {
    "normals": recalibration.AffineScaling(),
    "classes": recalibration.TemperatureScaling(),
    "counts": recalibration.AffineScaling(),
}


def size_of_drift(drift: str) -> jax.Array:
    """How wrong each forecast is, in units of the abrupt drift, [LENGTH]."""
    times = jnp.arange(LENGTH)
    after = (times >= CHANGE).astype(float)
    if drift == "gradual":
        return after * 2 * (times - CHANGE) / (LENGTH - CHANGE)
    return 0 * after if drift == "never" else after


def stream(family: str, drift: str, key: jax.Array) -> tuple[Any, jax.Array]:
    """Predictions and targets in the order of time."""
    one, two = jax.random.split(key)
    size, local = size_of_drift(drift), drift == "in one region"
    if family == "normals":
        loc = jax.random.uniform(one, (LENGTH,))
        shift = size * (1.5 * (loc > 0.8) if local else 0.5)
        targets = loc + 0.1 * (jax.random.normal(two, (LENGTH,)) + shift)
        return distributions.Normal(loc, jnp.full(LENGTH, 0.1)), targets
    if family == "counts":
        rate = jax.random.uniform(one, (LENGTH,), minval=1.0, maxval=9.0)
        factor = 1 + size * (0.5 * (rate > 7) if local else 0.2)
        return distributions.Poisson(rate), jax.random.poisson(two, rate * factor)
    logits = jax.random.loggamma(one, 0.5, (LENGTH, 10))
    logits = jax.nn.log_softmax(logits, 1)
    if local:
        is_there = size * (logits[:, 0] >= np.log(0.1))
        truth = logits.at[:, 0].add(is_there * np.log(0.5))
    else:
        truth = logits / (1 + 0.5 * size)[:, None]
    return distributions.CategoricalLogits(logits), jax.random.categorical(two, truth)


def residuals(predictions: Any, targets: jax.Array) -> jax.Array:
    """Standardised residuals, with mean 0 and variance 1 under calibration; of the top class."""
    if hasattr(predictions, "class_probs"):
        probs = predictions.class_probs
        top = jnp.max(probs, 1)
        is_right = jnp.argmax(probs, 1) == targets
        return (is_right - top) / jnp.sqrt(jnp.maximum(top * (1 - top), 1e-6))
    mean, variance = jax.vmap(lambda p: (p.mean(), p.variance()))(predictions)
    return (targets - mean) / jnp.sqrt(variance)


def repeated_tests(predictions: Any, targets: jax.Array) -> jax.Array:
    """Number of forecasts after the first rejection; 0 if there is none."""
    sums = jnp.concatenate([jnp.zeros(1), jnp.cumsum(residuals(predictions, targets))])
    ends = jnp.arange(RECENT, LENGTH + 1, EVERY)
    is_rejected = jnp.abs(sums[ends] - sums[ends - RECENT]) / np.sqrt(RECENT) > 1.96
    return jnp.where(jnp.any(is_rejected), ends[jnp.argmax(is_rejected)], 0)


def alarms(family: str, drift: str, keys: jax.Array) -> dict[str, jax.Array]:
    """Number of forecasts until each procedure rejects, of each stream; 0 where it does not."""
    example = jax.tree.map(lambda x: x[:1], stream(family, drift, keys[0])[0])
    process = streaming.EProcess(None, example)
    detectors = {
        "EDetector": streaming.EDetector(None, example),
        "PIT only": streaming.EDetector(BETS[family], example),
    }

    def of_one(key: jax.Array) -> dict[str, jax.Array]:
        data = stream(family, drift, key)
        found = {
            name: watch.result(watch.update(watch.init(), *data)).alarm
            for name, watch in detectors.items()
        }
        wealth = process.result(process.update(process.init(), *data))
        return {
            "EProcess": wealth.crossing,
            **found,
            "repeated tests": repeated_tests(*data),
        }

    return jax.jit(lambda keys: jax.lax.map(of_one, keys, batch_size=BATCH))(keys)


def simulate(family: str, drift: str, num_streams: int) -> dict[str, list[int]]:
    """The alarms as lists."""
    keys = jax.random.split(cells.key_of(f"{NAME}/{family}/{drift}"), num_streams)
    return {name: np.asarray(x).tolist() for name, x in alarms(family, drift, keys).items()}


def rows_of(family: str, drift: str, found: dict[str, list[int]]) -> list[dict[str, Any]]:
    """Lines of the table."""
    rows = []
    for name, values in found.items():
        times = np.array(values)
        early = (times > 0) & (times <= CHANGE)
        late = times > CHANGE
        share = float(np.mean(early))
        delays = np.where(late, times - CHANGE, np.inf)[~early]
        share_late = float(np.mean(late[~early])) if (~early).any() else np.nan
        rows.append(
            {
                "forecasts": family,
                "drift": drift,
                "procedure": name,
                "alarm before 1000": share,
                "SE": float(np.sqrt(share * (1 - share) / len(times))),
                "alarm after, of the others": share_late,
                "SE of it": float(np.sqrt(share_late * (1 - share_late) / max(1, len(delays)))),
                "median delay": float(np.median(delays)) if len(delays) else np.nan,
                "streams": len(times),
            }
        )
    return rows


@command_line.program
def main() -> None:
    """Writes monitoring.csv and .md."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-streams", type=command_line.positive_integer, default=200)
    run, options = command_line.parse(parser)
    store, rows = run.store(NAME, __file__), []
    for family in BETS:
        for drift in DRIFTS:
            compute = functools.partial(simulate, family, drift, options.num_streams)
            found = cells.cell(
                store, f"{family}/{drift}", {"streams": options.num_streams}, compute
            )
            rows += rows_of(family, drift, found)
    note = note_of(__file__, "note", number=options.num_streams)
    write_table(store.folder, NAME, rows, note, show=True)


if __name__ == "__main__":
    main()
