"""Histogram binning: the confidences of an interval become its accuracy."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import record
from calibjax.estimators.binnings import interval_index
from calibjax.recalibration.base import Recalibrator, also_of_classes, warn_about_kept


@record
class BinAccuracies:
    """What `histogram_binning` learns.

    Attributes:
        accuracies: proportion of correct predictions in each interval, NaN in empty ones, [b].
        counts: number of calibration samples in each interval, [b].
    """

    accuracies: jax.Array
    counts: jax.Array


def histogram_binning(num_bins: int) -> Recalibrator:
    """Histogram binning: the accuracy of the calibration samples in the same interval.

    The intervals are those of `estimators.uniform_bins`, [0, 1/b], (1/b, 2/b], ..., (1 − 1/b, 1],
    for calibration and new confidences alike. Confidences in intervals without calibration
    samples are kept; a `UserWarning` says how many of them there are. When compiled nothing can
    be said: look at `params.counts`.

    With a batch of class predictions, such as `Categorical`, and labels [n] in place of confidences
    and `correct`, each class is recalibrated against the rest and the probabilities are divided by
    their sum: `fit` returns `ClassWiseParams`, `apply` a batch of `Categorical`s. A class can
    get probability zero in this way, with which the log-likelihood of its labels is infinite.

    Args:
        num_bins: b, number of intervals, between 1 and 2²⁴.

    Returns:
        The pair `fit(confidences, correct)` → params, a record of `accuracies` and `counts` [b],
        and `apply(params, confidences)` → confidences [n]. The confidences are an array [n] or a
        batch of n `Bernoulli`s, as `estimators.top_label` returns them; `correct` is 0 or 1, [n].
        Both can be compiled and mapped over data sets.

    Raises:
        TypeError: if `num_bins` is no integer; by the functions if an argument is of the wrong
            kind.
        ValueError: if `num_bins` is out of range; by the functions if shapes or values are wrong.

    Cost: O(n + b).

    References: Zadrozny and Elkan (2001), Obtaining calibrated probability estimates from decision
    trees and naive Bayesian classifiers, §3.3, there with bins of equal size; Guo et al. (2017),
    On calibration of modern neural networks, §4.1; L21 §2.2, with intervals of equal length.

    >>> import jax.numpy as jnp
    >>> fit, apply = histogram_binning(2)
    >>> params = fit(jnp.array([0.6, 0.7, 0.8, 0.9, 0.4]), jnp.array([1, 0, 1, 1, 0]))
    >>> print(params.counts, apply(params, jnp.array([0.55, 0.2])))
    [1 4] [0.75 0.  ]
    """
    # As for uniform_bins: beyond 2²⁴ the intervals are finer than float32 numbers are.
    num_bins = _checks.size_in_range("num_bins", num_bins, 1, 2**24)
    return also_of_classes(
        functools.partial(_fit, num_bins), _apply, lambda params, new: _looked_up(params, new)[1]
    )


def _fit(num_bins: int, confidences: Any, correct: Any) -> BinAccuracies:
    """Accuracy and number of samples of each interval; checks the arguments."""
    return _bin_accuracies(*_checks.confidences_and_correct(confidences, correct), num_bins)


@functools.partial(jax.jit, static_argnums=2)
def _bin_accuracies(confidences: jax.Array, correct: jax.Array, num_bins: int) -> BinAccuracies:
    # Traced numbers may be no probabilities. Which bin they belong to, nobody knows.
    is_bad = jnp.any(jnp.isnan(confidences))
    correct = jnp.where(is_bad, jnp.nan, correct)
    index = interval_index(confidences, num_bins)
    sums = jax.ops.segment_sum(correct, index, num_bins)
    counts = jax.ops.segment_sum(jnp.ones_like(index), index, num_bins)
    accuracies = sums / jnp.maximum(counts, 1)
    counts = jnp.where(is_bad, jnp.iinfo(counts.dtype).min, counts)  # stands for NaN
    return BinAccuracies(jnp.where(counts > 0, accuracies, jnp.nan), counts)


def _apply(params: BinAccuracies, confidences: Any) -> jax.Array:
    """Accuracies of the intervals that the confidences are in."""
    _checks.fitted("params", params, BinAccuracies)
    confidences = _checks.confidence_array(confidences)
    values, is_kept = _looked_up(params, confidences)
    if _checks.is_concrete(is_kept):
        warn_about_kept("histogram_binning", np.asarray(is_kept), stacklevel=4)
    return values


@jax.jit
def _looked_up(params: BinAccuracies, confidences: jax.Array) -> tuple[jax.Array, jax.Array]:
    """New confidences, and which of them are the old ones."""
    index = interval_index(confidences, params.counts.size)
    is_kept = params.counts[index] == 0
    accuracies = params.accuracies.astype(confidences.dtype)[index]
    return jnp.where(is_kept | jnp.isnan(confidences), confidences, accuracies), is_kept
