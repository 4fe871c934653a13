"""The form of everything that is learned to recalibrate predictions."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Recalibrator(NamedTuple):
    """A pair of pure functions that learns to correct predictions, and corrects them.

    Attributes:
        fit: (predictions, targets) → params, a pytree of arrays.
        apply: (params, predictions) → corrected predictions.

    Fit on one part of the data and evaluate on another: predictions that are corrected with their
    own targets look better calibrated than they are.
    """

    fit: Callable[..., Any]
    apply: Callable[..., Any]
