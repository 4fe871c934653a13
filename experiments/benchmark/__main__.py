"""Speed and memory against plain C, NumPy, optax and POT, measured in one run on one machine.

Every ratio is taken between times of the same run: repetitions are interleaved, and the shortest
time of each side counts. The C loops hoist whatever depends on one sample only; the values must
agree, or the run stops. Those of sums over pairs are compiled with `gcc -O3 -ffast-math
-march=native -fopenmp`, so that they use vectors and all cores; the others with `gcc -O3`.

Run: python -m experiments.benchmark [--quick] [--only PART ...] [--output DIR]
"""

import functools
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import ot
from tqdm import tqdm

from calibjax import distances, estimators, hypothesis_tests, kernels, risk
from calibjax._core import files
from experiments.benchmark import local, memory, workload
from experiments.benchmark.reference import FAST, Reference
from experiments.harness import clocks, command_line
from experiments.harness.tables import write_table


class Sizes(NamedTuple):
    """Sizes of the measurements; the bars hold for the full ones."""

    pairs: int = 16384
    tests: int = 1024
    memory: int = 100_000
    median: int = 4096
    transport: int = 16384
    local: int = 25_000
    ridge: int = 8000
    resamples: int = 1000
    repetitions: int = 5


FULL = Sizes()
QUICK = Sizes(
    pairs=2048,
    tests=256,
    memory=8192,
    median=1024,
    transport=2048,
    local=4096,
    ridge=1000,
    repetitions=2,
)


def row(quantity: str, ours: float, reference: float, bar: str, met: bool | None) -> dict:
    """One line of the table; the last column is filled for times only."""
    return {
        "quantity": quantity,
        "ours": ours,
        "reference": reference,
        "reference / ours": reference / ours if ours else None,
        "bar": bar,
        "met": met,
        "ratio in CPU time": None,
    }


def time_row(
    quantity: str, ours: clocks.Seconds, reference: clocks.Seconds, *, at_least: float | None = None
) -> dict[str, Any]:
    """One line about times on the clock; the ratio in CPU time suffers less from other load."""
    ratio = reference.wall / ours.wall
    bar, met = ("", None) if at_least is None else (f"ratio >= {at_least:g}", ratio >= at_least)
    line = row(f"{quantity} (s)", ours.wall, reference.wall, bar, met)
    return line | {"ratio in CPU time": reference.cpu / ours.cpu}


def arrays(predictions: Any, targets: jax.Array) -> tuple[np.ndarray, ...]:
    """The samples as NumPy arrays, for the C loops."""
    return tuple(np.asarray(x) for x in (predictions.loc, predictions.scale, targets))


def require_close(what: str, ours: Any, reference: Any, tolerance: float) -> None:
    """Stops the run if values differ."""
    if not np.all(np.abs(ours - reference) <= tolerance * np.abs(reference)):
        raise AssertionError(f"{what}: ours {ours!r}, reference {reference!r}")


def pair_sums(sizes: Sizes) -> list[dict[str, Any]]:
    """`skce` against C loops on all cores, float32 against float64, gradient against value."""
    rows, n, fast = [], sizes.pairs, Reference(*FAST)
    for name, ours, reference, bar in _against_c(sizes, fast):
        # The estimate is a small mean of larger terms, at whose scale the vector exponentials,
        # exact to four units in the last place, are compared.
        require_close(f"skce, {name}, against C", float(ours()), reference(), 1e-6)
        seconds = clocks.minimum_seconds({"ours": ours, "C": reference}, sizes.repetitions)
        rows.append(
            time_row(f"skce, {name}; C loop", seconds["ours"], seconds["C"], at_least=1 / bar)
        )
    double, single = workload.normal_samples(n), workload.normal_samples(n, jnp.float32)
    seconds = clocks.minimum_seconds(
        {
            "float64": functools.partial(workload.value, *double),
            "float32": functools.partial(workload.value, *single),
            "in a program": functools.partial(workload.compiled_value, *double),
            "gradient": functools.partial(workload.gradient, *double),
        },
        sizes.repetitions,
    )
    value, gradient = seconds["in a program"], seconds["gradient"]
    return [
        *rows,
        time_row(
            f"skce in float32, n = {n}; in float64",
            seconds["float32"],
            seconds["float64"],
            at_least=1 / 0.45,
        ),
        time_row(
            f"gradient of skce, n = {n}; value, both under jit", gradient, value, at_least=1 / 3.5
        ),
    ]


def _against_c(
    sizes: Sizes, fast: Reference
) -> Iterator[tuple[str, Callable[[], Any], Callable[[], float], float]]:
    """What is compared with C loops: a name, ours, theirs, and the largest ratio of times."""
    n = sizes.pairs
    samples = workload.normal_samples(n)
    ours = functools.partial(workload.value, *samples)
    yield f"normals, n = {n}", ours, functools.partial(fast.skce, *arrays(*samples)), 1.4
    samples = workload.diagonal_samples(n // 2, 10)
    columns = [np.ascontiguousarray(x.T) for x in arrays(*samples)]
    ours = functools.partial(workload.value, *samples)
    theirs = functools.partial(fast.skce_diagonal, *columns)
    yield f"normals of ten components, n = {n // 2}", ours, theirs, 1.6
    for num_classes, size, bar in ((10, n // 2, 1.6), (1000, n // 8, 2.0)):
        predictions, labels = workload.class_samples(size, num_classes)
        columns = np.ascontiguousarray(np.asarray(predictions.probs).T)
        ours = functools.partial(workload.value_of_classes, predictions, labels)
        theirs = functools.partial(fast.skce_classes, columns, np.asarray(labels, np.int64))
        yield f"{num_classes} classes, n = {size}", ours, theirs, bar


def bootstrap(sizes: Sizes) -> list[dict[str, Any]]:
    """`bootstrap_skce_test` against a C loop over resamples that is given the matrix of h."""
    samples = workload.normal_samples(sizes.tests)
    plain = Reference("-O3")
    matrix = np.asarray(estimators.calibration_kernel_matrix(workload.KERNEL, *samples))

    def test() -> Any:
        return hypothesis_tests.bootstrap_skce_test(
            jax.random.key(1), workload.KERNEL, *samples, num_draws=sizes.resamples
        )

    ours = np.asarray(test().null_samples)
    theirs = plain.bootstrap(matrix, sizes.resamples)
    error = np.sqrt((ours.var() + theirs.var()) / sizes.resamples)
    if not abs(ours.mean() - theirs.mean()) <= 5 * error:
        raise AssertionError(f"bootstrap: means {ours.mean()} and {theirs.mean()} +- {error}")
    if not 0.5 < ours.std() / theirs.std() < 2:
        raise AssertionError(f"bootstrap: standard deviations {ours.std()} and {theirs.std()}")
    loop = functools.partial(plain.bootstrap, matrix, sizes.resamples)
    seconds = clocks.minimum_seconds({"ours": test, "C": loop}, 2 * sizes.repetitions)
    quantity = f"bootstrap_skce_test, {sizes.resamples} resamples, n = {sizes.tests}; C loop"
    return [time_row(quantity, seconds["ours"], seconds["C"], at_least=8)]


def exact(sizes: Sizes) -> list[dict[str, Any]]:
    """`exact_skce_test` against one value of `skce`."""
    samples = workload.normal_samples(sizes.tests)

    def test() -> Any:
        return hypothesis_tests.exact_skce_test(
            jax.random.key(1), workload.KERNEL, *samples, num_draws=sizes.resamples
        )

    one = functools.partial(workload.value, *samples)
    seconds = clocks.minimum_seconds({"test": test, "skce": one}, sizes.repetitions)
    quantity = f"exact_skce_test, {sizes.resamples} redraws, n = {sizes.tests}; one skce"
    line = time_row(quantity, seconds["test"], seconds["skce"])
    ratio = seconds["test"].wall / seconds["skce"].wall
    return [line | {"bar": "ours / reference <= 500", "met": ratio <= 500}]


def median(sizes: Sizes) -> list[dict[str, Any]]:
    """`median_heuristic` against the median of the full distance matrix in NumPy."""
    predictions, _ = workload.normal_samples(sizes.median)
    loc, scale = np.asarray(predictions.loc), np.asarray(predictions.scale)

    def ours() -> jax.Array:
        distance = distances.Wasserstein()
        return kernels.median_heuristic(distance, predictions, include_diagonal=True)

    def full() -> np.floating:
        squared = (loc[:, None] - loc) ** 2 + (scale[:, None] - scale) ** 2
        return np.median(np.sqrt(squared))

    require_close("median", float(ours()), float(full()), 1e-14)
    seconds = clocks.minimum_seconds({"ours": ours, "numpy": full}, sizes.repetitions)
    quantity = f"median_heuristic, n = {sizes.median}; NumPy, full matrix"
    return [time_row(quantity, seconds["ours"], seconds["numpy"])]


def transport(sizes: Sizes) -> list[dict[str, Any]]:
    """Optimal transport of 10 x 10 weights in a batch, against optax and a loop over POT."""
    problems, size = sizes.transport, 10
    generator = np.random.default_rng(0)
    costs = generator.uniform(size=(problems, size, size))
    equal = np.full((2, problems, size), 1 / size)
    arbitrary = generator.dirichlet(np.ones(size), (2, problems))
    solve = jax.jit(jax.vmap(distances.transport_cost))

    @jax.jit
    @jax.vmap
    def assign(cost: jax.Array) -> jax.Array:
        rows, columns = optax.assignment.hungarian_algorithm(cost)
        return jnp.mean(cost[rows, columns])

    def loop(weights: np.ndarray) -> list[float]:
        return [ot.emd2(*problem) for problem in zip(*weights, costs, strict=True)]

    functions = {
        "equal": functools.partial(solve, *equal, costs),
        "optax": functools.partial(assign, costs),
        "POT, equal": functools.partial(loop, equal),
        "arbitrary": functools.partial(solve, *arbitrary, costs),
        "POT": functools.partial(loop, arbitrary),
    }
    pairs = ("equal", "optax"), ("equal", "POT, equal"), ("arbitrary", "POT")
    for ours, theirs in pairs:
        values = [np.asarray(functions[name]()) for name in (ours, theirs)]
        require_close(f"transport, {ours} weights against {theirs}", *values, 1e-12)
    seconds = clocks.minimum_seconds(functions, sizes.repetitions)
    rows = []
    for ours, theirs in pairs:
        quantity = f"{problems} transport problems, 10 x 10, {ours} weights; {theirs}"
        met = seconds[ours].wall / problems <= 15e-6
        line = time_row(quantity, seconds[ours], seconds[theirs])
        rows.append(line | {"bar": "ours <= 15 us each", "met": met})
    return rows


def local_errors(sizes: Sizes) -> list[dict[str, Any]]:
    """MLCE over 40 bandwidths against the Manhattan distances of all pairs alone."""
    data = {one_bin: local.samples(sizes.local, 50, one_bin=one_bin) for one_bin in (False, True)}
    features = data[False][0], data[False][0]
    plain = tuple(map(np.asarray, features))
    sums = [f(*x) for f, x in ((local.distance_sums, features), (local.numpy_distance_sums, plain))]
    require_close("Manhattan distances", *map(np.asarray, sums), 1e-4)
    functions = {
        "confidences of a network": functools.partial(local.curve, data[False], data[False]),
        "all in one bin": functools.partial(local.curve, data[True], data[True]),
        "ours": functools.partial(local.distance_sums, *features),
        "scikit-learn": functools.partial(local.numpy_distance_sums, *plain),
    }
    seconds = clocks.minimum_seconds(functions, sizes.repetitions)
    rows = []
    for case in ("confidences of a network", "all in one bin"):
        for distance in ("ours", "scikit-learn"):
            quantity = f"mlce, 40 bandwidths, {sizes.local} x {sizes.local} points, d = 50, {case}"
            line = time_row(
                f"{quantity}; all distances, {distance}", seconds[case], seconds[distance]
            )
            met = seconds[case].wall <= 3 * seconds[distance].wall
            rows.append(line | {"bar": "ours / reference <= 3", "met": met})
    return rows


@jax.jit
def ridge_risks(function: Any, train: Any, test: Any, grid: jax.Array) -> jax.Array:
    """Risks on test data of a function that was fitted to training data, on a grid, [k]."""
    params = function.fit(*train, grid[0])

    def at(penalty: jax.Array) -> jax.Array:
        values = function.evaluate(function.refit(params, penalty), test[0], test[0])
        return risk.estimation_risk(values, *test)

    return jax.lax.map(at, grid)


def kernel_ridge(sizes: Sizes) -> list[dict[str, Any]]:
    """Kernel ridge regressions on a grid of penalties, of low rank against the whole matrix."""
    n = sizes.ridge
    generator = np.random.default_rng(0)
    confidences = jnp.asarray(generator.beta(1.2, 0.3, n))
    samples = confidences, jnp.asarray(generator.uniform(size=n) < confidences**1.3)
    train, test = ([x[part] for x in samples] for part in (slice(n * 4 // 5), slice(n * 4 // 5, n)))
    rows = []
    for make, grid in (
        (risk.KernelRidge, risk.KernelRidge().grid(n * 4 // 5)),
        (risk.TwoStepKernelRidge, risk.TwoStepKernelRidge().grid(n * 4 // 5)),
    ):
        low = make().specialise(confidences, grid)
        full = make(rank=n)
        fold = {
            "low rank": functools.partial(ridge_risks, low, train, test, grid),
            "whole": functools.partial(ridge_risks, full, train, test, grid),
        }
        values = fold["low rank"](), fold["whole"]()
        require_close(make.__name__, *map(np.asarray, values), 1e-5)
        folds = functools.partial(
            risk.cross_validate, jax.random.key(0), make(), grid, *samples, num_folds=5
        )
        seconds = clocks.minimum_seconds(fold, 1)
        seconds |= clocks.minimum_seconds({"five folds": folds}, sizes.repetitions)
        quantity = f"{make.__name__}, n = {len(train[0])}, {grid.size} penalties"
        rows.append(
            time_row(
                f"{quantity}; whole matrix", seconds["low rank"], seconds["whole"], at_least=20
            )
        )
        wall = seconds["five folds"].wall
        rows.append(row(f"{quantity}, five folds (s)", wall, 60.0, "ours <= 60", wall <= 60))
    return rows


def peak_memory(sizes: Sizes) -> list[dict[str, Any]]:
    """Growth of the peak memory by `skce` and by its gradient, in fresh processes."""
    n = sizes.memory
    matrix = 8e-6 * n * n
    rows = []
    for what, label in (("value", "skce"), ("gradient", "gradient of skce")):
        measured = memory.measure(what, n)
        megabytes, seconds = measured["bytes"] / 1e6, measured["seconds"]
        quantity = f"{label}, n = {n}, {seconds:.1f} s; n x n matrix (MB, growth of the peak)"
        rows.append(row(quantity, megabytes, matrix, "ours < 300", megabytes < 300))
    measured = memory.measure("mlce", sizes.local)
    megabytes = measured["bytes"] / 1e6
    quantity = f"mlce, 40 bandwidths, n = {sizes.local}; n x n matrix (MB, growth of the peak)"
    rows.append(row(quantity, megabytes, 4e-6 * sizes.local**2, "ours < 1000", megabytes < 1000))
    return rows


def environment() -> dict[str, Any]:
    """What the times depend on."""
    return {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "jax": jax.__version__,
        "load at the start": clocks.machine_load(),
    }


PARTS: dict[str, Callable[[Sizes], list[dict[str, Any]]]] = {
    "pair_sums": pair_sums,
    "bootstrap": bootstrap,
    "exact": exact,
    "median": median,
    "transport": transport,
    "local_errors": local_errors,
    "kernel_ridge": kernel_ridge,
    "peak_memory": peak_memory,
}


@command_line.program
def main() -> None:
    """Runs all measurements and writes benchmark.json, .csv and .md."""
    parser = command_line.option_parser(__file__, __doc__, only=PARTS)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    sizes = QUICK if options.quick else FULL
    conditions = environment()
    parts = [PARTS[name] for name in PARTS if name in options.only]
    rows = [line for part in tqdm(parts) for line in part(sizes)]
    if options.quick:  # the bars are for the full sizes
        rows = [line | {"bar": "", "met": None} for line in rows]
    conditions["load at the end"] = clocks.machine_load()
    write(run.output, "benchmark_quick" if options.quick else "benchmark", rows, conditions)


def write(folder: Path, name: str, rows: list[dict[str, Any]], conditions: dict) -> None:
    """Writes the table and the record of the run."""
    record = {"conditions": conditions, "rows": rows}
    files.write(folder / f"{name}.json", json.dumps(record, indent=1, default=float))
    note = ", ".join(f"{key}: {value}" for key, value in conditions.items())
    write_table(folder, name, rows, f"Conditions: {note}.", show=True)


if __name__ == "__main__":
    main()
