"""Cross-validation over a grid of hyperparameters, and the pipeline of G24."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import Seen, checked
from calibjax._core.pytree import Numbers, PyTree, T, record
from calibjax.distributions.base import Distribution
from calibjax.risk.base import POINTS, CrossValidation, EstimationFunction, residuals
from calibjax.risk.estimation import losses_of_factors, losses_of_values

_Samples = tuple[Any, jax.Array]  # predictions, targets


def _grid(name: str, value: Any, seen: Seen) -> jax.Array:
    value = checks.real(name, checks.as_arrays(name, value))
    checks.shape(name, value, (None,), "[k]")
    checks.leading_size(name, value)
    return checks.finite(name, value)


def _function(name: str, value: Any, seen: Seen) -> Any:
    if not isinstance(value, EstimationFunction):
        got = checks.described(value)
        raise TypeError(f"{name}: expected a risk.EstimationFunction, got {got}")
    return value


_FUNCTION: dict[str, Any] = POINTS | {"function": _function, "grid": _grid}


@checked(**_FUNCTION)
def cross_validate(
    key: jax.Array,
    function: EstimationFunction,
    grid: Numbers,
    predictions: Distribution,
    targets: Numbers,
    *,
    num_folds: int = 5,
) -> CrossValidation:
    """Risk of a calibration estimation function at all grid points of its hyperparameter.

    The samples are randomly divided into folds. Each fold is held out in turn: the function is
    fitted to the others, and its risk (`estimation_risk`) on the fold is computed at every grid
    point, from one factorisation if the function supports it (`EstimationFunction.refit`). To
    compare two functions, use the same key and hence the same folds.

    The smallest risk on the grid slightly underestimates the risk of the selected function. A
    choice at the edge of the grid (`is_at_edge`) indicates that the grid may be too small.

    Args:
        key: random key, which determines the folds.
        function: the function to fit: `Binning`, `KernelDensity`, `KernelRidge`, or your own.
        grid: hyperparameters, [k]; `function.grid` returns those of G24.
        predictions: batch of n ≥ 2 num_folds class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        num_folds: F ≥ 2; n mod F folds have one sample more than the others.

    Returns:
        The risks, and the best hyperparameter.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, the grid is empty, there are fewer than two
            samples in a fold, or a risk is NaN (under `jit` it stays NaN).

    Cost: F fits (F k without `refit`), and O(F k) evaluations on n/F points, one after the other,
    with the memory of one of them. Folds of two different sizes compile twice.

    References: G24 §3.2.2 and §5.2.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from calibjax.risk import Binning
    >>> confidences = jax.random.uniform(jax.random.key(0), (2000,))
    >>> correct = jax.random.uniform(jax.random.key(1), (2000,)) < confidences**4
    >>> grid = jnp.array([1, 10, 1000])
    >>> result = cross_validate(jax.random.key(2), Binning(), grid, confidences, correct)
    >>> print(result.hyperparameter, result.risk.shape)
    10 (3,)
    """
    return _run_folds(key, function, grid, (predictions, targets), None, num_folds)


def _run_folds(
    key: jax.Array,
    function: EstimationFunction,
    grid: jax.Array,
    samples: _Samples,
    test: Distribution | None,
    num_folds: int,
) -> CrossValidation:
    """Cross-validation of checked arguments, with values at other predictions if there are any."""
    n = len(samples[1])
    if n < 2 * num_folds:
        at_least = f"at least {2 * num_folds} samples for num_folds={num_folds}"
        raise ValueError(f"predictions: expected {at_least} and those of a test part, got {n}")
    is_float = jnp.issubdtype(grid.dtype, jnp.floating)
    grid = grid.astype(floating_dtype(samples[0])) if is_float else grid
    function = function.specialise(samples[0], grid)
    sizes = tuple(n // num_folds + (fold < n % num_folds) for fold in range(num_folds))
    order, result = _dealt(key, grid, samples, test, sizes=sizes)
    starts = np.cumsum((0, *sizes))
    for size in sorted(set(sizes), reverse=True):
        batch = np.flatnonzero(np.array(sizes) == size)
        result = _with_folds(
            result, function, samples, test, order, starts[batch], batch, size=size
        )
    if checks.is_concrete(result):  # NaN is what only a failing function returns
        values = result.risks + jnp.sum(result.test_values, -1)
        expected = "a function whose values in each fold and at each grid point are numbers"
        checks.refuse_where(jnp.isnan(values), "function", expected, values)
    elif not jnp.issubdtype(grid.dtype, jnp.integer):
        # Invalid traced hyperparameters have no risks, and are shown as NaN.
        shown = jnp.where(jnp.isnan(result.risk), jnp.nan, result.grid)
        return dataclasses.replace(result, grid=shown)
    return result


@functools.partial(jax.jit, static_argnames="sizes")
def _dealt(
    key: jax.Array, grid: jax.Array, samples: _Samples, test: PyTree, *, sizes: tuple[int, ...]
) -> tuple[jax.Array, CrossValidation]:
    """The samples in random order, to be divided into folds, and an empty result."""
    order = jax.random.permutation(key, sum(sizes))
    numbers = jnp.repeat(jnp.arange(len(sizes), dtype=jnp.int32), np.array(sizes))
    folds = jnp.zeros_like(numbers).at[order].set(numbers)
    num_tests = 0 if test is None else checks.leading_size("test", test)
    shapes = (grid.size, order.size), (len(sizes), grid.size, num_tests)
    dtype = floating_dtype(samples[0])
    losses, values = (jnp.full(shape, jnp.nan, dtype) for shape in shapes)
    return order, CrossValidation(grid, folds, losses, values)


@functools.partial(jax.jit, static_argnames="size")
def _with_folds(
    result: CrossValidation,
    function: EstimationFunction,
    samples: _Samples,
    test: Distribution | None,
    order: jax.Array,
    starts: jax.Array,
    batch: jax.Array,
    *,
    size: int,
) -> CrossValidation:
    """The result with some more folds of equal size."""
    grid = result.grid

    def fold(start: jax.Array) -> tuple[jax.Array, Any]:
        rolled = jnp.roll(order, -start)
        held_out, rest = _at(samples, rolled[:size]), _at(samples, rolled[size:])
        first = function.fit(*rest, grid[0])

        def at(hyperparameter: jax.Array) -> tuple[jax.Array, Any]:
            params = function.refit(first, hyperparameter)
            if params is None:
                params = function.fit(*rest, hyperparameter)
            values = None if test is None else function.diagonal(params, test)
            return _losses(function, params, *held_out), values

        return lax.map(at, grid)

    losses, values = lax.map(fold, starts)
    held_out = order[starts[:, None] + jnp.arange(size)]
    losses = jnp.moveaxis(losses, 0, 1).astype(result.losses.dtype)
    result = dataclasses.replace(result, losses=result.losses.at[:, held_out].set(losses))
    if values is None:
        return result
    values = result.test_values.at[batch].set(values.astype(result.test_values.dtype))
    return dataclasses.replace(result, test_values=values)


def _at(samples: T, index: jax.Array) -> T:
    """Some of the samples."""
    return jax.tree.map(lambda leaf: leaf[index], samples)


def _losses(
    function: EstimationFunction, params: PyTree, predictions: Distribution, targets: jax.Array
) -> jax.Array:
    """Mean loss over the pairs of each sample with the others, [n]."""
    errors = residuals(predictions, targets)
    factors = function.factors(params, predictions)
    if factors is not None:
        return losses_of_factors(errors, *factors)
    values = functools.partial(function.evaluate, params)
    return losses_of_values(errors, values, predictions, "function.evaluate")


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


@checked(**_FUNCTION)
def squared_calibration_error(
    key: jax.Array,
    function: EstimationFunction,
    grid: Numbers,
    predictions: Distribution,
    targets: Numbers,
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
    samples = predictions, targets
    num_tests = max(1, round(len(targets) * float(test_fraction)))
    split_key, fold_key = jax.random.split(key)
    order = jax.random.permutation(split_key, len(targets))
    test, tuning = order[:num_tests], order[num_tests:]
    tuning_samples = jax.tree.map(lambda leaf: leaf[tuning], samples)
    test_predictions = jax.tree.map(lambda leaf: leaf[test], predictions)
    result = _run_folds(fold_key, function, grid, tuning_samples, test_predictions, num_folds)
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
