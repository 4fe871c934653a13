"""Bins as a calibration estimation function."""

import dataclasses
import functools
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import one_hot
from calibjax._core.pytree import parameter, record
from calibjax.binnings import MAX_BINS, interval_index
from calibjax.distributions import constraints
from calibjax.distributions.base import Distribution
from calibjax.risk.base import EstimationFunction
from calibjax.risk.samples import checked, checked_points, residuals, vectors


@record
class BinResiduals:
    """What `Binning` learns.

    Attributes:
        means: mean of p_i − e_{y_i} in each interval, 0 in empty ones, [b, m], or of c_i − y_i,
            [b, 1]; b is at least `num_bins`.
        counts: number of training samples in each interval, [b].
        num_bins: number of intervals, scalar.
    """

    means: jax.Array = parameter(constraints.between(-1, 1).with_axes("b", "m"))
    counts: jax.Array = parameter(constraints.counts.with_axes("b"))
    num_bins: jax.Array = parameter(constraints.counts)

    def check_values(self, name: str) -> "BinResiduals":
        """Refuses what no samples give, and numbers of intervals outside 1, ..., b."""
        checked, size = checks.constrained(name, self), len(self.counts)
        number = checks.satisfying_integers(
            f"{name}.num_bins",
            checked.num_bins,
            lambda x: (x >= 1) & (x <= size),
            f"a number from 1 to {size}",
        )
        is_wrong = jnp.any(checks.is_missing(checked.counts)) | checks.is_missing(number)
        means = checks.nan_unless(~is_wrong, checked.means)  # integers cannot be NaN
        return BinResiduals(means, checked.counts, number)


@record
class _Bins(EstimationFunction):
    """Common part of both kinds of bins."""

    max_bins: int | None = dataclasses.field(default=None, metadata={"static": True})

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """The function with the largest M of the grid."""
        del predictions
        checks.real("grid", grid)
        return dataclasses.replace(self, max_bins=_num_intervals("grid", grid, self.max_bins))

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        del num_samples, canonical
        return np.arange(5, 101, 5)

    def _fitted(
        self,
        predictions: Distribution,
        targets: ArrayLike,
        hyperparameter: ArrayLike,
    ) -> BinResiduals:
        """Mean residuals in the intervals."""
        predictions, targets = checked(predictions, targets)
        num_components = vectors(predictions).shape[1]
        if num_components > 2:
            raise ValueError(
                "predictions: expected confidences or predictions of two classes, as the lenses "
                f"estimators.top_label and estimators.class_wise give them, got {num_components} "
                "classes"
            )
        hyperparameter = checks.real("hyperparameter", hyperparameter)
        checks.shape("hyperparameter", hyperparameter, (), "() (a scalar)")
        size = _num_intervals("hyperparameter", hyperparameter, self.max_bins)
        return _mean_residuals(predictions, targets, hyperparameter, size)


@record
class Binning(_Bins):
    """The calibration estimation function of binned estimators.

        h(p, q) = (conf(B_k) − acc(B_k)) (conf(B_l) − acc(B_l)),  p in interval k, q in interval l,

    with the mean confidence and the accuracy of the training samples in each of the M intervals of
    `estimators.UniformBins`. The hyperparameter is M, an integer. Intervals without training
    samples count as calibrated: h is 0 there.

    The mean of h(p_i, p_i) over the training samples is the squared calibration error
    `ece(..., binning=UniformBins(M), distance=SquaredEuclidean())`. As there, both classes of
    binary predictions count: h is twice that of confidences given as an array [n], and the
    intervals are those of the probability of class 1. Bins of more classes hold few samples; use
    the lens `estimators.top_label`, or `estimators.class_wise` and `vmap`.

    Attributes:
        max_bins: the largest M that will be used, between 1 and 2²⁴. Only needed if M is traced,
            since array sizes have to be known then; `cross_validate` takes it from the grid.

    Raises:
        TypeError: by the methods if `max_bins` is not an integer, an argument is of the wrong kind,
            or M is traced and there is no `max_bins`.
        ValueError: by the methods if `max_bins` is out of range, M is not an integer between 1 and
            `max_bins`, there are more than two classes, or shapes or values are wrong. Invalid
            traced values give NaN.

    Cost: O(n + M) to fit, O(n) for the diagonal.

    References: G24 eq. (23) and (24).

    >>> import jax.numpy as jnp
    >>> function = Binning()
    >>> confidences, correct = jnp.array([0.6, 0.7, 0.2]), jnp.array([1, 0, 0])
    >>> params = function.fit(confidences, correct, 2)  # conf − acc is 0.2 and 0.15
    >>> print(function.evaluate(params, confidences[:2], confidences[1:]).round(4))
    [[0.0225 0.03  ]
     [0.0225 0.03  ]]
    """

    def fit(
        self,
        predictions: Distribution,
        targets: ArrayLike,
        hyperparameter: ArrayLike,
    ) -> BinResiduals:
        """Mean residuals in the intervals."""
        return self._fitted(predictions, targets, hyperparameter)

    def factors(self, params: BinResiduals, p: Distribution) -> tuple[jax.Array, jax.Array]:
        """Mean residuals of the intervals of the predictions, [n, m], twice."""
        params = checks.learned("params", params, BinResiduals)
        means = _looked_up(params, p)
        return means, means


@record
class DebiasedBinResiduals:
    """What `DebiasedBinning` learns.

    Attributes:
        bins: mean residuals in the intervals.
        biases: what the noise of the training samples adds to the squares of these means, as it
            is estimated, [b]; the squares themselves where an interval holds one sample.
    """

    bins: BinResiduals
    biases: jax.Array = parameter(constraints.real.with_axes("b"))

    def check_values(self, name: str) -> "DebiasedBinResiduals":
        """Refuses wrong bins, and biases that no samples give."""
        bins = checks.learned(f"{name}.bins", self.bins, BinResiduals)
        expected = f"[b], as {name}.bins.counts"
        checks.shape(f"{name}.biases", self.biases, bins.counts.shape, expected)
        return DebiasedBinResiduals(bins, checks.constrained(name, self).biases)


@record
class DebiasedBinning(_Bins):
    """The calibration estimation function of debiased bins.

        h(p, q) = ⟨r̄_k, r̄_l⟩ − 1[k = l] s_k² / |B_k|,   p in interval k, q in interval l,

    with the mean r̄_k and the variance s_k² = Σ_i ‖r_i − r̄_k‖² / (|B_k| − 1) of the residuals
    r_i = p_i − e_{y_i} of the training samples in interval k. The squares of the means, which
    `Binning` takes, are too large by s_k² / |B_k| on average; products of two intervals have no
    such bias. h(p, p) can be negative. It is 0 where an interval has one training sample, which
    says nothing about a square, or none.

    The mean of h(p_i, p_i) over the training samples is
    `debiased_squared_ece(..., binning=UniformBins(M))`, half of it for confidences given as an
    array [n]. Where predictions vary within an interval the estimator of Kumar et al. differs a
    little: they subtract the variance of the proportion of the labels, not that of the residuals.

    Arguments, attributes and errors are those of `Binning`.

    Cost: that of `Binning`, and O(n b) memory for the factors.

    References: G24 §4.1; Kumar, Liang and Ma (2019), Verified uncertainty calibration, §4, eq. (5).

    >>> import jax.numpy as jnp
    >>> function = DebiasedBinning()
    >>> confidences, correct = jnp.array([0.6, 0.7, 0.2, 0.2]), jnp.array([1, 1, 0, 0])
    >>> params = function.fit(confidences, correct, 2)  # residuals -0.4, -0.3 and 0.2, 0.2
    >>> print(function.evaluate(params, confidences[1:3], confidences[1:3]).round(4))
    [[ 0.12 -0.07]
     [-0.07  0.04]]
    """

    def fit(
        self,
        predictions: Distribution,
        targets: ArrayLike,
        hyperparameter: ArrayLike,
    ) -> DebiasedBinResiduals:
        """Mean residuals in the intervals, and the biases of their squares."""
        bins = self._fitted(predictions, targets, hyperparameter)
        return DebiasedBinResiduals(bins, _biases(bins, *checked(predictions, targets)))

    def factors(self, params: DebiasedBinResiduals, p: Distribution) -> tuple[jax.Array, jax.Array]:
        """Mean residuals, and the indicator of the interval with and without the bias, [n, m + b].

        The products of the indicators are 1 for two predictions in one interval.
        """
        params = checks.learned("params", params, DebiasedBinResiduals)
        means = _looked_up(params.bins, p)
        index = interval_index(vectors(p)[:, -1], params.bins.num_bins)
        is_in = one_hot(index, params.biases.size, means.dtype)
        left = -params.biases.astype(means.dtype) * is_in
        return jnp.concatenate([means, left], 1), jnp.concatenate([means, is_in], 1)


def _num_intervals(name: str, values: ArrayLike, max_bins: int | None) -> int:
    """Size of arrays for the given numbers of bins: `max_bins`, by default their maximum."""
    if max_bins is not None:
        max_bins = checks.size_in_range("max_bins", max_bins, 1, MAX_BINS)
    if checks.is_concrete(values):
        array, limit = np.asarray(values), max_bins or MAX_BINS
        is_number = (array >= 1) & (array <= limit) & (array == np.floor(array))
        checks.refuse_where(~is_number, name, f"whole numbers between 1 and {limit}", array)
        return max_bins or int(array.max())
    if max_bins is None:
        raise TypeError(
            f"{name}: expected numbers of bins that are known when compiling, or their largest "
            f"value as in Binning(max_bins=100), got {values}"
        )
    return max_bins


@functools.partial(jax.jit, static_argnames="max_bins")
def _mean_residuals(
    predictions: Distribution,
    targets: jax.Array,
    num_bins: jax.Array,
    max_bins: int,
) -> BinResiduals:
    errors = residuals(predictions, targets)
    is_valid = (num_bins >= 1) & (num_bins <= max_bins) & (num_bins == jnp.floor(num_bins))
    num_bins = jnp.where(is_valid, num_bins, 1).astype(jnp.int32)
    # Traced numbers outside [0, 1] belong to no bin.
    errors = jnp.where(is_valid & ~jnp.any(jnp.isnan(errors)), errors, jnp.nan)
    index = interval_index(vectors(predictions)[:, -1], num_bins)
    counts = jax.ops.segment_sum(jnp.ones_like(index), index, max_bins)
    sums = jax.ops.segment_sum(errors, index, max_bins)
    # Empty sums are 0, not NaN.
    means = sums / jnp.maximum(counts, 1)[:, None].astype(sums.dtype)
    means = jnp.where(jnp.all(jnp.isnan(errors)), jnp.nan, means)
    return BinResiduals(means, counts, num_bins)


def _looked_up(params: BinResiduals, p: Distribution) -> jax.Array:
    """Mean residuals of the intervals of checked predictions, [n, m]."""
    return _of_points(params, vectors(checked_points(p, params.means.shape[-1])))


@jax.jit
def _of_points(params: BinResiduals, points: jax.Array) -> jax.Array:
    means = params.means.astype(points.dtype)[interval_index(points[:, -1], params.num_bins)]
    return jnp.where(jnp.isnan(points), jnp.nan, means)


@jax.jit
def _biases(bins: BinResiduals, predictions: Distribution, targets: jax.Array) -> jax.Array:
    """Variances of the mean residuals of the intervals; of one residual, its square, [b]."""
    errors = residuals(predictions, targets)
    index = interval_index(vectors(predictions)[:, -1], bins.num_bins)
    deviations = errors - bins.means[index]
    sums = jax.ops.segment_sum(jnp.sum(jnp.square(deviations), 1), index, bins.counts.size)
    counts = bins.counts.astype(sums.dtype)
    variances = sums / jnp.maximum(counts * (counts - 1), 1)
    return jnp.where(bins.counts > 1, variances, jnp.sum(jnp.square(bins.means), 1))
