"""p-values of several hypotheses."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks


def holm(pvalues: ArrayLike) -> jax.Array:
    """p-values adjusted for their number by the method of Holm.

    With the sorted p_(1) ≤ … ≤ p_(k), that of p_(j) is max_{i ≤ j} min((k − i + 1) p_(i), 1). To
    reject the hypotheses whose adjusted p-value is at most α is to reject any true one with
    probability α at most, however the p-values depend on each other.

    Args:
        pvalues: in [0, 1], [..., k]; they are adjusted for each other along the last axis.

    Returns:
        An array of the same shape.

    Raises:
        TypeError: if they are no numbers.
        ValueError: if they are not in [0, 1], or there are none.

    Cost: O(k log k).

    References: Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> from calibjax import hypothesis_tests
    >>> print(hypothesis_tests.holm([0.01, 0.04, 0.03]))
    [0.03 0.06 0.06]
    """
    values = checks.floating("pvalues", checks.as_arrays("pvalues", pvalues))
    if not values.ndim or not values.size:
        raise ValueError(f"pvalues: expected at least one, [..., k], got shape {values.shape}")
    values = checks.satisfying("pvalues", values, lambda p: (p >= 0) & (p <= 1), "p in [0, 1]")
    return _holm(jnp.asarray(values))


@jax.jit
def _holm(pvalues: jax.Array) -> jax.Array:
    order = jnp.argsort(pvalues, -1)
    factors = jnp.arange(pvalues.shape[-1], 0, -1)
    stepped = jnp.take_along_axis(pvalues, order, -1) * factors
    stepped = jnp.minimum(jax.lax.cummax(stepped, stepped.ndim - 1), 1)
    return jnp.take_along_axis(stepped, jnp.argsort(order, -1), -1)
