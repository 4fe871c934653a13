"""What a recalibration earns: predictions that were not fitted to their own targets, and scores."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, mean_and_error
from calibjax._core.pytree import PyTree, record
from calibjax.distributions import Bernoulli, Ensemble
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.features import bare
from calibjax.scores import crps, energy_score, negative_log_likelihood, pinball_loss
from calibjax.scores.base import per_sample


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


def cross_fitted(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_folds: int = 5,
) -> Distribution:
    """Recalibrated predictions, each by parameters that were fitted to other samples.

    The samples are divided into folds at random, and the predictions of each fold are recalibrated
    with what was learned from all others. They can be handed over to every estimator and score in
    place of the predictions. Tests of them reject too often, as the fits have errors: see
    `hypothesis_tests.composite_calibration_test`.

    Args:
        key: a JAX random key.
        recalibration: record with methods `fit(predictions, targets, weights)` and
            `apply(params, predictions)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n].
        num_folds: number of folds, from 2 to n.

    Returns:
        A batch of n distributions.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or the recalibration cannot be fitted to the
            samples outside of some fold.

    Cost: a fit and an application to all predictions for each fold, in one program.

    References: Zadrozny and Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates; Chernozhukov et al. (2018), Double/debiased machine learning, for the
    name.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> predictions = distributions.Normal(jnp.zeros(4), jnp.ones(4))
    >>> method, targets = recalibration.AffineScaling(), jnp.array([1.0, 2.0, 4.0, 9.0])
    >>> found = cross_fitted(jax.random.key(0), method, predictions, targets, num_folds=4)
    >>> print(found.loc)  # means of the other three
    [5.        4.6666665 4.        2.3333333]
    """
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2, keep_logs=True
    )
    n = checks.leading_size("predictions", predictions)
    num_folds = checks.size_in_range("num_folds", num_folds, 2, n)
    for name, arguments in (("fit", ("predictions", "targets")), ("apply", ("params", "p"))):
        method, keywords = getattr(recalibration, name, None), ("weights",) * (name == "fit")
        checks.function("method", f"recalibration.{name}", method, *arguments, keywords=keywords)
    samples = checks.random_key(key), predictions, targets, weights
    folds, own = _out_of_fold(recalibration, num_folds, *samples)
    is_missing = checks.missing_rows(own)
    if checks.is_concrete(is_missing) and bool(jnp.any(is_missing)):
        _refuse_fold(int(folds[jnp.argmax(is_missing)]), folds, recalibration, *samples[1:])
    return own


@functools.partial(jax.jit, static_argnums=(0, 1))
def _out_of_fold(
    recalibration: Any,
    num_folds: int,
    key: jax.Array,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
) -> tuple[jax.Array, PyTree]:
    """The fold of each sample, [n], and its prediction by what the other folds taught.

    Folds are every K-th in a random order, in which samples without weight come last.
    """
    n = checks.leading_size("targets", targets)
    places = jax.random.uniform(key, (n,))
    places = places if weights is None else jnp.where(weights > 0, places, 2)
    folds = jnp.argsort(jnp.argsort(places)) % num_folds
    used = jnp.ones(n, floating_dtype(predictions)) if weights is None else weights

    def repaired(fold: jax.Array) -> Distribution:
        params = recalibration.fit(predictions, targets, weights=jnp.where(folds == fold, 0, used))
        found = recalibration.apply(params, predictions)
        return found if checks.is_distribution(found) else Bernoulli(found)

    def fill(own: Distribution, fold: jax.Array) -> tuple[PyTree, None]:
        return jax.tree.map(
            functools.partial(_where_rows, folds == fold), repaired(fold), own
        ), None

    shapes = jax.eval_shape(repaired, jnp.int32(0))
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return folds, jax.lax.scan(fill, empty, jnp.arange(num_folds))[0]


def _where_rows(chosen: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(jnp.expand_dims(chosen, tuple(range(1, new.ndim))), new, old)


def _refuse_fold(fold: int, folds: jax.Array, recalibration: Any, *samples: object) -> NoReturn:
    """Says why a recalibration has no parameters for a fold, as far as its `fit` does."""
    predictions, targets, weights = jax.tree.map(lambda leaf: leaf[folds != fold], samples)
    reason = "its parameters are nan"
    try:
        recalibration.fit(predictions, targets, weights=weights)
    except ValueError as error:
        reason = str(error)
    raise ValueError(
        f"recalibration: expected one that the samples outside of fold {fold} determine, got "
        f"{checks.described(recalibration)}: {reason}"
    )


def recalibration_gain(
    key: jax.Array,
    recalibrations: Mapping[str, Any],
    predictions: Distribution,
    targets: ArrayLike,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: ArrayLike | None = None,
    num_folds: int = 5,
    confidence_level: float = 0.95,
) -> dict[str, Gain]:
    """What recalibrations earn: the improvement of a proper score, cross-fitted.

        gain = n⁻¹ Σ_i S(p_i, y_i) − S(T(p_i), y_i),

    where T was fitted to samples of other folds, see `cross_fitted`, which are the same for all
    recalibrations. With the negative log-likelihood it is in nats per prediction; isotonic maps,
    which predict 0 and 1, may lose infinitely many. The interval is gain ± z standard errors over
    the samples, which leave out those of the fit: 95 % intervals of an affine map of normal
    predictions contain the mean gain in 94 % of 2000 data sets with n = 1000, 91 % with n = 200.

    It is split by whether predictions become less or more certain: by the probability of the most
    probable class, and otherwise by the product of the variances of the coordinates.

    Args:
        key: a JAX random key.
        recalibrations: by name, as in `cross_fitted`.
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
        ValueError: as `cross_fitted`.

    Cost: that of `cross_fitted` for each recalibration, and 2 n scores.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = 1 + jax.random.normal(jax.random.key(0), (200,))
    >>> methods = {"affine": recalibration.AffineScaling()}
    >>> gain = recalibration_gain(jax.random.key(1), methods, predictions, targets)["affine"]
    >>> print(bool(gain.low < 0.5 < gain.high))  # the gain is ½ · 1²
    True
    """
    if not isinstance(recalibrations, Mapping) or not recalibrations:
        got = checks.described(recalibrations)
        raise TypeError(f"recalibrations: expected a dictionary of at least one, got {got}")
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2, keep_logs=True
    )
    z = -ndtri((1 - checks.proportion("confidence_level", confidence_level)) / 2)
    score = default_score(predictions) if score is None else score
    checks.function("function", "score", score, "predictions", "targets")
    before = per_sample(score, predictions, targets)
    found = {}
    for name, method in recalibrations.items():
        after = cross_fitted(
            key, method, predictions, targets, weights=weights, num_folds=num_folds
        )
        gains = before - per_sample(score, after, targets)
        gain = _interval(gains, weights, z)
        if _has_uncertainty(predictions) and _has_uncertainty(after):
            change = _uncertainty(after) - _uncertainty(predictions)
            known = jnp.where(jnp.isfinite(change), gains, jnp.nan)  # not of infinite variances
            parts = (_interval(jnp.where(x <= 0, 0, known), weights, z) for x in (change, -change))
            gain = Gain(gain.mean, gain.standard_error, gain.low, gain.high, *parts)
        found[name] = gain
    return found


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
def _interval(gains: jax.Array, weights: jax.Array | None, z: jax.Array) -> Gain:
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
