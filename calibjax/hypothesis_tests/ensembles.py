"""Exact tests of ensembles, and tests of clusters of samples.

Ensembles: if the m members and the target are independent draws from one distribution, all m + 1
values are exchangeable. Given the pool of these values, each is equally likely to be the target.
Redrawing *which* value is the target is therefore exact for every number of members, in contrast to
redrawing targets from the members.

Clusters: let H_ab be the mean of h over the pairs of a sample in cluster a and one in cluster b.
Clusters are independent, so U = mean of H_ab over a ≠ b is a U-statistic of the clusters, without
pairs within a cluster.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.environment import default_batch_size
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers, PyTree, T
from calibjax.distances import Euclidean
from calibjax.distributions import Categorical, Ensemble
from calibjax.distributions.base import DataSet, Distribution
from calibjax.distributions.composed import bare, like
from calibjax.hypothesis_tests.components import Statistic
from calibjax.hypothesis_tests.exact import ranked_skce
from calibjax.hypothesis_tests.redraws import over_pool, rank_among_redraws
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.kernels import Kernel, default_kernel
from calibjax.operators.plan import sample_pair
from calibjax.operators.tiles import Args, PairFunction


@checked(minimum=2)
def ensemble_skce_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Ensemble,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
    statistic: Statistic = "omnibus",
) -> CalibrationTestResult:
    """Exact test of calibrated ensembles with the squared kernel calibration error.

    The hypothesis is that, given the m members z_i1, ..., z_im of each ensemble, the target z_i0 is
    one more draw from the distribution of the members. With the features f of the target kernel,
    the residual is

        r_i = f(z_i0) − (m + 1)⁻¹ Σ_{j=0..m} f(z_ij),

    and the statistics are those of `exact_skce_test` with k_P(pool_i, pool_j) ⟨r_i, r_j⟩ instead of
    h. Redraws replace z_i0 in the first term by a random value of the pool. The kernel on
    predictions is a function of the pool only, not of which value is the target.

    This is exact for every n, m and B, if the members are independent draws; thin a Markov chain
    first. If members are missing, m is the number of the others, and the test is exact given which
    are missing. `distances.Wasserstein` needs equal numbers of members,
    `distances.MaximumMeanDiscrepancy` does not.

    `exact_skce_test` would draw targets from the members, and reject calibrated ensembles: at level
    5 % and n = 64, 100 % with 3 members and 58 % with 11.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target). Its kernel on predictions must be defined for
            `Ensemble` of m + 1 draws: `Exponential(1.0, Wasserstein())` for scalars, a distance
            `MaximumMeanDiscrepancy` for vectors. It must not be chosen with the targets.
            None for `kernels.default_kernel` of the pools.
        predictions: batch of n ≥ 2 ensembles of m ≥ 2 members, `Ensemble` with values [n, m] or [n,
            m, d]: ensemble members, posterior draws, runs of a simulator, labels of repeated
            answers. No weights except a mask of missing members.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], as in `exact_skce_test`.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        statistic: the statistic to rank, as in `exact_skce_test`.

    Returns:
        The result. `estimate` is the mean of k_P ⟨f(z_i0) − μ_i, f(z_j0) − μ_j⟩ over i ≠ j, where
        μ_i is the mean over the members; it is unbiased, and has mean zero for calibrated ensembles
        of any size. If members are missing, samples have weights m_i / (m_i + 1) in this mean.
        `components` belong to the residuals r_i.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, members have different weights, n < 2 or
            m < 2.

    Cost: for numbers and `SquaredExponential`, if the values are not traced, n m r for r Fourier
    features and n² r per redraw; otherwise n² m² / 2 evaluations of the target kernel per redraw.

    References: none of the four papers has it. Ranks in the pool are due to Anderson (1996), A
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
    pool = with_targets(checked_ensembles(predictions, may_lack=True), targets)
    # r_i = (1 − 1 / (m_i + 1)) (f(z_i0) − μ_i)
    size = pool.values.shape[1] if pool.weights is None else jnp.sum(pool.weights != 0, 1)
    each = jnp.ones(pool.values.shape[0], floating_dtype(pool)) if weights is None else weights
    factor = _pairs(each) / _pairs(each * (1 - 1 / size))
    data = kernel or inner(default_kernel)(pool), pool, targets, weights
    result = ranked_skce(key, *data, num_draws=num_draws, statistic=statistic)
    return dataclasses.replace(result, estimate=factor * result.estimate)


def _pairs(weights: jax.Array) -> jax.Array:
    """Total weight of pairs of different samples."""
    return jnp.square(jnp.sum(weights)) - jnp.sum(jnp.square(weights))


@checked
def rank_histogram_test(
    key: jax.Array,
    predictions: Ensemble,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Exact test of calibrated ensembles with the ranks of the targets.

    The rank R_i ∈ {0, ..., m} of the target in its pool of m + 1 values is uniform if members and
    target have one distribution. Ties are broken at random. The statistic is

        χ² = Σ_r (N_r − n / (m + 1))² / (n / (m + 1)),   N_r = #{i : R_i = r},

    or with weights N_r = Σ_{i : R_i = r} w_i and n = Σ_i w_i, after scaling to Σ_i w_i = Σ_i w_i².
    Its rank among the statistics of uniform ranks is exact for every n, m and B. Vectors are ranked
    by their mean Euclidean distance to the other values of the pool ("energy pre-rank": a large
    rank means that the target is an outlier of its ensemble). If members are missing and m_i < m
    are left, a rank is stretched to the integer part of (R_i + V) (m + 1) / (m_i + 1). This is
    uniform for V uniform on the multiples of 1 / (m + 1) in [0, 1).

    It detects errors that all ensembles share. Use `ensemble_skce_test` for errors that depend on
    the prediction and cancel between ensembles.

    Args:
        key: a JAX random key.
        predictions: batch of n ensembles of m ≥ 2 members, `Ensemble`, without weights except a
            mask of missing members.
        targets: [n] or [n, d].
        weights: w ≥ 0 of the samples, [n], which all redraws keep; None for equal weights.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result; `estimate` contains the relative frequencies of the ranks, [m + 1], each 1 / (m
        + 1) in expectation.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, members have different weights, or m < 2.

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
    pools = bare(with_targets(checked_ensembles(predictions, may_lack=True), targets))
    n, size = pools.values.shape[:2]
    tie_key, key = jax.random.split(key)
    ranks = _ranks(tie_key, pools.values, pools.weights)
    uniform = checks.nan_with(jnp.full((n, size), 1 / size), pools, weights)
    data = key, _chi_squared, weights, Categorical(uniform), ranks
    num_bytes = 16 * (n + size)  # random bits and counts
    result = rank_among_redraws(*data, num_draws=num_draws, num_bytes=num_bytes)
    number = n if weights is None else jnp.sum(weights)
    frequencies = jnp.bincount(ranks, weights, length=size) / number
    return dataclasses.replace(result, estimate=checks.nan_with(frequencies, pools))


def checked_ensembles(ensembles: Any, *, may_lack: bool = False) -> Ensemble:
    """Refuses ensembles whose members are not equally likely; some may be missing."""
    if ensembles.weights is not None and not may_lack:
        expected = "None, because weighted members and the target are not exchangeable"
        raise ValueError(f"predictions.weights: expected {expected}, got {ensembles.weights}")
    weights = checks.equal_weights("predictions", ensembles.weights)
    return like(ensembles, checks.replaced(bare(ensembles), weights=weights))


def with_targets(ensembles: Ensemble, targets: jax.Array) -> Ensemble:
    """Pools of the target and the members of each ensemble, in this order."""
    values, weights = jnp.concatenate([targets[:, None], ensembles.values], 1), ensembles.weights
    if weights is not None:
        shares = jnp.concatenate([jnp.max(weights, 1, keepdims=True), weights], 1)
        weights = shares / jnp.sum(shares, 1, keepdims=True)
    return like(ensembles, Ensemble(values, weights))


@jax.jit
def _ranks(key: jax.Array, pool: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Ranks 0, ..., m of the targets in their pools, with ties broken at random, [n].

    A rank among fewer than m + 1 present values is stretched at random.
    """

    def energy(values: jax.Array, present: jax.Array) -> jax.Array:
        distances = jax.vmap(jax.vmap(Euclidean(), (None, 0)), (0, None))(values, values)
        return jnp.sum(jnp.where(present, distances, 0), 1)

    size = pool.shape[1]
    is_there = jnp.ones(pool.shape[:2], bool) if weights is None else weights > 0
    values = pool if pool.ndim == 2 else jax.vmap(energy)(pool, is_there)
    target, others = values[:, :1], values[:, 1:]
    # The rank of the target among equal values is uniform.
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


MIN_CLUSTERS = 10


class Clusters(NamedTuple):
    """Clusters of samples.

    Attributes:
        ids: cluster of each sample, in 0, ..., n − 1, [n].
        weights: 1 / size of the cluster, [n], or the share of the sample in the weight of the
            cluster; NaN if there are too few clusters.
        number: G.
    """

    ids: jax.Array
    weights: jax.Array
    number: jax.Array


def clusters_of(ids: Any, dtype: DTypeLike, weights: jax.Array | None) -> Clusters:
    """Clusters of n samples, from at least `MIN_CLUSTERS` different integers, [n].

    Shares have this dtype. Clusters without weight do not count.
    """
    num_samples = ids.size
    if checks.is_concrete(ids):
        weighted = ids if weights is None or not checks.is_concrete(weights) else ids[weights > 0]
        if (number := len(np.unique(weighted))) < MIN_CLUSTERS:
            expected = f"at least {MIN_CLUSTERS} different ones, as the test is asymptotic in them"
            raise ValueError(f"clusters: expected {expected}, got {number}")
        ids = jnp.asarray(np.unique(ids, return_inverse=True)[1], jnp.int32)
    each = jnp.ones(num_samples, dtype) if weights is None else weights.astype(dtype)
    return _clusters(ids, each)


@jax.jit
def _clusters(ids: jax.Array, each: jax.Array) -> Clusters:
    """`clusters_of` with the weights of the samples."""
    num_samples = ids.size
    sizes = jnp.zeros_like(each).at[ids].add(each, mode="drop")
    number = jnp.sum(sizes > 0)
    # Traced numbers must be in 0, ..., n − 1, because others cannot be found.
    is_known = jnp.all((ids >= 0) & (ids < num_samples)) & (number >= MIN_CLUSTERS)
    size = sizes[ids]
    shares = each / jnp.where(size > 0, size, 1)
    return Clusters(ids, jnp.where(is_known, shares, jnp.nan), number)


def apart(
    function: PairFunction, args: PyTree, x: tuple[Any, Any], y: tuple[Any, Any]
) -> jax.Array:
    """Function of two samples with their clusters; zero within a cluster."""
    (sample, cluster), (other, other_cluster) = x, y
    value = function(args, sample, other)
    return jnp.where(cluster == other_cluster, jnp.zeros_like(value), value)


pair_apart = functools.partial(apart, sample_pair)


@functools.partial(jax.jit, static_argnames="pair")
def cluster_means(
    pair: PairFunction[Args, T], args: Args, samples: T, clusters: Clusters
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mean of H_ab over b ≠ a of a function of pairs, for each cluster a, [n].

    Also 1 / G if the cluster exists, else zero, [n]; and G.
    """
    points, weights = (samples, clusters.ids), clusters.weights
    data = functools.partial(apart, pair), args, points, points, weights[:, None]
    sums = operators.weighted_sums(*data)[:, 0]
    zeros, number = jnp.zeros_like(sums), clusters.number.astype(sums.dtype)
    means = zeros.at[clusters.ids].add(weights * sums) / (number - 1)
    is_cluster = zeros.at[clusters.ids].add(weights) > 0
    return means, jnp.where(is_cluster, 1 / number, 0), number


@checked(minimum=MIN_CLUSTERS)
def cluster_skce_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Distribution,
    targets: Numbers,
    clusters: Numbers,
    *,
    weights: Numbers | None = None,
    num_draws: int = 999,
) -> CalibrationTestResult:
    """Test of calibration for dependent samples in independent clusters.

    Samples of one patient, prompt, weather station or forecast window may depend on each other in
    any way; different clusters are independent. The exact tests assume independent targets, and
    would reject calibrated models. With the mean H_ab of h over the pairs from clusters a and b,
    the statistic

        U = 1 / (G (G − 1)) Σ_{a≠b} H_ab

    is compared with U_ε, in which H_ab has the factor ε_a ε_b for random signs ε = ±1. If the model
    is calibrated, flipping the sign of all residuals of a cluster hardly changes the distribution
    of a sum over many clusters. The test is asymptotic in the number of clusters (with 20, its size
    at level 5 % is 4 to 5 %). It leaves out the component "dispersion" of `SKCEComponents`, and so
    has little power against predictions that are only too wide or too narrow.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets; None for
            `kernels.default_kernel(predictions)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        clusters: integers ≥ 0, equal for samples of one cluster, at least 10 different ones, [n].
            Traced integers must be in 0, ..., n − 1.
        weights: w ≥ 0 of the samples, [n], which weight samples within a cluster in H_ab. All
            clusters count equally, except clusters without weight, which are left out.
        num_draws: B, number of random signs; the smallest possible p-value is 1 / (B + 1).

    Returns:
        The result; `statistic` and `estimate` are U, an unbiased estimate of the SKCE of a sample
        of a random cluster.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are fewer than 10 clusters (then the
            result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: n² / 2 evaluations of h for each batch of redraws, and B n² / 2 multiplications in matrix
    products. Memory O(n + tile²) for each of a batch of signs.

    References: none of the four papers has it. Random signs are the wild bootstrap for degenerate
    U-statistics: Dehling and Mikosch (1994), Random quadratic forms and the bootstrap for
    U-statistics; Cameron, Gelbach and Miller (2008) for clusters.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    ... )
    >>> clusters = jnp.repeat(jnp.arange(30), 4)  # four samples, with the same error, in each
    >>> errors = jax.random.normal(jax.random.key(0), (30,))[clusters]
    >>> predictions = distributions.Normal(jnp.zeros(120), jnp.ones(120))
    >>> test = hypothesis_tests.cluster_skce_test(
    ...     jax.random.key(1), kernel, predictions, errors, clusters
    ... )
    >>> exact = hypothesis_tests.exact_skce_test(jax.random.key(1), kernel, predictions, errors)
    >>> print(f"{test.pvalue:.2f} {exact.pvalue:.3f}")
    0.27 0.005
    """
    kernel, samples = kernel or inner(default_kernel)(predictions), (predictions, targets)
    groups = clusters_of(clusters, floating_dtype(samples), weights)
    keys, size = jax.random.split(key, num_draws), default_batch_size(targets.size)
    ones = jnp.ones_like(groups.weights)
    values = over_pool(keys, _signs, _signed_means, (kernel, samples, groups), ones, size)
    statistic = checks.nan_with(values[0], samples)
    return simulated_result(statistic, values[1:], statistic, draws="random signs of clusters")


def _signs(data: tuple[Kernel, DataSet, Clusters], key: jax.Array) -> jax.Array:
    _, _, clusters = data
    return jax.random.rademacher(key, clusters.weights.shape, clusters.weights.dtype)


def _signed_means(data: tuple[Kernel, DataSet, Clusters], signs: jax.Array) -> jax.Array:
    """U_ε for several sets of signs."""
    kernel, samples, (ids, weights, number) = data
    signed = signs[:, ids].T * weights[:, None]
    forms = operators.quadratic_forms(pair_apart, kernel, (samples, ids), signed)
    return sum(forms) / (number * (number - 1.0))
