"""Local recalibration (LoRe): the accuracy of the calibration samples nearby."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import record
from calibjax.estimators.binnings import interval_index
from calibjax.kernels import Kernel
from calibjax.kernels.smoothing import laplacian, smoothed_means
from calibjax.recalibration.base import Recalibrator, warn_about_kept


@record
class LocalAccuracies:
    """What `local_recalibration` learns: the calibration samples themselves.

    Attributes:
        kernel: kernel on features.
        features: features of the samples, [n, d] or a pytree with leading axis n.
        correct: whether the predicted class came, 0 or 1, [n].
        bins: interval of the confidence of each sample, [n].
        num_bins: number of intervals.
    """

    kernel: Kernel
    features: Any
    correct: jax.Array
    bins: jax.Array
    num_bins: int = dataclasses.field(metadata={"static": True})

    @property
    def counts(self) -> jax.Array:
        """Number of calibration samples in each interval, [num_bins]."""
        return jax.ops.segment_sum(jnp.ones_like(self.bins), self.bins, self.num_bins)


def local_recalibration(
    length_scale: Any = None, num_bins: int | None = None, *, kernel: Kernel | None = None
) -> Recalibrator:
    """Local recalibration (LoRe): kernel-weighted accuracy of the samples in the same interval.

        confidence'(x) = Σ_i k(φ(x), φ_i) correct_i / Σ_i k(φ(x), φ_i),

    sums over the calibration samples whose confidence is in the interval of that of x. A wide
    kernel gives `histogram_binning`, a narrow one the correctness of the nearest sample, 0 or 1.

    The intervals are those of `estimators.uniform_bins`. Confidences in intervals without
    calibration samples are kept; a `UserWarning` says how many of them there are. When compiled
    nothing can be said: look at `params.counts`.

    Args:
        length_scale: bandwidth γ > 0 of the Laplacian kernel exp(−‖φ − φ'‖₁ / (d γ)), in units of
            the features per dimension. L21 takes 0.2 for t-SNE and 0.4 for PCA features.
        num_bins: number of intervals, between 1 and 2²⁴; 15 in L21.
        kernel: kernel record on features in place of `length_scale`, with values ≥ 0.

    Returns:
        The pair `fit(confidences, correct, features)` → params, and
        `apply(params, confidences, features)` → confidences [n]. The confidences are an array [n]
        or a batch of n `Bernoulli`s, `correct` is 0 or 1, [n], and features are [n, d], with
        `kernel` any pytree with leading axis n. Both functions can be compiled, `apply` can be
        differentiated also with respect to the kernel, which is part of the params.

    Raises:
        TypeError: if an argument is of the wrong kind, or not one of `length_scale` and `kernel`
            is given.
        ValueError: if shapes or values are wrong.

    Cost: `apply`: one distance and one exponential for each pair of a point and a calibration
    sample in the same interval, O(n + n' + tile²) memory. `fit` only keeps the samples.

    References: L21 eq. (6).

    >>> import jax.numpy as jnp
    >>> fit, apply = local_recalibration(length_scale=0.1, num_bins=5)
    >>> features = jnp.array([[0.0], [0.0], [9.0]])
    >>> params = fit(jnp.array([0.7, 0.7, 0.7]), jnp.array([1, 0, 1]), features)
    >>> print(apply(params, jnp.array([0.75, 0.75]), jnp.array([[0.0], [9.0]])))
    [0.5 1. ]
    """
    _checks.one_of(length_scale=length_scale, kernel=kernel)
    if kernel is None:
        length_scale = _checks.positive_scalar("length_scale", length_scale)
    else:
        kernel = _checks.kernel_values(kernel)
    num_bins = _checks.size_in_range("num_bins", num_bins, 1, 2**24)
    return Recalibrator(functools.partial(_fit, length_scale, kernel, num_bins), _apply)


def _fit(
    length_scale: Any,
    kernel: Kernel | None,
    num_bins: int,
    confidences: Any,
    correct: Any,
    features: Any,
) -> LocalAccuracies:
    """The calibration samples, checked."""
    confidences, correct = _checks.confidences_and_correct(confidences, correct)
    vectors = kernel is None
    features = _checks.features("features", features, confidences.size, vectors=vectors)
    kernel = laplacian(length_scale, features) if kernel is None else kernel
    # Traced numbers may be no probabilities. Which interval they belong to, nobody knows.
    correct = jnp.where(jnp.any(jnp.isnan(confidences)), jnp.nan, correct)
    return LocalAccuracies(
        kernel, features, correct, interval_index(confidences, num_bins), num_bins
    )


def _apply(params: LocalAccuracies, confidences: Any, features: Any) -> jax.Array:
    """Local accuracies at other points."""
    _checks.fitted("params", params, LocalAccuracies)
    confidences = _checks.confidence_array(confidences)
    features = _checks.features("features", features, confidences.size, vectors=False)
    _checks.same_kind("features", features, "the calibration features", params.features)
    values, totals = _local_accuracies(params, confidences, features)
    _checks.smoothing_weights(totals)
    if _checks.is_concrete(totals):
        warn_about_kept("local_recalibration", np.asarray(totals) == 0)
    return values


@jax.jit
def _local_accuracies(
    params: LocalAccuracies, confidences: jax.Array, features: Any
) -> tuple[jax.Array, jax.Array]:
    """New confidences, and sums of weights, which are zero where they are the old ones."""
    bins = interval_index(confidences, params.num_bins), params.bins
    means, totals = smoothed_means(
        params.kernel, features, params.features, params.correct[:, None], bins
    )
    accuracies = jnp.clip(means[0, :, 0], 0, 1).astype(confidences.dtype)  # rounding
    is_kept = (totals[0] == 0) | jnp.isnan(confidences)
    return jnp.where(is_kept, confidences, accuracies), totals[0]
