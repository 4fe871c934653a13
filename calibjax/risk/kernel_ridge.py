"""Kernel ridge regression as a calibration estimation function."""

import dataclasses
import functools
import math
import warnings
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import Partial
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import matmul
from calibjax._core.gate import checked
from calibjax._core.pytree import Numbers, parameter, part, record
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare, like
from calibjax.distributions.constraints import nonnegative, positive, real
from calibjax.kernels import Kernel, SquaredExponential, nystrom
from calibjax.kernels.base import without_draws
from calibjax.kernels.nystrom import PivotedCholesky, factor_at_pivots
from calibjax.risk.base import FIT, POINTS, EstimationFunction, residuals

_ROUNDING = 8  # in units of the last place of the largest eigenvalue; up to three were observed


# Eigenvalues s of a kernel matrix K ≈ Q diag(s) Qᵀ, [r], zero for those that are only rounding
# errors; B, [R, r], such that k(p, points)ᵀ B is the row of Q for any point p, k(p, x)ᵀ Q / s, zero
# where s is; and Qᵀ y for some vectors y, [r, m].
Spectrum = tuple[jax.Array, jax.Array, jax.Array]


def low_rank_spectrum(root: PivotedCholesky, vectors: jax.Array) -> Spectrum:
    """The spectrum of F Fᵀ, with the precision of F rather than that of a product."""
    features = root.features
    _, roots, rotation = jnp.linalg.svd(jnp.linalg.qr(features, mode="r"))
    inverse = _inverse(roots, _ROUNDING * jnp.finfo(roots.dtype).eps * roots[0])
    # Features of any point p are L⁻¹ k(points, p), with the rows L of F at the pivots.
    basis = lax.linalg.triangular_solve(
        factor_at_pivots(root), rotation.T * inverse, left_side=True, lower=True, transpose_a=True
    )
    projections = inverse[:, None] * matmul(rotation, matmul(features.T, vectors))
    return jnp.where(inverse > 0, jnp.square(roots), 0), basis, projections


def full_spectrum(matrix: jax.Array, vectors: jax.Array) -> Spectrum:
    """The spectrum of a matrix."""
    eigenvectors, eigenvalues = lax.linalg.eigh(matrix, symmetrize_input=False)
    inverse = _inverse(eigenvalues, _ROUNDING * jnp.finfo(matrix.dtype).eps * eigenvalues[-1])
    projections = matmul(eigenvectors.T, vectors)
    return jnp.where(inverse > 0, eigenvalues, 0), eigenvectors * inverse, projections


def _inverse(values: jax.Array, rounding: jax.Array) -> jax.Array:
    """1 / x, or zero where x is only a rounding error; NaN for NaN."""
    is_zero = values <= rounding
    return jnp.where(is_zero, 0, 1 / jnp.where(is_zero, 1, values))


def _kernel_of_points(value: Any, name: str) -> Any:
    kernel = checks.kernel_or_function(value, name)
    # A function is not a pytree.
    return Partial(kernel) if any(map(callable, jax.tree.leaves(kernel))) else kernel


def _tolerance(value: Any, name: str) -> Any:
    return value if value is None else checks.proportion(name, value)


@record
class KernelRidgeParams:
    """What `KernelRidge` learns.

    Attributes:
        kernel: the kernel.
        points: predictions that it is evaluated with: pivots, or the whole training set, [R].
        eigenvalues: of the kernel matrix, [r]; zero for those that are only rounding errors.
        basis: map from kernel values to coordinates in the eigenvectors, [R, r].
        projections: training residuals in the eigenvectors, Qᵀ (p_i − e_{y_i}), [r, m].
        residual: largest error of an entry of the kernel matrix, relative to the largest entry;
            zero for the full matrix.
        penalty: λ, scalar.
        num_samples: n.
    """

    kernel: Kernel
    points: Distribution
    eigenvalues: jax.Array = parameter(nonnegative.with_axes("r"))
    basis: jax.Array = parameter(real.with_axes("R", "r"))
    projections: jax.Array = parameter(real.with_axes("r", "m"))
    residual: jax.Array = parameter(nonnegative)
    penalty: jax.Array = parameter(positive)
    num_samples: int = dataclasses.field(metadata={"static": True})

    @property
    def num_components(self) -> int:
        """Number of classes, or 1 for confidences."""
        return self.projections.shape[-1]

    def kernel_values(self, p: Distribution) -> jax.Array:
        """Kernel values of other predictions with the points, [n, R]."""
        return nystrom.kernel_values(self.kernel, p, self.points)


@record
class KernelRidge(EstimationFunction):
    """Kernel ridge regression as a calibration estimation function, h_kkr or h_ukkr.

        h(p, q) = vec(Δ Δᵀ)ᵀ (K ⊗ K + λ n² I)⁻¹ (k(p) ⊗ k(q))
                = k(p)ᵀ Q (Λ ⊙ Qᵀ Δ Δᵀ Q) Qᵀ k(q),   Λ_ij = 1 / (s_i s_j + λ n²)

    with the rows p_i − e_{y_i} of Δ, the kernel matrix K = Q diag(s) Qᵀ of the n training
    predictions and the kernel values k(p) between a prediction and these. It is the regression of
    all products ⟨p_i − e_{y_i}, p_j − e_{y_j}⟩ on pairs of predictions, with penalty λ > 0, the
    hyperparameter. h is symmetric, but not an inner product: its diagonal can be negative.

    With `two_step` the residuals themselves are regressed on the predictions,

        h(p, q) = k(p)ᵀ (K + λ n I)⁻¹ Δ Δᵀ (K + λ n I)⁻¹ k(q),

    the inner product of two estimates of p − E[e_Y | p], so that its diagonal is never negative.

    Most kernel matrices of predictions have low numerical rank: a few of the n predictions, the
    pivots, determine the others up to rounding. Then only these are kept. If more than n/4 pivots
    were needed, the eigendecomposition of the whole matrix is used, without eigenvalues that are
    only rounding errors. The omitted part of K changes h by a relative error of about
    tolerance / λ at most; penalties below the tolerance are indistinguishable.

    Attributes:
        kernel: a positive semi-definite kernel on predictions, or on confidences if these are
            given as an array [n].
        two_step: whether residuals are regressed, instead of their products.
        rank: number of pivots, to save the search or to use fewer pivots, which is the Nyström
            approximation. By default it is chosen from the predictions; if these are traced, all n
            are used, as for every rank ≥ n.
        tolerance: largest error of an entry of K relative to the largest entry; 1e-14 by default,
            1e-6 in float32.

    `fit` returns `KernelRidgeParams`, whose `residual` is the error of K; `refit` uses another λ at
    little cost. Values can be differentiated with respect to λ and the predictions p and q, and for
    the whole matrix (rank ≥ n) also with respect to the arguments of `fit`, as long as no two
    eigenvalues are equal.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if a hyperparameter of the kernel is wrong, rank < 1, tolerance
            is not in (0, 1), λ is not positive, or shapes or values are wrong. Invalid traced
            values give NaN.

    Warns:
        UserWarning: by `fit` if the given rank does not reach the tolerance.

    Cost: O(n R²) to fit with R pivots; O(n³) time and memory for about 5 n² numbers without. For
    each λ and t predictions, O(t R (R + m)) and t R kernel values; with `two_step`
    O((t + R) R m).

    References: G24 eq. (28) and (29), and eq. (32) for two steps.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.9, 0.9]), jnp.array([1, 1, 1, 0])
    >>> for function in KernelRidge(), KernelRidge(two_step=True):
    ...     params = function.fit(confidences, correct, 1e-6)
    ...     print(function.diagonal(params, confidences[1:3]).round(2))  # 0.5² and 0.4²
    [0.25 0.16]
    [0.25 0.16]
    """

    kernel: Kernel = part(_kernel_of_points, default=SquaredExponential(1.0))
    _: dataclasses.KW_ONLY
    two_step: bool = dataclasses.field(default=False, metadata={"static": True})
    rank: int | None = dataclasses.field(default=None, metadata={"static": True})
    tolerance: float | None = part(_tolerance, default=None)

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        powers = 9 - np.arange(1, 19) if canonical else 1 - 2 * np.arange(1, 10)
        if self.two_step:
            powers = (9 - np.arange(1, 19)) / 2 if canonical else -np.arange(1, 10)
        return math.sqrt(num_samples) * 10.0**powers

    params_type = KernelRidgeParams

    @checked(**FIT)
    def fit(
        self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers
    ) -> KernelRidgeParams:
        """Fits the regression."""
        errors, points = residuals(predictions, targets), _as_points(predictions)
        rank, tolerance = self._options(points)
        size = None if rank >= len(errors) else rank
        params = _learned(self.kernel, tolerance, points, errors, hyperparameter, size=size)
        if checks.is_concrete(params.residual, tolerance) and params.residual > tolerance:
            warnings.warn(
                f"kernel ridge: with rank {rank} entries of the kernel matrix are wrong by up to "
                f"{params.residual:.1e} of the largest, more than the tolerance {tolerance}",
                UserWarning,
                stacklevel=3,
            )
        return params

    @checked(**FIT)
    def refit(self, params: KernelRidgeParams, hyperparameter: Numbers) -> KernelRidgeParams:
        """Replaces the penalty."""
        return dataclasses.replace(params, penalty=hyperparameter)

    def factors(self, params: KernelRidgeParams, p: Distribution) -> tuple[jax.Array, jax.Array]:
        """The factors of h at other predictions."""
        points = _as_points(p)
        checks.same_kind("p", points, "the predictions that fit was given", params.points)
        return _factors(params, points, self.two_step)

    @checked(**POINTS)
    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """The function with the rank that these predictions need."""
        rank, _ = self._options(_as_points(predictions))
        return dataclasses.replace(self, rank=rank)

    def _options(self, points: Distribution) -> tuple[int, Any]:
        """Rank and tolerance for these predictions; rank n if the full matrix is faster."""
        one = jax.tree.map(lambda leaf: leaf[0], points)
        value = jax.eval_shape(self.kernel, one, one)
        if getattr(value, "shape", None) != () or value.dtype.kind not in "fiub":
            raise TypeError(f"kernel: expected a real number for two predictions, got {value}")
        leaves = jax.tree.leaves(points)
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = nystrom.TOLERANCE[leaves[0].dtype.itemsize]
        rank, n = self.rank, len(leaves[0])
        if rank is None and n >= 4 and checks.is_outermost(self.kernel, tolerance, points):
            rank = nystrom.numerical_rank(self.kernel, points, tolerance, n // 4)
        return rank or n, tolerance


def _as_points(predictions: Any) -> Distribution:
    """Predictions as the kernel sees them, with probabilities in place of logits."""
    predictions = without_draws(predictions)
    plain = bare(predictions)
    if isinstance(plain, Bernoulli):
        return like(predictions, Bernoulli(plain.probs))
    if isinstance(plain, Categorical | CategoricalLogits):
        return like(predictions, Categorical(plain.class_probs))
    return predictions


@functools.partial(jax.jit, static_argnames="size")
def _learned(
    kernel: Kernel,
    tolerance: ArrayLike,
    points: Distribution,
    errors: jax.Array,
    penalty: jax.Array,
    *,
    size: int | None,
) -> KernelRidgeParams:
    """Learned params; `size` is the number of pivots, unless all points are used."""
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
def _factors(
    params: KernelRidgeParams, points: Distribution, two_step: bool
) -> tuple[jax.Array, jax.Array]:
    """Coordinates times a matrix, and coordinates; or estimates of p − E[e_Y | p], [n, m], twice.

    The matrix is that of the shrunken products of residuals.
    """
    values = params.kernel_values(points)
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
    """Factors s / (s + c) for c > 0: zero for s = 0 even for the smallest c, and NaN for NaN."""
    total = eigenvalues + penalty
    return eigenvalues / jnp.where(total == 0, 1, total)
