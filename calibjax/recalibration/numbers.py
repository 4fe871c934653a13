"""Recalibration of numbers: shift and scale, quantiles, kernel regression."""

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
_NORMAL = Normal | _VECTORS  # families with residuals that are normal scores
_FAMILIES = _NORMAL | Laplace | StudentT | GeneralizedNormal | Uniform


@record
class AffineMap:
    """Distribution N(shift, scale²) of normal scores z, instead of N(0, 1).

    Its methods are those of the distribution of Φ(z) on [0, 1], for `Recalibrated`.

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
        """Log-density at a level; constant beyond the last digit of levels."""
        score = normal_score_of(jnp.asarray(level, floating_dtype(self)))
        residual = ratio(score - self.shift, self.scale)
        return 0.5 * (score - residual) * (score + residual) - jnp.log(self.scale)


def normal_score_of(level: jax.Array) -> jax.Array:
    """Φ⁻¹ of a level, made finite."""
    last = jnp.finfo(level.dtype).eps
    return ndtri(jnp.clip(level, last / 4, 1 - last))


def shrunk(number: jax.Array, first: jax.Array, second: jax.Array, prior: ArrayLike) -> AffineMap:
    """Mean and deviation of scores with these sums and `prior` more scores from N(0, 1)."""
    shift = first / (number + prior)
    rest = second - 2 * shift * first + jnp.square(shift) * number
    return AffineMap(shift, safe_sqrt((rest + prior) / (number + prior)))


def _of_coordinates(name: str, value: Any, seen: Seen) -> AffineMap:
    """Map of numbers, or of the coordinates of vectors."""
    return checks.learned(name, value, AffineMap, leading=("d",) * jnp.ndim(value.shift))


@record
class AffineScaling(Recalibrator):
    """Affine scaling: one shift and one scale factor for all predictions.

    | predictions | become |
    | --- | --- |
    | `Normal`, `Laplace`, `StudentT`, `GeneralizedNormal` | loc + a scale, b scale |
    | `Uniform` | the same, with the centre and half the length of the interval |
    | `DiagNormal` | the same in each coordinate, a and b of shape [d] |
    | `MvNormal` with covariance matrix L Lᵀ | loc + L a, covariance L diag(b²) Lᵀ |
    | `Ensemble` | mean + a s + b (x − mean), with the members' standard deviation s |
    | other continuous numbers | `Recalibrated`: their normal scores Φ⁻¹(F(y)) are N(a, b²) |

    (a, b) maximise the (weighted) likelihood:

    | predictions | a and b |
    | --- | --- |
    | normal, or by normal scores z_i | mean and standard deviation of z_i = (y_i − μ_i) / σ_i |
    | `Laplace` | median of the residuals, and mean distance from it |
    | `Uniform` | smallest interval with all residuals |
    | `StudentT`, `GeneralizedNormal` | by Newton's method |

    Members have no density. For ensembles of m members with means μ_i and standard deviations s_i
    (s_i² unbiased), a = Σ (y_i − μ_i) / Σ s_i and b² = m / (m + 1) Σ (y_i − μ_i − a s_i)² / Σ s_i².
    Both are consistent for every m and every distribution of the members: for calibrated ensembles
    E (y_i − μ_i) = 0 and E (y_i − μ_i)² = (1 + 1/m) E s_i². Wide ensembles have more weight.

    `fit` returns the `AffineMap` with shift a and scale b; `apply(params, predictions)` the
    recalibrated predictions.

    Raises:
        TypeError: by the methods if the predictions are none of continuous numbers with `cdf`,
            `icdf` and `log_prob`, normal vectors and ensembles.
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
        """Maximum-likelihood map."""
        params = _fitted(of_a_family(predictions), targets, weights)
        if checks.is_concrete(params) and not np.all(np.asarray(params.scale) > 0):
            raise ValueError("targets: expected residuals that differ, got equal ones")
        return params

    @checked(params=_of_coordinates)
    def apply(self, params: AffineMap, predictions: Distribution) -> Distribution:
        """Predictions, shifted and scaled."""
        plain = of_a_family(predictions)
        checks.same_kind("params", params, "fit", self.identity(predictions), num_axes=0)
        return like(predictions, moved(params, plain))

    def identity(self, predictions: Distribution) -> AffineMap:
        """Shift 0 and scale 1."""
        zeros = jnp.zeros(_size(bare(predictions)), floating_dtype(predictions))
        return AffineMap(zeros, jnp.ones_like(zeros))


def of_a_family(predictions: Distribution, families: Any = _FAMILIES | Ensemble) -> Any:
    """Predictions without features, if they have a rule or are continuous."""
    plain = bare(predictions)
    if not isinstance(plain, families):
        check_continuous("predictions", plain)
    return plain


def _size(predictions: Distribution) -> tuple[int, ...]:
    """Shape of the params: () for numbers, (d,) for vectors."""
    if isinstance(predictions, _VECTORS):
        return predictions.loc.shape[-1:]
    return predictions.values.shape[2:] if isinstance(predictions, Ensemble) else ()


@jax.jit
def moved(params: AffineMap, predictions: Distribution) -> Distribution:
    """Predictions, shifted and scaled by one map or by one for each, [n]."""
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
    """Distributions at another location and scale."""
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
    """Map, NaN if all residuals are equal."""
    params = _moments(predictions, targets, weights)
    return where_it_exists(params.scale > 0, params)


def _moments(predictions: Distribution, targets: jax.Array, weights: Weights) -> AffineMap:
    """Map with scale zero if all residuals are equal."""
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
    unit = jnp.where(unit > 0, unit, 1)  # unit in which squares neither overflow nor underflow
    errors, spreads = (jnp.moveaxis(x / unit, 0, -1) for x in (targets - means, spreads))
    size = weighted_mean(jnp.square(spreads), weights)
    # Not Σ s e / Σ s²: s of skewed members depends on their mean.
    shift = ratio(weighted_mean(errors, weights), weighted_mean(spreads, weights))
    left = jnp.square(errors - shift[..., None] * spreads)
    spread = weighted_mean(number / (number + 1) * left, weights)
    return AffineMap(shift, safe_sqrt(ratio(spread, size)))


def _weighted_median(values: jax.Array, weights: Weights) -> jax.Array:
    """Mean of the smallest and the largest number with half of the weight on both sides."""
    order = jnp.argsort(values)
    weights = jnp.ones_like(values) if weights is None else weights
    upto = jnp.cumsum(weights[order])
    half = 0.5 * upto[-1]
    rounding = 4 * values.size * jnp.finfo(values.dtype).eps * half
    places = jnp.argmax(upto >= half - rounding), jnp.argmax(upto > half + rounding)
    return 0.5 * (values[order[places[0]]] + values[order[places[1]]])


def _iterated(predictions: Distribution, scores: jax.Array, weights: Weights) -> AffineMap:
    """Maximum-likelihood map, starting from the median and the mean distance from it."""
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
    """Quantile recalibration: composes each CDF with the distribution of the PIT values.

        F'(y) = G(F(y)),   G the distribution function of u_i = F_i(y_i),

    so what was the 90 % quantile of a prediction becomes its G(90 %) quantile.

    | shape | G |
    | --- | --- |
    | `"beta"` | maximum-likelihood `Beta` distribution, for bias and dispersion |
    | `"isotonic"` | piecewise linear through the quantiles of the u_i at levels j / (k + 1) |

    The second can be any monotone map, and needs many samples: its errors cost about k / (2n) nats.
    Quantiles are interpolated between order statistics u_(i) at levels i / (n + 1), so targets
    outside the observed range keep their probability. Weights are numbers of copies with sum n, so
    their scale matters. k = n is isotonic regression of the empirical levels on the u_i.

    `fit` returns the distribution of the u_i, a `Beta` or an `IsotonicMap`;
    `apply(params, predictions)` a batch of `Recalibrated`.

    Attributes:
        shape: "beta" or "isotonic".
        num_knots: k, for "isotonic" maps.

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
        """Distribution of the PIT values."""
        plain = of_a_family(predictions, ())
        params, exists = _of_transforms(self, plain, targets, weights)
        if checks.is_concrete(exists) and not exists:
            raise ValueError("targets: expected PIT values that differ, got equal ones")
        return params

    @checked
    def apply(self, params: Beta | IsotonicMap, predictions: Distribution) -> Recalibrated:
        """Predictions with this distribution of PIT values."""
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
    """Distribution of F_i(y_i) in (0, 1), NaN if they are equal; and whether they differ."""
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

    The ends are the smallest and the largest number by default. The share between two samples is 1
    / (n + 1). A sample of weight w < 1 lies in the middle of its own share and this one. A sample
    without weight is a copy of another one.
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
    """Params of `QuantileShift`.

    Attributes:
        shifts: added to the quantiles at each level, in units of the target, [k].
    """

    shifts: jax.Array = parameter(real.with_axes("k"))


@record
class QuantileShift(Recalibrator):
    """Shift of quantile forecasts at each level, to correct the share of targets below.

        q_j → q_j + c_j,   c_j the quantile of y_i − q_ij at level τ_j,

    where order statistics have levels i / (n + 1). So, up to interpolation, the new quantile
    exceeds a further exchangeable target with probability τ_j; for levels below 1/(n + 1) or above
    n/(n + 1), c_j is the smallest or the largest residual. Weights are numbers of copies with sum
    n, so their scale matters. Shifted quantiles that cross are sorted, and infinite ones stay
    infinite.

    `fit` returns the `Shifts`; `apply(params, predictions)` a batch of `Quantiles`.

    Raises:
        TypeError: by the methods if the predictions are not `Quantiles`.
        ValueError: by `fit` if levels differ between samples, or a shift is infinite.

    Cost: O(k n log n).

    References: Romano, Patterson and Candès (2019), Conformalized quantile regression, with one
    level on each side.

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
        """Predictions with shifted quantiles, in increasing order."""
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
    """Params of `KernelRecalibration`: the calibration samples.

    Attributes:
        kernel: kernel on predictions.
        predictions: batch of n distributions.
        scores: residuals or normal scores z, [n] or [n, d].
        weights: of the samples, [n].
    """

    kernel: Kernel
    predictions: Distribution
    scores: jax.Array
    weights: jax.Array


@record
class KernelRecalibration(Recalibrator):
    """Kernel recalibration: shift and scale as smooth functions of the prediction.

        a(p) = S₁ / (W + κ),   b(p)² = (Σ_i w_i (z_i − a(p))² + κ) / (W + κ),
        w_i = k(p, p_i),   W = Σ_i w_i,   S₁ = Σ_i w_i z_i,

    kernel regression of the residuals z_i of similar predictions, shrunk towards the identity by κ
    more residuals with mean 0 and variance 1. z are the normal scores Φ⁻¹(F(y)), or L⁻¹ (y − μ) for
    vectors; recalibrated predictions have z ~ N(a(p), b(p)²). `Normal`, `DiagNormal` and `MvNormal`
    predictions are shifted and scaled, others are `Recalibrated`. Weights of the samples multiply
    w_i, and their scale matters.

    `fit` stores the samples, as `LocalScores`; `apply(params, predictions)` the recalibrated
    predictions.

    Attributes:
        kernel: k on predictions; None for a squared exponential with a quarter of the median
            Euclidean distance of their parameters as length scale.
        prior: κ, a number of samples, positive.

    Raises:
        TypeError: by the methods if the predictions are neither continuous numbers with `cdf`,
            `icdf` and `log_prob`, nor normal vectors.
        ValueError: by the methods if shapes or values are wrong.

    Cost: `apply` evaluates the kernel on every pair of a prediction and a sample, in O(n + n' +
    tile²) memory; `fit` the median heuristic.

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
        """Samples with their residuals."""
        scores = _scores(of_a_family(predictions, _NORMAL), targets)
        copies = jnp.ones(len(scores), scores.dtype) if weights is None else weights
        return LocalScores(self._kernel(predictions), predictions, scores, copies)

    @checked
    def apply(self, params: LocalScores, predictions: Distribution) -> Distribution:
        """Predictions, shifted and scaled by similar samples."""
        plain = of_a_family(predictions, _NORMAL)
        checks.same_kind("predictions", predictions, "those of fit", params.predictions)
        prior = jnp.asarray(self.prior, params.scores.dtype)
        maps = _local(params, predictions, prior)
        is_normal = isinstance(plain, _NORMAL)
        return like(predictions, moved(maps, plain) if is_normal else Recalibrated(plain, maps))

    @checked
    def identity(self, predictions: Distribution) -> LocalScores:
        """Samples of weight zero."""
        shape = len(predictions), *_size(of_a_family(predictions, _NORMAL))
        scores = jnp.zeros(shape, floating_dtype(predictions))
        return LocalScores(
            self._kernel(predictions), predictions, scores, jnp.zeros_like(scores, shape=shape[:1])
        )

    def _kernel(self, predictions: Distribution) -> Kernel:
        if self.kernel is not None:
            return self.kernel
        median, *_ = median_of_distances(Euclidean(), bare(predictions))
        # NaN for equal predictions, for which any length scale is valid.
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
