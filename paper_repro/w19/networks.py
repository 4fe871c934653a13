"""W19 App. J.3, Fig. 35 and 36: calibration errors and p-values of CIFAR-10 networks.

From the published softmax outputs and labels of the 10 000 test images, beside the published
numbers: the ECE in two binnings and the three estimators of the SKCE; the p-values of consistency
resampling (C), the distribution-free bounds (D) and the asymptotic tests (A). The exact test is
added. The kernel is exp(−TV/ν) δ with ν the median over the full matrix of distances, its zero
diagonal included, as published. Needs --data, and takes all networks in its `pvalues.csv`, 14 in
the authors' file. The exact test runs in single precision.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from tqdm import tqdm

from calibjax import distances, estimators, kernels
from calibjax.distributions import Categorical
from experiments.harness import cells, command_line, data_files
from experiments.harness.cells import Store
from experiments.harness.stand_in import header, marked
from experiments.harness.tables import note_of, write_table
from paper_repro.data import cifar, stand_in
from paper_repro.w19 import procedures
from paper_repro.w19.figures import plot_errors
from paper_repro.w19.networks_claims import write_claims
from paper_repro.w19.procedures import Procedure

NAME = "w19_networks"
FOLDER = cifar.CIFAR10
MIN_BIN_SIZE = 100
NUM_SAMPLES = 10_000
PUBLISHED_DRAWS = 1000
UNIFORM = estimators.UniformBins(procedures.BINS_PER_CLASS)

_BY_SLUG = {test.slug: test for test in procedures.TESTS}
DATA_DEPENDENT = dataclasses.replace(
    _BY_SLUG["consistency"], label="C_data-dependent", slug="consistency_median"
)
# Tests by the column of the published p-values.
TESTS: dict[str, Procedure] = {
    "ECE_uniform": dataclasses.replace(_BY_SLUG["consistency"], label="C_uniform"),
    "ECE_dynamic": DATA_DEPENDENT,
    "SKCEb_median_distribution_free": _BY_SLUG["free_biased"],
    "SKCEuq_median_distribution_free": _BY_SLUG["free_unbiased"],
    "SKCEul_median_distribution_free": dataclasses.replace(_BY_SLUG["free_block"], label="D_l"),
    "SKCEuq_median_asymptotic": _BY_SLUG["bootstrap"],
    "SKCEul_median_asymptotic": _BY_SLUG["block"],
    "exact": procedures.EXACT,
}
# Estimators by the column of the published errors.
ERRORS = {
    "ECE_uniform": "ECE, uniform bins",
    "ECE_dynamic": "ECE, data-dependent bins",
    "SKCEb_median": "SKCE_b",
    "SKCEuq_median": "SKCE_uq",
    "SKCEul_median": "SKCE_ul",
}
SIMULATED = {"ECE_uniform", "ECE_dynamic", "SKCEuq_median_asymptotic"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the experiment.

    Attributes:
        num_samples: the first samples are taken, this many of them; None for all.
        draws: resamples or redraws of each test.
    """

    num_samples: int | None
    draws: int


SETTINGS = {
    "quick": Settings(500, 99),
    "medium": Settings(2000, 249),
    "paper": Settings(None, 1000),
}


@dataclasses.dataclass(frozen=True)
class Network:
    """Predictions of a network: probabilities [n, 10], and labels 0, ..., 9, [n]."""

    name: str
    probs: jax.Array
    labels: jax.Array


def read_network(data: Path, name: str, num_samples: int | None) -> Network:
    """The published predictions of a network and the labels, which the file counts from one.

    Raises:
        DataError: if a file is missing, or holds something else.
    """
    probs, labels = cifar.read_cifar10(data, name)
    return Network(name, jnp.asarray(probs[:num_samples]), jnp.asarray(labels[:num_samples]))


def digits_network(name: str, num_samples: int | None) -> Network:
    """The classifier of stand-in data."""
    part = stand_in.digits().evaluation
    probs = jax.nn.softmax(jnp.asarray(part.logits[:num_samples]))
    return Network(name, probs, jnp.asarray(part.labels[:num_samples]))


def estimate(network: Network) -> dict[str, float]:
    """Length scale of the kernel, and the estimates by published column."""
    predictions = Categorical(network.probs)
    distance = distances.TotalVariation()
    scale = kernels.median_heuristic(distance, predictions, include_diagonal=True)
    data = predictions, network.labels
    samples = procedures.w19_kernel(scale), *data
    dynamic = estimators.MedianVarianceBins(MIN_BIN_SIZE)
    return {
        "scale": float(scale),
        "ECE_uniform": float(estimators.ece(*data, binning=UNIFORM, notion="canonical")),
        "ECE_dynamic": float(estimators.ece(*data, binning=dynamic, notion="canonical")),
        "SKCEb_median": float(estimators.skce_biased(*samples)),
        "SKCEuq_median": float(estimators.skce(*samples)),
        "SKCEul_median": float(estimators.skce_block(*samples, block_size=2)),
    }


@functools.cache
def _compiled(procedure: Procedure, draws: int) -> Callable:
    """(key, scale, probs, labels) → p-value; compiled once for all networks."""

    def pvalue(key: Any, scale: Any, probs: Any, labels: Any) -> jax.Array:
        is_dynamic = procedure == DATA_DEPENDENT
        binning = estimators.MedianVarianceBins(MIN_BIN_SIZE) if is_dynamic else UNIFORM
        bins = binning(Categorical(probs))
        predictions = procedures.prepare(probs.astype(procedure.dtype), bins)
        kernel = procedures.w19_kernel(jnp.asarray(scale, procedure.dtype))
        return procedure.evaluate(key, kernel, predictions, labels, draws)

    return jax.jit(pvalue)


def evaluate(network: Network, procedure: Procedure, scale: float, draws: int) -> dict[str, float]:
    """p-value of a test of a network, and the time it took, with compilation in the first."""
    key = cells.key_of(f"{NAME}/{network.name}/{procedure.slug}")
    start = time.perf_counter()
    pvalue = _compiled(procedure, draws)(key, scale, network.probs, network.labels)
    return {"pvalue": float(pvalue), "seconds": time.perf_counter() - start}


def finished_cells(
    store: Store, data: Path | None, names: list[str], settings: Settings
) -> dict[str, dict[str, dict[str, float]]]:
    """Results by network and published column, and "errors", computed or read."""
    finished: dict[str, dict[str, dict[str, float]]] = {}
    bar = tqdm(total=len(names) * (1 + len(TESTS)), desc=NAME, unit="cell")
    for name in names:
        read = functools.partial(read_network, data) if data is not None else digits_network
        network = read(name, settings.num_samples)
        digest = data_files.digest(network.probs, network.labels)
        parameters = dataclasses.asdict(settings) | {"data": digest}
        compute: Callable = functools.partial(estimate, network)
        finished[name] = {"errors": cells.cell(store, f"{name}/errors", parameters, compute)}
        bar.update()
        scale = finished[name]["errors"]["scale"]
        for column, test in TESTS.items():
            bar.set_description(f"{NAME}: {name}, {test.label}")
            compute = functools.partial(evaluate, network, test, scale, settings.draws)
            finished[name][column] = cells.cell(store, f"{name}/{test.slug}", parameters, compute)
            bar.update()
    bar.close()
    return finished


def in_our_convention(column: str, pvalue: float, estimate: float, num_samples: int) -> float:
    """A published p-value as it would be with our conventions.

    Simulated p-values are (1 + count) / (B + 1) instead of count / B; the variance of the m block
    estimates is divided by m − 1 instead of m; the bound of an unbiased estimate below zero is 1
    instead of that of its square.

    Args:
        column: name of the published column.
        pvalue: the published p-value.
        estimate: our estimate of the SKCE that the column is about, the block estimate.
        num_samples: n.
    """
    if column in SIMULATED:
        return (1 + pvalue * PUBLISHED_DRAWS) / (PUBLISHED_DRAWS + 1)
    if column == "SKCEul_median_asymptotic":
        num_blocks = num_samples // 2
        z = norm.isf(pvalue) * np.sqrt((num_blocks - 1) / num_blocks)
        return float(norm.sf(z))
    if column == "SKCEul_median_distribution_free" and estimate < 0:
        return 1.0
    return pvalue


class PvalueRow(NamedTuple):
    """The p-value of a test of a network, published and ours, and the seconds it took."""

    network: str
    test: str
    published: float | None
    converted: float | None
    ours: float
    difference: float | None
    seconds: float


def _names(settings: Settings) -> dict[str, str]:
    """Headers of the columns "published" and "ours" where they are not about the same images."""
    if settings.num_samples is None or header():
        return {}
    return {
        "published": f"published, all {NUM_SAMPLES} images",
        "ours": f"ours, first {settings.num_samples} images",
    }


class ErrorRow(NamedTuple):
    """An estimate of the calibration error of a network, published and ours."""

    network: str
    estimator: str
    published: float | None
    ours: float
    difference: float | None


def pvalue_rows(
    published: dict[str, dict[str, str]],
    finished: dict[str, dict[str, dict[str, float]]],
    settings: Settings,
) -> list[PvalueRow]:
    """Rows "published / ours" of the p-values; no differences where few samples were taken."""
    rows = []
    for name, results in finished.items():
        for column, test in TESTS.items():
            ours, seconds = results[column]["pvalue"], results[column]["seconds"]
            theirs, converted, difference = None, None, None
            if column in published[name]:
                theirs = float(published[name][column])
                block_estimate = results["errors"]["SKCEul_median"]
                converted = in_our_convention(column, theirs, block_estimate, NUM_SAMPLES)
                difference = ours - converted if settings.num_samples is None else None
            row = PvalueRow(name, test.label, theirs, converted, ours, difference, seconds)
            rows.append(row)
    return rows


def rows_by_network(rows: Sequence[PvalueRow]) -> list[dict[str, str]]:
    """Fig. 36: a row for each network and a column for each test, "published, converted / ours"."""
    table: dict[str, dict[str, str]] = {}
    for row in rows:
        both = [f"{p:.3f}" for p in (row.converted, row.ours) if p is not None]
        line = table.setdefault(row.network, {"network": row.network})
        line[row.test] = " / ".join(both)
    return list(table.values())


def error_rows(
    published: dict[str, dict[str, str]],
    finished: dict[str, dict[str, dict[str, float]]],
    settings: Settings,
) -> list[ErrorRow]:
    """Rows "published / ours" of the estimates; no differences where few samples were taken."""
    rows = []
    for name, results in finished.items():
        for column, label in ERRORS.items():
            theirs, ours, difference = None, results["errors"][column], None
            if column in published[name]:
                theirs = float(published[name][column])
                difference = ours - theirs if settings.num_samples is None else None
            rows.append(ErrorRow(name, label, theirs, ours, difference))
    return rows


def _write(
    folder: Path, name: str, rows: Sequence[ErrorRow | PvalueRow], settings: Settings, kind: str
) -> None:
    """A table, and how far ours is from the published numbers, or why that is not said."""
    note = note_of(__file__, kind, size=MIN_BIN_SIZE)
    if settings.num_samples is None:
        differences = [abs(row.difference) for row in rows if row.difference is not None]
        values = {"num": len(differences), "largest": max(differences, default=0)}
        note += note_of(__file__, f"{kind}_differences", **values)
    else:
        values = {"samples": settings.num_samples, "draws": settings.draws}
        note += note_of(__file__, f"{kind}_fewer", **values)
    names = {"converted": "published, converted"} | _names(settings)
    write_table(folder, name, rows, note, names=names)


def run(run: command_line.Run) -> None:
    """Runs the experiment; without --data it runs on stand-in data."""
    settings, store = SETTINGS[run.preset], run.store(NAME, __file__)
    if run.data is None or not (run.data / FOLDER).is_dir():
        needed = f"the published predictions, folder {FOLDER} (--data DIR)"
        with marked(NAME, stand_in.WHAT, needed):
            finished = finished_cells(store, None, ["digits"], settings)
            write_all(store, settings, {"digits": {}}, {"digits": {}}, finished)
        return
    columns = [column for column in TESTS if column != "exact"]
    pvalues, errors = (
        {row["model"]: row for row in run.published(FOLDER, f"{table}.csv", columns=needed) or []}
        for table, needed in (
            ("pvalues", {"model": str} | dict.fromkeys(columns, float)),
            ("errors", {"model": str} | dict.fromkeys(ERRORS, float)),
        )
    )
    if missing := pvalues.keys() - errors.keys():
        name = ", ".join(sorted(missing))
        raise data_files.DataError(f"--data: expected rows of {name} in {FOLDER}/errors.csv")
    finished = finished_cells(store, run.data, list(pvalues), settings)
    write_all(store, settings, errors, pvalues, finished)


def write_all(
    store: Store,
    settings: Settings,
    errors: dict[str, dict[str, str]],
    pvalues: dict[str, dict[str, str]],
    finished: dict[str, dict[str, dict[str, float]]],
) -> None:
    """Writes the tables of estimates and p-values, and Fig. 35, beside the published numbers."""
    error_table = error_rows(errors, finished, settings)
    _write(store.folder, "errors", error_table, settings, "errors")
    plot_errors(store.folder, error_table, _names(settings))
    rows = pvalue_rows(pvalues, finished, settings)
    _write(store.folder, "pvalues", rows, settings, "note")
    write_table(store.folder, "figure_36", rows_by_network(rows), note_of(__file__, "figure_36"))
    if settings.num_samples is None and not header():
        write_claims(store.folder, error_table, rows, settings.draws)


if __name__ == "__main__":
    command_line.main(run, __file__, __doc__, data=True)
