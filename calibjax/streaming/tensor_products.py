"""Tensor products of kernels that both have features, or sums along a line, and their sums."""

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
from calibjax.hypothesis_tests._redraw.features import sums_of_redraws, sums_on_line
from calibjax.hypothesis_tests._redraw.pool import over_pool
from calibjax.kernels import Kernel, LowRank, TensorProduct
from calibjax.kernels.base import without_draws
from calibjax.kernels.expectations import features, prepare_features
from calibjax.kernels.line import (
    Exponentials,
    Line,
    distance_of_exponentials,
    embedding,
    exponentials,
)
from calibjax.streaming.base import State, added, checked_batch, summed, zeros
from calibjax.streaming.stretches import (
    Stretch,
    ends_of,
    joined,
    offsets_of,
    refuse_apart,
)


@dataclasses.dataclass(frozen=True)
class FeaturedProduct:
    """A checked tensor product whose sums over the pairs of samples follow from sums over these.

    Attributes:
        kernel: the tensor product of a kernel on predictions and a target kernel with features. The
            former is a `LowRank` with its whitening, or has exponential and Matérn kernels.
        prepared: what the features of the target kernel need.
        examples: the landmarks, or other predictions as they may occur.
        num_features: of the target kernel.
        dtype: dtype of the examples.
    """

    kernel: TensorProduct
    prepared: tuple
    examples: Distribution
    num_features: int
    dtype: DTypeLike

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what is held of a data set."""
        if isinstance(self.kernel.prediction, LowRank):
            factor = jax.eval_shape(self.kernel.prediction.factor, self.examples)
            return factor.shape[1], self.num_features
        own = self.exponentials
        return 2, own.rates.size, own.num_moments, self.num_features

    @property
    def exponentials(self) -> Exponentials:
        """Terms of the kernel of predictions on a line."""
        return exponentials(self.kernel.prediction, self.dtype)

    def zeros(self, pool: tuple[int, ...], **others: tuple[int, ...]) -> State:
        """The state of a pool of data sets, with other counts than that of the samples."""
        counts = {"samples": (), **others}
        sums = {"diagonal": pool, "weights": (), "squared weights": ()}
        if isinstance(self.kernel.prediction, LowRank):
            return zeros(counts, {"features": (*pool, *self.shape), **sums}, self.dtype)
        start = zeros(counts, {"forms": pool, **sums}, self.dtype)
        ends = jax.eval_shape(embedding, self.kernel.prediction, self.examples)
        shapes = (2, ends.shape[1]), (*pool, *self.shape)
        return Stretch(start.counts, start.sums, *(jnp.zeros(s, self.dtype) for s in shapes))

    def with_batch(
        self,
        state: State,
        counts: dict[str, Any],
        sums: dict[str, jax.Array],
        weights: jax.Array | None,
    ) -> State:
        """A state after another batch, with its counts and what `sums_of_batch` returns."""
        total = squares = counts["samples"]
        if weights is not None:
            total, squares = jnp.sum(weights), jnp.sum(jnp.square(weights))
        sums = sums | {"weights": total, "squared weights": squares}
        if not isinstance(state, Stretch):
            return added(state, counts, sums)
        start = jax.tree.map(jnp.zeros_like, State(state.counts, state.sums))
        new = added(start, counts, {name: sums[name] for name in start.sums})
        block = Stretch(new.counts, new.sums, sums["ends"], sums["moments"])
        return self.joined("predictions", state, block)

    def joined(self, name: str, a: State, b: State) -> State:
        """The state after the samples of two."""
        if not isinstance(a, Stretch) or not isinstance(b, Stretch):
            return summed(a, b)
        refuse_apart(name, a, b)
        return joined(self.exponentials, a, b)


def featured_product(
    kernel: Kernel, example_targets: ArrayLike | None, example_predictions: Any
) -> FeaturedProduct:
    """The features of a kernel, made for the range of examples of predictions and targets."""
    if not checks.is_concrete(kernel, example_targets, example_predictions):
        raise ValueError(
            "kernel: expected landmarks and length scales that are known when compiling, got "
            "traced ones; accumulators are read by compiled functions from outside, and not "
            "handed to them"
        )
    with jax.ensure_compile_time_eval():  # the data may be traced
        kernel = checks.kernel_values(kernel)
        name, examples = _example_predictions(kernel, example_predictions)
        assert isinstance(kernel, TensorProduct), "checked with the examples"
        refuse_without_expectations(kernel, examples)
        data = _examples(name, examples, example_targets)
        prepared = prepare_features(kernel.target, *data)
        if prepared is None:
            raise ValueError(
                f"kernel.target: expected a kernel with features for the {_EXAMPLES[name]} "
                f"({checks.described(examples)}) and the example targets, got "
                f"{checks.described(kernel.target)}, which has none, or too many: a length scale "
                "that is too small for their range"
            )
        first = jax.tree.map(lambda leaf: leaf[0], data)
        number = jax.eval_shape(functools.partial(features, kernel.target, prepared), *first).size
        if isinstance(kernel.prediction, LowRank):
            dtype = jax.eval_shape(kernel.prediction.factor, examples).dtype
        else:
            dtype = jax.eval_shape(embedding, kernel.prediction, examples).dtype
    return FeaturedProduct(kernel, prepared, examples, number, dtype)


_EXAMPLES = {
    "kernel.prediction.landmarks": "landmarks",
    "example_predictions": "example predictions",
}


def _example_predictions(kernel: Kernel, given: Any) -> tuple[str, Distribution]:
    """The landmarks, or the example predictions of a kernel on a line, and what they are called."""
    prediction = kernel.prediction if isinstance(kernel, TensorProduct) else None
    landmarks, example = _EXAMPLES
    if isinstance(prediction, LowRank):
        if given is not None:
            raise ValueError(
                f"{example}: expected None, since the kernel has landmarks, got "
                f"{checks.described(given)}"
            )
        return landmarks, checks.batch(prediction.landmarks, name=landmarks)
    if prediction is None or distance_of_exponentials(prediction) is None:
        raise TypeError(
            "kernel: expected TensorProduct(kernel on predictions, target kernel), with "
            "kernels.LowRank, or with exponential or Matérn kernels of predictions on a line, got "
            f"{checks.described(kernel if prediction is None else prediction)}"
        )
    if given is None:
        raise ValueError(
            f"{example}: expected a batch of predictions as they may occur, which a kernel without "
            "landmarks needs, got None"
        )
    examples = checks.batch(given, name=example)
    if jax.eval_shape(embedding, prediction, examples) is None:
        raise ValueError(
            f"{example}: expected predictions on a line, such as probabilities of two classes or "
            f"normals with a common scale, got {checks.described(examples)}"
        )
    return example, examples


def _examples(
    name: str, predictions: Distribution, example_targets: Any
) -> tuple[Distribution, PyTree]:
    """Example predictions with targets drawn from them, and with the examples of these."""
    checks.method(name, predictions, "sample")
    drawn = draw(jax.random.key(0), predictions)
    if example_targets is None:
        return predictions, drawn
    targets = checks.as_arrays("example_targets", example_targets)
    number = checks.leading_size("example_targets", targets)
    size = checks.leading_size(name, predictions)

    def repeated(leaf: jax.Array) -> jax.Array:
        return leaf[np.arange(number) % size]

    names = "example_predictions", "example_targets"
    _, targets = checks.predictions_and_targets(
        jax.tree.map(repeated, predictions), targets, names=names
    )
    both = jax.tree.map(lambda x, y: jnp.concatenate([x, y.astype(x.dtype)]), drawn, targets)
    again = jax.tree.map(lambda leaf: leaf[np.arange(size + number) % size], predictions)
    return again, both


def checked_samples(
    featured: FeaturedProduct, predictions: Distribution, targets: ArrayLike, weights: Any
) -> tuple[Distribution, jax.Array, jax.Array | None]:
    """A checked batch of the kind of the examples, with its weights."""
    predictions, targets, weights = checked_batch(predictions, targets, weights)
    refuse_without_expectations(featured.kernel, predictions)
    names = tuple(_EXAMPLES)
    name = names[not isinstance(featured.kernel.prediction, LowRank)]
    checks.same_kind(
        "predictions", without_draws(predictions), name, without_draws(featured.examples)
    )
    dtype = floating_dtype(predictions)
    if jnp.finfo(dtype).bits > jnp.finfo(featured.dtype).bits:
        raise ValueError(
            f"predictions: expected at most the precision of the {_EXAMPLES[name]}, "
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
    """Sums of a batch by name, of the observed targets or of a pool with redrawn ones.

    A pool takes the keys of its redraws, and the indices of the samples.
    Of predictions on a line they are "forms", "diagonal", and the "ends" and the "moments" of their
    `Stretch`; otherwise "features" and "diagonal".
    """
    data = kernel, prepared, predictions, weights

    def evaluate(data: tuple, targets: PyTree) -> dict[str, jax.Array]:
        kernel, prepared, predictions, weights = data[:4]
        return _evaluate(kernel, prepared, predictions, weights, targets)

    if redraws is None:
        one = evaluate(data, jax.tree.map(lambda y: y[None], targets))
        found = jax.tree.map(lambda x: x[0], one)
    else:
        keys, indices = redraws

        def redraw(data: tuple, key: jax.Array) -> jax.Array:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, data[4])
            return draw_each(keys, data[2])

        found = over_pool(keys, redraw, evaluate, (*data, indices), targets, batch_size)
    if isinstance(kernel.prediction, LowRank):
        return found
    return found | {"ends": ends_of(embedding(kernel.prediction, predictions))}


def _evaluate(
    kernel: TensorProduct,
    prepared: tuple,
    predictions: Distribution,
    weights: jax.Array | None,
    targets: PyTree,
) -> dict[str, jax.Array]:
    """Sums of several data sets over a batch, [b, ...] each."""
    featured = kernel.target, prepared
    if isinstance(kernel.prediction, LowRank):
        factor = kernel.prediction.factor(predictions)
        factor = factor if weights is None else factor * weights[:, None]
        ((sums, diagonal),) = sums_of_redraws(featured, [factor], predictions, targets)
        return {"features": sums, "diagonal": diagonal}
    offsets = offsets_of(embedding(kernel.prediction, predictions))
    own, order = exponentials(kernel.prediction, offsets.dtype), jnp.argsort(offsets)
    line = Line(order, offsets[order])
    found, moments = sums_on_line(line, {0: own}, featured, predictions, targets, weights)
    forms, diagonal = found[0]
    return {"forms": forms, "diagonal": diagonal, "moments": moments}
