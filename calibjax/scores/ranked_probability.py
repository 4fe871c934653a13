"""Continuous ranked probability score (CRPS) in closed form."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf
from jax.scipy.stats import norm

from calibjax._arithmetic import absolute
from calibjax.distributions import Laplace, Mixture, MonteCarlo, Normal, Samples
from calibjax.scores.base import checked_samples, mean_over_samples


def crps(predictions: Any, targets: Any) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i E|Z_i − y_i| − ½ E|Z_i − Z_i'|

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets.

    Args:
        predictions: batch of n distributions of numbers whose score is known in closed form, see
            `pointwise_crps`.
        targets: [n].

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the family has no closed form.

    Cost: n evaluations of `pointwise_crps`.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, §4.2, with the opposite
    sign.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(f"{crps(predictions, jnp.array([0.0, 1.0])):.4f}")
    0.4181
    """
    return mean_over_samples(pointwise_crps, checked_samples(predictions, targets, "sample"))


@functools.singledispatch
def pointwise_crps(p: Any, y: jax.Array) -> jax.Array:
    """CRPS of one prediction and one target, ∫ (F(x) − 1(x ≥ y))² dx.

    Defined for `Normal`, `Laplace`, `Samples` of numbers, and `Mixture`s of normal distributions;
    add a family by `pointwise_crps.register(Family, function)`. Of an ensemble it is the score of
    the distribution that puts its mass on the members.

    Args:
        p: one distribution.
        y: one target.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the family has no closed form.

    Cost: O(1); O(m log m) for m samples, O(k²) for k components. It checks no values; `crps` does.

    References: Gneiting et al. (2005), Calibrated probabilistic forecasting using ensemble model
    output statistics, eq. (5) (normal); Grimit et al. (2006), The continuous ranked probability
    score for circular variables, eq. (5) (mixtures).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> p = Normal(loc=jnp.array(0.0), scale=jnp.array(1.0))
    >>> print(f"{pointwise_crps(p, jnp.array(0.0)):.4f}")  # (√2 − 1) / √π
    0.2337
    """
    raise NotImplementedError(_missing(type(p).__name__))


def _missing(name: str) -> str:
    return (
        f"crps has no closed form for {name} predictions; add one with "
        "scores.pointwise_crps.register"
    )


@pointwise_crps.register
def _(p: Normal, y: jax.Array) -> jax.Array:
    return _mean_distance(y - p.loc, p.scale) - p.scale / math.sqrt(math.pi)


@pointwise_crps.register
def _(p: Laplace, y: jax.Array) -> jax.Array:
    z = absolute(y - p.loc) / p.scale
    return p.scale * (z + jnp.exp(-z) - 0.75)


@pointwise_crps.register
def _(p: Mixture, y: jax.Array) -> jax.Array:
    parts, weights = p.components, p.mixing_probs
    if not isinstance(parts, Normal):
        raise NotImplementedError(_missing(f"Mixture of {type(parts).__name__}"))
    scales = jnp.hypot(parts.scale[:, None], parts.scale)
    between = _mean_distance(parts.loc[:, None] - parts.loc, scales)
    distances = _mean_distance(y - parts.loc, parts.scale)
    return jnp.sum(weights * (distances - 0.5 * jnp.sum(weights * between, -1)))


@pointwise_crps.register
def _(p: Samples, y: jax.Array) -> jax.Array:
    if jnp.ndim(p.values) != 1:
        raise NotImplementedError(_missing("Samples of vectors"))
    order = jnp.argsort(p.values)
    values = p.values[order].astype(p.probs.dtype)
    low, high = values[:-1], values[1:]
    # The distribution function is constant between two draws: a sum of squares times lengths.
    upto = jnp.cumsum(p.probs[order])[:-1]
    y = jnp.asarray(y, values.dtype)
    split = jnp.clip(y, low, high)
    inside = jnp.sum(jnp.square(upto) * (split - low) + jnp.square(1 - upto) * (high - split))
    return inside + jnp.maximum(y - values[-1], 0) + jnp.maximum(values[0] - y, 0)


@pointwise_crps.register
def _(p: MonteCarlo, y: jax.Array) -> jax.Array:
    return pointwise_crps(p.distribution, y)


def _mean_distance(loc: jax.Array, scale: jax.Array) -> jax.Array:
    """E|Z| for Z ~ N(loc, scale²)."""
    z = loc / scale
    return loc * erf(z / math.sqrt(2)) + 2 * scale * norm.pdf(z)
