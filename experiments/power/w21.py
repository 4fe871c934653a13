"""The models of W21, at the smallest sizes."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax.distances import Wasserstein
from calibjax.kernels import (
    Exponential,
    Kernel,
    SquaredExponential,
    TensorProduct,
    median_heuristic,
)
from experiments.power.simulation import DRAWS, Study
from experiments.synthetic_models import NORMAL_KERNEL, Model

AGGREGATED = "aggregated_skce_test"
MEDIAN = "exact_skce_test, median heuristic"
BIASED = "the same, biased"
EXPONENTIAL = "exact_skce_test, exponential"
BOOTSTRAP = "bootstrap_skce_test, kernel of W21"
W21_NAMES = ("calibrated", "uncalibrated")


def median_kernel(shape: Any, predictions: Any) -> Kernel:
    """Length scales: median distance of predictions, median predicted standard deviation."""
    scale = median_heuristic(Wasserstein(), predictions)
    variances = jax.vmap(lambda p: jnp.sum(p.variance()))(predictions)
    deviation = jnp.sqrt(jnp.median(variances))
    return TensorProduct(shape(scale, Wasserstein()), SquaredExponential(deviation))


def skce_pvalues(key: jax.Array, predictions: Any, targets: jax.Array) -> dict[str, jax.Array]:
    """All tests of one data set."""
    keys = jax.random.split(key, 4)
    data = predictions, targets
    many = tests.aggregated_skce_test(keys[0], *data, num_draws=DRAWS)
    kernel = median_kernel(SquaredExponential, predictions)
    one = tests.exact_skce_test(keys[1], kernel, *data, num_draws=DRAWS)
    kernel = median_kernel(Exponential, predictions)
    other = tests.exact_skce_test(keys[2], kernel, *data, num_draws=DRAWS)
    bootstrap = tests.bootstrap_skce_test(keys[3], NORMAL_KERNEL, *data, num_draws=DRAWS)
    return {
        AGGREGATED: many.pvalue,
        MEDIAN: one.pvalue,
        BIASED: one.components.biased.pvalue,
        EXPONENTIAL: other.pvalue,
        BOOTSTRAP: bootstrap.pvalue,
    }


def w21_pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, dimension: int
) -> dict[str, jax.Array]:
    """All tests on W21's models of one dimension."""
    drawn = [Model(name, dimension).draw(data_key, n) for name in W21_NAMES]
    targets = jnp.stack([y for _, y in drawn])[place]  # of the same predictions
    return skce_pvalues(test_key, drawn[0][0], targets)


W21 = Study("w21", W21_NAMES, {4: 1.0}, w21_pvalues, settings=(1,))
