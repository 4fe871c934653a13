"""The form of everything that is learned to recalibrate predictions."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


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


def warn_about_kept(name: str, is_kept: np.ndarray) -> None:
    """Warns the caller of `apply` that confidences were kept for want of calibration samples."""
    if is_kept.any():
        warnings.warn(
            f"{name}: {is_kept.sum()} of {is_kept.size} confidences are in bins without "
            "calibration samples and were kept",
            UserWarning,
            stacklevel=3,
        )
