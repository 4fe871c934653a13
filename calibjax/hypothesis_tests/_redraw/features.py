"""Sums over redrawn targets where kernels on predictions and target kernels have features."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core.arithmetic import matmul, on_cpu
from calibjax._core.batches import BATCH_BYTES
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.kernels import Kernel
from calibjax.kernels.expectations import batch_features
from calibjax.kernels.line import Exponentials, Line
from calibjax.operators.features import BLOCK_SIZE

_DENSE_LABELS = 64  # classes, up to which matrix products are faster than sums by label
_COLUMNS = 192  # of a matrix product that takes longer than the matrix

Parts = tuple[jax.Array, jax.Array]  # means of h off and on the diagonal


def bytes_of_redraw(n: int, num_features: int, *, in_blocks: bool) -> int:
    """Memory of one redraw of n targets: these, and as many features as are held at once.

    In blocks the features should fit in a cache, and on CPUs the targets of eight redraws, or of
    more if they fit. By pairs enough redraws share the values of the kernel on predictions, even if
    they need more memory.
    """
    if in_blocks:
        targets = min(32 * n, BATCH_BYTES // 9) if on_cpu() else n
        return 16 * min(n, BLOCK_SIZE) * num_features + targets
    return min(16 * (n * num_features + n), BATCH_BYTES // -(-_COLUMNS // num_features))


def sums_of_redraws(
    featured: tuple[Kernel, Any],
    factors: Sequence[jax.Array],
    predictions: Distribution,
    targets: ArrayLike,
) -> list[tuple[jax.Array, jax.Array]]:
    """Sums of products of features, from which `means_of_sums` has the means of h.

    Args:
        featured: a target kernel, and what its features f need.
        factors: features φ of kernels on predictions, [n, s] each.
        predictions: batch of n distributions.
        targets: several data sets of them, [b, n, ...].

    Returns:
        For each factor Σ_i φ(p_i) ⊗ f(p_i, y_i), [b, s, r], and Σ_i ‖φ(p_i)‖² ‖f(p_i, y_i)‖², [b].
    """
    norms = jnp.stack([jnp.sum(jnp.square(factor), 1) for factor in factors], 1)
    if has_many_labels(featured[0], predictions):
        return _sums_by_label(featured[0], factors, norms, predictions, targets)
    ys = jax.tree.map(lambda y: jnp.moveaxis(y, 0, 1), targets)
    sums, squares = operators.feature_sums(
        _redrawn_features, featured, (predictions, ys), jnp.concatenate(factors, 1), norms
    )
    size = jax.tree.leaves(targets)[0].shape[0]
    ends = np.cumsum([factor.shape[1] for factor in factors])[:-1]
    return [
        (
            jnp.moveaxis(own.reshape(own.shape[0], -1, size), -1, 0),
            diagonal.reshape(-1, size).sum(0),
        )
        for own, diagonal in zip(jnp.split(sums, ends), squares, strict=True)
    ]


def has_many_labels(kernel: Kernel, predictions: Distribution) -> bool:
    """Whether features are scaled residuals e_y − p of many classes, of which few change."""
    if not hasattr(kernel, "label_scales") or not has_class_probs(predictions):
        return False
    return jax.eval_shape(lambda p: p.class_probs, predictions).shape[-1] > _DENSE_LABELS


def _sums_by_label(
    kernel: Any,
    factors: Sequence[jax.Array],
    norms: jax.Array,
    predictions: Any,
    targets: ArrayLike,
) -> list[tuple[jax.Array, jax.Array]]:
    """`sums_of_redraws` of scaled residuals, Σ_i φ_i a_i(y_i) e_{y_i} − Σ_i φ_i ∘ a_i ∘ p_i.

    The second sum is the same for all redraws; the first one takes a number for each sample, not
    one for each class.
    """
    probs = predictions.class_probs
    num_classes = probs.shape[1]
    scales = kernel.label_scales(probs)
    expected = scales * probs
    squared = jnp.sum(jnp.square(expected), 1)
    joined = jnp.concatenate(factors, 1)
    offset = matmul(expected.T, joined)

    def sums(labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        scale, mean = (jnp.take_along_axis(x, labels[:, None], 1)[:, 0] for x in (scales, probs))
        observed = jax.ops.segment_sum(joined * scale[:, None], labels, num_classes)
        square = squared + jnp.square(scale) * (1 - 2 * mean)  # of the residual's norm
        return (observed - offset).T, matmul(square, norms)

    totals, diagonals = jax.lax.map(sums, targets)
    ends = np.cumsum([factor.shape[1] for factor in factors])[:-1]
    return list(zip(jnp.split(totals, ends, 1), diagonals.T, strict=True))


def means_on_line(
    line: Line,
    terms: dict[int, Exponentials],
    n: jax.Array | int,
    featured: tuple[Kernel, Any],
    predictions: Distribution,
    targets: ArrayLike,
    weights: jax.Array | None,
) -> dict[int, Parts]:
    """Means of h over the pairs of n samples and over the diagonal, [b] each, of each kernel.

    Args:
        line: on which the predictions lie.
        terms: `Exponentials` of their distance, by kernel.
        n: number of samples.
        featured: a target kernel, and what its features need.
        predictions: batch of n distributions.
        targets: several data sets of them, [b, n, ...].
        weights: [n], or None.
    """
    if not terms:
        return {}
    ys = jax.tree.map(lambda y: jnp.moveaxis(y, 0, 1), targets)
    data = jax.tree.map(lambda leaf: leaf[line.order], (predictions, ys, weights))
    rates = jnp.concatenate([own.rates for own in terms.values()])
    polynomials = tuple(q for own in terms.values() for q in own.polynomials)
    upper, squares = operators.line_sums(
        *(_redrawn_features, featured, data[:2], data[2], line.positions, rates),
        polynomials=polynomials,
    )
    size = jax.tree.leaves(targets)[0].shape[0]
    upper = upper.reshape(rates.size, -1, size).sum(1)
    squares = squares.reshape(-1, size).sum(0)
    ends = np.cumsum([own.rates.size for own in terms.values()])[:-1]
    return {
        p: as_means(n, 2 * matmul(own.factors, forms), jnp.sum(own.factors) * squares)
        for (p, own), forms in zip(terms.items(), jnp.split(upper, ends), strict=True)
    }


def means_of_sums(n: jax.Array | int, sums: jax.Array, diagonal: jax.Array) -> Parts:
    """Means of h over the pairs of n samples and over the diagonal, [b] each."""
    return as_means(n, jnp.sum(jnp.square(sums), (-2, -1)) - diagonal, diagonal)


def _redrawn_features(featured: tuple[Kernel, Any], samples: tuple[Any, Any]) -> jax.Array:
    """Features of several targets of m predictions, [r b, m]."""
    predictions, targets = samples
    targets = jax.tree.map(lambda y: jnp.moveaxis(y, 1, 0), targets)
    values = batch_features(*featured, predictions, targets)
    return values.reshape(-1, values.shape[-1])


def as_means(n: jax.Array | int, off_diagonal: jax.Array, diagonal: jax.Array) -> Parts:
    """Means of h from its sums off and on the diagonal, over n samples."""
    return off_diagonal / n / (n - 1), diagonal / n  # n² may overflow
