"""Calibration errors of class predictions in bins that do not depend on the data."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.pytree import Numbers, record
from calibjax.binnings import MAX_BINS, UniformBins, interval_index
from calibjax.distances import Distance, TotalVariation
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import bare
from calibjax.estimators.binned import distances_of_means, means_of_sums, sums_in_bins
from calibjax.streaming.base import Accumulator, State, accumulating, added, enough, zeros

_MAX_CELLS = 2**22
_TOTAL_VARIATION = TotalVariation()


@record
class BinnedErrors:
    """Calibration errors in bins, and the bins.

    Attributes:
        ece: expected calibration error, as of `estimators.ece`.
        mce: maximum calibration error, as of `estimators.mce`.
        counts: number of samples with a weight in each bin, integers, [K]; empty bins are included.
        weights: sum of their weights, [K].
        means: mean predictions, [K, m]; of m = 2 classes the second is the probability of label 1,
            the confidence of `estimators.reliability_curve`. Uniform in empty bins.
        proportions: proportions of the labels, [K, m]; the second is the frequency there. Uniform
            in empty bins.
    """

    ece: jax.Array
    mce: jax.Array
    counts: jax.Array
    weights: jax.Array
    means: jax.Array
    proportions: jax.Array


@record
class CalibrationBins(Accumulator):
    """ECE, MCE and the bins of a reliability diagram, of class predictions in uniform bins.

    The results are those of `estimators.ece` and `estimators.mce` with `notion="canonical"`, and of
    `estimators.reliability_curve` without bands, with `UniformBins`, whose intervals do not depend
    on the data. Other binnings do, and need all predictions at once.

    The m classes are binned jointly, in num_bins^m bins. **For the usual ECE, pass the result of
    `estimators.top_label(predictions, targets)`** to `update`.

    Attributes:
        binning: `estimators.UniformBins(num_bins)`.
        num_classes: m, for `Categorical` predictions; None for binary ones, `Bernoulli`, and for
            what `top_label` returns.
        distance: distance record d, as in `ece`.

    The state has the counts "samples" (those with a weight), "missing" (traced samples that are out
    of range) and "sizes" of the bins, [K]; and the sums "labels" of the weights with each label,
    [K, m], and "residuals" of w (p − e_y), [K, m]. All are plain sums, in JAX's own floating-point
    precision.

    Cost: O(n m) time; O(K m) memory, for K = num_bins, or num_bins^m, bins.

    References: see `estimators.ece`.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, estimators, streaming
    >>> accumulator = streaming.CalibrationBins(estimators.UniformBins(2))
    >>> state = accumulator.init()
    >>> for probs, label in (([0.75, 0.25, 0.0], 0), ([0.75, 0.0, 0.25], 1)):
    ...     predictions = distributions.Categorical(jnp.array([probs]))
    ...     data = estimators.top_label(predictions, jnp.array([label]))
    ...     state = accumulator.update(state, *data)
    >>> errors = accumulator.result(state)
    >>> print(errors.ece, errors.counts)
    0.25 [0 2]
    """

    binning: UniformBins
    num_classes: int | None = dataclasses.field(default=None, metadata={"static": True})
    distance: Distance = _TOTAL_VARIATION

    @accumulating()
    def init(self) -> State:
        """The state before any samples.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value, or there are too many bins.
        """
        num_bins = checks.size_in_range("binning.num_bins", self.binning.num_bins, 1, MAX_BINS)
        num_classes = self.num_classes or 1  # that are binned
        if num_classes > 1 and num_classes * np.log2(num_bins) > np.log2(_MAX_CELLS):
            expected = f"at most {_MAX_CELLS} bins, num_bins^num_classes"
            raise ValueError(f"num_classes: expected {expected}, got {num_bins}^{num_classes}")
        shape = num_bins**num_classes, max(num_classes, 2)
        counts = {"samples": (), "missing": (), "sizes": shape[:1]}
        return zeros(counts, {"labels": shape, "residuals": shape})

    @accumulating(compiled=True)
    def update(
        self,
        state: State,
        predictions: ClassPredictions,
        targets: Numbers,
        *,
        weights: Numbers | None = None,
    ) -> State:
        """The state after a batch of samples.

        Args:
            state: state of this accumulator.
            predictions: batch of n class predictions.
            targets: labels 0, ..., m − 1, [n].
            weights: w ≥ 0 of the samples, [n]; one by default.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.
        """
        is_binary, probs = isinstance(bare(predictions), Bernoulli), predictions.class_probs
        num_classes = None if is_binary else probs.shape[1]
        if num_classes != self.num_classes:
            got = f"{num_classes}; None is for Bernoulli, as estimators.top_label returns it"
            raise ValueError(f"predictions: expected num_classes = {self.num_classes}, got {got}")
        num_bins, num_cells = self.binning.num_bins, state.counts["sizes"].size
        shown = probs[:, 1:] if is_binary else probs
        powers = np.array([num_bins**k for k in reversed(range(shown.shape[1]))], np.int32)
        cells = jnp.sum(interval_index(shown, num_bins) * powers, 1)
        is_missing = checks.missing_rows((probs, targets, weights))  # traced, and out of range
        is_used = jnp.ones(len(probs), bool) if weights is None else weights != 0
        cells = jnp.where(is_missing | ~is_used, num_cells, cells)  # which is in no bin
        sizes, labels, residuals = sums_in_bins(probs, targets, cells, num_cells, weights)
        if weights is not None:
            sizes = jnp.zeros(num_cells, jnp.int32).at[cells].add(1, mode="drop")
        counts = {"samples": jnp.sum(is_missing | is_used), "missing": jnp.sum(is_missing)}
        return added(state, {**counts, "sizes": sizes}, {"labels": labels, "residuals": residuals})

    @accumulating()
    def result(self, state: State) -> BinnedErrors:
        """The errors and the bins.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of another accumulator, or of no samples.
        """
        counts = state.counts["sizes"]
        is_whole = enough(state, 1, "at least 1 sample") & (state.counts["missing"] == 0)
        is_whole &= jnp.all(counts >= 0)
        residuals, labels = state.sums["residuals"].total(), state.sums["labels"].total()
        labels = jnp.where(is_whole, labels, jnp.nan)
        sizes = jnp.sum(labels, 1)
        means, proportions = means_of_sums(sizes, labels, residuals)
        distances = distances_of_means(sizes, means, proportions, self.distance)
        ece = jnp.sum(sizes * distances) / jnp.sum(sizes)
        return BinnedErrors(ece, jnp.max(distances), counts, sizes, means, proportions)
