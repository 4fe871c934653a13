"""Exact test with a whole family of kernels."""

import dataclasses

import jax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.sampling import check_draws
from calibjax.hypothesis_tests._redraw.components import skce_components
from calibjax.hypothesis_tests._redraw.plan import planned
from calibjax.hypothesis_tests._redraw.pool import evaluate_plan
from calibjax.hypothesis_tests.checked_kernels import checked_family
from calibjax.hypothesis_tests.directions import are_squares, direction_scores, direction_words
from calibjax.hypothesis_tests.ensembles import checked_ensembles, with_targets
from calibjax.hypothesis_tests.result import CalibrationTestResult, skce_result
from calibjax.kernels import default_kernels


@checks.key_first
def aggregated_skce_test(
    key: jax.Array,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    kernels: PyTree | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibration with a family of kernels, for errors of any scale.

    A single kernel misses errors that are much smaller or larger than its length scales. This test
    takes the largest of the omnibus statistics T_k of `exact_skce_test` in each of G groups of
    kernels, and combines the groups by a soft maximum,

        T = √(2 log (G⁻¹ Σ_g exp(max(M_g, 0)² / 2))) + min(max_g M_g, 0),
        M_g = z(max_{k in g} T_k),

    where z standardises over the pool of the observed and the resampled data sets, as it does in
    the components of `SKCEComponents`, of which T_k is the largest, and ranks T in this pool. That
    is exact for every n, every B and every family, without a second level of redraws. The first
    term of T is zero where no group is above its mean; these data sets are ranked by their largest
    M_g. Of a `Constant` or `Regressor` on predictions with a residual of normal scores, such as
    `NormalScore(Fisher(AffineScaling(), "shift"))`, whose SKCE is the square of one sum, T_k is the
    component of the biased SKCE, since the mean of the squares has heavy tails; `exact_skce_test`
    does so with `statistic="biased"`. Groups are kernels that see the same kind of errors: many
    similar kernels count as one group, and evidence in several groups adds up. A single group gives
    the largest T_k. The adjusted p-value of a kernel is the rank, among the T of the redraws, of
    √(max(M² − 2 log G, 0)) + min(M, 0), where M is the M_g that its T_k alone would give: under
    calibration the probability that any of them is ≤ α is at most α.

    For `Ensemble` the redraws are those of `ensemble_skce_test`: which of the members and the
    target is the target. For all others targets are resampled under the null, as in `exact_test`,
    whose assumption about independence applies.

    Args:
        key: a JAX random key.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.
        kernels: the family, by default `default_kernels(predictions)`: a list, dictionary or nested
            containers of kernels on pairs (prediction, target), or of pairs (lens, kernel) with a
            lens such as `estimators.top_label`. Containers within the outermost one are groups.
            They must not be chosen with the targets.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result. `statistic` is T, `adjusted_pvalue` contains those of the kernels, in the same
        containers, `group_pvalues` those of the groups, `estimate` the unbiased SKCE of each
        kernel, [K]. `components` has a last axis K; `components.largest_kernel` and
        `components.largest_group` are the names of the kernel with the largest z and of its
        group, `components.of_kernel(name)` its components, and `components.direction_of(name)`
        says in words in which direction the predictions are off.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, there is no kernel, or fewer than two samples
            count.
        NotImplementedError: if the expectations have no closed form.

    Cost: that of one `exact_skce_test` for each kernel on predictions if the target kernels have
    features (see there), and little for those that are smooth on the scale of the predictions,
    whose matrices have a low rank; otherwise that of one for each kernel. All share the redraws.
    Values that are traced have no features.

    References: none of the four papers has it. Schrab, Kim, Albert, Laurent, Guedj and Gretton
    (2023), MMD aggregated two-sample test, combine p-values of kernels instead of statistics, which
    needs a second level of redraws.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> predictions = distributions.Normal(jnp.linspace(0, 1, 100), jnp.full(100, 0.1))
    >>> error = 0.1 * jnp.sin(8 * jnp.pi * predictions.loc)  # changes its sign
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions) + error
    >>> test = hypothesis_tests.aggregated_skce_test(jax.random.key(1), predictions, targets)
    >>> print(test)
    CalibrationTestResult(pvalue=0.001 ± 0.001, statistic=4.42, estimate=float32[19], 999 targe...
      normal scores 2, predictions 1/8 median: similar predictions share the same error, adj...
      normal scores 8, predictions 1/8 median: similar predictions share the same error, adj...
      directions, scale: predictions too narrow: scale, adjusted p = 0.041, z = +3.2
    """
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2
    )
    if isinstance(bare(predictions), Ensemble):
        predictions = with_targets(checked_ensembles(predictions, 2), targets)
    check_draws(predictions, targets)
    if kernels is None:
        kernels = default_kernels(predictions)
    members, structure = checked_family(kernels, predictions, targets)
    plan = planned(members, predictions, targets, weights)
    parts = evaluate_plan(key, plan, num_draws=num_draws, batch_size=batch_size)
    pool, components = skce_components(
        *parts,
        num_targets=plan.number,
        ranked="omnibus",
        family=structure,
        squares=are_squares(members),
    )
    words = direction_words(members, plan.predictions)
    judged = plan.predictions, plan.targets, None
    scores = direction_scores(members, words, plan.predictions, judged, plan.weights)
    components = dataclasses.replace(components, direction_scores=scores, directions=words)
    return skce_result(pool, components, parts[0][0], draws="targets resampled under the null")
