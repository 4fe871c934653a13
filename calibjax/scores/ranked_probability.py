"""Ranked probability scores, of numbers (CRPS) and of ordered classes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions.base import ClassPredictions, Distribution
from calibjax.scores.base import mean_over_classes, mean_over_samples, weighted_samples
from calibjax.scores.draws import ESTIMATORS, drawn, fair_score_of_numbers


def crps(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    estimator: str = "nrg",
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean continuous ranked probability score.

        CRPS = n⁻¹ Σ_i ∫ (F_i(x) − 1(x ≥ y_i))² dx = n⁻¹ Σ_i E|Z_i − y_i| − ½ E|Z_i − Z_i'|

    with the cdf F_i of p_i and independent Z_i, Z_i' ~ p_i; in units of the targets. With weights
    it is the weighted mean.

    Args:
        predictions: batch of n distributions of numbers whose score has a closed form:
            `Normal`, `Laplace`, `Logistic`, `StudentT`, `LogNormal`, `Gamma`, `Uniform`, `Beta`,
            `Poisson`, `NegativeBinomial`, `Ensemble`, `Mixture`s of normal distributions, and every
            class with a method `crps(y)`.
        targets: [n].
        estimator: for ensembles, as in scoringrules: "nrg" for the empirical distribution of the
            members, or "fair" for the distribution from which they were drawn, see `energy_score`;
            the latter also takes draws from any family, `monte_carlo`.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the family has no closed form.

    Cost: O(n); O(n m²) for up to 200 samples, O(n m log m) for more, O(n k²) for k components.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, §4.2, with the opposite
    sign; Gneiting et al. (2005), Calibrated probabilistic forecasting using ensemble model output
    statistics, eq. (5) (normal); Grimit et al. (2006), The continuous ranked probability score for
    circular variables, eq. (5) (mixtures); Ferro (2014), Fair scores for ensemble forecasts, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> print(f"{crps(predictions, jnp.array([0.0, 1.0])):.4f}")
    0.4181
    """
    if checks.choice("estimator", estimator, ESTIMATORS) == "fair":
        samples, weights = drawn(predictions, targets, weights)
        checks.shape("targets", samples[1], (None,), "[n]; vectors have an energy_score")
        return mean_over_samples(fair_score_of_numbers, samples, weights, reduction)
    samples, weights = weighted_samples(predictions, targets, weights, "sample")
    return mean_over_samples(_crps, samples, weights, reduction, "crps")


def _crps(p: Any, y: jax.Array) -> jax.Array:
    """CRPS of one prediction and one target."""
    if not hasattr(p, "crps"):
        raise NotImplementedError(
            f"crps has no closed form for {type(p).__name__} predictions; define the method "
            "crps(y) of the class"
        )
    return p.crps(y)


def ranked_probability_score(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean ranked probability score of ordered classes.

        RPS = n⁻¹ Σ_i Σ_{c < m − 1} (P_ic − 1(y_i ≤ c))²,   P_ic = p_i0 + ... + p_ic, in [0, m − 1],

    which is the `crps` of the labels as numbers, and the `brier_score` for two classes. With
    weights it is the weighted mean. It is not divided by m − 1, as some authors do.

    Args:
        predictions: batch of n class predictions.
        targets: labels 0, ..., m − 1 in their order, [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n m).

    References: Epstein (1969), A scoring system for probability forecasts of ranked categories;
    Murphy (1971), A note on the ranked probability score.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]))
    >>> print(ranked_probability_score(predictions, jnp.array([0, 0])))
    0.375
    """
    return mean_over_classes(_ranked_score, predictions, targets, weights, reduction)


def _ranked_score(probs: jax.Array, labels: jax.Array) -> jax.Array:
    below = jnp.cumsum(probs[:, :-1], 1)
    return jnp.sum(jnp.square(below - (labels[:, None] <= jnp.arange(below.shape[1]))), 1)
