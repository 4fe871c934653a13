"""Bounds of the values of kernels."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax import _checks
from calibjax.kernels.base import Kernel, Product, Scaled, Sum, TensorProduct
from calibjax.kernels.labels import LabelKernel, White
from calibjax.kernels.stationary import Exponential, PowerExponential, SquaredExponential


class ValueRange(NamedTuple):
    """Interval that holds all values of a kernel.

    Attributes:
        lower: number below or equal to all values.
        upper: number above or equal to all values.
    """

    lower: jax.Array | float
    upper: jax.Array | float


@functools.singledispatch
def value_range(kernel: Kernel) -> ValueRange:
    """Lower and upper bound of the values of a kernel, from its record.

    Sums, products and multiples combine the intervals of their parts. For another class,
    register a function (kernel) → ValueRange with `value_range.register`.

    Args:
        kernel: a kernel.

    Returns:
        The interval; it need not be the smallest one.

    Raises:
        TypeError: if a part of the kernel is none.
        ValueError: if a factor is not positive, or a sum or a product is empty.
        NotImplementedError: if no bound is known.

    >>> from calibjax import kernels
    >>> kernel = 2.0 * kernels.Exponential() + kernels.White()
    >>> print(kernels.value_range(kernel))
    ValueRange(lower=0.0, upper=3.0)
    """
    raise NotImplementedError(
        f"no bound of the values of kernel {type(kernel).__name__} is known; register one with "
        "calibjax.kernels.value_range.register, or pass bound=... where there is such an argument"
    )


@value_range.register(SquaredExponential)
@value_range.register(Exponential)
@value_range.register(PowerExponential)
@value_range.register(White)
def _(kernel: Any) -> ValueRange:
    _checks.kernel_values(kernel)
    return ValueRange(0.0, 1.0)


@value_range.register
def _(kernel: LabelKernel) -> ValueRange:
    kernel = _checks.kernel_values(kernel)
    return ValueRange(jnp.min(kernel.matrix), jnp.max(kernel.matrix))


@value_range.register
def _(kernel: Sum) -> ValueRange:
    kernel.check_values("kernel")
    ranges = [value_range(term) for term in kernel.terms]
    return ValueRange(sum(r.lower for r in ranges), sum(r.upper for r in ranges))


@value_range.register
def _(kernel: Scaled) -> ValueRange:
    kernel.check_values("kernel")
    factor = kernel.factor
    if not _checks.is_concrete(factor):  # a negative one would exchange the ends
        factor = jnp.where(factor > 0, factor, jnp.nan)
    lower, upper = value_range(kernel.kernel)
    return ValueRange(factor * lower, factor * upper)


def _product(one: ValueRange, two: ValueRange) -> ValueRange:
    corners = [x * y for x in one for y in two]
    if any(isinstance(c, jax.Array) for c in corners):
        return ValueRange(
            functools.reduce(jnp.minimum, corners), functools.reduce(jnp.maximum, corners)
        )
    return ValueRange(min(corners), max(corners))


@value_range.register
def _(kernel: Product) -> ValueRange:
    kernel.check_values("kernel")
    return functools.reduce(_product, map(value_range, kernel.factors))


@value_range.register
def _(kernel: TensorProduct) -> ValueRange:
    kernel = _checks.kernel_values(kernel)
    return _product(value_range(kernel.prediction), value_range(kernel.target))
