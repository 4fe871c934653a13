"""W21 §5.2 and App. A.3, Fig. 3 and 12: calibration of networks for Friedman 1 while they train.

Ten networks with normal predictions are trained on 100 samples. NLL, MSE, pinball loss, SKCE
(unbiased and biased) and the p-value of the bootstrap test are evaluated at every iteration, for
the networks and for their ensemble, on the training samples and on 50 test samples. The exact test
is evaluated beside the bootstrap test at the iterations of the published table.

Data and initial values of the paper are not published, only the statistics of networks 1 to 7 and
of the ensemble. Ours are compared with three of these networks at 18 iterations, in distribution,
on other data sets with new networks. The median of our ten networks is compared with the range of
all seven at each iteration, our ensemble with theirs at the last one. What the paper says of the
ensemble is counted in the authors' files, too.

The published statistics of the *ensemble* contain an error of CalibrationErrors.jl, which skips the
pairs (i ≥ 2, 1) of components: ours must differ there, and the table shows the SKCE without these
pairs beside the right one. The kernel of the ensembles need not be positive
semi-definite, see `calibjax.distances.MixtureWasserstein`.

All is in float64, as in the code of the paper.
"""

import dataclasses
import functools
import hashlib
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from experiments.harness import cells, command_line
from experiments.harness.cells import Store
from experiments.harness.messages import log
from paper_repro.w21.friedman_figures import plot
from paper_repro.w21.friedman_networks import HIDDEN_UNITS, Trajectory, draw_data_set, train
from paper_repro.w21.friedman_published import (
    read_curves,
    write_ensembles,
    write_published,
    write_ranges,
)
from paper_repro.w21.friedman_statistics import (
    ensemble_predictions,
    evaluate,
    evaluate_skipping,
    exact_pvalues,
    network_predictions,
    resample,
)
from paper_repro.w21.friedman_tables import (
    CALIBRATION_ERRORS,
    PUBLISHED_COLUMNS,
    Results,
    check_published,
    write_tables,
)

NAME = "w21_friedman"
PUBLISHED_ITERATIONS = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 700),
    *(1000, 1500, 2000, 3000, 4000, 5000),
)
SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        iterations: number of iterations of training.
        networks: number of networks, which form the ensemble.
        resamples: resamples of each bootstrap test.
        redraws: redraws of each exact test.
        data_sets: number of other data sets.
        networks_per_data_set: number of networks that are trained on each of them.
        chunk_size: number of iterations in a cell.
        num_training: number of training samples.
        num_test: number of test samples.
        hidden: numbers of hidden units.
    """

    iterations: int
    networks: int
    resamples: int
    redraws: int
    data_sets: int
    networks_per_data_set: int
    chunk_size: int
    num_training: int = 100
    num_test: int = 50
    hidden: tuple[int, ...] = HIDDEN_UNITS

    @property
    def table_iterations(self) -> list[int]:
        """The iterations of the published table that are reached."""
        return [i for i in PUBLISHED_ITERATIONS if i <= self.iterations]

    def samples(self, split: str) -> slice:
        """The training samples, or the test samples, which come after them."""
        return slice(self.num_training) if split == "train" else slice(self.num_training, None)


SETTINGS = {
    # As many networks on each data set, as many iterations in a cell as in the tables (6), and as
    # many training as test samples: all evaluations share their compilation, which takes most of
    # the time.
    "quick": Settings(20, 3, 200, 99, 2, 3, 6, num_training=50),
    "paper": Settings(5000, 10, 1000, 999, 20, 3, 100),
}


@dataclasses.dataclass(frozen=True)
class Training:
    """Networks that were trained together on one data set.

    Attributes:
        name: name of the data set and of the initial values, which are derived from it.
        targets: training and test targets, [n].
        trajectory: what the networks predict in each iteration.
        digest: identifies the trajectory, in case that it differs between machines.
    """

    name: str
    targets: np.ndarray
    trajectory: Trajectory
    digest: str


def trained(name: str, settings: Settings, networks: int) -> Training:
    """Draws a data set and trains networks on it."""
    num_samples = settings.num_training + settings.num_test
    data = draw_data_set(cells.key_of(f"{NAME}/{name}/data"), num_samples)
    trajectory = train(
        jax.random.split(cells.key_of(f"{NAME}/{name}/networks"), networks),
        data,
        num_training=settings.num_training,
        iterations=settings.iterations,
        hidden=settings.hidden,
    )
    means, sigmas = (np.asarray(leaf) for leaf in trajectory)
    digest = hashlib.sha256(means.tobytes() + sigmas.tobytes()).hexdigest()
    return Training(name, np.asarray(data.targets), Trajectory(means, sigmas), digest)


def _inputs(
    settings: Settings, training: Training, iterations: list[int], split: str
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means [i, networks, n], standard deviations [i, networks], targets [n], in float64."""
    samples = settings.samples(split)
    means = training.trajectory.means[iterations][..., samples]
    sigmas, targets = training.trajectory.sigmas[iterations], training.targets[samples]
    return tuple(jnp.asarray(x, jnp.float64) for x in (means, sigmas, targets))


def _counts(settings: Settings, split: str, num_samples: int) -> jax.Array:
    return resample(cells.key_of(f"{NAME}/resamples/{split}"), num_samples, settings.resamples)


def _each_network(means: jax.Array, sigmas: jax.Array) -> Any:
    """Predictions of all networks in all iterations, [iterations · networks, n]."""
    return network_predictions(means.reshape(-1, means.shape[-1]), sigmas.reshape(-1))


def _evaluated(
    settings: Settings,
    training: Training,
    iterations: list[int],
    predictions_of: Callable[[jax.Array, jax.Array], Any],
) -> dict[str, dict[str, jax.Array]]:
    """Statistics by split and name of what is made of means and standard deviations."""
    found = {}
    for split in SPLITS:
        means, sigmas, targets = _inputs(settings, training, iterations, split)
        counts = _counts(settings, split, targets.size)
        found[split] = evaluate(counts, predictions_of(means, sigmas), targets)
    return found


def evaluate_networks(
    settings: Settings, training: Training, iterations: list[int]
) -> dict[str, Any]:
    """Statistics of the single networks: by split and name, [iterations][networks]."""
    found = _evaluated(settings, training, iterations, _each_network)
    shape = training.trajectory.sigmas[iterations].shape
    return {
        split: {name: np.reshape(v, shape).tolist() for name, v in values.items()}
        for split, values in found.items()
    }


def evaluate_ensemble(
    settings: Settings, training: Training, iterations: list[int]
) -> dict[str, Any]:
    """Statistics of the ensemble: by split and name, [iterations]."""
    found = _evaluated(settings, training, iterations, ensemble_predictions)
    return {split: {k: v.tolist() for k, v in values.items()} for split, values in found.items()}


def evaluate_exact(settings: Settings, training: Training, iterations: list[int]) -> dict[str, Any]:
    """p-values of the exact test: by split, [iterations][networks] and ensemble, [iterations]."""
    result = {}
    for split in SPLITS:
        means, sigmas, targets = _inputs(settings, training, iterations, split)
        key = cells.key_of(f"{NAME}/redraws/{split}")
        test = functools.partial(exact_pvalues, key, num_redraws=settings.redraws)
        networks = test(_each_network(means, sigmas), targets).reshape(sigmas.shape)
        ensemble = test(ensemble_predictions(means, sigmas), targets)
        result[split] = {"networks": networks.tolist(), "ensemble": ensemble.tolist()}
    return result


def evaluate_reference(
    settings: Settings, training: Training, iterations: list[int]
) -> dict[str, Any]:
    """SKCE of the ensemble with the error of CalibrationErrors.jl: by split and name, [iterations].

    See `skipping_calibration_kernel`.
    """
    result = {}
    for split in SPLITS:
        means, sigmas, targets = _inputs(settings, training, iterations, split)
        values = evaluate_skipping(ensemble_predictions(means, sigmas), targets)
        result[split] = {k: v.tolist() for k, v in zip(CALIBRATION_ERRORS, values, strict=True)}
    return result


Evaluation = Callable[[Settings, Training, list[int]], dict[str, Any]]


def _finished_cell(
    store: Store, settings: Settings, training: Training, job: tuple[str, Evaluation, list[int]]
) -> dict[str, Any]:
    name, evaluation, iterations = job
    parameters = {
        "resamples": settings.resamples,
        "redraws": settings.redraws,
        "iterations": iterations,
        "trajectory": training.digest,
    }
    with jax.enable_x64(True):  # which is a setting of each thread
        compute = functools.partial(evaluation, settings, training, iterations)
        return cells.cell(store, name, parameters, compute)


def _joined(parts: list[dict[str, Any]], length: int) -> dict[str, dict[str, np.ndarray]]:
    """Statistics of all chunks one after the other, without what fills up the last one."""
    return {
        split: {
            name: np.concatenate([part[split][name] for part in parts])[:length]
            for name in parts[0][split]
        }
        for split in SPLITS
    }


def evaluated(store: Store, settings: Settings, training: Training) -> Results:
    """Statistics of networks and ensemble, computed by one thread for each core, or read."""
    size, last = settings.chunk_size, settings.iterations
    # The last chunk is filled up, so that all of them share one compilation.
    starts = range(0, last + 1, size)
    chunks = [[min(i, last) for i in range(start, start + size)] for start in starts]
    jobs: list[tuple[str, Evaluation, list[int]]] = [
        ("exact", evaluate_exact, settings.table_iterations),
        ("reference", evaluate_reference, settings.table_iterations),
    ]
    jobs += [(f"networks/{chunk[0]:04d}", evaluate_networks, chunk) for chunk in chunks]
    jobs += [(f"ensemble/{chunk[0]:04d}", evaluate_ensemble, chunk) for chunk in chunks]
    compute = functools.partial(_finished_cell, store, settings, training)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as threads:
        bar = tqdm(threads.map(compute, jobs), desc=NAME, total=len(jobs), unit="cell")
        exact, reference, *finished = list(bar)
    return Results(
        settings.table_iterations,
        _joined(finished[: len(chunks)], last + 1),
        _joined(finished[len(chunks) :], last + 1),
        exact,
        reference,
    )


def other_data_sets(store: Store, settings: Settings) -> dict[str, dict[str, np.ndarray]]:
    """Statistics of networks on other data sets, by split and name, [data sets, i, networks]."""
    finished = []
    for i in tqdm(range(settings.data_sets), desc=f"{NAME}: other data sets", unit="cell"):
        name = f"data_set_{i:02d}"

        def compute(name: str = name) -> dict[str, Any]:
            training = trained(name, settings, settings.networks_per_data_set)
            return evaluate_networks(settings, training, settings.table_iterations)

        finished.append(cells.cell(store, name, dataclasses.asdict(settings), compute))
    return {
        split: {name: np.array([x[split][name] for x in finished]) for name in finished[0][split]}
        for split in SPLITS
    }


def run(run: command_line.Run) -> None:
    """Runs the experiment."""
    start, cpu_start = time.perf_counter(), time.process_time()
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    published = run.published(NAME, "statistics.csv", columns=PUBLISHED_COLUMNS)
    check_published(published, SPLITS, settings.table_iterations)
    curves = read_curves(run, SPLITS)
    others = other_data_sets(store, settings)
    training = trained("paper", settings, settings.networks)
    results = evaluated(store, settings, training)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    log(f"{NAME}: {seconds:.0f} s, {cpu:.0f} s of CPU time, at most {memory:.2f} GB")
    write_tables(store.folder, results, others, published)
    if curves is not None:
        write_published(store.folder, *curves)
        write_ranges(store.folder, results, others, curves[0])
        write_ensembles(store.folder, results, *curves)
    plot(store.folder, results, curves)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
