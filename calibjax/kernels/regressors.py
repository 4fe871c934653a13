"""Kernels on predictions of rank one: products of a number that describes each prediction."""

import dataclasses
import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, ratio
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import nonnegative, real
from calibjax.distributions.features import bare
from calibjax.kernels.base import Kernel, without_draws


def _location(p: Any) -> jax.Array:
    return p.loc if hasattr(p, "loc") else p.mean()


def _log_scale(p: Any) -> jax.Array:
    return jnp.log(p.scale) if hasattr(p, "scale") else 0.5 * jnp.log(p.variance())


_NUMBERS = {"location": _location, "log scale": _log_scale}


@functools.partial(jax.jit, static_argnums=0)
def _numbers(of: str, predictions: Distribution) -> jax.Array:
    return jax.vmap(_NUMBERS[of])(predictions)


@record
class Regressor(Kernel):
    """Kernel on predictions k(p, q) = x(p) x(q) with a standardised number x.

    With the score of a recalibration as target kernel, such as `Fisher(AffineScaling(), "shift")`,
    it looks for an error that grows with x, as a linear regression of the errors on x does:
    predictions too low where they are low and too high where they are high, or too narrow where
    they are wide.

    Attributes:
        of: "location" (`loc`, or the mean), or "log scale" (log of `scale`, or of the standard
            deviation), of scalar predictions.
        center: mean of the number.
        unit: its standard deviation, not negative; zero for predictions that are all alike, for
            which x is zero.

    `Regressor.among(predictions, of)` takes center and unit from a batch.

    Cost: O(1). Tests take linear time, as with `Nystrom`.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, kernels
    >>> from calibjax.kernels.regressors import Regressor
    >>> predictions = distributions.Normal(jnp.array([0.0, 2.0]), jnp.ones(2))
    >>> kernel = Regressor.among(predictions, "location")
    >>> print(kernels.gram_matrix(kernel, predictions))
    [[ 1. -1.]
     [-1.  1.]]
    """

    of: str = dataclasses.field(metadata={"static": True})
    center: jax.Array | float = parameter(real, default=0.0)
    unit: jax.Array | float = parameter(nonnegative, default=1.0)

    @classmethod
    def among(cls, predictions: Distribution, of: str) -> "Regressor":
        """The kernel with mean and standard deviation of the number among n predictions."""
        predictions = bare(checks.batch(predictions))
        of = checks.choice("of", of, tuple(_NUMBERS))
        number = _numbers(of, predictions)
        checks.shape("predictions", number, (None,), "scalar predictions")
        xp: ModuleType = np if checks.is_concrete(number) else jnp
        number = xp.asarray(number)
        center = xp.mean(number, dtype=number.dtype)
        size = xp.max(abs(number - center))
        unit = xp.where(size > 0, size, 1)
        unit = unit * xp.sqrt(xp.mean(xp.square((number - center) / unit)))  # none overflows
        rounding = 10 * xp.finfo(number.dtype).eps * xp.max(abs(number))
        unit = xp.where(unit <= rounding, 0, unit)  # NaN stays
        return cls(of, jnp.asarray(center), jnp.asarray(unit, number.dtype))

    def number(self, p: Distribution) -> jax.Array:
        """The number x(p)."""
        value = _NUMBERS[self.of](bare(p))
        unit = jnp.asarray(self.unit, value.dtype)
        centered = value - jnp.asarray(self.center, value.dtype)
        is_zero = unit == 0
        return jnp.where(is_zero, 0, ratio(centered, jnp.where(is_zero, 1, unit)))

    def __call__(self, p: Distribution, q: Distribution) -> jax.Array:
        """Product of the numbers of two predictions."""
        return self.number(p) * self.number(q)

    def factor(self, predictions: Distribution) -> jax.Array:
        """Features of a batch of predictions, [n, 1]: the numbers."""
        return jax.vmap(self.number)(without_draws(predictions)).astype(
            floating_dtype(predictions)
        )[:, None]
