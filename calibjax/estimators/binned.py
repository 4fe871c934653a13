"""Calibration errors of class predictions, in bins and from kernel density ratios on the simplex.

The Dirichlet kernel of bandwidth h around a sample p is the density

    k(q; p) = Γ(1/h + m) / Π_c Γ(p_c/h + 1) · Π_c q_c^(p_c/h)

of Dirichlet(p/h + 1), whose mode is p. Its factors overflow, and the terms of its logarithm, of
size log(1/h)/h, nearly cancel. It is therefore computed from the remainder of Stirling's formula,
r(x) = log Γ(x + 1) − x log x + x, of size log x,

    log k(q; p) = −KL(p ‖ q) / h − Σ_c r(p_c/h) + r(1/h) + Σ_{0<k<m} log(1/h + k).
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial, all_leaves

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import matmul, one_hot, safe_sqrt, segment_sums
from calibjax._core.gate import checked, inner
from calibjax._core.pytree import Numbers
from calibjax._core.special import SERIES_FROM, stirling_series
from calibjax.binnings import Binning, UniformBins, bins_of
from calibjax.distances import Distance, Euclidean, TotalVariation
from calibjax.distributions import Bernoulli, Categorical
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.composed import bare
from calibjax.reductions import class_wise, top_label

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

    The notion of calibration determines the predictions that are binned:

    - "top_label", the default: the probability of the most probable class, and whether this class
      was observed (confidence calibration). This is the usual ECE of the literature.
    - "class_wise": each class against the rest. "l1" and "l2" average over the m classes, "max" is
      over all classes.
    - "canonical": all probabilities jointly, as in W19. Bins are cells of the simplex: with many
      classes most cells hold one sample, and the error of a calibrated model is close to one.

    For `Bernoulli` predictions of two classes, all three notions are the error of P(Y = 1), as in
    netcal and torchmetrics. With the default distance, d(p̄, ȳ) is |p̄ − ȳ| unless more than two
    classes are binned jointly.

    The error is biased upwards: even for calibrated models the proportions scatter around the mean
    predictions, especially in bins with few samples. `debiased=True` leaves out the products of
    residuals with themselves, which cause the bias of the squared "l2" error. **It returns an
    estimate of the square**, without a root, because the estimate can be negative:

        Σ_bins |bin| / n · s / (|bin| (|bin| − 1)) Σ_{i≠j in bin} ⟨e_{y_i} − p_i, e_{y_j} − p_j⟩,

    with s = 1/2 for the default distance and s = 1 for `Euclidean()`, which several classes need.
    If the binning depends on the predictions only, its conditional mean given the predictions is
    the sum with E[e_Y | P_i] instead of e_{y_i}: zero for calibrated models. A bin with one sample
    contributes zero. In bins of equal predictions this is the estimator of Kumar et al., who
    subtract the variance ȳ (1 − ȳ) / (|bin| − 1) of the proportions. If predictions vary within a
    bin, their estimator is slightly biased, and this one is unbiased. With weights, pairs have the
    weights w_i w_j.

    Bins are piecewise constant in the predictions, so gradients treat them as fixed.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, integers in 0, ..., n −
            1, [n]: `UniformBins(15)`, the default, has 15 bins of equal width; `EqualMassBins(10)`,
            `MedianVarianceBins(100)`, or your own. It is called with `Bernoulli`s unless the notion
            is "canonical", for which known bins may be an integer leaf of a subclass of
            `Categorical`. Data-dependent binnings of the library use the weights; your own gets the
            predictions only.
        notion: "top_label", "class_wise" or "canonical".
        norm: "l1", "l2" or "max".
        debiased: whether to estimate the square of the "l2" error without bias.
        distance: distance record d on p̄ and ȳ as `Categorical`s.
        weights: w ≥ 0 of the samples, [n]; integers are numbers of copies. None for equal weights.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, bins are out of range, or the norm or the
            distance has no debiased estimate.

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
        raise ValueError(f'debiased: expected norm="l2", got {norm!r}')
    # A function becomes a pytree, an argument of compiled functions.
    own: Any = Partial(distance) if all_leaves([distance]) else distance

    def error(predictions: Any, targets: jax.Array) -> jax.Array:
        bins = bins_of(binning, predictions, weights=weights)
        return _error((predictions.class_probs, targets, bins, weights), own, norm, debiased)

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

    It is the largest distance between means and proportions over the non-empty bins. A bin with a
    single sample may give a value near one, so choose large bins.

    Args:
        predictions: batch of n class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        binning: function of the predictions that returns the bin of each, as in `ece`.
        notion: "top_label", "class_wise" or "canonical", as in `ece`.
        distance: distance record d on p̄ and ȳ as `Categorical`s.
        weights: as in `ece`; bins without a positive weight are empty.

    Returns:
        A scalar.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or bins are out of range.

    Cost: `ece`.

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


@functools.partial(jax.jit, static_argnums=(2, 3))
def _error(data: Any, distance: Distance, norm: str, debiased: bool) -> jax.Array:
    """Error of probabilities [n, m], targets, bins and weights; the square of "l2"."""
    if debiased:
        return _debiased(*data) * _scale(distance, data[0].shape[1])
    sizes, means, proportions = _means_in_bins(*data)
    values = distances_of_means(sizes, means, proportions, distance)
    if norm == "max":
        return jnp.max(values)
    number = sizes.size if data[3] is None else jnp.sum(data[3])
    return jnp.sum(sizes * (values if norm == "l1" else jnp.square(values))) / number


def _scale(distance: Distance, num_classes: int) -> float:
    """Square of a distance, in units of the squared Euclidean distance."""
    if isinstance(distance, Euclidean):
        return 1.0
    if isinstance(distance, TotalVariation) and num_classes == 2:
        return 0.5
    got = checks.described(distance)
    raise ValueError(f"debiased: expected distance=Euclidean() for several classes, got {got}")


def _debiased(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, weights: jax.Array | None
) -> jax.Array:
    sizes, means, proportions = _means_in_bins(probs, targets, bins, weights)
    squares = jnp.square(sizes) * jnp.sum(jnp.square(means - proportions), 1)
    residuals = probs - (targets[:, None] == jnp.arange(means.shape[1]))
    diagonal = jnp.sum(jnp.square(residuals), 1)
    number, squared = sizes.size, sizes  # for weights of one
    if weights is not None:
        number, diagonal = jnp.sum(weights), jnp.square(weights) * diagonal
        squared = jax.ops.segment_sum(jnp.square(weights), bins, sizes.size)
    diagonal = jax.ops.segment_sum(diagonal, bins, sizes.size)
    # There are no pairs if one sample has all the weight up to rounding.
    is_one = jnp.square(sizes) - squared <= _DIGITS * jnp.finfo(probs.dtype).eps * squared
    others = jnp.where(is_one, jnp.inf, sizes - squared / jnp.where(is_one, 1, sizes))
    return jnp.sum((squares - diagonal) / others) / number


def distances_of_means(
    sizes: jax.Array, means: jax.Array, proportions: jax.Array, distance: Distance
) -> jax.Array:
    """Distances between the mean predictions and the label proportions of bins, 0 in empty bins."""
    values = jax.vmap(distance)(Categorical(means), Categorical(proportions))
    checks.shape("distance(p, q)", values, sizes.shape, "() (a scalar) for each bin")
    values = checks.real("distance(p, q)", values)
    # Propagates NaN of the sizes.
    return jnp.where(sizes > 0, jnp.where(values >= 0, values, jnp.nan), sizes)


def _means_in_bins(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sizes [n], mean predictions [n, m] and label proportions [n, m] of the bins 0, ..., n − 1.

    Empty bins get uniform means, for which distances and gradients are finite. Under `jit`, bins
    out of range make the sizes NaN.
    """
    n = probs.shape[0]
    sums = sums_in_bins(probs, targets, bins, n, weights)
    sizes, counts, residuals = (x.astype(probs.dtype) for x in sums)
    means, proportions = means_of_sums(sizes, counts, residuals)
    in_range = jnp.all((bins >= 0) & (bins < n))
    return jnp.where(in_range, sizes, jnp.nan), means, proportions


def sums_in_bins(
    probs: jax.Array, targets: jax.Array, bins: jax.Array, num_bins: int, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sizes of bins [K], counts of the labels in them and sums of the residuals p − e_y, [K, m].

    With weights all three are weighted sums.
    """
    (n, m), dtype = probs.shape, probs.dtype
    # Residuals nearly cancel: their sum has smaller rounding errors than the difference of mean
    # predictions and proportions.
    residuals = probs - (targets[:, None] == jnp.arange(m))
    is_exact = checks.is_below(n, int(1 / jnp.finfo(dtype).eps))
    counts_in = dtype if is_exact else jnp.int32  # also exact
    each: jax.Array = jnp.ones(n, counts_in) if weights is None else weights
    counts = jnp.zeros((num_bins, m), each.dtype).at[bins, targets].add(each, mode="drop")
    sizes = jax.ops.segment_sum(each, bins, num_bins)
    return sizes, counts, segment_sums(residuals, bins, sizes, weights)


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


# G24 App. B
BANDWIDTHS = np.concatenate([np.logspace(-5, -1, 15), np.linspace(0.2, 1, 5)])


class DirichletKernels(NamedTuple):
    """Kernels around n samples, [n, m].

    Attributes:
        probs: samples p, [n, m].
        entropies: Σ_c p_c log p_c, [n].
        remainders: Σ_c r(p_c/h), [n].
        concentration: 1/h, scalar.
    """

    probs: jax.Array
    entropies: jax.Array
    remainders: jax.Array
    concentration: jax.Array


class Point(NamedTuple):
    """Point of evaluation, and the index of a sample to leave out.

    The index is −1 if the point is not a sample.
    """

    probs: jax.Array
    excluded: jax.Array


def _positive(name: str, value: Any, _: object) -> Any:
    return checks.positive_scalar(name, value)


@checked(minimum=2, compiled=True, bandwidth=_positive, order=_positive)
def kde_calibration_error(
    predictions: ClassPredictions,
    targets: Numbers,
    *,
    bandwidth: jax.Array | float,
    order: jax.Array | float,
    weights: Numbers | None = None,
) -> jax.Array:
    """Canonical L_p calibration error to the power p, from a kernel density ratio.

        CE_p^p = 1/n Σ_j Σ_c | Σ_{i≠j} k(f_j; f_i) 1[y_i = c] / Σ_{i≠j} k(f_j; f_i) − f_jc |^p

    with the Dirichlet kernel k(·; f_i), the density of Dirichlet(f_i/bandwidth + 1). With weights
    k(f_j; f_i) is multiplied by w_i, and the outer mean is weighted. No root is taken. The estimate
    is biased by the noise of the ratios (upwards, for small bandwidths) and by the smoothing (for
    large bandwidths).

    If a prediction f_j has zeros and no kernel is positive at it, the ratio is replaced by its
    limit as these zeros jointly go to 0: only samples with the smallest Σ_{c: f_jc = 0} f_ic
    contribute. Otherwise the formula holds with 0⁰ = 1. Zeros are constants for gradients.

    With two classes the kernels are beta densities, and the two terms in c are equal: the error
    E|conf − acc|^p of the top label is half the value for `top_label(predictions, targets)`. For
    class-wise errors, `vmap` over `class_wise`.

    Args:
        predictions: batch of n ≥ 2 class predictions, `Categorical` or `Bernoulli`.
        targets: labels 0, ..., m − 1, [n].
        bandwidth: h > 0, scalar; kernels have variances p_c (1 − p_c) h for small h.
        order: p > 0, usually 1 or 2, scalar.
        weights: w ≥ 0 of the samples, [n]; None for equal weights. Derivatives by weights of 0 are
            0.

    Returns:
        A scalar between 0 and 2.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or fewer than two samples count.

    Cost: O(n² m) time in matrix products and n² exponentials, O(n · tile + n m) memory, also for
    the gradient. In float32 the logarithm of a kernel has errors of about 1e-7 / h; results for
    1000 samples were within 1e-5 of float64 for h ≥ 1e-4.

    References: Popordanoska, Sayer and Blaschko (2022), A Consistent and Differentiable Lp
    Canonical Calibration Error Estimator; G24 eq. (11) is the root for p = 2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Bernoulli
    >>> predictions = Bernoulli(jnp.array([0.5, 0.5, 0.5]))
    >>> targets = jnp.array([1, 1, 0])  # mean label of the others: 1/2, 1/2, 1
    >>> print(f"{kde_calibration_error(predictions, targets, bandwidth=0.1, order=2):.4f}")
    0.1667
    """
    probs = predictions.class_probs
    kernels, points = dirichlet_kernels(probs, bandwidth), Point(probs, jnp.arange(len(probs)))
    proportions = label_proportions(kernels, targets, points, weights)
    errors = jnp.abs(proportions - probs) ** jnp.asarray(order, probs.dtype)
    return jnp.average(jnp.sum(errors, 1), weights=weights)


def dirichlet_kernels(probs: jax.Array, bandwidth: jax.Array | float) -> DirichletKernels:
    """Prepare the kernels around samples [n, m]; zeros are constants for gradients."""
    concentration = 1 / jnp.asarray(bandwidth, probs.dtype)
    is_zero = _is_zero(probs)
    probs = jnp.where(is_zero, 0, probs)
    entropies = jnp.sum(probs * jnp.log(jnp.where(is_zero, 1, probs)), -1)
    remainders = jnp.sum(_stirling_remainder(probs * concentration), -1)
    return DirichletKernels(probs, entropies, remainders, concentration)


def label_proportions(
    kernels: DirichletKernels, targets: jax.Array, points: Point, weights: jax.Array | None = None
) -> jax.Array:
    """Kernel estimates of the label probabilities given the prediction, at k points, [k, m].

        Σ_i k(q_j; p_i) 1[y_i = c] / Σ_i k(q_j; p_i),  i ≠ excluded_j.

    Args:
        kernels: kernels around the n samples.
        targets: labels of the samples, [n].
        points: the k points.
        weights: factors of the kernels, [n], or None.

        Under `jit`, labels out of range make all estimates NaN.
    """
    labels = one_hot(targets, kernels.probs.shape[1], kernels.probs.dtype)
    labels = labels if weights is None else weights[:, None] * labels
    return operators.map_rows(_proportions, (kernels, labels, weights), points)


def _proportions(
    args: tuple[DirichletKernels, jax.Array, jax.Array | None], point: Point
) -> jax.Array:
    """Weighted mean of the one-hot labels at one point, [m]."""
    kernels, labels, weights = args
    log_weights = _log_weights(kernels, point, weights)
    weights = jnp.exp(log_weights - lax.stop_gradient(jnp.max(log_weights)))
    sums = matmul(weights, labels)
    return sums / jnp.sum(sums)  # 1 up to one rounding if all labels are equal


def _log_weights(kernels: DirichletKernels, point: Point, weights: jax.Array | None) -> jax.Array:
    """Logarithm of k(q; p_i) of the samples that contribute at a point q, else −∞, [n].

    Terms common to all samples are left out: the normaliser and, if zeros of q are limits of ε → 0,
    the smallest exponent of ε.
    """
    is_zero = _is_zero(point.probs)
    # Derivatives with respect to q are multiples of 1/(h q), which overflow for the tiniest q.
    has_gradient = point.probs > 8 * jnp.finfo(point.probs.dtype).tiny * (1 + kernels.concentration)
    q = jnp.where(has_gradient, point.probs, lax.stop_gradient(point.probs))
    divergences = kernels.entropies - matmul(kernels.probs, jnp.log(jnp.where(is_zero, 1, q)))
    exponents = lax.stop_gradient(matmul(kernels.probs, is_zero.astype(divergences.dtype)))
    others = jnp.arange(exponents.size) != point.excluded
    others = others if weights is None else others & (weights != 0)
    rounding = 2 * point.probs.size * jnp.finfo(exponents.dtype).eps
    smallest = jnp.min(jnp.where(others, exponents, jnp.inf))
    counts = others & (exponents <= smallest * (1 + rounding))
    log_weights = -divergences * kernels.concentration - kernels.remainders
    return jnp.where(counts, log_weights, -jnp.inf)


def _stirling_remainder(x: jax.Array) -> jax.Array:
    """Remainder log Γ(x + 1) − x log x + x, x ≥ 0: 0 at 0, and ½ log(2πx) + O(1/x) for large x."""
    is_zero, is_small = _is_zero(x), x < SERIES_FROM
    small = jnp.where(is_small & ~is_zero, x, 1)
    large = jnp.where(is_small, SERIES_FROM, x)
    direct = lax.lgamma(small + 1) - small * jnp.log(small) + small
    series = 0.5 * jnp.log(2 * np.pi * large) + stirling_series(large)
    return jnp.where(is_zero, 0, jnp.where(is_small, direct, series))


def _is_zero(x: jax.Array) -> jax.Array:
    """Mask of non-negative numbers that are 0, or so small that some devices flush them to 0."""
    return x < jnp.finfo(x.dtype).tiny
