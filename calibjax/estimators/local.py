"""Calibration errors around each prediction: means over nearby samples in feature space."""

import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from calibjax._core import checks
from calibjax._core.arithmetic import safe_sqrt
from calibjax._core.gate import checked, passed
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.binnings import UniformBins, bins_of
from calibjax.distances import Manhattan
from calibjax.distributions import Bernoulli
from calibjax.kernels import Exponential, Kernel
from calibjax.kernels.line import smoothed_means


@record
class Neighbourhood:
    """Weights of the samples near a point: a kernel on features, within a bin of confidences.

        w_i(x) = k(φ(x), φ_i) if the confidences of x and of sample i share a bin, otherwise 0.

    Local errors (`lce`), their test (`hypothesis_tests.local_calibration_test`) and local
    recalibration (`recalibration.LocalRecalibration`) are means with these weights.

    Attributes:
        kernel: kernel record on features with values ≥ 0. Its field `length_scale` may hold G
            length scales, [G], which are evaluated at once.
        binning: binning of batches of `Bernoulli`s, such as `UniformBins(15)`, or a function of
            such batches. A function is called with the samples and other points together.

    References: L21 §3.1; App. A for bins of equal mass.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.estimators import EqualMassBins, Neighbourhood, lce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.array([0.75, 0.75, 1.0, 1.0]), jnp.array([1, 0, 1, 1])
    >>> neighbourhood = Neighbourhood(kernels.SquaredExponential(0.1), EqualMassBins(1))
    >>> print(lce(neighbourhood, features, confidences, correct))
    [0.25 0.25 0.   0.  ]
    """

    kernel: Kernel
    binning: Callable[[Any], jax.Array]

    @classmethod
    def laplacian(cls, length_scale: Any, num_bins: int) -> Self:
        """Neighbourhood of L21: the Laplacian kernel in confidence bins of equal width.

            k(φ, φ') = exp(−‖φ − φ'‖₁ / (d γ)) for features of d numbers.

        Args:
            length_scale: bandwidth γ > 0, in units of the features per dimension, a number or [G].
                L21 uses 0.2 for t-SNE and 0.4 for PCA features.
            num_bins: number of confidence bins of equal width, as in `UniformBins`; 15 in L21.
        """
        return cls(Exponential(length_scale, Manhattan(mean=True)), UniformBins(num_bins))

    def groups(
        self, samples: jax.Array, points: jax.Array | None, weights: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Confidence bins of the points (by default the samples), and of the samples."""
        at = None if points is None else Bernoulli(points)
        bins = bins_of(self.binning, Bernoulli(samples), at, weights=weights)
        return (bins, bins) if points is None else bins[::-1]

    def check_values(self, name: str) -> PyTree:
        """Check kernel and binning; the length scale of the kernel may be of shape [G]."""
        kernel, binning = self.kernel, checks.record_values(self.binning, f"{name}.binning")
        if isinstance(binning, types.FunctionType | functools.partial):  # not pytrees
            binning = Partial(binning)
        scales: Any = getattr(kernel, "length_scale", None)
        if np.ndim(scales) == 1:
            place = f"{name}.kernel.length_scale"
            scales = checks.positive(place, checks.real(place, scales))
            checks.leading_size(place, scales)
            kernel = dataclasses.replace(kernel, length_scale=scales[0])
        kernel = checks.kernel_values(kernel, f"{name}.kernel")
        if np.ndim(scales) == 1:
            kernel = dataclasses.replace(kernel, length_scale=jnp.asarray(scales))
        return checks.replaced(self, kernel=kernel, binning=binning)


def checked_neighbourhood(neighbourhood: object) -> Neighbourhood:
    """Neighbourhood with a checked kernel, whose length scale may be of shape [G]."""
    if not isinstance(neighbourhood, Neighbourhood):
        got = checks.described(neighbourhood)
        raise TypeError(f"neighbourhood: expected estimators.Neighbourhood, got {got}")
    return neighbourhood.check_values("neighbourhood")


_ROUNDING = 1e-3  # of the effective size of two samples


@record
class LocalErrors:
    """Local calibration errors, with standard errors and effective sample sizes.

    All attributes are of shape [n], or [G, n] for G kernels. If no sample of positive weight is in
    the bin of a point, `effective_size` is zero and the others are NaN.

    Attributes:
        error: signed local error, local mean of confidence − correct; positive for overconfidence.
        standard_error: standard error of `error`, from the spread of the local samples; infinite if
            their effective number is below two. It is too small if the few nearby samples are all
            correct, or all wrong.
        null_standard_error: standard deviation of `error` under calibration.
        effective_size: effective number of local samples, (Σ_i w_i)² / Σ_i w_i².
    """

    error: jax.Array
    standard_error: jax.Array
    null_standard_error: jax.Array
    effective_size: jax.Array


def _points(name: str, value: Any, seen: Any) -> tuple[Any, jax.Array]:
    """Features and confidences of other points."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{name}: expected a pair (features, confidences)")
    features, confidences = passed(features=value[0], confidences=value[1])
    checks.same_kind(f"{name}[0]", features, "features", seen["features"])
    return features, confidences


@checked(at=_points)
def local_errors(
    neighbourhood: Neighbourhood,
    features: PyTree,
    confidences: Numbers,
    correct: Numbers,
    *,
    weights: Numbers | None = None,
    at: tuple[Any, Any] | None = None,
) -> LocalErrors:
    """Signed local calibration errors, their standard errors and effective sample sizes.

        error(x) = Σ_i w_i r_i / Σ_i w_i,   r_i = confidence_i − correct_i,   w_i = k(x, x_i),

    with sums over the samples in the confidence bin of x, including x itself. With normalised
    weights,

        standard_error² = Σ_i w_i (r_i − error)² · Σ_i w_i² / (1 − Σ_i w_i²),
        null_standard_error² = Σ_i w_i² confidence_i (1 − confidence_i).

    The first assumes many identically distributed samples; for equal weights it is the usual
    standard error of a mean. The second is exact for every n if the model is calibrated and labels
    are independent; `error` then has mean zero. `hypothesis_tests.local_calibration_test` is the
    exact test.

    Args:
        neighbourhood: kernel on features and binning of confidences. For G length scales all
            results have a leading axis G, and distances are computed once.
        features: features of the samples, [n, d], or any pytree with leading axis n.
        confidences: confidences in [0, 1], [n]: an array or a batch of `Bernoulli`s, as from
            `top_label`.
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: v ≥ 0 of the samples, [n]: w_i = v_i k(x, x_i). None for equal weights.
        at: features and confidences of other points to evaluate the errors at.

    Returns:
        The errors at the samples, or at the points `at`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: one distance and 2 G exponentials for each pair within a bin, O(n G + tile²) memory.

    References: L21 eq. (4) and App. D (signed); Kish (1965), Survey sampling, for the effective
    size.

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import Neighbourhood, local_errors
    >>> errors = local_errors(
    ...     Neighbourhood.laplacian(0.1, 5),
    ...     jnp.array([[0.0], [0.0], [9.0]]),
    ...     jnp.array([0.75, 0.75, 0.75]),
    ...     jnp.array([1, 0, 1]),
    ... )
    >>> print(errors.error, errors.effective_size)
    [ 0.25  0.25 -0.25] [2. 2. 1.]
    """
    return _local_errors(local_problem(neighbourhood, features, confidences, correct, at, weights))


@jax.jit
def _local_errors(problem: "LocalProblem") -> LocalErrors:
    """Checked `local_errors`."""
    (places, confidences), residuals = problem.confidences, problem.residuals
    values = [residuals, jnp.square(residuals), confidences * (1 - confidences)]
    means, totals = problem.smoothed(jnp.stack(values, 1), powers=(1, 2))
    has_samples = totals[0] != 0
    size = jnp.square(totals[0]) / jnp.where(has_samples, totals[1], 1)
    # If one sample has nearly all the weight, the spread is undetermined.
    others = jnp.where(size < 2 - _ROUNDING, 0, size - 1)
    size = checks.nan_with(size, confidences, residuals)  # NaN are in separate bins
    size = jnp.where(jnp.isnan(places), jnp.nan, size)
    spread = means[0, ..., 1] - jnp.square(means[0, ..., 0])
    deviations = _root_of_ratio(spread, others), _root_of_ratio(means[1, ..., 2], size)
    errors = (jnp.where(has_samples, x, jnp.nan) for x in (means[0, ..., 0], *deviations))
    return LocalErrors(*errors, effective_size=size)


@checked(at=_points)
def lce(
    neighbourhood: Neighbourhood,
    features: PyTree,
    confidences: Numbers,
    correct: Numbers,
    *,
    weights: Numbers | None = None,
    at: tuple[Any, Any] | None = None,
) -> jax.Array:
    """Local calibration error (LCE) at each point.

        LCE(x) = |Σ_i k(x, x_i) (confidence_i − correct_i)| / Σ_i k(x, x_i),

    with sums over the samples in the confidence bin of x, including x itself. For a wide kernel it
    is the calibration error of the bin, for a narrow kernel |confidence − correct| of the nearest
    sample. It is biased upwards, because even a calibrated model has errors by chance, especially
    with few nearby samples. `local_errors` gives their size, and
    `hypothesis_tests.local_calibration_test` tests which errors exceed chance.

    Args:
        neighbourhood: kernel on features and binning of confidences, as in `local_errors`.
        features: features of the samples, [n, d].
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n], as in `local_errors`.
        at: features and confidences of other points to evaluate the errors at.

    Returns:
        The errors [n], or [G, n] for G length scales; NaN for points of `at` without a sample in
        their bin.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: one distance and G exponentials for each pair within a bin, O(n G + tile²) memory.

    References: L21 eq. (4).

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import Neighbourhood, lce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.full(4, 0.75), jnp.array([1, 0, 0, 0])
    >>> print(lce(Neighbourhood.laplacian(0.1, 5), features, confidences, correct))
    [0.25 0.25 0.75 0.75]
    """
    problem = local_problem(neighbourhood, features, confidences, correct, at, weights)
    errors, totals = problem.errors()
    return jnp.where(totals == 0, jnp.nan, jnp.abs(errors))


@checked(at=_points)
def mlce(
    neighbourhood: Neighbourhood,
    features: PyTree,
    confidences: Numbers,
    correct: Numbers,
    *,
    weights: Numbers | None = None,
    at: tuple[Any, Any] | None = None,
) -> jax.Array:
    """Maximum local calibration error (MLCE), max_x LCE(x).

    For a wide kernel it is the MCE, for a narrow kernel the largest |confidence − correct|. G
    length scales give a curve as in L21's figures, with distances computed once. Samples of weight
    0 are left out.

    Args:
        neighbourhood: kernel on features and binning of confidences, as in `local_errors`.
        features: features of the samples, [n, d].
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class was observed, 0 or 1, [n].
        weights: w ≥ 0 of the samples, [n], as in `local_errors`.
        at: features and confidences of other points to evaluate the errors at. Points without a
            sample in their bin are left out; if none remains, the result is NaN.

    Returns:
        A scalar, or [G] for G length scales.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: `lce`.

    References: L21 eq. (5).

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import Neighbourhood, mlce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.full(4, 0.75), jnp.array([1, 0, 0, 0])
    >>> neighbourhoods = Neighbourhood.laplacian(jnp.array([0.1, 1e9]), 5)
    >>> print(mlce(neighbourhoods, features, confidences, correct))
    [0.75 0.5 ]
    """
    data = neighbourhood, features, confidences, correct, at, weights
    return _largest_error(local_problem(*data), is_at_samples=at is None)


@functools.partial(jax.jit, static_argnames="is_at_samples")
def _largest_error(problem: "LocalProblem", *, is_at_samples: bool) -> jax.Array:
    """Checked `mlce`."""
    errors, totals = problem.errors()
    has_samples = totals != 0
    if is_at_samples and problem.weights is not None:
        has_samples &= problem.weights != 0
    largest = jnp.max(jnp.where(has_samples, jnp.abs(errors), 0), -1)
    return jnp.where(jnp.any(has_samples, -1), largest, jnp.nan)


class LocalProblem(NamedTuple):
    """Samples, points of evaluation, and their neighbourhoods.

    Attributes:
        kernel: kernel on features.
        features: of the points and of the samples.
        groups: bins of the points and of the samples.
        confidences: of the points and of the samples.
        correct: whether the samples are correct, 0 or 1, [n].
        weights: of the samples, [n], or None.
    """

    kernel: Kernel
    features: tuple[Any, Any]
    groups: tuple[jax.Array, jax.Array]
    confidences: tuple[jax.Array, jax.Array]
    correct: jax.Array
    weights: jax.Array | None = None

    @property
    def residuals(self) -> jax.Array:
        """Confidence − correct of the samples, [n]."""
        return self.confidences[1] - self.correct

    def smoothed(self, values: jax.Array, powers: Sequence[int]) -> tuple[jax.Array, jax.Array]:
        """Means of values of the samples around each point, as from `smoothed_means`."""
        weights = jnp.ones_like(values[:, 0]) if self.weights is None else self.weights
        factors = [weights[:, None] ** power for power in powers]
        columns = jnp.concatenate([x for w in factors for x in (w * values, w)], 1)
        # Samples of weight 0 are near no point; else a narrow kernel would select only them.
        places, groups = self.groups
        groups = places, jnp.where(weights == 0, jnp.iinfo(groups.dtype).max, groups)
        data = *self.features, columns, groups
        means, totals = smoothed_means(self.kernel, *data, powers=powers)
        size = values.shape[1] + 1
        sums = jnp.stack([means[i, ..., i * size : (i + 1) * size] for i in range(len(powers))])
        masses = sums[..., -1:]
        means = sums[..., :-1] / jnp.where(masses == 0, 1, masses)
        # A traced value that is not a probability is in no bin.
        means = jnp.where(jnp.isnan(self.confidences[0])[:, None], jnp.nan, means)
        return means, masses[..., 0] * totals

    @jax.jit
    def errors(self) -> tuple[jax.Array, jax.Array]:
        """Signed errors, and sums of weights, zero without errors."""
        means, totals = self.smoothed(self.residuals[:, None], powers=(1,))
        return means[0, ..., 0], totals[0]


def local_problem(
    neighbourhood: Neighbourhood,
    features: Any,
    confidences: Numbers,
    correct: Numbers,
    at: tuple[Any, jax.Array] | None = None,
    weights: Numbers | None = None,
) -> LocalProblem:
    """Problem of the samples at the points `at`, by default at themselves."""
    points, places = (features, confidences) if at is None else at
    groups = neighbourhood.groups(confidences, None if at is None else places, weights)
    # A traced sample in no bin, or of unknown weight, gives NaN.
    correct = checks.nan_with(correct, confidences, correct, weights)
    data = (points, features), groups, (places, confidences), correct, weights
    return LocalProblem(neighbourhood.kernel, *data)


def _root_of_ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """√(x / y), with x ≥ 0 up to rounding; infinite if y is not positive and x is not NaN."""
    is_positive = ~(y <= 0)  # or NaN
    ratio = jnp.maximum(x, 0) / jnp.where(is_positive, y, 1)
    return jnp.where(is_positive, safe_sqrt(ratio), jnp.where(jnp.isnan(x), x, jnp.inf))
