"""p-values from the pool of an observed statistic and its draws under calibration.

The observed value and the B draws are exchangeable under calibration, so the rank of the observed
value is uniform, even after a transformation that treats all B + 1 values alike.
"""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._pytree import PyTree


@jax.jit
def tolerance(statistic: jax.Array, null_samples: jax.Array) -> jax.Array:
    """Largest difference that counts as a tie: equal data sets may differ in the last digits."""
    size = jnp.where(jnp.isfinite(null_samples), jnp.abs(null_samples), 0)
    own = jnp.where(jnp.isfinite(statistic), jnp.abs(statistic), 0)
    # The median, since a few large draws do not affect the rounding errors of the others.
    return 100 * jnp.finfo(null_samples.dtype).eps * jnp.maximum(jnp.median(size, 0), own)


@jax.jit
def simulated_pvalue(statistic: jax.Array, null_samples: jax.Array) -> jax.Array:
    """Monte Carlo p-value (1 + #{T_b ≥ T}) / (B + 1).

    Differences within rounding errors count as ties. If the statistic is NaN, so is the p-value;
    null samples that are NaN count against rejection.

    Args:
        statistic: T, of any shape.
        null_samples: T_b, [B, ...].

    Returns:
        The p-values, in [1 / (B + 1), 1], of the shape of T.
    """
    count = jnp.sum(~(null_samples < statistic - tolerance(statistic, null_samples)), 0)
    pvalue = (1 + count) / jnp.asarray(null_samples.shape[0] + 1, null_samples.dtype)
    return jnp.where(jnp.isnan(statistic), jnp.nan, pvalue)


@jax.jit
def standardised(pool: jax.Array) -> jax.Array:
    """Deviations from the mean of a pool, in units of its standard deviation.

    Args:
        pool: observed value and draws, [B + 1, ...].

    Returns:
        The scores, of the same shape. Mean and standard deviation are those of the finite values;
        infinite values stay infinite, and NaN stays NaN. Values that differ by rounding errors only
        have the score zero.
    """
    is_finite = jnp.isfinite(pool)
    moments = {"axis": 0, "where": is_finite}
    mean, spread = jnp.mean(pool, **moments), jnp.std(pool, **moments)
    size = jnp.max(jnp.abs(pool), initial=0, **moments)
    is_constant = ~(spread > 100 * jnp.finfo(pool.dtype).eps * size)
    scores = (pool - jnp.where(is_constant, pool, mean)) / jnp.where(is_constant, 1, spread)
    return jnp.where(is_finite, scores, pool)


@jax.jit
def tied(pool: jax.Array, rounding: jax.Array) -> jax.Array:
    """A pool in which values that differ from the observed one by rounding only are equal to it.

    For what is transformed before it is ranked: differences, roots and standard scores have larger
    rounding errors than the sums that they come from.

    Args:
        pool: observed value and draws, [B + 1, ...].
        rounding: size of the rounding errors, [...].
    """
    return jnp.where(jnp.abs(pool - pool[0]) <= rounding, pool[0], pool)


@jax.jit
def adjusted_pvalues(statistic: PyTree, null_samples: PyTree) -> PyTree:
    """p-values of several statistics, adjusted for multiple testing by the max-T procedure.

    All statistics are standardised by mean and standard deviation over the pool of the observed and
    the drawn values; the adjusted p-value of each is its rank among the largest standardised
    statistics of the draws. Under calibration the probability that any of them is ≤ α is at most
    α, for every number of draws and every dependence.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: draws, [B, ...] each, in the same pytree.

    Returns:
        The same pytree of p-values.

    References: Westfall and Young (1993), single-step max T.
    """
    leaves, structure = jax.tree.flatten(statistic)
    draws = jax.tree.leaves(null_samples)
    # Observed value first. All B + 1 values are exchangeable, and enter mean and deviation alike.
    pools = [
        jnp.concatenate([jnp.asarray(t, d.dtype)[None], d]).reshape(d.shape[0] + 1, -1)
        for t, d in zip(leaves, draws, strict=True)
    ]
    pool = jnp.concatenate([x.astype(jnp.result_type(*pools)) for x in pools], 1)
    scores = standardised(pool)
    pvalues = jax.vmap(simulated_pvalue, (0, None))(scores[0], scores[1:].max(1))
    pvalues = jnp.where(jnp.any(jnp.isnan(pool[0])), jnp.nan, pvalues)  # the largest one is unknown
    parts = jnp.split(pvalues, np.cumsum([x.shape[1] for x in pools])[:-1])
    parts = [
        part.reshape(jnp.shape(t)).astype(d.dtype)
        for part, t, d in zip(parts, leaves, draws, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)
