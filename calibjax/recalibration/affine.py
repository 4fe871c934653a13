"""Shift and scale of normal predictions."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, ratio, safe_sqrt
from calibjax._core.pytree import PyTree, parameter, record
from calibjax.distributions import Normal
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, real
from calibjax.distributions.features import bare, like
from calibjax.recalibration.base import Recalibrator
from calibjax.scores.base import weighted_mean


@record
class AffineMap:
    """The map z → shift + scale · z of normal scores.

    Attributes:
        shift: a, in predicted standard deviations.
        scale: b, positive.
    """

    shift: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)


@record
class AffineScaling(Recalibrator):
    """Affine scaling of normal predictions: all have the same error of their mean and their scale.

        N(μ, σ²) → N(μ + a σ, (b σ)²),   a = mean of z_i,   b² = mean of (z_i − a)²,

    with the normal scores z_i = (y_i − μ_i) / σ_i, which is the maximum of the likelihood; with
    weights both means are weighted. `fit`
    returns the `AffineMap` with shift a and scale b; `apply(params, predictions)` the predictions.

    Raises:
        TypeError: by the methods if the predictions are not `Normal`.
        ValueError: by `fit` if there are fewer than two samples, or all scores are equal; if the
            arrays are traced, the map is NaN instead.

    Cost: O(n).

    References: Gneiting, Raftery, Westveld and Goldman (2005), Calibrated probabilistic forecasting
    using ensemble model output statistics, for affine corrections.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> predictions = Normal(jnp.zeros(2), jnp.ones(2))
    >>> params = AffineScaling().fit(predictions, jnp.array([1.0, 5.0]))
    >>> print(params.shift, params.scale, AffineScaling().apply(params, predictions).loc)
    3.0 2.0 [3. 3.]
    """

    def fit(
        self, predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> AffineMap:
        """The most likely map."""
        predictions, targets, weights = checks.weighted_samples(
            predictions, targets, weights, minimum=2
        )
        plain = _normals(predictions)
        scores = ratio(targets - plain.loc, plain.scale)
        shift = weighted_mean(scores, weights)
        scale = safe_sqrt(weighted_mean(jnp.square(scores - shift), weights))
        if checks.is_concrete(scale) and not scale > 0:
            raise ValueError(
                f"targets: expected normal scores that differ, got {shift} for all samples"
            )
        return AffineMap(shift, jnp.where(scale > 0, scale, jnp.nan))

    def apply(self, params: AffineMap, predictions: Distribution) -> PyTree:
        """All predictions, shifted and scaled."""
        predictions = checks.batch(predictions)
        plain = _normals(predictions)
        params = checks.learned("params", params, AffineMap)
        loc = plain.loc + params.shift * plain.scale
        return like(
            predictions, dataclasses.replace(plain, loc=loc, scale=params.scale * plain.scale)
        )

    def identity(self, predictions: Normal) -> AffineMap:
        """Shift 0 and scale 1."""
        one = jnp.ones((), floating_dtype(predictions))
        return AffineMap(jnp.zeros_like(one), one)


def _normals(predictions: Any) -> Normal:
    plain = bare(predictions)
    if not isinstance(plain, Normal):
        raise TypeError(
            f"predictions: expected a batch of Normal distributions, got {checks.described(plain)}"
        )
    return plain
