"""Calibration errors of class predictions in bins that do not depend on the data."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.binnings import MAX_BINS, UniformBins, interval_index
from calibjax.distances import Distance, TotalVariation
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import bare
from calibjax.estimators.binned import distances_of_means, means_of_sums, sums_in_bins
from calibjax.streaming.base import Accumulator, State, added, checked_batch, checked_number, zeros

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

    def init(self) -> State:
        """The state before any samples.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value, or there are too many bins.
        """
        shape = self._shape()
        counts = {"samples": (), "missing": (), "sizes": shape[:1]}
        return zeros(counts, {"labels": shape, "residuals": shape})

    def _shape(self) -> tuple[int, int]:
        """Number of bins and of classes."""
        if not isinstance(self.binning, UniformBins):
            raise TypeError(
                "binning: expected estimators.UniformBins, whose bins do not depend on the data, "
                f"got {checks.described(self.binning)}"
            )
        num_bins = checks.size_in_range("binning.num_bins", self.binning.num_bins, 1, MAX_BINS)
        if self.num_classes is None:
            return num_bins, 2
        num_classes = checks.size_in_range("num_classes", self.num_classes, 2, MAX_BINS)
        if num_classes * np.log2(num_bins) > np.log2(_MAX_CELLS):
            raise ValueError(
                f"num_classes: expected at most {_MAX_CELLS} bins num_bins^num_classes, got "
                f"{num_bins}^{num_classes}; look at the top label, or at each class, through a "
                "lens such as estimators.top_label"
            )
        return num_bins**num_classes, num_classes

    def _checked(self, name: str, state: object) -> State:
        """A state of this accumulator that some samples give."""
        checked = super()._checked(name, state)
        is_right = _is_consistent(checked)
        if checks.is_concrete(is_right) and not np.all(is_right):
            raise ValueError(
                f"{name}: expected counts of bins that add up to the number of samples, weights of "
                "their labels, and sums of residuals from -1 to 1 with these weights, got others"
            )
        return checked

    def update(
        self,
        state: State,
        predictions: ClassPredictions,
        targets: ArrayLike,
        *,
        weights: ArrayLike | None = None,
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
        self._shape()
        state = self._checked("state", state)
        checks.class_predictions(predictions)
        predictions, targets, weights = checked_batch(predictions, targets, weights)
        is_binary = isinstance(bare(predictions), Bernoulli)
        num_classes = None if is_binary else predictions.class_probs.shape[1]
        if num_classes != self.num_classes:
            expected = "binary predictions, Bernoulli (num_classes = None)"
            if self.num_classes is not None:
                expected = f"predictions of num_classes = {self.num_classes} classes"
            got = "binary ones" if num_classes is None else f"{num_classes} classes"
            raise ValueError(f"predictions: expected {expected}, got {got}")
        return _with_samples(
            state,
            predictions.class_probs,
            targets,
            weights,
            num_bins=self.binning.num_bins,
            is_binary=is_binary,
        )

    def result(self, state: State) -> BinnedErrors:
        """The errors and the bins.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of another accumulator, or of no samples.
        """
        state = self._checked("state", state)
        number = checked_number(state, 1, "at least 1 sample")
        is_whole = (number > 0) & (state.counts["missing"] == 0) & _is_consistent(state)
        residuals, labels = state.sums["residuals"].total(), state.sums["labels"].total()
        labels = jnp.where(is_whole, labels, jnp.nan)
        sizes = jnp.sum(labels, 1)
        means, proportions = means_of_sums(sizes, labels, residuals)
        distances = distances_of_means(sizes, means, proportions, self.distance)
        ece = jnp.sum(sizes * distances) / jnp.sum(sizes)
        counts = state.counts["sizes"]
        return BinnedErrors(ece, jnp.max(distances), counts, sizes, means, proportions)


@jax.jit
def _is_consistent(state: State) -> jax.Array:
    """Whether some samples give this state, up to rounding; states of several devices as well."""
    counts, residuals = state.counts, state.sums["residuals"].total()
    labels = state.sums["labels"].total()
    sizes = jnp.sum(labels, 1)
    num_seen = jnp.sum(counts["sizes"]) + counts["missing"]
    is_counted = jnp.all(labels >= 0) & jnp.all((sizes > 0) == (counts["sizes"] > 0))
    is_bounded = jnp.all(jnp.abs(residuals) <= 1.001 * sizes[:, None])
    is_bounded |= counts["missing"] > 0  # then they may be NaN
    return (num_seen == counts["samples"]) & is_counted & is_bounded


@functools.partial(jax.jit, static_argnames=("num_bins", "is_binary"))
def _with_samples(
    state: State,
    probs: jax.Array,
    targets: jax.Array,
    weights: jax.Array | None,
    *,
    num_bins: int,
    is_binary: bool,
) -> State:
    """The state after checked samples; traced ones that are out of range are missing."""
    num_cells = state.counts["sizes"].size
    shown = probs[:, 1:] if is_binary else probs
    powers = np.array([num_bins**k for k in reversed(range(shown.shape[1]))], np.int32)
    cells = jnp.sum(interval_index(shown, num_bins) * powers, 1)
    is_missing = checks.missing_rows((probs, targets, weights))
    is_used = jnp.ones(len(probs), bool) if weights is None else weights != 0
    cells = jnp.where(is_missing | ~is_used, num_cells, cells)  # which is in no bin
    sizes, labels, residuals = sums_in_bins(probs, targets, cells, num_cells, weights)
    if weights is not None:
        sizes = jnp.zeros(num_cells, jnp.int32).at[cells].add(1, mode="drop")
    counts = {"samples": jnp.sum(is_missing | is_used), "missing": jnp.sum(is_missing)}
    return added(state, {**counts, "sizes": sizes}, {"labels": labels, "residuals": residuals})
