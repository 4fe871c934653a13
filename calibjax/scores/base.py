"""Common parts of all scores: checked arguments, and the mean over the samples."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax._pytree import PyTree
from calibjax.distributions.base import Distribution


def checked_samples(
    predictions: Distribution, targets: ArrayLike, method: str | None = None
) -> tuple[Any, Any]:
    """Predictions, which must have the method if one is given, and targets as JAX arrays.

    Raises:
        TypeError: if an argument is of the wrong kind, or the method is missing.
        ValueError: if shapes or values are wrong.
    """
    keep_logs = method == "log_prob"
    samples = _checks.predictions_and_targets(predictions, targets, keep_logs=keep_logs)
    if method is not None:
        _checks.method("predictions", samples[0], method)
    return samples


def mean_over_samples(
    score: Callable[[Any, Any], jax.Array], samples: tuple[Any, Any], method: str = ""
) -> PyTree:
    """Mean over all samples of a score of one prediction and one target.

    Raises:
        ValueError: if the score is not a scalar, or NaN; the message names the method that computed
            it.
    """
    values, value = _values_and_mean(jax.tree_util.Partial(score), samples)
    if method and values.ndim != 1:
        raise ValueError(
            f"predictions.{method}: expected a scalar for one prediction and one target, got shape "
            f"{values.shape[1:]} from {_checks.described(samples[0])}"
        )
    if _checks.is_concrete(values):
        place = f"predictions.{method}" if method else "score"
        known = _checks.readable(values)
        _checks.refuse_where(
            known != known, place, "numbers for these predictions and targets", values
        )
    return _checks.nan_with(value, samples)  # quantiles of counts and labels are never NaN


@jax.jit
def _values_and_mean(
    score: jax.tree_util.Partial, samples: tuple[Any, Any]
) -> tuple[jax.Array, jax.Array]:
    values = jax.vmap(score)(*samples)
    return values, jnp.mean(values)
