"""Ensembles of few members, right or wrong in one of four ways."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax.distances import Wasserstein
from calibjax.distributions import Ensemble
from calibjax.kernels import SquaredExponential, TensorProduct, median_heuristic
from experiments.power.simulation import CALIBRATED, DRAWS, Study

AGGREGATED = "aggregated_skce_test"
ENSEMBLE = "ensemble_skce_test, median heuristic"
RANKS = "rank_histogram_test"
REDRAWN = "exact_skce_test, targets redrawn from the members"
REDRAWN_BIASED = "the same, biased"
LARGEST_AGGREGATED = 3  # members: 24 kernels on all pairs of 12 values take half a second


def errors(e: jax.Array, m: jax.Array) -> dict[str, jax.Array]:
    """Deviation of the target from the mean, in standard deviations, by alternative, [n] each."""
    return {
        CALIBRATED: e,
        "shifted": e + 0.5,
        "too narrow": 1.5 * e,
        "too wide": 0.67 * e,
        "sign-changing": e + jnp.where(m > 0, 0.5, -0.5),
    }


def draw(key: jax.Array, place: Any, n: int, size: int) -> tuple[Ensemble, jax.Array]:
    """Members N(c, 1) with c standard normal, and targets."""
    keys = jax.random.split(key, 3)
    m, e = jax.random.normal(keys[0], (n,)), jax.random.normal(keys[1], (n,))
    values = m[:, None] + jax.random.normal(keys[2], (n, size))
    return Ensemble(values), m + jnp.stack([*errors(e, m).values()])[place]


def pvalues(
    data_key: jax.Array, test_key: jax.Array, place: Any, n: int, size: int
) -> dict[str, jax.Array]:
    """All tests on one data set."""
    keys = jax.random.split(test_key, 4)
    data = ensembles, targets = draw(data_key, place, n, size)
    # Of the pool of members and target, so that no redraw changes the kernel.
    pool = Ensemble(jnp.concatenate([ensembles.values, targets[:, None]], 1))
    scale = median_heuristic(Wasserstein(), pool)
    deviation = jnp.median(jnp.std(pool.values, 1))
    kernel = TensorProduct(SquaredExponential(scale, Wasserstein()), SquaredExponential(deviation))
    with warnings.catch_warnings():  # that it rejects calibrated ensembles, which is shown here
        warnings.filterwarnings("ignore", "predictions: targets are resampled from the draws")
        redrawn = tests.exact_skce_test(keys[0], kernel, *data, num_draws=DRAWS)
    found = {
        ENSEMBLE: tests.ensemble_skce_test(keys[2], kernel, *data, num_draws=DRAWS),
        RANKS: tests.rank_histogram_test(keys[3], *data, num_draws=DRAWS),
        REDRAWN: redrawn,
        REDRAWN_BIASED: redrawn.components.biased,
    }
    if size <= LARGEST_AGGREGATED:
        found[AGGREGATED] = tests.aggregated_skce_test(keys[1], *data, num_draws=DRAWS)
    return {test: result.pvalue for test, result in found.items()}


# A study for each number of members, since those of large ensembles cost most.
ENSEMBLES = tuple(
    Study(
        f"ensembles_{size}",
        (*errors(jnp.zeros(1), jnp.zeros(1)),),
        {64: share},
        pvalues,
        settings=(size,),
    )
    for size, share in {3: 0.08, 11: 0.12, 50: 0.06}.items()
)
