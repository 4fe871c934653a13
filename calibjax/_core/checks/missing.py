"""Numbers that are missing: NaN, or the integer that stands for it."""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core.checks.arrays import is_concrete
from calibjax._core.pytree import T


def nan_unless(condition: ArrayLike, values: ArrayLike) -> jax.Array:
    """NaN where a condition is false. Integers become floating-point numbers."""
    values = values if jnp.issubdtype(jnp.result_type(values), jnp.floating) else values * 1.0
    return jnp.where(condition, values, jnp.nan)


def is_missing(values: ArrayLike) -> jax.Array:
    """Whether values are NaN, or the integer that stands for it."""
    dtype = jnp.result_type(values)
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.equal(values, jnp.iinfo(dtype).min)
    return jnp.isnan(values) if jnp.issubdtype(dtype, jnp.floating) else jnp.zeros_like(values)


def missing_unless(condition: ArrayLike, integers: jax.Array) -> jax.Array:
    """The integer that stands for NaN where a condition is false."""
    return jnp.where(condition, integers, jnp.iinfo(integers.dtype).min)


def missing_where(bad: ArrayLike, tree: T) -> T:
    """A batch with all numbers of the rows [n] that are bad missing: NaN or what stands for it."""

    def masked(leaf: jax.Array) -> jax.Array:
        is_integer = jnp.issubdtype(leaf.dtype, jnp.integer)
        missing = jnp.iinfo(leaf.dtype).min if is_integer else jnp.nan
        return jnp.where(jnp.reshape(bad, (-1, *[1] * (leaf.ndim - 1))), missing, leaf)

    return jax.tree.map(masked, tree)


def nan_with(values: T, *data: object) -> T:
    """Values of a pytree; NaN if a traced number in the data, which they come from, is missing.

    For what need not depend on all numbers of the data: p-values, user's functions, ranks.
    """
    leaves = [leaf for leaf in jax.tree.leaves(data) if not is_concrete(leaf)]
    if not leaves:
        return values
    is_whole = ~functools.reduce(jnp.logical_or, (jnp.any(is_missing(leaf)) for leaf in leaves))
    return jax.tree.map(lambda value: nan_unless(is_whole, value), values)


def missing_rows(batch: object) -> jax.Array:
    """Which rows of a batch hold something that is missing, [n]."""
    leaves = [is_missing(leaf).reshape(jnp.shape(leaf)[0], -1) for leaf in jax.tree.leaves(batch)]
    return functools.reduce(jnp.logical_or, (jnp.any(leaf, 1) for leaf in leaves))


def nan_rows(bad: ArrayLike, tree: T) -> T:
    """A batch whose floating-point leaves are NaN in the rows [n] that are bad."""

    def masked(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        return jnp.where(jnp.reshape(bad, (-1, *[1] * (jnp.ndim(leaf) - 1))), jnp.nan, leaf)

    return jax.tree.map(masked, tree)
