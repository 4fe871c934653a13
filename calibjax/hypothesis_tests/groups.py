"""Exact tests that localise errors: groups, quantiles, neighbourhoods, locations."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, one_hot
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, PyTree
from calibjax.distributions import Bernoulli, Categorical, Quantiles
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare
from calibjax.estimators.kernel import mean_difference
from calibjax.estimators.local import LocalProblem, Neighbourhood, local_problem
from calibjax.estimators.pit import randomised_intervals
from calibjax.hypothesis_tests import redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.kernels import Kernel, TensorProduct, White, default_kernel
from calibjax.kernels.defaults import target_kernels
from calibjax.operators.plan import bytes_of_tile

# By chance, the mean of a residual over the redraws deviates from zero by less than this many
# standard errors plus a share of the largest value (rare events are far from normal).
_FAR, _PROPORTION, _ENOUGH = 6.0, 0.1, 20


def _memberships(name: str, groups: Any, seen: Seen) -> jax.Array:
    """Truth values or weights of each sample in each group, [n, G]."""
    groups = checks.as_arrays(name, groups)
    expected = "[n, G], a column of memberships for each group, as by jax.nn.one_hot(groups, G)"
    checks.shape(name, groups, (seen.number(name), None), expected)
    dtype = jnp.result_type(groups, floating_dtype(seen["predictions"]))
    return checks.finite(name, groups.astype(dtype))


@checked(groups=_memberships)
def group_calibration_test(
    key: jax.Array,
    predictions: Distribution,
    targets: Numbers,
    groups: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
    residual: Callable[[Any, Any], Any] | None = None,
) -> CalibrationTestResult:
    """Exact test of calibration in the mean in each of G groups, which may overlap.

    With memberships w_ig and residuals r_i the error of a group is

        e_g = Σ_i w_ig r_i / Σ_i |w_ig|,

    the mean of observed minus predicted values in the group. By default r_i = y_i − E Y_i, for Y_i
    ~ p_i; for classes there are m + 1 residuals, 1(y_i = c) − p_ic for each class c and 1(y_i =
    argmax p_i) − max p_i for the top label. The last error is negative if the model is
    overconfident in the group.

    The absolute errors are ranked among those of targets resampled under the null. `pvalue` tests
    each group on its own: 5 % of calibrated groups have p ≤ 0.05. `adjusted_pvalue` accounts for
    the number of groups and residuals by the largest standardised error of each redraw. Under
    calibration the probability that any of them is ≤ α is at most α, for every n, every overlap and
    every number of redraws. Its minimum is the p-value of the hypothesis that all groups are
    calibrated.

    Args:
        key: a JAX random key.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        groups: w, [n, G], truth values or weights, which may be negative for contrasts. They must
            not depend on the targets. For groups given by numbers use
            `jax.nn.one_hot(numbers, G)`; a column of ones is the whole data set.
        weights: w ≥ 0 of the samples, [n], by which memberships are multiplied.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        residual: (predictions, targets) → [n] or [n, k], traceable by JAX, with mean zero under
            the predictions; for example `lambda p, y: (y <= 3) - jax.vmap(lambda q: q.cdf(3))(p)`.

    Returns:
        The result. `estimate` is the signed error e_g, [G], or [G, k] with k residuals per sample;
        `statistic` is its absolute value, and `result.null_size` the standard error of e_g under
        calibration. The p-values have the same shape.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a group has no member, or the mean of a residual
            over the redraws is not zero.

    Cost: B n k (G + 1) operations, in matrix products. Memory O(n G + B G k).

    It detects biased means. Predictions that are too wide, such as those of underconfident
    classifiers, have smaller errors than their redraws: use `exact_skce_test` with `top_label` for
    them.

    References: none of the four papers has it; see `exact_test`, and for the adjustment Westfall
    and Young (1993). Hébert-Johnson, Kim, Reingold and Rothblum (2018), Multicalibration, require
    small errors in all groups.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Bernoulli(jnp.full(40, 0.5))
    >>> targets = jnp.array([0, 1] * 10 + [1] * 20)
    >>> is_old = jnp.arange(40) >= 20
    >>> groups = jnp.stack([~is_old, is_old], axis=1)
    >>> test = hypothesis_tests.group_calibration_test(
    ...     jax.random.key(0), predictions, targets, groups
    ... )
    >>> print(test.estimate[:, 1].round(4), test.adjusted_pvalue[:, 1])  # of class 1
    [0.  0.5] [1.    0.001]
    """
    redraws.warn_of_members(predictions)
    totals, shares = _shares(groups, weights)
    if checks.is_concrete(totals):
        place = "members of groups"
        checks.refuse_where(np.asarray(totals) == 0, place, "at least one in each", totals)
    shares = checks.nan_with(shares, shares)
    if residual is None and not hasattr(predictions, "class_probs"):
        checks.method("predictions", predictions, "mean")
    num_bytes = 32 * sum(map(jnp.size, jax.tree.leaves((predictions, targets))))
    data = _group_errors, (Partial(residual or mean_residual), shares), predictions, targets
    pool = redraws.observed_and_redrawn(key, *data, num_draws=num_draws, num_bytes=num_bytes)
    if residual is not None:
        _refuse_off_zero(pool[1])
    return _of_signed(*pool, "groups")


@jax.jit
def _shares(groups: jax.Array, weights: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Total weight of each group, [G], and the share of each sample in it, [n, G]."""
    memberships = groups if weights is None else groups * weights[:, None]
    totals = jnp.sum(jnp.abs(memberships), 0)
    return totals, memberships / totals


def _of_signed(observed: jax.Array, redrawn: jax.Array, entries: str) -> CalibrationTestResult:
    """Result with the absolute values of signed statistics."""
    sizes = jnp.abs(observed), jnp.abs(redrawn)
    return simulated_result(*sizes, observed, adjust=True, entries=entries)


@jax.jit
def mean_residual(predictions: Any, targets: jax.Array) -> jax.Array:
    """Targets minus their predicted means, [n] or [n, d]; for classes [n, m + 1]."""
    if hasattr(predictions, "class_probs"):
        probs = predictions.class_probs
        errors = one_hot(targets, probs.shape[1], probs.dtype) - probs
        top = jnp.take_along_axis(errors, jnp.argmax(probs, 1)[:, None], 1)
        return jnp.concatenate([errors, top], 1)
    return targets - jax.vmap(lambda p: p.mean())(predictions)


def _group_errors(data: tuple[Any, jax.Array], predictions: Any, targets: Any) -> jax.Array:
    """Signed mean residual of each group, [G] or [G, k]."""
    residual, shares = data
    errors = jnp.asarray(checks.real("residual", residual(predictions, targets)))
    n = len(shares)
    if errors.ndim not in (1, 2) or len(errors) != n:
        raise ValueError(f"residual: expected shape [{n}] or [{n}, k], got {errors.shape}")
    errors = errors.astype(jnp.result_type(errors, jnp.float32))  # counts are integers
    return matmul(shares.T.astype(errors.dtype), errors)


def _refuse_off_zero(redrawn: jax.Array) -> None:
    """Refuses residuals whose mean under the predictions is not zero."""
    if checks.is_concrete(redrawn) and len(redrawn) >= _ENOUGH:
        values = np.asarray(redrawn, float)
        mean, spread, largest = values.mean(0), values.std(0), np.abs(values).max(0)
        limit = _FAR * spread / np.sqrt(len(values) - 1) + _PROPORTION * largest
        is_varied = spread > 1e-3 * largest  # otherwise the event did not occur
        expected = "zero over targets resampled under the null, in groups; subtract the expectation"
        bad = is_varied & (np.abs(mean) > limit)
        checks.refuse_where(bad, "mean of residual", expected, mean)


@checked
def coverage_test(
    key: jax.Array,
    predictions: Quantiles,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of the nominal coverage of predicted quantiles, at each level.

    For k quantiles q_i1, ..., q_ik of sample i at the levels τ_i1, ..., τ_ik,

        levels:    mean_i 1(y_i ≤ q_ij) − τ_ij, for each level,
        intervals: mean_i 1(q_i,j-1 < y_i ≤ q_ij) − P(interval j), between neighbouring quantiles,
        central:   mean_i 1(q_ij ≤ y_i ≤ q_il) − (τ_il − τ_ij), where τ_ij + τ_il = 1.

    Under calibration the intervals that contain the targets are independent draws; the differences
    of levels are their probabilities. The absolute differences are ranked among those of intervals
    resampled under the null. `pvalue` tests each difference on its own. `adjusted_pvalue` accounts
    for multiple testing; its minimum is the p-value of the hypothesis that all levels are
    calibrated. Both are exact for every n and B, if no target equals a quantile.

    Counts, rounded numbers or days without rain may equal a quantile with a positive probability.
    Then the hypothesis is P(Y < q) ≤ τ ≤ P(Y ≤ q), and the p-values are those of randomised
    intervals, as in `estimators.pit_values`. They depend on the key, and are not exact, because
    quantiles do not give the probabilities of jumps. With nine levels, up to 10 % of calibrated
    data sets were rejected at level 5 %.

    It does not detect errors that average out over the samples: quantiles that are too low for one
    half of them and too high for the other half pass.

    Args:
        key: a JAX random key.
        predictions: batch of n `Quantiles`.
        targets: [n].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; the means above are weighted.
            None for samples that count equally.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result. `estimate` contains the signed differences as a dictionary with the keys
        "levels" [k], "intervals" [k + 1] and "central". The last has all pairs of levels τ and 1 −
        τ, the outermost first. `statistic` contains their absolute values (of randomised intervals,
        with ties), and the p-values are dictionaries with the same keys. A positive difference at a
        level means that quantiles are too high, a negative central one that they are too close
        together (overconfident). For traced levels, "central" pairs the levels j and k + 1 − j,
        [⌊k/2⌋].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: B n k, memory O(n k) for each of a batch of redraws.

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
    # One NaN makes all levels NaN.
    levels = checks.nan_with(predictions.levels, predictions, targets, weights)
    predictions = Quantiles(levels, predictions.values)
    intervals = randomised_intervals(key, predictions, targets, weights)
    places = Quantiles(levels, jnp.broadcast_to(jnp.arange(levels.shape[1]) + 0.5, levels.shape))
    common, chances = (weights, central_pairs(levels)), Categorical(predictions.probs)
    num_bytes = 16 * levels.size  # random bits and one-hot vectors
    options: Any = {"adjust": True, "num_draws": num_draws, "num_bytes": num_bytes}
    data = key, _coverage_statistic, (places, *common), chances, intervals
    result = redraws.rank_among_redraws(*data, **options)
    return dataclasses.replace(result, estimate=differences(predictions, *common, targets))


def central_pairs(levels: Any) -> np.ndarray:
    """Indices of the levels τ, and of the levels 1 − τ above them, [2, m].

    They are found from mean levels; traced levels are paired from both ends.
    """
    k = levels.shape[-1]
    if not checks.is_concrete(levels):
        return np.stack([np.arange(k // 2), k - 1 - np.arange(k // 2)])
    means = np.asarray(levels, float).reshape(-1, k).mean(0)
    return np.stack(np.nonzero(np.triu(np.isclose(means[:, None] + means, 1), 1)))


@jax.jit
def differences(predictions: Quantiles, weights: Any, pairs: Any, targets: Any) -> dict[str, Any]:
    """Differences between observed and predicted frequencies, as in `coverage_test`."""
    levels, probs, y = predictions.levels, predictions.probs, targets[:, None]
    is_in = predictions.interval(y)[:, None] == jnp.arange(probs.shape[-1])
    mean = functools.partial(jnp.average, axis=0, weights=weights)
    at_levels = mean((y <= predictions.values) - levels)
    below = mean((y < predictions.values) - levels)
    central = at_levels[pairs[1]] - below[pairs[0]]
    return {"levels": at_levels, "intervals": mean(is_in - probs), "central": central}


def _coverage_statistic(
    data: tuple[Any, ...], chances: Any, targets: jax.Array
) -> dict[str, jax.Array]:
    del chances
    return jax.tree.map(jnp.abs, differences(*data, targets))


@checked
def local_calibration_test(
    key: jax.Array,
    neighbourhood: Neighbourhood,
    features: PyTree,
    confidences: Numbers,
    correct: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of local calibration at every sample, and at all of them together.

    The statistic of a sample is its LCE (see `estimators.lce`). The correctness of predictions is
    resampled under the null, correct_i ~ Bernoulli(confidence_i), while features, confidences and
    bins stay fixed. Under calibration given the features, the redraws have the distribution of the
    data.

    - `pvalue` tests each sample on its own: P(p_i ≤ α) ≤ α. About n α of n calibrated samples have
      p_i ≤ α.
    - `adjusted_pvalue` accounts for the number of samples: under calibration, P(any adjusted
      p_i ≤ α) ≤ α. If the model is wrong somewhere, a sample where it is right may have a small
      adjusted p-value, too. The minimum is the p-value of the hypothesis that the model is locally
      calibrated everywhere.

    Both hold for every n, every kernel and every number of redraws. The kernel must not be chosen
    with the same labels.

    Args:
        key: a JAX random key.
        neighbourhood: kernel on features and binning of confidences (see `estimators.lce`).
        features: features of the samples, [n, d], or any pytree with leading axis n.
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n], which all redraws keep, as in `estimators.local_errors`.
            Samples of weight 0 are not tested: their statistic is 0.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result. `statistic` is the LCE, `estimate` the signed error, and the p-values, all [n];
        [G, n] for G length scales, with an adjustment for all of them.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: the weights of `lce` once per batch, and one multiplication for each redraw and each pair
    within a bin. Memory O(B G n) for the statistics under the null.

    References: none of the four papers has it; see `exact_test`, and for the adjustment Westfall
    and Young (1993). Local errors are those of L21 eq. (4).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import hypothesis_tests
    >>> from calibjax.estimators import Neighbourhood
    >>> features = jnp.repeat(jnp.array([[0.0], [9.0]]), 10, axis=0)
    >>> confidences = jnp.full(20, 0.5)
    >>> correct = jnp.array([0, 1] * 5 + [0] * 10)  # wrong wherever the feature is 9
    >>> test = hypothesis_tests.local_calibration_test(
    ...     jax.random.key(0), Neighbourhood.laplacian(0.1, 5), features, confidences, correct
    ... )
    >>> print(test.adjusted_pvalue[0] > 0.5, test.adjusted_pvalue[-1] < 0.05)
    True True
    """
    problem = local_problem(neighbourhood, features, confidences, correct, weights=weights)
    # One NaN makes all samples NaN.
    _, confidences = checks.nan_with(problem.confidences, problem.confidences, problem.correct)
    problem = problem._replace(confidences=(confidences, confidences))
    data = key, _statistic_local, problem, Bernoulli(confidences), problem.correct
    num_bytes = 64 * confidences.size  # residuals, weighted sums and errors
    options: Any = {"adjust": True, "num_draws": num_draws, "num_bytes": num_bytes}
    result = redraws.rank_among_redraws(*data, **options)
    return dataclasses.replace(result, estimate=problem.errors()[0])


def _statistic_local(problem: LocalProblem, predictions: Any, targets: Any) -> jax.Array:
    """LCE of each sample, with the confidences of the problem."""
    del predictions
    errors = jnp.abs(problem._replace(correct=targets).errors()[0])
    return errors if problem.weights is None else jnp.where(problem.weights == 0, 0, errors)


@checked
def witness_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    at_predictions: Distribution,
    at_targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of the witness at many locations at once, to localise errors.

    The values W_j of `estimators.witness` at the locations (p_j, z_j) are compared with those of
    targets resampled under the null, as in `exact_test`. `pvalue` tests each location on its own: a
    calibrated model has p ≤ 0.05 at about 5 % of the locations. `adjusted_pvalue` accounts for the
    number of locations by the largest standardised |W| of each redraw. If the model is calibrated,
    the probability that any of them is ≤ α is at most α, for every n, every B and every set of
    locations. If it is wrong somewhere, a location that is right may have a small adjusted p-value,
    too. The minimum is the p-value of the hypothesis that the model is calibrated.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets. None for the
            kernel on predictions of `kernels.default_kernel`, and `kernels.White` for classes or
            the kernel on targets of `kernels.default_kernels` for other families.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        at_predictions: p, batch of J distributions of the same family, not chosen with the targets.
        at_targets: z, [J] or [J, d].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for equal weights.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result. `estimate` is the signed witness W, [J]: positive where targets are more
        frequent than predicted. `statistic` is |W|, and `null_size` the standard error of W under
        calibration. The p-values have the same shape.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.
        NotImplementedError: if the expectations have no closed form.

    Cost: B n J evaluations of the target kernel, and n J of the kernel on predictions per batch.
    Memory O(B J).

    References: none of the four papers has it; see `exact_test`, and for the adjustment Westfall
    and Young (1993).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(0.3, distances.Wasserstein()), kernels.SquaredExponential(0.3)
    ... )
    >>> predictions = distributions.Normal(jnp.repeat(jnp.array([0.0, 5.0]), 40), jnp.ones(80))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> targets = targets.at[40:].add(1.5)  # the predictions with mean 5 are too small
    >>> at = distributions.Normal(jnp.array([0.0, 5.0, 5.0]), jnp.ones(3))
    >>> test = hypothesis_tests.witness_test(
    ...     jax.random.key(1), kernel, predictions, targets, at, jnp.array([1.0, 4.0, 6.5])
    ... )
    >>> print(test.adjusted_pvalue < 0.05, jnp.sign(test.estimate[1:]))
    [False  True  True] [-1.  1.]
    """
    redraws.warn_of_members(predictions)
    locations = at_predictions, at_targets
    shared = kernel or _with_values(predictions), locations, weights
    data = key, _signed, shared, predictions, targets
    num_bytes = bytes_of_tile(checks.leading_size("targets", targets))
    pool = redraws.observed_and_redrawn(*data, num_draws=num_draws, num_bytes=num_bytes)
    return _of_signed(checks.nan_with(pool[0], locations, weights), pool[1], "locations")


def _with_values(predictions: Distribution) -> TensorProduct:
    """Default kernel whose target kernel has values, which residual kernels have not."""
    has_classes = has_class_probs(bare(predictions))
    target = White() if has_classes else target_kernels(predictions)["targets 1 deviations"]
    return TensorProduct(default_kernel(predictions).prediction, target)


def _signed(data: tuple[Any, ...], predictions: Any, targets: Any) -> jax.Array:
    kernel, locations, weights = data
    return mean_difference(kernel, locations, (predictions, targets), weights)
