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
        biases: with `debias` the estimated expectation of what the noise of the training samples
            adds to the squares of these means, [b]; the squares themselves where an interval holds
            one sample. Otherwise zeros.
    """

    means: jax.Array = parameter(constraints.interval(-1, 1).with_axes("b", "m"))
    counts: jax.Array = parameter(constraints.nonnegative_integer.with_axes("b"))
    num_bins: jax.Array = parameter(constraints.nonnegative_integer)
    biases: jax.Array = parameter(constraints.real.with_axes("b"))

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
        return BinResiduals(means, checked.counts, number, checked.biases)


@record
class Binning(EstimationFunction):
    """The calibration estimation function of binned estimators, also with debiased squares.

        h(p, q) = (conf(B_k) − acc(B_k)) (conf(B_l) − acc(B_l)),  p in interval k, q in interval l,

    with the mean confidence and the accuracy of the training samples in each of the M intervals of
    `estimators.UniformBins`. The hyperparameter is M, an integer. Intervals without training
    samples count as calibrated: h is 0 there.

    The mean of h(p_i, p_i) over the training samples is the squared calibration error
    `ece(..., binning=UniformBins(M), distance=SquaredEuclidean())`. As there, both classes of
    binary predictions count: h is twice that of confidences given as an array [n], and the
    intervals are those of the probability of class 1. Bins of more classes hold few samples; use
    the lens `estimators.top_label`, or `estimators.class_wise` and `vmap`.

    The squares, k = l, are too large on average. With `debias` their estimated biases are
    subtracted:

        h(p, q) = ⟨r̄_k, r̄_l⟩ − 1[k = l] s_k² / |B_k|,

    with the mean r̄_k and the variance s_k² = Σ_i ‖r_i − r̄_k‖² / (|B_k| − 1) of the residuals
    r_i = p_i − e_{y_i} of the training samples in interval k. h(p, p) can be negative. It is 0
    where an interval has one training sample, which says nothing about a square, or none. For
    confidences given as an array [n], the mean of h(p_i, p_i) over the training samples is
    `ece(..., binning=UniformBins(M), norm="l2", debiased=True)`; for binary predictions, of which
    both classes count, it is twice this value. Where predictions vary within an interval the
    estimator of Kumar et al. differs a little: they subtract the variance of the proportion of the
    labels, not that of the residuals.

    Attributes:
        max_bins: the largest M that will be used, between 1 and 2²⁴. Only needed if M is traced,
            since array sizes have to be known then; `cross_validate` takes it from the grid.
        debias: whether the biases of squares are subtracted.

    Raises:
        TypeError: by the methods if `max_bins` is not an integer or `debias` no truth value, an
            argument is of the wrong kind, or M is traced and there is no `max_bins`.
        ValueError: by the methods if `max_bins` is out of range, M is not an integer between 1 and
            `max_bins`, there are more than two classes, or shapes or values are wrong. Invalid
            traced values give NaN.

    Cost: O(n + M) to fit, O(n) for the diagonal. With `debias`, O(n b) memory for the factors.

    References: G24 eq. (23) and (24), and §4.1; Kumar, Liang and Ma (2019), Verified uncertainty
    calibration, §4, eq. (5).

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.6, 0.7, 0.2, 0.2]), jnp.array([1, 1, 0, 0])
    >>> for function in Binning(), Binning(debias=True):  # mean residuals -0.35 and 0.2
    ...     params = function.fit(confidences, correct, 2)
    ...     print([f"{value:.4f}" for value in function.diagonal(params, confidences[1:3])])
    ['0.1225', '0.0400']
    ['0.1200', '0.0400']
    """

    max_bins: int | None = dataclasses.field(default=None, metadata={"static": True})
    _: dataclasses.KW_ONLY
    debias: bool = dataclasses.field(default=False, metadata={"static": True})

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """The function with the largest M of the grid."""
        del predictions
        checks.real("grid", grid)
        return dataclasses.replace(self, max_bins=_num_intervals("grid", grid, self.max_bins))

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        del num_samples, canonical
        return np.arange(5, 101, 5)

    def fit(
        self, predictions: Distribution, targets: ArrayLike, hyperparameter: ArrayLike
    ) -> BinResiduals:
        """Mean residuals in the intervals, and the biases of their squares."""
        debias = checks.truth_value("debias", self.debias)
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
        return _mean_residuals(predictions, targets, hyperparameter, size, debias)

    def factors(self, params: BinResiduals, p: Distribution) -> tuple[jax.Array, jax.Array]:
        """Mean residuals of the intervals of the predictions, [n, m], twice.

        With `debias` also the indicator of the interval with and without the bias, [n, m + b]: the
        products of the indicators are 1 for two predictions in one interval.
        """
        params = checks.learned("params", params, BinResiduals)
        points = vectors(checked_points(p, params.means.shape[-1]))
        means = _looked_up(params, points)
        if not self.debias:
            return means, means
        index = interval_index(points[:, -1], params.num_bins)
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


@functools.partial(jax.jit, static_argnames=("max_bins", "debias"))
def _mean_residuals(
    predictions: Distribution, targets: jax.Array, num_bins: jax.Array, max_bins: int, debias: bool
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
    if not debias:
        return BinResiduals(means, counts, num_bins, jnp.zeros_like(means[:, 0]))
    squares = jnp.sum(jnp.square(errors - means[index]), 1)
    sums, number = jax.ops.segment_sum(squares, index, max_bins), counts.astype(errors.dtype)
    variances = sums / jnp.maximum(number * (number - 1), 1)
    biases = jnp.where(counts > 1, variances, jnp.sum(jnp.square(means), 1))
    return BinResiduals(means, counts, num_bins, biases)


@jax.jit
def _looked_up(params: BinResiduals, points: jax.Array) -> jax.Array:
    """Mean residuals of the intervals of points, [n, m]."""
    means = params.means.astype(points.dtype)[interval_index(points[:, -1], params.num_bins)]
    return jnp.where(jnp.isnan(points), jnp.nan, means)
