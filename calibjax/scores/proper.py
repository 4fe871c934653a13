"""Proper scores, whose expectation is smallest for the true distribution."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import one_hot
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.scores.base import mean_over_classes, mean_over_samples, weighted_samples


def negative_log_likelihood(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean negative log-likelihood (logarithmic score), in nats.

        NLL = −n⁻¹ Σ_i log p_i(y_i),   with weights −Σ_i w_i log p_i(y_i) / Σ_i w_i

    with densities, or probabilities if outcomes are discrete. It is infinite if a target has
    probability zero.

    Args:
        predictions: batch of n distributions with `log_prob`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `log_prob`.
        ValueError: if shapes or values are wrong.

    Cost: n evaluations of the log-density.

    References: W21 App. A.3; Gneiting and Raftery (2007), Strictly proper scoring rules, §4.1.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> nll = negative_log_likelihood(Bernoulli(jnp.array([0.5, 0.25])), jnp.array([1, 0]))
    >>> print(f"{nll:.4f}")  # (log 2 + log 4/3) / 2
    0.4904
    """
    samples, weights = weighted_samples(predictions, targets, weights, "log_prob")
    return mean_over_samples(_surprise, samples, weights, reduction, "log_prob")


def _surprise(p: Any, y: jax.Array) -> jax.Array:
    return -p.log_prob(y)


def brier_score(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    scale_by_half: bool | str = "auto",
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean squared Euclidean distance between class probabilities and one-hot labels (Brier score).

        Brier = n⁻¹ Σ_i Σ_c (p_ic − 1(y_i = c))², in [0, 2],

    with weights the weighted mean. For two classes it is halved by default, so that it is the mean
    of (p − y)², the `sklearn.metrics.brier_score_loss` of a `Bernoulli`.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        scale_by_half: whether half of the sum counts; "auto" for two classes only, as in
            scikit-learn.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Brier (1950), Verification of forecasts expressed in terms of probability.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    >>> print(brier_score(predictions, jnp.array([0, 2])))
    0.25
    """
    if not isinstance(scale_by_half, bool):
        checks.choice("scale_by_half", scale_by_half, ("auto",))
    return mean_over_classes(_BRIER[scale_by_half], predictions, targets, weights, reduction)


def _brier(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.sum(jnp.square(probs - one_hot(labels, probs.shape[1], probs.dtype)), 1)


def _half_brier(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return 0.5 * _brier(probs, labels)


def _usual_brier(probs: jax.Array, labels: jax.Array) -> jax.Array:
    return (_half_brier if probs.shape[1] == 2 else _brier)(probs, labels)


_BRIER = {"auto": _usual_brier, True: _half_brier, False: _brier}
