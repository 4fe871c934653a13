"""Cross-fitted improvement of a proper score by recalibrations."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from calibjax._core import checks
from calibjax._core.arithmetic import mean_and_error
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, record
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.recalibration.base import Weights, cross_fitted
from calibjax.scores import crps, energy_score, negative_log_likelihood, pinball_loss
from calibjax.scores.proper import per_sample


@record
class Gain:
    """The improvement of a mean score by a recalibration.

    Attributes:
        mean: mean score of the predictions less that of the recalibrated ones, positive where these
            are better.
        standard_error: of the mean over the samples.
        low: lower end of the confidence interval.
        high: upper end.
        overconfidence: the part of the mean from predictions that become less certain, whose gain
            is that of repairing overconfidence. None if nothing says how certain they are, NaN
            where their variances are infinite.
        underconfidence: the part from those that become more certain. Predictions that stay as
            certain as they were, as shifted ones do, are in neither.
    """

    mean: jax.Array
    standard_error: jax.Array
    low: jax.Array
    high: jax.Array
    overconfidence: "Gain | None" = None
    underconfidence: "Gain | None" = None


def _by_name(name: str, value: Any, seen: Seen) -> Mapping[str, Any]:
    """Recalibrations, refused if they have no names."""
    if not isinstance(value, Mapping) or not value:
        got = checks.described(value)
        raise TypeError(f"{name}: expected a dictionary of at least one, got {got}")
    return value


@checked(minimum=2, recalibrations=_by_name)
def recalibration_gain(
    key: jax.Array,
    recalibrations: Mapping[str, Any],
    predictions: Distribution,
    targets: Numbers,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: Numbers | None = None,
    num_folds: int = 5,
    confidence_level: float = 0.95,
) -> dict[str, Gain]:
    """Improvement of a proper score by recalibrations, cross-fitted.

        gain = n⁻¹ Σ_i S(p_i, y_i) − S(T(p_i), y_i),

    where T was fitted to samples of other folds, see `Recalibrator.cross_fitted`. The folds are the
    same for all recalibrations. With the negative log-likelihood it is in nats per prediction;
    isotonic maps, which predict 0 and 1, may lose infinitely many. The interval is gain ± z
    standard errors over the samples, which leave out those of the fit: 95 % intervals of an affine
    map of normal predictions contain the mean gain in 94 % of 2000 data sets with n = 1000, 91 %
    with n = 200.

    It is split by whether predictions become less or more certain: by the probability of the most
    probable class, and otherwise by the product of the variances of the coordinates.

    Args:
        key: a JAX random key.
        recalibrations: by name, records with methods `fit(predictions, targets, weights)` and
            `apply(params, predictions)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        score: function (predictions, targets) → mean, smaller for better predictions; by default
            the negative log-likelihood, or for predictions without density the CRPS, the energy
            score or the pinball loss.
        weights: w ≥ 0 of the samples, [n].
        num_folds: number of folds.
        confidence_level: of the intervals.

    Returns:
        A `Gain` for each name.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: as `Recalibrator.cross_fitted`.

    Cost: that of `Recalibrator.cross_fitted` for each recalibration, and 2 n scores.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = 1 + jax.random.normal(jax.random.key(0), (200,))
    >>> methods = {"affine": recalibration.AffineScaling()}
    >>> gain = recalibration_gain(jax.random.key(1), methods, predictions, targets)["affine"]
    >>> print(bool(gain.low < 0.5 < gain.high))  # the gain is ½ · 1²
    True
    """
    z = -ndtri((1 - confidence_level) / 2)
    score = default_score(predictions) if score is None else score
    before = per_sample(score, predictions, targets)
    all_gains = {}
    for name, method in recalibrations.items():
        after = cross_fitted(key, method, predictions, targets, weights, num_folds)
        gains = before - per_sample(score, after, targets)
        gain = _interval(gains, weights, z)
        if _has_uncertainty(predictions) and _has_uncertainty(after):
            change = _uncertainty(after) - _uncertainty(predictions)
            finite = jnp.where(jnp.isfinite(change), gains, jnp.nan)  # not of infinite variances
            parts = (_interval(jnp.where(x <= 0, 0, finite), weights, z) for x in (change, -change))
            gain = Gain(gain.mean, gain.standard_error, gain.low, gain.high, *parts)
        all_gains[name] = gain
    return all_gains


def _has_uncertainty(predictions: Distribution) -> bool:
    """Whether it is known how certain predictions are."""
    return has_class_probs(predictions) or hasattr(bare(predictions), "variance")


@jax.jit
def _uncertainty(predictions: Distribution) -> jax.Array:
    """Numbers that are larger for less certain predictions, [n]."""
    plain = bare(predictions)
    if has_class_probs(plain):
        return -jnp.max(plain.class_probs, 1)
    return jax.vmap(lambda p: jnp.sum(jnp.log(p.variance())))(plain)


@jax.jit
def _interval(gains: jax.Array, weights: Weights, z: jax.Array) -> Gain:
    mean, error = mean_and_error(gains, weights)
    reach = jnp.asarray(z, error.dtype) * error
    return Gain(mean, error, mean - reach, mean + reach)


def default_score(*models: Distribution) -> Callable[..., jax.Array]:
    """The negative log-likelihood, or what else all models have."""
    if all(hasattr(p, "log_prob") for p in models):
        return negative_log_likelihood
    if all(isinstance(bare(p), Ensemble) and bare(p).values.ndim > 2 for p in models):
        return energy_score
    return crps if all(hasattr(p, "crps") for p in models) else pinball_loss
