"""Exact test of the coverage of predicted quantiles."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions import Categorical, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.estimators.probability_integral import randomised_intervals
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult

_BYTES_PER_INTERVAL = 16  # random bits and one-hot vectors of one sample in one redraw


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
        intervals: mean_i 1(q_i,j-1 < y_i ≤ q_ij) − P(interval j), between neighbouring quantiles,
        central:   mean_i 1(q_ij ≤ y_i ≤ q_il) − (τ_il − τ_ij), where τ_ij + τ_il = 1.

    Under calibration the intervals that contain the targets are independent draws with the
    probabilities between the levels, whatever the distributions are otherwise. The absolute
    differences are ranked among those of intervals resampled under the null: `pvalue` tests each
    difference on its own, `adjusted_pvalue` accounts for multiple testing, and its minimum is the
    p-value of the hypothesis that all are right. Both are exact for every n and B, if no target
    equals a quantile.

    Counts, rounded numbers or days without rain may equal a quantile with a positive probability.
    Then the hypothesis is P(Y < q) ≤ τ ≤ P(Y ≤ q), and the p-values are those of randomised
    intervals, as in `estimators.pit_values`. They depend on the key, and are not exact, since
    forecasts do not say how probable their jumps are. Of 1000 calibrated data sets of counts, rain
    with 60 % zeros or rounded numbers, n = 100 and 800, .01 to .06 were rejected at level .05 with
    one to five levels; up to .10 with nine levels, some of which are where a jump ends.

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
        "levels" [k], "intervals" [k + 1] and "central", of all pairs of levels τ and 1 − τ, from
        the outermost on; `statistic` contains their absolute values (with ties, those of
        randomised intervals), and the p-values are dictionaries with the same keys. A positive
        difference at a level means that quantiles are too high, a negative central one that they
        are too close together (overconfident). Of traced levels, which may be any, "central" is
        that of the levels j and k + 1 − j, [⌊k/2⌋].

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
    key = checks.random_key(key)
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    predictions, places, probs, intervals = _counted(key, predictions, targets, weights)
    options = {"num_draws": num_draws, "batch_size": batch_size}
    result = coverage_among_redraws(key, places, Categorical(probs), intervals, weights, **options)
    estimate = differences(predictions, weights, central_pairs(predictions.levels), targets)
    return dataclasses.replace(result, estimate=estimate)


def coverage_among_redraws(
    key: jax.Array,
    quantiles: Quantiles,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
    **options: Any,
) -> CalibrationTestResult:
    """`coverage_test` of quantiles of predictions without ties, with targets resampled from these.

    Its estimate is the statistic; `differences` have a sign.
    """
    data = quantiles, weights, central_pairs(quantiles.levels)
    options["num_bytes"] = _BYTES_PER_INTERVAL * quantiles.values.size
    return rank_among_redraws(key, _statistic, data, predictions, targets, adjust=True, **options)


def central_pairs(levels: Any) -> np.ndarray:
    """Places of all levels τ, and those of the levels 1 − τ above them, [2, m].

    They are those of the mean levels, and of traced ones the places from both ends on.
    """
    k = levels.shape[-1]
    if not checks.is_concrete(levels):
        return np.stack([np.arange(k // 2), k - 1 - np.arange(k // 2)])
    means = np.asarray(levels, float).reshape(-1, k).mean(0)
    return np.stack(np.nonzero(np.triu(np.isclose(means[:, None] + means, 1), 1)))


@jax.jit
def _counted(
    key: jax.Array, predictions: Quantiles, targets: jax.Array, weights: jax.Array | None
) -> tuple[Quantiles, Quantiles, jax.Array, jax.Array]:
    """The predictions, those of their intervals, the probabilities of these, and the observed."""
    # If anything is NaN, nothing is known about any level.
    is_whole = ~jnp.any(jnp.isnan(targets)) & ~jnp.any(jnp.isnan(predictions.values))
    if weights is not None:
        is_whole &= ~jnp.any(jnp.isnan(weights))
    levels = jnp.where(is_whole, predictions.levels, jnp.nan)
    levels = jnp.where(jnp.any(jnp.isnan(levels)), jnp.nan, levels)
    predictions = Quantiles(levels, predictions.values)
    intervals = randomised_intervals(key, predictions, targets, weights)
    places = Quantiles(levels, jnp.broadcast_to(jnp.arange(levels.shape[1]) + 0.5, levels.shape))
    return predictions, places, predictions.probs, intervals


@jax.jit
def differences(
    predictions: Quantiles, weights: jax.Array | None, pairs: Any, targets: jax.Array
) -> dict[str, jax.Array]:
    """Differences between observed and predicted frequencies, as in `coverage_test`."""
    levels, probs, y = predictions.levels, predictions.probs, targets[:, None]
    is_in = predictions.interval(y)[:, None] == jnp.arange(probs.shape[-1])
    mean = functools.partial(jnp.average, axis=0, weights=weights)
    at_levels, below = (
        mean((y <= predictions.values) - levels),
        mean((y < predictions.values) - levels),
    )
    central = at_levels[pairs[1]] - below[pairs[0]]
    return {"levels": at_levels, "intervals": mean(is_in - probs), "central": central}


def _statistic(data: tuple[Any, ...], chances: Any, targets: jax.Array) -> dict[str, jax.Array]:
    del chances
    return jax.tree.map(jnp.abs, differences(*data, targets))
