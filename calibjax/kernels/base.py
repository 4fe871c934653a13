"""Kernels and their algebra: sums, products, multiples, tensor products."""

import math
import numbers
from typing import Any, ClassVar

import jax

from calibjax import _checks
from calibjax._pytree import record
from calibjax.distributions import MonteCarlo
from calibjax.kernels.expectations import (
    centered_kernel,
    check_expectations,
    diagonal_expectation,
    double_expectation,
    register_expectations,
    single_expectation,
)


class Kernel:
    """A positive semi-definite function of two points.

    Subclasses are records that define `__call__(x, y)` for one pair of points, and
    `check_values(name)` where their hyperparameters can be wrong. `diagonal` is the value k(x, x)
    where it is the same for all x, otherwise None.
    """

    diagonal: ClassVar[Any] = None

    def __call__(self, x: Any, y: Any) -> jax.Array:
        """Value of the kernel at one pair of points, a scalar."""
        raise NotImplementedError(f"kernel {type(self).__name__} does not define __call__(x, y)")

    def single_expectation(self, p: Any, z: Any) -> jax.Array:
        """E_{Z~p} k(Z, z); see `calibjax.kernels.single_expectation`."""
        return single_expectation(self, p, z)

    def double_expectation(self, p: Any, q: Any) -> jax.Array:
        """E_{Z~p, Z'~q} k(Z, Z'); see `calibjax.kernels.double_expectation`."""
        return double_expectation(self, p, q)

    def __add__(self, other: "Kernel") -> "Kernel":
        return Sum((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __radd__(self, other: Any) -> "Kernel":
        # sum([k1, k2]) starts from 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            return Product((self, other))
        if isinstance(other, numbers.Real) or getattr(other, "ndim", None) == 0:
            return Scaled(other, self)
        return NotImplemented

    __rmul__ = __mul__


def without_draws(predictions: Any) -> Any:
    """The predictions that kernels on predictions see: without draws or indices added to them."""
    if isinstance(predictions, MonteCarlo):
        predictions = predictions.distribution
    return predictions.without_index() if hasattr(predictions, "without_index") else predictions


def prediction_kernel(kernel: Kernel, p: Any, q: Any) -> jax.Array:
    """Value of a kernel on predictions at two predictions."""
    return kernel(without_draws(p), without_draws(q))


def _checked_parts(name: str, field: str, parts: Any) -> tuple[Kernel, ...]:
    """The kernels of a sum or a product, checked, of which there must be one."""
    if not isinstance(parts, tuple) or not parts:
        raise ValueError(f"{name}.{field}: expected a tuple of at least one kernel, got {parts!r}")
    checked = tuple(_checks.kernel_values(part, name, may_be_function=True) for part in parts)
    is_same = all(one is two for one, two in zip(checked, parts, strict=True))
    return parts if is_same else checked


@record
class Sum(Kernel):
    """Sum of kernels, made by `k1 + k2`.

    >>> from calibjax.kernels import SquaredExponential
    >>> print((SquaredExponential(1.0) + SquaredExponential(2.0))(1.0, 1.0))
    2.0
    """

    terms: tuple[Kernel, ...]

    def __call__(self, x: Any, y: Any) -> jax.Array:
        """Sum of the values of the terms."""
        return sum(kernel(x, y) for kernel in self.terms)

    def check_values(self, name: str) -> "Sum":
        """Refuses sums of nothing, and checks each term."""
        return _checks.replaced(self, terms=_checked_parts(name, "terms", self.terms))


@record
class Product(Kernel):
    """Product of kernels, made by `k1 * k2`.

    >>> from calibjax.kernels import Exponential, SquaredExponential
    >>> print((SquaredExponential(1.0) * Exponential(1.0))(2.0, 2.0))
    1.0
    """

    factors: tuple[Kernel, ...]

    @property
    def diagonal(self) -> Any:
        """Product of those of the factors, if they all have one."""
        values = [kernel.diagonal for kernel in self.factors]
        return None if any(value is None for value in values) else math.prod(values)

    def __call__(self, x: Any, y: Any) -> jax.Array:
        """Product of the values of the factors."""
        value = 1
        for kernel in self.factors:
            value = value * kernel(x, y)
        return value

    def check_values(self, name: str) -> "Product":
        """Refuses products of nothing, and checks each factor."""
        return _checks.replaced(self, factors=_checked_parts(name, "factors", self.factors))


@record
class Scaled(Kernel):
    """Positive multiple of a kernel, made by `factor * kernel`.

    >>> from calibjax.kernels import SquaredExponential
    >>> print((0.5 * SquaredExponential(1.0))(1.0, 1.0))
    0.5
    """

    factor: jax.Array | float
    kernel: Kernel

    def __call__(self, x: Any, y: Any) -> jax.Array:
        """Multiple of the value of the kernel."""
        return self.factor * self.kernel(x, y)

    def check_values(self, name: str) -> "Scaled":
        """Refuses factors that are not positive."""
        factor = _checks.positive_scalar(f"{name}.factor", self.factor)
        kernel = _checks.kernel_values(self.kernel, f"{name}.kernel", may_be_function=True)
        return _checks.replaced(self, factor=factor, kernel=kernel)


@record
class TensorProduct(Kernel):
    """Kernel on pairs, k((p, y), (q, z)) = k_P(p, q) k_Y(y, z).

    Attributes:
        prediction: kernel k_P on predictions.
        target: kernel k_Y on targets.

    The product of two tensor products is a tensor product again.

    References: W21 §3.2 and App. D.

    >>> import jax.numpy as jnp
    >>> from calibjax.distances import Wasserstein
    >>> from calibjax.distributions import Normal
    >>> from calibjax.kernels import Exponential, SquaredExponential
    >>> kernel = TensorProduct(Exponential(1.0, Wasserstein()), SquaredExponential(1.0))
    >>> p = Normal(jnp.array(0.0), jnp.array(1.0))
    >>> print(kernel((p, 0.5), (p, 0.5)))
    1.0
    """

    prediction: Kernel
    target: Kernel

    def __call__(self, x: tuple[Any, Any], y: tuple[Any, Any]) -> jax.Array:
        """Value at the pairs x = (p, y) and y = (q, z)."""
        return prediction_kernel(self.prediction, x[0], y[0]) * self.target(x[1], y[1])

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, TensorProduct):
            return TensorProduct(self.prediction * other.prediction, self.target * other.target)
        return super().__mul__(other)

    __rmul__ = __mul__

    def check_values(self, name: str) -> "TensorProduct":
        """Checks both factors, which are not kernels on pairs themselves."""
        checked = {}
        for field, points in (("prediction", "predictions"), ("target", "targets")):
            kernel = _checks.kernel_values(
                getattr(self, field), f"{name}.{field}", may_be_function=True
            )
            parts = jax.tree.leaves(kernel, is_leaf=lambda part: isinstance(part, TensorProduct))
            if any(isinstance(part, TensorProduct) for part in parts):
                raise TypeError(
                    f"{name}.{field}: expected a kernel on {points}, got one with a TensorProduct, "
                    "which is a kernel on pairs (prediction, target)"
                )
            checked[field] = kernel
        return _checks.replaced(self, **checked)


# All expectations are linear in the kernel.
def _check_terms(kernel: Sum, predictions: Any) -> None:
    for term in kernel.terms:
        check_expectations(term, predictions)


register_expectations(
    Sum,
    object,
    single=lambda kernel, p, z: sum(single_expectation(k, p, z) for k in kernel.terms),
    double=lambda kernel, p, q: sum(double_expectation(k, p, q) for k in kernel.terms),
    centered=lambda kernel, *pair: sum(centered_kernel(k, *pair) for k in kernel.terms),
    check=_check_terms,
    diagonal=lambda kernel, p: sum(diagonal_expectation(k, p) for k in kernel.terms),
)
register_expectations(
    Scaled,
    object,
    single=lambda kernel, p, z: kernel.factor * single_expectation(kernel.kernel, p, z),
    double=lambda kernel, p, q: kernel.factor * double_expectation(kernel.kernel, p, q),
    centered=lambda kernel, *pair: kernel.factor * centered_kernel(kernel.kernel, *pair),
    check=lambda kernel, predictions: check_expectations(kernel.kernel, predictions),
    diagonal=lambda kernel, p: kernel.factor * diagonal_expectation(kernel.kernel, p),
)
