"""Common parts of all scores: the mean over the samples."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core import checks
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution

Reduction: TypeAlias = Literal["mean", "none"]

_BLOCK = 128  # predictions by draws


def mean_over_samples(
    score: Callable[[Any, Any], jax.Array],
    samples: tuple[Any, Any],
    weights: jax.Array | None,
    reduction: Reduction,
) -> jax.Array:
    """Mean over all samples, with weights if there are any, of a score of one of them; or these."""
    values = _values(score, samples)
    if values.ndim != 1:
        got = f"shape {values.shape[1:]} from {checks.described(samples[0])}"
        raise ValueError(f"predictions: expected a scalar score of each, got {got}")
    if weights is not None and reduction == "mean":
        # What does not count may be infinite, and its derivative no number.
        is_left_out = (weights == 0) & ~jnp.isfinite(values)
        counted = checks.counted(weights, samples, ~is_left_out)
        values = jnp.where(is_left_out, 0, _values(score, counted))
    # Quantiles of counts and labels are never NaN.
    values = jnp.where(checks.missing_rows(samples), jnp.nan, values)
    return weighted_mean(values, weights, reduction)


def _values(score: Callable[[Any, Any], jax.Array], samples: tuple[Any, Any]) -> jax.Array:
    """The score of each sample; those of draws in blocks that stay in the processor's cache."""
    if isinstance(samples[0], Ensemble):
        return lax.map(lambda sample: score(*sample), samples, batch_size=_BLOCK)
    return jax.vmap(score)(*samples)


def per_sample(
    score: Callable[..., jax.Array], predictions: Distribution, targets: Any
) -> jax.Array:
    """A score (predictions, targets) → mean of each sample alone, [n]."""
    if not isinstance(score, jax.tree_util.Partial):
        score = jax.tree_util.Partial(score)
    return _per_sample(score, predictions, targets)


@jax.jit
def _per_sample(score: jax.tree_util.Partial, predictions: Any, targets: Any) -> jax.Array:
    def one(*sample: object) -> jax.Array:
        value = checks.real("score", score(*jax.tree.map(lambda x: x[None], sample)))
        if jnp.shape(value) != ():
            raise ValueError(f"score: expected a function that returns a scalar, got {value}")
        return value

    return jax.vmap(one)(predictions, targets)


def weighted_mean(
    values: jax.Array, weights: jax.Array | None, reduction: Reduction = "mean"
) -> jax.Array:
    """Mean over the samples, the last axis; or their values, if there is no reduction."""
    if reduction == "none":
        return values
    if weights is None:
        return jnp.mean(values, -1)
    return jnp.sum(values * weights, -1) / jnp.sum(weights)
