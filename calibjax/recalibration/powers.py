"""Distributions at another temperature, q ∝ p^{1/T}."""

from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import T


def tempered(p: T, temperature: jax.Array | float) -> T:
    """The distribution p at temperature T, as `TemperatureScaling` says; for a batch use `vmap`.

    Raises:
        TypeError: if the temperature is not a number.
        ValueError: if it is not positive and finite.
        NotImplementedError: if the family has no rule.
    """
    temperature = checks.positive_scalar("temperature", temperature)
    if not hasattr(p, "tempered"):
        raise NotImplementedError(
            f"tempered is not defined for {type(p).__name__}; define its method "
            "tempered(temperature), which returns another instance"
        )
    return _tempered(p, jnp.asarray(temperature, floating_dtype(p)))


@jax.jit
def _tempered(p: Any, temperature: jax.Array) -> Any:
    return p.tempered(temperature)
