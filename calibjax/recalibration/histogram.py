"""Histogram binning: confidences in an interval are replaced by its accuracy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.pytree import parameter, record
from calibjax.binnings import MAX_BINS, interval_index
from calibjax.distributions import constraints
from calibjax.recalibration.base import ConfidenceRecalibrator


def _unchecked(name: str, accuracies: jax.Array) -> jax.Array:
    """Accuracies, which are NaN in intervals without samples: `check_values` checks them."""
    del name
    return accuracies


@record
class BinAccuracies:
    """What `HistogramBinning` learns.

    Attributes:
        accuracies: proportion of correct predictions in each interval, NaN in empty ones, [b].
        counts: number of calibration samples in each interval, of those with positive weights, [b].
    """

    accuracies: jax.Array = parameter(constraints.Constraint("proportions", _unchecked, ("b",)))
    counts: jax.Array = parameter(constraints.nonnegative_integer.with_axes("b"))

    def check_values(self, name: str) -> "BinAccuracies":
        """Refuses counts below 0, and accuracies outside [0, 1] where there are samples."""
        counts = checks.constrained(name, self).counts
        accuracies = jnp.where(counts == 0, 0, self.accuracies)
        accuracies = checks.unit_interval(f"{name}.accuracies", accuracies)
        # Integers cannot be NaN, so the accuracies become it.
        accuracies = jnp.where(checks.is_missing(counts), jnp.nan, accuracies)
        return BinAccuracies(accuracies, counts)


@record
class HistogramBinning(ConfidenceRecalibrator):
    """Histogram binning: the accuracy of the calibration samples in the same interval.

    The intervals are those of `estimators.UniformBins`, [0, 1/b], (1/b, 2/b], ..., (1 − 1/b, 1],
    for calibration and new confidences alike; accuracies are weighted if there are weights.
    Confidences in intervals without calibration samples are kept, with a `UserWarning`, which
    compiled code cannot give: check `params.counts`.

    With a batch of class predictions, such as `Categorical`, and labels [n] in place of confidences
    and `correct`, each class is recalibrated against the rest and the probabilities are normalised:
    `fit` returns `ClassWiseParams`, `apply` a batch of `Categorical`s. A class may get probability
    zero in this way; then the negative log-likelihood of its labels is infinite.

    `fit(confidences, correct)` returns `BinAccuracies`, `apply(params, confidences)` confidences
    [n]. The confidences are an array [n] or a batch of n `Bernoulli`s, as `estimators.top_label`
    returns them; `correct` is 0 or 1, [n].

    Attributes:
        num_bins: b, number of intervals, between 1 and 2²⁴.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind; by `fit` if `num_bins` is not
            an integer.
        ValueError: by the methods if shapes or values are wrong; by `fit` if `num_bins` is out of
            range.

    Cost: O(n + b).

    References: Zadrozny and Elkan (2001), Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers, §3.3, there with bins of equal size; Guo et al. (2017),
    On calibration of modern neural networks, §4.1; L21 §2.2, with intervals of equal length.

    >>> import jax.numpy as jnp
    >>> method = HistogramBinning(2)
    >>> params = method.fit(jnp.array([0.6, 0.7, 0.8, 0.9, 0.4]), jnp.array([1, 0, 1, 1, 0]))
    >>> print(params.counts, method.apply(params, jnp.array([0.55, 0.2])))
    [1 4] [0.75 0.  ]
    """

    num_bins: int = dataclasses.field(metadata={"static": True})

    _learns = BinAccuracies

    def _fit(
        self, confidences: jax.Array, correct: jax.Array, weights: jax.Array | None
    ) -> BinAccuracies:
        num_bins = checks.size_in_range("num_bins", self.num_bins, 1, MAX_BINS)
        return _bin_accuracies(confidences, correct, weights, num_bins)

    def _apply(self, params: BinAccuracies, confidences: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _looked_up(params, confidences)


@functools.partial(jax.jit, static_argnums=3)
def _bin_accuracies(
    confidences: jax.Array, correct: jax.Array, weights: jax.Array | None, num_bins: int
) -> BinAccuracies:
    # Traced numbers that are not probabilities belong to no bin.
    is_bad = jnp.any(jnp.isnan(confidences))
    index = interval_index(confidences, num_bins)
    is_used: jax.Array = jnp.ones_like(index)
    if weights is not None:
        is_bad |= jnp.any(jnp.isnan(weights))
        is_used, correct = (weights > 0).astype(index.dtype), weights * correct
    correct = jnp.where(is_bad, jnp.nan, correct)
    sums = jax.ops.segment_sum(correct, index, num_bins)
    counts = jax.ops.segment_sum(is_used, index, num_bins)
    totals = counts if weights is None else jax.ops.segment_sum(weights, index, num_bins)
    accuracies = sums / jnp.where(counts > 0, totals, 1)
    counts = jnp.where(is_bad, jnp.iinfo(counts.dtype).min, counts)  # stands for NaN
    return BinAccuracies(jnp.where(counts > 0, accuracies, jnp.nan), counts)


@jax.jit
def _looked_up(params: BinAccuracies, confidences: jax.Array) -> tuple[jax.Array, jax.Array]:
    """New confidences, and which of them are unchanged."""
    index = interval_index(confidences, params.counts.size)
    is_kept = params.counts[index] == 0
    accuracies = params.accuracies.astype(confidences.dtype)[index]
    return jnp.where(is_kept | jnp.isnan(confidences), confidences, accuracies), is_kept
