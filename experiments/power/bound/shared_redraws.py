"""p-values of all tests on several data sets of the same predictions, which share their redraws."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import hypothesis_tests as tests
from calibjax._core.batches import default_batch_size, map_batches
from calibjax.distances import Euclidean, TotalVariation, Wasserstein
from calibjax.distributions import Bernoulli, Categorical, NegativeBinomial, Normal
from calibjax.distributions.sampling import draw
from calibjax.hypothesis_tests._redraw.components import skce_components
from calibjax.hypothesis_tests._redraw.plan import family_of
from calibjax.hypothesis_tests._redraw.pvalues import simulated_pvalue
from calibjax.hypothesis_tests.checked_kernels import checked_family
from calibjax.hypothesis_tests.result import skce_result
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
    found = _of_kernels(predictions, pool, len(targets))
    for name in _STATISTICS.get(type(predictions), ()):
        if name == "hosmer_lemeshow" and len(targets[0]) < 10:
            continue  # groups
        statistic = getattr(tests, name)
        values = map_batches(pool, jax.vmap(lambda y: statistic(predictions, y)), 256)  # noqa: B023
        found[name] = simulated_pvalue(values[: len(targets)], values[len(targets) :, None])
    return found


def _of_kernels(predictions: Any, pool: jax.Array, size: int) -> dict[str, jax.Array]:
    members, structure = checked_family(tests.default_kernels(predictions), predictions, pool[0])
    others, _ = checked_family(single_kernels(predictions), predictions, pool[0])  # sorted by name
    family = family_of([*members, *others], predictions, pool[0])
    parts = _parts(family, predictions, pool, default_batch_size(family.num_bytes))
    return _ranked(parts, size, pool.shape[1], len(members), structure)


@functools.partial(jax.jit, static_argnums=3)
def _parts(family: Any, predictions: Any, pool: jax.Array, rows: int) -> Any:
    """Means of h off and on the diagonal, [k + B, K] each."""
    return map_batches(pool, lambda y: family(predictions, y), rows)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _ranked(parts: Any, size: int, n: int, number: int, structure: Any) -> dict[str, jax.Array]:
    """p-values of the first data sets among the redraws that follow them."""

    def of_one(own: Any) -> dict[str, jax.Array]:
        data = jax.tree.map(lambda x, drawn: jnp.concatenate([x[None], drawn[size:]]), own, parts)
        of_family = jax.tree.map(lambda x: x[:, :number], data)
        ranked = skce_components(*of_family, num_targets=n, ranked="omnibus", family=structure)
        found = {AGGREGATED: skce_result(*ranked, own[0], draws="redrawn targets").pvalue}
        for place, (name, ranked) in enumerate(((MEDIAN, "omnibus"), (SCORE, "biased")), number):
            column = jax.tree.map(lambda x: x[:, place], data)  # noqa: B023
            values, _ = skce_components(*column, num_targets=n, ranked=ranked)
            found[name] = simulated_pvalue(values[0], values[1:])
        return found

    return jax.lax.map(of_one, jax.tree.map(lambda x: x[:size], parts))
