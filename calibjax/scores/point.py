"""Scores of point predictions: the mean of a distribution, or its most probable class."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.scores.base import mean_over_classes, mean_over_samples, weighted_samples


def mean_squared_error(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean squared error of the predicted means, over samples and components of the targets.

        MSE = n⁻¹ Σ_i (E_{Z~p_i} Z − y_i)²,

    averaged over the components of vectors, as in scikit-learn; with weights the weighted mean.

    Args:
        predictions: batch of n distributions of numbers or vectors with `mean`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, the predictions have no `mean`, or they
            predict classes, whose squared error is `brier_score`.
        ValueError: if shapes or values are wrong.

    Cost: O(n d) and the means.

    References: W21 App. A.3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 1.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(mean_squared_error(predictions, jnp.array([1.0, 1.0])))
    0.5
    """
    samples, weights = weighted_samples(predictions, targets, weights, "mean")
    if hasattr(samples[0], "class_probs"):
        raise TypeError(
            "predictions: expected distributions of numbers or vectors, got class predictions, "
            f"{type(samples[0]).__name__}; their squared error is scores.brier_score"
        )
    return mean_over_samples(_squared_error, samples, weights, reduction)


def _squared_error(p: Any, y: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(p.mean() - y))


def accuracy(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Proportion of samples whose most probable class was observed.

        accuracy = n⁻¹ Σ_i 1(y_i = argmax_c p_ic),   with weights the weighted mean.

    Ties are resolved in favour of the first class. Derivatives are zero.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> print(accuracy(predictions, jnp.array([0, 0])))
    0.5
    """
    return mean_over_classes(_is_correct, predictions, targets, weights, reduction)


def _is_correct(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return (jnp.argmax(probs, 1) == labels).astype(probs.dtype)
