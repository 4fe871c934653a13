"""Venn-Abers prediction: isotonic regression with a label of each kind for the new sample."""

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core import checks
from calibjax._core.fitting import isotonic_means
from calibjax._core.pytree import parameter, record
from calibjax.distributions.constraints import nonnegative, unit_interval
from calibjax.recalibration.base import ConfidenceRecalibrator

_BATCH = 64  # new confidences at a time


@record
class CalibrationSamples:
    """What `VennAbers` learns: the samples themselves.

    Attributes:
        confidences: [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: of the samples, [n].
    """

    confidences: jax.Array = parameter(unit_interval.with_axes("n"))
    correct: jax.Array = parameter(unit_interval.with_axes("n"))
    weights: jax.Array = parameter(nonnegative.with_axes("n"))


@record
class VennAbers(ConfidenceRecalibrator):
    """Inductive Venn-Abers prediction: isotonic regression that is valid for every n.

        r → p₁ / (1 − p₀ + p₁),

    where p_c is the value at r of the isotonic regression of the calibration samples and one more
    of confidence r that is correct (c = 1), or wrong (c = 0). One of p₀ and p₁, the one of the
    observed outcome, is perfectly calibrated if samples are exchangeable; they differ where there
    are few samples, and the result never is 0 or 1. See `IsotonicRegression` for arguments and for
    class predictions. Weights are numbers of copies, beside one further sample of weight 1: their
    scale matters. In place of samples with weight 0 others are repeated with weight 0.

    `fit` stores the samples, as `CalibrationSamples`; `interval(params, confidences)` are p₀, p₁.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: two isotonic regressions of n + 1 samples for each new confidence.

    References: Vovk and Petej (2014), Venn-Abers predictors; Vovk, Petej and Fedorova (2015),
    Large-scale probabilistic predictors with and without guarantees of validity, §3 and eq. (6).

    >>> import jax.numpy as jnp
    >>> method = VennAbers()
    >>> params = method.fit(jnp.array([0.2, 0.4, 0.6, 0.8]), jnp.array([0, 0, 1, 1]))
    >>> low, high = method.interval(params, jnp.array([0.1, 0.9]))
    >>> print([f"{p:.2f}" for p in (*low, *high, *method.apply(params, jnp.array([0.1, 0.9])))])
    ['0.00', '0.67', '0.33', '1.00', '0.25', '0.75']
    """

    _learns = CalibrationSamples

    def interval(
        self, params: CalibrationSamples, confidences: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """p₀ and p₁, [n] each."""
        params = checks.learned("params", params, self._learns)
        return _interval(params, checks.confidence_array(confidences))

    def _counts_samples(self) -> bool:
        return True

    def _fit(
        self, confidences: jax.Array, correct: jax.Array, weights: jax.Array | None
    ) -> CalibrationSamples:
        confidences, correct = checks.counted(weights, (confidences, correct))
        weights = jnp.ones_like(confidences) if weights is None else weights
        # Traced numbers may be invalid, and sorts hide them.
        is_bad = jnp.isnan(jnp.max(confidences) + jnp.sum(correct) + jnp.sum(weights))
        confidences, correct = (jnp.where(is_bad, jnp.nan, x) for x in (confidences, correct))
        return CalibrationSamples(confidences, correct, weights)

    def _apply(self, params: CalibrationSamples, confidences: jax.Array) -> tuple[jax.Array, None]:
        low, high = _interval(params, confidences)
        return high / (1 - low + high), None


@jax.jit
def _interval(params: CalibrationSamples, confidences: jax.Array) -> tuple[jax.Array, jax.Array]:
    def value(confidence: jax.Array, correct: jax.Array) -> jax.Array:
        one = confidence[None].astype(params.confidences.dtype)
        inputs = jnp.concatenate([params.confidences, one])
        order = jnp.argsort(inputs)
        outputs = jnp.append(params.correct, correct)[order]
        weights = jnp.append(params.weights, 1)[order]
        mean = isotonic_means(inputs[order], outputs, weights)[jnp.argmax(order == len(inputs) - 1)]
        is_bad = jnp.isnan(confidence) | jnp.any(jnp.isnan(params.correct))
        return jnp.where(is_bad, jnp.nan, mean).astype(confidences.dtype)

    def both(confidence: jax.Array) -> tuple[jax.Array, jax.Array]:
        labels = jnp.arange(2, dtype=params.correct.dtype)
        return tuple(jax.vmap(value, (None, 0))(confidence, labels))

    return lax.map(both, confidences, batch_size=_BATCH)
