"""Calibration estimation functions, their risk, and their selection by cross-validation."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax import operators
from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, one_hot, segment_sums
from calibjax._core.gate import Seen, checked, confidence_array
from calibjax._core.pytree import Numbers, PyTree, T, record
from calibjax.distributions.base import Distribution, has_class_probs

Values = jax.Array | Callable[[Any, Any], jax.Array]


def _points(name: str, value: Any, seen: Seen) -> PyTree:
    """Class predictions, or confidences."""
    if checks.is_distribution(value):
        if not has_class_probs(value):
            raise TypeError(f"{name}: expected class predictions, got {checks.described(value)}")
        value = checks.batch(value, minimum=seen.minimum, name=name)
    else:
        value = confidence_array(name, value, Seen({}))
    seen.lengths.setdefault("", (name, checks.leading_size(name, value, seen.minimum)))
    return value


def _positive(name: str, value: Any, seen: Seen) -> jax.Array:
    """Hyperparameter in the precision of the data."""
    leaves = jax.tree.leaves(seen.get("predictions", seen.get("params")))
    dtype = floating_dtype([x for x in leaves if not getattr(x, "weak_type", False)])
    return checks.positive_scalar(name, value, dtype)


# Checks of arguments in this subpackage: predictions may be confidences.
def meanings(*names: str) -> dict[str, Any]:
    """Checks of the arguments of these names."""
    return {name: _positive if name == "hyperparameter" else _points for name in names}


def vectors(predictions: Any) -> jax.Array:
    """Predictions as vectors: class probabilities, [n, m], or confidences, [n, 1]."""
    has_classes = hasattr(predictions, "class_probs")
    return predictions.class_probs if has_classes else predictions[:, None]


def residuals(predictions: Any, targets: jax.Array) -> jax.Array:
    """Predictions minus observations, p_i − e_{y_i}, [n, m], or c_i − y_i, [n, 1].

    Under `jit`, targets out of range give NaN.
    """
    probs = vectors(predictions)
    if hasattr(predictions, "class_probs"):
        return probs - one_hot(targets, probs.shape[1], probs.dtype)
    return probs - targets[:, None]


@record
class EstimationFunction:
    """Base class of calibration estimation functions h, which are fitted and evaluated.

        h(p, q) ≈ h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩,

    so the mean of h(p_i, p_i) over other predictions estimates the squared calibration error. h is
    symmetric. A function of your own is a subclass, decorated with `calibjax.record`, with the
    methods `fit` and `evaluate`, or `fit` and `factors`; the other methods save time.
    `cross_validate` passes the record to compiled code: its methods are called with tracers, and
    compiled once for all records that differ only in the values of arrays.

    Predictions are a batch of n class distributions, or confidences: an array [n], with targets
    0 and 1.

    References: G24 eq. (12) and §3.2.2.
    """

    def fit(self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers) -> PyTree:
        """Fit params, a pytree of arrays, with a hyperparameter."""
        raise NotImplementedError(f"{type(self).__name__} does not define fit")

    def factors(self, params: PyTree, p: Distribution) -> tuple[jax.Array, jax.Array] | None:
        """Two arrays [n, r], left and right, with h(p_i, q_j) = Σ_k left(p)_ik right(q)_jk.

        With them the diagonal takes O(n r) time, and the risk O(n r²). None if h has no such
        factors.
        """
        return None

    @checked(**meanings("p", "q"))
    def evaluate(self, params: PyTree, p: Distribution, q: Distribution) -> jax.Array:
        """Values h(p_i, q_j) of two batches, [n, n']; by default from the factors."""
        left, right = self.factors(params, p), self.factors(params, q)
        if left is None or right is None:
            raise NotImplementedError(f"{type(self).__name__} defines neither evaluate nor factors")
        return matmul(left[0], right[1].T)

    @checked(**meanings("p"))
    def diagonal(self, params: PyTree, p: Distribution) -> jax.Array:
        """Values h(p_i, p_i) of a batch of predictions, [n]."""
        factors = self.factors(params, p)
        if factors is not None:
            return jnp.sum(factors[0] * factors[1], -1)

        def one(p: Distribution) -> jax.Array:
            batch = jax.tree.map(lambda leaf: leaf[None], p)
            values = self.evaluate(params, batch, batch)
            checks.shape("function.evaluate", values, (1, 1), "[n, n'] = (1, 1)")
            return values[0, 0]

        return jax.vmap(one)(p)

    def refit(self, params: PyTree, hyperparameter: Numbers) -> PyTree:
        """Params for another hyperparameter and the same data.

        With it a grid shares the expensive part. None if `fit` has to be called again.
        """

    @checked
    def grid(self, num_samples: int, *, canonical: bool = False) -> np.ndarray:
        """Grid of hyperparameters of G24, App. B.

        Numbers of bins 5, 10, ..., 100 for `Binning`; for `KernelDensity` 15 log-spaced bandwidths
        from 1e-5 to 0.1, and 0.2, 0.4, ..., 1;
        penalties λ in falling order

            √n 10^(1 − 2i), i = 1, ..., 9,  canonical: √n 10^(9 − i), i = 1, ..., 18

        for `KernelRidge`, and for `KernelRidge(two_step=True)`

            √n 10^(−i), i = 1, ..., 9,  canonical: √n 10^((9 − i)/2), i = 1, ..., 18.

        n is the number of samples to which a function is fitted, as in equations (27) to (32): 0.64
        times the number of all samples for an 80/20 split and 5 folds. The appendix also admits n
        as the number of all samples (§5.2), which moves the grid by a factor of 1.25, less than
        half its smallest step.

        Args:
            num_samples: n, number of training samples of a fold.
            canonical: whether the grid is for predictions of many classes instead of confidences.

        Returns:
            A NumPy array, concrete even under `jit`.

        Raises:
            NotImplementedError: if the paper has no grid for the function.
            TypeError: if an argument is of the wrong kind.
            ValueError: if n < 2.

        >>> from calibjax import risk
        >>> print(risk.KernelRidge().grid(100)[:3], risk.Binning().grid(100)[:3])
        [1.e+00 1.e-02 1.e-04] [ 5 10 15]
        """
        return self._grid(num_samples, canonical)

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} has no grid of hyperparameters in G24")

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """Function with fixed array sizes, for compiled code."""
        return self


@record
class CrossValidation:
    """Risks of a calibration estimation function in all folds and at all grid points.

    Attributes:
        grid: hyperparameters, [k]; traced ones without a risk are NaN, unless all are integers.
        folds: fold 0, ..., F − 1 in which each sample is held out, [n].
        losses: mean loss over the pairs of each sample with the others of its fold, by the function
            fitted to the other folds, [k, n].
        test_values: h(p_i, p_i) of predictions in no fold, by the function of each fold, [F, k, t];
            t = 0 except in `squared_calibration_error`.
    """

    grid: jax.Array
    folds: jax.Array
    losses: jax.Array
    test_values: jax.Array

    @property
    def num_folds(self) -> int:
        """Number of folds, F."""
        return self.test_values.shape[0]

    @property
    def risks(self) -> jax.Array:
        """Risk in each fold, [F, k]."""
        sizes = jnp.bincount(self.folds, length=self.num_folds).astype(self.losses.dtype)
        return segment_sums(self.losses.T, self.folds, sizes) / sizes[:, None]

    @property
    def risk(self) -> jax.Array:
        """Mean risk over the folds, [k]."""
        return jnp.mean(self.risks, 0)

    @property
    def standard_error(self) -> jax.Array:
        """Standard error of the mean risk, treating folds as independent, [k]."""
        return jnp.std(self.risks, 0, ddof=1) / math.sqrt(self.num_folds)

    @property
    def best(self) -> jax.Array:
        """Index of the smallest mean risk, the first in a tie."""
        return jnp.argmin(self.risk)

    @property
    def hyperparameter(self) -> jax.Array:
        """Hyperparameter with the smallest mean risk."""
        return self.grid[self.best]


@record
class RiskEstimate:
    """Estimate of the risk of a calibration estimation function.

    Attributes:
        value: the estimate.
        standard_error: of the estimate, given this function. NaN for two samples.
    """

    value: jax.Array
    standard_error: jax.Array


def _values(name: str, value: Any, seen: Seen) -> Any:
    """Array of numbers, or function of two batches."""
    if callable(value):
        return checks.function("function of two batches", name, value)
    return checks.finite(name, checks.as_arrays(name, value))


@checked(minimum=2, values=_values, **meanings("predictions"))
def estimation_risk(values: Values, predictions: Distribution, targets: Numbers) -> RiskEstimate:
    """Unbiased estimate of the risk of a calibration estimation function h.

        1/(n(n − 1)) Σ_{i≠j} (⟨p_i − e_{y_i}, p_j − e_{y_j}⟩ − h(p_i, p_j))².

    Its expectation is `E(h − h*)²` plus a constant, the noise of the labels: only differences
    between estimators are meaningful. It is smallest for `h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y |
    q]⟩`, and the squared calibration error is the mean of `h*(P, P)`. h must not have been fitted
    to these samples, or the risk is too small.

    The standard error is the jackknife's,

        √( (n − 1)/n Σ_i (R_{−i} − mean)² ),   R_{−i} = risk without sample i,

    for symmetric h. It estimates √(4 ζ_1 / n) with the variance ζ_1 of the mean loss given one
    sample. It is conditional on this h, without the variability of h with its training data. Do not
    compare two functions on the same samples by it: the standard error of their difference is much
    smaller.

    For `Bernoulli`s both classes are included: products of residuals and h are twice, and the risk
    four times, the values for confidences, an array [n] with targets 0 and 1. G24's tables of
    top-label calibration use the latter. For class-wise risks, use the reduction
    `estimators.class_wise` and `vmap`.

    Args:
        values: h(p_i, p_j), [n, n]; or a function of two batches (p, q) → [n, n'] such as
            `functools.partial(function.evaluate, params)`. It is called under `vmap` with one point
            and all points. The diagonal is not used.
        predictions: batch of n ≥ 2 class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].

    Returns:
        The estimate and its standard error; NaN under `jit` for labels out of range.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or n < 2.

    Cost: O(n² m) time in matrix products and n² values of h, O(n · tile) memory besides `values`.

    References: G24 eq. (20); Arvesen (1969) for the jackknife of U-statistics.

    >>> import jax.numpy as jnp
    >>> confidences, correct = jnp.array([0.5, 0.5, 0.8]), jnp.array([1, 0, 1])
    >>> risk = estimation_risk(jnp.zeros((3, 3)), confidences, correct)
    >>> print(f"{risk.value:.4f}, standard error {risk.standard_error:.4f}")
    0.0275, standard error 0.0350
    """
    errors, n = residuals(predictions, targets), len(targets)
    if callable(values):
        losses = losses_of_values(errors, values, predictions)
    else:
        checks.shape("values", values, (n, n), f"[n, n] = {(n, n)}")
        losses = _losses(errors, lambda _, row: row, None, values)
    squares = jnp.sum(jnp.square(losses - jnp.mean(losses)))
    # Without sample i the risk is (n R − 2 losses_i) / (n − 2).
    error = jnp.sqrt(4 * (n - 1) / n * squares) / (n - 2 or math.nan)
    return RiskEstimate(jnp.mean(losses), error)


def _error_of_mean(x: jax.Array) -> jax.Array:
    """Standard error of a mean, NaN for a single value."""
    return jnp.std(x, ddof=1) / math.sqrt(x.size)


def losses_of_values(
    errors: jax.Array, values: Callable, predictions: Distribution, name: str = "values"
) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; h is a function of two batches."""
    n = len(errors)

    def row(batch: Distribution, point: Distribution) -> jax.Array:
        row = values(jax.tree.map(lambda x: x[None], point), batch)
        checks.shape(name, row, (1, n), f"[n, n'] = {(1, n)} of its values for two batches")
        return checks.real(name, row)[0]

    return _losses(errors, row, predictions, predictions)


def losses_of_factors(errors: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Mean loss over the pairs of each sample, [n], for h(p_i, p_j) = Σ_k left_ik right_jk.

    With u_i = (errors_i, left_i) and v_j = (errors_j, −right_j), the sums Σ_j (u_i · v_j)² are
    quadratic forms u_iᵀ (Σ_j v_j v_jᵀ) u_i, in O(n (m + r)²) time if that is faster.
    """
    n = len(errors)
    checks.shape("function.factors", left, (n, None), f"[n, r] with n = {n}")
    checks.shape("function.factors", right, left.shape, "[n, r], as the left one")
    size = errors.shape[1] + left.shape[1]
    if 4 * size > n:
        return _losses(errors, lambda right, row: matmul(right, row), right, left)
    u, v = jnp.concatenate([errors, left], 1), jnp.concatenate([errors, -right], 1)
    sums = jnp.sum(matmul(u, matmul(v.T, v)) * u, 1) - jnp.square(jnp.sum(u * v, 1))
    return jnp.maximum(sums, 0) / (n - 1)  # rounding


def _losses(errors: jax.Array, row: Callable, args: PyTree, points: PyTree) -> jax.Array:
    """Mean loss over the pairs of each sample, [n]; row(args, point) returns its values of h."""
    n = len(errors)

    def mean_loss(args: PyTree, point: PyTree) -> jax.Array:
        (errors, args), (error, index, point) = args, point
        losses = jnp.square(matmul(errors, error) - row(args, point))
        return jnp.sum(jnp.where(jnp.arange(n) == index, 0, losses)) / (n - 1)

    return operators.map_rows(mean_loss, (errors, args), (errors, jnp.arange(n), points))


_Samples = tuple[Any, jax.Array]  # predictions, targets


def _grid(name: str, value: Any, seen: Seen) -> jax.Array:
    value = checks.real(name, checks.as_arrays(name, value))
    checks.shape(name, value, (None,), "[k]")
    checks.leading_size(name, value)
    return checks.finite(name, value)


@checked(**meanings("predictions"), grid=_grid)
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

    The samples are randomly divided into folds. The function is fitted to all folds but one, and
    its risk (`estimation_risk`) on the fold held out is computed at every grid point. One
    factorisation suffices if the function has `EstimationFunction.refit`. To compare two functions,
    use the same key and hence the same folds.

    The smallest risk on the grid slightly underestimates the risk of the selected function. A
    choice at the edge of the grid indicates that the grid may be too small.

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
            samples in a fold, or a risk is NaN (under `jit` it is returned).

    Cost: F fits (F k without `refit`), and O(F k) evaluations on n/F points, one after the other,
    with the memory of one evaluation. Two fold sizes are compiled separately.

    References: G24 §3.2.2 and §5.2.

    >>> import jax
    >>> import jax.numpy as jnp
    >>> from calibjax.risk import Binning
    >>> confidences = jax.random.uniform(jax.random.key(0), (2000,))
    >>> correct = jax.random.uniform(jax.random.key(1), (2000,)) < confidences**4
    >>> grid = jnp.array([1, 10, 1000])
    >>> result = cross_validate(jax.random.key(2), Binning(1000), grid, confidences, correct)
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
    """Cross-validation of checked arguments, with values at other predictions, if given."""
    n = len(samples[1])
    if n < 2 * num_folds:
        at_least = f"at least {2 * num_folds} samples for num_folds={num_folds}"
        raise ValueError(f"predictions: expected {at_least} and a test part, got {n}")
    if jnp.issubdtype(grid.dtype, jnp.floating):
        grid = grid.astype(floating_dtype(samples[0]))
    function = function.specialise(samples[0], grid)
    result = _of_folds(key, function, grid, samples, test, num_folds=num_folds)
    if checks.is_concrete(result):  # only a failing function returns NaN
        values = result.risks + jnp.sum(result.test_values, -1)
        expected = "a function whose values in each fold and at each grid point are numbers"
        checks.refuse_where(jnp.isnan(values), "function", expected, values)
    if jnp.issubdtype(grid.dtype, jnp.integer):
        return result
    return dataclasses.replace(result, grid=checks.nan_unless(~jnp.isnan(result.risk), grid))


@functools.partial(jax.jit, static_argnames="num_folds")
def _of_folds(
    key: jax.Array,
    function: EstimationFunction,
    grid: jax.Array,
    samples: _Samples,
    test: Distribution | None,
    *,
    num_folds: int,
) -> CrossValidation:
    """Losses in the folds, consecutive samples in a random order, larger folds first."""
    order = jax.random.permutation(key, len(samples[1]))
    sizes = np.bincount(np.arange(order.size) % num_folds)
    numbers = jnp.repeat(jnp.arange(num_folds, dtype=jnp.int32), sizes)
    dtype = floating_dtype(samples[0])

    def of_fold(start: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        rolled = jnp.roll(order, -start)
        held_out, rest = _at(samples, rolled[:size]), _at(samples, rolled[size:])
        first, errors = function.fit(*rest, grid[0]), residuals(*held_out)

        def at(hyperparameter: jax.Array) -> tuple[jax.Array, jax.Array]:
            params = function.refit(first, hyperparameter)
            if params is None:
                params = function.fit(*rest, hyperparameter)
            values = jnp.zeros(0) if test is None else function.diagonal(params, test)
            if (factors := function.factors(params, held_out[0])) is not None:
                losses = losses_of_factors(errors, *factors)
            else:
                evaluate = functools.partial(function.evaluate, params)
                losses = losses_of_values(errors, evaluate, held_out[0], "function.evaluate")
            return losses.astype(dtype), values.astype(dtype)

        return lax.map(at, grid)

    losses, values = [], []
    for size in sorted(set(sizes.tolist()), reverse=True):
        starts = (np.cumsum(sizes) - sizes)[sizes == size]
        new_losses, new_values = lax.map(functools.partial(of_fold, size=size), starts)
        losses.append(jnp.moveaxis(new_losses, 0, 1).reshape(grid.size, -1))
        values.append(new_values)
    in_order, folds = (x[..., jnp.argsort(order)] for x in (jnp.concatenate(losses, 1), numbers))
    return CrossValidation(grid, folds, in_order, jnp.concatenate(values))


def _at(samples: T, index: jax.Array) -> T:
    """Samples at an index."""
    return jax.tree.map(lambda leaf: leaf[index], samples)


@record
class SquaredCalibrationError:
    """Estimate of the squared calibration error, with intermediate results.

    Attributes:
        estimate: mean of h(p_i, p_i) over the test part and the functions of all folds. It may be
            negative.
        standard_error: standard error over the folds, as in G24. The folds share training data and
            the test part, so it includes only a part of the error of the fits.
        sampling_error: standard error over the test part, for the mean of the functions.
        root: calibration error, the signed square root of the estimate.
        root_standard_error: standard error over the roots of the folds.
        hyperparameter: hyperparameter with the smallest risk.
        fold_estimates: estimates of the folds, [F].
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
    fold_estimates: jax.Array
    cross_validation: CrossValidation
    tuning: jax.Array
    test: jax.Array


@checked(**meanings("predictions"), grid=_grid)
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

    The samples are split at random into a tuning and a test part. `cross_validate` on the tuning
    part selects the hyperparameter with the smallest risk. The functions fitted with it, one for
    each fold, estimate the error on the test part,

        1/F Σ_f 1/t Σ_i h_f(p_i, p_i),

    without using the targets of the test part. Compare estimators by their risks, with the same
    key, never by their estimates on the test part.

    The estimate is biased. For calibrated models, whose error is zero, it is too large. For
    miscalibrated ones it is often too small, because functions tuned on few samples are shrunk;
    `KernelDensity` can be too large.

    The predictions determine the notion of calibration:

    - canonical for class predictions;
    - top-label for `confidences.probs` and `correct` of `estimators.top_label` as arrays (twice the
      value for `Bernoulli`s, with both classes);
    - class-wise under `vmap` over `estimators.class_wise`.

    Args:
        key: random key, which determines the test part and the folds.
        function: the function to fit, as in `cross_validate`.
        grid: hyperparameters, [k].
        predictions: batch of n class predictions, or confidences in [0, 1], [n].
        targets: labels 0, ..., m − 1, or 0 and 1, [n].
        num_folds: F ≥ 2.
        test_fraction: in (0, 1): t is the nearest integer to test_fraction · n, at least 1.

    Returns:
        The estimate, its root, and standard errors.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: as in `cross_validate`, and if the tuning part has fewer than 2 num_folds
            samples.

    Cost: `cross_validate`, and evaluation on the test part at all k grid points, O(F k t) memory.

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
    parts = _at(samples, tuning), _at(predictions, test)
    result = _run_folds(fold_key, function, grid, *parts, num_folds)
    return _summary(result, tuning, test)


@jax.jit
def _summary(
    result: CrossValidation, tuning: jax.Array, test: jax.Array
) -> SquaredCalibrationError:
    """Estimate at the best grid point, and its errors."""
    best = result.best
    values = jnp.where(jnp.isnan(result.risk[best]), jnp.nan, result.test_values[:, best])
    folds = jnp.mean(values, 1)
    estimate = jnp.mean(folds)

    def root(x: jax.Array) -> jax.Array:
        return jnp.sign(x) * jnp.sqrt(jnp.abs(x))

    return SquaredCalibrationError(
        estimate=estimate,
        standard_error=_error_of_mean(folds),
        sampling_error=_error_of_mean(jnp.mean(values, 0)),
        root=root(estimate),
        root_standard_error=_error_of_mean(root(folds)),
        hyperparameter=result.hyperparameter,
        fold_estimates=folds,
        cross_validation=result,
        tuning=tuning,
        test=test,
    )
