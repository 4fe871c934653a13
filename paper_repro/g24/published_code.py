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
from scipy.special import softmax  # comes with scikit-learn

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


def shuffled(num: int) -> np.ndarray:
    """Indices of samples in the order of the published code."""
    return np.random.RandomState(0).choice(num, num, replace=False)


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
    function: risk.EstimationFunction,
    grid: np.ndarray,
    points: Any,
    targets: jax.Array,
    *,
    learned: jax.Array | None = None,
    kept: np.ndarray | None = None,
) -> float:
    """Smallest mean over the folds of 100 √risk, with four fifths of the samples in folds.

    Args:
        function: the estimation function.
        grid: its hyperparameters.
        points: predictions of n samples.
        targets: their targets, [n].
        learned: the targets that functions are fitted to, [n]; by default the same.
        kept: the samples that are not left out of the risk, [n]; by default all.
    """
    num = len(targets)
    learned, kept = (
        targets if learned is None else learned,
        np.full(num, True) if kept is None else kept,
    )
    function, folds = (
        function.specialise(points, grid),
        np.array_split(shuffled(num)[: int(0.8 * num)], NUM_FOLDS),
    )
    found = []
    for i, fold in enumerate(folds):
        rest, fold = np.concatenate(folds[:i] + folds[i + 1 :]), fold[kept[fold]]
        at_rest, at_fold = (jax.tree.map(lambda x, j=j: x[j], points) for j in (rest, fold))
        found.append(risks(function, grid, (at_rest, learned[rest]), (at_fold, targets[fold])))
    return float(100 * np.sqrt(found).mean(0).min())


def compute(row: dict[str, str], data: Path) -> dict[str, np.ndarray]:
    """Ours for a row of the published ones, and ours with the errors of the published code."""
    part, chosen = read_logits(data, row["network"]).evaluation, slice(NUM_IMAGES)
    logits = part.logits[chosen].astype(np.float32) * np.float32(row["scale"])
    points = CategoricalLogits(jnp.asarray(logits, np.float64))
    targets = jnp.asarray(part.labels[chosen])
    is_canonical, name = row["notion"] == "canonical", row["estimator"]
    function, grid = FUNCTIONS[name]
    grid = grid(int(0.8 * len(targets)) * (NUM_FOLDS - 1) // NUM_FOLDS, is_canonical)
    errors = {}
    if is_canonical and name != "kde":  # position i has the label of the unshuffled sample i
        errors["learned"] = targets[np.argsort(shuffled(len(targets)))]
    if not is_canonical:
        points, targets = estimators.top_label(points, targets)
        points, kept = points.probs, softmax(logits, axis=1).max(1) < 1  # as there, by SciPy
        if name == "kde" and not kept.all():
            errors["kept"] = kept
    ours = root_risk(function, grid, points, targets)
    wrong = root_risk(function, grid, points, targets, **errors) if errors else np.nan
    return {"ours": np.array(ours), "wrong": np.array(wrong)}


def table_rows(store: Store, data: Path) -> Iterator[dict[str, Any]]:
    """Rows of the table, computed or read."""
    for row in published_rows(__file__):
        names = [row[x] for x in ("network", "scale", "notion", "estimator")]
        path = "/".join(["published_code", *names]).replace(" ", "_")
        found = cells.arrays(store, path, row, functools.partial(compute, row, data))
        ours, wrong = (f"{found[x]:.4f}" for x in ("ours", "wrong"))
        published = {x: row[x] and f"{float(row[x]):.4f}" for x in ("float32", "float64")}
        yield row | published | {"ours": ours, "ours, with the error": wrong.replace("nan", "")}


def write_tables(store: Store, data: Path | None) -> None:
    """Writes the table, if the logits are there."""
    networks = {row["network"] for row in published_rows(__file__)}
    if data is not None and all(data.joinpath(*cifar.LOGITS[name]).is_dir() for name in networks):
        rows = list(table_rows(store, data))
        write_table(store.folder, "published_code", rows, note_of(__file__, "published_code"))
