"""Continuous ranked probability score (CRPS) in closed form."""

import jax
from jax.typing import ArrayLike

from calibjax._pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.scores.base import checked_samples, mean_over_samples


def crps(predictions: Distribution, targets: ArrayLike) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i E|Z_i − y_i| − ½ E|Z_i − Z_i'|

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets.

    Args:
        predictions: batch of n distributions of numbers whose score has a closed form, see
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
    samples = checked_samples(predictions, targets, "sample")
    return mean_over_samples(pointwise_crps, samples, "crps")


def pointwise_crps(p: PyTree, y: jax.Array) -> jax.Array:
    """CRPS of one prediction and one target, ∫ (F(x) − 1(x ≥ y))² dx.

    Defined for `Normal`, `Laplace`, `StudentT`, `LogNormal`, `Gamma`, `Uniform`, `Samples` of
    numbers, `Mixture`s of normal distributions, and every class with a method `crps(y)`. For an
    ensemble it is the score of the empirical distribution of its members.

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
    if not hasattr(p, "crps"):
        raise NotImplementedError(
            f"crps has no closed form for {type(p).__name__} predictions; define the method "
            "crps(y) of the class"
        )
    return p.crps(y)
