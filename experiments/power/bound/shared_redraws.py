"""p-values of all tests on several data sets of the same predictions, which share their redraws."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax._core.batches import map_batches
from calibjax.distances import Euclidean, TotalVariation, Wasserstein
from calibjax.distributions import Bernoulli, Categorical, NegativeBinomial, Normal
from calibjax.distributions.sampling import draw
from calibjax.hypothesis_tests._redraw.pvalues import simulated_pvalue
from calibjax.hypothesis_tests._redraw.shared import pvalues_of_pool
from calibjax.kernels import (
    Constant,
    Exponential,
    Fisher,
    NormalScore,
    SquaredExponential,
    TensorProduct,
    White,
    median_heuristic,
)
from calibjax.recalibration import AffineScaling, TemperatureScaling

DRAWS = 199  # (B + 1) α is an integer
AGGREGATED, MEDIAN, SCORE = "aggregated", "median heuristic", "score test"
_DISTANCES = {Normal: Wasserstein, NegativeBinomial: Euclidean}
_BINARY = ("spiegelhalter", "hosmer_lemeshow", "cox", "cumulative_difference")
_STATISTICS = {Bernoulli: _BINARY, Categorical: _BINARY[:1], Normal: ("pit_ks", "berkowitz")}


def single_kernels(predictions: Any) -> dict[str, Any]:
    """A kernel with length scales of the median heuristic, and that of a score test."""
    if hasattr(predictions, "class_probs"):
        scale = median_heuristic(TotalVariation(), predictions)
        one = TensorProduct(Exponential(scale, TotalVariation()), White())
        score: Any = Fisher(TemperatureScaling())
    else:
        distance = _DISTANCES[type(predictions)]()
        scale = median_heuristic(distance, predictions)
        target = NormalScore(SquaredExponential(1.0))
        if isinstance(predictions, Normal):
            target = SquaredExponential(jnp.median(predictions.scale))
        one = TensorProduct(SquaredExponential(scale, distance), target)
        score = NormalScore(Fisher(AffineScaling()))
    return {MEDIAN: one, SCORE: TensorProduct(Constant(), score)}


def pvalues(key: jax.Array, predictions: Any, targets: jax.Array) -> dict[str, jax.Array]:
    """p-values [k] of the targets [k, n] by test; those of `aggregated_skce_test` with this key.

    Given the predictions all data sets have the same null distribution, so that one set of redraws
    serves them all: the p-value of each is that of the test alone.
    """
    redrawn = jax.vmap(lambda k: draw(k, predictions))(jax.random.split(key, DRAWS))
    pool = jnp.concatenate([targets, redrawn.astype(targets.dtype)])
    tested = {AGGREGATED: (tests.default_kernels(predictions), None)}
    for name, kernel in single_kernels(predictions).items():
        tested[name] = kernel, "biased" if name == SCORE else "omnibus"
    found = {
        name: pvalues_of_pool(kernels, ranked, predictions, pool, len(targets))
        for name, (kernels, ranked) in tested.items()
    }
    for name in _STATISTICS.get(type(predictions), ()):
        if name == "hosmer_lemeshow" and len(targets[0]) < 10:
            continue  # groups
        statistic = getattr(tests, name)
        values = map_batches(pool, jax.vmap(lambda y: statistic(predictions, y)), 256)  # noqa: B023
        found[name] = simulated_pvalue(values[: len(targets)], values[len(targets) :, None])
    return found
