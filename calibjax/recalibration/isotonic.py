"""Isotonic regression of correctness on the confidences."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.fitting import isotonic_means
from calibjax._core.pytree import parameter, record
from calibjax.distributions.constraints import unit_interval
from calibjax.recalibration.base import ConfidenceRecalibrator


@record
class IsotonicMap:
    """The non-decreasing, piecewise linear map that `IsotonicRegression` learns.

    `QuantileRecalibration` learns it as a distribution function on [0, 1], from (0, 0) to (1, 1).

    Attributes:
        thresholds: the calibration confidences in increasing order, [k]; in place of those with
            weight 0 others are repeated.
        values: their images, [k]; confidences in between are interpolated.
    """

    thresholds: jax.Array = parameter(unit_interval.with_axes("k"))
    values: jax.Array = parameter(unit_interval.with_axes("k"))

    def cdf(self, level: ArrayLike) -> jax.Array:
        """Image of a level."""
        return jnp.interp(jnp.asarray(level), self.thresholds, self.values)

    def icdf(self, level: ArrayLike) -> jax.Array:
        """Level with this image."""
        return jnp.interp(jnp.asarray(level), self.values, self.thresholds)

    def log_prob(self, level: ArrayLike) -> jax.Array:
        """Logarithm of the slope, infinite at jumps."""
        last = self.thresholds.size - 1
        piece = jnp.clip(jnp.searchsorted(self.thresholds, level, side="right"), 1, last)
        rise, run = (x[piece] - x[piece - 1] for x in (self.values, self.thresholds))
        slope = rise / jnp.where(run > 0, run, 1)
        positive = jnp.where(slope > 0, slope, 1)
        value = jnp.where(slope > 0, jnp.log(positive), -jnp.inf)
        return jnp.where(run > 0, value, jnp.where(rise > 0, jnp.inf, 0))

    def check_values(self, name: str) -> "IsotonicMap":
        """Refuses numbers outside [0, 1], and maps that decrease."""
        fields = vars(checks.constrained(name, self))
        checked = [
            checks.increasing(f"{name}.{key}", values, "numbers that do not decrease")
            for key, values in fields.items()
        ]
        if checks.is_concrete(checked):
            return IsotonicMap(*checked)
        is_map = ~jnp.any(jnp.isnan(sum(checked)), -1, keepdims=True)
        return IsotonicMap(*(checks.nan_unless(is_map, values) for values in checked))


@record
class IsotonicRegression(ConfidenceRecalibrator):
    """Isotonic regression: the non-decreasing map of confidences with the least squared error.

        f = argmin Σ_i (f(r_i) − c_i)² over non-decreasing f,

    with weights Σ_i w_i (f(r_i) − c_i)², for confidences r and c = correct: where the accuracy
    decreases, neighbouring samples are pooled and share their accuracy (pool adjacent violators).
    Samples of equal confidence share a value. Between calibration confidences the map is linear,
    and constant beyond the first and the last, as in scikit-learn's
    `IsotonicRegression(out_of_bounds="clip")`, which also merges confidences that differ by less
    than 10⁻⁶ in float32.

    Different confidences may become equal, but their order is never reversed.

    With a batch of class predictions, such as `Categorical`, and labels [n] in place of confidences
    and `correct`, each class is recalibrated against the rest and the probabilities are normalised:
    `fit` returns `ClassWiseParams`, `apply` a batch of `Categorical`s. This is what scikit-learn's
    `CalibratedClassifierCV` does. A class may get probability zero in this way; then the negative
    log-likelihood of its labels is infinite.

    `fit(confidences, correct)` returns an `IsotonicMap`, `apply(params, confidences)` confidences
    [n]. The confidences are an array [n] or a batch of n `Bernoulli`s, as `estimators.top_label`
    returns them; `correct` is 0 or 1, [n]. Both can be differentiated.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: one sort and O(n) for each round, in which all decreasing runs are pooled at once; about
    log n rounds for independent data, n^⅔ at worst. O(n) memory.

    References: Zadrozny and Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates, §3, and §4 for the classes; L21 §2.2.

    >>> import jax.numpy as jnp
    >>> method = IsotonicRegression()
    >>> params = method.fit(jnp.array([0.2, 0.4, 0.6, 0.8]), jnp.array([0, 1, 0, 1]))
    >>> print(params.values, method.apply(params, jnp.array([0.1, 0.5, 0.9])))
    [0.  0.5 0.5 1. ] [0.  0.5 1. ]
    """

    _learns = IsotonicMap

    def _identity(self, one: jax.Array) -> IsotonicMap:
        # The score by `values` is of the odds near 0 and near 1.
        ends = jnp.stack([jnp.zeros_like(one), one])
        return IsotonicMap(ends, ends)

    def _fit(
        self, confidences: jax.Array, correct: jax.Array, weights: jax.Array | None
    ) -> IsotonicMap:
        return _pooled(confidences, correct, weights)

    def _apply(self, params: IsotonicMap, confidences: jax.Array) -> tuple[jax.Array, None]:
        return _interpolated(params, confidences), None


@jax.jit
def _pooled(confidences: jax.Array, correct: jax.Array, weights: jax.Array | None) -> IsotonicMap:
    """The map, from samples in any order."""
    # Traced numbers may be invalid (no probabilities, neither 0 nor 1).
    is_bad = jnp.isnan(jnp.max(confidences) + jnp.sum(correct))
    if weights is not None:
        is_bad |= jnp.any(jnp.isnan(weights))
    confidences, correct = checks.counted(weights, (confidences, correct))
    order = jnp.argsort(confidences)
    samples = confidences, correct, weights
    thresholds, correct, weights = jax.tree.map(lambda x: x[order], samples)
    values = isotonic_means(thresholds, correct, weights)
    return IsotonicMap(*(jnp.where(is_bad, jnp.nan, x) for x in (thresholds, values)))


@jax.jit
def _interpolated(params: IsotonicMap, confidences: jax.Array) -> jax.Array:
    thresholds, values = (x.astype(confidences.dtype) for x in (params.thresholds, params.values))
    images = jnp.clip(jnp.interp(confidences, thresholds, values), 0, 1)  # rounding
    return jnp.where(jnp.isnan(confidences), jnp.nan, images)
