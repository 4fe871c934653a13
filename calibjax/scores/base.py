"""Common parts of all scores: checked arguments, and the mean over the samples."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions import Ensemble
from calibjax.distributions.base import ClassPredictions, Distribution

_REDUCTIONS = "mean", "none"
_BLOCK = 128  # predictions by draws


def weighted_samples(
    predictions: Distribution, targets: ArrayLike, weights: Any, method: str | None = None
) -> tuple[tuple[Any, Any], jax.Array | None]:
    """Predictions, which must have the method if one is given, with targets, and their weights.

    Raises:
        TypeError: if an argument is of the wrong kind, or the method is missing.
        ValueError: if shapes or values are wrong.
    """
    keep_logs = method == "log_prob"
    *samples, weights = checks.weighted_samples(predictions, targets, weights, keep_logs=keep_logs)
    if method is not None:
        checks.method("predictions", samples[0], method)
    return (samples[0], samples[1]), weights


def mean_over_samples(
    score: Callable[[Any, Any], jax.Array],
    samples: tuple[Any, Any],
    weights: jax.Array | None,
    reduction: str,
    method: str = "",
) -> jax.Array:
    """Mean over all samples, with weights if there are any, of a score of one of them; or these.

    Raises:
        ValueError: if the score is not a scalar, or NaN; the message names the method that computed
            it.
    """
    is_mean = checks.choice("reduction", reduction, _REDUCTIONS) == "mean"
    if not isinstance(score, jax.tree_util.Partial):  # one in another is compiled in every call
        score = jax.tree_util.Partial(score)
    values, value = _values_and_mean(score, samples, weights if is_mean else None)
    if method and values.ndim != 1:
        raise ValueError(
            f"predictions.{method}: expected a scalar for one prediction and one target, got shape "
            f"{values.shape[1:]} from {checks.described(samples[0])}"
        )
    if checks.is_concrete(values):
        place = f"predictions.{method}" if method else "score"
        expected = "numbers for these predictions and targets"
        checks.refuse_where(np.isnan(values), place, expected, values)
    if not is_mean:
        return checks.nan_unless(~checks.missing_rows(samples), values)
    return checks.nan_with(value, samples)  # quantiles of counts and labels are never NaN


@jax.jit
def _values_and_mean(
    score: jax.tree_util.Partial, samples: tuple[Any, Any], weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    values = _values(score, samples)
    if weights is None or values.ndim != 1:
        return values, jnp.mean(values)
    # What does not count may be infinite, and its derivative no number.
    is_left_out = (weights == 0) & ~jnp.isfinite(values)
    samples = checks.counted(weights, samples, ~is_left_out)
    values = jnp.where(is_left_out, 0, _values(score, samples))
    return values, weighted_mean(values, weights)


def _values(score: jax.tree_util.Partial, samples: tuple[Any, Any]) -> jax.Array:
    """The score of each sample; those of draws in blocks that stay in the processor's cache."""
    if isinstance(samples[0], Ensemble):
        return lax.map(lambda sample: score(*sample), samples, batch_size=_BLOCK)
    return jax.vmap(score)(*samples)


def mean_over_classes(
    score: Callable[[jax.Array, jax.Array], jax.Array],
    predictions: ClassPredictions,
    targets: ArrayLike,
    weights: ArrayLike | None,
    reduction: str,
) -> jax.Array:
    """Mean, as `mean_over_samples`, of a function of probabilities [n, m] and labels [n]."""
    checks.class_predictions(predictions)
    samples = checks.weighted_samples(predictions, targets, weights)
    return _mean_over_classes(score, *samples, reduction)


@functools.partial(jax.jit, static_argnums=(0, 4))
def _mean_over_classes(
    score: Callable, predictions: Any, targets: jax.Array, weights: Any, reduction: str
) -> jax.Array:
    samples = predictions.class_probs, targets
    values = jnp.where(checks.missing_rows(samples), jnp.nan, score(*samples))
    return weighted_mean(values, weights, reduction)


def per_sample(
    score: Callable[..., jax.Array], predictions: Distribution, targets: ArrayLike
) -> jax.Array:
    """A score (predictions, targets) → mean of each sample alone, [n]."""
    if not isinstance(score, jax.tree_util.Partial):
        score = jax.tree_util.Partial(score)
    return _per_sample(score, predictions, targets)


@jax.jit
def _per_sample(score: jax.tree_util.Partial, predictions: Any, targets: Any) -> jax.Array:
    def one(*sample: object) -> jax.Array:
        value = score(*jax.tree.map(lambda x: x[None], sample))
        checks.real("score(predictions, targets)", value)
        if jnp.ndim(value):
            raise ValueError(f"score: expected a function that returns a scalar, got {value}")
        return value

    return jax.vmap(one)(predictions, targets)


def weighted_mean(
    values: jax.Array, weights: jax.Array | None, reduction: str = "mean"
) -> jax.Array:
    """Mean over the samples, the last axis; or their values, if there is no reduction."""
    if checks.choice("reduction", reduction, _REDUCTIONS) == "none":
        return values
    if weights is None:
        return jnp.mean(values, -1)
    return jnp.sum(values * weights, -1) / jnp.sum(weights)
