"""The temperature that would repair predictions, and its confidence interval."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from calibjax._core import checks
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
            differentiable in T; the CRPS of `Ensemble` is not.
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


def _loss_of_sample(loss: Loss, p: PyTree, y: PyTree) -> jax.Array:
    """The loss of a data set that consists of one sample."""
    return loss(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (p, y)))


@functools.partial(jax.jit, static_argnums=0)
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
    reach = -ndtri(jnp.asarray((1 - level) / 2, error.dtype)) * error
    low, high = temperature * jnp.exp(-reach), temperature * jnp.exp(reach)
    return ConfidenceInterval(low, high, temperature, temperature * error)
