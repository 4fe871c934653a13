"""Dependent samples: independent clusters, with any dependence within them.

Let H_ab be the mean of h over the pairs of a sample in cluster a and one in cluster b. The samples
of different clusters are independent, so U = mean of H_ab over a ≠ b is a U-statistic of the
clusters, in which pairs within a cluster do not occur.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.pytree import PyTree, T
from calibjax.distributions.base import DataSet, Distribution
from calibjax.estimators.kernel import sample_pair, weighted_samples
from calibjax.hypothesis_tests._redraw.pool import over_pool
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result
from calibjax.hypothesis_tests.simulation import checked_batch_size
from calibjax.kernels import Kernel, default_kernel
from calibjax.operators.forms import PairFunction
from calibjax.operators.tiles import Args

MIN_CLUSTERS = 10


class Clusters(NamedTuple):
    """Which samples belong together.

    Attributes:
        ids: cluster of each sample, in 0, ..., n − 1, [n].
        weights: 1 / size of its cluster, [n], or the share of the sample in its weight; NaN if
            there are too few clusters.
        number: G.
    """

    ids: jax.Array
    weights: jax.Array
    number: jax.Array


def checked_clusters(
    values: ArrayLike, kernel: Kernel, samples: DataSet, weights: jax.Array | None
) -> Clusters:
    """Checks the clusters of n samples: at least `MIN_CLUSTERS` different integers, [n].

    Clusters without any weight do not count.
    """
    first = jax.tree.map(lambda leaf: leaf[0], samples)
    dtype = jax.eval_shape(sample_pair, kernel, first, first).dtype
    return clusters_of(values, checks.leading_size("predictions", samples[0]), dtype, weights)


def clusters_of(
    values: ArrayLike, num_samples: int, dtype: DTypeLike, weights: jax.Array | None
) -> Clusters:
    """The same, with weights in this precision."""
    ids = checks.integer("clusters", checks.as_arrays("clusters", values), "cluster numbers")
    checks.shape("clusters", ids, (num_samples,), f"({num_samples},), a cluster for each sample")
    if checks.is_concrete(ids):
        distinct, ids = np.unique(np.asarray(ids), return_inverse=True)
        ids = ids.reshape(-1)
        number = len(distinct)
        if weights is not None and checks.is_concrete(weights):
            number = len(np.unique(ids[np.asarray(weights) > 0]))
        if number < MIN_CLUSTERS:
            raise ValueError(
                f"clusters: expected at least {MIN_CLUSTERS} different clusters: the result "
                f"is asymptotic in their number, got {number}"
            )
        ids = jnp.asarray(ids, jnp.int32)
    each = jnp.ones(num_samples, dtype) if weights is None else weights.astype(dtype)
    sizes = jnp.zeros(num_samples, dtype).at[ids].add(each, mode="drop")
    number = jnp.sum(sizes > 0)
    # Traced numbers must be 0, ..., n − 1, since no program can look for others.
    is_known = jnp.all((ids >= 0) & (ids < num_samples)) & (number >= MIN_CLUSTERS)
    size = sizes[ids]
    shares = each / jnp.where(size > 0, size, 1)
    return Clusters(ids, jnp.where(is_known, shares, jnp.nan), number)


def apart(
    function: PairFunction, args: PyTree, x: tuple[Any, Any], y: tuple[Any, Any]
) -> jax.Array:
    """A function of two samples, which have their clusters beside them; zero within a cluster."""
    (sample, cluster), (other, other_cluster) = x, y
    value = function(args, sample, other)
    return jnp.where(cluster == other_cluster, jnp.zeros_like(value), value)


pair_apart = functools.partial(apart, sample_pair)


@functools.partial(jax.jit, static_argnames="pair")
def cluster_means(
    pair: PairFunction[Args, tuple[T, jax.Array]], args: Args, samples: T, clusters: Clusters
) -> tuple[jax.Array, jax.Array]:
    """The mean of H_ab over b ≠ a for each cluster a, and whether there is such a cluster, [n].

    `pair` is one `apart`, of which H_ab are the means.
    """
    points, weights = (samples, clusters.ids), clusters.weights
    sums = operators.weighted_sums(pair, args, points, points, weights[:, None])[:, 0]
    zeros = jnp.zeros_like(sums)
    means = zeros.at[clusters.ids].add(weights * sums) / (clusters.number - 1)
    return means, zeros.at[clusters.ids].add(weights) > 0


def cluster_skce_test(
    key: jax.Array,
    kernel: Kernel | None,
    predictions: Distribution,
    targets: ArrayLike,
    clusters: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Test of calibration for dependent samples in independent clusters.

    Samples of one patient, prompt, weather station or forecast window may depend on each other in
    any way; different clusters are independent. The exact tests assume independent targets, and
    reject calibrated models then: 20 clusters of 5 samples with one prediction and a correlation of
    0.8 in 81 % of all cases (`experiments.power`).
    With the mean H_ab of h over the pairs from clusters a and b, the statistic

        U = 1 / (G (G − 1)) Σ_{a≠b} H_ab

    is compared with U_ε, in which H_ab has the factor ε_a ε_b for random signs ε = ±1: flipping the
    sign of all residuals of a cluster hardly changes the distribution of a sum over many clusters
    if the model is calibrated. The test is asymptotic in the number of clusters (its level is 0.04
    to 0.05 with 20), and hardly detects predictions that are too wide or too narrow without an
    error of the mean, since it leaves out the component "dispersion" of `SKCEComponents`.

    Args:
        key: a JAX random key.
        kernel: kernel on pairs (prediction, target), not chosen with the targets; None for
            `kernels.default_kernel(predictions)`.
        predictions: batch of n distributions.
        targets: [n] or [n, d].
        clusters: integers, equal for samples of the same cluster, at least 10 different ones, [n];
            if they are traced, in 0, ..., n − 1.
        weights: w ≥ 0 of the samples, [n]: those within a cluster count by them in H_ab. All
            clusters count equally, whatever the weight or the number of their samples is, but for
            those without any weight, which are left out.
        num_draws: B, number of random signs; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of them that are evaluated at once, which bounds the memory.

    Returns:
        The result; `statistic` and `estimate` are U, an unbiased estimate of the SKCE of a sample
        of a random cluster.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are fewer than 10 clusters (then the
            result under `jit` is NaN).
        NotImplementedError: if the expectations have no closed form.

    Cost: n² / 2 evaluations of h for each batch of redraws, and B n² / 2 multiplications in matrix
    products. Memory O(batch_size n + tile²).

    References: none of the four papers has it. Random signs are those of the wild bootstrap for
    degenerate U-statistics: Dehling and Mikosch (1994), Random quadratic forms and the bootstrap
    for U-statistics; Cameron, Gelbach and Miller (2008) for clusters.

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
    key = checks.random_key(key)
    num_draws = checks.number_of_draws("num_draws", num_draws)
    checks.same_rows(predictions=predictions, targets=targets, clusters=clusters)
    kernel = default_kernel(predictions) if kernel is None else kernel
    kernel, samples, weights = weighted_samples(
        kernel, predictions, targets, weights, minimum=MIN_CLUSTERS
    )
    groups = checked_clusters(clusters, kernel, samples, weights)
    batch_size = checked_batch_size(batch_size, len(groups.ids))
    statistic, draws = _with_signs(
        key, kernel, samples, groups, num_draws=num_draws, batch_size=batch_size
    )
    statistic = checks.nan_with(statistic, samples)
    return simulated_result(statistic, draws, statistic, draws="random signs of clusters")


@functools.partial(jax.jit, static_argnames=("num_draws", "batch_size"))
def _with_signs(
    key: jax.Array,
    kernel: Kernel,
    samples: DataSet,
    clusters: Clusters,
    *,
    num_draws: int,
    batch_size: int,
) -> tuple[jax.Array, jax.Array]:
    """U, and U_ε for random signs, [B]."""
    points, weights = (samples, clusters.ids), clusters.weights
    num_pairs = clusters.number * (clusters.number - 1.0)

    def evaluate(data: tuple, signs: jax.Array) -> jax.Array:
        kernel, points, weights = data
        signed = signs[:, points[1]].T * weights[:, None]
        return operators.quadratic_forms(pair_apart, kernel, points, signed) / num_pairs

    def signs(data: tuple, key: jax.Array) -> jax.Array:
        return jax.random.rademacher(key, data[2].shape, data[2].dtype)

    keys = jax.random.split(key, num_draws)
    values = over_pool(
        keys, signs, evaluate, (kernel, points, weights), jnp.ones_like(weights), batch_size
    )
    return values[0], values[1:]
