"""Checks of weights of samples, and what all estimators make of them."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._core.arithmetic import floating_dtype
from calibjax._core.checks.arrays import as_arrays, is_concrete
from calibjax._core.checks.data import confidences_and_correct, predictions_and_targets, same_rows
from calibjax._core.checks.values import floating, leading_size, satisfying, shape
from calibjax._core.pytree import PyTree, T


def sample_weights(
    weights: ArrayLike | None,
    samples: PyTree,
    *,
    minimum: int = 1,
    name: str = "weights",
    as_copies: bool = False,
) -> jax.Array | None:
    """Weights of n samples, scaled so that their sum is that of their squares.

    With u_i = w_i Σ_j w_j / Σ_j w_j² the sum Σ_i u_i = Σ_i u_i² = (Σ_i w_i)² / Σ_i w_i² is the
    effective number of samples (Kish), which takes the place of n in every formula: means are
    Σ_i u_i x_i / Σ_i u_i, and means over pairs i ≠ j have the divisor n (n − 1). Weights that are
    0 or equal become 0 and 1. The weight of no sample changes if all are multiplied by a constant.

    Args:
        weights: w ≥ 0, [n], or None for samples that count equally.
        samples: checked data with leading axis n, in whose precision the weights are.
        minimum: smallest number of positive weights.
        name: how messages call them.
        as_copies: whether to return w as it is, the numbers of copies of the samples.

    Returns:
        u, [n], or None; NaN if traced weights are wrong.

    Raises:
        TypeError: if they are no array of numbers.
        ValueError: if they have another shape, are negative or not finite, or too few are positive
            in the precision of the samples.
    """
    if weights is None:
        return None
    array = plain_weights(weights, leading_size("samples", samples), name)
    dtype = floating_dtype(samples)
    if is_concrete(array):
        known = np.asarray(array)
        positive = int((known > known.max() * jnp.finfo(dtype).tiny).sum())
        if positive < minimum:
            least = f"{minimum} positive weight{'' if minimum == 1 else 's'}"
            others = f"others are zero, or too small beside the largest for {dtype}"
            raise ValueError(f"{name}: expected at least {least}, got {positive}, {others}")
        if as_copies:
            return jnp.asarray(array, dtype)
        return jax.device_put(_scaled(known, dtype, np))  # NumPy compiles nothing
    if as_copies:
        return jnp.where(jnp.any(array > 0), jnp.asarray(array, dtype), jnp.nan)
    return _scaled(array, dtype, jnp)


def _scaled(weights: np.ndarray | jax.Array, dtype: DTypeLike, xp: ModuleType) -> Any:
    """Weights in units of a number that takes their squares into range, then scaled."""
    largest = weights.max() if xp is np else lax.stop_gradient(xp.max(weights))
    weights = (weights / largest).astype(dtype)
    return weights * (xp.sum(weights) / xp.sum(xp.square(weights)))


def plain_weights(weights: ArrayLike, n: int, name: str = "weights") -> Any:
    """Checked weights of n samples in the units in which they are given, [n]; a mask is 0 or 1."""
    array = as_arrays(name, weights)
    is_mask = getattr(array, "dtype", None) == jnp.bool_
    array = floating(name, array.astype(int) if is_mask else array)
    shape(name, array, (n,), f"({n},), one weight for each sample")
    return satisfying(name, array, lambda w: (w >= 0) & (w < np.inf), "finite weights >= 0")


def weighted_samples(
    predictions: Any,
    targets: ArrayLike,
    weights: ArrayLike | None,
    *,
    minimum: int = 1,
    keep_logs: bool = False,
    as_copies: bool = False,
) -> tuple[Any, jax.Array, jax.Array | None]:
    """`predictions_and_targets` with the `sample_weights` of the same rows."""
    if weights is not None:  # without them rows are compared below
        same_rows(predictions=predictions, targets=targets, weights=weights)
    samples = predictions_and_targets(predictions, targets, minimum=minimum, keep_logs=keep_logs)
    return *samples, sample_weights(weights, samples[0], minimum=minimum, as_copies=as_copies)


def weighted_confidences(
    confidences: Any,
    correct: Any,
    weights: ArrayLike | None,
    *,
    as_copies: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """`confidences_and_correct` with the `sample_weights` of the same rows."""
    if weights is not None:  # without them rows are compared below
        same_rows(confidences=confidences, correct=correct, weights=weights)
    samples = confidences_and_correct(confidences, correct)
    return *samples, sample_weights(weights, samples[0], as_copies=as_copies)


def counted(weights: jax.Array | None, samples: T, is_kept: jax.Array | None = None) -> T:
    """Samples of which those with weight 0 are replaced by the one with the largest weight.

    For functions in which a sample takes part even if it does not count, such as sorts: as a copy
    of another one, with weight 0, it changes nothing. `is_kept` says which ones are not replaced.
    """
    if weights is None:
        return samples
    is_used = weights > 0 if is_kept is None else is_kept
    heaviest = jnp.argmax(weights)

    def kept(leaf: jax.Array) -> jax.Array:
        is_row_used = is_used.reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(is_row_used, leaf, leaf[heaviest])

    return jax.tree.map(kept, samples)
