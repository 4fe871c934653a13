"""Calibration errors of class predictions, estimated in bins."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.tree_util import Partial, all_leaves

from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt, segment_sums
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers
from calibjax.binnings import Binning, UniformBins, bins_of
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Bernoulli, Categorical
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import bare
from calibjax.lenses import class_wise, top_label

_TOTAL_VARIATION = TotalVariation()
_FIFTEEN_BINS = UniformBins(15)
_DIGITS = 64  # rounding errors of differences of squares
_Notion = Literal["top_label", "class_wise", "canonical"]


@checked
def ece(
    predictions: ClassPredictions,
    targets: Numbers,
    *,
    binning: Binning = _FIFTEEN_BINS,
    notion: _Notion = "top_label",
    norm: Literal["l1", "l2", "max"] = "l1",
    debiased: bool = False,
    distance: Distance = _TOTAL_VARIATION,
    weights: Numbers | None = None,
) -> jax.Array:
    """Expected calibration error (ECE) in bins of the predictions.

        "l1":  ECE = Σ_bins |bin| / n · d(p̄_bin, ȳ_bin),
        "l2":  RMSCE = √(Σ_bins |bin| / n · d(p̄_bin, ȳ_bin)²),
        "max": MCE = max_bins d(p̄_bin, ȳ_bin),

    with the mean p̄ of the predictions and the proportions ȳ of the labels in the bin. With weights
    |bin| is the sum of the weights in the bin, n their total, and p̄ and ȳ are weighted means.

    The notion of calibration determines the predictions:

    - "top_label", the default: the probability of the most probable class, and whether this class
      was observed (confidence calibration). This is the usual ECE of the literature.
    - "class_wise": each class against the rest. Sums are means over the m classes, and the maximum
      is over all classes.
    - "canonical": all probabilities jointly, as in W19. Bins are cells of the simplex: with many
      classes most cells hold one sample, and the error of a calibrated model is close to one.

    Predictions of two classes given as a `Bernoulli` have one probability, P(Y = 1), and all three
    notions are the error of this probability (the convention of netcal and torchmetrics). With the
    default distance, d(p̄, ȳ) is |p̄ − ȳ| unless more than two classes are binned jointly.

    The error is biased upwards: for calibrated models the proportions scatter around the mean
    predictions, the more so the fewer samples there are in a bin. `debiased=True` leaves out the
    products of residuals with themselves, which cause the bias of the squared "l2" error. **It
    returns an estimate of the square**, without a root, because the estimate can be negative:

        Σ_bins |bin| / n · s / (|bin| (|bin| − 1)) Σ_{i≠j in bin} ⟨e_{y_i} − p_i, e_{y_j} − p_j⟩,

    with s = 1/2 for the default distance and s = 1 for `Euclidean()`, which several classes need.
    For every binning that depends on the predictions only, its conditional mean given the
    predictions is the same sum with E[e_Y | P_i] instead of e_{y_i}: zero for calibrated models. A
    bin with one sample contributes zero. In bins of equal predictions this is the estimator of
    Kumar et al., who subtract the variance ȳ (1 − ȳ) / (|bin| − 1) of the proportions. If
    predictions vary within a bin, their estimator is slightly biased; this one is not. With weights
    the mean over the pairs in a bin has the weights w_i w_j.

    Bins are piecewise constant in the predictions, so gradients treat them as fixed.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, integers in
            0, ..., n − 1, [n]: `UniformBins(15)`, the default, has 15 bins of equal width;
            `EqualMassBins(10)`, `MedianVarianceBins(100)`, or your own. It is called with
            `Bernoulli`s unless the notion is "canonical". Then bins that are already known can be
            read from an integer leaf of a subclass of `Categorical`. Binnings of the library that
            depend on the data take the weights into account; your own sees the predictions only.
        notion: "top_label", "class_wise" or "canonical".
        norm: "l1", "l2" or "max".
        debiased: whether to estimate the square of the "l2" error without bias.
        distance: distance record d; called on p̄ and ȳ as `Categorical`s.
        weights: w ≥ 0 of the samples, [n]; integers are numbers of copies. None for samples that
            count equally.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, bins are out of range, or there is no debiased
            estimate for the norm or the distance.

    Cost: the binning, and O(n m) time and memory. Data sets under `vmap` are fastest in batches
    that fit in the cache (`lax.map` with a `batch_size` of about 3 · 10⁵ / (n m)).

    References: Guo et al. (2017), On calibration of modern neural networks, for the top label;
    Kull et al. (2019), Beyond temperature scaling, for classes; W19 §4.3, eq. (5), and App. J.1.1
    for all probabilities; Kumar, Liang and Ma (2019), Verified uncertainty calibration, §4, eq. (5)
    for "l2" and its debiased estimator.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.estimators import UniformBins
    >>> predictions = Categorical(jnp.array([[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]]))
    >>> targets = jnp.array([0, 1])
    >>> print(ece(predictions, targets, binning=UniformBins(2)))
    0.25
    >>> print(ece(predictions, targets, binning=UniformBins(2), notion="canonical"))
    0.375
    """
    if debiased and norm != "l2":
        raise ValueError(f'debiased: expected norm="l2", the error that has one, got {norm!r}')

    def error(predictions: Any, targets: jax.Array) -> jax.Array:
        bins = bins_of(binning, predictions, weights=weights)
        data = predictions.class_probs, targets, bins, weights
        if debiased:
            return _debiased(*data) * _scale(distance, predictions)
        sizes, means, proportions = _means_in_bins(*data)
        values = distances_of_means(sizes, means, proportions, distance)
        if norm == "max":
            return jnp.max(values)
        number = sizes.size if weights is None else jnp.sum(weights)
        return jnp.sum(sizes * (values if norm == "l1" else jnp.square(values))) / number

    if notion == "canonical" or isinstance(bare(predictions), Bernoulli):
        value = error(predictions, targets)
    elif notion == "top_label":
        value = error(*inner(top_label)(predictions, targets))
    else:
        of_classes = jax.vmap(error)(*inner(class_wise)(predictions, targets))
        value = jnp.max(of_classes) if norm == "max" else jnp.mean(of_classes)
    return safe_sqrt(value) if norm == "l2" and not debiased else value


@checked
def mce(
    predictions: ClassPredictions,
    targets: Numbers,
    *,
    binning: Binning = _FIFTEEN_BINS,
    notion: _Notion = "top_label",
    distance: Distance = _TOTAL_VARIATION,
    weights: Numbers | None = None,
) -> jax.Array:
    """Maximum calibration error (MCE), `ece` with `norm="max"`.

    The largest distance between means and proportions, over the non-empty bins. A bin with a single
    sample suffices for a value near one, so choose bins that are large enough.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, as in `ece`.
        notion: "top_label", "class_wise" or "canonical", as in `ece`.
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
    >>> from calibjax.estimators import UniformBins
    >>> predictions = Categorical(jnp.array([[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]]))
    >>> print(mce(predictions, jnp.array([0, 1]), binning=UniformBins(2)))
    0.25
    """
    options = {"binning": binning, "distance": distance, "weights": weights}
    return inner(ece)(predictions, targets, notion=notion, norm="max", **options)


def _scale(distance: Distance, predictions: ClassPredictions) -> float:
    """The square of a distance, in units of the squared Euclidean one."""
    if isinstance(distance, Euclidean):
        return 1.0
    if isinstance(distance, TotalVariation) and predictions.class_probs.shape[1] == 2:
        return 0.5
    got = checks.described(distance)
    raise ValueError(f"debiased: expected distance=Euclidean() for several classes, got {got}")


@jax.jit
def _debiased(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, weights: jax.Array | None
) -> jax.Array:
    sizes, means, proportions = _means_in_bins(probs, targets, bins, weights)
    squares = jnp.square(sizes) * jnp.sum(jnp.square(means - proportions), 1)
    residuals = probs - (targets[:, None] == jnp.arange(means.shape[1]))
    diagonal = jnp.sum(jnp.square(residuals), 1)
    number, squared = sizes.size, sizes  # of weights that are one
    if weights is not None:
        number, diagonal = jnp.sum(weights), jnp.square(weights) * diagonal
        squared = jax.ops.segment_sum(jnp.square(weights), bins, sizes.size)
    diagonal = jax.ops.segment_sum(diagonal, bins, sizes.size)
    # Where one sample has all the weight up to rounding, there are no pairs.
    is_one = jnp.square(sizes) - squared <= _DIGITS * jnp.finfo(probs.dtype).eps * squared
    others = jnp.where(is_one, jnp.inf, sizes - squared / jnp.where(is_one, 1, sizes))
    return jnp.sum((squares - diagonal) / others) / number


def distances_of_means(
    sizes: jax.Array, means: jax.Array, proportions: jax.Array, distance: Distance
) -> jax.Array:
    """Distances between the mean predictions and the label proportions of bins, 0 in empty bins."""
    is_plain = all_leaves([distance])  # a function of a user, and no pytree
    values = _distances(Partial(distance) if is_plain else distance, means, proportions)
    return jnp.where(sizes > 0, values, sizes)  # NaN where the sizes are


@jax.jit
def _distances(distance: Distance, means: jax.Array, proportions: jax.Array) -> jax.Array:
    values = jax.vmap(distance)(Categorical(means), Categorical(proportions))
    checks.shape("distance(p, q)", values, means.shape[:1], "() (a scalar) for each bin")
    values = checks.real("distance(p, q)", values)
    return jnp.where(values >= 0, values, jnp.nan)


@jax.jit
def _means_in_bins(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sizes [n], mean predictions [n, m] and label proportions [n, m] of the bins 0, ..., n − 1.

    Empty bins get uniform means, for which every distance and its gradient are finite. Bins out of
    range, which are not refused under `jit`, make the sizes NaN.
    """
    n = len(probs)
    sums = sums_in_bins(probs, targets, bins, n, weights)
    sizes, counts, residuals = (x.astype(probs.dtype) for x in sums)
    means, proportions = means_of_sums(sizes, counts, residuals)
    in_range = jnp.all((bins >= 0) & (bins < n))
    return jnp.where(in_range, sizes, jnp.nan), means, proportions


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
    each: jax.Array = jnp.ones(n, counts_in) if weights is None else weights
    counts = jnp.zeros((num_bins, m), each.dtype).at[bins, targets].add(each, mode="drop")
    sizes = jax.ops.segment_sum(each, bins, num_bins)
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
