"""W19 App. J.4, Fig. 37: time of one evaluation of each calibration error estimator.

Data sets are calibrated, with predictions uniform on the simplex, as in the authors' code. Their
ten numbers of samples are not published; ours are evenly spaced on a log scale from 10 to 1000.
Estimators are the functions of `calibjax`, compiled, in float64; times are minima over repeated
calls on the same data. Those of the SKCE are measured with the length scale given, as the authors
do, who compute the median before, and with the median heuristic included.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import distances, estimators, kernels
from calibjax.distributions import Categorical
from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.tables import write_table
from paper_repro.w19.estimates_simulation import MIN_BIN_SIZE
from paper_repro.w19.simulation import BINS_PER_CLASS, w19_kernel
from paper_repro.w19.timings_figures import plot

NAME = "w19_timings"
MAX_REPETITIONS = 1000


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        classes: numbers of classes m.
        sizes: numbers of samples n.
        seconds: spent on timing each estimator for each n and m, at least three calls.
    """

    classes: tuple[int, ...]
    sizes: tuple[int, ...]
    seconds: float


SETTINGS = {
    "quick": Settings((10,), (100,), 0.01),
    "paper": Settings((2, 10, 100, 1000), (10, 17, 28, 46, 77, 129, 215, 359, 599, 1000), 1.0),
}


def _with_scale(estimator: Callable, predictions: Any, labels: Any, scale: Any) -> jax.Array:
    return estimator(w19_kernel(scale), predictions, labels)


def _with_heuristic(estimator: Callable, predictions: Any, labels: Any, scale: Any) -> jax.Array:
    scale = kernels.median_heuristic(distances.TotalVariation(), predictions)
    return estimator(w19_kernel(scale), predictions, labels)


def _ece(binning: Callable, predictions: Any, labels: Any, scale: Any) -> jax.Array:
    return estimators.ece(predictions, labels, binning=binning)


ECES = {
    "ECE, uniform bins": estimators.UniformBins(BINS_PER_CLASS),
    "ECE, data-dependent bins": estimators.MedianVarianceBins(MIN_BIN_SIZE),
}
SKCES = {
    "SKCE_b": estimators.skce_biased,
    "SKCE_uq": estimators.skce,
    "SKCE_ul": functools.partial(estimators.skce_block, block_size=2),
}
HEURISTIC = "with median heuristic"
# Functions of (predictions, labels, scale).
PROCEDURES: dict[str, Callable] = {
    **{label: functools.partial(_ece, binning) for label, binning in ECES.items()},
    **{label: functools.partial(_with_scale, f) for label, f in SKCES.items()},
    **{f"{label} {HEURISTIC}": functools.partial(_with_heuristic, f) for label, f in SKCES.items()},
}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What is timed.

    Attributes:
        procedure: key of `PROCEDURES`.
        num_classes: m.
        num_samples: n.
        seconds: spent on repetitions.
    """

    procedure: str
    num_classes: int
    num_samples: int
    seconds: float

    @property
    def name(self) -> str:
        """Name of the cell."""
        slug = self.procedure.replace(",", "").replace(" ", "_").replace("-", "_")
        return f"m{self.num_classes}_n{self.num_samples}/{slug}"


def draw_sample(num_classes: int, num_samples: int) -> tuple[Categorical, jax.Array]:
    """One data set of the calibrated model."""
    generator = np.random.default_rng([num_classes, num_samples])
    predictions = Categorical(jnp.asarray(generator.dirichlet(np.ones(num_classes), num_samples)))
    return predictions, predictions.sample(jax.random.key(num_samples))


def measure(measurement: Measurement) -> dict[str, Any]:
    """Minimal time of an evaluation in seconds, after compilation, and the number of them."""
    predictions, labels = draw_sample(measurement.num_classes, measurement.num_samples)
    scale = jnp.asarray(0.5)
    function = jax.jit(PROCEDURES[measurement.procedure])
    evaluate = function.lower(predictions, labels, scale).compile()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < measurement.seconds and len(times) < MAX_REPETITIONS):
        start = time.perf_counter()
        jax.block_until_ready(evaluate(predictions, labels, scale))
        times.append(time.perf_counter() - start)
    return {"seconds": min(times), "repetitions": len(times)}


Times = dict[tuple[str, int, int], float]


def measurements(settings: Settings) -> Iterator[Measurement]:
    """All measurements, the most expensive ones last."""
    for m in settings.classes:
        for n in settings.sizes:
            for procedure in PROCEDURES:
                yield Measurement(procedure, m, n, settings.seconds)


def finished_cells(store: Store, settings: Settings) -> Times:
    """Times by procedure, m and n, measured or read."""
    times: Times = {}
    for todo in tqdm(list(measurements(settings)), desc=NAME, unit="cell"):
        compute = functools.partial(measure, todo)
        result = cells.cell(store, todo.name, dataclasses.asdict(todo), compute)
        times[todo.procedure, todo.num_classes, todo.num_samples] = result["seconds"]
    return times


class Claim(NamedTuple):
    """What the paper says about an estimator, and what we find."""

    estimator: str
    published: str
    ours: str


TIMES_NOTE = """
Seconds of one evaluation, minimum over repeated calls of the compiled function, in float64, on two
cores. The SKCE columns without the median heuristic have the
length scale given.
"""

CLAIMS_NOTE = """
What W19 App. J.4 says in words about its Fig. 37 (in Julia, "on our computer (3.6 GHz)"), and the
same here, on two cores. The authors' code computes the
median of the distances before the time is taken.
"""


def _claim_rows(times: Times, m: int, n: int) -> Iterator[Claim]:
    for label in ("SKCE_b", "SKCE_uq"):
        for procedure in (f"{label} {HEURISTIC}", label):
            published = "around 0.1 s" if procedure != label and (m, n) == (1000, 1000) else ""
            ours = f"{times[procedure, m, n]:.2g} s"
            yield Claim(f"{procedure}, n = {n}, m = {m}", published, ours)
    uniform, other = ECES
    ratios = {k: times[other, *k] / times[uniform, *k] for k in {key[1:] for key in times}}
    largest = max(ratios, key=ratios.get)
    text = f"{min(ratios.values()):.2g} to {max(ratios.values()):.2g} times as long"
    text += f" (most: n = {largest[1]}, m = {largest[0]})"
    yield Claim(f"{other}, compared with uniform ones", "much slower", text)


def time_rows(settings: Settings, times: Times) -> list[dict[str, Any]]:
    """The table of all times."""
    return [
        {"m": m, "n": n} | {procedure: times[procedure, m, n] for procedure in PROCEDURES}
        for m in settings.classes
        for n in settings.sizes
    ]


def run(run: command_line.Run) -> None:
    """Runs the experiment; W19 publishes a figure and no numbers, so that --data is not needed."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    times = finished_cells(store, settings)
    rows = time_rows(settings, times)
    write_table(store.folder, "times", rows, TIMES_NOTE)
    claims = _claim_rows(times, settings.classes[-1], settings.sizes[-1])
    write_table(store.folder, "claims", claims, CLAIMS_NOTE)
    plot(store.folder, rows)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
