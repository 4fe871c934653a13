"""Exact tests: targets resampled under the null, from the predictions.

If the model is calibrated then, given the predictions, the targets are independent draws y_i ~ p_i.
So data sets with resampled targets have the distribution of the observed one. The rank of the
observed statistic is uniform, for every number of samples and every statistic.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from calibjax._core import checks
from calibjax._core.gate import checked, passed
from calibjax._core.pytree import Numbers, PyTree
from calibjax.distributions.base import Distribution, draw
from calibjax.estimators.kernel import ready
from calibjax.hypothesis_tests import redraws, statistics
from calibjax.hypothesis_tests.components import Statistic, skce_components
from calibjax.hypothesis_tests.result import CalibrationTestResult, skce_result
from calibjax.kernels import Kernel, default_kernel
from calibjax.operators.plan import bytes_of_tile


@checked
def exact_test(
    key: jax.Array,
    statistic: Callable[..., Any],
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
    adjust: bool = False,
) -> CalibrationTestResult:
    """Exact test of calibration with any statistic, or several at once.

    Targets are resampled under the null, from the predictions, which stay fixed, and the p-value

        p = (1 + #{b : T_b ≥ T}) / (B + 1)

    satisfies P(p ≤ α) ≤ α under calibration for every n, every B and every statistic. This assumes
    that, given all predictions, the targets are independent draws from them. It does not hold for
    clusters (see `cluster_skce_test`), overlapping forecast horizons, or data that the model was
    fitted to.

    The statistic determines which errors the test detects. Choose one that is large for every error
    that matters: `estimators.skce_biased`, for example, is small for predictions that are too wide,
    which are rejected less often than calibrated ones. Take the absolute value of a statistic with
    known mean, such as `estimators.skce_dispersion`, for a two-sided test. With `adjust`, several
    statistics compensate for each other's blind spots, like the omnibus statistic of
    `exact_skce_test`.

    The statistic may depend on hyperparameters that are chosen from the predictions. If they are
    chosen with the targets, choose them within the statistic, so that the choice is repeated in
    every redraw.

    Several statistics share the redraws. Each has its own p-value, but their minimum is not a valid
    p-value. `adjust` adds p-values that account for multiple testing, from the largest standardised
    statistic of each redraw: under calibration the probability that any of them is ≤ α is ≤ α.

    Args:
        key: a JAX random key.
        statistic: (predictions, targets) → scalar, array or a pytree of arrays, traceable by JAX;
            large values are evidence against calibration. For example
            `functools.partial(estimators.skce_biased, kernel)`, or a textbook statistic such as
            `spiegelhalter`. Its attribute `textbook_pvalue`, if any, is a function (value,
            predictions, targets, **options of a partial function) → p-value; without weights, the
            result includes this p-value.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None without weights. The
            statistic is called with them, up to a common factor, as `weights=`.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once. Memory is `batch_size` times
            that of one statistic; by default about 16 MB, assuming that the statistic works on
            tiles of pairs.
        adjust: whether to return `adjusted_pvalue` in addition to `pvalue`.

    Returns:
        The result; `estimate` is the statistic itself. With several statistics, all attributes are
        arrays or pytrees of the same structure.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or an observed statistic is NaN.

    Cost: B evaluations of the statistic. It is compiled once for each function object and shape of
    the data, as by `jax.jit`: values that it takes from its closure must not change between two
    calls.

    References: none of the four papers has it; the general Monte Carlo test is due to Barnard
    (1963), the p-value to Davison and Hinkley (1997), eq. (4.11), the adjustment to Westfall and
    Young (1993).

    >>> import functools, jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> def worst_z_score(predictions, targets):
    ...     return jnp.max(jnp.abs(targets - predictions.loc) / predictions.scale)
    >>> predictions = distributions.Normal(jnp.zeros(3), jnp.ones(3))
    >>> test = hypothesis_tests.exact_test(
    ...     jax.random.key(0), worst_z_score, predictions, jnp.array([0.1, -0.5, 4.5])
    ... )
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """
    function = statistic.func if isinstance(statistic, functools.partial) else statistic
    if function is statistics.pit_ks and statistics.has_jumps(predictions):
        pit_key, key = jax.random.split(key)
        predictions, targets = statistics.uniform_ranks(pit_key, predictions, targets)
    options = {"num_draws": num_draws, "batch_size": batch_size, "adjust": adjust}
    options["num_bytes"] = bytes_of_tile(checks.leading_size("targets", targets))
    data = (Partial(statistic), weights), predictions, targets
    result = redraws.rank_among_redraws(key, redraws.values_of, *data, **options)
    if weights is not None:
        return result
    data = statistic, result.statistic, predictions, targets
    return dataclasses.replace(result, textbook_pvalue=statistics.textbook_pvalue_of(*data))


@checked(minimum=2)
def exact_skce_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
    statistic: Statistic = "omnibus",
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibration with the squared kernel calibration error.

    This is `exact_test` with statistics from one pass over the pairs: the mean SKCE_u of h off the
    diagonal, the mean D on it, and the biased SKCE_b = (D + (n − 1) SKCE_u) / n. Unlike asymptotic
    tests, it holds its level for every n, if the targets are independent given all predictions (see
    `exact_test`). The statistics detect different errors:

    - "omnibus", the default: all errors below. The largest of the three standardised components of
      `SKCEComponents`, whose single p-value needs no adjustment.
    - "biased", SKCE_b: wrong means, and predictions that are too narrow. It is **blind to
      predictions that are too wide** (underconfident): these make D smaller than in the redraws,
      and are rejected less often than calibrated predictions. If the means of most predictions
      share the same error, it has slightly more power than the omnibus statistic.
    - "unbiased", SKCE_u: errors that similar predictions share, above all of the mean; hardly
      predictions that are only too wide or too narrow.
    - "dispersion", D, two-sided: predictions that are too narrow or too wide, even if no two of
      them are similar.

    The result contains all components with their own p-values, whichever statistic is ranked; the
    printed result marks the component with the largest z.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets; None for
            `kernels.default_kernel(predictions)`.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for equal weights. With
            weights SKCE_u is `estimators.skce`, D = Σ_i w_i² h_ii / Σ_i w_i², and n is the
            effective number of samples (Σ_i w_i)² / Σ_i w_i².
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        statistic: the statistic to rank: "omnibus", "biased", "unbiased" or "dispersion".
        batch_size: number of redraws that are evaluated at once, which bounds the memory; by
            default as many as fit in about 16 MB.

    Returns:
        The result; `statistic` is the ranked statistic (for "dispersion" |z|),
        `estimate` the unbiased SKCE, `components` an `SKCEComponents`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes, values or options are wrong, or fewer than two samples count.
        NotImplementedError: if the expectations have no closed form.

    Cost: B n² / 2 evaluations of the target kernel and its expectations; the kernel on predictions
    k_P and E k(Z, Z′) are evaluated once per batch. If the target kernel has r features, fewer
    multiplications, in matrix products:

    - B n² r / 2 in general;
    - B n r s if the matrix of k_P has a small rank s: for `Nystrom`, and for n ≥ 256 if k_P is
      smooth on the scale of the predictions;
    - B n r if k_P is exponential, or a sum of exponential kernels, and predictions lie on a line
      (see `estimators.skce`).

    There are features for class predictions (r = m) and, if the values are concrete, for
    `SquaredExponential` on scalars: r ≈ 50 for 20 length scales. Normal predictions use them up to
    r = 48, or 192 on a line or with a low rank. Laplace, uniform, gamma and negative binomial
    predictions, ensembles, and mixtures of these and of normals always use them. Memory
    O(batch_size (n r + tile²)).

    References: see `exact_test`; W21 Lemma 1 and 2 for the statistics. Their combination is in none
    of the papers.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(64), jnp.ones(64))
    >>> targets = 0.5 * jax.random.normal(jax.random.key(0), (64,))  # half the predicted spread
    >>> test = hypothesis_tests.exact_skce_test(jax.random.key(1), kernel, predictions, targets)
    >>> print(test)
    CalibrationTestResult(pvalue=0.001 ± 0.001, statistic=6.08, estimate=0.0623, 999 targets ...
      biased      wrong means, or too narrow            unadjusted p = 0.001   z = +4.4
      unbiased    errors shared by similar predictions  unadjusted p = 0.001   z = +4.5
      dispersion  targets scatter less: underconfident  unadjusted p = 0.001   z = -6.1 <- largest
    """
    redraws.warn_of_members(predictions)
    options = {"num_draws": num_draws, "batch_size": batch_size}
    data = kernel or default_kernel(predictions), predictions, targets, weights
    return ranked_skce(key, *data, statistic=statistic, **options)


def ranked_skce(
    key: jax.Array, kernel: Kernel, *data: Any, statistic: str, **options: Any
) -> CalibrationTestResult:
    """`exact_skce_test` of a checked kernel, and predictions, targets and weights."""
    parts, number = redraws.means_of_redraws(key, [(None, kernel)], *data, **options)
    return result_of_pool(*parts, num_targets=number, statistic=statistic)


def result_of_pool(
    unbiased: jax.Array, diagonal: jax.Array, *, num_targets: jax.Array | int, statistic: str
) -> CalibrationTestResult:
    """Result of an exact test from SKCE_u and D of the observed targets first, [B + 1] or more."""
    options = {"num_targets": num_targets, "ranked": statistic}
    pool, components = skce_components(unbiased, diagonal, **options)
    return skce_result(pool, components, components.unbiased.statistic)


@checked
def power_curve(
    key: jax.Array,
    kernel: Kernel | None,
    simulate: Callable[[jax.Array, int], tuple[Any, Any]],
    sizes: Sequence[int],
    *,
    num_data_sets: int = 200,
    num_draws: int = 999,
    significance_level: float = 0.05,
    statistic: Statistic = "omnibus",
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Power of `exact_skce_test` on simulated data sets, by their number of samples.

    Args:
        key: a JAX random key. The power at a size depends on the key and this size only.
        kernel: kernel on pairs (prediction, target), such as `kernels.default_kernel` of the
            predictions of a pilot study; None for the default kernel of each data set.
        simulate: function (key, n) → predictions and targets of a data set of n samples, traceable
            by JAX. The targets should deviate from the predictions by the smallest error that
            matters.
        sizes: numbers of samples n ≥ 2, [k].
        num_data_sets: R, for each size.
        num_draws: number of redraws of each test.
        significance_level: α. A test rejects if its p-value is at most α.
        statistic: as in `exact_skce_test`.

    Returns:
        The sizes, the power at each size, and its Monte Carlo standard error, [k] each. The power
        is NaN if any p-value is.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a value is wrong, or there are too few draws for any test to reject.
        NotImplementedError: if the expectations have no closed form.

    Cost: R tests for each size, and a compilation.

    References: none of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(kernels.Constant(), kernels.SquaredExponential(1.0))
    >>> def simulate(key, n):
    ...     predictions = distributions.Normal(jnp.zeros(n), jnp.ones(n))
    ...     return predictions, 0.5 + jax.random.normal(key, (n,))
    >>> sizes, power, error = hypothesis_tests.power_curve(
    ...     jax.random.key(0), kernel, simulate, [10, 40], num_data_sets=100, num_draws=99
    ... )
    >>> print(power[1] - power[0] > 3 * error.max())
    True
    """
    if not isinstance(sizes, Sequence | np.ndarray) or not len(sizes):
        raise TypeError(f"sizes: expected a sequence of integers, got {sizes!r}")
    sizes = [checks.size_in_range("sizes", n, 2) for n in sizes]
    level = significance_level + 1e-6  # p-values are rounded
    if checks.is_concrete(level) and level * (num_draws + 1) < 1:
        raise ValueError(
            f"num_draws: expected more: {num_draws} never reject at the level {significance_level}"
        )

    def rejects(n: int, key: jax.Array) -> jax.Array:
        data_key, test_key = jax.random.split(key)
        test = exact_skce_test(
            test_key, kernel, *simulate(data_key, n), num_draws=num_draws, statistic=statistic
        )
        return jnp.where(jnp.isnan(test.pvalue), jnp.nan, test.pvalue <= level)

    shares = []
    for n in sizes:
        keys = jax.random.split(jax.random.fold_in(key, n), num_data_sets)
        shares.append(jnp.mean(jax.lax.map(functools.partial(rejects, n), keys)))
    power = jnp.stack(shares)
    inside = (num_data_sets * power + 1) / (num_data_sets + 2)  # never 0 or 1
    return jnp.asarray(sizes), power, jnp.sqrt(inside * (1 - inside) / num_data_sets)


def checked_family(
    kernels: PyTree, predictions: Distribution, targets: jax.Array
) -> tuple[list[tuple[Any, Kernel]], Any]:
    """Checks the user's kernels for checked data.

    Returns:
        The reduction (or None) and the kernel of each, and the tree of which they are the leaves.

    Raises:
        TypeError: if one is not a kernel, or a pair of a reduction and a kernel.
        ValueError: if there are none, or a value is wrong for these predictions.
        NotImplementedError: if expectations have no closed form.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(kernels, is_leaf=_is_member)
    if not leaves:
        raise ValueError(f"kernels: expected at least one kernel, got {kernels!r}")
    members = []
    views: dict[int, Any] = {id(None): (None, (predictions, targets))}  # by reduction
    for path, member in leaves:
        name = f"kernels{jax.tree_util.keystr(path)}"
        reduction, kernel = member if isinstance(member, tuple) else (None, member)
        if id(reduction) not in views:
            # A function becomes a pytree, so that it goes through compiled functions.
            is_function = jax.tree_util.all_leaves([reduction])
            registered = Partial(reduction) if is_function else reduction
            samples = _seen(f"{name}[0]", reduction, predictions, targets)
            views[id(reduction)] = registered, samples
        reduction, samples = views[id(reduction)]
        members.append((reduction, ready(checks.kernel_values(kernel, name), *samples)[0]))
    return members, structure


def _is_member(node: object) -> bool:
    """Whether a node is a kernel, a pair (reduction, kernel), or no container."""
    if type(node) is tuple and len(node) == 2 and isinstance(node[1], Kernel):
        return callable(node[0]) and not isinstance(node[0], Kernel)
    return not isinstance(node, dict | list | tuple)


def _seen(name: str, reduction: Any, predictions: Distribution, targets: jax.Array) -> PyTree:
    """The data through a reduction, whose predictions must not depend on the targets."""
    seen = zip(("predictions", "targets"), reduction(predictions, targets), strict=True)
    seen = passed(**dict(seen))
    n, size = (checks.leading_size("predictions", x) for x in (predictions, seen[0]))
    if n != size:
        raise ValueError(f"{name}: expected a reduction that returns all {n} samples, got {size}")
    others, _ = reduction(predictions, draw(jax.random.key(0), predictions))
    for one, other in zip(*map(jax.tree.leaves, (seen[0], others)), strict=True):
        if checks.is_concrete(one, other) and not np.array_equal(one, other):
            raise ValueError(
                f"{name}: expected a reduction whose predictions do not depend on the targets, got "
                f"{one} and, for resampled targets, {other}"
            )
    return seen
