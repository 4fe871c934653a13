"""Scalar normal predictions, right or wrong in one of seven ways; and the models of W21."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax.distances import Wasserstein
from calibjax.distributions import Normal, Quantiles
from calibjax.hypothesis_tests.components import pooled
from calibjax.hypothesis_tests.pools import simulated_pvalue
from calibjax.kernels import (
    Exponential,
    Kernel,
    SquaredExponential,
    TensorProduct,
    median_heuristic,
)
from experiments.power.simulation import CALIBRATED, DRAWS, PIT, Study
from experiments.synthetic_models import NORMAL_KERNEL, SCALE, Model

NUM_GROUPS = 10
LEVELS = 9  # of quantiles, for the test of their coverage
AGGREGATED = "aggregated_skce_test"
MEDIAN = "exact_skce_test, median heuristic"
BIASED = "the same, biased"
EXPONENTIAL = "exact_skce_test, exponential"
BOOTSTRAP = "bootstrap_skce_test, kernel of W21"
KERNELS, KERNELS_BIASED = "best single kernel", "best single kernel, biased"
W21_NAMES = ("calibrated", "uncalibrated")


def errors(key: jax.Array, m: jax.Array) -> dict[str, jax.Array]:
    """(target − m) / 0.1 by alternative, [n] each, from the same noise."""
    noise_key, sign_key = jax.random.split(key)
    e = jax.random.normal(noise_key, m.shape)
    sign = jax.random.rademacher(sign_key, m.shape, m.dtype)
    return {
        CALIBRATED: e,
        "shifted up": e + 0.3,
        "shifted down": e - 0.3,
        "too narrow": 1.4 * e,
        "too wide": 0.7 * e,
        "local": e + 2 * ((m > 0.4) & (m < 0.5)),
        "oscillating": e + 0.8 * jnp.sin(8 * jnp.pi * m),
        "bimodal": 0.9 * sign + jnp.sqrt(0.19) * e,
    }


def draw(key: jax.Array, place: Any, n: int) -> tuple[Normal, jax.Array]:
    """One data set: predictions N(m, 0.1²), m uniform on [0, 1]."""
    loc_key, key = jax.random.split(key)
    m = jax.random.uniform(loc_key, (n,))
    error = jnp.stack([*errors(key, m).values()])[place]
    return Normal(m, jnp.full(n, SCALE)), m + SCALE * error


def median_kernel(shape: Any, predictions: Any) -> Kernel:
    """Length scales: median distance of predictions, median predicted standard deviation."""
    scale = median_heuristic(Wasserstein(), predictions)
    variances = jax.vmap(lambda p: jnp.sum(p.variance()))(predictions)
    deviation = jnp.sqrt(jnp.median(variances))
    return TensorProduct(shape(scale, Wasserstein()), SquaredExponential(deviation))


def skce_pvalues(key: jax.Array, predictions: Any, targets: jax.Array) -> dict[str, jax.Array]:
    """The tests that both studies share, and each kernel of the family on its own."""
    keys = jax.random.split(key, 4)
    data = predictions, targets
    many = tests.aggregated_skce_test(keys[0], *data, num_samples=DRAWS)
    each, components = pooled(many.components)  # the statistics of the kernels, [B + 1, K]
    kernel = median_kernel(SquaredExponential, predictions)
    one = tests.exact_skce_test(keys[1], kernel, *data, num_samples=DRAWS)
    kernel = median_kernel(Exponential, predictions)
    other = tests.exact_skce_test(keys[2], kernel, *data, num_samples=DRAWS)
    bootstrap = tests.bootstrap_skce_test(keys[3], NORMAL_KERNEL, *data, num_samples=DRAWS)
    return {
        AGGREGATED: many.pvalue,
        MEDIAN: one.pvalue,
        BIASED: one.components.biased.pvalue,
        EXPONENTIAL: other.pvalue,
        BOOTSTRAP: bootstrap.pvalue,
        KERNELS: simulated_pvalue(each[0], each[1:]),
        KERNELS_BIASED: components.biased.pvalue,
    }


def _smallest(pvalues: Any) -> jax.Array:
    return jnp.min(jnp.concatenate([jnp.ravel(p) for p in jax.tree.leaves(pvalues)]))


def pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """All tests on one data set."""
    keys = jax.random.split(test_key, 3)
    predictions, targets = draw(data_key, place, n)
    ranks = jnp.argsort(jnp.argsort(predictions.loc))
    groups = jax.nn.one_hot(ranks * NUM_GROUPS // n, NUM_GROUPS)
    by_group = tests.group_calibration_test(
        keys[1], predictions, targets, groups, num_samples=DRAWS
    )
    levels = jnp.arange(1, LEVELS + 1) / (LEVELS + 1)
    quantiles = jax.vmap(lambda p: jax.vmap(p.icdf)(levels))(predictions)
    coverage = tests.coverage_test(
        keys[2], Quantiles(levels, quantiles), targets, num_samples=DRAWS
    )
    return skce_pvalues(keys[0], predictions, targets) | {
        PIT: jax.vmap(lambda p, y: p.cdf(y))(predictions, targets),
        f"coverage_test, {LEVELS} levels": _smallest(coverage.adjusted_pvalue),
        f"group_calibration_test, {NUM_GROUPS} groups": _smallest(by_group.adjusted_pvalue),
    }


def w21_pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, dimension: int
) -> dict[str, jax.Array]:
    """The tests of the SKCE on W21's models of one dimension."""
    drawn = [Model(name, dimension).draw(data_key, n) for name in W21_NAMES]
    targets = jnp.stack([y for _, y in drawn])[place]  # of the same predictions
    return skce_pvalues(test_key, drawn[0][0], targets)


NORMALS = Study(
    "normals",
    (*errors(jax.random.key(0), jnp.zeros(1)),),
    {16: 1.0, 64: 1.0, 256: 0.4},
    pvalues,
)
W21 = Study("w21", W21_NAMES, {4: 1.0, 16: 1.0, 64: 1.0}, w21_pvalues, settings=(1,))
