"""Calibration errors around each prediction: means over the samples nearby in feature space."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._arithmetic import safe_sqrt
from calibjax._pytree import record
from calibjax.distributions import Bernoulli
from calibjax.estimators.binnings import Binning, interval_index
from calibjax.kernels import Kernel
from calibjax.kernels.smoothing import laplacian, smoothed_means

_ROUNDING = 1e-3  # of the effective size of two samples


@record
class LocalErrors:
    """Local calibration errors, and what is needed to read them honestly.

    All attributes are of shape [n], or [G, n] for G kernels. Where no sample is in the bin of a
    point, `effective_size` is zero and the others are NaN.

    Attributes:
        error: signed local error, local mean of confidence − correct; positive where the model is
            overconfident.
        standard_error: standard error of `error`, from the spread of the local samples; infinite
            where their effective number is below two. It is too small where all of the few samples
            nearby are correct, or all wrong.
        null_standard_error: standard deviation of `error` if the model is calibrated: how large
            errors are expected to be by chance.
        effective_size: effective number of local samples, (Σ_i w_i)² / Σ_i w_i².
    """

    error: jax.Array
    standard_error: jax.Array
    null_standard_error: jax.Array
    effective_size: jax.Array


def local_errors(
    features: Any,
    confidences: Any,
    correct: Any,
    *,
    length_scale: Any = None,
    num_bins: int | None = None,
    kernel: Kernel | None = None,
    binning: Binning | None = None,
    at: tuple[Any, Any] | None = None,
) -> LocalErrors:
    """Signed local calibration errors, their standard errors and effective sample sizes.

        error(x) = Σ_i w_i r_i / Σ_i w_i,   r_i = confidence_i − correct_i,   w_i = k(x, x_i),

    sums over the samples whose confidence is in the bin of that of x, among them x itself. With
    the weights divided by their sum,

        standard_error² = Σ_i w_i (r_i − error)² · Σ_i w_i² / (1 − Σ_i w_i²),
        null_standard_error² = Σ_i w_i² confidence_i (1 − confidence_i).

    The first is for samples that are alike, for equal weights the usual one of a mean; it needs
    many of them. The second is exact if the model is calibrated and labels are independent;
    `error` then has mean zero. Whether an error is more than chance, it says for any number of
    samples, and `hypothesis_tests.local_calibration_test` exactly.

    Args:
        features: features of the samples, [n, d]; with `kernel`, any pytree with leading axis n.
        confidences: confidences in [0, 1], [n]: an array or a batch of `Bernoulli`s, as
            `top_label` returns it.
        correct: whether the predicted class came, 0 or 1, [n].
        length_scale: bandwidth γ > 0 of the Laplacian kernel exp(−‖φ − φ'‖₁ / (d γ)), in units of
            the features per dimension: a number, or G of them, [G].
        num_bins: number of equal intervals of confidences, as in `uniform_bins`; 15 in L21.
        kernel: kernel record on features in place of `length_scale`, with values ≥ 0. A field
            `length_scale` of its own may be of shape [G].
        binning: binning of `Bernoulli`s in place of `num_bins`.
        at: features and confidences of other points, at which the errors are evaluated. A
            `binning` then sees samples and points together.

    Returns:
        The errors at the samples, or at the points `at`.

    Raises:
        TypeError: if an argument is of the wrong kind, or not one of two alternatives is given.
        ValueError: if shapes or values are wrong.

    Cost: one distance and 2 G exponentials for each pair within a bin, O(n G + tile²) memory.

    References: L21 eq. (4) and App. D (signed); Kish (1965), Survey sampling, for the effective
    size.

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import local_errors
    >>> errors = local_errors(
    ...     jnp.array([[0.0], [0.0], [9.0]]),
    ...     jnp.array([0.75, 0.75, 0.75]),
    ...     jnp.array([1, 0, 1]),
    ...     length_scale=0.1,
    ...     num_bins=5,
    ... )
    >>> print(errors.error, errors.effective_size)
    [ 0.25  0.25 -0.25] [2. 2. 1.]
    """
    problem = _checked(features, confidences, correct, length_scale, num_bins, kernel, binning, at)
    confidences, residuals = problem.confidences, problem.residuals
    values = [residuals, jnp.square(residuals), confidences * (1 - confidences)]
    means, totals = problem.smoothed(jnp.stack(values, 1), powers=(1, 2))
    known = totals[0] != 0
    size = jnp.square(totals[0]) / jnp.where(known, totals[1], 1)
    # Of one sample and little of another, the spread is that of the other one.
    others = jnp.where(size < 2 - _ROUNDING, 0, size - 1)
    size = _checks.nan_with(size, problem.confidences, problem.residuals)  # in bins of their own
    size = jnp.where(jnp.isnan(problem.places), jnp.nan, size)
    spread = means[0, ..., 1] - jnp.square(means[0, ..., 0])
    errors = LocalErrors(
        error=means[0, ..., 0],
        standard_error=_root_of_ratio(spread, others),
        null_standard_error=_root_of_ratio(means[1, ..., 2], size),
        effective_size=size,
    )
    nan_where_unknown = jax.tree.map(lambda x: jnp.where(known, x, jnp.nan), errors)
    return dataclasses.replace(nan_where_unknown, effective_size=size)


def lce(
    features: Any,
    confidences: Any,
    correct: Any,
    *,
    length_scale: Any = None,
    num_bins: int | None = None,
    kernel: Kernel | None = None,
    binning: Binning | None = None,
    at: tuple[Any, Any] | None = None,
) -> jax.Array:
    """Local calibration error (LCE) at each point.

        LCE(x) = |Σ_i k(x, x_i) (confidence_i − correct_i)| / Σ_i k(x, x_i),

    sums over the samples whose confidence is in the bin of that of x, among them x itself. For a
    wide kernel it is the calibration error of the bin, for a narrow one that of the nearest
    sample alone. It is biased upwards: a calibrated model has errors by chance, the larger the
    fewer samples are near. `local_errors` has their size, and
    `hypothesis_tests.local_calibration_test` says which are larger than chance.

    Args:
        features: features of the samples, [n, d], see `local_errors` for all arguments.
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class came, 0 or 1, [n].
        length_scale: γ > 0 of the kernel exp(−‖φ − φ'‖₁ / (d γ)), a number, or G of them, [G].
        num_bins: number of equal intervals of confidences.
        kernel: kernel record on features in place of `length_scale`.
        binning: binning of `Bernoulli`s in place of `num_bins`.
        at: features and confidences of other points, at which the errors are evaluated.

    Returns:
        The errors [n], or [G, n] for G length scales. NaN where no sample is in the bin of a point
        `at`.

    Raises:
        TypeError: if an argument is of the wrong kind, or not one of two alternatives is given.
        ValueError: if shapes or values are wrong.

    Cost: one distance and G exponentials for each pair within a bin, O(n G + tile²) memory.

    References: L21 eq. (4).

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import lce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.full(4, 0.75), jnp.array([1, 0, 0, 0])
    >>> print(lce(features, confidences, correct, length_scale=0.1, num_bins=5))
    [0.25 0.25 0.75 0.75]
    """
    problem = _checked(features, confidences, correct, length_scale, num_bins, kernel, binning, at)
    errors, totals = problem.absolute_errors()
    return jnp.where(totals == 0, jnp.nan, errors)


def mlce(
    features: Any,
    confidences: Any,
    correct: Any,
    *,
    length_scale: Any = None,
    num_bins: int | None = None,
    kernel: Kernel | None = None,
    binning: Binning | None = None,
    at: tuple[Any, Any] | None = None,
) -> jax.Array:
    """Maximum local calibration error (MLCE), max_x LCE(x).

    For a wide kernel it is the MCE, for a narrow one the largest |confidence − correct|. With G
    length scales it is the whole curve of L21's figures, for which distances are computed once.

    Args:
        features: features of the samples, [n, d], see `local_errors` for all arguments.
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class came, 0 or 1, [n].
        length_scale: γ > 0 of the kernel exp(−‖φ − φ'‖₁ / (d γ)), a number, or G of them, [G].
        num_bins: number of equal intervals of confidences.
        kernel: kernel record on features in place of `length_scale`.
        binning: binning of `Bernoulli`s in place of `num_bins`.
        at: features and confidences of other points, at which the errors are evaluated. Those
            whose bin holds no sample are left out; without any other the result is NaN.

    Returns:
        A scalar, or [G] for G length scales.

    Raises:
        TypeError: if an argument is of the wrong kind, or not one of two alternatives is given.
        ValueError: if shapes or values are wrong.

    Cost: that of `lce`.

    References: L21 eq. (5).

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import mlce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.full(4, 0.75), jnp.array([1, 0, 0, 0])
    >>> gammas = jnp.array([0.1, 1e9])
    >>> print(mlce(features, confidences, correct, length_scale=gammas, num_bins=5))
    [0.75 0.5 ]
    """
    problem = _checked(features, confidences, correct, length_scale, num_bins, kernel, binning, at)
    errors, totals = problem.absolute_errors()
    largest = jnp.max(jnp.where(totals == 0, 0, errors), -1)
    return jnp.where(jnp.any(totals != 0, -1), largest, jnp.nan)


def mean_lce(
    features: Any,
    confidences: Any,
    correct: Any,
    *,
    length_scale: Any = None,
    num_bins: int | None = None,
    kernel: Kernel | None = None,
    binning: Binning | None = None,
    at: tuple[Any, Any] | None = None,
) -> jax.Array:
    """Mean local calibration error, the mean of LCE(x) over the points.

    For a wide kernel it is the ECE.

    Args:
        features: features of the samples, [n, d], see `local_errors` for all arguments.
        confidences: confidences in [0, 1], [n].
        correct: whether the predicted class came, 0 or 1, [n].
        length_scale: γ > 0 of the kernel exp(−‖φ − φ'‖₁ / (d γ)), a number, or G of them, [G].
        num_bins: number of equal intervals of confidences.
        kernel: kernel record on features in place of `length_scale`.
        binning: binning of `Bernoulli`s in place of `num_bins`.
        at: features and confidences of other points, at which the errors are evaluated. Those
            whose bin holds no sample are left out; without any other the result is NaN.

    Returns:
        A scalar, or [G] for G length scales.

    Raises:
        TypeError: if an argument is of the wrong kind, or not one of two alternatives is given.
        ValueError: if shapes or values are wrong.

    Cost: that of `lce`.

    References: L21 App. B, Fig. 16 to 19.

    >>> import jax.numpy as jnp
    >>> from calibjax.estimators import mean_lce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.full(4, 0.75), jnp.array([1, 0, 0, 0])
    >>> print(mean_lce(features, confidences, correct, length_scale=0.1, num_bins=5))
    0.5
    """
    problem = _checked(features, confidences, correct, length_scale, num_bins, kernel, binning, at)
    errors, totals = problem.absolute_errors()
    known = totals != 0
    return jnp.sum(jnp.where(known, errors, 0), -1) / jnp.sum(known, -1)


class _Problem(NamedTuple):
    """Samples, the points at which errors are evaluated, and the bins of both."""

    kernel: Kernel
    confidences: jax.Array
    residuals: jax.Array
    samples: Any
    points: Any
    places: jax.Array  # confidences of the points
    bins: tuple[jax.Array, jax.Array]  # of the points, of the samples

    def smoothed(self, values: jax.Array, powers: Sequence[int]) -> tuple[jax.Array, jax.Array]:
        means, totals = smoothed_means(
            self.kernel, self.points, self.samples, values, self.bins, powers=powers
        )
        _checks.smoothing_weights(totals)
        if _checks.is_concrete(self.places):
            return means, totals
        # A traced number that is no probability is in no bin.
        is_number = ~jnp.isnan(self.places)
        return jnp.where(is_number[:, None], means, jnp.nan), totals

    def absolute_errors(self) -> tuple[jax.Array, jax.Array]:
        """Local errors and sums of weights, which are zero where there are no errors."""
        means, totals = self.smoothed(self.residuals[:, None], powers=(1,))
        return jnp.abs(means[0, ..., 0]), totals[0]


def _checked(
    features: Any,
    confidences: Any,
    correct: Any,
    length_scale: Any,
    num_bins: int | None,
    kernel: Kernel | None,
    binning: Binning | None,
    at: tuple[Any, Any] | None,
) -> _Problem:
    """Checks all arguments of the local errors."""
    confidences, correct = _checks.confidences_and_correct(confidences, correct)
    _checks.one_of(length_scale=length_scale, kernel=kernel)
    _checks.one_of(num_bins=num_bins, binning=binning)
    samples = _checks.features("features", features, confidences.size, vectors=kernel is None)
    points, places = samples, confidences
    if at is not None:
        if not (isinstance(at, tuple) and len(at) == 2):
            got = _checks.described(at)
            raise TypeError(f"at: expected a pair (features, confidences), got {got}")
        places = _checks.confidence_array(at[1], "at[1]")
        points = _checks.features("at[0]", at[0], places.size, vectors=kernel is None)
        _checks.same_kind("at[0]", points, "features", samples)
    if kernel is None:
        length_scale = _checks.length_scales("length_scale", length_scale)
        kernel = laplacian(length_scale, samples)
    else:
        kernel = _checked_kernel(kernel)
    if binning is None:
        num_bins = _checks.size_in_range("num_bins", num_bins, 1, 2**24)
        bins = interval_index(places, num_bins), interval_index(confidences, num_bins)
    else:
        bins = _bins_of_both(binning, confidences, None if at is None else places)
    residuals = confidences - correct
    if not _checks.is_concrete(residuals):  # of a sample that is in no bin, nothing is known
        residuals = jnp.where(jnp.any(jnp.isnan(residuals)), jnp.nan, residuals)
    return _Problem(kernel, confidences, residuals, samples, points, places, bins)


def _checked_kernel(kernel: Any) -> Kernel:
    """The kernel, checked, whose length scale may be of shape [G]."""
    scales = getattr(kernel, "length_scale", 0.0)
    if np.ndim(scales) != 1 or isinstance(kernel, type):
        return _checks.kernel_values(kernel)
    scales = _checks.length_scales("kernel.length_scale", scales)
    one = _checks.kernel_values(dataclasses.replace(kernel, length_scale=scales[0]))
    return dataclasses.replace(one, length_scale=scales)


def _bins_of_both(
    binning: Any, confidences: jax.Array, places: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Bins of the points and of the samples, which are the points if there are no others."""
    _checks.function(
        "binning such as estimators.uniform_bins(10)", "binning", binning, "predictions"
    )
    both = confidences if places is None else jnp.concatenate([confidences, places])
    bins = _checks.as_arrays("binning(predictions)", binning(Bernoulli(both)))
    bins = _checks.bin_ids("binning(predictions)", bins, both.size)
    return (bins if places is None else bins[confidences.size :]), bins[: confidences.size]


def _root_of_ratio(x: jax.Array, y: jax.Array) -> jax.Array:
    """√(x / y), with x ≥ 0 up to rounding; infinite where y is not positive and x a number."""
    is_positive = ~(y <= 0)  # or no number
    ratio = jnp.maximum(x, 0) / jnp.where(is_positive, y, 1)
    return jnp.where(is_positive, safe_sqrt(ratio), jnp.where(jnp.isnan(x), x, jnp.inf))
