"""Tensor products of kernels that both have features, and their sums."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import draw, draw_each
from calibjax.estimators.kernel import refuse_without_expectations
from calibjax.hypothesis_tests._redraw.features import sums_of_redraws
from calibjax.hypothesis_tests._redraw.pool import over_pool
from calibjax.kernels import Kernel, Nystrom, TensorProduct
from calibjax.kernels.base import without_draws
from calibjax.kernels.expectations import features, prepare_features
from calibjax.streaming.base import State, added, checked_batch, zeros


@dataclasses.dataclass(frozen=True)
class FeaturedProduct:
    """A checked tensor product whose sums over the pairs of samples follow from sums over these.

    Attributes:
        kernel: the tensor product of a `Nystrom` kernel with its whitening, and a target kernel
            with features.
        prepared: what the features of the target kernel need.
        landmarks: those of the kernel on predictions.
        shape: numbers of features of both kernels, r and r_Y.
        dtype: dtype of the features.
    """

    kernel: TensorProduct
    prepared: tuple
    landmarks: Distribution
    shape: tuple[int, int]
    dtype: DTypeLike

    def zeros(self, pool: tuple[int, ...], **others: tuple[int, ...]) -> State:
        """The state of a pool of data sets, with other counts than that of the samples."""
        sums = {"features": (*pool, *self.shape), "diagonal": pool}
        sums |= {"weights": (), "squared weights": ()}
        return zeros({"samples": (), **others}, sums, self.dtype)


def with_batch(
    state: State, counts: dict[str, Any], sums: dict[str, jax.Array], weights: jax.Array | None
) -> State:
    """A state after another batch, with its counts and what `sums_of_batch` returns."""
    total = squares = counts["samples"]
    if weights is not None:
        total, squares = jnp.sum(weights), jnp.sum(jnp.square(weights))
    return added(state, counts, sums | {"weights": total, "squared weights": squares})


def featured_product(kernel: Kernel, example_targets: ArrayLike | None) -> FeaturedProduct:
    """The features of a kernel, made for the range of the landmarks and of example targets."""
    if not checks.is_concrete(kernel, example_targets):
        raise ValueError(
            "kernel: expected landmarks and length scales that are known when compiling, got "
            "traced ones; accumulators are read by compiled functions from outside, and not "
            "handed to them"
        )
    with jax.ensure_compile_time_eval():  # the data may be traced
        kernel = checks.kernel_values(kernel)
        prediction = kernel.prediction if isinstance(kernel, TensorProduct) else None
        if not isinstance(kernel, TensorProduct) or not isinstance(prediction, Nystrom):
            raise TypeError(
                "kernel: expected TensorProduct(Nystrom(kernel on predictions, landmarks), target "
                f"kernel), got {checks.described(kernel if prediction is None else prediction)}"
            )
        landmarks = checks.batch(prediction.landmarks, name=_LANDMARKS)
        refuse_without_expectations(kernel, landmarks)
        data = _examples(landmarks, example_targets)
        prepared = prepare_features(kernel.target, *data)
        if prepared is None:
            raise ValueError(
                "kernel.target: expected a kernel with features for the landmarks "
                f"({checks.described(landmarks)}) and the example targets, got "
                f"{checks.described(kernel.target)}, which has none, or too many: a length scale "
                "that is too small for their range"
            )
        first = jax.tree.map(lambda leaf: leaf[0], data)
        number = jax.eval_shape(functools.partial(features, kernel.target, prepared), *first).size
        factor = jax.eval_shape(prediction.factor, landmarks)
    shape = factor.shape[1], number
    return FeaturedProduct(kernel, prepared, landmarks, shape, factor.dtype)


_LANDMARKS = "kernel.prediction.landmarks"


def _examples(landmarks: Distribution, example_targets: Any) -> tuple[Distribution, PyTree]:
    """Landmarks with targets drawn from them, and with the examples of these."""
    checks.method(_LANDMARKS, landmarks, "sample")
    drawn = draw(jax.random.key(0), landmarks)
    if example_targets is None:
        return landmarks, drawn
    targets = checks.as_arrays("example_targets", example_targets)
    number = checks.leading_size("example_targets", targets)
    size = checks.leading_size(_LANDMARKS, landmarks)

    def repeated(leaf: jax.Array) -> jax.Array:
        return leaf[np.arange(number) % size]

    _, targets = checks.predictions_and_targets(
        jax.tree.map(repeated, landmarks), targets, names=(_LANDMARKS, "example_targets")
    )
    both = jax.tree.map(lambda x, y: jnp.concatenate([x, y.astype(x.dtype)]), drawn, targets)
    again = jax.tree.map(lambda leaf: leaf[np.arange(size + number) % size], landmarks)
    return again, both


def checked_samples(
    featured: FeaturedProduct, predictions: Distribution, targets: ArrayLike, weights: Any
) -> tuple[Distribution, jax.Array, jax.Array | None]:
    """A checked batch of the landmarks' kind, with its weights."""
    predictions, targets, weights = checked_batch(predictions, targets, weights)
    refuse_without_expectations(featured.kernel, predictions)
    plain, landmarks = map(without_draws, (predictions, featured.landmarks))
    checks.same_kind("predictions", plain, _LANDMARKS, landmarks)
    dtype = floating_dtype(predictions)
    if jnp.finfo(dtype).bits > jnp.finfo(featured.dtype).bits:
        raise ValueError(
            "predictions: expected at most the precision of the landmarks, "
            f"{featured.dtype}, got {dtype}"
        )
    return predictions, targets, None if weights is None else weights.astype(featured.dtype)


@functools.partial(jax.jit, static_argnames="batch_size")
def sums_of_batch(
    kernel: TensorProduct,
    prepared: tuple,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    redraws: tuple[jax.Array, jax.Array] | None = None,
    *,
    batch_size: int = 1,
) -> dict[str, jax.Array]:
    """The sums "features" and "diagonal" of a batch, or of a pool with redrawn targets.

    A pool takes the keys of its redraws, and the indices of the samples.
    """
    data = kernel, prepared, predictions, weights

    def evaluate(data: tuple, targets: PyTree) -> dict[str, jax.Array]:
        kernel, prepared, predictions, weights = data[:4]
        return _evaluate(kernel, prepared, predictions, weights, targets)

    if redraws is None:
        one = evaluate(data, jax.tree.map(lambda y: y[None], targets))
        return jax.tree.map(lambda x: x[0], one)
    keys, indices = redraws

    def redraw(data: tuple, key: jax.Array) -> jax.Array:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, data[4])
        return draw_each(keys, data[2])

    return over_pool(keys, redraw, evaluate, (*data, indices), targets, batch_size)


def _evaluate(
    kernel: TensorProduct,
    prepared: tuple,
    predictions: Distribution,
    weights: jax.Array | None,
    targets: PyTree,
) -> dict[str, jax.Array]:
    """Sums of several data sets over a batch, [b, ...] each."""
    assert isinstance(kernel.prediction, Nystrom), "checked with the kernel"
    factor = kernel.prediction.factor(predictions)
    factor = factor if weights is None else factor * weights[:, None]
    ((sums, diagonal),) = sums_of_redraws((kernel.target, prepared), [factor], predictions, targets)
    return {"features": sums, "diagonal": diagonal}
