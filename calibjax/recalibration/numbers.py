"""Recalibration of numbers: shift and scale, quantiles, residuals of similar predictions."""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln, ndtr, ndtri
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import arithmetic, checks
from calibjax._core.arithmetic import floating_dtype, matmul, ratio, safe_sqrt
from calibjax._core.environment import jit_quick
from calibjax._core.fitting import newton_minimum
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, parameter, part, record, varying_as
from calibjax.distances import Euclidean
from calibjax.distributions import (
    Beta,
    DiagNormal,
    Ensemble,
    GeneralizedNormal,
    Laplace,
    MvNormal,
    Normal,
    Quantiles,
    StudentT,
    Uniform,
)
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import Recalibrated, bare, check_continuous, like
from calibjax.distributions.constraints import positive, real
from calibjax.kernels import Kernel, SquaredExponential
from calibjax.kernels.base import prediction_kernel
from calibjax.kernels.defaults import median_of_distances
from calibjax.recalibration.base import Recalibrator, Weights, where_it_exists
from calibjax.recalibration.confidences import IsotonicMap
from calibjax.scores.proper import weighted_mean

_VECTORS = DiagNormal | MvNormal
_NORMAL = Normal | _VECTORS  # whose residuals are normal scores
_FAMILIES = _NORMAL | Laplace | StudentT | GeneralizedNormal | Uniform


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


def _of_coordinates(name: str, value: Any, seen: Seen) -> AffineMap:
    """A map of numbers, or of the coordinates of vectors."""
    return checks.learned(name, value, AffineMap, leading=("d",) * jnp.ndim(value.shift))


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

    @checked(minimum=2)
    def fit(
        self, predictions: Distribution, targets: Numbers, weights: Numbers | None = None
    ) -> AffineMap:
        """The most likely map."""
        params = _fitted(of_a_family(predictions), targets, weights)
        if checks.is_concrete(params) and not np.all(np.asarray(params.scale) > 0):
            raise ValueError("targets: expected normal scores, or members, that differ, got none")
        return params

    @checked(params=_of_coordinates)
    def apply(self, params: AffineMap, predictions: Distribution) -> Distribution:
        """All predictions, shifted and scaled."""
        plain = of_a_family(predictions)
        checks.same_kind("params", params, "fit", self.identity(predictions), num_axes=0)
        return like(predictions, moved(params, plain))

    def identity(self, predictions: Distribution) -> AffineMap:
        """Shift 0 and scale 1."""
        zeros = jnp.zeros(_size(bare(predictions)), floating_dtype(predictions))
        return AffineMap(zeros, jnp.ones_like(zeros))


def of_a_family(predictions: Distribution, families: Any = _FAMILIES | Ensemble) -> Any:
    """Predictions without features, if there is a rule for them, or if they are continuous."""
    plain = bare(predictions)
    if not isinstance(plain, families):
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
    shape = len(predictions), *_size(predictions)
    each = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), params)
    return jax.vmap(_moved)(each, predictions)


def _moved(params: AffineMap, p: Any) -> Any:
    shift, scale = params.shift, params.scale
    if isinstance(p, MvNormal):
        root = arithmetic.cholesky(p.cov)
        scaled = root * scale
        return MvNormal(p.loc + matmul(root, shift), matmul(scaled, scaled.T))
    if isinstance(p, Ensemble):
        mean, spread, _ = _of_members(p)
        return dataclasses.replace(p, values=mean + shift * spread + scale * (p.values - mean))
    if isinstance(p, _FAMILIES):
        loc, unit = _place(p)
        return _placed(p, loc + shift * unit, scale * unit)
    return Recalibrated(p, params)


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


def _of_members(p: Ensemble) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mean and unbiased standard deviation, () or [d], and number of members."""
    number = 1 / jnp.sum(jnp.square(p.probs))
    return p.mean(), safe_sqrt(p.variance() * number / (number - 1)), number


def _residual(p: Any, y: jax.Array) -> jax.Array:
    """(y − loc) / scale of a family, L⁻¹ (y − loc) of a vector, or the normal score."""
    if isinstance(p, MvNormal):
        return arithmetic.solve_lower(arithmetic.cholesky(p.cov), y - p.loc)
    if isinstance(p, _FAMILIES):
        loc, scale = _place(p)
        return ratio(y - loc, scale)
    return _normal_score(p, y)


def _normal_score(p: Any, y: jax.Array) -> jax.Array:
    """Φ⁻¹(F(y))."""
    return normal_score_of(p.cdf(y))


@jit_quick
def _fitted(predictions: Distribution, targets: jax.Array, weights: Weights) -> AffineMap:
    """The map, NaN if all residuals are equal."""
    params = _moments(predictions, targets, weights)
    return where_it_exists(params.scale > 0, params)


def _moments(predictions: Distribution, targets: jax.Array, weights: Weights) -> AffineMap:
    """The map, whose scale is zero if all residuals are equal."""
    if isinstance(predictions, Ensemble):
        return _of_ensembles(predictions, targets, weights)
    scores = jnp.moveaxis(jax.vmap(_residual)(predictions, targets), 0, -1)
    if isinstance(predictions, StudentT | GeneralizedNormal):
        return _iterated(predictions, scores, weights)
    if isinstance(predictions, Laplace):
        shift = _weighted_median(scores, weights)
        return AffineMap(shift, weighted_mean(jnp.abs(scores - shift), weights))
    if isinstance(predictions, Uniform):
        counted = checks.counted(weights, scores)
        low, high = jnp.min(counted), jnp.max(counted)
        return AffineMap(0.5 * (low + high), 0.5 * (high - low))
    shift = weighted_mean(scores, weights)
    squares = jnp.square(scores - shift[..., None])
    return AffineMap(shift, safe_sqrt(weighted_mean(squares, weights)))


def _of_ensembles(ensembles: Ensemble, targets: jax.Array, weights: Weights) -> AffineMap:
    means, spreads, number = jax.vmap(_of_members)(ensembles)
    unit = jnp.max(spreads)
    unit = jnp.where(unit > 0, unit, 1)  # of which squares neither overflow nor vanish
    errors, spreads = (jnp.moveaxis(x / unit, 0, -1) for x in (targets - means, spreads))
    size = weighted_mean(jnp.square(spreads), weights)
    # Not Σ s e / Σ s²: where members are skewed, their deviations depend on their means.
    shift = ratio(weighted_mean(errors, weights), weighted_mean(spreads, weights))
    left = jnp.square(errors - shift[..., None] * spreads)
    spread = weighted_mean(number / (number + 1) * left, weights)
    return AffineMap(shift, safe_sqrt(ratio(spread, size)))


def _weighted_median(values: jax.Array, weights: Weights) -> jax.Array:
    """Mean of the smallest and the largest number with half of the weights on both sides."""
    order = jnp.argsort(values)
    weights = jnp.ones_like(values) if weights is None else weights
    upto = jnp.cumsum(weights[order])
    half = 0.5 * upto[-1]
    rounding = 4 * values.size * jnp.finfo(values.dtype).eps * half
    places = jnp.argmax(upto >= half - rounding), jnp.argmax(upto > half + rounding)
    return 0.5 * (values[order[places[0]]] + values[order[places[1]]])


def _iterated(predictions: Distribution, scores: jax.Array, weights: Weights) -> AffineMap:
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


@record
class QuantileRecalibration(Recalibrator):
    """Quantile recalibration: predictions get the distribution of their integral transforms.

        F'(y) = G(F(y)),   G the distribution function of u_i = F_i(y_i),

    so that all predictions have the same error of each level: what is called 90 % becomes G(90 %).

    | shape | G |
    | --- | --- |
    | `"beta"` | of a `Beta` distribution with the largest likelihood: bias and spread, smoothly |
    | `"isotonic"` | piecewise linear through the quantiles of the u_i at levels j / (k + 1) |

    The second is any monotone map, and needs many samples: about k / 2n nats are lost by its
    errors. The quantiles are those between order statistics u_(i) at levels i / (n + 1), so that
    targets beyond all that were seen keep their probability; weights are numbers of copies and n
    is their sum, so that their scale matters. Isotonic
    regression of the empirical levels on the u_i, which are monotone already, is the case of k = n.

    `fit` returns the distribution of the u_i, a `Beta` or an `IsotonicMap`;
    `apply(params, predictions)` a batch of `Recalibrated`.

    Attributes:
        shape: "beta" or "isotonic".
        num_knots: k, of "isotonic" maps.

    Raises:
        TypeError: by the methods if the predictions are not continuous numbers with `cdf`, `icdf`
            and `log_prob`.
        ValueError: by `fit` if there are fewer than two samples, or all u_i are equal; if the
            arrays are traced, the params are NaN instead.

    Cost: O(n) for each of about 6 iterations of Newton's method; a sort for "isotonic".

    References: Kuleshov, Fenner and Ermon (2018), Accurate uncertainties for deep learning using
    calibrated regression, Algorithm 1; Ranjan and Gneiting (2010), Combining probability forecasts,
    §2.2, for the beta transform.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax.distributions import Uniform
    >>> predictions = Uniform(low=jnp.zeros(3), high=jnp.ones(3))
    >>> method = QuantileRecalibration("isotonic", num_knots=3)
    >>> params = method.fit(predictions, jnp.array([0.1, 0.2, 0.5]))
    >>> recalibrated = method.apply(params, predictions)
    >>> print(params.thresholds, jax.vmap(lambda p: p.icdf(0.75))(recalibrated))
    [0.  0.1 0.2 0.5 1. ] [0.5 0.5 0.5]
    """

    shape: Literal["beta", "isotonic"] = dataclasses.field(
        default="beta", metadata={"static": True}
    )
    _: dataclasses.KW_ONLY
    num_knots: int = dataclasses.field(default=20, metadata={"static": True})

    @checked(minimum=2, copies=lambda x: x.shape == "isotonic")
    def fit(
        self, predictions: Distribution, targets: Numbers, weights: Numbers | None = None
    ) -> Beta | IsotonicMap:
        """The distribution of the integral transforms."""
        plain = of_a_family(predictions, ())
        params, exists = _of_transforms(self, plain, targets, weights)
        if checks.is_concrete(exists) and not exists:
            raise ValueError("targets: expected integral transforms that differ, got equal ones")
        return params

    @checked
    def apply(self, params: Beta | IsotonicMap, predictions: Distribution) -> Recalibrated:
        """All predictions, with this distribution of the integral transform."""
        plain = of_a_family(predictions, ())
        n = len(predictions)
        law = jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *jnp.shape(x))), params)
        return like(predictions, Recalibrated(plain, law))

    def identity(self, predictions: Distribution) -> Beta | IsotonicMap:
        """The uniform distribution."""
        one = jnp.ones((), floating_dtype(predictions))
        if self.shape == "beta":
            return Beta(one, one)
        levels = jnp.linspace(0, 1, self.num_knots + 2, dtype=one.dtype)
        return IsotonicMap(levels, levels)


@jit_quick
def _of_transforms(
    method: QuantileRecalibration,
    predictions: Distribution,
    targets: jax.Array,
    weights: Weights,
) -> tuple[Beta | IsotonicMap, jax.Array]:
    """The distribution of F_i(y_i), inside of (0, 1), NaN unless they differ; and whether."""
    levels = jax.vmap(lambda p, y: p.cdf(y))(predictions, targets)
    last = jnp.finfo(levels.dtype).eps
    levels = jnp.clip(levels, last / 4, 1 - last)
    counted = checks.counted(weights, levels)
    exists = jnp.max(counted) > jnp.min(counted)
    if method.shape == "beta":
        logs = weighted_mean(jnp.stack([jnp.log(levels), jnp.log1p(-levels)]), weights)

        def loss(log_sizes: jax.Array) -> jax.Array:
            alpha, beta = sizes = jnp.exp(log_sizes)
            return betaln(alpha, beta) - jnp.sum((sizes - 1) * logs)

        start = varying_as(jnp.zeros(2, levels.dtype), logs)
        best = Beta(*jnp.exp(newton_minimum(loss, start)))
        return where_it_exists(exists, best), exists
    values = jnp.asarray(np.linspace(0, 1, method.num_knots + 2), levels.dtype)
    knots = weighted_quantiles(levels, weights, values, (0, 1))
    return where_it_exists(exists, IsotonicMap(knots, values)), exists


@jit_quick
def weighted_quantiles(
    values: jax.Array, weights: Weights, levels: jax.Array, ends: tuple[Any, Any] | None = None
) -> jax.Array:
    """Quantiles at levels between order statistics i / (n + 1), with ends at 0 and at 1.

    The ends are the smallest and the largest number by default. Between two samples is a share of
    1 / (n + 1); one of weight w < 1 lies in the middle of its own and this share. One without
    weight is a copy of another, whose levels it has.
    """
    data = values, weights
    values = checks.counted(weights, values)
    weights = jnp.ones_like(values) if weights is None else weights
    order, heaviest = jnp.argsort(values), jnp.argmax(weights)
    values, weights = values[order], weights[order]
    upto = jnp.cumsum(weights)
    middle = upto - 0.5 * weights + 0.5
    middle = jnp.where(weights > 0, middle, middle[jnp.argmax(order == heaviest)])
    half = 0.5 * jnp.maximum(weights - 1, 0)
    at = jnp.sort(jnp.concatenate([middle - half, middle + half])) / (upto[-1] + 1)
    low, high = (values[0], values[-1]) if ends is None else ends
    points = jnp.concatenate([jnp.stack([low]), jnp.repeat(values, 2), jnp.stack([high])])
    return checks.nan_with(jnp.interp(levels, jnp.pad(at, 1).at[-1].set(1), points), data)


_shifts = jit_quick(jax.vmap(weighted_quantiles, (1, None, 0)))


@record
class Shifts:
    """What `QuantileShift` learns.

    Attributes:
        shifts: what is added to the quantiles at each level, in units of the target, [k].
    """

    shifts: jax.Array = parameter(real.with_axes("k"))


@record
class QuantileShift(Recalibrator):
    """Shift of quantile forecasts at each level, such that the share of targets below is right.

        q_j → q_j + c_j,   c_j the quantile of y_i − q_ij at level τ_j,

    where order statistics have levels i / (n + 1), so that the new quantile covers a further,
    exchangeable target with probability τ_j, up to the interpolation between them; at levels
    beyond them it is the smallest or the largest residual. Weights are numbers of copies and n is
    their sum, so that their scale matters. Shifted quantiles that cross are sorted, and infinite
    ones stay infinite.

    `fit` returns the `Shifts`; `apply(params, predictions)` a batch of `Quantiles`.

    Raises:
        TypeError: by the methods if the predictions are not `Quantiles`.
        ValueError: by `fit` if they do not have the same levels for all samples, or so many of
            them are infinite that a shift is.

    Cost: O(k n log n).

    References: Romano, Patterson and Candès (2019), Conformalized quantile regression, with one
    level at each side.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Quantiles
    >>> predictions = Quantiles(levels=jnp.array([0.5]), values=jnp.zeros((3, 1)))
    >>> method = QuantileShift()
    >>> params = method.fit(predictions, jnp.array([1.0, 2.0, 7.0]))
    >>> print(params.shifts, method.apply(params, predictions).values[0])
    [2.] [2.]
    """

    @checked(copies=True)
    def fit(
        self, predictions: Quantiles, targets: Numbers, weights: Numbers | None = None
    ) -> Shifts:
        """The shift of each level."""
        plain = bare(predictions)
        is_shared = lambda x: (x == x[0]).all(0, keepdims=True)  # noqa: E731
        levels = jnp.broadcast_to(plain.levels, plain.values.shape)
        place, expected = "predictions.levels", "the same for all samples"
        levels = jnp.asarray(checks.satisfying(place, levels, is_shared, expected))[0]
        residuals = targets[:, None] - plain.values
        return Shifts(checks.finite("shifts", _shifts(residuals, weights, levels)))

    @checked
    def apply(self, params: Shifts, predictions: Quantiles) -> Quantiles:
        """All predictions with shifted quantiles, in increasing order."""
        plain = bare(predictions)
        checks.same_kind("params", params, "fit", self.identity(predictions), num_axes=0)
        shifted = plain.values + params.shifts
        values = checks.nan_rows(checks.missing_rows(shifted), jnp.sort(shifted, 1))
        return like(predictions, dataclasses.replace(plain, values=values))

    def identity(self, predictions: Quantiles) -> Shifts:
        """Shifts 0."""
        return Shifts(jnp.zeros_like(bare(predictions).values[0]))


@record
class LocalScores:
    """What `KernelRecalibration` learns: the samples themselves.

    Attributes:
        kernel: on predictions.
        predictions: batch of n distributions.
        scores: their residuals or normal scores z, [n] or [n, d].
        weights: of the samples, [n].
    """

    kernel: Kernel
    predictions: Distribution
    scores: jax.Array
    weights: jax.Array


@record
class KernelRecalibration(Recalibrator):
    """Kernel recalibration: bias and spread as smooth functions of the prediction.

        a(p) = S₁ / (W + κ),   b(p)² = (Σ_i w_i (z_i − a(p))² + κ) / (W + κ),
        w_i = k(p, p_i),   W = Σ_i w_i,   S₁ = Σ_i w_i z_i,

    kernel regression of the residuals z_i of similar predictions, shrunk to no correction as if
    there were κ more of them with mean 0 and variance 1. z are the normal scores Φ⁻¹(F(y)), of
    vectors L⁻¹ (y − μ), which have the mean a(p) and the standard deviation b(p) after the
    correction: `Normal`, `DiagNormal` and `MvNormal` predictions are shifted and scaled, others are
    `Recalibrated`. Weights of the samples are factors of the w_i, numbers of copies beside κ: their
    scale matters. The default length scale counts all predictions alike.

    `fit` stores the samples, as `LocalScores`; `apply(params, predictions)` the predictions.

    Attributes:
        kernel: k on predictions; None for a squared exponential with a quarter of the median
            Euclidean distance of their parameters as length scale.
        prior: κ, a number of samples, positive.

    Raises:
        TypeError: by the methods if the predictions are neither continuous numbers with `cdf`,
            `icdf` and `log_prob`, nor normal vectors.
        ValueError: by the methods if shapes or values are wrong.

    Cost: the kernel of every pair of a prediction and a sample in `apply`, O(n + n' + tile²)
    memory; that of the median heuristic in `fit`.

    References: Nadaraya (1964), On estimating regression. None of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> loc = jnp.repeat(jnp.array([0.0, 9.0]), 50)
    >>> targets = loc + jnp.repeat(jnp.array([1.0, -1.0]), 50)
    >>> method = KernelRecalibration(SquaredExponential(1.0))
    >>> params = method.fit(Normal(loc, jnp.ones(100)), targets)
    >>> corrected = method.apply(params, Normal(jnp.array([0.0, 9.0]), jnp.ones(2)))
    >>> print([f"{loc:.2f}" for loc in corrected.loc])
    ['0.91', '8.09']
    """

    kernel: Kernel | None = part(
        lambda value, name: value if value is None else checks.kernel_values(value, name),
        default=None,
    )
    prior: jax.Array | float = parameter(positive, default=5.0)

    @checked(copies=True)
    def fit(
        self, predictions: Distribution, targets: Numbers, weights: Numbers | None = None
    ) -> LocalScores:
        """The samples with their residuals."""
        scores = _scores(of_a_family(predictions, _NORMAL), targets)
        copies = jnp.ones(len(scores), scores.dtype) if weights is None else weights
        return LocalScores(self._kernel(predictions), predictions, scores, copies)

    @checked
    def apply(self, params: LocalScores, predictions: Distribution) -> Distribution:
        """All predictions, shifted and scaled as similar samples suggest."""
        plain = of_a_family(predictions, _NORMAL)
        checks.same_kind("predictions", predictions, "those of fit", params.predictions)
        prior = jnp.asarray(self.prior, params.scores.dtype)
        maps = _local(params, predictions, prior)
        is_normal = isinstance(plain, _NORMAL)
        return like(predictions, moved(maps, plain) if is_normal else Recalibrated(plain, maps))

    @checked
    def identity(self, predictions: Distribution) -> LocalScores:
        """Samples that do not count."""
        shape = len(predictions), *_size(of_a_family(predictions, _NORMAL))
        scores = jnp.zeros(shape, floating_dtype(predictions))
        return LocalScores(
            self._kernel(predictions), predictions, scores, jnp.zeros_like(scores, shape=shape[:1])
        )

    def _kernel(self, predictions: Distribution) -> Kernel:
        if self.kernel is not None:
            return self.kernel
        median, *_ = median_of_distances(Euclidean(), bare(predictions))
        # NaN if all predictions are the same, for which any length scale will do.
        return SquaredExponential(jnp.where(jnp.isnan(median), 1, median) / 4)


@jax.jit
def _scores(predictions: Distribution, targets: jax.Array) -> jax.Array:
    find = _residual if isinstance(predictions, _NORMAL) else _normal_score
    return jax.vmap(find)(predictions, targets)


@jax.jit
def _local(params: LocalScores, predictions: Distribution, prior: jax.Array) -> AffineMap:
    """Shift and scale of each prediction, [n] or [n, d]."""
    z = params.scores.reshape(len(params.scores), -1)
    columns = jnp.concatenate([jnp.ones_like(z[:, :1]), z, jnp.square(z)], 1)
    sums = operators.weighted_sums(
        prediction_kernel,
        params.kernel,
        bare(predictions),
        bare(params.predictions),
        columns * params.weights[:, None],
    )
    total, first, second = jnp.split(sums, [1, 1 + z.shape[1]], 1)
    shape = (len(sums), *params.scores.shape[1:])
    return jax.tree.map(lambda x: x.reshape(shape), shrunk(total, first, second, prior))
