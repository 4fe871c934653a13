"""Exact tests of ensembles: which of m + 1 values is the target?

If the members of an ensemble and the target are independent draws from the same distribution,
whatever it is, then all m + 1 values are exchangeable: given the pool of these values, each is
equally likely to be the target. Redrawing *which* value is the target is therefore exact for every
number of members, in contrast to redrawing targets from the members.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax.distances import Euclidean
from calibjax.distributions import Categorical, Ensemble
from calibjax.distributions.features import bare, like
from calibjax.estimators.kernel import weighted_samples
from calibjax.hypothesis_tests._redraw.pool import rank_among_redraws
from calibjax.hypothesis_tests.exact import ranked_skce
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Kernel, default_kernel

_BYTES_PER_RANK = 16  # random bits and counts of one sample in one redraw


def ensemble_skce_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Ensemble,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    statistic: str = "omnibus",
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibrated ensembles with the squared kernel calibration error.

    The hypothesis is that, given the m members z_i1, ..., z_im of each ensemble, the target z_i0 is
    one more draw from the distribution that the members were drawn from. With the features f of
    the target kernel, and their mean over the pool of m + 1 values, the residual is

        r_i = f(z_i0) − (m + 1)⁻¹ Σ_{j=0..m} f(z_ij),

    and the statistics are those of `exact_skce_test`, with k_P(pool_i, pool_j) ⟨r_i, r_j⟩ in place
    of h. Redraws replace z_i0 in the first term by one of the pool, with equal probabilities. The
    prediction kernel sees only the pool, and not which of its values is the target.

    This is exact for every n, m and B, if the members are independent draws: thin a Markov chain
    first. Where members are missing, m is the number of the others, and the test is exact given
    which are missing. `distances.Wasserstein` needs equally many members,
    `distances.MaximumMeanDiscrepancy` does not.

    The test with `exact_skce_test` asks whether the target is one of the members, and
    rejects calibrated ensembles: for n = 64 in 39 % of all cases with 5 members, in 14 % with 11.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target). Its kernel on predictions must be defined for
            `Ensemble` of m + 1 draws: `Exponential(1.0, Wasserstein())` for scalars, a distance
            `MaximumMeanDiscrepancy` for vectors. It must not be chosen with the targets.
            None for `kernels.default_kernel` of the pools.
        predictions: batch of n ≥ 2 ensembles of m ≥ 2 members, `Ensemble` with values [n, m] or
            [n, m, d]: ensemble members, posterior draws, runs of a simulator, labels of repeated
            answers; without weights, apart from a mask of members that are missing.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], as in `exact_skce_test`.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        statistic: the statistic to rank, as in `exact_skce_test`.
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result. `estimate` is the mean of k_P ⟨f(z_i0) − μ_i, f(z_j0) − μ_j⟩ over i ≠ j, where
        μ_i is the mean over the members; it is unbiased, and has mean zero for calibrated
        ensembles of any size; where members are missing, samples have weights m_i / (m_i + 1) in
        this mean. `components` are those of the residuals r_i.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, members have different weights, n < 2 or
            m < 2.

    Cost: if r of the draws determine the target kernel at all others to rounding errors, as for
    smooth kernels, and the values are not traced, n m r² for each batch of redraws and n² r per
    redraw; otherwise n² m² / 2 evaluations of the target kernel per redraw.

    References: none of the four papers has it. Ranks in the pool are those of Anderson (1996), A
    method for producing and evaluating probabilistic forecasts from ensemble model integrations.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> values = jax.random.normal(jax.random.key(0), (64, 12))
    >>> ensembles, targets = distributions.Ensemble(values[:, 1:]), values[:, 0]
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> test = hypothesis_tests.ensemble_skce_test
    >>> print(f"{test(jax.random.key(1), kernel, ensembles, targets).pvalue:.3f}")
    0.117
    >>> print(f"{test(jax.random.key(1), kernel, ensembles, targets + 0.7).pvalue:.3f}")
    0.001
    """
    checks.same_rows(predictions=predictions, targets=targets, weights=weights)
    predictions = checked_ensembles(predictions, 2, may_lack=True)
    if kernel is None:
        pool = with_targets(predictions, checks.predictions_and_targets(predictions, targets)[1])
        kernel = default_kernel(pool)
    kernel, (predictions, targets), weights = weighted_samples(
        kernel, predictions, targets, weights, minimum=2
    )
    pool = with_targets(predictions, targets)
    # r_i = (1 − 1 / (m_i + 1)) (f(z_i0) − μ_i)
    size = pool.values.shape[1] if pool.weights is None else jnp.sum(pool.weights != 0, 1)
    each = jnp.ones(pool.values.shape[0], floating_dtype(pool)) if weights is None else weights
    factor = _pairs(each) / _pairs(each * (1 - 1 / size))
    result = ranked_skce(
        key,
        kernel,
        pool,
        targets,
        weights,
        num_draws=num_draws,
        statistic=statistic,
        batch_size=batch_size,
    )
    return dataclasses.replace(result, estimate=factor * result.estimate)


def _pairs(weights: jax.Array) -> jax.Array:
    """Weight of all pairs of different samples."""
    return jnp.square(jnp.sum(weights)) - jnp.sum(jnp.square(weights))


def rank_histogram_test(
    key: jax.Array,
    predictions: Ensemble,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Exact test of calibrated ensembles with the ranks of the targets.

    The rank R_i ∈ {0, ..., m} of the target in its pool of m + 1 values is uniform if it is a draw
    from the same distribution as the members. Ties are broken at random. The statistic is

        χ² = Σ_r (N_r − n / (m + 1))² / (n / (m + 1)),   N_r = #{i : R_i = r},

    with weights N_r = Σ_{i : R_i = r} w_i and n = Σ_i w_i = Σ_i w_i² (to which they are scaled),
    ranked among those of uniform ranks, which is exact for every n, m and B. Vectors are ranked by
    their mean Euclidean distance to the other values of the pool ("energy pre-rank": a large rank
    means that the target is an outlier of its ensemble). Among m_i < m members, where some are
    missing, a rank is stretched: the integer part of (R_i + V) (m + 1) / (m_i + 1), with V uniform
    on the multiples of 1 / (m + 1) in [0, 1), is uniform again.

    It detects errors that all ensembles share; errors that depend on the prediction, and cancel
    between ensembles, are for `ensemble_skce_test`.

    Args:
        key: a JAX random key.
        predictions: batch of n ensembles of m ≥ 2 members, `Ensemble`, without weights, apart from
            a mask of members that are missing.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for samples that count
            alike.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are evaluated at once; by default as many as fit in
            about 16 MB.

    Returns:
        The result; `estimate` contains the relative frequencies of the ranks, [m + 1], whose
        expectation is 1 / (m + 1).

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, there are different weights, or m < 2.

    Cost: n m for scalars and n m² d for vectors, then B (n + m).

    References: Anderson (1996) for scalars; Gneiting, Stanberry, Grimit, Held and Johnson (2008),
    and Knüppel, Krüger and Pohle (2022) for pre-ranks of vectors.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> values = jax.random.normal(jax.random.key(0), (64, 12))
    >>> ensembles = distributions.Ensemble(values[:, 1:])
    >>> test = hypothesis_tests.rank_histogram_test(
    ...     jax.random.key(1), ensembles, 2 * values[:, 0]  # too narrow
    ... )
    >>> print(f"{test.pvalue:.3f}")
    0.002
    """
    key = checks.random_key(key)
    checks.same_rows(predictions=predictions, targets=targets, weights=weights)
    predictions = checked_ensembles(predictions, 1, may_lack=True)
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    pools = bare(with_targets(predictions, targets))
    n, size = pools.values.shape[:2]
    tie_key, key = jax.random.split(key)
    ranks = _ranks(tie_key, pools.values, pools.weights)
    uniform = checks.nan_with(jnp.full((n, size), 1 / size), pools, weights)
    result = rank_among_redraws(
        key,
        _chi_squared,
        weights,
        Categorical(uniform),
        ranks,
        num_draws=num_draws,
        batch_size=batch_size,
        num_bytes=_BYTES_PER_RANK * (n + size),
    )
    number = n if weights is None else jnp.sum(weights)
    frequencies = jnp.bincount(ranks, weights, length=size) / number
    return dataclasses.replace(result, estimate=checks.nan_with(frequencies, pools))


def checked_ensembles(ensembles: Any, minimum: int, *, may_lack: bool = False) -> Ensemble:
    """Refuses what is not a batch of ensembles of equally likely members; some may be missing."""
    if not isinstance(bare(ensembles), Ensemble):
        raise TypeError(
            "predictions: expected a batch of ensembles, distributions.Ensemble, got "
            f"{checks.described(ensembles)}"
        )
    if ensembles.weights is not None and not may_lack:
        raise ValueError(
            f"predictions.weights: expected None, because weighted members and the target are not "
            f"exchangeable, got {ensembles.weights}"
        )
    ensembles = checks.batch(ensembles, minimum=minimum)
    weights = checks.equal_weights("predictions", ensembles.weights)
    return like(ensembles, checks.replaced(bare(ensembles), weights=weights))


def with_targets(ensembles: Ensemble, targets: jax.Array) -> Ensemble:
    """The pools of the target and the members of each ensemble, in this order."""
    values, weights = jnp.concatenate([targets[:, None], ensembles.values], 1), ensembles.weights
    if weights is not None:
        shares = jnp.concatenate([jnp.max(weights, 1, keepdims=True), weights], 1)
        weights = shares / jnp.sum(shares, 1, keepdims=True)
    return like(ensembles, Ensemble(values, weights))


@jax.jit
def _ranks(key: jax.Array, pool: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Ranks 0, ..., m of the targets in their pools, with ties broken at random, [n].

    A rank among fewer than m + 1 values that are present is stretched to these, at random.
    """

    def energy(values: jax.Array, present: jax.Array) -> jax.Array:
        distances = jax.vmap(jax.vmap(Euclidean(), (None, 0)), (0, None))(values, values)
        return jnp.sum(jnp.where(present, distances, 0), 1)

    size = pool.shape[1]
    is_there = jnp.ones(pool.shape[:2], bool) if weights is None else weights > 0
    values = pool if pool.ndim == 2 else jax.vmap(energy)(pool, is_there)
    target, others = values[:, :1], values[:, 1:]
    # The place of the target among equal values is uniform.
    below = jnp.sum(is_there[:, 1:] & (others < target), 1)
    ties = jnp.sum(is_there[:, 1:] & (others == target), 1)
    ranks = below + jax.random.randint(key, below.shape, 0, ties + 1)
    within = jax.random.randint(jax.random.fold_in(key, 1), ranks.shape, 0, size)
    return (ranks * size + within) // jnp.sum(is_there, 1)


def _chi_squared(weights: jax.Array | None, uniform: Categorical, ranks: jax.Array) -> jax.Array:
    probs = uniform.probs if weights is None else weights[:, None] * uniform.probs
    expected = jnp.sum(probs, 0)
    observed = jnp.bincount(ranks, weights, length=len(expected))
    return jnp.sum(jnp.square(observed - expected) / expected)
