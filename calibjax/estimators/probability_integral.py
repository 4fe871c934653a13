"""Probability integral transforms (PIT): the place of each target in its predicted distribution."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.compilation import jit
from calibjax.distributions import Quantiles, Samples
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import undrawn
from calibjax.distributions.features import bare


def pit_values(key: jax.Array, predictions: Distribution, targets: ArrayLike) -> jax.Array:
    """Probability integral transform (PIT) of each target: its place in the predicted distribution.

        u_i = F_i(y_i⁻) + V_i (F_i(y_i) − F_i(y_i⁻)),    V_i uniform on (0, 1],

    with the predicted distribution function F_i and its limit F_i(y⁻) from the left. If the model
    is calibrated then, given the predictions, the u_i are independent and uniform on (0, 1).
    Without jumps of F_i the value is F_i(y_i), whatever the key; where F_i jumps, it is randomised:

    - Counts and other integers: F(y⁻) = F(y − 1). They are known by the support of the family, and
      for a class of your own without `check_targets` by the dtype of the targets.
    - `Quantiles`: within the interval that contains the target, of whose inside they say nothing.
    - `Samples`: the rank of the target among the members,
      (#{z < y} + V (#{z = y} + 1)) / (m + 1) for m members z. It is uniform if members and
      target have the same distribution, as in an ideal ensemble, and not if the target is a draw
      from the members, which is what the exact tests ask.

    Other distributions with jumps, such as a probability of exactly zero rain, are not recognised.
    Classes are refused: they have no order.

    Args:
        key: a JAX random key; only randomised values depend on it.
        predictions: batch of n distributions of numbers with a method `cdf`, or of `Quantiles`, or
            of `Samples` without weights.
        targets: [n].

    Returns:
        [n], in [0, 1].

    Raises:
        TypeError: if an argument is of the wrong kind, in particular if predictions are of classes,
            or have no `cdf`.
        ValueError: if shapes or values are wrong, or `Samples` have weights.

    Cost: n evaluations of the distribution function.

    References: Dawid (1984), The prequential approach; Gneiting, Balabdaoui and Raftery (2007),
    Probabilistic forecasts, calibration and sharpness, §3.1; Czado, Gneiting and Held (2009),
    Predictive model assessment for count data, for the randomisation; Hamill (2001), Interpretation
    of rank histograms.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators
    >>> predictions = distributions.Normal(jnp.zeros(3), jnp.array([1.0, 2.0, 4.0]))
    >>> u = estimators.pit_values(jax.random.key(0), predictions, jnp.array([0.0, 2.0, -4.0]))
    >>> print(u.round(2))
    [0.5  0.84 0.16]
    """
    key = checks.random_key(key)
    predictions, targets = checks.predictions_and_targets(predictions, targets)
    inner = bare(undrawn(predictions))
    if hasattr(inner, "class_probs"):
        raise TypeError(
            f"predictions: expected distributions of numbers, got {checks.described(inner)}; "
            "classes have no order, see estimators.reliability_curve"
        )
    if not isinstance(inner, Quantiles | Samples):
        checks.method("predictions", inner, "cdf")
    if isinstance(inner, Samples) and inner.weights is not None:
        raise ValueError(
            "predictions.weights: expected None, since the target has a rank among equals only"
        )
    checks.shape("targets", targets, (None,), "[n]: only numbers have a distribution function")
    return _randomised(key, inner, targets)


@jit
def _randomised(key: jax.Array, predictions: Distribution, targets: jax.Array) -> jax.Array:
    """PIT values of numbers, [n]."""
    lower, upper = jax.vmap(_jump)(predictions, targets)
    share = 1 - jax.random.uniform(key, lower.shape, lower.dtype)  # in (0, 1]
    # Where both are equal, rounding must not move the value; NaN stays NaN.
    values = jnp.where(lower < upper, lower + share * (upper - lower), upper)
    return checks.nan_rows(checks.missing_rows((predictions, targets)), jnp.clip(values, 0, 1))


def _jump(p: Any, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values of the distribution function to the left of y and at y."""
    if isinstance(p, Samples):
        m, dtype = p.values.size, floating_dtype(p)
        below, equal = jnp.sum(p.values < y), jnp.sum(p.values == y)
        return (below / (m + 1)).astype(dtype), ((below + equal + 1) / (m + 1)).astype(dtype)
    if isinstance(p, Quantiles):
        ends = jnp.pad(p.levels, 1, constant_values=(0, 1))
        index = p.interval(y)
        return ends[index], ends[index + 1]
    at = p.cdf(y)
    return (p.cdf(y - 1) if jnp.issubdtype(jnp.result_type(y), jnp.integer) else at), at
