"""Entries from what functions return, ranges of values under calibration, and mean errors."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from calibjax.evaluation.entries import Entry
from calibjax.hypothesis_tests import CalibrationTestResult


def measured(name: str, compute: Callable[[], Any], call: str, **more: Any) -> Entry:
    """The entry of what a call returns: a number, an interval, or the p-value of a test.

    Where it does not exist for these data, the value is NaN and the note says why.

    Args:
        name: of the entry.
        compute: returns the value.
        call: the expression that is shown.
        **more: other fields of the entry.
    """
    try:
        value = compute()
    except (ValueError, NotImplementedError) as error:
        return Entry(name, math.nan, function=call, note=f"does not exist: {error}")
    return Entry(name, **_numbers(value), function=call, **more)


def _numbers(value: Any) -> dict[str, float]:
    """Value, error and ends of what a function returns."""
    if isinstance(value, CalibrationTestResult):
        error = value.pvalue_standard_error
        return {"value": float(value.pvalue)} | (
            {} if error is None else {"standard_error": float(error)}
        )
    if not hasattr(value, "standard_error"):
        return {"value": float(value)}
    estimate = "estimate" if hasattr(value, "estimate") else "mean"  # of a `Gain`
    names = {"value": estimate, "standard_error": "standard_error", "low": "low", "high": "high"}
    return {name: float(getattr(value, attribute)) for name, attribute in names.items()}


def ranges(draws: Mapping[str, ArrayLike]) -> dict[str, tuple[float, float]]:
    """Ranges of several values under calibration that all hold with a probability of 95 %.

    Those of one value are its central 95 %. All of them leave out equally many draws at either
    end, as many as the probability allows (Myllymäki et al. 2017, the global rank envelope).

    Args:
        draws: of each value by name, [B], B ≥ 39.
    """
    columns = [np.asarray(x, float) for x in draws.values()]
    ordered = [np.sort(x) for x in columns]
    beyond = []  # how many draws are smaller, and how many are larger, than each
    for x, order in zip(columns, ordered, strict=True):
        beyond += [np.searchsorted(order, x), len(x) - np.searchsorted(order, x, "right")]
    fewest = np.sort(np.min(beyond, 0))
    left_out = max(0, int(fewest[math.floor(0.05 * (len(fewest) + 1) + 1e-9)]) - 1)
    ends = ((float(x[left_out]), float(x[-1 - left_out])) for x in ordered)
    return dict(zip(draws, ends, strict=True))


def mean_error(
    name: str,
    test: CalibrationTestResult,
    call: str,
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
        test: its result.
        call: the expression that gives it.
        place: of the error in the arrays of its result.
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
