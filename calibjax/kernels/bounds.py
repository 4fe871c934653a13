"""Bounds of the values of kernels."""

from calibjax import _checks
from calibjax.kernels.base import Kernel, ValueRange


def value_range(kernel: Kernel) -> ValueRange:
    """Lower and upper bound of the values of a kernel, from its record.

    Sums, products and multiples combine the intervals of their parts. Other classes define a
    method `value_range()`, without arguments.

    Args:
        kernel: a kernel.

    Returns:
        The interval; it need not be the smallest one.

    Raises:
        TypeError: if a part of the kernel is not a kernel.
        ValueError: if a factor is not positive, or a sum or a product is empty.
        NotImplementedError: if no bound is known.

    >>> from calibjax import kernels
    >>> kernel = 2.0 * kernels.Exponential() + kernels.White()
    >>> print(kernels.value_range(kernel))
    ValueRange(lower=0.0, upper=3.0)
    """
    kernel = _checks.kernel_values(kernel)
    return kernel.value_range()
