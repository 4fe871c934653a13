"""Our estimators on the split of the published code, beside what that code returns.

`published_code.csv` has the mean of the roots of the risks over the five folds, times 100, that the
published `CV_pipeline.py` computes from the first 1000 test images of four networks, whose logits
are multiplied by "scale", with probabilities in float32, as published, and in float64; "ones" is
the share of the confidences that are 1 in float32.
"""

import functools
from collections.abc import Iterator
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
FUNCTIONS = {
    "15 bins": risk.Binning(),
    "bins": risk.Binning(),
    "kde": risk.KernelDensity(),
    "kkr": risk.KernelRidge(KERNEL),
    "ukkr": risk.KernelRidge(KERNEL, two_step=True),
}


def grid_of(name: str, n: int, *, canonical: bool) -> np.ndarray:
    """Hyperparameters of the code for n training samples; App. B has other powers of n."""
    if name.endswith("bins"):
        return np.array([15]) if name == "15 bins" else np.arange(5, 95, 5)
    factor = {"kde": 1, "kkr": n, "ukkr": n**0.75}[name]
    return FUNCTIONS[name].grid(n, canonical=canonical) / factor


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
    learned = targets if learned is None else learned
    kept = np.full(num, True) if kept is None else kept
    function = function.specialise(points, grid)
    folds = np.array_split(shuffled(num)[: int(0.8 * num)], NUM_FOLDS)
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
    num_training = int(0.8 * len(targets)) * (NUM_FOLDS - 1) // NUM_FOLDS
    grid = grid_of(name, num_training, canonical=is_canonical)
    errors = {}
    if is_canonical and name != "kde":  # position i has the label of the unshuffled sample i
        errors["learned"] = targets[np.argsort(shuffled(len(targets)))]
    if not is_canonical:
        points, targets = estimators.top_label(points, targets)
        points, kept = points.probs, softmax(logits, axis=1).max(1) < 1  # as there, by SciPy
        if name == "kde" and not kept.all():
            errors["kept"] = kept
    of = functools.partial(root_risk, FUNCTIONS[name], grid, points, targets)
    ours, wrong = of(), of(**errors) if errors else np.nan
    return {"ours": np.array(ours), "wrong": np.array(wrong)}


def table_rows(store: Store, data: Path) -> Iterator[dict[str, Any]]:
    """Rows of the table, computed or read."""
    for row in published_rows(__file__):
        key = {x: row[x] for x in ("network", "scale", "notion", "estimator")}
        path = "/".join(["published_code", *key.values()]).replace(" ", "_")
        found = cells.arrays(store, path, key, functools.partial(compute, row, data))
        ours, wrong = (f"{found[x]:.4f}" for x in ("ours", "wrong"))
        published = {x: row[x] and f"{float(row[x]):.4f}" for x in ("float32", "float64")}
        yield row | published | {"ours": ours, "ours, with the error": wrong.replace("nan", "")}


def write_tables(store: Store, data: Path | None) -> None:
    """Writes the table, if the logits are there."""
    networks = {row["network"] for row in published_rows(__file__)}
    if data is not None and all(data.joinpath(*cifar.LOGITS[name]).is_dir() for name in networks):
        rows = list(table_rows(store, data))
        write_table(store.folder, "published_code", rows, note_of(__file__, "published_code"))
