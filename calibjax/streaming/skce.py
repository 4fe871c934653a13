"""Squared kernel calibration error and its exact test, in one pass over batches."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.environment import default_batch_size
from calibjax._core.gate import Seen, group_ids, passed
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions.base import Distribution, check_draws, draw, draw_each
from calibjax.estimators.kernel import ready, refuse_without_expectations
from calibjax.hypothesis_tests.components import Statistic
from calibjax.hypothesis_tests.exact import result_of_pool
from calibjax.hypothesis_tests.intervals import ConfidenceInterval, asymptotic_interval
from calibjax.hypothesis_tests.redraws import as_means, over_pool, warn_of_members
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel, Nystrom, TensorProduct
from calibjax.kernels.base import without_draws
from calibjax.kernels.expectations import has_offsets, prepare_features
from calibjax.operators.kernel_matrix import LowRank
from calibjax.operators.plan import Featured, bytes_of_redraw, num_features, sample_pair
from calibjax.streaming.sums import (
    Accumulator,
    State,
    accumulating,
    added,
    enough,
    mean_and_error,
    with_numbers,
    without_numbers,
    zeros,
)


@dataclasses.dataclass(frozen=True)
class FeaturedProduct:
    """Checked tensor product whose sums over pairs follow from sums over samples.

    Attributes:
        kernel: tensor product of a `Nystrom` kernel, and a target kernel with features.
        prepared: data for the features of the target kernel.
        landmarks: landmarks of the kernel on predictions.
        shape: numbers of features of both kernels, r and r_Y.
        dtype: dtype of the features.
    """

    kernel: TensorProduct
    prepared: tuple
    landmarks: Distribution
    shape: tuple[int, int]
    dtype: DTypeLike

    def zeros(self, pool: tuple[int, ...], **others: tuple[int, ...]) -> State:
        """State of a pool of data sets, with further counts."""
        sums = {"features": (*pool, *self.shape), "diagonal": pool}
        sums |= {"weights": (), "squared weights": ()}
        return zeros({"samples": (), **others}, sums, self.dtype)

    def data(self, predictions: Distribution, targets: jax.Array, weights: Any) -> tuple:
        """Data for `sums_of_batch`; refuses predictions of another kind."""
        refuse_without_expectations(self.kernel, predictions)
        plain, landmarks = map(without_draws, (predictions, self.landmarks))
        checks.same_kind("predictions", plain, _LANDMARKS, landmarks)
        n = checks.leading_size("targets", targets)
        weights = jnp.ones(n, self.dtype) if weights is None else weights.astype(self.dtype)
        return self.kernel, self.prepared, predictions, weights


def _featured(accumulator: Any) -> FeaturedProduct:
    """Features of the kernel, for the range of the landmarks and of example targets."""
    kernel, example_targets = accumulator.kernel, accumulator.example_targets
    prediction = getattr(kernel, "prediction", None)
    if not isinstance(prediction, Nystrom) or not checks.is_concrete(kernel, example_targets):
        expected = "TensorProduct(Nystrom(kernel, landmarks), target kernel) without traced values"
        raise TypeError(f"kernel: expected {expected}, got {checks.described(kernel)}")
    with jax.ensure_compile_time_eval():  # the data may be traced
        landmarks = checks.batch(prediction.landmarks, name=_LANDMARKS)
        refuse_without_expectations(kernel, landmarks)
        data = _examples(landmarks, example_targets)
        prepared = prepare_features(kernel.target, *data)
        if prepared is None or has_offsets(kernel.target, landmarks):
            expected = "a kernel with few features for the range of landmarks and example targets"
            raise ValueError(f"kernel.target: expected {expected}, got {kernel.target}")
        factor = jax.eval_shape(prediction.factor, landmarks)
    shape = factor.shape[1], num_features(kernel.target, prepared, *data)
    return FeaturedProduct(kernel, prepared, landmarks, shape, factor.dtype)


_LANDMARKS = "kernel.prediction.landmarks"


def _examples(landmarks: Distribution, example_targets: Any) -> tuple[Any, ...]:
    """Landmarks, repeated if necessary, with targets drawn from them and with example targets."""
    checks.method(_LANDMARKS, landmarks, "sample")
    targets = drawn = draw(jax.random.key(0), landmarks)
    if example_targets is not None:
        targets = np.concatenate([drawn, np.asarray(example_targets, drawn.dtype)])
    rows = np.arange(len(targets)) % len(drawn)
    return passed(predictions=jax.tree.map(lambda leaf: leaf[rows], landmarks), targets=targets)


@functools.partial(jax.jit, static_argnames="batch_size")
def sums_of_batch(
    data: tuple,
    targets: PyTree,
    indices: jax.Array | None = None,
    keys: jax.Array | None = None,
    batch_size: int = 1,
) -> dict[str, Any]:
    """Sums of the state after a batch, or of a pool with redrawn targets.

    Args:
        data: kernel, data for its features, predictions and weights.
        targets: of the batch, [n, ...].
        indices: of the samples, [n].
        keys: of the redraws, [B].
        batch_size: number of redraws at once.
    """
    if keys is None:
        one = _evaluated((data, indices), jax.tree.map(lambda y: y[None], targets))
        sums = jax.tree.map(lambda x: x[0], one)
    else:
        sums = over_pool(keys, _redrawn, _evaluated, (data, indices), targets, batch_size)
    weights = data[-1]
    return sums | {"weights": jnp.sum(weights), "squared weights": jnp.sum(jnp.square(weights))}


def _evaluated(numbered: tuple, targets: PyTree) -> dict[str, jax.Array]:
    """Sums for several sets of targets."""
    (kernel, prepared, predictions, weights), _ = numbered
    operator = LowRank(kernel.prediction.factor(predictions))
    featured = Featured(kernel.target, prepared, (operator,))
    sums, diagonal = featured.outer_sums(operator, predictions, targets, weights)
    return {"features": sums, "diagonal": diagonal}


def _redrawn(numbered: tuple, key: jax.Array) -> PyTree:
    """Targets drawn with the numbers of their indices."""
    (*_, predictions, _), indices = numbered
    return draw_each(jax.vmap(jax.random.fold_in, (None, 0))(key, indices), predictions)


@record
class SKCEEstimate:
    """Estimates of the squared kernel calibration error.

    Attributes:
        unbiased: `estimators.skce`.
        biased: `estimators.skce_biased`.
    """

    unbiased: jax.Array
    biased: jax.Array


@record
class SKCE(Accumulator):
    """Squared kernel calibration error in one pass, for a kernel with features.

        Σ_{i,j} h((p_i, y_i), (p_j, y_j)) = ‖Σ_i φ(p_i) ⊗ f(p_i, y_i)‖²

    with the features φ of `kernels.Nystrom` and the features f of the centered target kernel, so
    the state consists of sums over the samples. The estimates are those of `estimators.skce` and
    `estimators.skce_biased`.

    With a `block_size` it is the block estimator, for every kernel, with its confidence interval

        mean(η) ± z σ̂ / √m,    σ̂² = Σ_b (η_b − mean(η))² / (m − 1)

    from the unbiased estimates η of m blocks of consecutive samples. It is valid for calibrated and
    for uncalibrated models, if there are many blocks. The estimate is that of
    `estimators.skce_block`. Every batch has to consist of whole blocks, in any order; leave out an
    incomplete last block. With weights, η is the mean over the pairs of a block with weights w_i
    w_j, and the block has the weight Σ_{i<j} w_i w_j, as in `MeanScore`.

    The features of some target kernels depend on the range of the targets: that of the landmarks'
    targets (five standard deviations for normal predictions) and of `example_targets`. Outside this
    range the features are no longer those of the kernel: for normal predictions they repeat, for
    counts they are zero. The estimate remains unbiased for the changed kernel, and `ExactSKCETest`
    exact.

    Attributes:
        kernel: `TensorProduct(Nystrom(kernel, landmarks), target kernel)` with concrete values;
            with blocks any kernel on pairs (prediction, target).
        example_targets: possible targets, including the smallest and the largest. None if the range
            of the landmarks' predictions is enough, or with blocks.
        block_size: number of samples of a block, ≥ 2; None for all pairs.
        confidence_level: of the interval with blocks, in (0, 1).

    The state has one count, "samples" (of positive weight), and the sums "features", [r, r_Y],
    "diagonal", "weights" and "squared weights", (). With blocks it is a state of `MeanScore`, whose
    samples are the blocks.

    Cost: n r r_Y multiplications and n r_Y features; O(r r_Y) memory. With blocks of B samples
    n B / 2 evaluations of h, and the memory of a batch.

    References: W21 Lemma 1 and 2 for the estimates, §3.2 and Remark B.1 for blocks.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances, distributions, kernels, streaming
    >>> smooth = kernels.SquaredExponential(0.5, distances.TotalVariation())
    >>> landmarks = distributions.Bernoulli(jnp.array([0.1, 0.5, 0.9]))
    >>> kernel = kernels.TensorProduct(kernels.Nystrom(smooth, landmarks), kernels.White())
    >>> accumulator = streaming.SKCE(kernel)
    >>> state = accumulator.init()
    >>> for probs, labels in (([0.1, 0.3, 0.6], [0, 1, 1]), ([0.4, 0.8], [0, 0])):
    ...     predictions = distributions.Bernoulli(jnp.array(probs))
    ...     state = accumulator.update(state, predictions, jnp.array(labels))
    >>> print(f"{accumulator.result(state).unbiased:.4f}")
    -0.1231
    """

    kernel: Kernel
    example_targets: Numbers | None = None
    block_size: int | None = dataclasses.field(default=None, metadata={"static": True})
    confidence_level: float = 0.95

    @accumulating()
    def init(self) -> State:
        """State before any samples.

        Raises:
            TypeError: if the kernel or an example target is of the wrong kind.
            ValueError: if they have wrong values, or the target kernel has no features.
        """
        return _featured(self).zeros(()) if self.block_size is None else without_numbers()

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
            predictions: batch of n distributions of the landmarks' kind, in whole blocks.
            targets: [n] or [n, d].
            weights: w ≥ 0 of the samples, [n]; one by default.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.
            NotImplementedError: if the expectations have no closed form.
        """
        if self.block_size is not None:
            data = self.kernel, predictions, targets, weights
            return with_numbers(state, *_blocks(self.block_size, *data))
        data = _featured(self).data(predictions, targets, weights)
        return added(state, {"samples": jnp.sum(data[-1] != 0)}, sums_of_batch(data, targets))

    @accumulating()
    def result(self, state: State) -> SKCEEstimate | ConfidenceInterval:
        """The estimates, or with blocks the estimate with its interval.

        Raises:
            TypeError: if the state is of the wrong kind.
            ValueError: if the state belongs to another accumulator, or has fewer than two samples
                or blocks. If all blocks are equal up to rounding, the interval is NaN.
        """
        if self.block_size is not None:
            enough(state.counts["samples"], 2, "at least 2 blocks with a weight > 0")
            return asymptotic_interval(*mean_and_error(state), jnp.asarray(self.confidence_level))
        is_enough = enough(state.counts["samples"], 2, "at least 2 samples with a weight > 0")
        n, unbiased, diagonal = _means(state)
        unbiased = jnp.where(is_enough, unbiased, jnp.nan)
        return SKCEEstimate(unbiased, (diagonal + (n - 1) * unbiased) / n)


def _indices(name: str, indices: Any, seen: Seen) -> jax.Array:
    indices = group_ids(name, indices, seen.number(name), kind="number")
    seen["predictions"] = checks.nan_rows(indices < 0, seen["predictions"])
    return indices


@record
class ExactSKCETest(Accumulator):
    """Exact test of calibration with the SKCE in one pass, for a kernel with features.

    It is `hypothesis_tests.exact_skce_test` for data in batches: it computes the `SKCE` of the
    observed targets and of B redrawn sets of targets y_i ~ p_i in the same pass. Redraws are seeded
    by the key and the *index* of a sample. So p-value and estimates do not depend on the sizes and
    the order of the batches, nor on the merging of states. With JAX's default random numbers they
    are those of `exact_skce_test` with the same key.

    Every sample needs an index of its own, or the test is not exact, because samples with the same
    index get the same random numbers. By default a state numbers its samples from zero. If batches
    are shuffled or spread over several states, pass `indices`, the numbers of the samples in the
    data set, with every batch. The result of merged states that both number their samples from zero
    is refused; other duplicate indices are not detected.

    States may be merged, in any order, if they have the same key, kernel (including landmarks and
    length scales), number of redraws, precision and implementation of random numbers, and no common
    index. Only the shapes and the precision are checked.

    Attributes:
        key: a JAX random key, the same for all states to be merged.
        kernel: as in `SKCE`.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        statistic: the statistic to rank, as in `exact_skce_test`.
        example_targets: as in `SKCE`.

    The state has the counts "samples", "used" (of positive weight) and "zeros" (of index zero); and
    the sums "features", [B + 1, r, r_Y], "diagonal", [B + 1], "weights" and "squared weights", ().

    Cost: B n r r_Y multiplications and B n r_Y features; O(B r r_Y) memory, plus a batch.

    References: see `hypothesis_tests.exact_skce_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, kernels, streaming
    >>> smooth = kernels.SquaredExponential(1.0, distances.Wasserstein())
    >>> landmarks = distributions.Normal(jnp.linspace(-2.0, 2.0, 5), jnp.ones(5))
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Nystrom(smooth, landmarks), kernels.SquaredExponential(1.0)
    ... )
    >>> test = streaming.ExactSKCETest(jax.random.key(0), kernel, num_draws=99)
    >>> state = test.init()
    >>> for seed in range(4):
    ...     loc, noise = jax.random.normal(jax.random.key(seed), (2, 25))
    ...     predictions = distributions.Normal(loc, jnp.ones(25))
    ...     state = test.update(state, predictions, loc + 0.5 * noise)  # half the predicted spread
    >>> print(test.result(state))
    CalibrationTestResult(pvalue=0.01 ± 0.01, statistic=5.88, estimate=0.0168, 99 targets ...
      biased      wrong means, or too narrow            unadjusted p = 0.01    z = +3.7
      unbiased    errors shared by similar predictions  unadjusted p = 0.01    z = +3.9
      dispersion  targets scatter less: underconfident  unadjusted p = 0.01    z = -5.9 <- largest
    """

    key: jax.Array
    kernel: Kernel
    num_draws: int = dataclasses.field(default=999, metadata={"static": True})
    statistic: Statistic = dataclasses.field(default="omnibus", metadata={"static": True})
    example_targets: Numbers | None = None

    @accumulating()
    def init(self) -> State:
        """State before any samples.

        Raises:
            TypeError: if an attribute is of the wrong kind.
            ValueError: if it has a wrong value, or the target kernel has no features.
        """
        return _featured(self).zeros((self.num_draws + 1,), used=(), zeros=())

    @accumulating(indices=_indices)
    def update(
        self,
        state: State,
        predictions: Distribution,
        targets: Numbers,
        *,
        weights: Numbers | None = None,
        indices: Numbers | None = None,
    ) -> State:
        """State after a batch of samples.

        Args:
            state: state of this accumulator.
            predictions: batch of n distributions, of the landmarks' kind.
            targets: [n] or [n, d].
            weights: w ≥ 0 of the samples, [n], which all redraws keep; one by default. Samples of
                weight 0 also have an index.
            indices: numbers of the samples, different integers ≥ 0, [n]. By default they continue
                the number of samples in the state. Pass indices with every batch, or with none.

        Returns:
            The new state.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong.
        """
        featured = _featured(self)
        data = featured.data(predictions, targets, weights)
        check_draws(predictions, targets)
        warn_of_members(predictions)
        n = len(data[-1])
        if indices is None:
            indices = state.counts["samples"] + jnp.arange(n, dtype=jnp.int32)
        keys = jax.random.split(self.key, self.num_draws)
        size = default_batch_size(bytes_of_redraw(n, featured.shape[1], in_blocks=True))
        sums = sums_of_batch(data, targets, indices, keys, size)
        counts = {"used": jnp.sum(data[-1] != 0), "zeros": jnp.sum(indices == 0)}
        return added(state, {"samples": n, **counts}, sums)

    @accumulating()
    def result(self, state: State) -> CalibrationTestResult:
        """Result of `exact_skce_test` for all samples so far.

        Raises:
            TypeError: if the state is of the wrong kind.
            ValueError: if the state belongs to another accumulator or has fewer than two samples,
                or if the index zero occurred twice.
        """
        is_enough = enough(state.counts["used"], 2, "at least 2 samples with a weight > 0")
        zeros = state.counts["zeros"]
        if checks.is_concrete(zeros) and np.any(np.asarray(zeros) > 1):
            got = f"{zeros} of index 0; give indices to update if states are merged"
            raise ValueError(f"state: expected samples of different indices, got {got}")
        n, *parts = _means(state)
        is_valid = is_enough & (zeros <= 1)
        unbiased, diagonal = (jnp.where(is_valid, part, jnp.nan) for part in parts)
        return result_of_pool(unbiased, diagonal, num_targets=n, statistic=self.statistic)


def _blocks(
    block_size: int, kernel: Kernel, predictions: Distribution, targets: jax.Array, weights: Any
) -> tuple[jax.Array, jax.Array]:
    """Unbiased estimates of the blocks of a batch, and their weights."""
    kernel, *samples = ready(kernel, predictions, targets)
    if (n := len(jax.tree.leaves(targets)[0])) % block_size:
        got = f"{n}; leave out an incomplete last block"
        raise ValueError(f"predictions: expected whole blocks of {block_size} samples, got {got}")
    data = kernel, tuple(samples), weights
    blocks = operators.block_means(sample_pair, *data, block_size=block_size)
    each = jnp.ones(n, blocks.dtype) if weights is None else weights
    return blocks, operators.block_masses(each, block_size=block_size)


@jax.jit
def _means(state: State) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Effective number of samples, and means of h over the pairs i ≠ j and over i = j.

    Weights are scaled to this sum.
    """
    total = {name: x.total() for name, x in state.sums.items()}
    unit = total["weights"] / total["squared weights"]
    number, diagonal = unit * total["weights"], jnp.square(unit) * total["diagonal"]
    squares = jnp.sum(jnp.square(unit * total["features"]), (-2, -1))
    return number, *as_means(number, squares - diagonal, diagonal)
