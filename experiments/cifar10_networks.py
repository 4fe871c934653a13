"""The published calibration errors of four CIFAR-10 networks, and exact p-values for them.

Compares SKCE_b, SKCE_uq and SKCE_ul with `errors.csv` of the repository that accompanies Widmann
et al. (2019, App. J.3). The kernel is exp(−TV/ν) δ with ν the median over the full matrix of
total variation distances, its zero diagonal included. The rows of the published predictions sum
to one up to their eight printed digits; they are taken as they are, as the published numbers did.

The exact p-value has no published counterpart; `pvalues.csv` holds asymptotic ones.

Run: python -m experiments.cifar10_networks --data DIR [--output DIR]
"""

import csv
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from experiments import reporting

FOLDER = "cifar10_networks"
BAR = 1e-9


def read_labels(data: Path) -> jax.Array:
    """Labels 0, ..., 9; the file counts from one."""
    labels = np.loadtxt(reporting.data_file(data, FOLDER, "labels.csv"), dtype=int)
    return jnp.asarray(labels - 1)


def read_published(data: Path) -> dict[str, dict[str, str]]:
    """Published errors by network."""
    with reporting.data_file(data, FOLDER, "errors.csv").open(encoding="utf-8") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def evaluate(
    name: str, predictions: Any, labels: jax.Array, num_samples: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Errors by published column, and a row about the exact test, of one network."""
    start = time.perf_counter()
    scale = kernels.median_heuristic(distances.TotalVariation(), predictions, include_diagonal=True)
    kernel = kernels.TensorProduct(
        kernels.Exponential(scale, distances.TotalVariation()), kernels.White()
    )
    errors = {
        "SKCEb_median": float(estimators.skce_biased(kernel, predictions, labels)),
        "SKCEuq_median": float(estimators.skce(kernel, predictions, labels)),
        "SKCEul_median": float(estimators.skce_block(kernel, predictions, labels, block_size=2)),
    }
    middle = time.perf_counter()
    test = hypothesis_tests.exact_skce_test(
        jax.random.key(0), kernel, predictions, labels, num_samples=num_samples
    )
    row = {
        "network": name,
        "length scale": float(scale),
        "SKCE_b": float(test.statistic),
        "mean under H0": float(test.null_samples.mean()),
        "maximum under H0": float(test.null_samples.max()),
        "exact p": float(test.pvalue),
        "seconds test": time.perf_counter() - middle,
        "seconds scale and errors": middle - start,
    }
    return errors, row


def main() -> None:
    """Writes the tables "published / ours" and of the exact tests."""
    parser = reporting.option_parser(__doc__, needs_data=True)
    parser.add_argument("--num-samples", type=reporting.positive_integer, default=1000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    labels, published = read_labels(options.data), read_published(options.data)
    error_rows, test_rows = [], []
    for name in tqdm(sorted(published)):
        path = reporting.data_file(options.data, FOLDER, f"{name}.csv")
        predictions = distributions.Categorical(jnp.asarray(np.loadtxt(path, delimiter=",")))
        errors, row = evaluate(name, predictions, labels, options.num_samples)
        test_rows.append(row)
        for column, ours in errors.items():
            theirs = float(published[name][column])
            difference = abs(ours / theirs - 1)
            error_rows.append(
                {
                    "network": name,
                    "quantity": column,
                    "published": theirs,
                    "ours": ours,
                    "relative difference": difference,
                    "bar": BAR,
                    "met": difference <= BAR,
                }
            )
    reporting.write_records(options.output, "cifar10_networks_errors", error_rows)
    reporting.write_records(
        options.output,
        "cifar10_networks_exact_test",
        test_rows,
        f"{options.num_samples} redraws; the smallest possible p-value is "
        f"{1 / (options.num_samples + 1):.2g}. Times include compilation for the first network.",
    )


if __name__ == "__main__":
    main()
