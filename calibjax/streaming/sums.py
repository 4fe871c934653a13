"""Sums over samples: states that can be merged, means with errors, calibration errors in bins."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.gate import Seen, argument, checked, fields_checked, inner, plain_weights
from calibjax._core.pytree import Numbers, record
from calibjax.binnings import UniformBins, interval_index
from calibjax.distances import Distance, TotalVariation
from calibjax.distributions import Bernoulli
from calibjax.distributions.base import Distribution
from calibjax.estimators.binned import distances_of_means, means_of_sums, sums_in_bins
from calibjax.operators import tiles
from calibjax.scores.proper import per_sample


@record
class Sum:
    """Compensated sum: long sums lose no digits.

    Attributes:
        value: rounded sum.
        lost: sum of the rounding errors.
    """

    value: jax.Array
    lost: jax.Array

    def plus(self, term: jax.Array, lost: jax.Array | float = 0) -> "Sum":
        """Sum with another term, or with another sum and its rounding errors."""
        value, cut = tiles.add((self.value, self.lost), jnp.asarray(term, self.value.dtype))
        # ∞ − ∞ is not a rounding error.
        return Sum(value, jnp.where(jnp.isfinite(value), cut, 0) + lost)

    def total(self) -> jax.Array:
        """The sum."""
        return self.value + self.lost


@record
class State:
    """State of an accumulator, a pytree of arrays of fixed shapes.

    All leaves are sums over the samples: merge the states of several devices by
    `jax.lax.psum(state, axis_name)`, and others by `Accumulator.merge`, in any order.

    Attributes:
        counts: integers, by name.
        sums: floating-point `Sum`s, by name.
    """

    counts: dict[str, jax.Array]
    sums: dict[str, Sum]


def zeros(counts: dict[str, tuple[int, ...]], sums: dict[str, Any], dtype: Any = float) -> State:
    """State before any samples, with counts and sums of these shapes."""
    integers = {name: jnp.zeros(shape, jnp.int32) for name, shape in counts.items()}
    return State(integers, {k: Sum(*[jnp.zeros(x, dtype)] * 2) for k, x in sums.items()})


@jax.jit
def added(state: State, counts: dict[str, Any], sums: dict[str, jax.Array]) -> State:
    """State with the counts and sums of further samples."""
    integers = {k: x + jnp.asarray(counts[k], jnp.int32) for k, x in state.counts.items()}
    return State(integers, {k: x.plus(sums[k]) for k, x in state.sums.items()})


@argument("state")
def checked_state(name: str, state: Any, seen: Seen) -> Any:
    """State with the structure, shapes and dtypes of this accumulator, as JAX arrays."""
    accumulator = seen.before(name, "self")
    state = checks.as_arrays(name, state)
    expected = jax.eval_shape(lambda: inner(type(accumulator).init)(accumulator))
    shapes = [jax.tree.map(lambda x: f"{x.dtype}{x.shape}", tree) for tree in (expected, state)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"{name}: expected a state of this accumulator, got one of another")
    return state


def _plain_weights(name: str, weights: Any, seen: Seen) -> Any:
    return plain_weights(name, weights, seen.number(name))


# `checked` for methods of accumulators, which add weights without scaling.
accumulating = functools.partial(checked, self=fields_checked, weights=_plain_weights)


class Accumulator:
    """Base class of accumulators: results from batches, as from all data at once.

    An accumulator is a record of its configuration. Its state is never changed but replaced:

        state = accumulator.init()
        for predictions, targets in batches:
            state = accumulator.update(state, predictions, targets)
        result = accumulator.result(state)

    All of them take `weights` of the samples of a batch, ones by default. Results do not depend on
    the scale of weights, unless their squares overflow or underflow. Integer weights are numbers of
    copies where they are for all data at once.

    `update`, `merge` and `result` are pure functions of arrays, for `jit`, `vmap` and `lax.scan`.
    Subclasses define `init`, `update` and `result`.
    """

    @accumulating(a=checked_state, b=checked_state, compiled=True)
    def merge(self, a: State, b: State) -> State:
        """State after the samples of two states, in either order.

        Args:
            a: state of this accumulator.
            b: state of this accumulator after other samples.

        Returns:
            The merged state.

        Raises:
            TypeError: if an argument is not a state.
            ValueError: if the shapes of a state are not those of this accumulator.

        Cost: an addition.
        """
        sums = {name: x.plus(*vars(b.sums[name]).values()) for name, x in a.sums.items()}
        return State(jax.tree.map(jnp.add, a.counts, b.counts), sums)


def enough(number: jax.Array, minimum: int, expected: str) -> jax.Array:
    """Whether a state has at least this number of samples; traced states without become NaN.

    Raises:
        ValueError: if there are fewer than the minimum, described by `expected`, or more than 32
            bits can count.
    """
    if checks.is_concrete(number) and np.any(np.asarray(number) < minimum):
        got = "more than 2³¹ - 1" if np.min(number) < 0 else np.min(number)
        raise ValueError(f"state: expected {expected}, got {got}")
    return number >= minimum


_SUMS = "weights", "values", "squared weights", "squared values", "products"


def without_numbers() -> State:
    """State before any numbers."""
    return zeros({"samples": ()}, dict.fromkeys(_SUMS, ()))


@jax.jit
def with_numbers(state: State, values: jax.Array, weights: jax.Array) -> State:
    """State with numbers x and weights w: Σ w, Σ w x, Σ w², Σ w² x², Σ w² x."""
    dtype = state.sums["values"].value.dtype
    x, w = values.astype(dtype), weights.astype(dtype)
    x = jnp.where(w == 0, 0, x)  # values of weight 0 may be infinite
    terms = w, w * x, w**2, (w * x) ** 2, w**2 * x
    sums = {name: jnp.sum(term) for name, term in zip(_SUMS, terms, strict=True)}
    return added(state, {"samples": jnp.sum(w != 0)}, sums)


@jax.jit
def mean_and_error(state: State) -> tuple[jax.Array, jax.Array]:
    """Weighted mean and its standard error; NaN for a variance of rounding errors.

    μ = Σ w x / Σ w,    error² = n / (n − 1) Σ w² (x − μ)² / (Σ w)².
    """
    number = state.counts["samples"]
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
        return without_numbers()

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
        values = mean = jnp.asarray(checks.real(name, self.score(predictions, targets)))
        if mean.shape != (n,):
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
        enough(state.counts["samples"], 1, "at least 1 sample with a weight > 0")
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

    The state has the counts "sizes" (samples of positive weight in each bin), [K]. Its sums, in
    JAX's default precision, are "labels" of the weights with each label, [K, 2], and "residuals" of
    w (p − e_y), [K, 2]. They become NaN by traced samples out of range.

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
        shape = self.binning.num_bins, 2
        return zeros({"sizes": shape[:1]}, {"labels": shape, "residuals": shape})

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
        is_used = jnp.ones(len(probs), bool) if weights is None else weights != 0
        sizes = jnp.zeros(num_cells, jnp.int32).at[cells].add(is_used)
        _, *sums = sums_in_bins(probs, targets, cells, num_cells, weights)
        labels, residuals = checks.nan_with(sums, probs, targets, weights)
        return added(state, {"sizes": sizes}, {"labels": labels, "residuals": residuals})

    @accumulating()
    def result(self, state: State) -> BinnedErrors:
        """The errors and the bins.

        Raises:
            TypeError: if the state is of the wrong kind.
            ValueError: if the state belongs to another accumulator, or has no samples.
        """
        counts = state.counts["sizes"]
        is_whole = enough(jnp.sum(counts), 1, "at least 1 sample")
        residuals, labels = state.sums["residuals"].total(), state.sums["labels"].total()
        labels = jnp.where(is_whole, labels, jnp.nan)
        sizes = jnp.sum(labels, 1)
        means, proportions = means_of_sums(sizes, labels, residuals)
        distances = distances_of_means(sizes, means, proportions, self.distance)
        ece = jnp.sum(sizes * distances) / jnp.sum(sizes)
        return BinnedErrors(ece, jnp.max(distances), counts, sizes, means, proportions)
