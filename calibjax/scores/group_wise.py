"""Calibration errors within groups of samples, such as age groups."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.binnings import Binning, ranks_of_pairs
from calibjax.distances import Distance, TotalVariation
from calibjax.distributions.base import ClassPredictions
from calibjax.estimators.binned import checked_bins, distances_in_bins

_TOTAL_VARIATION = TotalVariation()


def group_wise_mce(
    predictions: ClassPredictions,
    targets: ArrayLike,
    groups: ArrayLike,
    *,
    binning: Binning,
    num_groups: int | None = None,
    distance: Distance = _TOTAL_VARIATION,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Maximum calibration error (MCE) within each group of samples.

        MCE_g = max_bins d(p̄_{bin, g}, ȳ_{bin, g}),

    with the mean p̄ of the predictions and the proportions ȳ of the labels of the samples of group g
    in the bin. The bins are those of all samples together. A bin with few samples of a group has a
    large value by chance alone; for this reason smaller groups have larger values. With weights
    means and proportions are weighted.

    Args:
        predictions: batch of n class predictions; for the calibration of confidences, those
            returned by `estimators.top_label`.
        targets: labels 0, ..., m − 1, [n].
        groups: the group of each sample, integers 0, ..., g − 1, [n].
        binning: function of the predictions that returns the bin of each, as in `estimators.ece`.
        num_groups: g. By default the number of groups in `groups`, none of which may be empty;
            required under `jit`.
        distance: distance record d; called on p̄ and ȳ as `Categorical`s.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        [g]; NaN for groups without samples that count.

    Raises:
        TypeError: if an argument is of the wrong kind, or groups are traced and `num_groups` is
            not given.
        ValueError: if shapes or values are wrong, or groups are out of range.

    Cost: that of `estimators.ece` and one sort of n; O(n m + g) memory.

    References: L21 §5.3; its Table 1 has the largest of them, `jnp.nanmax` of what this returns.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> from calibjax.estimators import UniformBins
    >>> predictions = Bernoulli(jnp.array([0.25, 0.75, 0.75, 0.75]))
    >>> targets, groups = jnp.array([0, 1, 1, 0]), jnp.array([0, 0, 1, 1])
    >>> print(group_wise_mce(predictions, targets, groups, binning=UniformBins(2)))
    [0.25 0.25]
    """
    distances, groups, is_valid, weights = _checked_distances(
        predictions, targets, groups, binning, num_groups, distance, weights
    )
    if weights is not None:
        distances = jnp.where(weights == 0, -jnp.inf, distances)
    largest = jax.ops.segment_max(distances, groups, is_valid.size)
    return jnp.where(is_valid & (largest > -jnp.inf), largest, jnp.nan)


def group_wise_ece(
    predictions: ClassPredictions,
    targets: ArrayLike,
    groups: ArrayLike,
    *,
    binning: Binning,
    num_groups: int | None = None,
    distance: Distance = _TOTAL_VARIATION,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Expected calibration error (ECE) within each group of samples.

        ECE_g = Σ_bins n_{bin, g} / n_g · d(p̄_{bin, g}, ȳ_{bin, g}),

    with the mean p̄ of the predictions and the proportions ȳ of the labels of the n_{bin, g} samples
    of group g in the bin; with weights n_{bin, g} and n_g are their sums, and the means weighted.
    The bins are those of all samples together. Each is positive by chance
    alone, the more so the fewer samples a group has: compare them with those of labels that are
    redrawn from the predictions.

    Arguments, errors and cost are those of `group_wise_mce`.

    Returns:
        [g]; NaN for groups without samples that count.

    References: L21 §2.3, where calibration within groups is measured by their average,
        `jnp.nanmean` of what this returns, or by the largest `group_wise_mce`.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> from calibjax.estimators import UniformBins
    >>> predictions = Bernoulli(jnp.array([0.25, 0.75, 0.75, 1.0]))
    >>> targets, groups = jnp.array([0, 1, 1, 1]), jnp.array([0, 0, 1, 1])
    >>> print(group_wise_ece(predictions, targets, groups, binning=UniformBins(3)))
    [0.25  0.125]
    """
    distances, groups, is_valid, weights = _checked_distances(
        predictions, targets, groups, binning, num_groups, distance, weights
    )
    used = jnp.ones_like(distances) if weights is None else weights
    sizes = jax.ops.segment_sum(used, groups, is_valid.size)
    sums = jax.ops.segment_sum(used * distances, groups, is_valid.size)
    return jnp.where(is_valid & (sizes > 0), sums / jnp.where(sizes > 0, sizes, 1), jnp.nan)


def _checked_distances(
    predictions: ClassPredictions,
    targets: ArrayLike,
    groups: ArrayLike,
    binning: Binning,
    num_groups: int | None,
    distance: Distance,
    weights: ArrayLike | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Distances in the cells of samples [n], groups [n], whether all is valid [g], and weights."""
    checks.same_rows(predictions=predictions, targets=targets, groups=groups)
    data = checked_bins(predictions, targets, binning, weights)
    groups, num_groups = _checked_groups(groups, data[2].size, num_groups)
    distances, is_valid = _distances_of_samples(data, groups, distance)
    is_valid &= jnp.all(groups < num_groups)
    return distances, groups, jnp.full(num_groups, is_valid), data[3]


def _checked_groups(groups: ArrayLike, num_samples: int, num_groups: Any) -> tuple[jax.Array, int]:
    """The groups [n] and their number."""
    if num_groups is not None:
        num_groups = checks.size_in_range("num_groups", num_groups, 1, 2**31 - 1)
        return checks.group_ids("groups", groups, num_samples, num_groups), num_groups
    groups = checks.group_ids("groups", groups, num_samples)
    if not checks.is_concrete(groups):
        raise TypeError("num_groups: expected an integer where groups are traced, got None")
    found = np.unique(groups)
    if found[-1] != found.size - 1:
        raise ValueError(
            f"groups: expected groups 0, ..., g - 1 without gaps, got {found.size} groups up to "
            f"{found[-1]} (num_groups says how many there are if some hold no sample)"
        )
    return groups, found.size


def _distances_of_samples(
    data: tuple[Any, Any, jax.Array, jax.Array | None], groups: jax.Array, distance: Distance
) -> tuple[jax.Array, jax.Array]:
    """Distance of both means in each sample's bin and group, [n], and whether all is in range."""
    predictions, targets, bins, weights = data
    cells = ranks_of_pairs(groups, bins)
    sizes, distances = distances_in_bins(predictions, targets, cells, distance, weights)
    is_valid = jnp.all(sizes >= 0) & jnp.all((groups >= 0) & (bins >= 0) & (bins < bins.size))
    return distances[cells], is_valid
