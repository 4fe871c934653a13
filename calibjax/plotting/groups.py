"""Errors of groups of samples, with what is significant."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from calibjax import _checks
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting.figures import (
    BLACK,
    DIVERGING,
    axes_to_draw_on,
    check_result,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_COLUMNS, _MOST_ROWS = 12, 40  # with the numbers in the cells


def group_errors(
    result: CalibrationTestResult,
    *,
    groups: Sequence[Any] | None = None,
    residuals: Sequence[Any] | None = None,
    level: float = 0.05,
    axis: "Axes | None" = None,
) -> "Axes":
    """Grid of signed errors: a row for each group, a column for each kind of residual.

    Errors are observed minus predicted values: red where the predictions are too small, blue where
    they are too large. Cells contain the error ± its standard error under calibration; those with
    an adjusted p-value ≤ `level` are framed and bold. For a calibrated model there is any such cell
    with probability at most `level`. Grids of more than 12 columns or 40 rows have no room for
    numbers: there the significant cells have their sign.

    Args:
        result: what `hypothesis_tests.group_calibration_test` returned, of one data set and outside
            of `jit`.
        groups: names of the G groups, by default their numbers.
        residuals: names of the k residuals, by default their numbers; by the test's own default
            those of classes are the classes and "top label".
        level: adjusted p-values up to this one are significant.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes; the colour bar is beside it.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind, such as the result of another test.
        ValueError: if shapes or values are wrong.

    Cost: O(G k).

    References: none; see `hypothesis_tests.group_calibration_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, plotting
    >>> predictions = distributions.Normal(jnp.zeros(40), jnp.ones(40))
    >>> is_old = jnp.arange(40) >= 20
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions) + 2.0 * is_old
    >>> test = hypothesis_tests.group_calibration_test(
    ...     jax.random.key(1), predictions, targets, jnp.stack([~is_old, is_old], axis=1)
    ... )
    >>> axis = plotting.group_errors(test, groups=["young", "old"])
    >>> print([label.get_text() for label in axis.get_yticklabels()], len(axis.patches))
    ['young', 'old'] 1
    """
    _checks.proportion("level", level)
    check_result(result, "groups", "hypothesis_tests.group_calibration_test")
    errors, sizes, pvalues = _shown(result)
    rows = _names("groups", groups, errors.shape[0])
    columns = _names("residuals", residuals, errors.shape[1])
    has_numbers = len(rows) <= _MOST_ROWS and len(columns) <= _MOST_COLUMNS
    is_new = axis is None
    cell_width, cell_height = (1.1, 0.36) if has_numbers else (0.2, 0.16)  # inches
    size = 2.6 + cell_width * len(columns), 1.4 + cell_height * len(rows)
    axis = axes_to_draw_on(axis, size)
    limit = float(np.abs(errors).max()) or 1.0
    style: dict[str, Any] = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit, "aspect": "auto"}
    image = axis.imshow(errors, **style)
    _mark(axis, errors, sizes, pvalues <= level, has_numbers=has_numbers)
    style = {} if has_numbers else {"fontsize": "x-small"}
    axis.set_yticks(np.arange(len(rows)), rows, **style)
    axis.set_xticks(np.arange(len(columns)), columns, rotation=0 if has_numbers else 90, **style)
    if groups is None:
        axis.set_ylabel("group")
    if residuals is None and len(columns) > 1:
        axis.set_xlabel("residual")
    elif len(columns) == 1 and residuals is None:
        axis.set_xticks([])
    label = "observed - predicted mean" + "\n(± standard error)" * has_numbers
    axis.figure.colorbar(image, ax=axis, label=label, format="%.2g")
    handles = []
    if np.any(pvalues <= level):
        from matplotlib.patches import Patch

        label = f"adjusted p ≤ {level:g}"
        handles = [Patch(facecolor="none", edgecolor=BLACK, linewidth=1.8, label=label)]
    return finished(axis, is_new, handles=handles)


def _shown(result: CalibrationTestResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signed errors, their standard errors and adjusted p-values, [G, k] each."""
    errors = shown_values("result.estimate", result.estimate).astype(np.float64)
    if errors.ndim not in (1, 2):
        raise ValueError(
            "result.estimate: expected shape [G] or [G, k], the errors of one data set, got "
            f"{errors.shape}"
        )
    others = ("null_size", "adjusted_pvalue")
    found = [errors]
    for name in others:
        value = shown_values(f"result.{name}", getattr(result, name))
        _checks.shape(f"result.{name}", value, errors.shape, f"{errors.shape}, as the errors")
        found.append(value)
    return tuple(x.reshape(len(errors), -1) for x in found)  # pyright: ignore[reportReturnType]


def _names(name: str, names: Any, size: int) -> list[str]:
    """Names of the rows or columns."""
    if names is None:
        return [str(i) for i in range(size)]
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"{name}: expected a list of names, got {_checks.described(names)}")
    if len(names) != size:
        raise ValueError(f"{name}: expected {size} names, got {len(names)}")
    return [str(one) for one in names]


def _mark(
    axis: "Axes",
    errors: np.ndarray,
    sizes: np.ndarray,
    is_significant: np.ndarray,
    *,
    has_numbers: bool,
) -> None:
    """Numbers or signs in the cells, and frames around the significant ones."""
    from matplotlib.patches import Rectangle

    largest = np.abs(errors).max() or 1.0
    # Two digits of a typical standard error; it is zero where nothing is left to chance.
    positive = sizes[sizes > 0]
    digits = max(0, 1 - math.floor(math.log10(np.median(positive)))) if positive.size else 2
    for (row, column), error in np.ndenumerate(errors):
        chosen = bool(is_significant[row, column])
        if chosen:
            style: dict[str, Any] = {"fill": False, "edgecolor": BLACK, "linewidth": 1.8}
            axis.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, **style))
        sign = "+" if error > 0 else "-"
        both = f"{error:+.{digits}f} ± {sizes[row, column]:.{digits}f}"
        text = both if has_numbers else sign
        if has_numbers or chosen:
            style = {"ha": "center", "va": "center", "fontsize": "small"}
            style["color"] = "white" if abs(error) > 0.7 * largest else "black"
            style["fontweight"] = "bold" if chosen else "normal"
            axis.text(column, row, text, **style)
