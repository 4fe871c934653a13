"""Sums of the calibration kernel over all pairs, in linear time where the kernels allow it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax.distributions.base import DataSet
from calibjax.kernels import Kernel, Nystrom, TensorProduct
from calibjax.kernels.expectations import batch_features, prepare_features
from calibjax.kernels.line import Line, exponentials, line_of_many


class Sums(NamedTuple):
    """Sums of h over the pairs i ≠ j and over i = j, n, and the number of pairs i ≠ j."""

    off_diagonal: jax.Array
    diagonal: jax.Array
    number: jax.Array | int
    num_pairs: jax.Array | int


def _numbers(n: int, weights: jax.Array | None) -> tuple[Any, Any]:
    """Numbers of samples and of pairs i ≠ j: sums of the weights, and of products of two."""
    if weights is None:
        return n, n * (n - 1.0)
    # The difference of two squares would leave nothing of one sample with nearly all the weight.
    return jnp.sum(weights), 2 * operators.block_masses(weights, block_size=n)[0]


def linear_sums(kernel: Kernel, samples: DataSet, weights: jax.Array | None) -> Sums | None:
    """Sums in linear time: target kernels with features, predictions with some or on a line."""
    if (plan := _prepared(kernel, samples)) is None:
        return None
    line, prepared = plan
    if line is None:
        return _sums_of_features(kernel, prepared, samples, weights)
    return _sums_on_line(kernel, prepared, samples, weights, line)


def linear_row_sums(
    kernel: Kernel, samples: DataSet, weights: jax.Array | None
) -> jax.Array | None:
    """Σ_{j≠i} w_j h_ij of each sample, [n], in linear time where `linear_sums` has it.

    Of known values: equal predictions have no derivatives here.
    """
    if not checks.is_concrete(kernel, samples, weights):
        return None
    plan = _prepared(kernel, samples)
    return None if plan is None else _row_sums(kernel, samples, weights, *plan)


def _prepared(kernel: Any, samples: DataSet) -> tuple[Line | None, Any] | None:
    """The line of the predictions, if there is one, and what features of targets need."""
    if not isinstance(kernel, TensorProduct):
        return None
    number = checks.leading_size("targets", samples[1])
    line = line_of_many(kernel.prediction, samples[0], number)
    if line is None and not isinstance(kernel.prediction, Nystrom):
        return None
    prepared = prepare_features(kernel.target, *samples)
    return None if prepared is None else (line, prepared)


@jax.jit
def _row_sums(
    kernel: Any, samples: DataSet, weights: jax.Array | None, line: Line | None, prepared: Any
) -> jax.Array:
    values = _features_of_samples((kernel.target, prepared), samples)  # [r, n]
    each = jnp.ones_like(values[0]) if weights is None else weights
    if line is None:
        factor = kernel.prediction.factor(samples[0])
        sums = matmul(each * values, factor)
        diagonal = jnp.sum(jnp.square(factor), 1) * jnp.sum(jnp.square(values), 0)
        return jnp.sum(values * matmul(sums, factor.T), 0) - each * diagonal
    series, order = exponentials(kernel.prediction, values.dtype), line.order
    groups, x = jnp.zeros_like(order), line.positions

    def of_feature(value: jax.Array) -> jax.Array:
        sent = (each * value)[order]
        ways = (sent, x), (jnp.flip(sent), -jnp.flip(x))
        earlier, later = (
            operators.sums_of_earlier(
                f[:, None], groups, at, series.rates, polynomials=series.polynomials
            )
            for f, at in ways
        )
        received = matmul(series.factors, earlier[..., 0] + jnp.flip(later[..., 0], 1))
        return value * jnp.zeros_like(value).at[order].set(received)

    return jnp.sum(jax.lax.map(of_feature, values), 0)


@jax.jit
def _sums_on_line(
    kernel: TensorProduct, prepared: tuple, samples: DataSet, weights: jax.Array | None, line: Line
) -> Sums:
    values = _features_of_samples((kernel.target, prepared), samples)
    return sums_on_line(kernel.prediction, values, weights, line)


@jax.jit
def sums_on_line(kernel: Kernel, values: jax.Array, weights: jax.Array | None, line: Line) -> Sums:
    """Sums of k(x_i, x_j) ⟨f_i, f_j⟩ for features f, [r, n], and a kernel of exponentials."""
    numbers = _numbers(values.shape[1], weights)
    values = values if weights is None else values * weights
    series = exponentials(kernel, values.dtype)

    @jax.checkpoint
    def forms(values: jax.Array) -> jax.Array:
        data = values[:, None], line.positions, series.rates
        return operators.line_forms(*data, polynomials=series.polynomials)[:, 0]

    upper = jnp.sum(jax.lax.map(forms, values[:, line.order]), 0)
    diagonal = jnp.sum(series.factors) * jnp.sum(jnp.square(values))
    return Sums(2 * jnp.sum(series.factors * upper), diagonal, *numbers)


@jax.jit
def _sums_of_features(
    kernel: TensorProduct, prepared: tuple, samples: DataSet, weights: jax.Array | None
) -> Sums:
    assert isinstance(kernel.prediction, Nystrom), "by the caller"
    factor = kernel.prediction.factor(samples[0])
    numbers = _numbers(factor.shape[0], weights)
    factor = factor if weights is None else factor * weights[:, None]
    norms = jnp.sum(jnp.square(factor), 1, keepdims=True)
    sums, squares = operators.feature_sums(
        _features_of_samples, (kernel.target, prepared), samples, factor, norms
    )
    diagonal = jnp.sum(squares)
    return Sums(jnp.sum(jnp.square(sums)) - diagonal, diagonal, *numbers)


def _features_of_samples(featured: tuple[Kernel, Any], samples: tuple[Any, Any]) -> jax.Array:
    predictions, targets = samples
    return batch_features(*featured, predictions, jax.tree.map(lambda y: y[None], targets))[:, 0]
