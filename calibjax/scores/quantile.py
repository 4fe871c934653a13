"""Scores of predicted quantiles."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distributions import Quantiles
from calibjax.distributions.base import Distribution
from calibjax.estimators.uniformity import checked_levels
from calibjax.scores.base import mean_over_samples, weighted_samples


def pinball_loss(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    levels: Sequence[float] | jax.Array | None = None,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean pinball loss (quantile loss) of the predicted quantiles.

        n⁻¹ Σ_i L⁻¹ Σ_τ (1 − τ) (q_i(τ) − y_i)₊ + τ (y_i − q_i(τ))₊

    with the quantiles q_i(τ) at the levels τ_1, ..., τ_L; with weights the weighted mean. With many
    equally spaced levels it approaches half the `crps`. Labels of `Categorical`s count as the
    numbers 0, ..., m − 1.

    Args:
        predictions: batch of n distributions of numbers with `icdf`, or of `Quantiles`.
        targets: [n].
        levels: τ in (0, 1), [L]; 0.05, 0.1, ..., 0.95 by default, and for `Quantiles` their own.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `icdf`.
        ValueError: if shapes or values are wrong, or levels are given for `Quantiles`.

    Cost: n L quantiles.

    References: W21 App. A.3; Koenker and Bassett (1978), Regression quantiles.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(pinball_loss(predictions, jnp.array([1.0, -3.0]), levels=[0.5]))
    1.0
    """
    if isinstance(predictions, Quantiles):
        if levels is not None:
            raise ValueError("levels: expected None for Quantiles, which have levels of their own")
        samples, weights = weighted_samples(predictions, targets, weights)
        return mean_over_samples(_loss_of_quantiles, samples, weights, reduction)
    samples, weights = _with_quantiles(predictions, targets, weights)
    levels = checked_levels(levels).astype(floating_dtype(samples[0]))
    loss = jax.tree_util.Partial(_loss_at, levels)  # compiled once for all levels
    return mean_over_samples(loss, samples, weights, reduction)


def interval_score(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    confidence_level: float = 0.9,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean interval score (Winkler score) of the predicted central intervals.

        n⁻¹ Σ_i u_i − l_i + 2 α⁻¹ (l_i − y_i)₊ + 2 α⁻¹ (y_i − u_i)₊

    with the quantiles l_i and u_i at the levels α / 2 and 1 − α / 2, α = 1 − confidence_level; in
    units of the targets. With weights it is the weighted mean. For `Quantiles` at these two levels
    it is 4 / α times their `pinball_loss`.

    Args:
        predictions: batch of n distributions of numbers with `icdf`.
        targets: [n].
        confidence_level: probability of the interval, in (0, 1).
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `icdf`.
        ValueError: if shapes or values are wrong.

    Cost: 2 n quantiles.

    References: Winkler (1972), A decision-theoretic approach to interval estimation; Gneiting and
    Raftery (2007), Strictly proper scoring rules, eq. (43).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Uniform
    >>> predictions = Uniform(low=jnp.zeros(2), high=jnp.full(2, 4.0))
    >>> print(interval_score(predictions, jnp.array([2.0, 4.0]), confidence_level=0.5))
    4.0
    """
    samples, weights = _with_quantiles(predictions, targets, weights)
    tail = (1 - checks.proportion("confidence_level", confidence_level)) / 2
    score = jax.tree_util.Partial(_interval_score, jnp.asarray(tail, floating_dtype(samples[0])))
    return mean_over_samples(score, samples, weights, reduction)


def _interval_score(tail: jax.Array, p: Any, y: jax.Array) -> jax.Array:
    low, high = p.icdf(tail), p.icdf(1 - tail)
    return high - low + (jnp.maximum(low - y, 0) + jnp.maximum(y - high, 0)) / tail


def _with_quantiles(
    predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None
) -> tuple[tuple[Any, Any], jax.Array | None]:
    samples, weights = weighted_samples(predictions, targets, weights, "icdf")
    checks.shape("targets", samples[1], (None,), "[n]: only numbers have quantiles")
    return samples, weights


def _loss_at(levels: jax.Array, p: Any, y: jax.Array) -> jax.Array:
    return _loss_of_quantiles(Quantiles(levels, jax.vmap(p.icdf)(levels)), y)


def _loss_of_quantiles(p: Quantiles, y: jax.Array) -> jax.Array:
    excess = y - p.values
    return jnp.mean(jnp.where(excess > 0, p.levels * excess, (p.levels - 1) * excess))
