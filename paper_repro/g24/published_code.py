"""Our estimators on the split of the published code, beside what that code returns.

`published_code.csv` has the mean of the roots of the risks over the five folds, times 100, that the
published `CV_pipeline.py` computes from the first 1000 test images of four networks, whose logits
are multiplied by "scale", with probabilities in float32, as published, and in float64; "ones" is
the share of the confidences that are 1 in float32.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax import estimators, risk
from calibjax.distributions import CategoricalLogits
from calibjax.kernels import SquaredExponential
from experiments.harness import cells
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, published_rows, write_table
from paper_repro.data import cifar
from paper_repro.data.classifiers import read_logits

NUM_IMAGES, NUM_FOLDS = 1000, 5
KERNEL = SquaredExponential(0.5**0.5)  # gamma=1 in the code, 1/2 in the paper
BANDWIDTHS = risk.KernelDensity().grid
# Functions, and their grids for n training samples; penalties are those of the code, whose powers
# of n are not those of App. B.
FUNCTIONS: dict[str, tuple[risk.EstimationFunction, Callable[[int, bool], np.ndarray]]] = {
    "15 bins": (risk.Binning(), lambda n, canonical: np.array([15])),
    "bins": (risk.Binning(), lambda n, canonical: np.arange(5, 95, 5)),
    "kde": (risk.KernelDensity(), lambda n, canonical: BANDWIDTHS(n)),
    "kkr": (
        risk.KernelRidge(KERNEL),
        lambda n, canonical: risk.KernelRidge().grid(n, canonical=canonical) / n,
    ),
    "ukkr": (
        risk.KernelRidge(KERNEL, two_step=True),
        lambda n, canonical: risk.KernelRidge(two_step=True).grid(n, canonical=canonical) / n**0.75,
    ),
}


def split(num: int) -> list[np.ndarray]:
    """Indices of the folds: four fifths of the samples in the order of the published code."""
    order = np.random.RandomState(0).choice(num, num, replace=False)
    return np.array_split(order[: int(0.8 * num)], NUM_FOLDS)


@jax.jit
def risks(function: risk.EstimationFunction, grid: jax.Array, rest: Any, held_out: Any) -> Any:
    """Risks [k] on held out samples, of the function fitted to the rest, both (points, targets)."""
    first, (points, _) = function.fit(*rest, grid[0]), held_out

    def at(value: jax.Array) -> jax.Array:
        params = function.refit(first, value)
        params = function.fit(*rest, value) if params is None else params
        return risk.estimation_risk(function.evaluate(params, points, points), *held_out).value

    return lax.map(at, grid)


def root_risk(
    function: risk.EstimationFunction, grid: np.ndarray, data: Any, kept: np.ndarray
) -> float:
    """Smallest mean over the folds of 100 √risk.

    Args:
        function: the estimation function.
        grid: its hyperparameters.
        data: predictions and targets of n samples.
        kept: the samples that are not left out of the risk, [n].
    """
    function, folds = function.specialise(data[0], grid), split(len(kept))
    found = []
    for i, fold in enumerate(folds):
        parts = np.concatenate(folds[:i] + folds[i + 1 :]), fold[kept[fold]]
        rest, held_out = (jax.tree.map(lambda x, part=part: x[part], data) for part in parts)
        found.append(risks(function, grid, rest, held_out))
    return float(100 * np.sqrt(found).mean(0).min())


def samples(data: Path, network: str, scale: float, notion: str) -> tuple[Any, np.ndarray]:
    """Predictions and targets of a network, and which confidences are below 1 in float32."""
    part, chosen = read_logits(data, network).evaluation, slice(NUM_IMAGES)
    logits = part.logits[chosen].astype(np.float32) * np.float32(scale)
    predictions = CategoricalLogits(jnp.asarray(logits, np.float64))
    labels = jnp.asarray(part.labels[chosen])
    if notion == "canonical":
        return (predictions, labels), np.full(len(labels), True)
    confidences, correct = estimators.top_label(predictions, labels)
    kept = np.asarray(jax.nn.softmax(logits, axis=1).max(1) < 1)
    return (confidences.probs, correct), kept


def compute(row: dict[str, str], data: Path) -> dict[str, np.ndarray]:
    """Ours for a row of the published ones, and without the confidences that are 1 in float32."""
    name, canonical = row["estimator"], row["notion"] == "canonical"
    pairs, kept = samples(data, row["network"], float(row["scale"]), row["notion"])
    function, grid = FUNCTIONS[name]
    size = int(0.8 * len(kept)) * (NUM_FOLDS - 1) // NUM_FOLDS
    of = functools.partial(root_risk, function, grid(size, canonical), pairs)
    without = of(kept) if name == "kde" and not kept.all() else np.nan
    return {"ours": np.array(of(np.full(len(kept), True))), "without": np.array(without)}


def table_rows(store: Store, data: Path) -> Iterator[dict[str, Any]]:
    """Rows of the table, computed or read."""
    for row in published_rows(__file__):
        names = [row[x] for x in ("network", "scale", "notion", "estimator")]
        path = "/".join(["published_code", *names]).replace(" ", "_")
        found = cells.arrays(store, path, row, functools.partial(compute, row, data))
        ours, without = (f"{found[x]:.4f}" for x in ("ours", "without"))
        published = {x: row[x] and f"{float(row[x]):.4f}" for x in ("float32", "float64")}
        yield row | published | {"ours": ours, "ours without ones": without.replace("nan", "")}


def write_tables(store: Store, data: Path | None) -> None:
    """Writes the table, if the logits are there."""
    networks = {row["network"] for row in published_rows(__file__)}
    if data is not None and all(data.joinpath(*cifar.LOGITS[name]).is_dir() for name in networks):
        rows = list(table_rows(store, data))
        write_table(store.folder, "published_code", rows, note_of(__file__, "published_code"))
