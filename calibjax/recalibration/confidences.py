"""Recalibration of confidences: sigmoid, quadratic, beta, bins, isotonic, Venn–Abers."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks, fitting
from calibjax._core.arithmetic import tensordot
from calibjax._core.fitting import log_odds
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers, parameter, part, record, varying_as
from calibjax.binnings import MAX_BINS, interval_index
from calibjax.distributions import constraints
from calibjax.distributions.constraints import nonnegative, positive, real, unit_interval
from calibjax.estimators.kernel import mmce
from calibjax.kernels import Exponential, Kernel
from calibjax.recalibration.base import ConfidenceRecalibrator, Weights, where_it_exists
from calibjax.scores.proper import weighted_mean


def _cross_entropy(z: jax.Array, correct: jax.Array, weights: Weights) -> jax.Array:
    """Mean negative log-likelihood of log-odds z."""
    return weighted_mean(jax.nn.softplus(z) - correct * z, weights)


class _OfFeatures(ConfidenceRecalibrator):
    """Recalibrator whose log-odds are linear in features of the confidences, [k, n]."""

    _features: Any

    def _apply(self, params: Any, confidences: jax.Array) -> jax.Array:
        parameters = jnp.stack([*vars(params).values()]).astype(confidences.dtype)
        return jax.nn.sigmoid(tensordot(parameters, self._features(confidences), 1))


@record
class SigmoidMap:
    """Map r → sigmoid(slope · log(r / (1 − r)) + intercept) of confidences.

    Attributes:
        slope: a; positive if the order of the confidences is kept.
        intercept: b.
    """

    slope: jax.Array = parameter(real)
    intercept: jax.Array = parameter(real)


@record
class PlattScaling(_OfFeatures):
    """Platt scaling: a sigmoid map of the log-odds, by maximum likelihood.

        r → r' = sigmoid(a log(r / (1 − r)) + b),
        (a, b) = argmax Σ_i t_i log r'_i + (1 − t_i) log(1 − r'_i)

    with t = correct: (weighted) logistic regression of `correct` on the log-odds. For two classes
    it is temperature scaling with T = 1/a and a bias. The slope a is negative if confident
    predictions are wrong more often; this reverses the order of the confidences.

    Confidences are clipped to [ε, 1 − ε] with the machine precision ε of their dtype, 2·10⁻¹⁶ or
    1·10⁻⁷, so log-odds are at most ±36 or ±16.

    The likelihood has a maximum if and only if both outcomes occur and no threshold separates the
    confidences of correct and wrong predictions. Platt's own targets, `smooth_targets`, remove this
    restriction: with n₁ of n predictions correct, t = (n₁ + 1) / (n₁ + 2) for these, and 1 / (n −
    n₁ + 2) for the others. Weights are then numbers of copies, and their scale matters. At least
    two confidences must still differ.

    For a batch of class predictions, such as `Categorical`, and labels [n] instead of confidences
    and `correct`, each class is recalibrated against the rest and the probabilities are normalised:
    `fit` returns `ClassWiseParams`, `apply` a batch of `Categorical`s.

    `fit(confidences, correct)` returns a `SigmoidMap`, `apply(params, confidences)` confidences
    [n]. The confidences are an array [n] or a batch of n `Bernoulli`s, as from
    `estimators.top_label`; `correct` is 0 or 1, [n]. Both can be differentiated.

    Attributes:
        smooth_targets: whether to use Platt's targets instead of 1 and 0.

    Raises:
        TypeError: by the methods if an argument or `smooth_targets` is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong; by `fit` if there is no
            maximum. If the arrays are traced, slope and intercept are NaN instead.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Platt (1999), Probabilistic outputs for support vector machines, with scores;
    Guo et al. (2017), On calibration of modern neural networks, §4.1; Albert and Anderson (1984),
    On the existence of maximum likelihood estimates in logistic regression models.

    >>> import jax.numpy as jnp
    >>> method, correct = PlattScaling(), jnp.array([0, 0, 0, 1, 1, 1, 0, 0])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.8]), 4), correct)
    >>> print(method.apply(params, jnp.array([0.2, 0.5, 0.8])).round(4))
    [0.25  0.366 0.5  ]
    """

    _: dataclasses.KW_ONLY
    smooth_targets: bool = dataclasses.field(default=False, metadata={"static": True})

    _learns = SigmoidMap

    def _identity(self, one: jax.Array) -> SigmoidMap:
        return SigmoidMap(one, jnp.zeros_like(one))

    @property
    def _counts_samples(self) -> bool:
        return self.smooth_targets

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> SigmoidMap:
        x = log_odds(confidences)
        if self.smooth_targets:
            copies, wrong = 1 if weights is None else weights, 1 - correct
            num_correct, num_wrong = jnp.sum(copies * correct), jnp.sum(copies * wrong)
            correct = correct * (num_correct + 1) / (num_correct + 2) + wrong / (num_wrong + 2)
            low, high = fitting.range_of(x, fitting.counting(weights, jnp.ones_like(x, bool)))
            exists = low < high
        else:
            exists = fitting.has_maximum(x, correct == 1, weights)
        return where_it_exists(
            exists, SigmoidMap(*fitting.most_likely(exists, x, correct, weights))
        )

    def _features(self, confidences: jax.Array) -> jax.Array:
        """Regressors z and 1, [2, n]."""
        z = log_odds(confidences)
        return jnp.stack([z, jnp.ones_like(z)])


@record
class MMCEScaling(_OfFeatures):
    """MMCE optimisation: a sigmoid map of the log-odds with a small kernel calibration error.

        r → r' = sigmoid(a log(r / (1 − r)) + b),  a > 0,
        (a, b) minimising NLL(r') + weight · MMCE(r')²

    with the (weighted) negative log-likelihood of `correct` and `estimators.kernel.mmce`. Kumar et
    al. train networks with this loss; here it is used for maps of the confidences of a trained
    network, with the square, which is smooth. Weight zero would be `PlattScaling` with the
    constraint a > 0, which keeps the order of the confidences.

    The MMCE alone is no useful loss: its minimum, zero, is attained in the limit a → 0, in which
    all confidences equal their accuracy; this is calibrated but uninformative. Any other map has a
    squared MMCE of order 1/n even if it is perfectly calibrated. The likelihood outweighs this if
    the NLL of the confidences is lower than that of one constant confidence by about weight / (4n).
    Otherwise, or if confident predictions are wrong more often, a goes to zero.

    Arguments, clipping and class predictions are as in `PlattScaling`. `fit` returns a
    `SigmoidMap`. `apply` can be differentiated.

    Attributes:
        kernel: kernel on numbers in [0, 1]; by default `Exponential(0.4)`, as by Kumar et al.
        weight: factor of the squared MMCE, positive, a scalar.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong, or the weight is not positive; by
            `fit` if there is no minimum, because `correct` is constant, or a threshold separates
            wrong predictions from correct ones above it. If the arrays are traced, slope and
            intercept are NaN instead.

    Cost: n²/2 evaluations of the kernel and its derivative for each of about 15 steps of L-BFGS,
    at most 100; O(n + tile²) memory.

    References: Kumar, Sarawagi and Jain (2018), Trainable calibration measures for neural networks
    from kernel mean embeddings; L21 §5.

    >>> import jax.numpy as jnp
    >>> method, correct = MMCEScaling(), jnp.array([0, 0, 0, 1, 1, 1, 0, 0])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.8]), 4), correct)
    >>> print(method.apply(params, jnp.array([0.2, 0.5, 0.8])).round(2))
    [0.25 0.37 0.5 ]
    """

    kernel: Kernel = part(checks.kernel_values, default=Exponential(0.4))
    weight: jax.Array | float = parameter(positive, default=10.0)

    _learns = SigmoidMap

    _identity, _features = PlattScaling._identity, PlattScaling._features

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> SigmoidMap:
        x = log_odds(confidences)
        low, _ = fitting.range_of(x, fitting.counting(weights, correct == 1))
        _, wrong_high = fitting.range_of(x, fitting.counting(weights, correct == 0))
        weight = jnp.asarray(self.weight, x.dtype)
        exists = (low < wrong_high) & ~jnp.isnan(weight)

        def loss(parameters: jax.Array) -> jax.Array:
            z = jnp.exp(parameters[0]) * x + parameters[1]
            error = inner(mmce)(self.kernel, jax.nn.sigmoid(z), correct, weights=weights)
            return _cross_entropy(z, correct, weights) + weight * jnp.square(error)

        log_slope, intercept = fitting.newton_minimum(loss, jnp.zeros(2, x.dtype), exists)
        return where_it_exists(exists, SigmoidMap(jnp.exp(log_slope), intercept))


# Masks of fitted slopes; the best nondecreasing fit among them is the optimum.
_FACES = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1]], float)


@record
class BetaMap:
    """Map r → sigmoid(a log r − b log(1 − r) + c) of confidences.

    Attributes:
        rise: a ≥ 0, slope of the log-odds at small confidences.
        fall: b ≥ 0, slope of the log-odds at large confidences.
        intercept: c.
    """

    rise: jax.Array = parameter(nonnegative)
    fall: jax.Array = parameter(nonnegative)
    intercept: jax.Array = parameter(real)


@record
class BetaCalibration(_OfFeatures):
    """Beta calibration: a monotone map of confidences with three parameters, by maximum likelihood.

        r → sigmoid(a log r − b log(1 − r) + c),   a, b ≥ 0,

    the correct map for confidences that are beta distributed among correct and among wrong
    predictions. For a = b it is `PlattScaling`; it also contains maps that are steep at one end
    only. Arguments, clipping and class predictions are as in `PlattScaling`. `fit` returns a
    `BetaMap`.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong; by `fit` if there is no maximum,
            as in `PlattScaling`. If the arrays are traced, the params are NaN instead.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Kull, Silva Filho and Flach (2017), Beta calibration: a well-founded and easily
    implemented improvement on logistic calibration for binary classifiers, §4.

    >>> import jax.numpy as jnp
    >>> method, correct = BetaCalibration(), jnp.array([0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.5, 0.9]), 4), correct)
    >>> print([f"{r:.2f}" for r in method.apply(params, jnp.array([0.2, 0.5, 0.9]))])
    ['0.22', '0.53', '0.99']
    """

    _learns = BetaMap

    def _identity(self, one: jax.Array) -> BetaMap:
        return BetaMap(one, one, jnp.zeros_like(one))

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> BetaMap:
        exists = fitting.has_maximum(log_odds(confidences), correct == 1, weights)
        features = self._features(confidences)

        def loss(parameters: jax.Array) -> jax.Array:
            return _cross_entropy(tensordot(parameters, features, 1), correct, weights)

        def best(face: jax.Array) -> tuple[jax.Array, jax.Array]:
            start = jnp.zeros_like(face)
            fields = face * fitting.newton_minimum(lambda free: loss(face * free), start, exists)
            return fields, jnp.where(jnp.all(fields[:2] >= 0), loss(fields), jnp.inf)

        candidates, losses = jax.vmap(best)(jnp.asarray(_FACES, features.dtype))
        return where_it_exists(exists, BetaMap(*candidates[jnp.argmin(losses)]))

    def _features(self, confidences: jax.Array) -> jax.Array:
        """Regressors log r, −log(1 − r) and 1, [3, n]."""
        eps = jnp.finfo(confidences.dtype).eps
        inside = jnp.clip(confidences, eps, 1 - eps)
        return jnp.stack([jnp.log(inside), -jnp.log1p(-inside), jnp.ones_like(inside)])


@record
class QuadraticMap:
    """Map r → sigmoid(a + b z + c z²) of confidences r with log-odds z.

    Attributes:
        intercept: a.
        slope: b.
        curvature: c.
    """

    intercept: jax.Array = parameter(real)
    slope: jax.Array = parameter(real)
    curvature: jax.Array = parameter(real)


@record
class QuadraticScaling(_OfFeatures):
    """Quadratic scaling: a quadratic function of the log-odds z, shrunk towards the identity.

        r → r' = sigmoid(a + b z + c z²),   z = log(r / (1 − r)),
        (a, b, c) minimising Σ_i NLL(r'_i) + a² + (b − 1)² + c².

    The true map is quadratic if the log-odds of correct and of wrong predictions are normal with
    different variances. The ridge has the weight of a few samples and needs no tuning. The minimum
    always exists, even if a threshold separates the outcomes or only one occurs. If c is not zero
    the map is not monotone: it reverses the order of confidences beyond z = −b / 2c, usually far
    from the data.

    Arguments, clipping and class predictions are as in `PlattScaling`. `fit` returns a
    `QuadraticMap`. Weights are numbers of copies: their scale matters.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Berta, Holzmüller, Jordan and Bach (2025), Structured matrix scaling for multi-class
    calibration, for the quadratic map of two classes (without a ridge) and the ridge of strength 1
    / n (for more classes).

    >>> import jax.numpy as jnp
    >>> method, correct = QuadraticScaling(), jnp.array([0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.5, 0.9]), 4), correct)
    >>> print([f"{r:.2f}" for r in method.apply(params, jnp.array([0.2, 0.5, 0.9]))])
    ['0.25', '0.51', '0.97']
    """

    _learns = QuadraticMap
    _counts_samples = True

    def _identity(self, one: jax.Array) -> QuadraticMap:
        return QuadraticMap(jnp.zeros_like(one), one, jnp.zeros_like(one))

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> QuadraticMap:
        identity = jnp.array([0, 1, 0], confidences.dtype)
        identity = varying_as(identity, (confidences, correct, weights))
        n = confidences.size if weights is None else jnp.sum(weights)

        features = self._features(confidences)

        def loss(parameters: jax.Array) -> jax.Array:
            ridge = jnp.sum(jnp.square(parameters - identity)) / n
            return _cross_entropy(tensordot(parameters, features, 1), correct, weights) + ridge

        return QuadraticMap(*fitting.newton_minimum(loss, identity))

    def _features(self, confidences: jax.Array) -> jax.Array:
        """Regressors 1, z and z², [3, n]."""
        z = log_odds(confidences)
        return jnp.stack([jnp.ones_like(z), z, jnp.square(z)])


def _accuracies(name: str, values: jax.Array) -> Any:
    expected = "proportions in [0, 1], or nan in intervals without samples"
    return checks.satisfying(name, values, lambda x: ~((x < 0) | (x > 1)), expected)


@record
class BinAccuracies:
    """Params of `HistogramBinning`.

    Attributes:
        accuracies: proportion of correct predictions in each interval, NaN in empty ones, [b].
        counts: number of calibration samples with positive weight in each interval, [b].
    """

    accuracies: jax.Array = parameter(constraints.Constraint("proportions", _accuracies, ("b",)))
    counts: jax.Array = parameter(constraints.nonnegative_integer.with_axes("b"))


def number_of_bins(value: Any, name: str) -> int:
    """Number of intervals."""
    return checks.size_in_range(name, value, 1, MAX_BINS)


@record
class HistogramBinning(ConfidenceRecalibrator):
    """Histogram binning: the (weighted) accuracy of the calibration samples in the same interval.

    The intervals are [0, 1/b], (1/b, 2/b], ..., (1 − 1/b, 1], as in `estimators.UniformBins`.
    Confidences in intervals without calibration samples are kept, with a `UserWarning` except in
    compiled code: check `params.counts`.

    Arguments and class predictions are as in `PlattScaling`. A class may get probability zero; then
    the negative log-likelihood of its labels is infinite. `fit` returns `BinAccuracies`.

    Attributes:
        num_bins: b, number of intervals, between 1 and 2²⁴.

    Raises:
        TypeError: by the methods if an argument or `num_bins` is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong, or `num_bins` is out of range.

    Cost: O(n + b).

    References: Zadrozny and Elkan (2001), Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers, §3.3, with bins of equal size; Guo et al. (2017), On
    calibration of modern neural networks, §4.1; L21 §2.2, with intervals of equal length.

    >>> import jax.numpy as jnp
    >>> method = HistogramBinning(2)
    >>> params = method.fit(jnp.array([0.6, 0.7, 0.8, 0.9, 0.4]), jnp.array([1, 0, 1, 1, 0]))
    >>> print(params.counts, method.apply(params, jnp.array([0.55, 0.2])))
    [1 4] [0.75 0.  ]
    """

    num_bins: int = dataclasses.field(metadata={"static": True, "check": number_of_bins})

    _learns = BinAccuracies

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> BinAccuracies:
        weights = jnp.ones_like(confidences) if weights is None else weights
        index = interval_index(confidences, self.num_bins)
        columns = weights * correct, weights, jnp.int32(weights > 0)
        sums, totals, counts = (jax.ops.segment_sum(x, index, self.num_bins) for x in columns)
        accuracies = sums / jnp.where(counts > 0, totals, 1)
        return BinAccuracies(checks.nan_unless(counts > 0, accuracies), counts)

    def _apply(self, params: BinAccuracies, confidences: jax.Array) -> jax.Array:
        by_interval = checks.nan_unless(
            params.counts > 0, params.accuracies.astype(confidences.dtype)
        )
        accuracies = by_interval[interval_index(confidences, params.counts.size)]
        return jnp.where(self._is_kept(params, confidences), confidences, accuracies)

    def _is_kept(self, params: BinAccuracies, confidences: jax.Array) -> jax.Array:
        return params.counts[interval_index(confidences, params.counts.size)] == 0


def _rising(name: str, values: jax.Array) -> Any:
    values = unit_interval.check(name, values)
    values = checks.increasing(name, values, "numbers that do not decrease")
    if checks.is_concrete(values):
        return values
    # One NaN makes traced values NaN, because any of them may be interpolated.
    return checks.nan_unless(~jnp.any(jnp.isnan(values), -1, keepdims=True), values)


_RISING = constraints.Constraint("proportions that do not decrease", _rising, ("k",))


@record
class IsotonicMap:
    """Non-decreasing, piecewise linear map, the params of `IsotonicRegression`.

    In `QuantileRecalibration` it is a distribution function on [0, 1], from (0, 0) to (1, 1).

    Attributes:
        thresholds: calibration confidences in increasing order, [k]; samples with weight 0 repeat
            others.
        values: images of the thresholds, [k], interpolated in between.
    """

    thresholds: jax.Array = parameter(_RISING)
    values: jax.Array = parameter(_RISING)

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
        return jnp.where(run > 0, value, jnp.where(rise > 0, jnp.inf, 0) + 0 * run)


@record
class IsotonicRegression(ConfidenceRecalibrator):
    """Isotonic regression: the non-decreasing map of confidences with the smallest squared error.

        f = argmin Σ_i (f(r_i) − c_i)² over non-decreasing f,

    for confidences r and c = correct, or Σ_i w_i (f(r_i) − c_i)² with weights. Neighbouring samples
    with decreasing accuracy are pooled (pool adjacent violators), and so are samples of equal
    confidence. The map is linear between calibration confidences, and constant beyond the first and
    the last, as in scikit-learn's `IsotonicRegression(out_of_bounds="clip")`, which also merges
    confidences that differ by less than 10⁻⁶ in float32. Different confidences may become equal,
    but their order is never reversed.

    The first and the last samples often have accuracies of 0 and 1, so a wrong prediction there has
    infinite log loss. By default, `smooth`, the result is therefore (n f + 1) / (n + 2) with the
    number of samples n. Weights are then numbers of copies, and their scale matters.

    Arguments and class predictions are as in `PlattScaling`, and without smoothing as in
    scikit-learn's `CalibratedClassifierCV`; a class may then get probability zero, and its labels
    an infinite negative log-likelihood. `fit` returns an `IsotonicMap`. `fit` and `apply` can be
    differentiated.

    Attributes:
        smooth: whether to mix the result with the uniform distribution.

    Raises:
        TypeError: by the methods if an argument or `smooth` is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: one sort and O(n) for each round, which pools all decreasing runs at once; about log n
    rounds for independent data, n^⅔ at worst. O(n) memory.

    References: Zadrozny and Elkan (2002), Transforming classifier scores into accurate multiclass
    probability estimates, §3, and §4 for classes; L21 §2.2.

    >>> import jax.numpy as jnp
    >>> method = IsotonicRegression(smooth=False)
    >>> params = method.fit(jnp.array([0.2, 0.4, 0.6, 0.8]), jnp.array([0, 1, 0, 1]))
    >>> print(params.values, method.apply(params, jnp.array([0.1, 0.5, 0.9])))
    [0.  0.5 0.5 1. ] [0.  0.5 1. ]
    """

    _: dataclasses.KW_ONLY
    smooth: bool = dataclasses.field(default=True, metadata={"static": True})

    _learns = IsotonicMap

    def _identity(self, one: jax.Array) -> IsotonicMap:
        # The derivatives by `values` are scores of the odds near 0 and near 1.
        ends = jnp.stack([jnp.zeros_like(one), one])
        return IsotonicMap(ends, ends)

    @property
    def _counts_samples(self) -> bool:
        return self.smooth

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> IsotonicMap:
        thresholds, *_, values = _isotonic(confidences, correct, weights)
        if self.smooth:
            n = confidences.size if weights is None else jnp.sum(weights)
            values = (n * values + 1) / (n + 2)
        return IsotonicMap(thresholds, values)

    def _apply(self, params: IsotonicMap, confidences: jax.Array) -> jax.Array:
        thresholds, values = (x.astype(confidences.dtype) for x in vars(params).values())
        return jnp.clip(jnp.interp(confidences, thresholds, values), 0, 1)  # rounding


def _isotonic(confidences: jax.Array, correct: jax.Array, weights: Weights) -> tuple[Any, ...]:
    """Order of the samples by confidence; confidences, correct and weights in it; and the means."""
    confidences, correct = checks.counted(weights, (confidences, correct))
    order = jnp.argsort(confidences)
    samples = jax.tree.map(lambda x: x[order], (confidences, correct, weights))
    return *samples, fitting.isotonic_means(*samples)


@record
class VennAbersSteps:
    """Two step functions at the calibration confidences, the params of `VennAbers`.

    Attributes:
        thresholds: calibration confidences in increasing order, [k]; samples with weight 0 repeat
            others.
        low: p₀ from each threshold to the next, [k].
        high: p₁ from each threshold to the one before, [k].
    """

    thresholds: jax.Array = parameter(_RISING)
    low: jax.Array = parameter(_RISING)
    high: jax.Array = parameter(_RISING)


@record
class VennAbers(ConfidenceRecalibrator):
    """Inductive Venn–Abers prediction: a number from two isotonic regressions.

        r → p₁ / (1 − p₀ + p₁),

    from a pair (p₀, p₁) that is valid for every n, where p_c is the value at r of the isotonic
    regression of the calibration samples and one more sample of confidence r that is correct (c =
    1) or wrong (c = 0). If samples are exchangeable, p_c of the observed outcome c is perfectly
    calibrated. p₀ and p₁ differ if there are few samples, and the result is never 0 or 1. Arguments
    and class predictions are as in `PlattScaling`. Weights are numbers of copies, and their scale
    matters.

    Both are step functions. If the first a of the ordered samples have weight W_a, and the correct
    ones of these Y_a,

        p₁(r) = max_{a ≤ #{r_i < r}} min_{b > a} (Y_b − Y_a + 1) / (W_b − W_a + 1),

    and 1 beyond the last sample; a and b do not divide equal confidences. By symmetry, 1 − p₀ is p₁
    for the reversed order and wrong predictions.

    `fit` returns `VennAbersSteps`, `interval(params, confidences)` p₀ and p₁. `cross_fitted` gives
    the cross Venn–Abers predictor.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong.

    Cost: `fit` costs one isotonic regression and O(n log n), a new confidence O(log n).

    References: Vovk and Petej (2014), Venn–Abers predictors; Vovk, Petej and Fedorova (2015),
    Large-scale probabilistic predictors with and without guarantees of validity, §3, whose
    algorithms 1 to 4 have the same results, and eq. (6).

    >>> import jax.numpy as jnp
    >>> method = VennAbers()
    >>> params = method.fit(jnp.array([0.2, 0.4, 0.6, 0.8]), jnp.array([0, 0, 1, 1]))
    >>> low, high = method.interval(params, jnp.array([0.1, 0.9]))
    >>> print([f"{p:.2f}" for p in (*low, *high, *method.apply(params, jnp.array([0.1, 0.9])))])
    ['0.00', '0.67', '0.33', '1.00', '0.25', '0.75']
    """

    _learns = VennAbersSteps
    _counts_samples = True

    @checked(compiled=True)
    def interval(self, params: VennAbersSteps, confidences: Numbers) -> tuple[jax.Array, jax.Array]:
        """p₀ and p₁, [n] each."""

        def value(steps: jax.Array, side: str) -> jax.Array:
            place = jnp.searchsorted(params.thresholds, confidences, side=side)
            return jnp.where(jnp.isnan(confidences), jnp.nan, steps[place]).astype(
                confidences.dtype
            )

        zero = 0 * params.low[:1]  # or NaN
        low, high = jnp.append(zero, params.low), jnp.append(params.high, zero + 1)
        return value(low, "right"), value(high, "left")

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: Weights) -> VennAbersSteps:
        thresholds, correct, weights, means = _isotonic(confidences, correct, weights)
        weights = jnp.ones_like(correct) if weights is None else weights
        is_new = thresholds[1:] != thresholds[:-1]
        is_first, is_last = (jnp.pad(is_new, x, constant_values=True) for x in ((1, 0), (0, 1)))
        forwards, backwards = (
            (correct, weights, is_first, means),
            (1 - correct, weights, is_last, 1 - means),
        )
        both = (jnp.stack([x, y[::-1]]) for x, y in zip(forwards, backwards, strict=True))
        high, low = jax.vmap(_with_one_more)(*both)
        return VennAbersSteps(thresholds, 1 - low[::-1], high)

    def _apply(self, params: VennAbersSteps, confidences: jax.Array) -> jax.Array:
        low, high = inner(VennAbers.interval)(self, params, confidences)
        return high / (1 - low + high)


def _with_one_more(
    outputs: jax.Array, weights: jax.Array, is_first: jax.Array, means: jax.Array
) -> jax.Array:
    """Isotonic means at each input, [n], with one more sample there, of output 1.

    The minimum of `VennAbers` over b is attained at the end of a block of `means`, the isotonic
    means without the sample: a tangent from a point below to a convex chain.

    Args:
        outputs: from 0 to 1, ordered by inputs, [n].
        weights: of the outputs, [n].
        is_first: whether an output is the first of its input, [n].
        means: isotonic means of the outputs, [n].
    """
    n, columns = outputs.size, jnp.stack([weights * outputs, weights])
    # Sums of multiples of the rounding unit are exact, and sums of the rest are small.
    largest = jnp.sum(weights)
    multiples = (columns + largest) - largest
    sums = jnp.cumsum(jnp.stack([multiples, columns - multiples]), 2)
    sums = jnp.pad(sums, ((0, 0), (0, 0), (1, 0)))
    starts, ends = jnp.arange(n), jnp.searchsorted(means, means, side="right")

    def halved(_: int, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low, high, least = state  # bounds of the index of the block
        middle = (low + high) // 2
        total, weight = jnp.sum(sums[..., ends[middle]] - sums[..., starts], 0)
        mean = (total + 1) / (weight + 1)
        is_beyond = mean <= means[middle]
        low, high = jnp.where(is_beyond, low, middle), jnp.where(is_beyond, middle, high)
        return low, high, jnp.minimum(least, mean)

    state = starts, jnp.full_like(starts, n), jnp.ones_like(means)
    state = varying_as(state, (outputs, means, weights))
    *_, least = lax.fori_loop(0, n.bit_length() + 1, halved, state)
    return lax.cummax(jnp.where(is_first, least, 0))
