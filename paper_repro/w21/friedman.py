"""W21 §5.2 and App. A.3, Fig. 3 and 12: calibration of networks for Friedman 1 while they train.

Data, initial values and resamples are those of the authors, drawn from their seeds. Ten networks
with normal predictions are trained on 100 samples. NLL, MSE, pinball loss, SKCE (unbiased and
biased) and the p-value of the bootstrap test are evaluated during the training, for the networks
and for their ensemble, on the training samples and on 50 test samples. The exact test is evaluated
beside the bootstrap test.

The published SKCE and p-values of the *ensemble* contain an error of CalibrationErrors.jl, see
`friedman_statistics.skipped_terms`. They are computed without it, and as published.
"""

import dataclasses
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from experiments.harness import command_line
from experiments.harness.cells import Store, cell, key_of
from experiments.harness.data_files import digest
from experiments.harness.messages import log
from paper_repro.julia_random import MersenneTwister
from paper_repro.w21 import friedman_statistics
from paper_repro.w21.draws import resamples
from paper_repro.w21.friedman_figures import plot
from paper_repro.w21.friedman_networks import (
    NUM_NETWORKS,
    NUM_SAMPLES,
    Trajectory,
    draw_data_set,
    train,
)
from paper_repro.w21.friedman_published import Curves, committed_curves, read_curves
from paper_repro.w21.friedman_statistics import STATISTICS, calibration_statistics
from paper_repro.w21.friedman_tables import write_tables

NAME = "w21_friedman"
SEED = 300  # of the seeds of the networks' evaluations
ENSEMBLE_SEEDS = {"train": 400, "test": 500}
ENSEMBLE = -1  # in place of the number of a network
BATCH = 100  # iterations that are evaluated together


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        iterations: number of iterations of training.
        networks: number of networks, the first of the authors' ten, which form the ensemble.
        step: statistics are evaluated at each multiple of it, and at the tables' iterations.
        redraws: redraws of each exact test.
        resamples: resamples of each bootstrap test.
    """

    iterations: int
    networks: int
    step: int
    redraws: int
    resamples: int = 1000

    @property
    def table_iterations(self) -> list[int]:
        """The iterations of the tables that are reached."""
        return [i for i in committed_curves().iterations.tolist() if i <= self.iterations]

    @property
    def evaluated(self) -> list[int]:
        """The iterations with statistics, in increasing order."""
        multiples = range(0, self.iterations + 1, self.step)
        return sorted({*multiples, *self.table_iterations})


SETTINGS = {
    "quick": Settings(1500, 3, 1500, 99),
    "medium": Settings(5000, NUM_NETWORKS, 10, 999),
    "paper": Settings(5000, NUM_NETWORKS, 1, 999),
}


def predictions_at(trajectory: Trajectory, member: int, iterations: list[int]) -> Any:
    """Predictions of a network, or of the ensemble, for all samples, [iterations, n]."""
    if member != ENSEMBLE:
        means, sigmas = (jnp.asarray(leaf[member, iterations]) for leaf in trajectory)
        return friedman_statistics.network_predictions(means, sigmas)
    means, sigmas = (jnp.asarray(leaf[:, iterations]).swapaxes(0, 1) for leaf in trajectory)
    return friedman_statistics.ensemble_predictions(means, sigmas)


def seeds_of(member: int) -> dict[str, int]:
    """Seeds of the resamples for the two data sets."""
    if member == ENSEMBLE:
        return ENSEMBLE_SEEDS
    return dict.fromkeys(NUM_SAMPLES, MersenneTwister(SEED).rand_uint64(NUM_NETWORKS)[member])


def evaluate_member(
    trajectory: Trajectory, member: int, iterations: list[int], num_resamples: int
) -> dict[str, dict[str, list[float]]]:
    """Statistics of a network, or of the ensemble, by data set and name, [iterations]."""
    targets = {split: draw_data_set(split).targets for split in NUM_SAMPLES}
    seeds = seeds_of(member)
    counts = {s: resamples(seeds[s], len(targets[s]), num_resamples, iterations) for s in targets}
    rows: dict[str, list[dict[str, float]]] = {split: [] for split in targets}
    for start in range(0, len(iterations), BATCH):
        batch = iterations[start : start + BATCH]
        filled = batch + batch[-1:] * (min(BATCH, len(iterations)) - len(batch))  # for one program
        predictions = predictions_at(trajectory, member, filled)
        results = friedman_statistics.evaluate(predictions, tuple(targets.values()))
        for split, scores, matrices in zip(targets, *results, strict=True):
            for i, terms in enumerate(matrices[: len(batch)]):
                row = {name: float(values[i]) for name, values in scores.items()}
                rows[split].append(row | calibration_statistics(terms, next(counts[split])))
    return {s: {name: [row[name] for row in rows[s]] for name in rows[s][0]} for s in rows}


def exact_pvalues(
    trajectory: Trajectory, member: int, iterations: list[int], num_redraws: int
) -> dict[str, list[float]]:
    """p-values of the exact test on the test data, [iterations]."""
    test = slice(NUM_SAMPLES["train"], None)
    predictions = predictions_at(trajectory, member, iterations)
    predictions = jax.tree.map(lambda leaf: leaf[:, test], predictions)
    targets = jnp.asarray(draw_data_set("test").targets)
    key = key_of(f"{NAME}/redraws")
    pvalues = friedman_statistics.exact_pvalues(key, predictions, targets, num_redraws=num_redraws)
    return {"test": pvalues.tolist()}


def evaluated(
    store: Store, settings: Settings, trajectory: Trajectory
) -> tuple[Curves, np.ndarray]:
    """Statistics at all evaluated iterations, and p-values of the exact test at the tables' ones.

    Returns:
        The statistics; the p-values [i, members], of which the last one is the ensemble.
    """
    trained = {"trajectory": digest(*trajectory)}
    results, exact = [], []
    for member in tqdm([*range(settings.networks), ENSEMBLE], desc=NAME, unit="member"):
        name = "ensemble" if member == ENSEMBLE else f"network_{member + 1:02d}"
        for cells, function, iterations, draws in (
            (results, evaluate_member, settings.evaluated, settings.resamples),
            (exact, exact_pvalues, settings.table_iterations, settings.redraws),
        ):
            compute = functools.partial(function, trajectory, member, iterations, draws)
            parameters = trained | {"iterations": iterations, "draws": draws}
            cells.append(cell(store, f"{function.__name__}/{name}", parameters, compute))
    *networks, ensemble = results
    curves = Curves(
        np.array(settings.evaluated),
        {
            split: {key: np.stack([x[split][key] for x in networks], 1) for key in STATISTICS}
            for split in NUM_SAMPLES
        },
        {split: {key: np.array(v) for key, v in x.items()} for split, x in ensemble.items()},
    )
    return curves, np.stack([x["test"] for x in exact], 1)


def run(run: command_line.Run) -> None:
    """Runs the experiment."""
    start, cpu_start = time.perf_counter(), time.process_time()
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    published = read_curves(run)
    trajectory = train(settings.networks, settings.iterations)
    curves, exact = evaluated(store, settings, trajectory)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    log(f"{NAME}: {seconds:.0f} s, {cpu:.0f} s of CPU time")
    write_tables(store.folder, curves, exact, published)
    plot(store.folder, curves, committed_curves())


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
