"""Sums over samples: means of numbers with standard errors, and calibration errors in bins."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.pytree import Numbers, record
from calibjax.binnings import UniformBins, interval_index
from calibjax.distances import Distance, TotalVariation
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.estimators.binned import distances_of_means, means_of_sums, sums_in_bins
from calibjax.scores.proper import per_sample
from calibjax.streaming.base import Accumulator, State, accumulating, added, enough, zeros

_SUMS = "weights", "values", "squared weights", "squared values", "products"


def without_numbers(count: str) -> State:
    """State before any numbers."""
    return zeros({count: ()}, dict.fromkeys(_SUMS, ()))


@jax.jit
def with_numbers(state: State, values: jax.Array, weights: jax.Array) -> State:
    """State with numbers x and weights w: Σ w, Σ w x, Σ w², Σ w² x², Σ w² x."""
    dtype = state.sums["values"].value.dtype
    x, w = values.astype(dtype), weights.astype(dtype)
    x = jnp.where(w == 0, 0, x)  # values of weight 0 may be infinite
    terms = w, w * x, w**2, (w * x) ** 2, w**2 * x
    sums = {name: jnp.sum(term) for name, term in zip(_SUMS, terms, strict=True)}
    (count,) = state.counts
    return added(state, {count: jnp.sum(w != 0)}, sums)


@jax.jit
def mean_and_error(state: State) -> tuple[jax.Array, jax.Array]:
    """Weighted mean and its standard error; NaN for a variance of rounding errors.

    μ = Σ w x / Σ w,    error² = n / (n − 1) Σ w² (x − μ)² / (Σ w)².
    """
    (number,) = state.counts.values()
    total = {name: x.total() for name, x in state.sums.items()}
    mean = total["values"] / total["weights"]
    of_mean = mean**2 * total["squared weights"]
    spread = total["squared values"] - 2 * mean * total["products"] + of_mean
    spread *= number / jnp.where(number > 1, number - 1, jnp.nan)
    largest = jnp.maximum(total["squared values"], of_mean)
    is_spread = spread > 100 * jnp.finfo(mean.dtype).eps * largest
    return mean, jnp.where(is_spread, jnp.sqrt(spread), jnp.nan) / total["weights"]


@record
class MeanEstimate:
    """Mean with its standard error.

    Attributes:
        value: the mean.
        standard_error: standard error of the mean; NaN for a single sample, or for numbers that are
            equal up to rounding.
    """

    value: jax.Array
    standard_error: jax.Array


@record
class MeanScore(Accumulator):
    """Mean of a score, or of any function of the samples, with its standard error.

        μ = Σ w_i x_i / Σ w_i,    error² = n / (n − 1) Σ w_i² (x_i − μ)² / (Σ w_i)²,

    the standard deviation over √n without weights. In float32 it is NaN for numbers x_i if their
    standard deviation is below about 1/400 of their mean. In that case subtract a number near the
    mean from the score.

    Attributes:
        score: function (predictions, targets) of a batch that returns the number x_i of each
            sample, [n]; or their mean, as the functions of `calibjax.scores`, which are then called
            on one sample at a time.

    The state has the count "samples" (of positive weight), and sums in JAX's default precision:
    "weights" (w), "values" (w x), "squared weights" (w²), "squared values" (w² x²) and "products"
    (w² x).

    Cost: the score; O(1) memory.

    References: none of the four papers has it.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, scores, streaming
    >>> accumulator = streaming.MeanScore(scores.negative_log_likelihood)
    >>> state = accumulator.init()
    >>> for probs, labels in (([0.5, 0.25], [1, 0]), ([0.5], [0])):
    ...     predictions = distributions.Bernoulli(jnp.array(probs))
    ...     state = accumulator.update(state, predictions, jnp.array(labels))
    >>> mean = accumulator.result(state)
    >>> print(f"{mean.value:.3f} ± {mean.standard_error:.3f}")  # of log 2, log 4/3, log 2
    0.558 ± 0.135
    """

    score: Callable[[Any, Any], Any] = dataclasses.field(metadata={"static": True})

    @accumulating()
    def init(self) -> State:
        """State before any samples."""
        return without_numbers("samples")

    @accumulating()
    def update(
        self,
        state: State,
        predictions: Distribution,
        targets: Numbers,
        *,
        weights: Numbers | None = None,
    ) -> State:
        """State after a batch of samples.

        Args:
            state: state of this accumulator.
            predictions: batch of n distributions.
            targets: [n] or [n, d].
            weights: w ≥ 0, [n]; one by default.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.
        """
        values = self._values(predictions, targets)
        return with_numbers(state, values, jnp.ones_like(values) if weights is None else weights)

    def _values(self, predictions: Distribution, targets: jax.Array) -> jax.Array:
        """Numbers of all samples, [n]; NaN for NaN samples."""
        name, n = "score(predictions, targets)", len(jax.tree.leaves(targets)[0])
        values = jnp.asarray(checks.real(name, self.score(predictions, targets)))
        if (mean := values).shape != (n,):
            checks.shape(name, mean, (), f"({n},), a number for each sample, or ()")
            values = per_sample(self.score, predictions, targets)
            error, size = jnp.abs(jnp.mean(values) - mean), jnp.mean(jnp.abs(values))
            if checks.is_concrete(error) and np.isfinite(size) and not error <= 1e-3 * size:
                expected = "a number for each sample, or their mean"
                raise ValueError(f"{name}: expected {expected}, got {mean}")
        return checks.nan_unless(~checks.missing_rows((predictions, targets)), values)

    @accumulating()
    def result(self, state: State) -> MeanEstimate:
        """The mean and its standard error.

        Raises:
            TypeError: if the state is of the wrong kind.
            ValueError: if the state belongs to another accumulator, or no sample has positive
                weight.
        """
        enough(state, 1, "at least 1 sample with a weight > 0")
        return MeanEstimate(*mean_and_error(state))


_TOTAL_VARIATION = TotalVariation()


@record
class BinnedErrors:
    """Calibration errors in bins, and the bins.

    Attributes:
        ece: expected calibration error, as from `estimators.ece`.
        mce: maximum calibration error, as from `estimators.mce`.
        counts: number of samples of positive weight in each bin, including empty bins, integers,
            [K].
        weights: sum of their weights, [K].
        means: mean predictions, [K, 2], uniform in empty bins. The second is the confidence of
            `estimators.reliability_curve`.
        proportions: proportions of the labels, [K, 2], uniform in empty bins. The second is the
            frequency of `estimators.reliability_curve`.
    """

    ece: jax.Array
    mce: jax.Array
    counts: jax.Array
    weights: jax.Array
    means: jax.Array
    proportions: jax.Array


@record
class CalibrationBins(Accumulator):
    """ECE, MCE and the bins of a reliability diagram, of probabilities in uniform bins.

    The results are those of `estimators.ece` and `estimators.mce` of `Bernoulli`s, and of
    `estimators.reliability_curve` without bands. Only `UniformBins` is supported: other binnings
    depend on all predictions.

    **For the usual ECE of several classes, pass the result of `estimators.top_label(predictions,
    targets)`** to `update`.

    Attributes:
        binning: `estimators.UniformBins(num_bins)`.
        distance: distance record d, as in `ece`.

    The state has the counts "samples" (of positive weight), "missing" (traced samples out of range)
    and "sizes" of the bins, [K]. Its sums, in JAX's default precision, are "labels" of the weights
    with each label, [K, 2], and "residuals" of w (p − e_y), [K, 2].

    Cost: O(n) time; O(K) memory for K bins.

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
    distance: Distance = _TOTAL_VARIATION

    @accumulating()
    def init(self) -> State:
        """State before any samples.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value.
        """
        counts = {"samples": (), "missing": (), "sizes": (self.binning.num_bins,)}
        shape = self.binning.num_bins, 2
        return zeros(counts, {"labels": shape, "residuals": shape})

    @accumulating(compiled=True)
    def update(
        self,
        state: State,
        predictions: Bernoulli,
        targets: Numbers,
        *,
        weights: Numbers | None = None,
    ) -> State:
        """State after a batch of samples.

        Args:
            state: state of this accumulator.
            predictions: batch of n `Bernoulli`s.
            targets: labels 0 and 1, [n].
            weights: w ≥ 0 of the samples, [n]; one by default.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.
        """
        probs, num_cells = predictions.class_probs, self.binning.num_bins
        cells = interval_index(probs[:, 1], num_cells)
        is_missing = checks.missing_rows((probs, targets, weights))  # traced values out of range
        is_used = jnp.ones(len(probs), bool) if weights is None else weights != 0
        cells = jnp.where(is_missing | ~is_used, num_cells, cells)  # in no bin
        sizes = jnp.zeros(num_cells, jnp.int32).at[cells].add(1, mode="drop")
        _, labels, residuals = sums_in_bins(probs, targets, cells, num_cells, weights)
        counts = {"samples": jnp.sum(is_missing | is_used), "missing": jnp.sum(is_missing)}
        return added(state, {**counts, "sizes": sizes}, {"labels": labels, "residuals": residuals})

    @accumulating()
    def result(self, state: State) -> BinnedErrors:
        """The errors and the bins.

        Raises:
            TypeError: if the state is of the wrong kind.
            ValueError: if the state belongs to another accumulator, or has no samples.
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
