"""Shift and scale of predicted numbers and vectors."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike

from calibjax._core import checks, matrices
from calibjax._core.arithmetic import floating_dtype, matmul, ratio, safe_sqrt
from calibjax._core.fitting import newton_minimum
from calibjax._core.pytree import parameter, record
from calibjax.distributions import (
    DiagNormal,
    Ensemble,
    GeneralizedNormal,
    Laplace,
    MvNormal,
    Normal,
    StudentT,
    Uniform,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import positive, real
from calibjax.distributions.features import bare, like
from calibjax.distributions.recalibrated import Recalibrated, check_continuous
from calibjax.recalibration.base import Recalibrator
from calibjax.scores.base import weighted_mean

_VECTORS = DiagNormal | MvNormal
_FAMILIES = Normal | Laplace | StudentT | GeneralizedNormal | Uniform | DiagNormal | MvNormal


@record
class AffineMap:
    """The distribution N(shift, scale²) of normal scores z, in place of N(0, 1).

    Its methods are those of Φ(z) on [0, 1], as `Recalibrated` needs them.

    Attributes:
        shift: a, in predicted standard deviations or scales; [d] for vectors.
        scale: b, positive; shape of `shift`.
    """

    shift: jax.Array = parameter(real)
    scale: jax.Array = parameter(positive)

    def cdf(self, level: ArrayLike) -> jax.Array:
        """Probability of levels up to this one."""
        level = jnp.asarray(level, floating_dtype(self))
        values = ndtr(ratio(normal_score_of(level) - self.shift, self.scale))
        return jnp.where(level <= 0, 0, jnp.where(level >= 1, 1, values))

    def icdf(self, level: ArrayLike) -> jax.Array:
        """Level u with cdf(u) = level."""
        level = jnp.asarray(level, floating_dtype(self))
        values = ndtr(self.shift + self.scale * normal_score_of(level))
        return jnp.where(level <= 0, 0, jnp.where(level >= 1, 1, values))

    def log_prob(self, level: ArrayLike) -> jax.Array:
        """Log-density at a level; beyond the last digit of levels it is constant."""
        score = normal_score_of(jnp.asarray(level, floating_dtype(self)))
        residual = ratio(score - self.shift, self.scale)
        return 0.5 * (score - residual) * (score + residual) - jnp.log(self.scale)


def normal_score_of(level: jax.Array) -> jax.Array:
    """Φ⁻¹ of a level, where it is finite."""
    last = jnp.finfo(level.dtype).eps
    return ndtri(jnp.clip(level, last / 4, 1 - last))


def shrunk(number: jax.Array, first: jax.Array, second: jax.Array, prior: ArrayLike) -> AffineMap:
    """Mean and deviation of scores with these sums, with as many as `prior` from N(0, 1) added."""
    shift = first / (number + prior)
    rest = second - 2 * shift * first + jnp.square(shift) * number
    return AffineMap(shift, safe_sqrt((rest + prior) / (number + prior)))


@record
class AffineScaling(Recalibrator):
    """Affine scaling: all predictions have the same error of their location and their scale.

    | predictions | become |
    | --- | --- |
    | `Normal`, `Laplace`, `StudentT`, `GeneralizedNormal` | loc + a scale, b scale |
    | `Uniform` | the same, with the centre and half the length of the interval |
    | `DiagNormal` | the same in each coordinate, a and b of shape [d] |
    | `MvNormal` with covariance matrix L Lᵀ | loc + L a, covariance L diag(b²) Lᵀ |
    | `Ensemble` | mean + a s + b (x − mean), with the members' standard deviation s |
    | other continuous numbers | `Recalibrated`: their normal scores Φ⁻¹(F(y)) are N(a, b²) |

    (a, b) maximise the likelihood. Of normal predictions, and of normal scores, they are the mean
    of z_i and the root of the mean of (z_i − a)², with the scores z_i = (y_i − μ_i) / σ_i or
    Φ⁻¹(F_i(y_i)); of `Laplace` the median of such residuals, and their mean distance from it; of
    `Uniform` the smallest interval with all residuals; of the other two they are computed by
    Newton's method. The weights of samples weight these means.

    Members have no density. With the means μ_i and standard deviations s_i of ensembles of m
    members, s_i² unbiased, a = Σ (y_i − μ_i) / Σ s_i and
    b² = m / (m + 1) Σ (y_i − μ_i − a s_i)² / Σ s_i²: both are consistent for every m and every law
    of the members, as targets and members of a calibrated ensemble differ from each other in the
    same way, so that E (y_i − μ_i) = 0 and E (y_i − μ_i)² = (1 + 1/m) E s_i². Wide ensembles count
    more.

    `fit` returns the `AffineMap` with shift a and scale b; `apply(params, predictions)` the
    predictions.

    Raises:
        TypeError: by the methods if the predictions are neither continuous numbers with `cdf`,
            `icdf` and `log_prob`, nor normal vectors, nor samples.
        ValueError: by `fit` if there are fewer than two samples, or all residuals are equal; if the
            arrays are traced, the map is NaN instead.

    Cost: O(n); a sort for `Laplace`, about 10 to 20 passes for `StudentT` and `GeneralizedNormal`.

    References: Gneiting, Raftery, Westveld and Goldman (2005), Calibrated probabilistic forecasting
    using ensemble model output statistics, for affine corrections; Fortin, Abaza, Anctil and
    Turcotte (2014), Why should ensemble spread match the RMSE of the ensemble mean?, for members.

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
        plain = of_a_family(predictions)
        params, scores = _fitted(plain, targets, weights)
        if checks.is_concrete(params) and not jnp.all(params.scale > 0):
            if isinstance(plain, Ensemble) and not jnp.all(jnp.max(_of_members(plain)[1], 0) > 0):
                raise ValueError("predictions: expected members that differ, got equal ones")
            raise ValueError(
                f"targets: expected normal scores that differ, got {scores[0]} for all samples"
            )
        return jax.tree.map(lambda x: jnp.where(params.scale > 0, x, jnp.nan), params)

    def apply(self, params: AffineMap, predictions: Distribution) -> Distribution:
        """All predictions, shifted and scaled."""
        predictions = checks.batch(predictions)
        plain = of_a_family(predictions)
        axes = ("d",) if _size(plain) else ()
        params = checks.learned("params", params, AffineMap, leading=axes)
        return like(predictions, moved(params, plain))

    def identity(self, predictions: Distribution) -> AffineMap:
        """Shift 0 and scale 1."""
        zeros = jnp.zeros(_size(bare(predictions)), floating_dtype(predictions))
        return AffineMap(zeros, jnp.ones_like(zeros))


def of_a_family(predictions: Distribution) -> Any:
    """Predictions without features, if there is a rule for them."""
    plain = bare(predictions)
    if not isinstance(plain, _FAMILIES | Ensemble):
        check_continuous("predictions", plain)
    return plain


def _size(predictions: Distribution) -> tuple[int, ...]:
    """Shape of the params: () of numbers, and (d,) of vectors."""
    if isinstance(predictions, _VECTORS):
        return predictions.loc.shape[-1:]
    return predictions.values.shape[2:] if isinstance(predictions, Ensemble) else ()


@jax.jit
def moved(params: AffineMap, predictions: Distribution) -> Distribution:
    """Predictions that are shifted and scaled, by the same map or one of each, [n]."""
    shift, scale = params.shift, params.scale
    if isinstance(predictions, MvNormal):
        root = jax.vmap(matrices.cholesky)(predictions.cov)
        loc = (
            predictions.loc
            + matmul(root, jnp.broadcast_to(shift, root.shape[:2])[..., None])[..., 0]
        )
        scaled = root * scale[..., None, :]
        return MvNormal(loc, matmul(scaled, jnp.swapaxes(scaled, 1, 2)))
    if isinstance(predictions, Ensemble):
        means, spreads, _ = _of_members(predictions)
        deviations = predictions.values - means[:, None]
        values = (means + shift * spreads)[:, None] + scale * deviations
        return dataclasses.replace(predictions, values=values)
    if isinstance(predictions, _FAMILIES):
        loc, unit = _place(predictions)
        return _placed(predictions, loc + shift * unit, scale * unit)
    return with_scores(params, predictions)


def with_scores(params: AffineMap, predictions: Distribution) -> Recalibrated:
    """Predictions with other normal scores, by the same map or one of each, [n]."""
    rows = checks.leading_size("predictions", predictions)
    return Recalibrated(predictions, jax.tree.map(lambda x: jnp.broadcast_to(x, (rows,)), params))


def _place(predictions: Any) -> tuple[jax.Array, jax.Array]:
    """Location and scale."""
    if isinstance(predictions, Uniform):
        half = 0.5 * (predictions.high - predictions.low)
        return predictions.low + half, half
    return predictions.loc, predictions.scale


def _placed(predictions: Any, loc: jax.Array, scale: jax.Array) -> Any:
    """The same distributions at another location and scale."""
    if isinstance(predictions, Uniform):
        return Uniform(loc - scale, loc + scale)
    return dataclasses.replace(predictions, loc=loc, scale=scale)


def _of_members(ensembles: Ensemble) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means and unbiased standard deviations, [n] or [n, d], and numbers of members."""
    probs = jax.vmap(lambda p: p.probs)(ensembles)
    number = 1 / jnp.sum(jnp.square(probs), 1)
    number = number.reshape(-1, *[1] * (ensembles.values.ndim - 2))
    means, variances = jax.vmap(lambda p: (p.mean(), p.variance()))(ensembles)
    return means, safe_sqrt(variances * number / (number - 1)), number


def residuals(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """(y − loc) / scale of a family, L⁻¹ (y − loc) of vectors, or normal scores; [n] or [n, d]."""
    if isinstance(predictions, MvNormal):
        roots = jax.vmap(matrices.cholesky)(predictions.cov)
        return jax.vmap(matrices.solve_lower)(roots, targets - predictions.loc)
    if isinstance(predictions, _FAMILIES):
        loc, scale = _place(predictions)
        return ratio(targets - loc, scale)
    return normal_scores(predictions, targets)


def normal_scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Φ⁻¹(F_i(y_i)), [n]."""
    return normal_score_of(jax.vmap(lambda p, y: p.cdf(y))(predictions, targets))


@jax.jit
def _fitted(
    predictions: Distribution, targets: jax.Array, weights: jax.Array | None
) -> tuple[AffineMap, jax.Array]:
    """The map, whose scale is zero if all residuals are equal, and these, the samples last."""
    if isinstance(predictions, Ensemble):
        return _of_ensembles(predictions, targets, weights)
    scores = jnp.moveaxis(residuals(predictions, targets), 0, -1)
    if isinstance(predictions, Laplace):
        shift = _weighted_median(scores, weights)
        return AffineMap(shift, weighted_mean(jnp.abs(scores - shift), weights)), scores
    if isinstance(predictions, Uniform):
        counted = checks.counted(weights, scores)
        low, high = jnp.min(counted), jnp.max(counted)
        return AffineMap(0.5 * (low + high), 0.5 * (high - low)), scores
    shift = weighted_mean(scores, weights)
    scale = safe_sqrt(weighted_mean(jnp.square(scores - shift[..., None]), weights))
    params = AffineMap(shift, scale)
    if isinstance(predictions, StudentT | GeneralizedNormal):
        params = _iterated(predictions, scores, weights)
    return params, scores


def _of_ensembles(
    ensembles: Ensemble, targets: jax.Array, weights: jax.Array | None
) -> tuple[AffineMap, jax.Array]:
    means, spreads, number = _of_members(ensembles)
    unit = jnp.max(spreads)
    unit = jnp.where(unit > 0, unit, 1)  # of which squares neither overflow nor vanish
    errors, spreads = (jnp.moveaxis(x / unit, 0, -1) for x in (targets - means, spreads))
    size = weighted_mean(jnp.square(spreads), weights)
    # Not Σ s e / Σ s²: where members are skewed, their deviations depend on their means.
    shift = ratio(weighted_mean(errors, weights), weighted_mean(spreads, weights))
    left = jnp.square(errors - shift[..., None] * spreads)
    share = jnp.moveaxis(jnp.broadcast_to(number / (number + 1), means.shape), 0, -1)
    return AffineMap(shift, safe_sqrt(ratio(weighted_mean(share * left, weights), size))), errors


def _weighted_median(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Mean of the smallest and the largest number with half of the weights on both sides."""
    order = jnp.argsort(values)
    weights = jnp.ones_like(values) if weights is None else weights
    upto = jnp.cumsum(weights[order])
    half = 0.5 * upto[-1]
    rounding = 4 * values.size * jnp.finfo(values.dtype).eps * half
    places = jnp.argmax(upto >= half - rounding), jnp.argmax(upto > half + rounding)
    return 0.5 * (values[order[places[0]]] + values[order[places[1]]])


def _iterated(predictions: Distribution, scores: jax.Array, weights: jax.Array | None) -> AffineMap:
    """Map with the largest likelihood, found from the median and the mean distance from it."""
    standard = _placed(predictions, jnp.zeros_like(scores), jnp.ones_like(scores))
    centre = _weighted_median(scores, weights)
    size = _weighted_median(jnp.abs(scores - centre), weights)
    unit = jnp.where(size > 0, size, 1)

    def loss(parameters: jax.Array) -> jax.Array:
        shift, log_scale = parameters
        points = ratio((scores - centre) / unit - shift, jnp.exp(log_scale))
        density = jax.vmap(lambda p, y: p.log_prob(y))(standard, points)
        return log_scale - weighted_mean(density, weights)

    counted = checks.counted(weights, scores)
    differs = jnp.max(counted) > jnp.min(counted)
    shift, log_scale = newton_minimum(loss, jnp.zeros(2, scores.dtype), differs)
    scale = jnp.where(differs, unit * jnp.exp(log_scale), 0)
    return AffineMap(centre + unit * shift, scale)
