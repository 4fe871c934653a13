"""The result of a test."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import record

_DISTINCT_DRAWS = 10  # so many different numbers do not agree twice by chance


@record
class CalibrationTestResult:
    """Result of a test of the null hypothesis that the predictions are calibrated.

    Where a test has several statistics, every attribute is an array or a pytree of them.

    Attributes:
        statistic: value of the test statistic; large values speak against calibration.
        pvalue: probability of such a value or a larger one under calibration, in (0, 1].
        estimate: estimate of the calibration error that belongs to the test.
        null_samples: draws of the statistic under calibration, [num_samples, ...]; None if the
            test does not draw any. More of them are added by `combine_results`.
        adjusted_pvalue: p-value adjusted for the number of statistics; None unless `exact_test`
            was asked for it.
        draws: what the draws are: "redrawn targets", "resamples", ...; None if there are none.
    """

    statistic: Any
    pvalue: Any
    estimate: Any
    null_samples: Any = None
    adjusted_pvalue: Any = None
    draws: str | None = dataclasses.field(default=None, metadata={"static": True})

    @property
    def pvalue_standard_error(self) -> Any:
        """Monte Carlo standard error √(p (1 − p) / (B + 2)) of a simulated p-value, else None.

        p is kept within 1 / (B + 1) of 0 and 1, so that the error is never zero.
        """
        if self.null_samples is None:
            return None
        return jax.tree.map(_standard_error, self.pvalue, self.null_samples)


def _standard_error(pvalue: jax.Array, null_samples: jax.Array) -> jax.Array:
    num_samples = null_samples.shape[0]
    least = 1 / (num_samples + 1)
    inside = jnp.clip(pvalue, least, 1 - least)
    return jnp.sqrt(inside * (1 - inside) / (num_samples + 2))


def _tolerance(statistic: jax.Array, null_samples: jax.Array) -> jax.Array:
    """Differences up to here are ties: equal data sets may differ in the last digits."""
    size = jnp.where(jnp.isfinite(null_samples), jnp.abs(null_samples), 0)
    own = jnp.where(jnp.isfinite(statistic), jnp.abs(statistic), 0)
    # The median, since a few large draws say nothing of the rounding of the others.
    return 100 * jnp.finfo(null_samples.dtype).eps * jnp.maximum(jnp.median(size, 0), own)


def simulated_pvalue(statistic: jax.Array, null_samples: jax.Array) -> jax.Array:
    """Monte Carlo p-value (1 + #{T_b ≥ T}) / (B + 1).

    Differences within rounding error count as ties. A statistic that is not a number gives no
    p-value, and null samples that are not count against rejection.

    Args:
        statistic: T, of any shape.
        null_samples: T_b, [B, ...].

    Returns:
        The p-values, in [1 / (B + 1), 1], of the shape of T.
    """
    count = jnp.sum(~(null_samples < statistic - _tolerance(statistic, null_samples)), 0)
    pvalue = (1 + count) / jnp.asarray(null_samples.shape[0] + 1, null_samples.dtype)
    return jnp.where(jnp.isnan(statistic), jnp.nan, pvalue)


def adjusted_pvalues(statistic: Any, null_samples: Any) -> Any:
    """p-values of several statistics, adjusted for their number by the largest of them.

    All statistics are standardised by mean and standard deviation over the observed and the drawn
    values together; the adjusted p-value of each is its rank among the largest standardised
    statistics of the draws. Under calibration the probability that any of them is ≤ α is at most
    α, for every number of draws and every dependence.

    Args:
        statistic: array, or pytree of arrays.
        null_samples: the same pytree of draws, [B, ...] each.

    Returns:
        The same pytree of p-values.

    References: Westfall and Young (1993), single-step max T.
    """
    leaves, structure = jax.tree.flatten(statistic)
    draws = jax.tree.leaves(null_samples)
    # Observed value first. It is one of B + 1 exchangeable ones, also in mean and deviation.
    pools = [
        jnp.concatenate([jnp.asarray(t, d.dtype)[None], d]).reshape(d.shape[0] + 1, -1)
        for t, d in zip(leaves, draws, strict=True)
    ]
    pool = jnp.concatenate([x.astype(jnp.result_type(*pools)) for x in pools], 1)
    # Infinite values are beyond all others, and numbers that are none make the largest score none.
    moments = {"axis": 0, "where": jnp.isfinite(pool)}
    mean, spread = jnp.mean(pool, **moments), jnp.std(pool, **moments)
    size = jnp.max(jnp.abs(pool), initial=0, **moments)
    is_constant = ~(spread > 100 * jnp.finfo(pool.dtype).eps * size)
    scores = (pool - jnp.where(is_constant, pool, mean)) / jnp.where(is_constant, 1, spread)
    scores = jnp.where(jnp.isfinite(pool), scores, pool)
    pvalues = jax.vmap(simulated_pvalue, (0, None))(scores[0], scores[1:].max(1))
    parts = jnp.split(pvalues, np.cumsum([x.shape[1] for x in pools])[:-1])
    parts = [
        part.reshape(jnp.shape(t)).astype(d.dtype)
        for part, t, d in zip(parts, leaves, draws, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)


def simulated_result(
    statistic: Any, null_samples: Any, estimate: Any, *, draws: str, adjust: bool = False
) -> CalibrationTestResult:
    """Result with simulated p-values of one statistic, or an array or a pytree of them.

    Raises:
        ValueError: if a statistic is a concrete NaN.
    """
    for value in jax.tree.leaves(statistic):
        if _checks.is_concrete(value):
            _checks.refuse_where(np.isnan(value), "statistic", "a number", value)
    pvalue = jax.tree.map(simulated_pvalue, statistic, null_samples)
    adjusted = adjusted_pvalues(statistic, null_samples) if adjust else None
    return CalibrationTestResult(statistic, pvalue, estimate, null_samples, adjusted, draws)


def combine_results(
    first: CalibrationTestResult, *others: CalibrationTestResult
) -> CalibrationTestResult:
    """One result from several runs of the same simulated test with different keys.

    The draws under calibration are put together and the p-values computed from all of them: more
    draws refine a result, nothing is started again.

    Args:
        first: a result with `null_samples`.
        others: results of the same test on the same data, each with a key of its own.

    Returns:
        The result with the draws of all of them; statistic and estimate are those of the first.

    Raises:
        TypeError: if an argument is no test result.
        ValueError: if a result has no draws, if the draws or the statistics differ in kind or the
            statistics in value (beyond rounding), so that they are not of the same test and data,
            if only some have adjusted p-values, or if two results share draws, that is, a key.

    Cost: O(B).

    References: none; see `exact_test` for the p-value.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> def test(seed, num_samples):
    ...     return hypothesis_tests.exact_test(
    ...         jax.random.key(seed),
    ...         lambda predictions, targets: jnp.sum(targets),
    ...         distributions.Bernoulli(jnp.full(10, 0.5)),
    ...         jnp.ones(10, int),
    ...         num_samples=num_samples,
    ...     )
    >>> result = hypothesis_tests.combine_results(test(0, 1000), test(1, 9000))
    >>> print(result.null_samples.shape)
    (10000,)
    """
    results = (first, *others)
    for i, result in enumerate(results):
        if not isinstance(result, CalibrationTestResult):
            raise TypeError(
                f"results[{i}]: expected a CalibrationTestResult, got {_checks.described(result)}"
            )
        if result.null_samples is None:
            raise ValueError(
                f"results[{i}].null_samples: expected draws, got None (not a simulated test)"
            )
        _refuse_other_test(f"results[{i}]", first, result)
    for i, result in enumerate(results):
        for j, earlier in enumerate(results[:i]):
            _refuse_same_draws(f"results[{j}] and results[{i}]", earlier, result)
    null_samples = jax.tree.map(
        lambda *draws: jnp.concatenate(draws), *(result.null_samples for result in results)
    )
    adjust = first.adjusted_pvalue is not None
    return simulated_result(
        first.statistic, null_samples, first.estimate, draws=first.draws, adjust=adjust
    )


def _refuse_other_test(
    name: str, first: CalibrationTestResult, other: CalibrationTestResult
) -> None:
    if other.draws != first.draws:
        raise ValueError(
            f"{name}.draws: expected {first.draws!r} as in the first result, got {other.draws!r}"
        )
    if jax.tree.structure(first) != jax.tree.structure(other):
        described = [
            f"{len(jax.tree.leaves(result.statistic))} statistics "
            f"{'without' if result.adjusted_pvalue is None else 'with'} adjusted p-values"
            for result in (first, other)
        ]
        raise ValueError(
            f"{name}: expected a result like the first, of {described[0]} (and the same names), "
            f"got {described[1]}"
        )
    triples = zip(
        *map(jax.tree.leaves, (first.statistic, other.statistic, first.null_samples)), strict=True
    )
    for expected, value, draws in triples:
        differs = jnp.abs(expected - value) > _tolerance(expected, draws)
        if _checks.is_concrete(differs) and np.any(differs):
            place = _checks.first_where(differs)
            raise ValueError(
                f"{name}.statistic: expected {np.asarray(expected)[place]} as in the first result "
                f"of the same test and data, got {np.asarray(value)[place]}"
            )


def _refuse_same_draws(names: str, one: CalibrationTestResult, two: CalibrationTestResult) -> None:
    for draws in zip(*map(jax.tree.leaves, (one.null_samples, two.null_samples)), strict=True):
        if not _checks.is_concrete(draws):
            continue
        x, y = sorted(map(np.asarray, draws), key=np.size)
        step = 16 * np.finfo(x.dtype).eps * max(np.nanmax(np.abs(x)), np.finfo(x.dtype).tiny)
        x, y = (np.unique(np.round(values / step)) for values in (x, y))
        # Those of a discrete statistic may agree by chance.
        is_continuous = x.size >= max(_DISTINCT_DRAWS, 0.9 * min(map(np.size, draws)))
        neighbours = np.concatenate([y - 1, y, y + 1])
        if is_continuous and np.mean(np.isin(x, neighbours)) > 0.5:
            raise ValueError(
                f"{names}: expected draws with different keys, got the same draws in both"
            )
