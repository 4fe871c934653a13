"""The squared calibration error, from an estimation function that was tuned on other data."""

import math

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.distributions.base import Distribution
from calibjax.risk.base import EstimationFunction
from calibjax.risk.cross_validation import checked_grid, run_folds, specialised
from calibjax.risk.result import CrossValidation
from calibjax.risk.samples import checked


@record
class SquaredCalibrationError:
    """Estimate of the squared calibration error, with intermediate results.

    Attributes:
        estimate: mean of h(p_i, p_i) over the test part and the functions of all folds. It may be
            negative, as an unbiased estimate of zero must be.
        standard_error: over the folds, as in G24. The folds share training data and the test part,
            so this captures only a part of the error that comes from the fits.
        sampling_error: standard error over the test part, for the mean of the functions.
        root: the calibration error, the signed square root of the estimate.
        root_standard_error: over the roots of the folds.
        hyperparameter: the hyperparameter with the smallest risk.
        risk: its mean risk over the folds.
        risk_standard_error: over the folds.
        fold_estimates: the estimates of the folds, [F].
        cross_validation: risks and values at all grid points, of the tuning part.
        tuning: indices of the samples of the tuning part, [n − t].
        test: indices of the samples of the test part, [t].
    """

    estimate: jax.Array
    standard_error: jax.Array
    sampling_error: jax.Array
    root: jax.Array
    root_standard_error: jax.Array
    hyperparameter: jax.Array
    risk: jax.Array
    risk_standard_error: jax.Array
    fold_estimates: jax.Array
    cross_validation: CrossValidation
    tuning: jax.Array
    test: jax.Array


def squared_calibration_error(
    key: jax.Array,
    function: EstimationFunction,
    grid: ArrayLike,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    num_folds: int = 5,
    test_fraction: float = 0.2,
) -> SquaredCalibrationError:
    """Estimate of the squared calibration error E‖P − E[e_Y | P]‖² by a tuned function.

    The samples are split at random into a tuning and a test part. On the tuning part
    `cross_validate` chooses the hyperparameter with the smallest risk. The functions fitted with
    it, one for each fold, estimate the error on the test part,

        1/F Σ_f 1/t Σ_i h_f(p_i, p_i),

    without using the targets of the test part. Compare estimators by their risks, with the same
    key, never by their estimates on the test part.

    The estimate is biased: a function that was tuned on few samples is shrunken, so that its
    diagonal is too small; for a calibrated model it is too large.

    The predictions determine the notion of calibration: canonical for class predictions; top-label
    for `confidences.probs` and `correct` of `estimators.top_label` as plain arrays (twice the value
    for the batch of `Bernoulli`s itself, of which both classes count); class-wise under `vmap` over
    `estimators.class_wise`.

    Args:
        key: random key, which determines the test part and the folds.
        function: the function to fit, as in `cross_validate`.
        grid: hyperparameters, [k].
        predictions: batch of n class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        num_folds: F ≥ 2.
        test_fraction: in (0, 1): t is the nearest integer to test_fraction · n, at least 1.

    Returns:
        The estimate, its root, and their standard errors.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: as in `cross_validate`, and if the tuning part has fewer than 2 num_folds
            samples.

    Cost: that of `cross_validate`, and evaluation on the test part at all k grid points, O(F k t)
    memory.

    References: G24 eq. (21), §3.2.2 and §5.2.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from calibjax.risk import Binning
    >>> confidences = jax.random.uniform(jax.random.key(0), (20000,))
    >>> correct = jax.random.uniform(jax.random.key(1), (20000,)) < confidences**2
    >>> grid = jnp.array([10, 100])  # √E (c − c²)² = √(1/30) = 0.18
    >>> result = squared_calibration_error(
    ...     jax.random.key(2), Binning(), grid, confidences, correct
    ... )
    >>> print(f"{result.root:.1f} of {result.test.size} samples")
    0.2 of 4000 samples
    """
    key = checks.random_key(key)
    num_folds = checks.size_in_range("num_folds", num_folds, 2)
    test_fraction = float(checks.proportion("test_fraction", test_fraction))
    samples = predictions, targets = checked(predictions, targets)
    num_tests = max(1, round(len(targets) * test_fraction))
    if len(targets) - num_tests < 2 * num_folds:
        raise ValueError(
            f"predictions: expected at least {2 * num_folds} samples for num_folds={num_folds} "
            f"after taking {num_tests} for the test part, got {len(targets)} in all"
        )
    grid = checked_grid(grid, predictions)
    function = specialised(function, samples, grid)
    split_key, fold_key = jax.random.split(key)
    order = jax.random.permutation(split_key, len(targets))
    test, tuning = order[:num_tests], order[num_tests:]
    tuning_samples = jax.tree.map(lambda leaf: leaf[tuning], samples)
    test_predictions = jax.tree.map(lambda leaf: leaf[test], predictions)
    result = run_folds(fold_key, function, grid, tuning_samples, test_predictions, num_folds)
    return _summary(result, tuning, test)


@jax.jit
def _summary(
    result: CrossValidation, tuning: jax.Array, test: jax.Array
) -> SquaredCalibrationError:
    """The estimate at the best grid point, and its errors."""
    best = result.best
    values = jnp.where(jnp.isnan(result.risk[best]), jnp.nan, result.test_values[:, best])
    folds = jnp.mean(values, 1)
    estimate = jnp.mean(folds)

    def root(x: jax.Array) -> jax.Array:
        return jnp.sign(x) * jnp.sqrt(jnp.abs(x))

    def error(x: jax.Array) -> jax.Array:
        """Standard error of a mean, NaN for a single value."""
        return (
            jnp.std(x, ddof=1) / math.sqrt(x.size) if x.size > 1 else jnp.full_like(x[0], jnp.nan)
        )

    return SquaredCalibrationError(
        estimate=estimate,
        standard_error=error(folds),
        sampling_error=error(jnp.mean(values, 0)),
        root=root(estimate),
        root_standard_error=error(root(folds)),
        hyperparameter=result.hyperparameter,
        risk=result.risk[best],
        risk_standard_error=result.standard_error[best],
        fold_estimates=folds,
        cross_validation=result,
        tuning=tuning,
        test=test,
    )
