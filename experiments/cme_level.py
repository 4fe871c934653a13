"""How often does the CME test reject calibrated classes, as in the tests of CalibrationTests.jl?

The setting is that of the package's own test (test/cme.jl): n = 100 predictions from a uniform
Dirichlet law, J = 5 test locations from the same law with labels drawn uniformly, and the kernel
exp(−‖p − p'‖ / 10) δ. Here the locations are drawn anew for each data set; the package draws them
once. Three tests are applied to the same data sets:

- "NumPy": the formula of the package (src/cme.jl), n Z̄ᵀ S⁻¹ Z̄ against a χ² law with J degrees of
  freedom, in NumPy, solved like there by the symmetric solver of LAPACK. The package itself has not
  been run.
- "cme_test": ours, which refuses covariances that are singular up to rounding.
- "exact": the exact test with the statistic of `cme_test`; where it is not defined it is zero.

Run: python -m experiments.cme_level [--num-datasets 2000]
"""

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.stats

from calibjax import distances, kernels
from calibjax.distributions import Categorical
from calibjax.hypothesis_tests import cme_test, exact_test
from experiments.harness import cells, command_line
from experiments.harness.tables import note_of, write_table

NUM_SAMPLES, NUM_LOCATIONS, LENGTH_SCALE = 100, 5, 10.0
CLASSES = (2, 10)
REDRAWS, LEVEL = 199, 0.05
KERNEL = kernels.TensorProduct(
    kernels.Exponential(LENGTH_SCALE, distances.Euclidean()), kernels.White()
)

Sample = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def draw(rng: np.random.Generator, num_classes: int) -> Sample:
    """Calibrated predictions and targets, test predictions and test targets."""
    predictions = rng.dirichlet(np.ones(num_classes), NUM_SAMPLES)
    above = rng.random(NUM_SAMPLES)[:, None] > np.cumsum(predictions, 1)
    targets = np.minimum(above.sum(1), num_classes - 1)
    locations = rng.dirichlet(np.ones(num_classes), NUM_LOCATIONS)
    return predictions, targets, locations, rng.integers(num_classes, size=NUM_LOCATIONS)


def reference_pvalue(sample: Sample) -> float:
    """p-value by the formula of CalibrationTests.jl; NaN if the covariance is exactly singular."""
    predictions, targets, locations, labels = sample
    distance = np.linalg.norm(predictions[:, None] - locations, axis=2)
    deviations = (labels == targets[:, None]) - predictions[:, labels]
    z = np.exp(-distance / LENGTH_SCALE) * deviations
    mean = z.mean(0)
    try:
        with warnings.catch_warnings():  # of bad conditions, which the package does not look at
            warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
            solved = scipy.linalg.solve(np.cov(z.T), mean, assume_a="sym")
    except np.linalg.LinAlgError:
        return float("nan")
    return float(scipy.stats.chi2.sf(len(z) * mean @ solved, NUM_LOCATIONS))


@jax.jit
def pvalues(keys: jax.Array, samples: Any) -> tuple[jax.Array, jax.Array]:
    """p-values of `cme_test` and of the exact test with its statistic, of many data sets."""

    def both(key_and_sample: tuple[jax.Array, Any]) -> tuple[jax.Array, jax.Array]:
        key, (probs, targets, locations, labels) = key_and_sample
        at = Categorical(locations), labels

        def statistic(predictions: Categorical, targets: jax.Array) -> jax.Array:
            value = cme_test(KERNEL, predictions, targets, *at).statistic
            return jnp.where(jnp.isnan(value), 0, value)

        predictions = Categorical(probs)
        asymptotic = cme_test(KERNEL, predictions, targets, *at).pvalue
        exact = exact_test(key, statistic, predictions, targets, num_draws=REDRAWS)
        return asymptotic, exact.pvalue

    return jax.lax.map(both, (keys, samples))


def simulate(num_classes: int, num_datasets: int) -> dict[str, Any]:
    """p-values of the three tests, [data sets] each; None where there is none."""
    name = f"cme_level/{num_classes}"
    rng = np.random.default_rng([num_classes, num_datasets])
    samples = [draw(rng, num_classes) for _ in range(num_datasets)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *samples)
    ours = pvalues(jax.random.split(cells.key_of(name), num_datasets), stacked)
    found = {
        "NumPy": [reference_pvalue(sample) for sample in samples],
        "cme_test": ours[0].tolist(),
        "exact": ours[1].tolist(),
    }
    return {test: [p if np.isfinite(p) else None for p in ps] for test, ps in found.items()}


def rows_of(num_classes: int, found: dict[str, list[float | None]]) -> list[dict[str, Any]]:
    """Lines of the table."""
    rows = []
    for test, values in found.items():
        share = float(np.mean([p is not None and p <= LEVEL for p in values]))
        rows.append(
            {
                "classes": num_classes,
                "test": test,
                "data sets": len(values),
                "not defined": values.count(None),
                "rejected": share,
                "SE": float(np.sqrt(share * (1 - share) / len(values))),
            }
        )
    return rows


@command_line.program
def main() -> None:
    """Writes cme_level.csv and .md."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=2000)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    store, rows = run.store("cme_level", __file__), []
    for num_classes in CLASSES:
        compute = functools.partial(simulate, num_classes, options.num_datasets)
        parameters = {"data sets": options.num_datasets}
        rows += rows_of(num_classes, cells.cell(store, f"{num_classes}", parameters, compute))
    note = note_of(__file__, "note", number=options.num_datasets)
    write_table(store.folder, "cme_level", rows, note, show=True)


if __name__ == "__main__":
    main()
