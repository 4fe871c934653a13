"""Calibrated predictions of targets that depend on each other, which redrawing does not foresee."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import hypothesis_tests as tests
from calibjax.distributions import Normal
from calibjax.kernels import SquaredExponential
from experiments.power.simulation import DRAWS, Study
from experiments.synthetic_models import SCALE, median_kernel

CLUSTER = "cluster_skce_test"
MEDIAN = "exact_skce_test, median heuristic"
BIASED = "the same, biased"
NUM_CLUSTERS = 20
CORRELATIONS = {f"correlation {c:g}": c for c in (0.0, 0.3, 0.8)}
COEFFICIENTS = {f"φ = {phi:g}": phi for phi in (0.9, 0.95, 1.0)}
HORIZONS = {"1 step": 1, "3 steps": 3, "6 steps": 6}
PHI = 0.9
SHARED, UNRELATED = "one prediction", "unrelated predictions"  # in a cluster


def _skce_pvalues(key: jax.Array, predictions: Any, targets: jax.Array) -> dict[str, jax.Array]:
    kernel = median_kernel(SquaredExponential, predictions)
    found = tests.exact_skce_test(key, kernel, predictions, targets, num_draws=DRAWS)
    parts = found.components
    return {
        MEDIAN: found.pvalue,
        BIASED: parts.biased.pvalue,
        "the same, unbiased": parts.unbiased.pvalue,
        "the same, dispersion": parts.dispersion.pvalue,
    }


def cluster_pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, setting: str
) -> dict[str, jax.Array]:
    """Clusters of the same size with an error of their own, and predictions of their own or not."""
    keys = jax.random.split(data_key, 3)
    clusters = np.repeat(np.arange(NUM_CLUSTERS), n // NUM_CLUSTERS)
    if setting == SHARED:
        m = jax.random.uniform(keys[0], (NUM_CLUSTERS,))[clusters]
    else:
        m = jax.random.uniform(keys[0], (n,))
    correlation = jnp.array([*CORRELATIONS.values()])[place]
    shared = jax.random.normal(keys[1], (NUM_CLUSTERS,))[clusters]
    own = jax.random.normal(keys[2], (n,))
    error = jnp.sqrt(correlation) * shared + jnp.sqrt(1 - correlation) * own
    predictions, targets = Normal(m, jnp.full(n, SCALE)), m + SCALE * error
    keys = jax.random.split(test_key)
    kernel = median_kernel(SquaredExponential, predictions)
    found = tests.cluster_skce_test(
        keys[0], kernel, predictions, targets, jnp.asarray(clusters), num_draws=DRAWS
    )
    return _skce_pvalues(keys[1], predictions, targets) | {CLUSTER: found.pvalue}


def _series(key: jax.Array, phi: jax.Array, length: int) -> jax.Array:
    """x_0 = 0, x_t = φ x_{t−1} + e_t."""

    def step(x: jax.Array, e: jax.Array) -> tuple[jax.Array, jax.Array]:
        return phi * x + e, phi * x + e

    return jax.lax.scan(step, jnp.zeros(()), jax.random.normal(key, (length,)))[1]


def horizon_pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """Forecasts, h steps ahead at every step, with the true distribution given the past."""
    longest = max(HORIZONS.values())
    x = _series(data_key, jnp.asarray(PHI), n + longest)
    h = jnp.array([*HORIZONS.values()])[place]
    variance = (1 - PHI ** (2 * h)) / (1 - PHI**2)
    predictions = Normal(PHI**h * x[:n], jnp.full(n, jnp.sqrt(variance)))
    return _skce_pvalues(test_key, predictions, x[jnp.arange(n) + h])


def one_step_pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, _: Any
) -> dict[str, jax.Array]:
    """One-step-ahead forecasts with the true distribution given the past."""
    phi = jnp.array([*COEFFICIENTS.values()])[place]
    x = _series(data_key, phi, n + 1)
    return _skce_pvalues(test_key, Normal(phi * x[:-1], jnp.ones(n)), x[1:])


CLUSTERS = Study(
    "clusters",
    (*CORRELATIONS,),
    {5 * NUM_CLUSTERS: 4.0},
    cluster_pvalues,
    settings=(UNRELATED, SHARED),
)
HORIZON = Study("horizons", (*HORIZONS,), {256: 1.0}, horizon_pvalues)
ONE_STEP = Study("one_step", (*COEFFICIENTS,), {256: 1.0}, one_step_pvalues)
