"""Tensor products of kernels that both have features, and sums of these over a batch."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.compilation import jit
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw, draw_each
from calibjax.estimators.kernel import refuse_without_expectations
from calibjax.hypothesis_tests._redraw.features import sums_of_redraws
from calibjax.hypothesis_tests._redraw.pool import over_pool
from calibjax.kernels import Kernel, LowRank, TensorProduct
from calibjax.kernels.base import without_draws
from calibjax.kernels.expectations import features, prepare_features
from calibjax.streaming.base import State, checked_batch, zeros


class FeaturedProduct(NamedTuple):
    """A checked tensor product, both of whose factors have features.

    Attributes:
        kernel: the tensor product of a `LowRank` with its whitening and a target kernel.
        prepared: what the features of the target kernel need.
        landmarks: those of the kernel on predictions.
        shape: numbers of features of both kernels.
        dtype: dtype of the landmarks.
    """

    kernel: TensorProduct
    prepared: tuple
    landmarks: Distribution
    shape: tuple[int, int]
    dtype: DTypeLike

    def zeros(self, pool: tuple[int, ...], **others: tuple[int, ...]) -> State:
        """The state of a pool of data sets, with other counts than that of the samples."""
        counts = {"samples": (), **others}
        sums = {"features": (*pool, *self.shape), "diagonal": pool}
        return zeros(counts, {**sums, "weights": (), "squared weights": ()}, self.dtype)


@checks.remembered
def featured_product(kernel: Kernel, example_targets: ArrayLike | None) -> FeaturedProduct:
    """The features of a kernel, made for the range of its landmarks and of example targets."""
    if not checks.is_concrete(kernel, example_targets):
        raise ValueError(
            "kernel: expected landmarks and length scales that are known when compiling, got "
            "traced ones; accumulators are read by compiled functions from outside, and not "
            "handed to them"
        )
    with jax.ensure_compile_time_eval():  # the data may be traced
        kernel = checks.kernel_values(kernel)
        if not (isinstance(kernel, TensorProduct) and isinstance(kernel.prediction, LowRank)):
            prediction = kernel.prediction if isinstance(kernel, TensorProduct) else kernel
            raise TypeError(
                "kernel: expected TensorProduct(LowRank(kernel, landmarks), target kernel), with "
                f"kernels.LowRank, got {checks.described(prediction)}"
            )
        landmarks = checks.batch(kernel.prediction.landmarks, name="kernel.prediction.landmarks")
        refuse_without_expectations(kernel, landmarks)
        examples = _examples(landmarks, example_targets)
        prepared = prepare_features(kernel.target, *examples)
        if prepared is None:
            raise ValueError(
                f"kernel.target: expected a kernel with features for the landmarks "
                f"({checks.described(landmarks)}) and the example targets, got "
                f"{checks.described(kernel.target)}, which has none, or too many: a length scale "
                "that is too small for their range"
            )
        first = jax.tree.map(lambda leaf: leaf[0], examples)
        number = jax.eval_shape(functools.partial(features, kernel.target, prepared), *first).size
        factor = jax.eval_shape(kernel.prediction.factor, landmarks)
    return FeaturedProduct(kernel, prepared, landmarks, (factor.shape[1], number), factor.dtype)


def _examples(landmarks: Distribution, example_targets: Any) -> tuple[Distribution, PyTree]:
    """Landmarks with targets drawn from them, and with the examples."""
    checks.method("kernel.prediction.landmarks", landmarks, "sample")
    drawn = draw(jax.random.key(0), landmarks)
    if example_targets is None:
        return landmarks, drawn
    targets = checks.as_arrays("example_targets", example_targets)
    number = checks.leading_size("example_targets", targets)
    size = checks.leading_size("kernel.prediction.landmarks", landmarks)

    def repeated(leaf: jax.Array) -> jax.Array:
        return leaf[np.arange(number) % size]

    names = "example_predictions", "example_targets"
    _, targets = checks.predictions_and_targets(
        jax.tree.map(repeated, landmarks), targets, names=names
    )
    both = jax.tree.map(lambda x, y: jnp.concatenate([x, y.astype(x.dtype)]), drawn, targets)
    again = jax.tree.map(lambda leaf: leaf[np.arange(size + number) % size], landmarks)
    return again, both


def checked_samples(
    featured: FeaturedProduct, predictions: Distribution, targets: ArrayLike, weights: Any
) -> tuple[Distribution, jax.Array, jax.Array | None]:
    """A checked batch of the kind of the landmarks, with its weights."""
    predictions, targets, weights = checked_batch(predictions, targets, weights)
    refuse_without_expectations(featured.kernel, predictions)
    checks.same_kind(
        "predictions",
        without_draws(predictions),
        "kernel.prediction.landmarks",
        without_draws(featured.landmarks),
    )
    dtype = floating_dtype(predictions)
    if jnp.finfo(dtype).bits > jnp.finfo(featured.dtype).bits:
        raise ValueError(
            f"predictions: expected at most the precision of the landmarks, {featured.dtype}, got "
            f"{dtype}"
        )
    return predictions, targets, None if weights is None else weights.astype(featured.dtype)


def _factor(
    kernel: TensorProduct, predictions: Distribution, weights: jax.Array | None
) -> jax.Array:
    """Features of the predictions, times the weights of the samples, [n, r]."""
    assert isinstance(kernel.prediction, LowRank), "by the caller"
    factor = kernel.prediction.factor(predictions)
    return factor if weights is None else factor * weights[:, None]


@jit
def observed_sums(
    kernel: TensorProduct,
    prepared: tuple,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Sums of `SKCE` over a batch, [r, r_Y] and ()."""
    factor = _factor(kernel, predictions, weights)
    one = jax.tree.map(lambda y: y[None], targets)
    ((sums, diagonal),) = sums_of_redraws((kernel.target, prepared), [factor], predictions, one)
    return sums[0], diagonal[0]


@functools.partial(jit, static_argnames="batch_size")
def pool_of_sums(
    keys: jax.Array,
    kernel: TensorProduct,
    prepared: tuple,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    indices: jax.Array,
    *,
    batch_size: int,
) -> tuple[jax.Array, jax.Array]:
    """Sums over a batch of the observed targets and of redrawn ones, [B + 1, r, r_Y], [B + 1]."""
    factor = _factor(kernel, predictions, weights)

    def redraw(key: jax.Array) -> jax.Array:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, indices)
        return draw_each(keys, predictions)

    def evaluate(ys: jax.Array) -> tuple[jax.Array, jax.Array]:
        return sums_of_redraws((kernel.target, prepared), [factor], predictions, ys)[0]

    return over_pool(keys, redraw, evaluate, targets, batch_size)
