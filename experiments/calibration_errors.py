"""How large is the calibration error in many classes? Recalibrations and kernels, chosen by risk.

Predictions softmax(z) with z ~ N(0, 3²) in each of m classes; the true conditional probabilities
are a function of them, so that the squared calibration error is known up to a Monte Carlo error
below 1 %. The errors are a temperature of 1.5 or 2 (sharp), one of 0.5 (blunt), a bias of each
class, which vector scaling has but no temperature, and an error that no logistic map has: where the
most probable class has an even number, half of the mass of each class belongs to the next one.

Estimates of recalibrations are their gains of the Brier score, those of kernel ridge regression the
mean of h(p_i, p_i), with the penalty that has the smallest risk. The last columns have the estimate
of the function with the smallest risk of all in each data set. In `calibration_errors` "rmse" is
the root mean squared error; the bar is 1.3 times that of the best column, in thousandths.

Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.calibration_errors [--num-datasets 20] [--output DIR]
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import risk
from calibjax.distributions import CategoricalLogits
from calibjax.recalibration import MatrixScaling, TemperatureScaling, recalibration_gain
from calibjax.scores import brier_score
from experiments.harness import command_line
from experiments.harness.cells import Case, Store, key_of, keys_of, simulated
from experiments.harness.tables import write_table

NAME = "calibration_errors"
SCALE, BAR = 3.0, 1.3
SIZES = ((5, 500), (5, 5000), (10, 500), (10, 5000), (100, 500))  # classes, samples
FOLDS = 10  # of the risk: with 5, kernels, which need more samples, are chosen too rarely


def _biased(logits: jax.Array) -> jax.Array:
    return logits + jnp.cos(jnp.arange(logits.shape[1], dtype=logits.dtype))


def _shifted(logits: jax.Array) -> jax.Array:
    probs = jax.nn.softmax(logits)
    is_even = jnp.argmax(logits, 1, keepdims=True) % 2 == 0
    return jnp.log(jnp.where(is_even, 0.5 * (probs + jnp.roll(probs, 1, 1)), probs))


# The logits of the truth as a function of those of the predictions.
ERRORS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "temperature": lambda logits: logits / 1.5,
    "sharp": lambda logits: logits / 2,
    "blunt": lambda logits: logits * 2,
    "biased": _biased,
    "not logistic": _shifted,
}
RECALIBRATIONS = {
    "temperature": TemperatureScaling(),
    "vector": MatrixScaling(structure="diagonal"),
    "matrix": MatrixScaling(),
}
KERNELS = {
    "kernel": risk.KernelRidge(rank=50),
    "two-step": risk.KernelRidge(two_step=True, rank=50),
}
COLUMNS = (*RECALIBRATIONS, *KERNELS)
Kind = tuple[str, int, int]  # error, classes, samples


def draw(key: jax.Array, kind: Kind) -> tuple[CategoricalLogits, jax.Array, jax.Array]:
    """Predictions, labels, and the true probabilities."""
    error, m, n = kind
    keys = jax.random.split(key)
    logits = SCALE * jax.random.normal(keys[0], (n, m))
    truth = ERRORS[error](logits)
    return CategoricalLogits(logits), jax.random.categorical(keys[1], truth), jax.nn.softmax(truth)


@functools.partial(jax.jit, static_argnums=(0, 1))
def true_error(kind: Kind, num_blocks: int = 100) -> jax.Array:
    """The squared calibration error, by 100 blocks of 2000 predictions."""

    def of_block(key: jax.Array) -> jax.Array:
        predictions, _, truth = draw(key, (*kind[:2], 2000))
        return jnp.mean(jnp.sum(jnp.square(predictions.class_probs - truth), 1))

    return jnp.mean(jax.lax.map(of_block, jax.random.split(key_of(f"{NAME}/truth"), num_blocks)))


@jax.jit
def estimates(
    key: jax.Array, predictions: CategoricalLogits, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Risks and estimates of each column, [5]."""
    risks, errors = [], []
    gains = recalibration_gain(key, RECALIBRATIONS, predictions, labels, score=brier_score)
    for name, method in RECALIBRATIONS.items():
        function = risk.Recalibrated(method)
        found = risk.cross_validate(key, function, [1.0], predictions, labels, num_folds=FOLDS)
        risks.append(found.risk[0])
        errors.append(gains[name].mean)
    for function in KERNELS.values():
        grid = jnp.asarray(function.grid(len(labels) * (FOLDS - 1) // FOLDS, canonical=True))
        found = risk.cross_validate(key, function, grid, predictions, labels, num_folds=FOLDS)
        params = function.fit(predictions, labels, found.hyperparameter)
        risks.append(jnp.min(found.risk))
        errors.append(jnp.mean(function.diagonal(params, predictions)))
    return jnp.stack(risks), jnp.stack(errors)


def _cell(kind: Kind, span: tuple[int, int]) -> dict[str, Any]:
    """Risks and estimates of the data sets of a cell."""
    label = f"{NAME}/{'/'.join(map(str, kind))}"
    found = []
    for data, folds in zip(
        *(keys_of(label, part, span) for part in ("data", "folds")), strict=True
    ):
        predictions, labels, _ = draw(data, kind)
        found.append([np.asarray(x).tolist() for x in estimates(folds, predictions, labels)])
    risks, errors = zip(*found, strict=True)
    return {"risks": risks, "estimates": errors}


def row_of(kind: Kind, truth: float, risks: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    """A line of the table from risks and estimates, [data sets, columns]."""
    chosen = risks.argmin(1)
    line: dict[str, Any] = dict(zip(("error", "classes", "n"), kind, strict=True))
    line["truth"] = 1000 * truth

    def add(name: str, values: np.ndarray) -> float:
        deviations = 1000 * (values - truth)
        line[f"{name}: bias"] = deviations.mean()
        line[f"{name}: rmse"] = rmse = np.sqrt(np.mean(deviations**2))
        return rmse

    best = min([add(name, errors[:, i]) for i, name in enumerate(COLUMNS)])
    rmse = add("chosen", errors[np.arange(len(errors)), chosen])
    counts = np.bincount(chosen, minlength=len(COLUMNS))
    names = ", ".join(f"{x} {k}" for x, k in zip(COLUMNS, counts, strict=True) if k)
    return line | {"by risk": names, "rmse / best": rmse / best, "met": bool(rmse <= BAR * best)}


def rows(store: Store, num_datasets: int) -> list[dict[str, Any]]:
    """All lines of the table."""
    cases = {
        (error, m, n): Case(f"{error}/{m}/{n}".replace(" ", "_"), num_datasets, n, {"folds": FOLDS})
        for m, n in SIZES
        for error in ERRORS
    }
    lines = []
    for kind, chunks in simulated(store, NAME, cases, _cell).items():
        found = (np.concatenate([chunk[x] for chunk in chunks]) for x in ("risks", "estimates"))
        lines.append(row_of(kind, float(true_error(kind)), *found))
    return lines


@command_line.program
def main() -> None:
    """Writes the table calibration_errors."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=20)
    run, options = command_line.parse(parser)
    store = run.store(NAME, __file__)
    note = (
        f"{options.num_datasets} data sets each; biases, errors and the truth in thousandths. "
        f"Made by `python -m experiments.{NAME} --num-datasets {options.num_datasets}`."
    )
    write_table(store.folder, NAME, rows(store, options.num_datasets), note, show=True)


if __name__ == "__main__":
    main()
