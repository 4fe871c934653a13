"""Binnings of the probability simplex.

A binning is a function of a batch of n predictions that returns their bins, integers in 0, ..., n −
1, int32 [n].
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.environment import jit_quick
from calibjax._core.gate import checked, group_ids
from calibjax._core.pytree import Numbers, PyTree, Weights, record, varying_as
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import bare

Binning = Callable[[Any], jax.Array]

MAX_BINS = 2**24  # more intervals would be finer than the spacing of float32
_FEW_CELLS = 1024


class _ProbabilityBins:
    """Base class of binnings that depend on the class probabilities only."""

    @checked(at=lambda name, value, _: checks.batch(value, name=name))
    def __call__(
        self,
        predictions: ClassPredictions,
        at: ClassPredictions | None = None,
        *,
        weights: Numbers | None = None,
    ) -> PyTree:
        """Bins of the predictions.

        Args:
            predictions: batch of n class predictions.
            at: batch of n' other predictions, assigned to the bins of `predictions`.
            weights: w ≥ 0 of the predictions, [n]; None for equal weights. Predictions of weight 0
                are assigned to bins as well.

        Returns:
            int32 [n]; with `at` a pair of these and the bins of the others, int32 [n'], in a common
            numbering within 0, ..., n + n' − 1.
        """
        return bins_of(self, predictions, at, weights=weights)

    def check_values(self, name: str) -> PyTree:
        """Refuse options that are not integers in 1, ..., 2²⁴."""
        ((option, size),) = vars(self).items()
        size = checks.size_in_range(f"{name}.{option}", size, 1, MAX_BINS)
        return checks.replaced(self, **{option: size})

    def _bins(self, predictions: Any, probs: jax.Array, weights: Weights) -> jax.Array:
        """Bins of predictions and of other points, with the probabilities of both."""
        raise NotImplementedError


@jit_quick
def _own_bins(binning: Any, predictions: Any, probs: jax.Array, weights: Weights) -> jax.Array:
    return binning._bins(predictions, probs, weights)


def bins_of(
    binning: Binning,
    predictions: ClassPredictions,
    at: ClassPredictions | None = None,
    *,
    weights: Weights = None,
) -> PyTree:
    """Bins of checked predictions, [n], and of other points, [n'], if given.

    User-defined functions get both together, and no weights.

    Raises:
        TypeError: if the binning does not return integers.
        ValueError: if it does not return one integer for each prediction, or one is out of range.
    """
    n, sees_probs = checks.leading_size("", predictions), isinstance(binning, _ProbabilityBins)
    both: Any = predictions.class_probs if sees_probs else predictions
    if at is not None:
        others = at.class_probs if sees_probs else at
        both = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), both, others)
    if sees_probs:
        bins = _own_bins(binning, predictions, both, weights)
    else:
        name, size = "binning(predictions)", checks.leading_size("predictions", both)
        bins = group_ids(name, binning(both), size, kind="bin")
        expected = f"bins in 0, ..., {size - 1}"
        bins = checks.satisfying_integers(name, bins, lambda x: x < size, expected)
    return bins if at is None else (bins[:n], bins[n:])


@record
class UniformBins(_ProbabilityBins):
    """Binning of the probability simplex by a grid of equal intervals in every class.

    Class c of prediction p has the index ⌈num_bins · p_c⌉, or 1 if p_c = 0: the intervals are [0,
    1/b], (1/b, 2/b], ..., (1 − 1/b, 1]. Predictions with the same m indices share a bin. The
    product is rounded before ⌈·⌉. So 0.1, 0.2, ... are the upper ends of 10 bins although some of
    the closest floating-point numbers are larger; for other numbers of bins, rounding may move an
    edge into the next bin.

    The bins of a `Bernoulli` are the intervals of its probability. Two classes of a `Categorical`
    have two indices, as in W19, which gives the same bins except for probabilities exactly on an
    edge.

    Bins are found by grouping the predictions, for any number of classes. Bins are numbered from
    zero, without gaps, in the lexicographic order of their indices.

    Attributes:
        num_bins: number of intervals per class, between 1 and 2²⁴.

    Raises:
        TypeError: by the call, if `num_bins` is not an integer.
        ValueError: by the call, if `num_bins` is out of range.

    Cost: O(n m) time and memory if num_bins^m ≤ n, otherwise one sort of n for each 31 /
    log₂(num_bins) classes.

    References: W19 App. J.1.1.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(jnp.array([[0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.0, 1.0]]))
    >>> print(UniformBins(2)(predictions))
    [1 0 1 0]
    """

    num_bins: int = dataclasses.field(metadata={"static": True})

    def _bins(self, predictions: Any, probs: jax.Array, weights: Weights) -> jax.Array:
        del weights  # the grid does not depend on the data
        if isinstance(bare(predictions), Bernoulli):
            # The probability of label 0 is rounded, and redundant.
            cells = _ranks_of_rows(interval_index(probs[:, 1:], self.num_bins), self.num_bins)
            return jnp.max(cells) - cells  # in the numbering of two classes
        return _ranks_of_rows(interval_index(probs, self.num_bins), self.num_bins)


def interval_index(confidences: jax.Array, num_bins: jax.Array | int) -> jax.Array:
    """Interval k of `UniformBins` that contains each number, int32 of the same shape.

    k = max(⌈num_bins · p⌉, 1) − 1 in 0, ..., num_bins − 1. It does not depend on the batch, while a
    binning numbers only the bins that occur. Indices are in range even for invalid probabilities;
    NaN gets 0.
    """
    # Comparisons are false for NaN.
    scaled = jnp.ceil(lax.stop_gradient(confidences) * num_bins)
    scaled = jnp.where(scaled > 1, jnp.where(scaled < num_bins, scaled, num_bins), 1)
    return scaled.astype(jnp.int32) - 1


def _ranks_of_rows(digits: jax.Array, num_values: int) -> jax.Array:
    """Dense ranks of rows of numbers 0, ..., num_values − 1, int32 [n]."""
    n, m = digits.shape
    most = _FEW_CELLS if export.is_symbolic_dim(n) else max(n, _FEW_CELLS)
    if num_values**m <= most:  # enumeration needs no sort
        cells = jnp.ravel_multi_index(tuple(digits.T), (num_values,) * m, mode="wrap")
        occurs = jnp.zeros(num_values**m, jnp.int32).at[cells].set(1)
        return (jnp.cumsum(occurs, dtype=jnp.int32) - 1)[cells]
    # Pack as many digits as fit into one int32, without 64-bit types.
    length = max(k for k in range(1, 32) if num_values**k <= 2**31)
    powers = jnp.array([num_values**k for k in reversed(range(length))], jnp.int32)
    digits = jnp.pad(digits, ((0, 0), (0, -m % length))).reshape(n, -1, length)
    words, start = jnp.sum(digits * powers, -1, dtype=jnp.int32), jnp.zeros(n, jnp.int32)
    step = lambda ranks, row: (ranks_of_pairs(ranks, row), None)  # noqa: E731
    return lax.scan(step, varying_as(start, words), words.T)[0]


def ranks_of_pairs(first: jax.Array, second: jax.Array) -> jax.Array:
    """Dense ranks of pairs of integers, int32 [n]."""
    positions = jnp.arange(first.size, dtype=jnp.int32)
    first, second, positions = lax.sort((first, second, positions), num_keys=2, is_stable=False)
    is_new = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    ranks = jnp.cumsum(jnp.pad(is_new, (1, 0)), dtype=jnp.int32)
    return jnp.zeros_like(ranks).at[positions].set(ranks, unique_indices=True)


@record
class EqualMassBins(_ProbabilityBins):
    """Binning of n ≥ num_bins predictions by intervals of equal mass, in every class.

    Class c of prediction p has the index ⌊num_bins · #{j: p_jc < p_c} / n⌋, the interval between
    two empirical quantiles that contains p_c. Without ties, the numbers of predictions in the
    intervals of a class differ by at most one; equal probabilities share an interval. Predictions
    with the same m indices share a bin. With two classes only the second is used: bins of a
    `Bernoulli` are quantile bins of its probability.

    With weights, #{...} and n are sums of weights, so intervals have equal weight.

    Other points, `at`, are assigned to the interval of the surrounding predictions, or to the last
    interval beyond all predictions.

    Attributes:
        num_bins: number of intervals per class, between 1 and 2²⁴.

    Raises:
        TypeError: by the call, if `num_bins` is not an integer.
        ValueError: by the call, if `num_bins` is out of range.

    Cost: O(n m log n) time, O(n m) memory.

    References: Nguyen and O'Connor (2015), Posterior calibration and exploratory analysis for
    natural language processing models, §3; Kumar et al. (2019), Verified uncertainty calibration.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> print(EqualMassBins(2)(Bernoulli(jnp.array([0.9, 0.95, 0.99, 0.2]))))
    [0 1 1 0]
    """

    num_bins: int = dataclasses.field(metadata={"static": True})

    def _bins(self, predictions: Any, probs: jax.Array, weights: Weights) -> jax.Array:
        n, num_bins = checks.leading_size("predictions", predictions, self.num_bins), self.num_bins
        probs = lax.stop_gradient(probs[:, 1:] if probs.shape[1] == 2 else probs)
        # At least k values are smaller than p if and only if the k-th smallest value is.
        if weights is None:
            limits = -(-np.arange(1, num_bins) * n // num_bins)
            edges = jnp.sort(probs[:n], 0)[limits - 1]
        else:
            order = jnp.argsort(probs[:n], 0)
            mass = jnp.cumsum(lax.stop_gradient(weights)[order], 0)
            limits = (1 - relative_rounding(n, mass.dtype)) * np.arange(1, num_bins) / num_bins
            limits = limits.astype(mass.dtype)[:, None] * mass[-1]
            places = jax.vmap(jnp.searchsorted, in_axes=1, out_axes=1)(mass, limits)
            places = jnp.take_along_axis(order, jnp.minimum(places, n - 1), 0)
            edges = jnp.take_along_axis(probs[:n], places, 0)
        digits = jax.vmap(jnp.searchsorted, in_axes=1, out_axes=1)(edges, probs)
        return _ranks_of_rows(digits.astype(jnp.int32), num_bins)


@record
class MedianVarianceBins(_ProbabilityBins):
    """Binning of n ≥ min_size predictions by splits at medians of the class with largest variance.

    Starting from one bin with all predictions, the bin with the largest variance in any one class
    is split at that class's median m: p_c < m below, p_c ≥ m above. A bin is final if one of its
    parts would have fewer than min_size samples. Splits of a bin depend on its predictions only, so
    all bins are split at once.

    Ties of variances, up to rounding errors, are broken in favour of the first class; for two
    classes this is always the first.

    With weights, numbers of samples are sums of weights, scaled to a total of (Σ_i w_i)² / Σ_i
    w_i²; means, variances and medians are weighted.

    Other points, `at`, are split along with the samples.

    Bins are numbered from zero without gaps; there are at most n / min_size.

    Attributes:
        min_size: smallest number of samples in a bin, between 1 and 2²⁴.

    Raises:
        TypeError: by the call, if `min_size` is not an integer.
        ValueError: by the call, if `min_size` is out of range.

    Cost: one sort of n and O(n m) time for each of about log₂(n / min_size) rounds; O(n m) memory.
    With many ties there can be more rounds, but fewer than n / min_size.

    References: W19 App. J.1.1.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> predictions = Categorical(
    ...     jnp.array([[0.1, 0.6, 0.3], [0.4, 0.6, 0.0], [0.2, 0.6, 0.2], [0.3, 0.5, 0.2]])
    ... )
    >>> print(MedianVarianceBins(2)(predictions))
    [0 1 0 1]
    """

    min_size: int = dataclasses.field(metadata={"static": True})

    def _bins(self, predictions: Any, probs: jax.Array, weights: Weights) -> jax.Array:
        num_samples = checks.leading_size("predictions", predictions, self.min_size)
        probs, weights = lax.stop_gradient((probs, weights))
        max_bins, least, rounding = num_samples // self.min_size, self.min_size, 0
        if weights is not None:  # sums are rounded
            rounding = relative_rounding(num_samples, probs.dtype)
            max_bins, least = max_bins + 1, self.min_size * (1 - rounding)
        masses = jnp.ones(num_samples, jnp.int32) if weights is None else weights
        samples = probs[:num_samples]

        def split(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            """Split once all bins [n + n'] that may be split [max_bins]."""
            bins, num_bins, is_open = state
            theirs = bins[:num_samples]
            sizes = jax.ops.segment_sum(masses, theirs, max_bins)
            classes = _most_variable_classes(samples, theirs, sizes, masses)
            values = jnp.take_along_axis(probs, classes[bins][:, None], 1)[:, 0]
            medians = _medians(values[:num_samples], theirs, sizes, masses, rounding)
            is_below = values < medians[bins]
            below = jax.ops.segment_sum(is_below[:num_samples] * masses, theirs, max_bins)
            above = sizes - below
            is_split = is_open & (below >= least) & (above >= least)
            new_bins = num_bins - 1 + jnp.cumsum(is_split, dtype=jnp.int32)  # the upper parts
            bins = jnp.where(is_split[bins] & ~is_below, new_bins[bins], bins)
            new_bins = jnp.where(is_split, new_bins, max_bins)
            is_open = is_split & (below >= 2 * least)
            is_open = is_open.at[new_bins].set(above >= 2 * least, mode="drop")
            return bins, num_bins + jnp.sum(is_split, dtype=jnp.int32), is_open

        start = jnp.zeros(len(probs), jnp.int32), jnp.int32(1), jnp.arange(max_bins) == 0
        start = varying_as(start, (probs, masses))
        return lax.while_loop(lambda state: jnp.any(state[-1]), split, start)[0]


def relative_rounding(n: int, dtype: DTypeLike) -> float:
    """Size of the relative rounding errors of sums of n numbers."""
    return 4 * math.sqrt(n) * float(jnp.finfo(dtype).eps)


def _most_variable_classes(
    probs: jax.Array, bins: jax.Array, sizes: jax.Array, weights: jax.Array
) -> jax.Array:
    """First class with the largest variance in each bin, [number of bins]."""
    n, max_bins = len(probs), sizes.size
    # Differences from one member are exact for (nearly) constant classes: variances of saturated
    # predictions are of the size of rounding errors.
    places = jnp.where(weights > 0, jnp.arange(n, dtype=jnp.int32), -1)
    members = jax.ops.segment_max(places, bins, max_bins)
    shifted = jnp.where(weights[:, None] > 0, probs - probs[members[bins]], 0)
    # Squares of tiny differences would underflow.
    spreads = jax.ops.segment_max(jnp.max(jnp.abs(shifted), 1), bins, max_bins)
    shifted = shifted / jnp.where(spreads > 0, spreads, 1)[bins][:, None]
    divisors = jnp.where(sizes == 0, 1, sizes)[:, None]
    means = jax.ops.segment_sum(weights[:, None] * shifted, bins, max_bins) / divisors
    squares = weights[:, None] * jnp.square(shifted - means[bins])
    sums = jax.ops.segment_sum(squares, bins, max_bins)
    # Bins must not depend on the order of the samples by rounding. Two classes have equal
    # variances, unless 1 − p lost digits.
    rounding = relative_rounding(n, probs.dtype) if probs.shape[1] > 2 else 0.5
    return jnp.argmax(sums >= (1 - rounding) * jnp.max(sums, 1, keepdims=True), 1)


def _medians(
    values: jax.Array, bins: jax.Array, sizes: jax.Array, weights: jax.Array, rounding: float
) -> jax.Array:
    """Medians of the values in each bin; weights sum to the sizes up to rounding."""
    bins, values, weights = lax.sort((bins, values, weights), num_keys=2, is_stable=False)

    def add(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[Any, Any]:
        same = first[0] == second[0]
        return second[0], second[1] + jnp.where(same, first[1], 0)

    twice = 2 * lax.associative_scan(add, (bins, weights))[1]  # cumulative weights within a bin
    places = jnp.arange(len(values), dtype=jnp.int32)

    def first_where(condition: jax.Array) -> jax.Array:
        candidates = jnp.where(condition, places, len(values) - 1)
        return values[jax.ops.segment_min(candidates, bins, sizes.size)]

    # One value twice, unless exactly half of the weight is up to the first.
    lower = first_where(twice >= (1 - rounding) * sizes[bins])
    return (lower + first_where(twice > (1 + rounding) * sizes[bins])) / 2
