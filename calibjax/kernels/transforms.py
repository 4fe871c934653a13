"""Kernels of linearly transformed targets: anisotropic length scales, projections.

A linear map of the targets takes a predicted distribution with it. The expectations are those of
the inner kernel under the push-forward distributions, which `linear_map` gives.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import _checks
from calibjax._arithmetic import absolute, matmul
from calibjax._pytree import record
from calibjax.distributions import DiagNormal, Laplace, Mixture, MvNormal, Normal, Samples
from calibjax.kernels.base import Kernel, ValueRange
from calibjax.kernels.expectations import (
    FeatureRule,
    centered_kernel,
    check_expectations,
    diagonal_expectation,
    double_expectation,
    features,
    missing,
    prepare_features,
    register_expectations,
    single_expectation,
)


@record
class Linear(Kernel):
    """Kernel of linearly transformed targets, k(y, z) = kernel(A y, A z).

    As target kernel it is evaluated with the distributions of A Z for Z ~ p, see `linear_map`; as
    kernel on predictions, with these distributions in place of the predictions.

    Attributes:
        scale: A, a number, a factor of each dimension [d] (one over its length scale), or a
            matrix [k, d].
        kernel: kernel on the transformed targets.

    >>> import jax.numpy as jnp
    >>> from calibjax.kernels import SquaredExponential
    >>> kernel = Linear(1 / jnp.array([2.0, 5.0]), SquaredExponential())
    >>> print(f"{kernel(jnp.array([0.0, 0.0]), jnp.array([4.0, 0.0])):.4f}")  # exp(−2)
    0.1353
    """

    scale: jax.Array | float
    kernel: Kernel

    def __call__(self, x: Any, y: Any) -> jax.Array:
        """Value of the inner kernel at the transformed points."""
        return self.kernel(*(_transformed(point, self.scale) for point in (x, y)))

    def value_range(self) -> ValueRange:
        """Bounds of the inner kernel."""
        return self.kernel.value_range()

    def check_values(self, name: str) -> "Linear":
        """Refuses scales that are not finite, or neither scalar, [d] nor [k, d]."""
        scale = _checks.real(f"{name}.scale", self.scale)
        shape = jnp.shape(scale)
        if len(shape) > 2 or 0 in shape:
            raise ValueError(f"{name}.scale: expected a number, [d] or [k, d], got shape {shape}")
        return _checks.replaced(
            self,
            scale=_checks.finite(f"{name}.scale", scale),
            kernel=_checks.kernel_values(self.kernel, f"{name}.kernel", may_be_function=True),
        )


@functools.singledispatch
def linear_map(p: Any, scale: jax.Array | float) -> Any:
    """Distribution of A Z for Z ~ p.

    Scalars of `Normal` and `Laplace`; scalars and [d] of `DiagNormal`, which stay such;
    [k, d] of `DiagNormal`, and all of `MvNormal`, which give an `MvNormal`; the components of a
    `Mixture`; the draws of `Samples`. For another class, register a function (p, scale) →
    distribution with `linear_map.register`.

    Args:
        p: one distribution.
        scale: A, a number, a factor of each dimension [d], or a matrix [k, d].

    Returns:
        One distribution.

    Raises:
        NotImplementedError: if no map is registered for the class of p.
        ValueError: if the shape of `scale` does not fit.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> print(linear_map(Normal(jnp.array(1.0), jnp.array(0.5)), -2.0).scale)
    1.0
    """
    raise NotImplementedError(
        f"no linear map by kernels.Linear of {type(p).__name__} predictions is known; register "
        "one with calibjax.kernels.linear_map.register"
    )


def _fitting(scale: Any, like: jax.Array, ndims: tuple[int, ...]) -> jax.Array:
    """The scale in the precision of a point, scalar or [d], that it can be applied to."""
    is_floating = jnp.issubdtype(jnp.result_type(like), jnp.floating)
    scale = jnp.asarray(scale, jnp.result_type(like) if is_floating else None)
    if scale.ndim not in ndims or (scale.ndim and scale.shape[-1:] != jnp.shape(like)):
        shapes = {0: "()", 1: "[d]", 2: "[k, d]"}
        allowed = " or ".join(shapes[ndim] for ndim in ndims)
        raise ValueError(
            f"scale: expected shape {allowed} for targets of shape {jnp.shape(like)}, "
            f"got {scale.shape}"
        )
    return scale


def _transformed(point: Any, scale: Any) -> Any:
    """A times a point, which may be a distribution."""
    if hasattr(point, "sample"):
        return linear_map(point, scale)
    scale = _fitting(scale, point, (0, 1, 2) if jnp.ndim(point) else (0,))
    return matmul(scale, point) if scale.ndim == 2 else scale * point


@linear_map.register(Normal)
@linear_map.register(Laplace)
def _(p: Normal | Laplace, scale: Any) -> Normal | Laplace:
    scale = _fitting(scale, p.loc, (0,))
    return type(p)(scale * p.loc, absolute(scale) * p.scale)


@linear_map.register
def _(p: DiagNormal, scale: Any) -> DiagNormal | MvNormal:
    scale = _fitting(scale, p.loc, (0, 1, 2))
    if scale.ndim < 2:
        return DiagNormal(scale * p.loc, absolute(scale) * p.scale)
    return MvNormal(matmul(scale, p.loc), matmul(scale * jnp.square(p.scale), scale.T))


@linear_map.register
def _(p: MvNormal, scale: Any) -> MvNormal:
    scale = _fitting(scale, p.loc, (0, 1, 2))
    if scale.ndim < 2:
        return MvNormal(scale * p.loc, p.cov * scale * jnp.reshape(scale, (*scale.shape, 1)))
    return MvNormal(matmul(scale, p.loc), matmul(matmul(scale, p.cov), scale.T))


@linear_map.register
def _(p: Mixture, scale: Any) -> Mixture:
    return Mixture(p.weights, jax.vmap(linear_map, in_axes=(0, None))(p.components, scale))


@linear_map.register
def _(p: Samples, scale: Any) -> Samples:
    values = jax.vmap(_transformed, in_axes=(0, None))(p.values, scale)
    return dataclasses.replace(p, values=values)


def _map(kernel: Linear, p: Any) -> Any:
    if linear_map.dispatch(type(p)) is linear_map.dispatch(object):
        raise missing(
            kernel, p, ", of which kernels.linear_map knows no linear map (linear_map.register)"
        )
    return linear_map(p, kernel.scale)


def _mapped(kernel: Linear, p: Any, y: Any) -> tuple[Any, Any]:
    return _map(kernel, p), _transformed(y, kernel.scale)


def _mapped_batch(kernel: Linear, *batches: Any) -> Any:
    return jax.vmap(functools.partial(_mapped, kernel))(*batches)


def _single(kernel: Linear, p: Any, z: Any) -> jax.Array:
    return single_expectation(kernel.kernel, *_mapped(kernel, p, z))


def _double(kernel: Linear, p: Any, q: Any) -> jax.Array:
    return double_expectation(kernel.kernel, _map(kernel, p), _map(kernel, q))


def _diagonal(kernel: Linear, p: Any) -> jax.Array | float:
    return diagonal_expectation(kernel.kernel, _map(kernel, p))


def _centered(kernel: Linear, p: Any, y: Any, q: Any, z: Any) -> jax.Array:
    return centered_kernel(kernel.kernel, *_mapped(kernel, p, y), *_mapped(kernel, q, z))


def _prepare(kernel: Linear, predictions: Any, targets: Any) -> Any:
    return prepare_features(kernel.kernel, *_mapped_batch(kernel, predictions, targets))


def _features(kernel: Linear, prepared: Any, p: Any, y: Any) -> jax.Array:
    return features(kernel.kernel, prepared, *_mapped(kernel, p, y))


def _check(kernel: Linear, predictions: Any) -> None:
    mapped = jax.vmap(functools.partial(_map, kernel))(predictions)
    check_expectations(kernel.kernel, mapped)


# Predictions that take every kernel as it is (classes, draws, mixtures) have rules of their own.
register_expectations(
    Linear,
    object,
    single=_single,
    double=_double,
    centered=_centered,
    features=FeatureRule(_prepare, _features),
    diagonal=_diagonal,
    check=_check,
)
