"""Calibration estimation functions of bins, kernel densities, recalibrations and kernel ridges."""

import dataclasses
import functools
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import matmul, one_hot
from calibjax._core.gate import Seen, checked, usual
from calibjax._core.pytree import Numbers, Pair, PyTree, parameter, part, record
from calibjax.binnings import interval_index
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits, constraints
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare, like
from calibjax.estimators import binned
from calibjax.kernels import Kernel, SquaredExponential, nystrom
from calibjax.kernels.base import without_draws
from calibjax.kernels.nystrom import PivotedCholesky, factor_at_pivots
from calibjax.recalibration.confidences import number_of_bins
from calibjax.risk.estimation import EstimationFunction, meanings, residuals, vectors


@record
class BinResiduals:
    """Params of `Binning`.

    Attributes:
        means: mean of p_i − e_{y_i} in each interval, 0 in empty ones, [b, m], or of c_i − y_i,
            [b, 1]; b is `max_bins`.
        counts: number of training samples in each interval, [b].
        num_bins: number of intervals, scalar.
        biases: estimated biases of the squares of these means, [b], or the squares themselves for
            intervals with one sample, for `debias`.
    """

    means: jax.Array = parameter(constraints.interval(-1, 1).with_axes("b", "m"))
    counts: jax.Array = parameter(constraints.nonnegative_integer.with_axes("b"))
    num_bins: jax.Array = parameter(constraints.nonnegative_integer)
    biases: jax.Array = parameter(constraints.real.with_axes("b"))


def _whole(name: str, value: Any, seen: Any) -> Any:
    """Numbers of bins."""
    limit = seen["self"].max_bins
    expected = f"whole numbers between 1 and {limit} (max_bins)"
    is_right = lambda x: (x >= 1) & (x <= limit) & (x == x.round())  # noqa: E731
    return checks.satisfying(name, checks.real(name, value), is_right, expected)


@record
class Binning(EstimationFunction):
    """Calibration estimation function of binned estimators, also with debiased squares.

        h(p, q) = (conf(B_k) − acc(B_k)) (conf(B_l) − acc(B_l)),  p in interval k, q in interval l,

    with the mean confidence and the accuracy of the training samples in each of the M intervals of
    `estimators.UniformBins`. The hyperparameter is M, an integer. h is 0 in intervals without
    training samples.

    The mean of h(p_i, p_i) over the training samples is the squared calibration error `ece(...,
    binning=UniformBins(M), distance=SquaredEuclidean())`. As there, binary predictions include both
    classes: h is twice the value for confidences given as an array [n], and the intervals are those
    of the probability of class 1. For more classes use the reduction `estimators.top_label`,
    or `estimators.class_wise` and `vmap`.

    The squares, k = l, are biased upwards. `debias` subtracts their estimated biases:

        h(p, q) = ⟨r̄_k, r̄_l⟩ − 1[k = l] s_k² / |B_k|,

    with the mean r̄_k and the variance s_k² = Σ_i ‖r_i − r̄_k‖² / (|B_k| − 1) of the residuals r_i
    = p_i − e_{y_i} of the training samples in interval k. h(p, p) can be negative. It is 0 in
    intervals with at most one training sample. For confidences given as an array [n], the mean of
    h(p_i, p_i) over the training samples is `ece(..., binning=UniformBins(M), norm="l2",
    debiased=True)`; for binary predictions it is twice this value. If predictions vary within an
    interval, the estimator of Kumar et al. differs slightly: they subtract the variance of the
    proportion of the labels instead of the residuals.

    Attributes:
        max_bins: largest M, between 1 and 2²⁴, the size of arrays, as M may be traced.
        debias: whether to subtract the biases of squares.

    Raises:
        TypeError: by the methods if `max_bins` is not an integer, or an argument is of the wrong
            kind.
        ValueError: by the methods if `max_bins` is out of range, `debias` is not a truth value, M
            is not an integer between 1 and `max_bins`, there are more than two classes, or shapes
            or values are wrong. Invalid traced values give NaN.

    Cost: O(n + b) to fit with b = `max_bins`, O(n) for the diagonal. With `debias`, O(n b) memory
    for the factors.

    References: G24 eq. (23) and (24), and §4.1; Kumar, Liang and Ma (2019), Verified uncertainty
    calibration, §4, eq. (5).

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.6, 0.7, 0.2, 0.2]), jnp.array([1, 1, 0, 0])
    >>> for function in Binning(), Binning(debias=True):  # mean residuals -0.35 and 0.2
    ...     params = function.fit(confidences, correct, 2)
    ...     print([f"{value:.4f}" for value in function.diagonal(params, confidences[1:3])])
    ['0.1225', '0.0400']
    ['0.1200', '0.0400']
    """

    max_bins: int = dataclasses.field(
        default=100, metadata={"static": True, "check": number_of_bins}
    )
    _: dataclasses.KW_ONLY
    debias: bool = dataclasses.field(default=False, metadata={"static": True})

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        return np.arange(5, 101, 5)

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """The same function, if it has as many bins as the grid."""
        _whole("grid", grid, {"self": self})
        return self

    @checked(**meanings("predictions"), hyperparameter=_whole)
    def fit(
        self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers
    ) -> BinResiduals:
        """Mean residuals in the intervals, and the biases of their squares."""
        if (number := vectors(predictions).shape[1]) > 2:
            got = f"{number}; use the reduction estimators.top_label or class_wise"
            raise ValueError(f"predictions: expected confidences or two classes, got {got}")
        checks.shape("hyperparameter", hyperparameter, (), "() (a scalar)")
        return _mean_residuals(predictions, targets, hyperparameter, self.max_bins)

    def factors(self, params: BinResiduals, p: Distribution) -> Pair:
        """Mean residuals of the intervals of the predictions, [n, m], twice.

        With `debias` also the indicator of the interval with and without the bias, [n, m + b].
        """
        points = _vectors_as_in_fit(p, params.means)
        index = interval_index(points[:, -1], params.num_bins)
        means = jnp.where(jnp.isnan(points), jnp.nan, params.means.astype(points.dtype)[index])
        if not self.debias:
            return means, means
        is_in = one_hot(index, params.biases.size, means.dtype)
        left = -params.biases.astype(means.dtype) * is_in
        return jnp.concatenate([means, left], 1), jnp.concatenate([means, is_in], 1)


def _vectors_as_in_fit(p: Distribution, fitted: jax.Array) -> jax.Array:
    """Predictions as vectors, with as many classes as those of `fit`."""
    points, number = vectors(p), fitted.shape[1]
    checks.shape("p", points, (None, number), f"predictions of {number} classes, as in fit")
    return points


@functools.partial(jax.jit, static_argnames="max_bins")
def _mean_residuals(
    predictions: Distribution, targets: jax.Array, num_bins: jax.Array, max_bins: int
) -> BinResiduals:
    errors = residuals(predictions, targets)
    is_valid = ~jnp.any(jnp.isnan(errors)) & ~jnp.isnan(num_bins)
    num_bins = jnp.where(jnp.isnan(num_bins), 1, num_bins).astype(jnp.int32)
    # Traced numbers outside [0, 1] are in no bin.
    errors = jnp.where(is_valid, errors, jnp.nan)
    index = interval_index(vectors(predictions)[:, -1], num_bins)
    counts = jax.ops.segment_sum(jnp.ones_like(index), index, max_bins)
    sums = jax.ops.segment_sum(errors, index, max_bins)
    # Empty sums are 0, not NaN.
    means = sums / jnp.maximum(counts, 1)[:, None].astype(sums.dtype)
    means = jnp.where(is_valid, means, jnp.nan)
    squares = jnp.sum(jnp.square(errors - means[index]), 1)
    sums, number = jax.ops.segment_sum(squares, index, max_bins), counts.astype(errors.dtype)
    variances = sums / jnp.maximum(number * (number - 1), 1)
    biases = jnp.where(counts > 1, variances, jnp.sum(jnp.square(means), 1))
    return BinResiduals(means, counts, num_bins, biases)


@record
class KernelDensities:
    """Params of `KernelDensity`: the training data.

    Attributes:
        vectors: training predictions, [n, m], or confidences, [n, 1].
        labels: training labels, [n].
        bandwidth: h, scalar.
    """

    vectors: jax.Array = parameter(constraints.unit_interval.with_axes("n", "m"))
    labels: jax.Array = parameter(constraints.nonnegative_integer.with_axes("n"))
    bandwidth: jax.Array = parameter(constraints.positive)


@record
class KernelDensity(EstimationFunction):
    """Calibration estimation function of kernel density ratios.

        h(p, q) = ⟨p − π(p), q − π(q)⟩,   π(p) = Σ_i k(p; p_i) e_{y_i} / Σ_i k(p; p_i)

    with the Dirichlet kernels of `estimators.binned.kde_calibration_error` around the training
    samples. The hyperparameter is their bandwidth. For confidences, an array [n], h is the single
    product (c − π(c)) (d − π(d)) with beta density kernels, half the value for `Bernoulli`s.

    Kernels are computed as logarithms, and π is a limit where all kernels are zero. So h is finite
    everywhere, whereas G24 had to drop predictions.

    `fit` only stores the training data; `refit` replaces the bandwidth.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if the bandwidth is not positive, or shapes or values are
            wrong. Invalid traced values give NaN.

    Cost: O(n n' m) time in matrix products and n n' exponentials for n' points, O(n' · tile + n m)
    memory. For rounding errors in float32 see `kde_calibration_error`.

    References: G24 eq. (25) and (26), without leaving a sample out; Popordanoska, Sayer and
    Blaschko (2022), A Consistent and Differentiable Lp Canonical Calibration Error Estimator.

    >>> import jax.numpy as jnp
    >>> function = KernelDensity()
    >>> params = function.fit(jnp.array([0.5, 0.5, 0.5]), jnp.array([1, 1, 0]), 0.1)
    >>> print(function.diagonal(params, jnp.array([0.5, 1.0])).round(4))  # π is 2/3
    [0.0278 0.1111]
    """

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        return np.array(binned.BANDWIDTHS)

    @checked(**meanings("predictions", "hyperparameter"))
    def fit(
        self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers
    ) -> KernelDensities:
        """The training data."""
        # Invalid traced targets of confidences are NaN, not integers.
        labels = jnp.where(jnp.isnan(targets), -1, targets).astype(jnp.int32)
        return KernelDensities(vectors(predictions), labels, hyperparameter)

    @checked(**meanings("hyperparameter"))
    def refit(self, params: KernelDensities, hyperparameter: Numbers) -> KernelDensities:
        """The training data with another bandwidth."""
        return dataclasses.replace(params, bandwidth=hyperparameter)

    def factors(self, params: KernelDensities, p: Distribution) -> Pair:
        """Residuals p − π(p) of predictions, [n, m], twice."""
        errors = _residuals(params, _vectors_as_in_fit(p, params.vectors))
        return errors, errors


@jax.jit
def _residuals(params: KernelDensities, points: jax.Array) -> jax.Array:
    """Points − π(points), [n, m] or [n, 1]."""
    kernels = binned.dirichlet_kernels(_class_probs(params.vectors), params.bandwidth)
    chosen = binned.Point(_class_probs(points), jnp.full(len(points), -1))  # no sample left out
    proportions = binned.label_proportions(kernels, params.labels, chosen)
    errors = points - proportions[:, -points.shape[1] :]
    return jnp.where(jnp.isnan(points), jnp.nan, errors)


def _class_probs(samples: jax.Array) -> jax.Array:
    """Class probabilities, with two entries for confidences."""
    return samples if samples.shape[1] > 1 else jnp.concatenate([1 - samples, samples], 1)


def _recalibration(value: Any, name: str) -> Any:
    return usual("recalibration")(name, value, Seen({}))


@record
class Recalibrated(EstimationFunction):
    """Calibration estimation function of a recalibration.

        h(p, q) = ⟨p − c(p), q − c(q)⟩

    for the map c fitted to the training data, as if its results were calibrated. For many classes
    parametric maps approximate h* better than `Binning`, `KernelDensity` and `KernelRidge` if c can
    represent the error: compare the risks of `cross_validate`, with the same key. The mean of h(p,
    p) is the squared calibration error that c corrects, plus the noise of the fit.

    The hyperparameter has no effect; use a grid of one number.
    The params are those of the recalibration. `evaluate` also takes params without a fit: G24's
    simulation uses `TemperatureScaling` at T = 0.3 / θ for θ > 0. For confidences, an array [n], h
    is the single product (c − c') (d − d'), half the value for `Bernoulli`s.

    Attributes:
        recalibration: record with `fit(predictions, targets)` and `apply(params, predictions)`,
            which returns class predictions, or confidences for confidences.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong, or if the fit fails. Under `jit`
            h is NaN instead.

    Cost: the recalibration, and O(n m).

    References: G24 §5.1 for temperatures.

    >>> import jax.numpy as jnp
    >>> from calibjax.recalibration import TemperatureScaling
    >>> function = Recalibrated(TemperatureScaling())
    >>> print(function.diagonal(0.5, jnp.array([0.5, 0.75])).round(4))  # 0.75 becomes 0.9
    [0.     0.0225]
    """

    recalibration: Any = part(_recalibration)

    @checked(**meanings("predictions", "hyperparameter"))
    def fit(self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers) -> PyTree:
        """Fit the recalibration."""
        if not checks.is_distribution(predictions):  # traced targets may be NaN
            predictions = checks.nan_rows(checks.missing_rows(targets), predictions)
            targets = jnp.asarray(targets).astype(int)
        return self.recalibration.fit(_distributions(predictions), targets)

    def refit(self, params: PyTree, hyperparameter: Numbers) -> PyTree:
        """The same params."""
        return params

    def factors(self, params: PyTree, p: Any) -> Pair:
        """Differences p − c(p) of predictions, [n, m], twice."""
        points = vectors(p)
        moved = _distributions(self.recalibration.apply(params, _distributions(p)))
        errors = points - moved.class_probs[:, -points.shape[1] :]
        return errors, errors


def _distributions(p: Any) -> Any:
    """Class predictions, with two classes for confidences."""
    return p if checks.is_distribution(p) else Bernoulli(p)


_ROUNDING = 8  # in units of the last place of the largest eigenvalue (observed: up to three)


# Eigenvalues s of a kernel matrix K ≈ Q diag(s) Qᵀ, [r], zero up to rounding errors; B, [R, r],
# such that k(p, points)ᵀ B is the row of Q for any point p, k(p, x)ᵀ Q / s, zero where s is; and Qᵀ
# y for some vectors y, [r, m].
Spectrum = tuple[jax.Array, jax.Array, jax.Array]


def low_rank_spectrum(root: PivotedCholesky, vectors: jax.Array) -> Spectrum:
    """Spectrum of F Fᵀ in the precision of F, without the product."""
    features = root.features
    _, roots, rotation = jnp.linalg.svd(jnp.linalg.qr(features, mode="r"))
    inverse = _inverse(roots, _ROUNDING * jnp.finfo(roots.dtype).eps * roots[0])
    # Features of any point p are L⁻¹ k(points, p), with the rows L of F at the pivots.
    pivots = factor_at_pivots(root)
    basis = solve_triangular(pivots, rotation.T * inverse, trans=1, lower=True)
    projections = inverse[:, None] * matmul(rotation, matmul(features.T, vectors))
    return jnp.where(inverse > 0, jnp.square(roots), 0), basis, projections


def full_spectrum(matrix: jax.Array, vectors: jax.Array) -> Spectrum:
    """Spectrum of a matrix."""
    eigenvalues, eigenvectors = jnp.linalg.eigh(matrix, symmetrize_input=False)
    inverse = _inverse(eigenvalues, _ROUNDING * jnp.finfo(matrix.dtype).eps * eigenvalues[-1])
    projections = matmul(eigenvectors.T, vectors)
    return jnp.where(inverse > 0, eigenvalues, 0), eigenvectors * inverse, projections


def _inverse(values: jax.Array, rounding: jax.Array) -> jax.Array:
    """1 / x, or zero if x is a rounding error; NaN for NaN."""
    is_zero = values <= rounding
    return jnp.where(is_zero, 0, 1 / jnp.where(is_zero, 1, values))


def _tolerance(value: Any, name: str) -> Any:
    return value if value is None else checks.proportion(name, value)


@record
class KernelRidgeParams:
    """Params of `KernelRidge`.

    Attributes:
        kernel: kernel on predictions.
        points: second arguments of the kernel: pivots, or the whole training set, [R].
        eigenvalues: of the kernel matrix, [r]; zero up to rounding errors.
        basis: map from kernel values to coordinates in the eigenvectors, [R, r].
        projections: training residuals in the eigenvectors, Qᵀ (p_i − e_{y_i}), [r, m].
        residual: largest error of an entry of the kernel matrix, relative to the largest entry;
            zero for the full matrix.
        penalty: λ, scalar.
        num_samples: n.
    """

    kernel: Kernel
    points: Distribution
    eigenvalues: jax.Array = parameter(constraints.nonnegative.with_axes("r"))
    basis: jax.Array = parameter(constraints.real.with_axes("R", "r"))
    projections: jax.Array = parameter(constraints.real.with_axes("r", "m"))
    residual: jax.Array = parameter(constraints.nonnegative)
    penalty: jax.Array = parameter(constraints.positive)
    num_samples: int = dataclasses.field(metadata={"static": True})


@record
class KernelRidge(EstimationFunction):
    """Kernel ridge regression as a calibration estimation function, h_kkr or h_ukkr.

        h(p, q) = vec(Δ Δᵀ)ᵀ (K ⊗ K + λ n² I)⁻¹ (k(p) ⊗ k(q))
                = k(p)ᵀ Q (Λ ⊙ Qᵀ Δ Δᵀ Q) Qᵀ k(q),   Λ_ij = 1 / (s_i s_j + λ n²)

    with the rows p_i − e_{y_i} of Δ, the kernel matrix K = Q diag(s) Qᵀ of the n training
    predictions and the kernel values k(p) of a prediction with these. It is the regression of all
    products ⟨p_i − e_{y_i}, p_j − e_{y_j}⟩ on pairs of predictions, with penalty λ > 0, the
    hyperparameter. h is symmetric, but not an inner product: its diagonal can be negative.

    With `two_step` the residuals themselves are regressed on the predictions,

        h(p, q) = k(p)ᵀ (K + λ n I)⁻¹ Δ Δᵀ (K + λ n I)⁻¹ k(q),

    the inner product of two estimates of p − E[e_Y | p], with a non-negative diagonal.

    Most kernel matrices of predictions have low numerical rank: a few pivots determine the others
    up to rounding, and only these are kept. If more than n/4 pivots were needed, the
    eigendecomposition of the whole matrix is used, without eigenvalues up to rounding errors. The
    relative error of h is at most about tolerance / λ; penalties below the tolerance are
    indistinguishable.

    Attributes:
        kernel: positive semi-definite kernel on predictions, or on confidences if these are given
            as an array [n].
        two_step: whether to regress residuals instead of their products.
        rank: number of pivots, to save the search or for a Nyström approximation. By default it is
            chosen from the predictions; all n are used if these are traced, or for rank ≥ n.
        tolerance: largest error of an entry of K relative to the largest entry; 1e-14 by default,
            1e-6 in float32.

    `fit` returns `KernelRidgeParams`, whose `residual` is the error of K; `refit` uses another λ at
    little cost. Values can be differentiated with respect to λ, p and q, and for the whole matrix
    (rank ≥ n) also with respect to the arguments of `fit`, if no two eigenvalues are equal.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if a hyperparameter of the kernel is wrong, rank < 1, tolerance
            is not in (0, 1), λ is not positive, or shapes or values are wrong. Invalid traced
            values give NaN.

    Cost: O(n R²) to fit with R pivots; without pivots O(n³) time and memory for about 5 n² numbers.
    For each λ and t predictions, O(t R (R + m)) and t R kernel values; with `two_step` O((t + R) R
    m).

    References: G24 eq. (28) and (29), and eq. (32) for two steps.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.9, 0.9]), jnp.array([1, 1, 1, 0])
    >>> for function in KernelRidge(), KernelRidge(two_step=True):
    ...     params = function.fit(confidences, correct, 1e-6)
    ...     print(function.diagonal(params, confidences[1:3]).round(2))  # 0.5² and 0.4²
    [0.25 0.16]
    [0.25 0.16]
    """

    kernel: Kernel = part(checks.kernel_values, default=SquaredExponential(1.0))
    _: dataclasses.KW_ONLY
    two_step: bool = dataclasses.field(default=False, metadata={"static": True})
    rank: int | None = dataclasses.field(default=None, metadata={"static": True})
    tolerance: float | None = part(_tolerance, default=None)

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        powers = 9 - np.arange(1, 19) if canonical else 1 - 2 * np.arange(1, 10)
        if self.two_step:
            powers = (9 - np.arange(1, 19)) / 2 if canonical else -np.arange(1, 10)
        return math.sqrt(num_samples) * 10.0**powers

    @checked(**meanings("predictions", "hyperparameter"))
    def fit(
        self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers
    ) -> KernelRidgeParams:
        """Fit the regression."""
        errors, points = residuals(predictions, targets), _as_points(predictions)
        rank, tolerance = self._options(points)
        size = None if rank >= len(errors) else rank
        return _regression(self.kernel, tolerance, points, errors, hyperparameter, size=size)

    @checked(**meanings("hyperparameter"))
    def refit(self, params: KernelRidgeParams, hyperparameter: Numbers) -> KernelRidgeParams:
        """Replace the penalty."""
        return dataclasses.replace(params, penalty=hyperparameter)

    def factors(self, params: KernelRidgeParams, p: Distribution) -> Pair:
        """Factors of h at other predictions."""
        points = _as_points(p)
        checks.same_kind("p", points, "the predictions of fit", params.points)
        return _factors(params, points, self.two_step)

    @checked(**meanings("predictions"))
    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """Function with the rank for these predictions."""
        rank, _ = self._options(_as_points(predictions))
        return dataclasses.replace(self, rank=rank)

    def _options(self, points: Distribution) -> tuple[int, Any]:
        """Rank and tolerance for these predictions; rank n if the full matrix is faster."""
        leaves = jax.tree.leaves(points)
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = nystrom.TOLERANCE[leaves[0].dtype.itemsize]
        rank, n = self.rank, len(leaves[0])
        if rank is None and n >= 4 and checks.is_outermost(self.kernel, tolerance, points):
            rank = nystrom.numerical_rank(self.kernel, points, tolerance, n // 4)
        return rank or n, tolerance


def _as_points(predictions: Any) -> Distribution:
    """Predictions for the kernel, with probabilities instead of logits."""
    predictions = without_draws(predictions)
    plain = bare(predictions)
    if not isinstance(plain, Bernoulli | Categorical | CategoricalLogits):
        return predictions
    is_one = isinstance(plain, Bernoulli)
    return like(predictions, Bernoulli(plain.probs) if is_one else Categorical(plain.class_probs))


@functools.partial(jax.jit, static_argnames="size")
def _regression(
    kernel: Kernel,
    tolerance: ArrayLike,
    points: Distribution,
    errors: jax.Array,
    penalty: jax.Array,
    *,
    size: int | None,
) -> KernelRidgeParams:
    """Fitted params; `size` is the number of pivots, unless all points are used."""
    residual = jnp.zeros((), errors.dtype)
    if size is None:
        matrix = nystrom.kernel_values(kernel, points, points)
        eigenvalues, basis, projections = full_spectrum(matrix, errors)
    else:
        root = nystrom.decompose(kernel, points, tolerance, size=size)
        eigenvalues, basis, projections = low_rank_spectrum(root, errors)
        points, residual = jax.tree.map(lambda leaf: leaf[root.pivots], points), root.residual
    # NaN features give no pivots.
    projections = jnp.where(jnp.isnan(residual), jnp.nan, projections)
    spectrum = eigenvalues, basis, projections
    return KernelRidgeParams(kernel, points, *spectrum, residual, penalty, len(errors))


@functools.partial(jax.jit, static_argnums=2)
def _factors(params: KernelRidgeParams, points: Distribution, two_step: bool) -> Pair:
    """Coordinates times a matrix, and coordinates; or estimates of p − E[e_Y | p], [n, m], twice.

    The matrix holds the shrunk products of residuals.
    """
    values = nystrom.kernel_values(params.kernel, points, params.points)
    if two_step:
        shrinkage = _shrinkage(params.eigenvalues, params.penalty * params.num_samples)
        coefficients = matmul(params.basis, shrinkage[:, None] * params.projections)
        estimates = matmul(values, coefficients)
        return estimates, estimates
    coordinates = matmul(values, params.basis)
    products = params.eigenvalues[:, None] * params.eigenvalues
    shrunken = _shrinkage(products, params.penalty * float(params.num_samples) ** 2)
    inner = shrunken * matmul(params.projections, params.projections.T)
    return matmul(coordinates, inner), coordinates


def _shrinkage(eigenvalues: jax.Array, penalty: jax.Array) -> jax.Array:
    """Factors s / (s + c) for c > 0: zero for s = 0, and NaN for NaN."""
    total = eigenvalues + penalty
    return eigenvalues / jnp.where(total == 0, 1, total)
