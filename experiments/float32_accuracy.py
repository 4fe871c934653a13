"""How far is the SKCE in float32 from the SKCE in float64, systematically?

Rounding errors of constants are the same for every pair, so a naive implementation has an offset
that does not shrink with n. The data are drawn in float32 from the calibrated model of Widmann et
al. (2021, App. A.2), N(c 1_d, σ² I_d) with c ~ U(0, 1), and the reference is float64 on the same
numbers, so that only the arithmetic differs. The mean difference over data sets is the systematic
part. The naive version adds up the four terms k − m − m + M in float32.

Run: python -m experiments.float32_accuracy [--num-datasets 100] [--num-samples 2048]
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, distributions, estimators, kernels, pairwise
from experiments.harness import cells, command_line
from experiments.harness.tables import write_table

KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
BAR = 3e-10  # for d = 1, σ = 0.1
NOTE = """
Differences are those from float64 on the same numbers: their mean is the systematic part, s.e. its
standard error. "float32" is `calibjax.estimators.skce`, "four terms" the sum of the four terms.

`python -m experiments.float32_accuracy""".rstrip()


def draw(key: jax.Array, num_samples: int, dim: int, sigma: float, dtype: Any) -> Any:
    """Predictions and targets of the calibrated model; for d = 1 with scalar targets."""
    loc_key, target_key = jax.random.split(key)
    shape = (num_samples, dim) if dim > 1 else (num_samples,)
    loc = jax.random.uniform(loc_key, (num_samples,) + (1,) * (len(shape) - 1), dtype)
    family = distributions.DiagNormal if dim > 1 else distributions.Normal
    predictions = family(jnp.broadcast_to(loc, shape), jnp.full(shape, sigma, dtype))
    return predictions, distributions.sample_targets(target_key, predictions)


def four_terms(kernel: kernels.TensorProduct, x: Any, y: Any) -> jax.Array:
    """The calibration kernel as it is defined."""
    (p, y), (q, z) = x, y
    singles = kernels.single_expectation(kernel.target, p, z)
    singles += kernels.single_expectation(kernel.target, q, y)
    double = kernels.double_expectation(kernel.target, p, q)
    return kernel.prediction(p, q) * (kernel.target(y, z) - singles + double)


@functools.partial(jax.jit, static_argnames=("num_samples", "dim"))
def estimates(keys: jax.Array, sigma: float, *, num_samples: int, dim: int) -> Any:
    """SKCE of each data set in float64, in float32, and by four terms in float32."""

    def one(key: jax.Array) -> Any:
        samples = draw(key, num_samples, dim, sigma, jnp.float32)
        # Float32 numbers are float64 numbers too: the data are the same.
        exact = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), samples)
        naive = pairwise.mean_over_pairs(four_terms, KERNEL, samples)
        return (estimators.skce(KERNEL, *exact), estimators.skce(KERNEL, *samples), naive)

    return jax.lax.map(one, keys)


def record(sigma: float, dim: int, reference: Any, single: Any, naive: Any) -> dict[str, Any]:
    """One line of the table."""
    if single.dtype != np.float32 or naive.dtype != np.float32:
        raise AssertionError(f"expected float32 estimates, got {single.dtype}, {naive.dtype}")
    line: dict[str, Any] = {
        "d": dim,
        "sigma": sigma,
        "sd of SKCE": float(np.std(reference, ddof=1)),
    }
    for name, values in (("float32", single), ("four terms", naive)):
        difference = np.asarray(values, np.float64) - reference
        line[f"{name}: mean difference"] = float(difference.mean())
        line[f"{name}: s.e."] = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    has_bar = dim == 1 and sigma == 0.1
    line["bar"] = BAR if has_bar else None
    line["met"] = bool(abs(line["float32: mean difference"]) <= BAR) if has_bar else None
    return line


def compare(dim: int, sigma: float, num_datasets: int, num_samples: int) -> dict[str, Any]:
    """One line of the table, computed."""
    keys = jax.random.split(jax.random.key(dim), num_datasets)
    values = estimates(keys, sigma, num_samples=num_samples, dim=dim)
    return record(sigma, dim, *(np.asarray(x) for x in values))


@command_line.program
def main() -> None:
    """Writes float32_accuracy.csv and .md."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-datasets", type=command_line.positive_integer, default=100)
    parser.add_argument("--num-samples", type=command_line.positive_integer, default=2048)
    run, options = command_line.parse(parser)
    if options.num_datasets < 2 or options.num_samples < 2:
        parser.error("--num-datasets, --num-samples: expected at least 2")
    jax.config.update("jax_enable_x64", True)
    numbers = options.num_datasets, options.num_samples
    store, parameters = run.store("float32_accuracy", __file__), {"data sets": numbers[0]}
    jobs = [
        cells.Job(
            f"d{dim}_sigma{sigma}",
            parameters | {"n": numbers[1]},
            functools.partial(compare, dim, sigma, *numbers),
        )
        for dim, sigma in itertools.product((1, 10), (0.1, 0.01, 1.0))
    ]
    rows = cells.finished(store, "float32_accuracy", jobs)
    command = f"--num-datasets {numbers[0]} --num-samples {numbers[1]}"
    note = f"{numbers[0]} data sets of {numbers[1]} samples each. {NOTE} {command}`"
    write_table(store.folder, "float32_accuracy", rows, note, show=True)


if __name__ == "__main__":
    main()
