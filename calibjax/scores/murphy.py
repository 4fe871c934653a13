"""Murphy diagrams: the scores of which every consistent score of a mean or quantile is made."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import record
from calibjax.distributions.base import Distribution
from calibjax.estimators.isotonic import forecasts_of
from calibjax.scores.base import weighted_mean, weighted_samples

_POINTS = 101


@record
class MurphyCurve:
    """Mean elementary scores by threshold.

    Attributes:
        thresholds: θ in increasing order, [k].
        score: their mean scores, [k].
        level: of the quantile that is scored; None for means and probabilities.
    """

    thresholds: jax.Array
    score: jax.Array
    level: float | None = dataclasses.field(default=None, metadata={"static": True})


def murphy_curve(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    level: float | None = None,
    thresholds: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> MurphyCurve:
    """Elementary scores of predicted means, probabilities or quantiles at all thresholds.

        S_θ(x, y) = |y − θ| 1{min(x, y) ≤ θ < max(x, y)}                      of means x,
        S_θ(x, y) = (1{y < x} (1 − τ) + 1{y > x} τ) 1{min(x, y) ≤ θ < max(x, y)}   of τ-quantiles x.

    Every score that is consistent for the mean, or for the quantile, is an integral of these with
    some measure over θ: the squared error is 2 ∫ S_θ dθ, the pinball loss ∫ S_θ dθ. A model whose
    curve is nowhere above that of another one is better for *every* such score, and every decision
    by costs and losses; where curves cross, it depends on these.

    Args:
        predictions: batch of n distributions, with `mean` or `icdf`; the mean of a `Bernoulli` is
            its probability.
        targets: [n].
        level: τ in (0, 1) of the quantile that is scored; None to score means.
        thresholds: θ in increasing order, [k]; by default 101 from the smallest to the largest of
            predicted and observed numbers.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        The curve; `score` has the units of the targets for means, none for quantiles.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions lack a method.
        ValueError: if shapes or values are wrong.

    Cost: O(n k), O(n + k) memory.

    References: Ehm, Gneiting, Jordan and Krüger (2016), Of quantiles and expectiles: consistent
    scoring functions, Choquet representations and forecast rankings, eqs. (8) and (11), the latter
    without their factor ½.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, scores
    >>> predictions = distributions.Bernoulli(jnp.array([0.25, 0.75]))
    >>> curve = scores.murphy_curve(
    ...     predictions, jnp.array([1, 1]), thresholds=jnp.array([0.1, 0.5, 0.9])
    ... )
    >>> print(curve.score.round(3))
    [0.   0.25 0.1 ]
    """
    (predictions, targets), weights = weighted_samples(predictions, targets, weights)
    dtype = floating_dtype(predictions)
    level = None if level is None else float(checks.proportion("level", level))
    forecasts = forecasts_of(predictions, targets, level)
    if thresholds is not None:
        places = checks.floating("thresholds", checks.as_arrays("thresholds", thresholds))
        checks.shape("thresholds", places, (None,), "[k]")
        checks.leading_size("thresholds", places)
        places = checks.finite("thresholds", places)
        places = checks.increasing("thresholds", places, "numbers that do not decrease")
        thresholds = jnp.asarray(places, dtype)
    numbers = jnp.asarray(forecasts, dtype), jnp.asarray(targets, dtype)
    at, score = _scores(numbers, thresholds, weights, level)
    return MurphyCurve(at, score, level)


@functools.partial(jax.jit, static_argnums=3)
def _scores(
    numbers: tuple[jax.Array, jax.Array],
    thresholds: jax.Array | None,
    weights: jax.Array | None,
    level: float | None,
) -> tuple[jax.Array, jax.Array]:
    forecasts, observed = checks.counted(weights, numbers)
    low, high = jnp.minimum(forecasts, observed), jnp.maximum(forecasts, observed)
    if thresholds is None:
        shares = jnp.asarray(np.linspace(0, 1, _POINTS), low.dtype)
        thresholds = jnp.min(low) * (1 - shares) + jnp.max(high) * shares
    slopes = None if level is None else jnp.where(observed < forecasts, 1 - level, level)

    def at(threshold: jax.Array) -> jax.Array:
        size = jnp.abs(observed - threshold) if slopes is None else slopes
        values = jnp.where((low <= threshold) & (threshold < high), size, 0)
        return weighted_mean(values, weights)

    is_bad = jnp.any(jnp.isnan(low + high)) | jnp.isnan(thresholds)
    return thresholds, jnp.where(is_bad, jnp.nan, lax.map(at, thresholds))
