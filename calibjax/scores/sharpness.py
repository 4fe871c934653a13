"""Sharpness: how concentrated predictions are, whatever the targets."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax.distributions.base import Distribution


def interval_widths(predictions: Distribution, *, level: float = 0.9) -> jax.Array:
    """Width of the predicted central interval of each sample.

        width_i = F_i⁻¹((1 + level) / 2) − F_i⁻¹((1 − level) / 2).

    Among calibrated models sharper ones are better; a sharp model that is not calibrated is
    overconfident. Of class predictions the sharpness is that of the confidences, the result of
    `estimators.top_label`; of `Quantiles` subtract two columns of their values, of which
    −∞ and ∞ give infinite widths.

    Args:
        predictions: batch of n distributions of numbers with `icdf`.
        level: probability of the interval, in (0, 1).

    Returns:
        [n], in units of the targets.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions have no `icdf`.
        ValueError: if shapes or values are wrong.

    Cost: 2 n quantiles.

    References: Gneiting, Balabdaoui and Raftery (2007), Probabilistic forecasts, calibration and
    sharpness, §3.3.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, scores
    >>> predictions = distributions.Normal(jnp.zeros(2), jnp.array([1.0, 2.0]))
    >>> print(scores.interval_widths(predictions, level=0.5).round(2))
    [1.35 2.7 ]
    """
    predictions = checks.batch(predictions)
    checks.method("predictions", predictions, "icdf")
    if hasattr(predictions, "class_probs"):
        raise TypeError(
            f"predictions: expected distributions of numbers, got {checks.described(predictions)};"
            " classes have confidences, estimators.top_label"
        )
    beyond = (1 - jnp.asarray(checks.proportion("level", level))) / 2

    def width(p: Any) -> jax.Array:
        return p.icdf(1 - beyond) - p.icdf(beyond)

    return jax.vmap(width)(predictions)
