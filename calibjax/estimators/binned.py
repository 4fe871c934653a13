"""Calibration errors of class predictions, estimated in bins."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial, all_leaves
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import segment_sums
from calibjax.binnings import Binning, UniformBins, bins_of
from calibjax.distances import Distance, TotalVariation
from calibjax.distributions import Categorical
from calibjax.distributions.base import ClassPredictions

_TOTAL_VARIATION = TotalVariation()
_TEN_BINS = UniformBins(10)
_DIGITS = 64  # rounding errors of differences of squares


def ece(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    binning: Binning = _TEN_BINS,
    distance: Distance = _TOTAL_VARIATION,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Expected calibration error, of all classes together (canonical) unless seen through a lens.

        ECE = Σ_bins |bin| / n · d(p̄_bin, ȳ_bin),

    with the mean p̄ of the predictions and the proportions ȳ of the labels in the bin; with weights
    |bin| is their sum in the bin, n that of all, and p̄ and ȳ are weighted. **The usual ECE of the
    literature, that of the most probable class, is `ece(*top_label(predictions, targets))`**; with
    more than two classes the canonical ECE is larger, since it bins and compares all probabilities
    jointly. `class_wise` gives the ECE of each class.

    It is biased upwards: on calibrated data the proportions scatter around the mean predictions,
    the more so the fewer samples there are in a bin.

    Bins are piecewise constant in the predictions, so gradients treat them as fixed.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, integers in
            0, ..., n − 1, [n]: `UniformBins(10)`, ten bins of equal width and the default, as in
            `calibjax.evaluate`; `EqualMassBins(10)`, `MedianVarianceBins(100)`, or your own. If
            bins are already known, store them in an integer leaf of a subclass of `Categorical` and
            read them here. Of the binnings here those that depend on the data take the weights
            into account, while your own sees the predictions only.
        distance: distance record d; called on p̄ and ȳ as `Categorical`s.
        weights: w ≥ 0 of the samples, [n]; integers are numbers of copies. None for samples that
            count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or bins are out of range.

    Cost: the binning, and O(n m) time and memory. Data sets under `vmap` are fastest in batches
    that fit in the cache (`lax.map` with a `batch_size` of about 3 · 10⁵ / (n m)).

    References: W19 §4.3, eq. (5), and App. J.1.1 for the estimator.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.estimators import top_label, UniformBins
    >>> predictions = Categorical(jnp.array([[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]]))
    >>> targets = jnp.array([0, 1])
    >>> print(ece(*top_label(predictions, targets), binning=UniformBins(2)))
    0.25
    >>> print(ece(predictions, targets, binning=UniformBins(2)))
    0.375
    """
    seen, labels, bins, used = checked_bins(predictions, targets, binning, weights)
    sizes, distances = distances_in_bins(seen, labels, bins, distance, used)
    return _mean_over_samples(sizes, distances, used)


def mce(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    binning: Binning = _TEN_BINS,
    distance: Distance = _TOTAL_VARIATION,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Maximum calibration error, of all classes together (canonical) unless seen through a lens.

        MCE = max_bins d(p̄_bin, ȳ_bin),

    the largest distance between means and proportions in a bin, over the non-empty bins, with the
    notation of `ece`. **The usual MCE of the literature, that of the most probable class, is
    `mce(*top_label(predictions, targets))`.** A bin with a single sample
    suffices for a value near one, so choose bins that are large enough.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, as in `ece`.
        distance: distance record d; called on p̄ and ȳ as `Categorical`s.
        weights: as in `ece`; bins without a positive one are empty.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or bins are out of range.

    Cost: that of `ece`.

    References: Naeini et al. (2015), Obtaining well calibrated probabilities using Bayesian
    binning; W19 Lemma I.1.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.estimators import top_label, UniformBins
    >>> predictions = Categorical(jnp.array([[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]]))
    >>> targets = jnp.array([0, 1])
    >>> print(mce(*top_label(predictions, targets), binning=UniformBins(2)))
    0.25
    >>> print(mce(predictions, targets, binning=UniformBins(2)))
    0.375
    """
    seen, labels, bins, used = checked_bins(predictions, targets, binning, weights)
    return jnp.max(distances_in_bins(seen, labels, bins, distance, used)[1])


def debiased_squared_ece(
    predictions: ClassPredictions,
    targets: ArrayLike,
    *,
    binning: Binning = _TEN_BINS,
    weights: ArrayLike | None = None,
) -> jax.Array:
    """Debiased estimator of the squared expected calibration error in bins.

        Σ_bins |bin| / n · 2 / (|bin| (|bin| − 1)) Σ_{i<j in bin} ⟨e_{y_i} − p_i, e_{y_j} − p_j⟩,

    the ECE with the squared Euclidean distance without the products i = j, which cause its bias.
    For every binning that depends on the predictions only, its conditional mean given the
    predictions is the same sum with E[e_Y | P_i] in place of e_{y_i}: zero for calibrated
    predictions. It can be negative. A bin with one sample contributes zero. With weights |bin| / n
    is the share of the bin in their sum, and the mean over the pairs in it has the weights w_i w_j.

    In bins of equal predictions this is the estimator of Kumar et al., who subtract the variance
    ȳ (1 − ȳ) / (|bin| − 1) of the proportions. If predictions vary within a bin, that is not
    the variance of p̄ − ȳ, and their estimator is slightly biased; this one is not.

    As everywhere, both classes of a `Bernoulli` count: the squared error of its probability alone
    is half the value.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, as in `ece`.
        weights: w ≥ 0 of the samples, [n]; None for samples that count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or bins are out of range.

    Cost: that of `ece`.

    References: Kumar, Liang and Ma (2019), Verified uncertainty calibration, §4, eq. (5).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> from calibjax.estimators import UniformBins
    >>> predictions = Bernoulli(jnp.array([0.25, 0.25, 0.75, 0.75]))
    >>> print(debiased_squared_ece(predictions, jnp.array([0, 1, 1, 1]), binning=UniformBins(2)))
    -0.125
    """
    predictions, *data = checked_bins(predictions, targets, binning, weights)
    return _debiased(predictions.class_probs, *data)


@jax.jit
def _debiased(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, weights: jax.Array | None
) -> jax.Array:
    sizes, means, proportions = _means_in_bins(probs, targets, bins, weights)
    squares = jnp.square(sizes) * jnp.sum(jnp.square(means - proportions), 1)
    residuals = probs - (targets[:, None] == jnp.arange(means.shape[1]))
    diagonal = jnp.sum(jnp.square(residuals), 1)
    if weights is None:
        diagonal = jax.ops.segment_sum(diagonal, bins, sizes.size)
        others = jnp.where(sizes > 1, sizes - 1, jnp.inf)
        return jnp.sum((squares - diagonal) / others) / sizes.size
    own = jnp.square(weights)
    own, diagonal = (jax.ops.segment_sum(x, bins, sizes.size) for x in (own, own * diagonal))
    # Where one sample has all the weight up to rounding, there are no pairs.
    is_one = jnp.square(sizes) - own <= _DIGITS * jnp.finfo(probs.dtype).eps * own
    others = jnp.where(is_one, jnp.inf, sizes - own / jnp.where(is_one, 1, sizes))
    return jnp.sum((squares - diagonal) / others) / jnp.sum(weights)


def checked_bins(
    predictions: ClassPredictions, targets: ArrayLike, binning: Binning, weights: Any = None
) -> tuple[Any, Any, jax.Array, jax.Array | None]:
    """Checks a data set of classes; returns it with the bins of its samples and their weights."""
    checks.class_predictions(predictions)
    predictions, targets, weights = checks.weighted_samples(predictions, targets, weights)
    return predictions, targets, bins_of(binning, predictions, weights=weights), weights


def distances_in_bins(
    predictions: ClassPredictions,
    targets: jax.Array,
    bins: jax.Array,
    distance: Distance = _TOTAL_VARIATION,
    weights: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Sizes of the bins and distances between the two means in them, [n] each; 0 in empty bins.

    The data are what `checked_bins` returned; sizes are sums of weights if there are any. Traced
    values out of range make all results NaN.
    """
    sizes, means, proportions = _means_in_bins(predictions.class_probs, targets, bins, weights)
    return sizes, distances_of_means(sizes, means, proportions, distance)


def distances_of_means(
    sizes: jax.Array, means: jax.Array, proportions: jax.Array, distance: Distance
) -> jax.Array:
    """Distances between the mean predictions and the label proportions of bins, 0 in empty bins."""
    distance = checks.distance_values(distance)
    is_plain = all_leaves([distance])  # a function of a user, and no pytree
    values = _distances(Partial(distance) if is_plain else distance, means, proportions)
    if checks.is_concrete(values, sizes):
        is_wrong = ~(np.asarray(values) >= 0) & (np.asarray(sizes) > 0)
        checks.refuse_where(is_wrong, "distance(p, q)", "a number >= 0 for each bin", values)
    return jnp.where(sizes > 0, values, sizes)  # NaN where the sizes are


@jax.jit
def _distances(distance: Distance, means: jax.Array, proportions: jax.Array) -> jax.Array:
    def between(p: Categorical, q: Categorical) -> jax.Array:
        value = checks.real("distance(p, q)", distance(p, q))
        checks.shape("distance(p, q)", value, (), "() (a scalar) for each bin")
        return value

    return jax.vmap(between)(Categorical(means), Categorical(proportions))


@jax.jit
def _mean_over_samples(sizes: jax.Array, values: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Mean over n samples of the values of their bins, [n] including empty bins."""
    return jnp.sum(sizes * values) / (sizes.size if weights is None else jnp.sum(weights))


@jax.jit
def _means_in_bins(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sizes [n], mean predictions [n, m] and label proportions [n, m] of the bins 0, ..., n − 1.

    Empty bins get uniform means, for which every distance and its gradient are finite. Labels and
    bins out of range, which are not refused under `jit`, make the sizes NaN.
    """
    n, m = probs.shape
    sums = sums_in_bins(probs, targets, bins, n, weights)
    sizes, counts, residuals = (x.astype(probs.dtype) for x in sums)
    means, proportions = means_of_sums(sizes, counts, residuals)
    in_range = (targets >= 0) & (targets < m) & (bins >= 0) & (bins < n)
    return jnp.where(jnp.all(in_range), sizes, jnp.nan), means, proportions


def sums_in_bins(
    probs: jax.Array,
    targets: jax.Array,
    bins: jax.Array,
    num_bins: int,
    weights: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sizes of bins [K], counts of the labels in them and sums of the residuals p − e_y, [K, m].

    With weights all three are sums of them, or of what they multiply.
    """
    n, m = probs.shape
    dtype = probs.dtype
    # The residuals nearly cancel, so that their sum has smaller rounding errors than the difference
    # of mean predictions and proportions.
    residuals = probs - (targets[:, None] == jnp.arange(m))
    counts_in = dtype if n <= 1 / jnp.finfo(dtype).eps else jnp.int32  # exact in both
    used: jax.Array = jnp.ones(n, counts_in) if weights is None else weights
    counts = jnp.zeros((num_bins, m), used.dtype).at[bins, targets].add(used, mode="drop")
    sizes = jax.ops.segment_sum(used, bins, num_bins)
    sums = segment_sums(residuals, bins, sizes, weights)
    return sizes, counts, sums


def means_of_sums(
    sizes: jax.Array, counts: jax.Array, residuals: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Mean predictions and label proportions of bins, [K, m] each; uniform ones in empty bins."""
    is_empty = (sizes == 0)[:, None]
    divisors = jnp.where(is_empty, 1, sizes[:, None])
    proportions = counts / divisors
    means = residuals / divisors + proportions
    means = jnp.where(means < 0, 0, means)  # rounding
    uniform = 1 / counts.shape[1]
    return jnp.where(is_empty, uniform, means), jnp.where(is_empty, uniform, proportions)
