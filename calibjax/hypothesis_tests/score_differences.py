"""Differences of mean scores of two models of the same targets, and of what can be repaired."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import mean_and_error
from calibjax._core.pytree import record
from calibjax.distributions import StudentT
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests.clusters import Clusters, clusters_of
from calibjax.hypothesis_tests.result import _is_number, _shown
from calibjax.recalibration.base import cross_fitted
from calibjax.recalibration.gain import default_score
from calibjax.scores.base import per_sample


@record
class ScoreDifference:
    """A mean of paired differences.

    Attributes:
        estimate: the mean.
        standard_error: of the mean.
        low: lower end of the confidence interval.
        high: upper end.
        pvalue: two-sided, of the hypothesis that the expected difference is zero.
        of_gains: whether these are differences of gains, which are better the larger they are.

    It prints as one line, which names the better model if the interval does not contain zero.
    """

    estimate: jax.Array
    standard_error: jax.Array
    low: jax.Array
    high: jax.Array
    pvalue: jax.Array
    of_gains: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        """The numbers; arrays are shown by their shapes."""
        parts = f"{_shown(self.estimate)} ± {_shown(self.standard_error)}"
        for name in ("low", "high", "pvalue"):
            parts += f", {name}={_shown(getattr(self, name))}"
        verb, sign = ("has more to gain", -1) if self.of_gains else ("has the better score", 1)
        is_clear = all(map(_is_number, (self.low, self.high))) and (self.low > 0) | (self.high < 0)
        return f"{type(self).__name__}({parts}){better(verb, self.estimate, is_clear, sign)}"


def better(verb: str, difference: Any, is_clear: bool | jax.Array, sign: int = 1) -> str:
    """Which of two models is better: the first if the difference has the other sign."""
    if not _is_number(difference):
        return ""
    if not is_clear:
        return f": which model {verb} is not clear"
    return f": the {'second' if sign * difference > 0 else 'first'} model {verb}"


def checked_model(
    name: str, others: Any, predictions: Distribution, *, keep_logs: bool = False
) -> Distribution:
    """Another batch of distributions, as many as the predictions."""
    others = checks.batch(others, name=name, keep_logs=keep_logs)
    number, n = (jax.tree.leaves(x)[0].shape[0] for x in (others, checks.batch(predictions)))
    if number != n:
        raise ValueError(
            f"{name}: expected {n} distributions, one for each prediction, got {number}"
        )
    return others


def checked_models(
    predictions: Distribution,
    others: Distribution,
    targets: ArrayLike,
    weights: ArrayLike | None,
    score: Callable[..., jax.Array] | None,
) -> tuple[Any, Any, Any, jax.Array | None, Callable[..., jax.Array]]:
    """Both models, the targets, their weights, and the score, by default one that both have."""
    checks.same_rows(predictions=predictions, others=others, targets=targets, weights=weights)
    raw_targets = targets
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2, keep_logs=True
    )
    others = checked_model("others", others, predictions, keep_logs=True)
    others, _ = checks.predictions_and_targets(
        others, raw_targets, names=("others", "targets"), keep_logs=True
    )
    score = default_score(predictions, others) if score is None else score
    checks.function("function", "score", score, "predictions", "targets")
    return predictions, others, targets, weights, score


def _mean_of(
    differences: jax.Array, weights: jax.Array | None, clusters: Any, level: ArrayLike
) -> ScoreDifference:
    """Mean, error, interval and p-value of Student's distribution."""
    level = checks.proportion("confidence_level", level)
    if checks.is_concrete(differences, weights):
        values = np.asarray(differences)
        counts = True if weights is None else np.asarray(weights) > 0
        bad = ~np.isfinite(values) & counts
        checks.refuse_where(bad, "score", "finite scores of both models", values)
    if clusters is not None:
        clusters = clusters_of(clusters, len(differences), differences.dtype, weights)
    return _summarised(differences, weights, clusters, level)


@jax.jit
def _summarised(
    differences: jax.Array, weights: jax.Array | None, clusters: Clusters | None, level: ArrayLike
) -> ScoreDifference:
    ids = None if clusters is None else clusters.ids
    mean, error = mean_and_error(differences, weights, ids)
    number = len(differences) if weights is None else jnp.sum(weights)
    freedom = jnp.asarray((number if clusters is None else clusters.number) - 1, mean.dtype)
    zero = jnp.zeros_like(mean)
    student = StudentT(freedom, zero, zero + 1)
    # Differences that are all equal, but for rounding, have an unknown scatter.
    is_known = error > 16 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    reach = -student.icdf(jnp.asarray((1 - level) / 2, mean.dtype)) * error
    reach = jnp.where(is_known | (mean == 0), reach, jnp.inf)
    pvalue = 2 * student.cdf(-jnp.abs(mean) / jnp.where(error > 0, error, 1))
    pvalue = jnp.where(is_known, pvalue, 1)
    pvalue = jnp.maximum(pvalue, jnp.finfo(mean.dtype).tiny)  # never zero
    pvalue = checks.nan_with(pvalue, mean)
    return ScoreDifference(mean, error, mean - reach, mean + reach, pvalue)


def score_difference(
    predictions: Distribution,
    others: Distribution,
    targets: ArrayLike,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> ScoreDifference:
    """Paired difference of the mean scores of two models of the same targets.

        d_i = S(p_i, y_i) − S(q_i, y_i),   d̄ = n⁻¹ Σ_i d_i,   se² = Σ_i (d_i − d̄)² / (n (n − 1)),

    with the interval and the p-value of the paired t-test. It is negative where the first model is
    better. With weights d̄ is the weighted mean, n = (Σ_i w_i)² / Σ_i w_i², and
    se² = n / (n − 1) Σ_i w_i² (d_i − d̄)² / (Σ_i w_i)². If all differences are equal, their scatter
    is unknown: the interval is infinite, and p is 1. With clusters

        se² = G / (G − 1) Σ_g (Σ_{i ∈ g} w_i (d_i − d̄))² / (Σ_i w_i)²,

    and Student's distribution has G − 1 degrees of freedom. This is a z-test where n is large, the
    test of Diebold and Mariano for independent differences. Forecasts of several steps have
    dependent ones: put what overlaps into one cluster.

    Args:
        predictions: batch of n ≥ 2 distributions of the first model.
        others: those of the second one, which may be of another family.
        targets: [n] or [n, d].
        score: function (predictions, targets) → mean, smaller for better predictions; by default
            what both models have of the negative log-likelihood, the CRPS and the pinball loss.
        weights: w ≥ 0 of the samples, [n].
        clusters: for dependent samples, integers that are equal within clusters, as in
            `cluster_skce_test`, [n].
        confidence_level: of the interval.

    Returns:
        The difference, in the unit of the score. It prints which model has the better score.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a score is infinite, or there are fewer than 10
            clusters.

    Cost: 2 n scores.

    References: Diebold and Mariano (1995), Comparing predictive accuracy; Liang and Zeger (1986)
    for clusters. None of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> known, unknown = jax.random.normal(jax.random.key(0), (2, 200))
    >>> coarse = distributions.Normal(jnp.zeros(200), jnp.full(200, 2**0.5))
    >>> sharp = distributions.Normal(known, jnp.ones(200))
    >>> print(hypothesis_tests.score_difference(coarse, sharp, known + unknown))  # log(2) / 2
    ScoreDifference(0.385 ± 0.0428, low=0.301, high=0.469, pvalue=1.84e-16): the second model ...
    """
    predictions, others, targets, weights, score = checked_models(
        predictions, others, targets, weights, score
    )
    one, other = (per_sample(score, p, targets) for p in (predictions, others))
    return _mean_of(_without_rounding(one, other), weights, clusters, confidence_level)


@jax.jit
def _without_rounding(one: jax.Array, other: jax.Array) -> jax.Array:
    """Differences of scores, zero where they are but rounding errors: of one model in two forms."""
    sizes = jnp.abs(one) + jnp.abs(other)
    sizes = sizes + jnp.mean(jnp.where(jnp.isfinite(sizes), sizes, 0))
    difference = one - other
    is_rounding = jnp.abs(difference) <= 32 * jnp.finfo(one.dtype).eps * sizes
    return jnp.where(is_rounding & jnp.isfinite(sizes), 0, difference)


@checks.key_first
def gain_difference(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    others: Distribution,
    targets: ArrayLike,
    *,
    score: Callable[..., jax.Array] | None = None,
    weights: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    num_folds: int = 5,
    confidence_level: float = 0.95,
) -> ScoreDifference:
    """Paired difference of what two models gain from recalibration, in units of a proper score.

        d_i = [S(p_i, y_i) − S(T(p_i), y_i)] − [S(q_i, y_i) − S(T'(q_i), y_i)],

    where T and T' were fitted to samples of other folds, the same for both models. It is the part
    of `score_difference` that recalibration takes away: the difference of both remains.

    Args:
        key: a JAX random key.
        recalibration: record with methods `fit(predictions, targets, weights)` and
            `apply(params, predictions)`, see `recalibration.recalibration_gain`.
        predictions: batch of n distributions of the first model.
        others: those of the second one, which may be of another family.
        targets: [n] or [n, d].
        score: as in `score_difference`.
        weights: w ≥ 0 of the samples, [n].
        clusters: as in `score_difference`; folds do not keep them together.
        num_folds: number of folds.
        confidence_level: of the interval, which leaves out the errors of the fits.

    Returns:
        The difference, positive where the first model has more to gain. It prints which one has.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a score is infinite, there are fewer than 10
            clusters, or the recalibration cannot be fitted outside of some fold.

    Cost: that of `Recalibrator.cross_fitted` for each model.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, recalibration
    >>> targets = jax.random.normal(jax.random.key(0), (400,))
    >>> biased = distributions.Normal(jnp.ones(400), jnp.ones(400))
    >>> good = distributions.Normal(jnp.zeros(400), jnp.ones(400))
    >>> method = recalibration.AffineScaling()
    >>> data = biased, good, targets
    >>> gain = hypothesis_tests.gain_difference(jax.random.key(1), method, *data)
    >>> print(gain)  # ½ · 1² on average
    ScoreDifference(0.504 ± 0.0486, low=0.408, high=0.599, pvalue=1.87e-22): the first model ...
    """
    predictions, others, targets, weights, score = checked_models(
        predictions, others, targets, weights, score
    )

    def gains(p: Distribution) -> jax.Array:
        q = cross_fitted(key, recalibration, p, targets, weights=weights, num_folds=num_folds)
        return per_sample(score, p, targets) - per_sample(score, q, targets)

    gain = _mean_of(gains(predictions) - gains(others), weights, clusters, confidence_level)
    return dataclasses.replace(gain, of_gains=True)
