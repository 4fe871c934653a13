"""Textbook p-values: distributions that statistics have under calibration for large n.

A statistic that has one carries the function textbook_pvalue(value, predictions, targets,
**options), which `exact_test` calls. Those of users may do so, too.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaincc, ndtr

from calibjax._core.pytree import PyTree

_TERMS = np.arange(30)  # of series, which converge from the fifth on


def textbook_pvalue_of(statistic: Any, value: PyTree, predictions: Any, targets: Any) -> PyTree:
    """The textbook p-value of a statistic, or of a partial one, that has one; else None."""
    options: dict[str, Any] = {}
    while isinstance(statistic, functools.partial):
        statistic, options = statistic.func, statistic.keywords | options
    pvalue = getattr(statistic, "textbook_pvalue", None)
    return None if pvalue is None else pvalue(value, predictions, targets, **options)


def with_textbook_pvalue(pvalue: Callable[..., jax.Array]) -> Callable[[Any], Any]:
    """Attaches the textbook p-value to a statistic."""

    def attach(function: Any) -> Any:
        function.textbook_pvalue = pvalue
        return function

    return attach


def two_sided(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(|Z| ≥ x) of a standard normal Z."""
    return 2 * ndtr(-value)


def chi_squared(value: jax.Array, degrees: jax.Array | int) -> jax.Array:
    """P(X ≥ x) of a χ²."""
    half = jnp.asarray(degrees, value.dtype) / 2
    return gammaincc(half, value / 2)


def beyond_brownian_motion(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(sup |B| ≥ x) of Brownian motion on [0, 1]."""
    k, x = _TERMS, jnp.maximum(value, 0.05)
    odd, signs = 2 * k + 1, (-1.0) ** k
    tail = 4 * jnp.sum(signs * ndtr(-odd * x))
    rest = jnp.sum(signs / odd * jnp.exp(-jnp.square(odd * np.pi / x) / 8))
    return jnp.where(x > 1, tail, 1 - 4 / np.pi * rest).astype(value.dtype)


def beyond_brownian_bridge(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """P(sup |B| ≥ x) of a Brownian bridge on [0, 1], the distribution of Kolmogorov."""
    k, x = _TERMS + 1, jnp.maximum(value, 0.05)
    tail = -2 * jnp.sum((-1.0) ** k * jnp.exp(-2 * jnp.square(k * x)))
    rest = jnp.sum(jnp.exp(-jnp.square((2 * k - 1) * np.pi / x) / 8))
    return jnp.where(x > 1, tail, 1 - np.sqrt(2 * np.pi) / x * rest).astype(value.dtype)


def two_degrees(value: jax.Array, *_: object, **__: object) -> jax.Array:
    """That of a χ² with two degrees of freedom."""
    return jnp.exp(-value / 2)
