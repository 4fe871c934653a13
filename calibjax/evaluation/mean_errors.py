"""Mean errors of groups of samples: entries, and p-values for sentences."""

import math
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from calibjax.evaluation.record import Entry
from calibjax.hypothesis_tests import CalibrationTestResult

_POWER = 0.84  # the 80 % quantile of the standard normal distribution


def mean_error(
    name: str,
    call: str,
    test: CalibrationTestResult,
    place: tuple[int, ...],
    residuals: ArrayLike,
    members: ArrayLike,
) -> tuple[Entry, float]:
    """The entry of one error of a `group_calibration_test`, and its p-value for sentences.

    The exact p-value asks whether a calibrated model has such an error. Of a model that is not
    calibrated in another way, say with targets that scatter more than predicted, it may be small
    although the error is zero. Sentences that name this very error therefore take the larger one
    of the exact p-value and of that of a z-test with the observed scatter.

    Args:
        name: of the entry.
        call: of the test, an expression.
        test: its result.
        place: of the error in its arrays.
        residuals: observed minus predicted values, [n].
        members: weights of the samples in the group, [n].

    Returns:
        The entry, with a 95 % interval from the observed scatter if there is any, and the range
        of its adjusted p-value; and the p-value for sentences.
    """
    value, pvalue = (float(np.asarray(x)[place]) for x in (test.estimate, test.adjusted_pvalue))
    chance = float(test.critical_value()[place])
    weights = np.asarray(members, float)
    weights = weights / np.abs(weights).sum()
    error = _standard_error(weights, np.asarray(residuals, float), value)
    reach = None if error == 0 else 1.96 * error
    entry = Entry(
        name,
        value,
        low=None if reach is None else value - reach,
        high=None if reach is None else value + reach,
        by_chance=(-chance, chance),
        pvalue=pvalue,
        function=f"{call}.estimate[{', '.join(map(str, place))}]",
    )
    observed = _two_sided(value, error) * np.size(test.estimate)
    return entry, min(1.0, max(pvalue, observed))


def _standard_error(weights: np.ndarray, residuals: np.ndarray, mean: float) -> float:
    """That of a weighted mean, zero where the residuals do not scatter; of equal weights sd / √n.

    Args:
        weights: whose absolute values sum to one, [n].
        residuals: [n].
        mean: theirs.
    """
    squares = float(np.sum(weights**2))
    scatter = np.square(weights * (residuals - mean))
    rounding = 1e-6 * np.abs(weights * residuals).max()
    if squares > 1 - 1e-6 or math.sqrt(scatter.max()) <= rounding:
        return 0.0
    return math.sqrt(scatter.sum() / (1 - squares))  # n / (n - 1) of equal weights


def _two_sided(value: float, error: float) -> float:
    """p-value of a z-test."""
    if error == 0:
        return float(value == 0)
    return math.erfc(abs(value) / error / math.sqrt(2))


def detectable(test: CalibrationTestResult, level: float) -> np.ndarray:
    """Errors of the first group, [k] or (), that the test finds with a probability of about 80 %.

    Its critical value, in standard errors of each entry, is that of the largest of all entries.

    Args:
        test: of group 0 alone, or of it and others.
        level: of the test.
    """
    null = np.asarray(test.null_samples, float)
    errors = np.sqrt(np.mean(null**2, 0))
    largest: Any = np.max(null / np.where(errors > 0, errors, 1), tuple(range(1, null.ndim)))
    return detectable_size(largest, errors[0], level)


def detectable_size(largest: np.ndarray, errors: np.ndarray, level: float) -> np.ndarray:
    """Errors that are found with a probability of about 80 %.

    Args:
        largest: draws of the largest error of a test, in units of their standard errors, [B].
        errors: standard errors.
        level: of the test.
    """
    return (np.quantile(largest, 1 - level) + _POWER) * errors
