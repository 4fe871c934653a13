"""Kernels of linearly transformed targets: anisotropic length scales, projections.

A linear map of the targets also maps the predicted distributions. The expectations are those of
the inner kernel under the push-forward distributions, which their method `linear_map` computes.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree, record
from calibjax.distributions.base import Distribution, transformed_point
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
class Transformed(Kernel):
    """Kernel of linearly transformed targets, k(y, z) = kernel(A y, A z).

    Both as a target kernel and as a kernel on predictions it replaces each prediction p by the
    distribution of A Z for Z ~ p, its method `linear_map`: `Normal`, `Laplace` (numbers A) and
    `DiagNormal` (numbers and factors [d]) keep their class; a `DiagNormal` with a matrix, and an
    `MvNormal` with any A, give an `MvNormal`. A `Mixture` maps its components, and `Samples` their
    draws.

    Attributes:
        scale: A, a number, a factor for each dimension [d] (one over its length scale), or a
            matrix [k, d].
        kernel: kernel on the transformed targets.

    >>> import jax.numpy as jnp
    >>> from calibjax.kernels import SquaredExponential
    >>> kernel = Transformed(1 / jnp.array([2.0, 5.0]), SquaredExponential())
    >>> print(f"{kernel(jnp.array([0.0, 0.0]), jnp.array([4.0, 0.0])):.4f}")  # exp(−2)
    0.1353
    """

    scale: jax.Array | float
    kernel: Kernel

    def __call__(self, x: PyTree, y: ArrayLike) -> jax.Array:
        """Value of the inner kernel at the transformed points."""
        return self.kernel(*(_transformed(point, self.scale) for point in (x, y)))

    def value_range(self) -> ValueRange:
        """Bounds of the inner kernel."""
        return self.kernel.value_range()

    def check_values(self, name: str) -> "Transformed":
        """Refuses scales that are not finite, or neither scalar, [d] nor [k, d]."""
        scale = checks.real(f"{name}.scale", self.scale)
        shape = jnp.shape(scale)
        if len(shape) > 2 or 0 in shape:
            raise ValueError(f"{name}.scale: expected a number, [d] or [k, d], got shape {shape}")
        return checks.replaced(
            self,
            scale=checks.finite(f"{name}.scale", scale),
            kernel=checks.kernel_or_function(self.kernel, f"{name}.kernel"),
        )


def _transformed(point: Any, scale: jax.Array | float) -> PyTree:
    """A times a point, which may be a distribution."""
    if hasattr(point, "linear_map"):
        return point.linear_map(scale)
    if hasattr(point, "sample"):
        raise NotImplementedError(
            f"no linear map by kernels.Transformed of {type(point).__name__} predictions is known; "
            "define the method linear_map(scale) of the class"
        )
    return transformed_point(point, scale)


def _map(kernel: Transformed, p: Any) -> PyTree:
    if not hasattr(p, "linear_map"):
        raise missing(kernel, p, ", which have no method linear_map")
    return p.linear_map(kernel.scale)


def _mapped(kernel: Transformed, p: Distribution, y: ArrayLike) -> tuple[Any, Any]:
    return _map(kernel, p), _transformed(y, kernel.scale)


def _mapped_batch(kernel: Transformed, *batches: Any) -> PyTree:
    return jax.vmap(functools.partial(_mapped, kernel))(*batches)


def _single(kernel: Transformed, p: Distribution, z: ArrayLike) -> jax.Array:
    return single_expectation(kernel.kernel, *_mapped(kernel, p, z))


def _double(kernel: Transformed, p: Distribution, q: Distribution) -> jax.Array:
    return double_expectation(kernel.kernel, _map(kernel, p), _map(kernel, q))


def _diagonal(kernel: Transformed, p: Distribution) -> jax.Array | float:
    return diagonal_expectation(kernel.kernel, _map(kernel, p))


def _centered(
    kernel: Transformed, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    return centered_kernel(kernel.kernel, *_mapped(kernel, p, y), *_mapped(kernel, q, z))


def _prepare(kernel: Transformed, predictions: Distribution, targets: ArrayLike) -> tuple | None:
    return prepare_features(kernel.kernel, *_mapped_batch(kernel, predictions, targets))


def _features(kernel: Transformed, prepared: tuple, p: Distribution, y: ArrayLike) -> jax.Array:
    return features(kernel.kernel, prepared, *_mapped(kernel, p, y))


def _check(kernel: Transformed, predictions: Distribution) -> None:
    mapped = jax.vmap(functools.partial(_map, kernel))(predictions)
    check_expectations(kernel.kernel, mapped)


# Predictions that accept every kernel as it is (classes, draws, mixtures) have their own rules.
register_expectations(
    Transformed,
    object,
    single=_single,
    double=_double,
    centered=_centered,
    features=FeatureRule(_prepare, _features),
    diagonal=_diagonal,
    check=_check,
)
