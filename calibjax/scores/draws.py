"""Scores of predictions given by draws: vectors, and ensembles that stand for a distribution."""

import functools
from collections.abc import Callable
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
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean energy score of draws: the CRPS of vectors.

        ES = n⁻¹ Σ_i E‖Z_i − y_i‖ − ½ E‖Z_i − Z_i'‖

    with independent Z_i, Z_i' from the empirical distribution of the draws of prediction i; in
    units of the targets. With weights it is the weighted mean. Of numbers it is `crps`. The package
    scoringrules has the variogram score, which reacts more to wrong dependence of components, and
    scores of some thresholds.

    Args:
        predictions: batch of n `Ensemble`, or distributions with draws, `monte_carlo`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions are not given by draws.
        ValueError: if shapes or values are wrong.

    Cost: O(n m² d) for m draws, O(n m d) memory.

    References: Gneiting and Raftery (2007), Strictly proper scoring rules, eq. (22), with the
    opposite sign.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Ensemble
    >>> draws = Ensemble(jnp.array([[[0.0, 0.0], [6.0, 8.0]]]))
    >>> print(energy_score(draws, jnp.array([[3.0, 4.0]])))
    2.5
    """
    samples, weights = _drawn(predictions, targets, weights)
    return mean_over_samples(_energy, samples, weights)


def fair_energy_score(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean energy score of the distributions from which the members were drawn, without bias.

        n⁻¹ Σ_i m⁻¹ Σ_j ‖z_ij − y_i‖ − ½ (m (m − 1))⁻¹ Σ_{j≠k} ‖z_ij − z_ik‖

    `energy_score` asks for the empirical distribution of the m members, and prefers ensembles whose
    members scatter less than the targets; this one is smallest, in expectation, for members with
    the distribution of the target, whatever m. With `monte_carlo` it estimates the energy score of
    predictions of any family. It may be negative. For members with probabilities q_j, m (m − 1)
    becomes 1 − Σ_j q_j², and the means those with q.

    Args:
        predictions: batch of n `Ensemble`, or distributions with draws, `monte_carlo`.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar, in units of the targets.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions are not given by draws.
        ValueError: if shapes or values are wrong.

    Cost: that of `energy_score`.

    References: Ferro (2014), Fair scores for ensemble forecasts, §3; Gneiting and Raftery (2007),
    eq. (22).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, scores
    >>> predictions = distributions.DiagNormal(jnp.zeros((500, 2)), jnp.ones((500, 2)))
    >>> drawn = distributions.monte_carlo(jax.random.key(0), predictions, 20)
    >>> print(f"{scores.fair_energy_score(drawn, jnp.zeros((500, 2))):.2f}")  # 0.367
    0.37
    """
    samples, weights = _drawn(predictions, targets, weights)
    return mean_over_samples(_fair_energy, samples, weights)


def fair_crps(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean CRPS of the distributions from which the members were drawn, without bias.

        n⁻¹ Σ_i m⁻¹ Σ_j |z_ij − y_i| − ½ (m (m − 1))⁻¹ Σ_{j≠k} |z_ij − z_ik|

    It is to `crps` what `fair_energy_score` is to `energy_score`.

    Args:
        predictions: batch of n `Ensemble` of numbers, or distributions with draws, `monte_carlo`.
        targets: [n].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar, in units of the targets.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions are not given by draws.
        ValueError: if shapes or values are wrong.

    Cost: that of `crps` of ensembles.

    References: Ferro (2014), Fair scores for ensemble forecasts, §3.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Ensemble
    >>> print(fair_crps(Ensemble(jnp.array([[0.0, 2.0]])), jnp.array([1.0])))
    0.0
    """
    samples, weights = _drawn(predictions, targets, weights)
    checks.shape("targets", samples[1], (None,), "[n]; vectors have a fair_energy_score")
    return mean_over_samples(_fair_crps, samples, weights)


def _drawn(
    predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None
) -> tuple[tuple[Ensemble, jax.Array], jax.Array | None]:
    """Draws, with targets, and their weights."""
    (found, y), weights = weighted_samples(predictions, targets, weights)
    draws: Any = found.draws if isinstance(found, MonteCarlo) else found
    if not isinstance(draws, Ensemble):
        raise TypeError(
            "predictions: expected draws, distributions.Ensemble, got "
            f"{checks.described(found)}; distributions.monte_carlo draws from them"
        )
    return (draws, y), weights


def _kernel_score(
    pairs_of: Callable[[Ensemble, jax.Array], tuple[jax.Array, jax.Array]],
    is_fair: bool,
    p: Ensemble,
    y: jax.Array,
) -> jax.Array:
    """E d(Z, y) − ½ E d(Z, Z'), the latter of different draws if it is fair."""
    to_target, between = pairs_of(p, y)
    share = 1 - jnp.sum(jnp.square(p.probs)) if is_fair else 1
    return to_target - 0.5 * between / share


def _norms(p: Ensemble, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return p.mean_distances(y, Euclidean())


def _gaps(p: Ensemble, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return p.mean_distances(y)


_energy = functools.partial(_kernel_score, _norms, False)
_fair_energy = functools.partial(_kernel_score, _norms, True)
_fair_crps = functools.partial(_kernel_score, _gaps, True)
