"""Base classes of recalibration methods, and powers of distributions."""

import functools
import warnings
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.environment import jit_quick
from calibjax._core.gate import Seen, checked, usual
from calibjax._core.pytree import Numbers, PyTree, T, record
from calibjax.distributions import Bernoulli, Categorical
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import like
from calibjax.reductions import each_class

Weights: TypeAlias = jax.Array | None


class Recalibrator:
    """Base class of recalibration methods.

    Methods for whole distributions take batches of distributions; methods for the confidence in a
    predicted class take confidences and 0 or 1 as targets (`correct`). Other inputs, such as
    features or groups, are further arguments of `fit` and `apply`. These are pure functions, which
    can be compiled and mapped over data sets.

    `fit` takes weights of the samples, `weights`, w ≥ 0, [n], if it has a keyword argument of this
    name; all methods here have it. An integer is a number of copies. A common factor of the weights
    has no effect, unless a docstring states that their scale matters.

    Fit on one part of the data and evaluate on another: predictions that are recalibrated with
    their own targets appear better calibrated than they are.
    """

    def fit(self, *arguments: Any, **others: Any) -> PyTree:
        """Fit params, a pytree of arrays, to predictions and targets."""
        raise NotImplementedError(f"{type(self).__name__} does not define fit")

    def apply(self, params: PyTree, *arguments: Any, **others: Any) -> PyTree:
        """Recalibrated predictions."""
        raise NotImplementedError(f"{type(self).__name__} does not define apply")

    def identity(self, predictions: Any) -> PyTree:
        """Params for which `apply` is the identity.

        The derivatives there are the scores of `kernels.Fisher`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define identity")

    @checked(minimum=2)
    def cross_fitted(
        self,
        key: jax.Array,
        predictions: Distribution,
        targets: Numbers,
        *,
        weights: Numbers | None = None,
        num_folds: int = 5,
    ) -> Distribution:
        """Recalibrated predictions, each by parameters that were fitted to other samples.

        The samples are divided into folds at random. The predictions of each fold are recalibrated
        with the parameters that were fitted to all other folds. Use them with every estimator and
        score. Tests of them can reject far too often, because the fits have errors, or too
        rarely; use `hypothesis_tests.composite_calibration_test`.

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

        Cost: a fit and an application to all predictions for each fold, in one program; memory for
        all predictions times the number of folds.

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
        return cross_fitted(key, self, predictions, targets, weights, num_folds)


def cross_fitted(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    targets: jax.Array,
    weights: Weights,
    num_folds: int,
) -> Distribution:
    """`Recalibrator.cross_fitted` for any record with methods `fit` and `apply`."""
    usual("recalibration")("recalibration", recalibration, Seen({}))
    if num_folds > len(predictions):
        raise ValueError(f"num_folds: expected at most n = {len(predictions)}, got {num_folds}")
    samples = predictions, targets, weights
    recalibrated, folds, is_missing = _out_of_fold(recalibration, num_folds, key, samples)
    if checks.is_concrete(is_missing) and np.any(is_missing):
        fold = folds[np.argmax(is_missing)]
        raise ValueError(f"recalibration: expected a fit outside of each fold, got nan for {fold}")
    return recalibrated


@functools.partial(jit_quick, static_argnums=(0, 1))
def _out_of_fold(
    recalibration: Any, num_folds: int, key: jax.Array, samples: tuple
) -> tuple[PyTree, jax.Array, jax.Array]:
    """Predictions by params of the other folds, the folds, and which predictions do not exist.

    A fold is every K-th sample in a random order in which samples without weight are last.
    """
    predictions, targets, weights = samples
    n = len(predictions)
    weights = jnp.ones(n, floating_dtype(predictions)) if weights is None else weights
    places = jnp.where(weights > 0, jax.random.uniform(key, (n,)), 2)
    folds = jnp.argsort(jnp.argsort(places)) % num_folds

    def by_others(fold: jax.Array) -> Distribution:
        others = jnp.where(folds == fold, 0, weights)
        params = recalibration.fit(predictions, targets, weights=others)
        values = recalibration.apply(params, predictions)
        return values if checks.is_distribution(values) else Bernoulli(values)

    each = jax.lax.map(by_others, jnp.arange(num_folds))
    found = jax.tree.map(lambda leaf: leaf[folds, jnp.arange(n)], each)
    return found, folds, checks.missing_rows(found)


@record
class ClassWiseParams:
    """Params of a recalibrator of confidences for each class against the rest.

    Attributes:
        params: params of the recalibrator; every array has a leading axis m for the classes.
    """

    params: Any


def is_of_classes(predictions: object) -> bool:
    """Whether these are class predictions other than `Bernoulli`s, which are confidences."""
    return hasattr(predictions, "class_probs") and not hasattr(predictions, "__jax_array__")


def _confidences(name: str, value: Any, seen: Seen) -> Any:
    """Confidences, or class predictions."""
    return usual("predictions" if is_of_classes(value) else "confidences")(name, value, seen)


def _correct(name: str, value: Any, seen: Seen) -> Any:
    """Correctness, 0 or 1, or labels."""
    has_labels = is_of_classes(seen["confidences"])
    return usual("targets" if has_labels else "correct")(name, value, seen)


def _params(name: str, value: Any, seen: Seen) -> Any:
    """Params of the record, or for class predictions with a leading axis m."""
    kind = seen["self"]._learns
    if not is_of_classes(seen["confidences"]):
        return checks.learned(name, value, kind)
    params = checks.learned(name, value, ClassWiseParams).params
    params = checks.learned(f"{name}.params", params, kind, leading=("m",))
    fitted, m = len(jax.tree.leaves(params)[0]), seen["confidences"].class_probs.shape[1]
    if fitted != m:
        raise ValueError(f"{name}: expected params of {m} classes, got params of {fitted}")
    return ClassWiseParams(params)


class ConfidenceRecalibrator(Recalibrator):
    """Recalibrator of confidences, and of class predictions one class against the rest.

    With class predictions and labels, `fit` is given the probability of each class and whether that
    class was observed. `apply` normalises the new probabilities; if all are zero, the result is
    uniform.
    """

    # If these were ClassVars, records could not be typed.
    _learns: type  # class of the params
    _fit: Any  # (confidences, correct, weights) → params
    _apply: Any  # (params, confidences) → new confidences

    # Whether the number of samples matters, and so the sum of the weights.
    _counts_samples: Any = False

    def _is_kept(self, params: Any, confidences: jax.Array) -> jax.Array:
        """Mask of confidences that are kept for lack of samples."""
        return jnp.zeros(confidences.shape, bool)

    def identity(self, predictions: Any) -> PyTree:
        """Params for which `apply` is the identity, one for each class of class predictions."""
        if is_of_classes(predictions):
            ones = jnp.ones_like(predictions.class_probs[0])
            return ClassWiseParams(jax.vmap(self._identity)(ones))
        return self._identity(jnp.ones((), floating_dtype(predictions)))

    @checked(copies=lambda x: x._counts_samples, confidences=_confidences, correct=_correct)
    def fit(self, confidences: PyTree, correct: PyTree, weights: Numbers | None = None) -> PyTree:
        """Fit params to confidences [n] and correctness, 0 or 1, [n]; or to classes and labels."""
        if not is_of_classes(confidences):
            params = _fitted(self, confidences, correct, weights)
            _refuse_missing(params, "")
            return params
        each, correct = each_class(confidences.class_probs, correct)
        labels = correct.astype(each.probs.dtype)
        params = _fitted_to_each(self, each.probs, labels, weights)
        numbers = jax.device_get(params) if checks.is_concrete(params) else params
        for c in range(len(correct)):
            place = f" of class {c} against the rest"
            _refuse_missing(jax.tree.map(lambda leaf, c=c: leaf[c], numbers), place)
        return ClassWiseParams(params)

    @checked(params=_params, confidences=_confidences)
    def apply(self, params: PyTree, confidences: PyTree) -> PyTree:
        """New confidences, [n], or a batch of `Categorical`s for class predictions."""
        if is_of_classes(confidences):
            probs = confidences.class_probs.T
            values, is_kept = _applied_to_each(self, params.params, probs)
            values = like(confidences, Categorical(_normalised(values.T)))
        else:
            values, is_kept = _applied(self, params, confidences)
        warn_about_kept(type(self).__name__, is_kept)
        return values

    _identity = Recalibrator.identity  # params of the identity, of the dtype of this number


@jit_quick
def _fitted(
    method: ConfidenceRecalibrator, confidences: jax.Array, correct: jax.Array, weights: Weights
) -> PyTree:
    """Params; NaN if traced samples are not probabilities with 0 and 1."""
    is_bad = jnp.any(checks.missing_rows((confidences, correct, weights)))
    return where_it_exists(~is_bad, method._fit(confidences, correct, weights))


@jit_quick
def _applied(
    method: ConfidenceRecalibrator, params: Any, confidences: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """New confidences, NaN for NaN, and the mask of kept ones."""
    values = jnp.where(jnp.isnan(confidences), jnp.nan, method._apply(params, confidences))
    return values, method._is_kept(params, confidences)


_fitted_to_each = jit_quick(jax.vmap(_fitted, (None, 0, 0, None)))
_applied_to_each = jit_quick(jax.vmap(_applied, (None, 0, 0)))


def _refuse_missing(params: PyTree, place: str) -> None:
    """Refuses params that do not exist, which are NaN."""
    numbers = [x for x in jax.tree.leaves(params) if jnp.issubdtype(x.dtype, jnp.floating)]
    if checks.is_concrete(params) and all(np.isnan(x).all() for x in numbers):
        raise ValueError(
            f"confidences{place}: expected different values, correct and wrong ones, and no "
            "threshold between these; PlattScaling(smooth_targets=True) needs different values only"
        )


def where_it_exists(exists: jax.Array, params: T) -> T:
    """Params, with missing values where the optimum does not exist."""

    def masked(leaf: jax.Array) -> jax.Array:
        is_integer = jnp.issubdtype(leaf.dtype, jnp.integer)
        return (checks.missing_unless if is_integer else checks.nan_unless)(exists, leaf)

    return jax.tree.map(masked, params)


def _normalised(values: jax.Array) -> jax.Array:
    """Rows divided by their sum, uniform if that is zero."""
    sums = jnp.sum(values, 1, keepdims=True)
    return jnp.where(sums == 0, 1 / values.shape[1], values / jnp.where(sums == 0, 1, sums))


def warn_about_kept(name: str, is_kept: jax.Array) -> None:
    """Warns the caller of `apply` that confidences were kept for lack of calibration samples."""
    if checks.is_concrete(is_kept) and (number := np.count_nonzero(is_kept)):
        kept = f"{number} of {is_kept.size} confidences are in bins without calibration samples"
        warnings.warn(f"{name}: {kept} and were kept", UserWarning, stacklevel=4)


def tempered(p: T, temperature: jax.Array | float) -> T:
    """Distribution p at temperature T, see `TemperatureScaling`; use `vmap` for a batch.

    Raises:
        NotImplementedError: if the family has no rule.
    """
    rule = getattr(p, "tempered", None)
    if rule is None:
        raise NotImplementedError(
            f"tempered is not defined for {type(p).__name__}; define the method of this name"
        )
    return rule(jnp.asarray(temperature, floating_dtype(p)))
