"""Do the tests hold their level, and what is their power? Are the estimators unbiased?

Simulated data sets of three kinds:

- calibrated: the calibrated model of Widmann et al. (2021, App. A.2), predictions N(c 1_d, 0.1²
  I_d) with c ~ U(0, 1), targets drawn from them;
- uncalibrated: the same predictions, the first component of the targets drawn from N(0.1, 0.1²);
- m classes: class predictions from a symmetric Dirichlet distribution, labels drawn from them.

The exact test can only reject less often than α where its statistic has ties, so with few class
labels its level lies below 0.05; with continuous targets and (B + 1) α an integer it equals 0.05.
The block test compares block estimates that are all equal with nothing (its p-value is NaN): such
a data set counts as not rejected.

Run: python -m experiments.test_levels [--num-datasets 1000] [--num-redraws 999] [--output DIR]
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from experiments import reporting
from paper_repro.cells import key_of

ALPHA = 0.05
POWER_BARS = {("uncalibrated", 1): 0.965, ("uncalibrated", 10): 0.93}  # exact test, n = 4
_BATCH_NUMBERS = 2**22  # numbers that the redraws of the data sets evaluated at once may hold

NORMAL_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
CLASS_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
)


class Model(NamedTuple):
    """A way to make data sets; `size` is the dimension of the targets or the number of classes."""

    name: str
    size: int

    @property
    def kernel(self) -> kernels.Kernel:
        """Kernel for these data."""
        return CLASS_KERNEL if self.name == "classes" else NORMAL_KERNEL

    @property
    def calibrated(self) -> bool:
        """Whether the null hypothesis is true."""
        return self.name != "uncalibrated"

    def draw(self, key: jax.Array, num_samples: int) -> tuple[Any, jax.Array]:
        """One data set."""
        predictions_key, targets_key = jax.random.split(key)
        if self.name == "classes":
            ones = jnp.ones(self.size)
            probs = jax.random.dirichlet(predictions_key, ones, (num_samples,))
            predictions: Any = distributions.Categorical(probs)
            return predictions, distributions.sample_targets(targets_key, predictions)
        shape = (num_samples, self.size)
        loc = jnp.broadcast_to(jax.random.uniform(predictions_key, (num_samples, 1)), shape)
        noise = 0.1 * jax.random.normal(targets_key, shape)
        targets = (loc if self.calibrated else loc.at[:, 0].set(0.1)) + noise
        if self.size == 1:
            return distributions.Normal(loc[:, 0], jnp.full(num_samples, 0.1)), targets[:, 0]
        return distributions.DiagNormal(loc, jnp.full(shape, 0.1)), targets


@functools.partial(jax.jit, static_argnames=("model", "num_samples", "num_redraws", "batch_size"))
def pvalues(
    keys: jax.Array, *, model: Model, num_samples: int, num_redraws: int, batch_size: int
) -> dict[str, jax.Array]:
    """p-values of the three tests on each of the data sets, [data sets]."""

    def one(key: jax.Array) -> dict[str, jax.Array]:
        data_key, exact_key, bootstrap_key = jax.random.split(key, 3)
        samples = model.kernel, *model.draw(data_key, num_samples)
        exact = hypothesis_tests.exact_skce_test(exact_key, *samples, num_samples=num_redraws)
        bootstrap = hypothesis_tests.bootstrap_skce_test(
            bootstrap_key, *samples, num_samples=num_redraws
        )
        block = hypothesis_tests.block_skce_test(*samples, block_size=2)
        return {"exact": exact.pvalue, "bootstrap": bootstrap.pvalue, "block (B = 2)": block.pvalue}

    return jax.lax.map(one, keys, batch_size=batch_size)


def standard_error(rate: float, number: int) -> float:
    """Binomial standard error."""
    return math.sqrt(rate * (1 - rate) / number)


def level_row(line: dict[str, Any], rate: float, number: int) -> dict[str, Any]:
    """Adds standard error, deviation from the level, and the bar of the exact test."""
    model, size, exact = line["model"], line["d or m"], line["test"] == "exact"
    line |= {"rejection rate": rate, "s.e.": standard_error(rate, number)}
    limit = 3 * standard_error(ALPHA, number)
    line["within 3 s.e. of 0.05"] = None if model == "uncalibrated" else abs(rate - ALPHA) <= limit
    line |= {"bar": None, "met": None}
    if exact and model == "calibrated":
        line |= {"bar": f"rate within {limit:.3f} of 0.05", "met": abs(rate - ALPHA) <= limit}
    elif exact and model == "classes":
        line |= {"bar": f"rate <= {ALPHA + limit:.3f}", "met": rate <= ALPHA + limit}
    elif exact and line["n"] == 4:
        bar = POWER_BARS[model, size]
        line |= {"bar": f"rate >= {bar}", "met": rate >= bar}
    return line


def levels(num_datasets: int, num_redraws: int) -> list[dict[str, Any]]:
    """Rejection rates of all tests in all cells."""
    models = [Model(name, size) for name in ("calibrated", "uncalibrated") for size in (1, 10)]
    models += [Model("classes", 2), Model("classes", 10)]
    rows = []
    for model, n in tqdm(list(itertools.product(models, (4, 16, 64))), desc="tests"):
        keys = jax.random.split(key_of(f"levels/{model.name}/{model.size}/{n}"), num_datasets)
        batch_size = min(num_datasets, max(1, _BATCH_NUMBERS // (num_redraws * n * n)))
        values = pvalues(
            keys, model=model, num_samples=n, num_redraws=num_redraws, batch_size=batch_size
        )
        for test, pvalue in values.items():
            line = {"model": model.name, "d or m": model.size, "n": n, "test": test}
            rows.append(level_row(line, float(np.mean(pvalue <= ALPHA)), num_datasets))
    return rows


@functools.partial(jax.jit, static_argnames=("estimator", "model", "num_samples"))
def estimates(keys: jax.Array, *, estimator: Callable, model: Model, num_samples: int) -> jax.Array:
    """Estimates on each of the data sets, [data sets]."""
    return jax.vmap(lambda key: estimator(model.kernel, *model.draw(key, num_samples)))(keys)


def means(num_datasets: int, num_samples: int = 4) -> list[dict[str, Any]]:
    """Means of the unbiased estimators over calibrated data sets; the truth is zero."""
    unbiased = {
        "skce": estimators.skce,
        "skce_block (B = 2)": functools.partial(estimators.skce_block, block_size=2),
    }
    models = [Model("calibrated", 1), Model("classes", 2), Model("classes", 10)]
    rows = []
    for model, (name, estimator) in itertools.product(models, unbiased.items()):
        keys = jax.random.split(key_of(f"means/{model.name}/{model.size}"), num_datasets)
        values = estimates(keys, estimator=estimator, model=model, num_samples=num_samples)
        mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(num_datasets)
        rows.append(
            {
                "model": model.name,
                "d or m": model.size,
                "n": num_samples,
                "estimator": name,
                "mean": mean,
                "s.e.": error,
                "mean / s.e.": mean / error,
                "bar": "mean / s.e. within 3",
                "met": abs(mean) <= 3 * error,
            }
        )
    return rows


def main() -> None:
    """Writes the tables test_levels and unbiasedness."""
    parser = reporting.option_parser(__doc__)
    parser.add_argument("--num-datasets", type=reporting.positive_integer, default=1000)
    parser.add_argument("--num-redraws", type=reporting.positive_integer, default=999)
    parser.add_argument("--num-means", type=reporting.positive_integer, default=20_000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    note = f"Calibrated data sets: {options.num_means} in each row."
    reporting.write_records(options.output, "unbiasedness", means(options.num_means), note)
    note = f"{options.num_datasets} data sets in each row, {options.num_redraws} redraws each."
    rows = levels(options.num_datasets, options.num_redraws)
    reporting.write_records(options.output, "test_levels", rows, note)


if __name__ == "__main__":
    main()
