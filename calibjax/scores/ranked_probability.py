"""Continuous ranked probability score (CRPS)."""

from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax.distributions.base import Distribution
from calibjax.scores.base import mean_over_samples, weighted_samples


def crps(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i E|Z_i − y_i| − ½ E|Z_i − Z_i'|

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets. With weights
    it is the weighted mean.

    Args:
        predictions: batch of n distributions of numbers whose score has a closed form:
            `Normal`, `Laplace`, `StudentT`, `LogNormal`, `Gamma`, `Uniform`, `Beta`, `Poisson`,
            `NegativeBinomial`, `Ensemble`, `Mixture`s of normal distributions, and every class with
            a method `crps(y)`. For an ensemble it is the score of the empirical distribution of its
            members.
        targets: [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the family has no closed form.

    Cost: O(n); O(n m²) for up to 200 samples, O(n m log m) for more, O(n k²) for k components.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, §4.2, with the opposite
    sign; Gneiting et al. (2005), Calibrated probabilistic forecasting using ensemble model output
    statistics, eq. (5) (normal); Grimit et al. (2006), The continuous ranked probability score for
    circular variables, eq. (5) (mixtures).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(f"{crps(predictions, jnp.array([0.0, 1.0])):.4f}")
    0.4181
    """
    samples, weights = weighted_samples(predictions, targets, weights, "sample")
    return mean_over_samples(_crps, samples, weights, "crps")


def _crps(p: Any, y: jax.Array) -> jax.Array:
    """CRPS of one prediction and one target."""
    if not hasattr(p, "crps"):
        raise NotImplementedError(
            f"crps has no closed form for {type(p).__name__} predictions; define the method "
            "crps(y) of the class"
        )
    return p.crps(y)
