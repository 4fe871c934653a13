"""W19 App. J.4, Fig. 37: time of one evaluation of each calibration error estimator.

Data sets are calibrated, with predictions uniform on the simplex, as in the authors' code; our
times stand beside the authors' 200 (`timings.csv`), at the same numbers of samples. Estimators are
the functions of `calibjax`, compiled, in float64; times are minima over repeated calls on the same
data. Those of the SKCE are measured with the length scale given, as the authors do, who compute the
median before, and with the median heuristic included.
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
from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.w19.estimates_simulation import MIN_BIN_SIZE
from paper_repro.w19.figures import plot_times
from paper_repro.w19.procedures import BINS_PER_CLASS, w19_kernel

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
    "quick": Settings((10,), (28, 129), 0.01),
    "medium": Settings((2, 10, 100, 1000), (10, 46, 215, 1000), 0.2),
    "paper": Settings((2, 10, 100, 1000), (10, 17, 28, 46, 77, 129, 215, 359, 599, 1000), 1.0),
}


def _with_scale(estimator: Callable, predictions: Any, labels: Any, scale: Any) -> jax.Array:
    return estimator(w19_kernel(scale), predictions, labels)


def _with_heuristic(estimator: Callable, predictions: Any, labels: Any, scale: Any) -> jax.Array:
    scale = kernels.median_heuristic(distances.TotalVariation(), predictions)
    return estimator(w19_kernel(scale), predictions, labels)


def _ece(binning: Callable, predictions: Any, labels: Any, scale: Any) -> jax.Array:
    return estimators.ece(predictions, labels, binning=binning, notion="canonical")


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
GROWTH_FROM = 100  # samples: with fewer, what a call costs in itself is much of the time
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


def read_times() -> Times:
    """The authors' times in seconds by procedure, m and n."""
    return {
        (name, int(row["m"]), int(row["n"])): float(row[name])
        for row in published_rows(__file__)
        for name in (*ECES, *SKCES)
    }


class PublishedRow(NamedTuple):
    """The time of an estimator, published and ours."""

    m: int
    n: int
    estimator: str
    published: float
    ours: float
    ratio: float


def compared_rows(times: Times, published: Times) -> list[PublishedRow]:
    """The times that were measured in both."""
    common = sorted((m, n, name) for name, m, n in times.keys() & published.keys())
    rows = []
    for m, n, name in common:
        theirs, ours = published[name, m, n], times[name, m, n]
        rows.append(PublishedRow(m, n, name, theirs, ours, ours / theirs))
    return rows


def _exponent(rows: list[PublishedRow], field: str) -> float | None:
    """Slope of the least-squares line of the logarithms."""
    chosen = [row for row in rows if row.n >= GROWTH_FROM]
    if len(chosen) < 2:
        return None
    values = [getattr(row, field) for row in chosen]
    return float(np.polyfit(np.log([row.n for row in chosen]), np.log(values), 1)[0])


def growth_rows(rows: list[PublishedRow]) -> Iterator[tuple]:
    """A row for each number of classes and estimator."""
    for m, name in sorted({(row.m, row.estimator) for row in rows}):
        chosen = [row for row in rows if (row.m, row.estimator) == (m, name)]
        ratios = [row.ratio for row in chosen]
        exponents = (_exponent(chosen, field) for field in ("published", "ours"))
        yield (m, name, *exponents, min(ratios), max(ratios))


def _claim_rows(times: Times, published: Times, m: int, n: int) -> Iterator[tuple]:
    for label in ("SKCE_b", "SKCE_uq"):
        theirs = published[label, m, n]
        words = "around 0.1 s; " if m == n == 1000 else ""
        words += f"file: {theirs:.3f} s"
        ours = f"{times[label, m, n]:.2g} s, {times[label, m, n] / theirs:.1f} times as long"
        yield (f"{label}, n = {n}, m = {m}", words, ours)
        ours = f"{times[f'{label} {HEURISTIC}', m, n]:.2g} s"
        yield (f"{label} {HEURISTIC}, n = {n}, m = {m}", "", ours)
    other = [*ECES][1]
    words = f"much slower; file: {_slowdown(published)}"
    yield (f"{other}, compared with uniform ones", words, _slowdown(times))


def _slowdown(times: Times) -> str:
    """Times of the ECE in data-dependent bins, relative to uniform ones."""
    uniform, other = ECES
    ratios = {(m, n): times[other, m, n] / times[uniform, m, n] for _, m, n in times}
    n = max(n for _, n in ratios)
    classes = sorted({m for m, _ in ratios})
    largest = ", ".join(f"{ratios[m, n]:.1f}" for m in classes)
    text = f"{largest} times as long (n = {n}, m = {', '.join(map(str, classes))})"
    return f"{text}; {min(ratios.values()):.2g} to {max(ratios.values()):.2g} over all sizes"


def time_rows(settings: Settings, times: Times) -> list[dict[str, Any]]:
    """The table of all times."""
    return [
        {"m": m, "n": n} | {procedure: times[procedure, m, n] for procedure in PROCEDURES}
        for m in settings.classes
        for n in settings.sizes
    ]


def run(run: command_line.Run) -> None:
    """Runs the experiment; the times of the authors are beside ours."""
    settings, store = SETTINGS[run.preset or ""], run.store(NAME, __file__)
    times, published = finished_cells(store, settings), read_times()
    rows, common = time_rows(settings, times), compared_rows(times, published)
    claims = _claim_rows(times, published, settings.classes[-1], settings.sizes[-1])
    growth = note_of(__file__, "growth", growth_from=GROWTH_FROM)
    write_table(store.folder, "times", rows, note_of(__file__, "times"))
    write_table(store.folder, "claims", claims, note_of(__file__, "claims"))
    write_table(store.folder, "published", common, note_of(__file__, "published"))
    write_table(store.folder, "growth", growth_rows(common), growth)
    plot_times(store.folder, rows, common)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__)
