"""Do 95 % confidence intervals for the SKCE cover it?

Uncalibrated models of Widmann et al. (2021, App. A.2), and for contrast the calibrated ones, where
the SKCE is zero and its estimate is not even approximately normal: the intervals are not of their
level there, and not meant to be.

The true SKCE is an integral over the centers c, c' ~ U(0, 1) of two predictions. With the
squared exponential target kernel of length scale one, v = 1 + 2 · 0.1² and
e(x) = exp(−x² / (2 v)), all expectations given the centers are Gaussian integrals:

    SKCE = v^(−d/2) E exp(−√d |c − c'|) e(c − c')^(d−1)
           [1 − e(c − 0.1) − e(c' − 0.1) + e(c − c')],

the first component of the targets being centered at 0.1 and the other d − 1 at c. Beside the
coverages there is a table that compares it with the means of the unbiased estimates.

Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.coverage [--num-datasets 2000] [--output DIR]
"""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import hypothesis_tests
from experiments.harness import command_line
from experiments.harness.cells import Case, Store, keys_of, simulated
from experiments.harness.command_line import program
from experiments.harness.tables import write_table
from experiments.synthetic_models import SCALE, SHIFTED_MEAN, Model

LEVEL = 0.95
# The lower limit of level 1 − α is that of the two-sided interval of level 1 − 2α.
TWO_SIDED = (LEVEL, 2 * LEVEL - 1)
NUM_RESAMPLES = 999
# Of the data sets, at n = 1024.
SHARES = {("asymptotic", 10): 0.5, ("bootstrap", 1): 0.25, ("bootstrap", 10): 0.25}
BARS = (0.93, 0.97)  # asymptotic two-sided interval, uncalibrated models, n ≥ 256
MODELS = tuple(Model(name, d) for name in ("uncalibrated", "calibrated") for d in (1, 10))
METHODS = ("asymptotic", "bootstrap")
SIDES = ("two-sided", "lower")


def true_skce(model: Model) -> float:
    """The SKCE of a model with normal predictions, by quadrature."""
    if model.calibrated:
        return 0.0
    nodes, weights = np.polynomial.legendre.leggauss(60)
    nodes, weights = (nodes + 1) / 2, weights / 2
    # By symmetry the triangle c' < c, on which everything is smooth: c' = c t.
    c, t = nodes[:, None], nodes
    measure = 2 * weights[:, None] * weights * c
    variance, d = 1 + 2 * SCALE**2, model.size

    def e(x: np.ndarray) -> np.ndarray:
        return np.exp(-np.square(x) / (2 * variance))

    distance = c * (1 - t)
    bracket = 1 - e(c - SHIFTED_MEAN) - e(c * t - SHIFTED_MEAN) + e(distance)
    values = np.exp(-math.sqrt(d) * distance) * e(distance) ** (d - 1) * bracket
    return float(variance ** (-d / 2) * np.sum(measure * values))


@functools.partial(jax.jit, static_argnames=("model", "num_samples", "method"))
def intervals(
    data_keys: jax.Array, keys: jax.Array, *, model: Model, num_samples: int, method: str
) -> Any:
    """Two-sided intervals of the levels `TWO_SIDED` for each of the data sets, [data sets, 2]."""

    def one(key_pair: tuple[jax.Array, jax.Array]) -> Any:
        data_key, key = key_pair
        arguments = model.kernel, *model.draw(data_key, num_samples)

        def interval(level: jax.Array) -> Any:
            if method == "asymptotic":
                return hypothesis_tests.skce_confidence_interval(*arguments, confidence_level=level)
            return hypothesis_tests.bootstrap_skce_confidence_interval(
                key, *arguments, confidence_level=level, num_draws=NUM_RESAMPLES
            )

        # Only what depends on the level is computed twice.
        return jax.vmap(interval)(jnp.array(TWO_SIDED))

    return jax.lax.map(one, (data_keys, keys))


def tally(case: tuple[int, str, Model], span: tuple[int, int]) -> dict[str, Any]:
    """Misses on both sides, widths, and moments of the estimate, on the given data sets."""
    num_samples, method, model = case
    name = f"coverage/{model.name}/{model.size}/{num_samples}"
    keys = keys_of(name, "data", span), keys_of(name, method, span)
    results = intervals(*keys, model=model, num_samples=num_samples, method=method)
    low, high, estimate = map(np.asarray, (results.low, results.high, results.estimate[:, 0]))
    truth = true_skce(model)
    is_above = truth > high[:, 0]
    return {
        "two-sided": [int(np.sum(truth < low[:, 0])), int(np.sum(is_above))],
        "lower": [int(np.sum(truth < low[:, 1])), 0],
        "width": float(np.sum(high[:, 0] - low[:, 0])),
        "estimates": float(estimate.sum()),
        "squares": float(np.square(estimate).sum()),
    }


def number_of(method: str, model: Model, num_samples: int, num_datasets: int) -> int:
    """Number of data sets: fewer where they cost most."""
    share = SHARES.get((method, model.size), 1) if num_samples >= 1024 else 1
    return max(2, math.ceil(share * num_datasets))


def coverage_row(line: dict[str, Any], chunks: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """Adds coverage, width, sides of the misses and the bar."""
    method, side = line["interval"].split()
    below, above = (sum(chunk[side][i] for chunk in chunks) / number for i in range(2))
    coverage = 1 - below - above
    width = sum(chunk["width"] for chunk in chunks) / number
    line |= {
        "coverage": coverage,
        "s.e.": math.sqrt(coverage * (1 - coverage) / number),
        "mean width": width if side == "two-sided" else None,
        "SKCE below the interval": below,
        "SKCE above": above,
    }
    has_bar = (method, side) == ("asymptotic", "two-sided") and line["n"] >= 256
    has_bar &= line["model"] == "uncalibrated"
    line["bar"] = f"within {BARS[0]} and {BARS[1]}" if has_bar else None
    line["met"] = BARS[0] <= coverage <= BARS[1] if has_bar else None
    return line


def truth_row(model: Model, n: int, chunks: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """Compares the true SKCE with the mean of the estimates."""
    mean = sum(chunk["estimates"] for chunk in chunks) / number
    variance = sum(chunk["squares"] for chunk in chunks) / number - mean**2
    error = math.sqrt(variance / (number - 1))
    return {
        "model": model.name,
        "d": model.size,
        "n": n,
        "true SKCE": true_skce(model),
        "mean estimate": mean,
        "s.e.": error,
        "difference / s.e.": (mean - true_skce(model)) / error,
        "sd of an estimate": math.sqrt(variance),
    }


def coverages(store: Store, num_datasets: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows about the intervals, and about the true SKCE."""
    places = itertools.product((64, 256, 1024), METHODS, MODELS)
    places = [place for place in places if place[0] < 1024 or not place[2].calibrated]
    cases = {
        (n, method, model): Case(
            f"{model.name}{model.size}/{n}/{method}",
            number_of(method, model, n, num_datasets),
            n,
            {"B": NUM_RESAMPLES},
        )
        for n, method, model in places
    }
    rows, truths = [], []
    for (n, method, model), chunks in simulated(store, "coverage", cases, tally).items():
        number = cases[n, method, model].number
        if method == "asymptotic":
            truths.append(truth_row(model, n, chunks, number))
        for side in SIDES:
            line = {"model": model.name, "d": model.size, "n": n, "interval": f"{method} {side}"}
            line["data sets"] = number
            rows.append(coverage_row(line, chunks, number))
    return sorted(rows, key=lambda row: (row["model"] == "calibrated", row["d"], row["n"])), truths


@program
def main() -> None:
    """Writes the tables coverage and coverage_truth."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=2000)
    run, options = command_line.parse(parser)
    if options.num_datasets < 2:
        parser.error("--num-datasets: expected at least 2")
    jax.config.update("jax_enable_x64", True)
    rows, truths = coverages(run.store("coverage", __file__), options.num_datasets)
    command = f"`python -m experiments.coverage --num-datasets {options.num_datasets}`"
    note = (
        f"Intervals of level {LEVEL}, {NUM_RESAMPLES} resamples for the bootstrap. The SKCE of the "
        "calibrated models is zero and their intervals are not meant to be of their level. The "
        f"SKCE is known exactly from quadrature, see coverage_truth. Made by {command}."
    )
    write_table(run.output, "coverage", rows, note, show=True)
    note = (
        f"The SKCE by quadrature, and the mean over the data sets of `coverage`. Made by {command}."
    )
    write_table(run.output, "coverage_truth", truths, note, show=True)


if __name__ == "__main__":
    main()
