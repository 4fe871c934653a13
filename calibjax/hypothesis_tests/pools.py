"""p-values from the pool of an observed statistic and its draws under calibration.

The observed value and the B draws are exchangeable under calibration, so the rank of the observed
value is uniform, even after a transformation that treats all B + 1 values alike.
"""

import functools
import math

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
    return _scores(pool, *_moments(pool, jnp.isfinite(pool)))


def _moments(pool: jax.Array, where: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation, zero where values differ by rounding errors only."""
    mean, spread = jnp.mean(pool, 0, where=where), jnp.std(pool, 0, where=where)
    return mean, jnp.where(spread > _rounding(pool, where), spread, 0)


def _rounding(pool: jax.Array, where: jax.Array) -> jax.Array:
    size = jnp.max(jnp.abs(pool), 0, initial=0, where=where)
    return 100 * jnp.finfo(pool.dtype).eps * size


def _scores(pool: jax.Array, mean: jax.Array, spread: jax.Array) -> jax.Array:
    is_constant = spread == 0
    scores = (pool - jnp.where(is_constant, pool, mean)) / jnp.where(is_constant, 1, spread)
    return jnp.where(jnp.isfinite(pool), scores, pool)


def _typical(pool: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and standard deviation of a pool without its largest value.

    They treat all values alike, and yet do not depend on the size of an observed value that is far
    above all draws, which would make these look small. Where only the largest value differs from
    the others, it is included.
    """
    is_finite = jnp.isfinite(pool)
    largest = jnp.argmax(jnp.where(is_finite, pool, -jnp.inf), 0)
    is_other = is_finite & (jnp.arange(pool.shape[0])[:, None] != largest)
    (mean, spread), (other_mean, other_spread) = (_moments(pool, w) for w in (is_finite, is_other))
    differ = other_spread > 0
    return jnp.where(differ, other_mean, mean), jnp.where(differ, other_spread, spread)


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


def _joined(statistic: PyTree, null_samples: PyTree) -> jax.Array:
    """Observed value first, then the draws, of all statistics, [B + 1, K].

    All B + 1 values are exchangeable under calibration.
    """
    pools = [
        jnp.concatenate([jnp.asarray(t, d.dtype)[None], d]).reshape(d.shape[0] + 1, -1)
        for t, d in zip(*map(jax.tree.leaves, (statistic, null_samples)), strict=True)
    ]
    return jnp.concatenate([x.astype(jnp.result_type(*pools)) for x in pools], 1)


def _split(values: jax.Array, statistic: PyTree, null_samples: PyTree) -> PyTree:
    """Values [K] of all statistics in the tree and the shapes of these."""
    leaves, structure = jax.tree.flatten(statistic)
    parts = jnp.split(values, np.cumsum(list(map(jnp.size, leaves)))[:-1])
    trees = zip(parts, leaves, jax.tree.leaves(null_samples), strict=True)
    parts = [part.reshape(jnp.shape(t)).astype(d.dtype) for part, t, d in trees]
    return jax.tree.unflatten(structure, parts)


@jax.jit
def adjusted_pvalues(statistic: PyTree, null_samples: PyTree) -> PyTree:
    """p-values of several statistics, adjusted for multiple testing by the max-T procedure.

    All statistics are standardised by mean and standard deviation over the pool of the observed and
    the drawn values, without its largest value; the adjusted p-value of each is its rank among the
    largest standardised statistics of the draws. Under calibration the probability that any of them
    is ≤ α is at most α, for every number of draws and every dependence.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: draws, [B, ...] each, in the same pytree.

    Returns:
        The same pytree of p-values.

    References: Westfall and Young (1993), single-step max T.
    """
    pool = _joined(statistic, null_samples)
    scores = _scores(pool, *_typical(pool))
    pvalues = jax.vmap(simulated_pvalue, (0, None))(scores[0], scores[1:].max(1))
    pvalues = jnp.where(jnp.any(jnp.isnan(pool[0])), jnp.nan, pvalues)  # the largest one is unknown
    return _split(pvalues, statistic, null_samples)


@functools.partial(jax.jit, static_argnames=("level", "adjust"))
def critical_values(
    statistic: PyTree, null_samples: PyTree, *, level: float, adjust: bool
) -> PyTree:
    """Largest values of statistics whose p-values exceed the level, the same pytree.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: draws, [B, ...] each, in the same pytree.
        level: in (0, 1); infinity is returned if no value is rejected at this level, as B is small.
        adjust: whether p-values are those of `adjusted_pvalues`, or of `simulated_pvalue`.
    """
    pool = _joined(statistic, null_samples)
    mean, spread = _typical(pool) if adjust else (0.0, 1.0)
    scores = _scores(pool, *map(jnp.asarray, (mean, spread)))[1:]
    draws = scores.max(1, keepdims=True) if adjust else scores
    rank = math.floor(level * len(pool) + 1e-9)
    if rank == 0:
        return _split(jnp.full(pool.shape[1], jnp.inf, pool.dtype), statistic, null_samples)
    last = jnp.sort(draws, 0)[-rank]  # NaN counts against rejection
    last = jnp.where(jnp.isnan(last), jnp.inf, last + tolerance(last, draws))
    limit = mean + jnp.where(spread == 0, _rounding(pool, jnp.isfinite(pool)), spread * last)
    return _split(limit, statistic, null_samples)
