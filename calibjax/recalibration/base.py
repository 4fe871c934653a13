"""Base classes of recalibration methods, and powers of distributions."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import PyTree, T, record
from calibjax.distributions import Bernoulli, Categorical
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import like
from calibjax.lenses import each_class


class Recalibrator:
    """Base class of records that learn to correct predictions, and correct them.

    Methods that correct whole distributions take batches of distributions; methods that correct the
    confidence in a predicted class take confidences and 0 or 1 as targets (`correct`). Other
    inputs, such as features or groups, are further arguments of `fit` and `apply`. These are pure
    functions, which can be compiled and mapped over data sets. `fit` takes weights of the samples,
    `weights`, w ≥ 0, [n], if it has a keyword argument of this name: all methods here have it. An
    integer is that number of copies. Multiplying all of them by a constant changes nothing, except
    where a docstring says that the number of samples matters.

    Fit on one part of the data and evaluate on another: predictions that are corrected with their
    own targets look better calibrated than they are.
    """

    def fit(self, *arguments: Any, **others: Any) -> PyTree:
        """Learns params, a pytree of arrays, from predictions and targets."""
        raise NotImplementedError(f"{type(self).__name__} does not define fit")

    def apply(self, params: PyTree, *arguments: Any, **others: Any) -> PyTree:
        """Corrected predictions."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    def identity(self, predictions: Any) -> PyTree:
        """The params with which `apply` changes nothing.

        The derivatives there are the scores of `kernels.Fisher`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define identity")

    def cross_fitted(
        self,
        key: jax.Array,
        predictions: Distribution,
        targets: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        num_folds: int = 5,
    ) -> Distribution:
        """Recalibrated predictions, each by parameters that were fitted to other samples.

        The samples are divided into folds at random. The predictions of each fold are recalibrated
        with the parameters that were fitted to all other folds. They can be passed to every
        estimator and score. Tests of them reject too often because the fits have errors: see
        `hypothesis_tests.composite_calibration_test`.

        Args:
            key: a JAX random key.
            predictions: batch of n distributions.
            targets: [n] or [n, d].
            weights: w ≥ 0 of the samples, [n].
            num_folds: number of folds, from 2 to n.

        Returns:
            A batch of n distributions.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong, or the recalibration cannot be fitted to the
                samples outside of some fold.

        Cost: a fit and an application to all predictions for each fold, in one program.

        References: Zadrozny and Elkan (2002), Transforming classifier scores into accurate
        multiclass probability estimates; Chernozhukov et al. (2018), Double/debiased machine
        learning, for the name.

        >>> import jax, jax.numpy as jnp
        >>> from calibjax import distributions, recalibration
        >>> predictions = distributions.Normal(jnp.zeros(4), jnp.ones(4))
        >>> method, targets = recalibration.AffineScaling(), jnp.array([1.0, 2.0, 4.0, 9.0])
        >>> print(method.cross_fitted(jax.random.key(0), predictions, targets, num_folds=4).loc)
        [5.        4.6666665 4.        2.3333333]
        """
        return cross_fitted(key, self, predictions, targets, weights=weights, num_folds=num_folds)


def cross_fitted(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    weights: ArrayLike | None,
    num_folds: int,
) -> Distribution:
    """See `Recalibrator.cross_fitted`; any record with its methods `fit` and `apply` will do."""
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2, keep_logs=True
    )
    n = checks.leading_size("predictions", predictions)
    num_folds = checks.size_in_range("num_folds", num_folds, 2, n)
    for name, arguments in (("fit", ("predictions", "targets")), ("apply", ("params", "p"))):
        method, keywords = getattr(recalibration, name, None), ("weights",) * (name == "fit")
        checks.function("method", f"recalibration.{name}", method, *arguments, keywords=keywords)
    samples = checks.random_key(key), predictions, targets, weights
    folds, recalibrated = _out_of_fold(recalibration, num_folds, *samples)
    is_missing = checks.missing_rows(recalibrated)
    if checks.is_concrete(is_missing) and bool(jnp.any(is_missing)):
        _refuse_fold(int(folds[jnp.argmax(is_missing)]), folds, recalibration, *samples[1:])
    return recalibrated


@functools.partial(jax.jit, static_argnums=(0, 1))
def _out_of_fold(
    recalibration: Any,
    num_folds: int,
    key: jax.Array,
    predictions: Distribution,
    targets: jax.Array,
    weights: jax.Array | None,
) -> tuple[jax.Array, PyTree]:
    """The fold of each sample, [n], and its prediction by what the other folds taught.

    Folds are every K-th in a random order, in which samples without weight come last.
    """
    n = checks.leading_size("targets", targets)
    places = jax.random.uniform(key, (n,))
    places = places if weights is None else jnp.where(weights > 0, places, 2)
    folds = jnp.argsort(jnp.argsort(places)) % num_folds
    weights = jnp.ones(n, floating_dtype(predictions)) if weights is None else weights

    def by_others(fold: jax.Array) -> Distribution:
        others = jnp.where(folds == fold, 0, weights)
        params = recalibration.fit(predictions, targets, weights=others)
        values = recalibration.apply(params, predictions)
        return values if checks.is_distribution(values) else Bernoulli(values)

    def fill(filled: Distribution, fold: jax.Array) -> tuple[PyTree, None]:
        def choose(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where((folds == fold).reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        return jax.tree.map(choose, by_others(fold), filled), None

    shapes = jax.eval_shape(by_others, jnp.int32(0))
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return folds, jax.lax.scan(fill, empty, jnp.arange(num_folds))[0]


def _refuse_fold(fold: int, folds: jax.Array, recalibration: Any, *samples: object) -> NoReturn:
    """Says why a recalibration has no parameters for a fold, as far as its `fit` does."""
    predictions, targets, weights = jax.tree.map(lambda leaf: leaf[folds != fold], samples)
    reason = "its parameters are nan"
    try:
        recalibration.fit(predictions, targets, weights=weights)
    except ValueError as error:
        reason = str(error)
    raise ValueError(
        f"recalibration: expected one that the samples outside of fold {fold} determine, got "
        f"{checks.described(recalibration)}: {reason}"
    )


@record
class ClassWiseParams:
    """What a recalibrator of confidences learns about each class against the rest.

    Attributes:
        params: params of the recalibrator, with a leading axis m for the classes on every array.
    """

    params: Any


class ConfidenceRecalibrator(Recalibrator):
    """A recalibrator of confidences, and of class predictions one class against the rest.

    With class predictions and labels, `fit` learns from the probability of each class and whether
    that class was observed, and `apply` normalises the new probabilities; if all are zero, the
    result is uniform.
    """

    _learns: type  # class of the params; if it were a ClassVar, records could not be typed

    def _counts_samples(self) -> bool:
        """Whether the number of samples matters, which is the sum of the weights then."""
        return False

    def identity(self, predictions: Any) -> PyTree:
        """The params with which `apply` changes nothing, for each class if there are classes."""
        if is_of_classes(predictions):
            ones = jnp.ones_like(predictions.class_probs[0])
            return ClassWiseParams(jax.vmap(self._identity)(ones))
        return self._identity(jnp.ones((), floating_dtype(predictions)))

    def fit(self, confidences: PyTree, correct: PyTree, weights: ArrayLike | None = None) -> PyTree:
        """Learns from confidences [n] and correctness, 0 or 1, [n]; or from classes and labels."""
        if not is_of_classes(confidences):
            samples = checks.weighted_confidences(
                confidences, correct, weights, as_copies=self._counts_samples()
            )
            return self._fit(*samples)
        names = "confidences", "correct"
        checks.same_rows(confidences=confidences, correct=correct, weights=weights)
        predictions, labels = checks.predictions_and_targets(confidences, correct, names=names)
        weights = checks.sample_weights(weights, predictions, as_copies=self._counts_samples())
        each, correct = each_class(predictions.class_probs, labels)
        fit = lambda r, c: self._fit(r, c, weights)  # noqa: E731
        params = jax.vmap(fit)(each.probs, correct.astype(each.probs.dtype))
        if checks.is_concrete(params):
            _refuse_missing(fit, params, each.probs, correct)
        return ClassWiseParams(params)

    def apply(self, params: PyTree, confidences: PyTree) -> PyTree:
        """New confidences, [n], or a batch of `Categorical`s for class predictions."""
        if not is_of_classes(confidences):
            params = checks.learned("params", params, self._learns)
            confidences = checks.confidence_array(confidences)
            values, is_kept = self._apply(params, confidences)
            self._warn(is_kept)
            return values
        checks.fitted("params", params, ClassWiseParams)
        probs = checks.batch(confidences, name="confidences").class_probs
        params = checks.learned("params", params.params, self._learns, leading=("m",))
        num_classes = checks.leading_size("params", params)
        expected = f"[n, {num_classes}], the classes that fit has seen"
        checks.shape("confidences.class_probs", probs, (None, num_classes), expected)
        values, is_kept = jax.vmap(self._apply)(params, probs.T)
        self._warn(is_kept)
        return like(confidences, Categorical(_normalised(values.T)))

    def _warn(self, is_kept: jax.Array | None) -> None:
        if is_kept is not None and checks.is_concrete(is_kept):
            warn_about_kept(type(self).__name__, np.asarray(is_kept), stacklevel=4)

    def _identity(self, one: jax.Array) -> PyTree:
        """Params that change nothing, of the dtype of this number."""
        return super().identity(one)

    def _fit(self, confidences: jax.Array, correct: jax.Array, weights: jax.Array | None) -> PyTree:
        """Params from checked confidences, correctness, both floating-point, and weights."""
        raise NotImplementedError

    def _apply(self, params: PyTree, confidences: jax.Array) -> tuple[jax.Array, Any]:
        """New confidences, and which ones are kept for lack of samples, if the method does that."""
        raise NotImplementedError


def is_of_classes(predictions: object) -> bool:
    """Whether these are class predictions and not confidences, as `Bernoulli`s are."""
    return hasattr(predictions, "class_probs") and not hasattr(predictions, "__jax_array__")


def _refuse_missing(
    fit: Callable[..., Any], params: PyTree, probs: jax.Array, correct: jax.Array
) -> None:
    """Raises the error of a class whose params do not exist, which are all NaN then."""
    leaves = [x for x in jax.tree.leaves(params) if jnp.issubdtype(x.dtype, jnp.floating)]
    is_nan = [np.isnan(x).reshape(len(probs), -1).all(1) for x in map(np.asarray, leaves)]
    for c in np.flatnonzero(np.all(is_nan, 0)):
        try:
            fit(probs[c], correct[c])
        except ValueError as error:
            raise ValueError(f"confidences: of class {c} against the rest, {error}") from error


@jax.jit
def _normalised(values: jax.Array) -> jax.Array:
    """Rows divided by their sum, uniform if that is zero."""
    sums = jnp.sum(values, 1, keepdims=True)
    return jnp.where(sums == 0, 1 / values.shape[1], values / jnp.where(sums == 0, 1, sums))


def warn_about_kept(name: str, is_kept: np.ndarray, *, stacklevel: int = 3) -> None:
    """Warns the caller of `apply` that confidences were kept for lack of calibration samples."""
    if is_kept.any():
        warnings.warn(
            f"{name}: {is_kept.sum()} of {is_kept.size} confidences are in bins without "
            "calibration samples and were kept",
            UserWarning,
            stacklevel=stacklevel,
        )


def tempered(p: T, temperature: jax.Array | float) -> T:
    """The distribution p at temperature T, as `TemperatureScaling` says; for a batch use `vmap`.

    Raises:
        TypeError: if the temperature is not a number.
        ValueError: if it is not positive and finite.
        NotImplementedError: if the family has no rule.
    """
    temperature = checks.positive_scalar("temperature", temperature)
    if not hasattr(p, "tempered"):
        raise NotImplementedError(
            f"tempered is not defined for {type(p).__name__}; define its method "
            "tempered(temperature), which returns another instance"
        )
    return _tempered(p, jnp.asarray(temperature, floating_dtype(p)))


@jax.jit
def _tempered(p: Any, temperature: jax.Array) -> Any:
    return p.tempered(temperature)
