"""p-values from the pool of an observed statistic and its draws under calibration.

The observed value and the B draws are exchangeable under calibration, so the rank of the observed
value is uniform, even after a transformation that treats all B + 1 values alike.
"""

import math
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core.pytree import PyTree

_FEWEST_DRAWS, _TAIL_DRAWS, _ENOUGH = 100, 250, 10  # to fit a tail; in it; to need none


@jax.jit
def tolerance(statistic: jax.Array, null_samples: jax.Array) -> jax.Array:
    """Largest difference that counts as a tie: equal data sets may differ in the last digits."""
    return _tolerance(statistic, null_samples, jnp)


Numbers = TypeVar("Numbers", np.ndarray, jax.Array)


def _tolerance(statistic: ArrayLike, null_samples: Numbers, xp: ModuleType) -> Numbers:
    """With functions of `xp`, jax.numpy or numpy."""
    size = xp.where(xp.isfinite(null_samples), xp.abs(null_samples), 0)
    sizes = xp.where(xp.isfinite(statistic), xp.abs(statistic), 0)
    # The median, since a few large draws do not affect the rounding errors of the others.
    return 100 * xp.finfo(null_samples.dtype).eps * xp.maximum(xp.median(size, 0), sizes)


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
def tail_pvalue(statistic: jax.Array, pvalue: jax.Array, null_samples: jax.Array) -> jax.Array:
    """`CalibrationTestResult.asymptotic_pvalue` of one statistic, of any shape."""
    num_draws = null_samples.shape[0]
    size = min(_TAIL_DRAWS, num_draws // 10)
    if num_draws < _FEWEST_DRAWS:
        return pvalue
    largest = -jnp.sort(-null_samples, 0)[: size + 1]
    start = (largest[size - 1] + largest[size]) / 2
    beyond = largest[:size] - start
    shape = (size, *[1] * (beyond.ndim - 1))
    ranks = (jnp.arange(size).reshape(shape) + 0.5) / size  # 1 − F, from the largest
    mean, weighted = jnp.mean(beyond, 0), jnp.mean(beyond * ranks, 0)
    spread = jnp.where(mean > 2 * weighted, mean - 2 * weighted, 1)
    tail = jnp.clip((mean - 4 * weighted) / spread, 0, 0.5)
    scale = mean * (1 - tail)
    units = jnp.maximum(statistic - start, 0) / jnp.where(scale > 0, scale, 1)
    heavy = jnp.exp(-jnp.log1p(tail * units) / jnp.where(tail > 0, tail, 1))
    beyond_start = jnp.where(tail > 0, heavy, jnp.exp(-units))
    fitted = size / (num_draws + 1) * beyond_start
    fitted = jnp.clip(fitted, 1 / (num_draws + 1) ** 2, pvalue)
    is_known = (pvalue * (num_draws + 1) > _ENOUGH) | ~(scale > 0) | jnp.isnan(fitted)
    return jnp.where(is_known, pvalue, fitted)


@jax.jit
def standardised(pool: jax.Array, values: jax.Array | None = None) -> jax.Array:
    """Deviations from the mean of a pool, in units of its standard deviation.

    Args:
        pool: observed value and draws, [B + 1, ...].
        values: other values, in place of those of the pool.

    Returns:
        The scores, of the same shape. Mean and standard deviation are those of the finite values;
        infinite values stay infinite, and NaN stays NaN. Values that differ by rounding errors only
        have the score zero.
    """
    moments = _moments(pool, jnp.isfinite(pool), jnp)
    return _scores(pool if values is None else values, *moments, jnp)


def _moments(pool: Numbers, where: Numbers, xp: ModuleType) -> tuple[Any, Any]:
    """Mean and standard deviation, zero where values differ by rounding errors only."""
    mean, spread = xp.mean(pool, 0, where=where), xp.std(pool, 0, where=where)
    return mean, xp.where(spread > _rounding(pool, where, xp), spread, 0)


def _rounding(pool: Numbers, where: Numbers, xp: ModuleType) -> Numbers:
    size = xp.max(xp.abs(pool), 0, initial=0, where=where)
    return 100 * xp.finfo(pool.dtype).eps * size


def _scores(pool: Numbers, mean: Numbers, spread: Numbers, xp: ModuleType) -> Numbers:
    is_constant = spread == 0
    scores = (pool - xp.where(is_constant, pool, mean)) / xp.where(is_constant, 1, spread)
    return xp.where(xp.isfinite(pool), scores, pool)


def _typical(pool: Numbers, xp: ModuleType) -> tuple[Any, Any]:
    """Mean and standard deviation of a pool without its largest value.

    They treat all values alike, and yet do not depend on the size of an observed value that is far
    above all draws, which would make these look small. Where only the largest value differs from
    the others, it is included.
    """
    is_finite = xp.isfinite(pool)
    largest = xp.argmax(xp.where(is_finite, pool, -xp.inf), 0)
    is_other = is_finite & (xp.arange(pool.shape[0])[:, None] != largest)
    mean, spread = _moments(pool, is_finite, xp)
    other_mean, other_spread = _moments(pool, is_other, xp)
    differ = other_spread > 0
    return xp.where(differ, other_mean, mean), xp.where(differ, other_spread, spread)


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


def _joined(statistic: PyTree, null_samples: PyTree, xp: ModuleType) -> Any:
    """Observed value first, then the draws, of all statistics, [B + 1, K].

    All B + 1 values are exchangeable under calibration.
    """
    pools = [
        xp.concatenate([xp.asarray(t, d.dtype)[None], d]).reshape(d.shape[0] + 1, -1)
        for t, d in zip(*map(jax.tree.leaves, (statistic, null_samples)), strict=True)
    ]
    return xp.concatenate([x.astype(xp.result_type(*pools)) for x in pools], 1)


def _split(values: Any, statistic: PyTree, null_samples: PyTree, xp: Any) -> PyTree:
    """Values [K] of all statistics in the tree and the shapes of these."""
    leaves, structure = jax.tree.flatten(statistic)
    parts = xp.split(values, np.cumsum(list(map(jnp.size, leaves)))[:-1])
    trees = zip(parts, leaves, jax.tree.leaves(null_samples), strict=True)
    parts = [part.reshape(jnp.shape(t)).astype(d.dtype) for part, t, d in trees]
    return jax.tree.unflatten(structure, parts)


def largest_scores(statistic: PyTree, null_samples: PyTree) -> np.ndarray:
    """Largest standardised statistic of the observed data set, then of the redraws, [B + 1].

    Whose ranks are the smallest of the `adjusted_pvalues` of the data set, and of every redraw.
    Of concrete arrays, by NumPy.
    """
    statistic, null_samples = jax.tree.map(np.asarray, (statistic, null_samples))
    pool = _joined(statistic, null_samples, np)
    return _scores(pool, *_typical(pool, np), np).max(1)


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
    pool = _joined(statistic, null_samples, jnp)
    scores = _scores(pool, *_typical(pool, jnp), jnp)
    pvalues = jax.vmap(simulated_pvalue, (0, None))(scores[0], scores[1:].max(1))
    pvalues = jnp.where(jnp.any(jnp.isnan(pool[0])), jnp.nan, pvalues)  # the largest one is unknown
    return _split(pvalues, statistic, null_samples, jnp)


def critical_values(
    statistic: PyTree, null_samples: PyTree, *, level: float, adjust: bool
) -> PyTree:
    """Largest values of statistics whose p-values exceed the level, the same pytree.

    Of concrete arrays, by NumPy: it takes less time than to compile it.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: draws, [B, ...] each, in the same pytree.
        level: in (0, 1); infinity is returned if no value is rejected at this level, as B is small.
        adjust: whether p-values are those of `adjusted_pvalues`, or of `simulated_pvalue`.
    """
    statistic, null_samples = jax.tree.map(np.asarray, (statistic, null_samples))
    pool = _joined(statistic, null_samples, np)
    mean, spread = _typical(pool, np) if adjust else (np.zeros((), pool.dtype), pool.dtype.type(1))
    scores = _scores(pool, mean, spread, np)[1:]
    draws = scores.max(1, keepdims=True) if adjust else scores
    rank = math.floor(level * len(pool) + 1e-9)
    last = np.sort(draws, 0)[-rank] if rank else np.inf  # NaN counts against rejection
    last = np.where(np.isnan(last), np.inf, last + _tolerance(last, draws, np))
    rounding = _rounding(pool, np.isfinite(pool), np)
    limit = mean + np.where(spread == 0, rounding, np.where(spread == 0, 1, spread) * last)
    return _split(limit, statistic, null_samples, np)
