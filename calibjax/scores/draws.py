"""Scores of predictions given by draws: vectors, and ensembles that stand for a distribution."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distances import Euclidean
from calibjax.distributions import MonteCarlo, Samples
from calibjax.distributions.base import Distribution
from calibjax.scores.base import mean_over_samples, weighted_samples


def energy_score(
    predictions: Distribution, targets: ArrayLike, *, weights: ArrayLike | None = None
) -> jax.Array:
    """Mean energy score of draws: the CRPS of vectors.

        ES = n⁻¹ Σ_i E‖Z_i − y_i‖ − ½ E‖Z_i − Z_i'‖

    with independent Z_i, Z_i' from the empirical distribution of the draws of prediction i; in
    units of the targets. With weights it is the weighted mean. Of numbers it is `crps`.

    Args:
        predictions: batch of n `Samples`, or distributions with draws, `monte_carlo`.
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
    >>> from calibjax.distributions import Samples
    >>> draws = Samples(jnp.array([[[0.0, 0.0], [6.0, 8.0]]]))
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
        predictions: batch of n `Samples`, or distributions with draws, `monte_carlo`.
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
        predictions: batch of n `Samples` of numbers, or distributions with draws, `monte_carlo`.
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
    >>> from calibjax.distributions import Samples
    >>> print(fair_crps(Samples(jnp.array([[0.0, 2.0]])), jnp.array([1.0])))
    0.0
    """
    samples, weights = _drawn(predictions, targets, weights)
    checks.shape("targets", samples[1], (None,), "[n]; vectors have a fair_energy_score")
    return mean_over_samples(_fair_crps, samples, weights)


def variogram_score(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    order: ArrayLike = 0.5,
    pair_weights: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Mean variogram score of draws of vectors, which sees wrong dependence of the components.

        VS = n⁻¹ Σ_i Σ_kl v_kl (|y_ik − y_il|^p − E|Z_ik − Z_il|^p)²

    with the mean over the draws of prediction i; with weights it is the weighted mean. It does not
    see errors that all components share, such as a shift.

    Args:
        predictions: batch of n `Samples` of vectors, or distributions with draws, `monte_carlo`.
        targets: [n, d].
        order: p > 0; derivatives where components are equal count as zero for p ≤ 1.
        pair_weights: v ≥ 0 of the pairs of components, [d, d]; None for ones.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar, in units of the targets to the power 2 p.

    Raises:
        TypeError: if an argument is of the wrong kind, or the predictions are not given by draws.
        ValueError: if shapes or values are wrong.

    Cost: O(n m d²) for m draws.

    References: Scheuerer and Hamill (2015), Variogram-based proper scoring rules for probabilistic
    forecasts of multivariate quantities, eq. (11).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Samples
    >>> draws = Samples(jnp.array([[[0.0, 1.0], [0.0, 3.0]]]))
    >>> print(variogram_score(draws, jnp.array([[0.0, 4.0]]), order=1.0))
    8.0
    """
    samples, weights = _drawn(predictions, targets, weights)
    dtype = samples[0].probs.dtype
    checks.shape("targets", samples[1], (None, None), "[n, d]: numbers have no pairs of components")
    size = samples[1].shape[1]
    order = jnp.asarray(checks.positive_scalar("order", order), dtype)
    pairs = jnp.ones((size, size), dtype)
    if pair_weights is not None:
        given = checks.floating("pair_weights", checks.as_arrays("pair_weights", pair_weights))
        checks.shape("pair_weights", given, (size, size), "[d, d], as the components")
        given = checks.satisfying(
            "pair_weights", given, lambda x: (x >= 0) & (x < jnp.inf), "finite values ≥ 0"
        )
        pairs = jnp.asarray(given, dtype)
    score = jax.tree_util.Partial(_variogram, order, pairs)
    value = mean_over_samples(score, samples, weights)
    return checks.nan_with(value, order, pairs)


def _drawn(
    predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None
) -> tuple[tuple[Samples, jax.Array], jax.Array | None]:
    """Draws, with targets, and their weights."""
    (found, y), weights = weighted_samples(predictions, targets, weights)
    draws: Any = found.draws if isinstance(found, MonteCarlo) else found
    if not isinstance(draws, Samples):
        raise TypeError(
            "predictions: expected draws, distributions.Samples, got "
            f"{checks.described(found)}; distributions.monte_carlo draws from them"
        )
    return (draws, y), weights


def _kernel_score(
    pairs_of: Callable[[Samples, jax.Array], tuple[jax.Array, jax.Array]],
    is_fair: bool,
    p: Samples,
    y: jax.Array,
) -> jax.Array:
    """E d(Z, y) − ½ E d(Z, Z'), the latter of different draws if it is fair."""
    to_target, between = pairs_of(p, y)
    share = 1 - jnp.sum(jnp.square(p.probs)) if is_fair else 1
    return to_target - 0.5 * between / share


def _norms(p: Samples, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return p.mean_distances(y, Euclidean())


def _gaps(p: Samples, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return p.mean_distances(y)


_energy = functools.partial(_kernel_score, _norms, False)
_fair_energy = functools.partial(_kernel_score, _norms, True)
_fair_crps = functools.partial(_kernel_score, _gaps, True)


def _variogram(order: jax.Array, pairs: jax.Array, p: Samples, y: jax.Array) -> jax.Array:
    """Variogram score of one prediction and one target."""

    def powers(x: jax.Array) -> jax.Array:
        gaps = jnp.abs(x[:, None] - x)
        apart = gaps > 0
        return jnp.where(apart, jnp.where(apart, gaps, 1) ** order, 0)

    @jax.checkpoint
    def add(sums: jax.Array, draw: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return sums + draw[1] * powers(draw[0]), None

    dtype = p.probs.dtype
    means = lax.scan(add, jnp.zeros_like(pairs), (p.values.astype(dtype), p.probs))[0]
    return jnp.sum(pairs * jnp.square(powers(jnp.asarray(y, dtype)) - means))
