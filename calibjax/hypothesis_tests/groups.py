"""Exact test of the mean error in every one of many groups, which may overlap."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, one_hot
from calibjax.distributions.base import Distribution
from calibjax.distributions.sampling import check_draws
from calibjax.hypothesis_tests._redraw.pool import observed_and_redrawn
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.simulation import Bound, checked_statistic, warn_of_members

_BYTES_PER_NUMBER = 32  # of residuals and of group errors of one redraw, with what they are made of
# The mean of a residual over the redraws is off zero by chance by less than this many standard
# errors, and a proportion of the largest value (rare events are far from normally distributed).
_FAR, _PROPORTION, _ENOUGH = 6.0, 0.1, 20


@checks.key_first
def group_calibration_test(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    groups: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    residual: Callable[[Any, Any], Any] | None = None,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibration in the mean in each of G groups, which may overlap.

    With memberships w_ig and residuals r_i the error of a group is

        e_g = Σ_i w_ig r_i / Σ_i |w_ig|,

    the mean of observed minus predicted values in the group. By default r_i = y_i − E Y_i, for
    Y_i ~ p_i; for classes there are m + 1 residuals, 1(y_i = c) − p_ic for each class c and
    1(y_i = argmax p_i) − max p_i for the top label, whose error is negative if the model is
    overconfident in this group.

    The absolute errors are ranked among those of targets resampled under the null. `pvalue` tests
    each group on its own: of many groups of calibrated predictions, 5 % have p ≤ 0.05.
    `adjusted_pvalue` accounts for the number of groups and residuals, by the largest standardised
    error of each redraw: the probability that any of them is ≤ α is at most α, for every n, every
    overlap and every number of redraws. Its minimum is the p-value of the hypothesis that all
    groups are calibrated.

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
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result. `estimate` is the signed error e_g, [G], or [G, k] with k residuals per sample;
        `statistic` is its absolute value, whose root mean square `result.null_size` under
        calibration is the standard error of e_g; the p-values have the same shape.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, a group has no member, or the mean of a residual
            over the redraws is not zero.

    Cost: B n k (G + 1) operations, in matrix products. Memory O(n G + B G k).

    It sees wrong means. Predictions that are too wide, such as those of underconfident classifiers,
    have smaller errors than their redraws, and are for `exact_skce_test` with `top_label`.

    References: none of the four papers has it; see `exact_test`, and for the adjustment Westfall
    and Young (1993). Hébert-Johnson, Kim, Reingold and Rothblum (2018), Multicalibration, ask for
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
    checks.same_rows(predictions=predictions, targets=targets, groups=groups)
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    check_draws(predictions, targets)
    warn_of_members(predictions)
    shares = _checked_shares(groups, predictions, weights)
    errors = Bound(_group_errors, (_checked_residual(residual, predictions),))
    each = jax.eval_shape(errors, shares, predictions, targets)
    numbers_each = each.size + each.size // each.shape[0] * len(shares)
    observed, redrawn = observed_and_redrawn(
        key,
        errors,
        shares,
        predictions,
        targets,
        num_draws=num_draws,
        batch_size=batch_size,
        num_bytes=_BYTES_PER_NUMBER * numbers_each,
    )
    if residual is not None:
        _refuse_off_zero(redrawn)
    sizes = jnp.abs(observed), jnp.abs(redrawn)
    return simulated_result(
        *sizes, observed, draws="targets resampled under the null", adjust=True, entries="groups"
    )


@jax.jit
def mean_residual(predictions: Any, targets: jax.Array) -> jax.Array:
    """Targets minus their predicted means, [n] or [n, d]; of classes and of the top label."""
    if hasattr(predictions, "class_probs"):
        probs = predictions.class_probs
        errors = one_hot(targets, probs.shape[1], probs.dtype) - probs
        top = jnp.take_along_axis(errors, jnp.argmax(probs, 1)[:, None], 1)
        return jnp.concatenate([errors, top], 1)
    return targets - jax.vmap(lambda p: p.mean())(predictions)


def _checked_residual(
    residual: Callable[[Any, Any], Any] | None, predictions: Distribution
) -> Callable[[Any, Any], Any]:
    """The residual, by default that of the mean."""
    if residual is not None:
        return functools.partial(checked_statistic(residual, "residual"), None)
    if not hasattr(predictions, "class_probs"):
        checks.method("predictions", predictions, "mean")
    return mean_residual


def _checked_shares(
    groups: ArrayLike, predictions: Distribution, weights: jax.Array | None
) -> jax.Array:
    """Weighted memberships whose absolute values add up to one in each group, [n, G]."""
    num_samples = checks.leading_size("predictions", predictions)
    members = checks.as_arrays("groups", groups)
    checks.an_array("groups", members, "an array [n, G]")
    if jnp.ndim(members) == 1:
        raise ValueError(
            f"groups: expected shape [n, G], a column of memberships for each group, got "
            f"{jnp.shape(members)}; numbers become memberships by jax.nn.one_hot(groups, G)"
        )
    checks.shape("groups", members, (num_samples, None), "[n, G], as the n predictions")
    if not jnp.size(members):
        raise ValueError(f"groups: expected at least one group, got shape {jnp.shape(members)}")
    members = checks.finite(
        "groups", members.astype(jnp.result_type(members, floating_dtype(predictions)))
    )
    shares, totals = _shares(members, weights)
    if checks.is_concrete(totals):
        checks.refuse_where(
            np.asarray(totals) == 0, "members of groups", "at least one in each group", totals
        )
    return checks.nan_with(shares, shares)


@jax.jit
def _shares(memberships: jax.Array, weights: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Shares of the samples in each group, NaN if it is empty, [n, G], and total ones, [G]."""
    memberships = memberships if weights is None else memberships * weights[:, None]
    totals = jnp.sum(jnp.abs(memberships), 0)
    return memberships / totals, totals


def _group_errors(
    residual: Callable[[Any, Any], Any],
    shares: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
) -> jax.Array:
    """Signed mean residual of each group, [G] or [G, k]."""
    errors = jnp.asarray(residual(predictions, targets))
    n = len(shares)
    if errors.ndim not in (1, 2) or len(errors) != n:
        raise ValueError(
            f"residual(predictions, targets): expected shape [{n}] or [{n}, k], one residual or k "
            f"of them for each sample, got {errors.shape}"
        )
    return matmul(shares.T.astype(errors.dtype), errors)


def _refuse_off_zero(redrawn: jax.Array) -> None:
    """Refuses residuals whose mean under the predictions is not zero."""
    if not checks.is_concrete(redrawn) or len(redrawn) < _ENOUGH:
        return
    values = np.asarray(redrawn, float)
    mean, error = values.mean(0), values.std(0) / np.sqrt(max(len(values) - 1, 1))
    largest = np.abs(values).max(0)
    is_varied = values.std(0) > 1e-3 * largest  # otherwise the event in question did not happen
    checks.refuse_where(
        is_varied & (np.abs(mean) > _FAR * error + _PROPORTION * largest),
        "mean of residual(predictions, targets) over targets resampled under the null, in groups",
        "zero: subtract the expectation under the predictions",
        mean,
    )
