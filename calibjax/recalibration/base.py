"""The form of everything that is learned to recalibrate predictions."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import record
from calibjax.distributions import Categorical
from calibjax.estimators import class_wise


class Recalibrator(NamedTuple):
    """A pair of pure functions that learns to correct predictions, and corrects them.

    Predictions are distributions where these are corrected as a whole, and confidences with 0 or 1
    as targets (`correct`) where only the confidence in a class is, whatever the class. What else a
    method looks at, features or groups, are further arguments of both functions.

    Attributes:
        fit: (predictions, targets) → params, a pytree of arrays.
        apply: (params, predictions) → corrected predictions.

    Fit on one part of the data and evaluate on another: predictions that are corrected with their
    own targets look better calibrated than they are.
    """

    fit: Callable[..., Any]
    apply: Callable[..., Any]


@record
class ClassWiseParams:
    """What a recalibrator of confidences learns of each class against the rest.

    Attributes:
        params: params of the recalibrator, with a leading axis m for the classes on every array.
    """

    params: Any


def also_of_classes(
    fit: Callable[..., Any],
    apply: Callable[..., Any],
    is_kept: Callable[[Any, jax.Array], jax.Array] | None = None,
) -> Recalibrator:
    """The recalibrator of confidences, and of class predictions one class against the rest.

    With predictions of classes and labels, `fit` learns from the probability of each class and
    whether that class came, and `apply` divides the new probabilities by their sum; where that is
    zero, all classes are equally probable.

    Args:
        fit: (confidences, correct) → params; can be mapped.
        apply: (params, confidences) → confidences; can be mapped.
        is_kept: (params, confidences) → which confidences `apply` keeps for want of samples, if
            it does that.
    """

    def fit_either(predictions: Any, targets: Any) -> Any:
        if not _is_of_classes(predictions):
            return fit(predictions, targets)
        each, correct = class_wise(predictions, targets)
        params = jax.vmap(fit)(each.probs, correct)
        if _checks.is_concrete(params):
            _refuse_missing(fit, params, each.probs, correct)
        return ClassWiseParams(params)

    def apply_either(params: Any, predictions: Any) -> Any:
        if not _is_of_classes(predictions):
            return apply(params, predictions)
        _checks.fitted("params", params, ClassWiseParams)
        probs = _checks.batch(predictions).class_probs
        num_classes = _checks.leading_size("params", params)
        expected = f"[n, {num_classes}], the classes that fit has seen"
        _checks.shape("predictions.class_probs", probs, (None, num_classes), expected)
        values = jax.vmap(apply)(params.params, probs.T).T
        if is_kept is not None and _checks.is_concrete(params, probs):
            warn_about_kept(
                "histogram_binning", np.asarray(jax.vmap(is_kept)(params.params, probs.T))
            )
        return Categorical(_normalised(values))

    return Recalibrator(fit_either, apply_either)


def _is_of_classes(predictions: Any) -> bool:
    """Whether these are predictions of classes, but no confidences, which `Bernoulli`s are too."""
    return hasattr(predictions, "class_probs") and not hasattr(predictions, "__jax_array__")


def _refuse_missing(fit: Callable[..., Any], params: Any, probs: jax.Array, correct: Any) -> None:
    """Raises the error of a class without params, all of which are NaN then."""
    leaves = [x for x in jax.tree.leaves(params) if jnp.issubdtype(x.dtype, jnp.floating)]
    is_nan = [np.isnan(x).reshape(len(probs), -1).all(1) for x in map(np.asarray, leaves)]
    for c in np.flatnonzero(np.all(is_nan, 0)):
        try:
            fit(probs[c], correct[c])
        except ValueError as error:
            raise ValueError(f"predictions: of class {c} against the rest, {error}") from error


@jax.jit
def _normalised(values: jax.Array) -> jax.Array:
    """Rows divided by their sum, uniform where that is zero."""
    sums = jnp.sum(values, 1, keepdims=True)
    return jnp.where(sums == 0, 1 / values.shape[1], values / jnp.where(sums == 0, 1, sums))


def warn_about_kept(name: str, is_kept: np.ndarray, *, stacklevel: int = 3) -> None:
    """Warns the caller of `apply` that confidences were kept for want of calibration samples."""
    if is_kept.any():
        warnings.warn(
            f"{name}: {is_kept.sum()} of {is_kept.size} confidences are in bins without "
            "calibration samples and were kept",
            UserWarning,
            stacklevel=stacklevel,
        )
