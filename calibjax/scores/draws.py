"""Scores of predictions given by draws."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distances import Euclidean
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.draws import MonteCarlo
from calibjax.scores.base import mean_over_samples, weighted_samples


def energy_score(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    estimator: str = "nrg",
    weights: ArrayLike | None = None,
    reduction: str = "mean",
) -> jax.Array:
    """Mean energy score of draws: the CRPS of vectors.

        ES = n⁻¹ Σ_i E‖Z_i − y_i‖ − ½ E‖Z_i − Z_i'‖

    with independent Z_i, Z_i' from the empirical distribution of the draws of prediction i; in
    units of the targets. With weights it is the weighted mean. Of numbers it is `crps`. The package
    scoringrules has the variogram score, which reacts more to wrong dependence of components, and
    scores of some thresholds.

    This score asks for the empirical distribution of the m members, and prefers ensembles whose
    members scatter less than the targets. The fair estimator is smallest, in expectation, for
    members with the distribution of the target, whatever m:

        n⁻¹ Σ_i m⁻¹ Σ_j ‖z_ij − y_i‖ − ½ (m (m − 1))⁻¹ Σ_{j≠k} ‖z_ij − z_ik‖.

    With `monte_carlo` it estimates the energy score of predictions of any family. It may be
    negative. For members with probabilities q_j, m (m − 1) becomes 1 − Σ_j q_j², and the means
    those with q.

    Args:
        predictions: batch of n `Ensemble`, or distributions with draws, `monte_carlo`.
        targets: [n] or [n, d].
        estimator: "nrg" for the empirical distribution of the draws, or "fair" for the distribution
            from which they were drawn; the names are those of scoringrules.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        reduction: "mean" over the samples, or "none" for the score of each, without weights.

    Returns:
        A scalar, or [n].

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions are not given by draws.
        ValueError: if shapes or values are wrong.

    Cost: O(n m² d) for m draws, O(n m d) memory.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, eq. (22), with the
    opposite sign; Ferro (2014), Fair scores for ensemble forecasts, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Ensemble
    >>> draws = Ensemble(jnp.array([[[0.0, 0.0], [6.0, 8.0]]]))
    >>> print(energy_score(draws, jnp.array([[3.0, 4.0]])))
    2.5
    """
    score = _SCORES[checks.choice("estimator", estimator, ESTIMATORS)]
    samples, weights = drawn(predictions, targets, weights)
    return mean_over_samples(score, samples, weights, reduction)


def drawn(
    predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None
) -> tuple[tuple[Ensemble, jax.Array], jax.Array | None]:
    """Draws, with targets, and their weights."""
    (checked, y), weights = weighted_samples(predictions, targets, weights)
    draws: Any = checked.draws if isinstance(checked, MonteCarlo) else checked
    if not isinstance(draws, Ensemble):
        raise TypeError(
            "predictions: expected draws, distributions.Ensemble, got "
            f"{checks.described(checked)}; distributions.monte_carlo draws from them"
        )
    return (draws, y), weights


def _kernel_score(
    distance: Euclidean | None, is_fair: bool, p: Ensemble, y: jax.Array
) -> jax.Array:
    """E d(Z, y) − ½ E d(Z, Z'), the latter of different draws if it is fair."""
    to_target, between = p.mean_distances(y, distance)
    share = 1 - jnp.sum(jnp.square(p.probs)) if is_fair else 1
    return to_target - 0.5 * between / share


ESTIMATORS = "nrg", "fair"
_SCORES = {x: functools.partial(_kernel_score, Euclidean(), x == "fair") for x in ESTIMATORS}
fair_score_of_numbers = functools.partial(_kernel_score, None, True)
