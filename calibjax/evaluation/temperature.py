"""The temperature that would repair predictions: how sure it is, and what it wins."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, mean_and_error
from calibjax._core.compilation import compiled_once, jit
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests import ConfidenceInterval
from calibjax.recalibration import TemperatureScaling, tempered
from calibjax.scores import negative_log_likelihood

Loss = Callable[[Any, Any], jax.Array]


def temperature_interval(
    predictions: Distribution,
    targets: ArrayLike,
    *,
    loss: Loss = negative_log_likelihood,
    weights: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> ConfidenceInterval:
    """Asymptotic confidence interval for the temperature that minimises the expected loss.

    T is that of `TemperatureScaling`. With θ = log T and the loss l_i(θ) of sample i at this
    temperature, the interval is T exp(± z s) with the sandwich estimate of the standard error

        s² = Σ_i l_i'(θ)² / (Σ_i l_i''(θ))²,

    with weights w_i l_i in place of l_i, which does not assume that any temperature makes the
    model calibrated. T = 1 in the interval does not mean that the model is calibrated.

    Args:
        predictions: batch of n distributions with `tempered`.
        targets: [n] or [n, d].
        loss: (predictions, targets) → scalar, the mean of a loss over the samples that is twice
            differentiable in T; the CRPS of `Samples` is not.
        weights: w ≥ 0 of the samples, [n], which the loss has to take; None if all count equally.
        confidence_level: in (0, 1).

    Returns:
        The interval; `estimate` is T, `standard_error` is T s. All but T is NaN if the loss of the
        samples is not convex at T, or its curvature is not finite.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or the loss has no minimum, see
            `TemperatureScaling`.
        NotImplementedError: if the family has no `tempered`.

    Cost: that of `TemperatureScaling.fit`.

    References: none of the four papers has it; White (1982), Maximum likelihood estimation of
    misspecified models, for the standard error.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, evaluation
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = 2 * jax.random.normal(jax.random.key(0), (200,))  # their variance is 4
    >>> found = evaluation.temperature_interval(predictions, targets)
    >>> print(f"{found.low:.1f} {found.estimate:.1f} {found.high:.1f}")
    3.1 3.8 4.6
    """
    level = checks.proportion("confidence_level", confidence_level)
    checks.function("loss function", "loss", loss, "predictions", "targets")
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, keep_logs=True
    )
    temperature = TemperatureScaling(loss).fit(predictions, targets, weights=weights)

    return _interval(loss, predictions, targets, weights, temperature, level)


def temperature_gain(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    loss: Loss = negative_log_likelihood,
    weights: ArrayLike | None = None,
    num_folds: int = 5,
    confidence_level: float = 0.95,
) -> ConfidenceInterval:
    """How much temperature scaling lowers the loss of predictions that it was not fitted to.

    The samples are divided into folds at random. The predictions of each fold are scaled by the
    temperature of all others, so that

        gain = n⁻¹ Σ_i l(p_i, y_i) − l(p_i at the temperature of the other folds, y_i)

    is honest: if there is nothing to repair, it is slightly negative on average.

    Args:
        key: a JAX random key.
        predictions: batch of n distributions with `tempered`.
        targets: [n] or [n, d].
        loss: (predictions, targets) → scalar, the mean of a loss over the samples.
        weights: w ≥ 0 of the samples, [n]; None if all count equally.
        num_folds: from 2 to n.
        confidence_level: in (0, 1).

    Returns:
        The interval gain ± z sd / √n around the gain, with the standard deviation sd over the
        samples, which takes the temperatures as given; with weights see `estimators.skce_spread`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or the loss has no minimum, see
            `TemperatureScaling`.
        NotImplementedError: if the family has no `tempered`.

    Cost: `num_folds` times that of `TemperatureScaling.fit`.

    References: none of the four papers has it; Stone (1974), Cross-validatory choice and assessment
    of statistical predictions.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, evaluation
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = 2 * jax.random.normal(jax.random.key(0), (200,))
    >>> gain = evaluation.temperature_gain(jax.random.key(1), predictions, targets)
    >>> print(f"{gain.estimate:.1f} ± {gain.standard_error:.1f}")  # 1.5 − log 2 = 0.8 is expected
    0.7 ± 0.1
    """
    key = checks.random_key(key)
    level = checks.proportion("confidence_level", confidence_level)
    checks.function("loss function", "loss", loss, "predictions", "targets")
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2, keep_logs=True
    )
    n = checks.leading_size("targets", targets)
    num_folds = checks.size_in_range("num_folds", num_folds, 2, n)
    gain = functools.partial(_gain, loss, num_folds, level)
    temperatures, found = compiled_once(gain, key, predictions, targets, weights)
    if checks.is_concrete(temperatures) and np.isnan(temperatures).any():
        others = _folds(key, targets, weights, num_folds) != int(np.argmax(np.isnan(temperatures)))
        chosen = jax.tree.map(lambda leaf: leaf[others], (predictions, targets, weights))
        TemperatureScaling(functools.partial(_mean_loss, loss)).fit(*chosen[:2], weights=chosen[2])
    return found


def _gain(
    loss: Loss,
    num_folds: int,
    level: ArrayLike,
    key: jax.Array,
    predictions: PyTree,
    targets: PyTree,
    weights: jax.Array | None,
) -> tuple[jax.Array, ConfidenceInterval]:
    """Temperatures of the folds, NaN if there are none, and how much they lower the losses."""
    folds, method = _folds(key, targets, weights, num_folds), functools.partial(_mean_loss, loss)
    used = jnp.ones(folds.shape, floating_dtype(predictions)) if weights is None else weights

    def temperature(fold: jax.Array) -> jax.Array:
        others = jnp.where(folds == fold, 0, used)  # one program for folds of different sizes
        return TemperatureScaling(method).fit(predictions, targets, weights=others)

    def gain(p: Any, y: Any, temperature: jax.Array) -> jax.Array:
        return _loss_of_sample(loss, p, y) - _loss_of_sample(loss, tempered(p, temperature), y)

    temperatures = jax.lax.map(temperature, jnp.arange(num_folds))
    gains = jax.vmap(gain)(predictions, targets, temperatures[folds])
    mean, error = mean_and_error(gains, weights)
    reach = _quantile(level, error.dtype) * error
    return temperatures, ConfidenceInterval(mean - reach, mean + reach, mean, error)


def _folds(key: jax.Array, targets: PyTree, weights: jax.Array | None, num_folds: int) -> jax.Array:
    """The fold of each sample: every K-th in a random order, in which those without weight last."""
    n = checks.leading_size("targets", targets)
    places = jax.random.uniform(key, (n,))
    places = places if weights is None else jnp.where(weights > 0, places, 2)
    return jnp.argsort(jnp.argsort(places)) % num_folds


def _mean_loss(
    loss: Loss, predictions: PyTree, targets: PyTree, weights: jax.Array | None = None
) -> jax.Array:
    """The mean of the losses of the samples, with weights, for losses that take none."""
    values = jax.vmap(functools.partial(_loss_of_sample, loss))(predictions, targets)
    return mean_and_error(values, weights)[0]


def _loss_of_sample(loss: Loss, p: PyTree, y: PyTree) -> jax.Array:
    """The loss of a data set that consists of one sample."""
    return loss(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (p, y)))


@functools.partial(jit, static_argnums=0)
def _interval(
    loss: Loss,
    predictions: PyTree,
    targets: PyTree,
    weights: jax.Array | None,
    temperature: jax.Array,
    level: ArrayLike,
) -> ConfidenceInterval:
    """Sandwich estimate of the interval around the best temperature."""

    def value(p: Any, y: Any, theta: jax.Array) -> jax.Array:
        return _loss_of_sample(loss, tempered(p, jnp.exp(theta)), y)

    both = jax.vmap(jax.value_and_grad(jax.grad(value, 2), 2), (0, 0, None))
    slopes, curvatures = both(predictions, targets, jnp.log(temperature))
    if weights is not None:
        slopes, curvatures = (jnp.where(weights > 0, weights * x, 0) for x in (slopes, curvatures))
    curvature = jnp.sum(curvatures)
    is_convex = (curvature > 0) & jnp.isfinite(curvature)
    error = jnp.sqrt(jnp.sum(jnp.square(slopes))) / jnp.where(is_convex, curvature, jnp.nan)
    reach = _quantile(level, error.dtype) * error
    low, high = temperature * jnp.exp(-reach), temperature * jnp.exp(reach)
    return ConfidenceInterval(low, high, temperature, temperature * error)


def _quantile(level: Any, dtype: Any) -> jax.Array:
    """How many standard errors there are on either side of an interval."""
    return -ndtri(jnp.asarray((1 - level) / 2, dtype))
