"""Predictions at another temperature as a calibration estimation function."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import parameter, record
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive
from calibjax.recalibration.powers import tempered
from calibjax.risk.base import EstimationFunction, with_hyperparameter
from calibjax.risk.samples import checked, checked_points, vectors


@record
class TemperatureParams:
    """What `Temperature` stores.

    Attributes:
        value: the temperature T, scalar.
        num_components: m for predictions of m classes, 1 for confidences.
    """

    value: jax.Array = parameter(positive)
    num_components: int = dataclasses.field(metadata={"static": True})


@record
class Temperature(EstimationFunction):
    """The calibration estimation function of a model whose temperature is wrong.

        h(p, q) = ⟨p − p_T, q − q_T⟩,   p_T ∝ p^{1/T}

    with the predictions at temperature T of `recalibration.TemperatureScaling`, as if these were
    calibrated; the hyperparameter is T. Nothing is learned from the training data: `fit` stores T.
    For `CategoricalLogits`, results are exact even where probabilities underflow. For confidences,
    an array [n], h is the single product (c − c_T) (d − d_T), half the value for `Bernoulli`s.

    G24's simulation has softmax((10/3) θ log p) in place of p_T: T = 0.3 / θ, for θ > 0.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if the temperature is not positive, or shapes or values are
            wrong. Invalid traced values give NaN.

    Cost: O(n m).

    References: G24 §5.1.

    >>> import jax.numpy as jnp
    >>> function = Temperature()
    >>> params = function.fit(jnp.array([0.5]), jnp.array([1]), 0.5)  # not looked at
    >>> print(function.diagonal(params, jnp.array([0.5, 0.75])).round(4))  # tempered 0.9
    [0.     0.0225]
    """

    def fit(
        self, predictions: Distribution, targets: ArrayLike, hyperparameter: ArrayLike
    ) -> TemperatureParams:
        """Stores the temperature."""
        samples = vectors(checked(predictions, targets)[0])
        value = checks.positive_number("hyperparameter", hyperparameter, samples.dtype)
        return TemperatureParams(value, samples.shape[1])

    def refit(self, params: TemperatureParams, hyperparameter: ArrayLike) -> TemperatureParams:
        """Replaces the temperature."""
        return with_hyperparameter(params, TemperatureParams, "value", hyperparameter)

    def factors(self, params: TemperatureParams, p: Any) -> tuple[jax.Array, jax.Array]:
        """Differences p − p_T of predictions, [n, m], twice."""
        params = checks.learned("params", params, TemperatureParams)
        p = checked_points(p, params.num_components)
        is_confidence = not hasattr(p, "class_probs")
        errors = _residuals(Bernoulli(p) if is_confidence else p, params.value)
        errors = errors[:, 1:] if is_confidence else errors
        return errors, errors

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """The unchanged function; checks the grid."""
        del predictions
        checks.positive("grid", grid)
        return self


@jax.jit
def _residuals(p: Any, temperature: jax.Array) -> jax.Array:
    errors = p.class_probs - jax.vmap(tempered, (0, None))(p, temperature).class_probs
    return jnp.where(jnp.isnan(temperature), jnp.nan, errors)
