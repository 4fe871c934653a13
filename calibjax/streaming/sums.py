"""Means of numbers with standard errors, such as scores."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.pytree import Numbers, record
from calibjax.distributions.base import Distribution
from calibjax.streaming.base import Accumulator, State, accumulating, added, enough, zeros

_SUMS = "weights", "values", "squared weights", "squared values", "products"


def without_numbers(count: str) -> State:
    """The state before any numbers."""
    return zeros({count: ()}, dict.fromkeys(_SUMS, ()))


@jax.jit
def with_numbers(state: State, values: jax.Array, weights: jax.Array) -> State:
    """The state with numbers x and weights w: Σ w, Σ w x, Σ w², Σ w² x², Σ w² x."""
    dtype = state.sums["values"].value.dtype
    x, w = values.astype(dtype), weights.astype(dtype)
    x = jnp.where(w == 0, 0, x)  # what has no weight may be infinite
    terms = w, w * x, w**2, (w * x) ** 2, w**2 * x
    sums = {name: jnp.sum(term) for name, term in zip(_SUMS, terms, strict=True)}
    (count,) = state.counts
    return added(state, {count: jnp.sum(w != 0)}, sums)


@jax.jit
def mean_and_error(state: State) -> tuple[jax.Array, jax.Array]:
    """Weighted mean and its standard error; NaN where all is rounding.

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
    """A mean.

    Attributes:
        value: the mean.
        standard_error: its standard error; NaN of a single sample, and of numbers that are equal up
            to rounding.
    """

    value: jax.Array
    standard_error: jax.Array


@record
class MeanScore(Accumulator):
    """Mean of a score, or of any function of the samples, with its standard error.

        μ = Σ w_i x_i / Σ w_i,    error² = n / (n − 1) Σ w_i² (x_i − μ)² / (Σ w_i)²,

    which is the standard deviation over √n without weights. Sums of squares hold it only where the
    numbers do not agree in too many digits: in float32 it is NaN if they scatter by less than about
    a four-hundredth of their size. Then subtract a number near their mean from the score.

    Attributes:
        score: function (predictions, targets) of a batch that returns the number x_i of each
            sample, [n]; or their mean, as those of `calibjax.scores` do, which is then called on
            one sample at a time.

    The state has the count "samples" (those with a weight), and the sums of w, w x, w², w² x² and
    w² x, which are "weights", "values", "squared weights", "squared values" and "products". All are
    plain sums, in JAX's own floating-point precision.

    Cost: that of the score; O(1) memory.

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
        """The state before any samples."""
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
        """The state after a batch of samples.

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
        """The numbers of all samples, [n]; NaN where a traced sample is."""
        name, n = "score(predictions, targets)", len(jax.tree.leaves(targets)[0])
        values = jnp.asarray(checks.real(name, self.score(predictions, targets)))
        if values.shape != (n,):
            mean = values
            checks.shape(name, mean, (), f"({n},), a number for each sample, or ()")

            def of_sample(sample: tuple[Any, Any]) -> jax.Array:
                one = jax.tree.map(lambda leaf: leaf[None], sample)
                return jnp.asarray(self.score(*one))

            values = jax.vmap(of_sample)((predictions, targets))
            error, size = jnp.abs(jnp.mean(values) - mean), jnp.mean(jnp.abs(values))
            if checks.is_concrete(error) and np.isfinite(size) and not error <= 1e-3 * size:
                expected = "a number for each sample, or their mean"
                raise ValueError(f"{name}: expected {expected}, got {mean}")
        return checks.nan_unless(~checks.missing_rows((predictions, targets)), values)

    @accumulating()
    def result(self, state: State) -> MeanEstimate:
        """The mean and its standard error.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of another accumulator, or no sample has a weight.
        """
        enough(state, 1, "at least 1 sample with a weight > 0")
        return MeanEstimate(*mean_and_error(state))
