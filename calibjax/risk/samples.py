"""Class predictions, or confidences, and their residuals."""

from typing import Any

import jax

from calibjax._core import checks
from calibjax._core.arithmetic import one_hot
from calibjax._core.pytree import PyTree


def checked(predictions: PyTree, targets: PyTree, *, minimum: int = 1) -> tuple[Any, jax.Array]:
    """Checks a data set of class predictions and labels, or of confidences and 0 or 1.

    Returns:
        A batch of distributions and labels, or two arrays [n] of the same dtype.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are fewer than `minimum` samples.
    """
    if checks.is_distribution(predictions):
        checks.class_predictions(predictions)
        return checks.predictions_and_targets(predictions, targets, minimum=minimum)
    names = ("predictions", "targets")
    samples = checks.confidences_and_correct(predictions, targets, names=names)
    checks.leading_size("predictions", samples[0], minimum)
    return samples


def checked_points(predictions: Any, num_components: int | None = None, name: str = "p") -> PyTree:
    """Checks predictions, or confidences, without targets.

    With `num_components` they have to be of the same kind as those used for fitting: confidences
    if it is 1, otherwise predictions of that many classes.
    """
    if checks.is_distribution(predictions):
        checks.class_predictions(predictions)
        predictions = checks.batch(predictions, name=name)
    else:
        predictions = checks.confidence_array(predictions, name)
    number = vectors(predictions).shape[1]
    if num_components not in (None, number):
        expected, got = map(_described, (num_components, number))
        raise ValueError(f"{name}: expected {expected}, as those of fit, got {got}")
    return predictions


def _described(num_components: int) -> str:
    return "confidences" if num_components == 1 else f"predictions of {num_components} classes"


def vectors(predictions: Any) -> jax.Array:
    """Predictions as vectors: class probabilities, [n, m], or confidences, [n, 1]."""
    if hasattr(predictions, "class_probs"):
        return predictions.class_probs
    return predictions[:, None]


def residuals(predictions: Any, targets: jax.Array) -> jax.Array:
    """Predictions minus observations, p_i − e_{y_i}, [n, m], or c_i − y_i, [n, 1].

    Targets out of range, which are not refused under `jit`, give NaN.
    """
    probs = vectors(predictions)
    if not hasattr(predictions, "class_probs"):
        return probs - targets[:, None]
    return probs - one_hot(targets, probs.shape[1], probs.dtype)
