"""Means of numbers with standard errors: scores, and block estimates of the SKCE."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions.base import Distribution
from calibjax.estimators.kernel import checked_samples, sample_pair
from calibjax.hypothesis_tests.intervals import ConfidenceInterval, asymptotic_interval
from calibjax.kernels import Kernel
from calibjax.streaming.base import Accumulator, State, added, checked_batch, checked_number, zeros

_SUMS = "weights", "values", "squared weights", "squared values", "products"


def _without_numbers(count: str) -> State:
    return zeros({count: ()}, dict.fromkeys(_SUMS, ()))


@jax.jit
def _with_numbers(state: State, values: jax.Array, weights: jax.Array) -> State:
    """The state with numbers x and weights w: Σ w, Σ w x, Σ w², Σ w² x², Σ w² x."""
    dtype = state.sums["values"].value.dtype
    x, w = values.astype(dtype), weights.astype(dtype)
    x = jnp.where(w == 0, 0, x)  # what has no weight may be infinite
    terms = w, w * x, w**2, (w * x) ** 2, w**2 * x
    sums = {name: jnp.sum(term) for name, term in zip(_SUMS, terms, strict=True)}
    (count,) = state.counts
    return added(state, {count: jnp.sum(w != 0)}, sums)


@jax.jit
def _mean_and_error(state: State) -> tuple[jax.Array, jax.Array]:
    """Weighted mean and its standard error; NaN where all is rounding.

    μ = Σ w x / Σ w,    error² = n / (n − 1) Σ w² (x − μ)² / (Σ w)².
    """
    (number,) = state.counts.values()
    total = {name: own.total() for name, own in state.sums.items()}
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

    def init(self) -> State:
        """The state before any samples."""
        return _without_numbers("samples")

    def update(
        self,
        state: State,
        predictions: Distribution,
        targets: ArrayLike,
        *,
        weights: ArrayLike | None = None,
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
        checks.function(
            "function (predictions, targets)", "score", self.score, "predictions", "targets"
        )
        state = self._checked("state", state)
        predictions, targets, weights = checked_batch(predictions, targets, weights, keep_logs=True)
        values = self._values(predictions, targets, checks.leading_size("targets", targets))
        return _with_numbers(state, values, jnp.ones_like(values) if weights is None else weights)

    def _values(self, predictions: Distribution, targets: jax.Array, n: int) -> jax.Array:
        """The numbers of all samples, [n]; NaN where a traced sample is."""
        name = "score(predictions, targets)"
        found = jnp.asarray(checks.real(name, self.score(predictions, targets)))
        if found.shape == (n,):
            values = found
        else:
            checks.shape(name, found, (), f"({n},), a number for each sample, or ()")

            def of_sample(sample: tuple[Any, Any]) -> jax.Array:
                one = jax.tree.map(lambda leaf: leaf[None], sample)
                return jnp.asarray(self.score(*one))

            values = jax.vmap(of_sample)((predictions, targets))
            self._refuse_other_mean(found, values)
        values = checks.floating(name, values)
        bad = checks.missing_rows((predictions, targets))
        values = checks.nan_unless(~bad, values)
        if checks.is_concrete(values):
            checks.refuse_where(np.isnan(values), name, "numbers", values)
        return values

    def _refuse_other_mean(self, mean: jax.Array, values: jax.Array) -> None:
        """Refuses functions of a batch that are not means over its samples."""
        if not checks.is_concrete(mean, values):
            return
        own, size = np.mean(values), np.mean(np.abs(values))
        if np.isfinite(size) and not np.abs(own - mean) <= 1e-3 * size:
            raise ValueError(
                "score(predictions, targets): expected a number for each sample, or their mean, "
                f"got {mean} for a batch whose samples have the mean {own}"
            )

    def result(self, state: State) -> MeanEstimate:
        """The mean and its standard error.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of another accumulator, or no sample has a weight.
        """
        state = self._checked("state", state)
        checked_number(state, 1, "at least 1 sample with a weight > 0")
        return MeanEstimate(*_mean_and_error(state))


@record
class BlockSKCE(Accumulator):
    """Block estimator of the squared kernel calibration error with its confidence interval.

        mean(η) ± z σ̂ / √m,    σ̂² = Σ_b (η_b − mean(η))² / (m − 1)

    with the unbiased estimates η of m blocks of B consecutive samples, for every kernel. It holds
    for calibrated and for uncalibrated models, if there are many blocks. The estimate is that of
    `estimators.skce_block`, and its ratio to the standard error the statistic of
    `hypothesis_tests.asymptotic_skce_test` with `null="blocks"`.

    Blocks do not extend over batches: every batch consists of whole blocks, whose order does not
    matter. Leave out the samples beyond at the end of the data.

    With weights η is the mean over the pairs of a block with weights w_i w_j, and the block has the
    weight Σ_{i<j} w_i w_j in mean and standard error, as in `MeanScore`.

    Attributes:
        kernel: kernel on pairs (prediction, target).
        block_size: B ≥ 2.
        confidence_level: in (0, 1).

    The state has the count "blocks" (those with a weight), and the sums of `MeanScore`. Blocks of
    samples that count equally have the weight one.

    Cost: n B / 2 evaluations of h; memory of a batch.

    References: W21 §3.2, Lemma 2, and Remark B.1.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, kernels, streaming
    >>> kernel = kernels.TensorProduct(kernels.Exponential(), kernels.White())
    >>> accumulator = streaming.BlockSKCE(kernel, block_size=2)
    >>> state = accumulator.init()
    >>> for labels in ([0, 0, 1, 0], [1, 0, 0, 0]):
    ...     predictions = distributions.Bernoulli(jnp.full(4, 0.75))
    ...     state = accumulator.update(state, predictions, jnp.array(labels))
    >>> interval = accumulator.result(state)
    >>> print(f"{interval.low:.2f} {interval.estimate:.2f} {interval.high:.2f}")
    -0.47 0.38 1.22
    """

    kernel: Kernel
    block_size: int = dataclasses.field(metadata={"static": True})
    confidence_level: float = 0.95

    def init(self) -> State:
        """The state before any samples."""
        return _without_numbers("blocks")

    def update(
        self,
        state: State,
        predictions: Distribution,
        targets: ArrayLike,
        *,
        weights: ArrayLike | None = None,
    ) -> State:
        """The state after a batch of whole blocks.

        Args:
            state: state of this accumulator.
            predictions: batch of n distributions, where n is a multiple of the block size.
            targets: [n] or [n, d].
            weights: w ≥ 0 of the samples, [n]; one by default.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.
            NotImplementedError: if the expectations have no closed form.
        """
        block_size = checks.size_in_range("block_size", self.block_size, 2)
        state = self._checked("state", state)
        checks.same_rows(predictions=predictions, targets=targets, weights=weights)
        kernel, samples = checked_samples(self.kernel, predictions, targets)
        n = checks.leading_size("targets", samples[1])
        if n % block_size:
            raise ValueError(
                f"predictions: expected a multiple of block_size = {block_size} samples, got {n}; "
                "hand over whole blocks, and leave out the rest at the end of the data"
            )
        if weights is not None:
            weights = checks.plain_weights(weights, n)
        data = kernel, samples, weights
        blocks = operators.block_means(sample_pair, *data, block_size=block_size)
        masses = jnp.ones_like(blocks)
        if weights is not None:
            number = block_size * (block_size - 1) / 2
            masses = operators.block_masses(weights, block_size=block_size) / number
        return _with_numbers(state, blocks, masses)

    def result(self, state: State) -> ConfidenceInterval:
        """The estimate with its interval.

        Raises:
            TypeError: if the state is not one.
            ValueError: if it is that of another accumulator or of fewer than two blocks, or all
                blocks are equal up to rounding (then the result under `jit` is NaN).
        """
        level = checks.proportion("confidence_level", self.confidence_level)
        state = self._checked("state", state)
        number = checked_number(state, 2, "at least 2 blocks with a weight > 0", count="blocks")
        estimate, error = _mean_and_error(state)
        if checks.is_concrete(error) and np.any(np.isnan(error) & ~np.isnan(estimate)):
            raise ValueError(
                f"state: expected block estimates that differ, got {number} blocks that are all "
                f"{estimate} up to rounding"
            )
        return asymptotic_interval(estimate, error, level)
