"""Proper scores, whose expectation is smallest for the true distribution."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import one_hot
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.scores.base import mean_over_samples, weighted_mean, weighted_samples


def negative_log_likelihood(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean negative log-likelihood (logarithmic score), in nats.

        NLL = −n⁻¹ Σ_i log p_i(y_i),   with weights −Σ_i w_i log p_i(y_i) / Σ_i w_i

    with densities, or probabilities if outcomes are discrete. It is infinite if a target has
    probability zero.

    Args:
        predictions: batch of n distributions with `log_prob`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

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
    return mean_over_samples(_surprise, samples, weights, "log_prob")


def _surprise(p: Any, y: jax.Array) -> jax.Array:
    return -p.log_prob(y)


def brier_score(
    predictions: ClassPredictions, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean squared Euclidean distance between class probabilities and one-hot labels (Brier score).

        Brier = n⁻¹ Σ_i Σ_c (p_ic − 1(y_i = c))², in [0, 2],

    with weights the weighted mean.
    As everywhere, both classes of a `Bernoulli` count, so that its value is that of the two-class
    `Categorical`: twice (p − y)², which is scikit-learn's `brier_score_loss` for two classes.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

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
    checks.class_predictions(predictions)
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    return _brier_score(predictions, targets, weights)


@jax.jit
def _brier_score(predictions: Any, targets: jax.Array, weights: jax.Array | None) -> jax.Array:
    probs = predictions.class_probs
    errors = probs - one_hot(targets, probs.shape[1], probs.dtype)
    return weighted_mean(jnp.sum(jnp.square(errors), 1), weights)
