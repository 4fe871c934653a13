"""Exact test of the coverage of predicted quantiles."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.compilation import jit
from calibjax._core.sharding import follows_data
from calibjax.distributions import Categorical, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult

_BYTES_PER_INTERVAL = 16  # random bits and one-hot vectors of one sample in one redraw


@follows_data
@checks.key_first
def coverage_test(
    key: jax.Array,
    predictions: Quantiles,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of whether predicted quantiles have their nominal coverage, at each level.

    For k quantiles q_i1, ..., q_ik of sample i at the levels τ_i1, ..., τ_ik,

        levels:    mean_i 1(y_i ≤ q_ij) − τ_ij, for each level,
        intervals: mean_i 1(y_i in interval j) − P(interval j), between neighbouring quantiles,
        central:   mean_i 1(q_ij < y_i ≤ q_il) − (τ_il − τ_ij), l = k + 1 − j, for j < l.

    Under calibration the intervals that contain the targets are independent draws with the
    probabilities between the levels, whatever the distributions are otherwise. The absolute
    differences are ranked among those of redrawn intervals: `pvalue` tests each difference on its
    own, `adjusted_pvalue` accounts for multiple testing, and its minimum is the p-value of the
    hypothesis that all are right. Both are exact for every n and B. The hypothesis excludes
    targets with P(Y = q) > 0, such as counts, which may lie on a quantile too often.

    It detects errors that do not average out over the samples: quantiles that are too low for one
    half of them and too high for the other half pass.

    Args:
        key: a JAX random key.
        predictions: batch of n `Quantiles`.
        targets: [n].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; the means above are weighted.
            None for samples that count equally.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result. `estimate` contains the signed differences as a dictionary with the keys
        "levels" [k], "intervals" [k + 1] and "central" [⌊k/2⌋]; `statistic` contains their absolute
        values, and the p-values are dictionaries with the same keys. A positive difference at a
        level means that quantiles are too high, a negative central one that they are too close
        together (overconfident).

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: B n k, memory O(batch_size n k).

    References: none of the four papers has it; see `exact_test`. Kupiec (1995), Techniques for
    verifying the accuracy of risk measurement models, tests a single level.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> targets = jax.random.normal(jax.random.key(0), (200,))  # with quantiles −1.28 and 1.28
    >>> values = jnp.tile(jnp.array([-0.5, 0.5]), (200, 1))
    >>> predictions = distributions.Quantiles(jnp.array([0.1, 0.9]), values)
    >>> test = hypothesis_tests.coverage_test(jax.random.key(1), predictions, targets)
    >>> print(test.estimate["central"].round(1), test.adjusted_pvalue["central"] < 0.01)
    [-0.4] [ True]
    """
    if not isinstance(predictions, Quantiles):
        raise TypeError(
            "predictions: expected a batch of distributions.Quantiles, got "
            f"{checks.described(predictions)}"
        )
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    quantiles, probs, intervals = _counted(predictions, targets, weights)
    drawn = Categorical(probs), intervals
    options = {"num_draws": num_draws, "batch_size": batch_size}
    return _ranked(key, _statistic, (quantiles, weights), drawn, intervals, **options)


def coverage_among_redraws(
    key: jax.Array,
    quantiles: Quantiles,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    *,
    num_draws: int,
) -> CalibrationTestResult:
    """`coverage_test` of quantiles of continuous predictions, with targets redrawn from these."""
    quantiles, targets, weights = checks.weighted_samples(quantiles, targets, weights)
    intervals = jax.vmap(Quantiles.interval)(quantiles, targets)
    drawn, data = (predictions, targets), (quantiles, weights)
    return _ranked(key, _statistic_of_targets, data, drawn, intervals, num_draws=num_draws)


def _ranked(
    key: jax.Array,
    statistic: Callable[..., Any],
    data: tuple[Quantiles, Any],
    drawn: tuple[Any, jax.Array],
    intervals: jax.Array,
    **options: Any,
) -> CalibrationTestResult:
    """The test of what is redrawn and observed, and the differences at the observed intervals."""
    num_bytes = _BYTES_PER_INTERVAL * data[0].values.size
    result = rank_among_redraws(
        key, statistic, data, *drawn, num_bytes=num_bytes, adjust=True, **options
    )
    return dataclasses.replace(result, estimate=_differences(*data, intervals))


def _statistic_of_targets(
    data: tuple[Quantiles, Any], predictions: Categorical, targets: jax.Array
) -> dict[str, jax.Array]:
    intervals = jax.vmap(Quantiles.interval)(data[0], targets)
    return _statistic(data, predictions, intervals)


@jit
def _counted(
    predictions: Quantiles, targets: jax.Array, weights: jax.Array | None
) -> tuple[Quantiles, jax.Array, jax.Array]:
    """The predictions, the probabilities of the intervals, and the intervals of the targets."""
    # If anything is NaN, nothing is known about any level.
    is_whole = ~jnp.any(jnp.isnan(targets)) & ~jnp.any(jnp.isnan(predictions.values))
    if weights is not None:
        is_whole &= ~jnp.any(jnp.isnan(weights))
    levels = jnp.where(is_whole, predictions.levels, jnp.nan)
    levels = jnp.where(jnp.any(jnp.isnan(levels)), jnp.nan, levels)
    predictions = Quantiles(levels, predictions.values)
    return predictions, predictions.probs, jax.vmap(Quantiles.interval)(predictions, targets)


@jit
def _differences(
    predictions: Quantiles, weights: jax.Array | None, intervals: jax.Array
) -> dict[str, jax.Array]:
    """Differences between observed and predicted frequencies of the intervals."""
    levels, probs = predictions.levels, predictions.probs
    is_in = intervals[:, None] == jnp.arange(probs.shape[1])
    is_below = intervals[:, None] <= jnp.arange(levels.shape[1])
    mean = functools.partial(jnp.average, axis=0, weights=weights)
    at_levels = mean(is_below - levels)
    return {
        "levels": at_levels,
        "intervals": mean(is_in - probs),
        "central": (at_levels[::-1] - at_levels)[: levels.shape[1] // 2],
    }


def _statistic(
    data: tuple[Quantiles, Any], chances: Categorical, intervals: jax.Array
) -> dict[str, jax.Array]:
    del chances
    return jax.tree.map(jnp.abs, _differences(*data, intervals))
