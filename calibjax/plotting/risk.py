"""Risks of calibration estimation functions over a grid, and estimates side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax.plotting.figures import (
    BLUE,
    CURVE_COLORS,
    CURVE_MARKERS,
    RED,
    axes_to_draw_on,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GEOMETRIC = 50  # largest / smallest hyperparameter from which on the axis is logarithmic


def risk_curve(
    hyperparameters: Any,
    risks: Any,
    *,
    errors: Any = None,
    marked: float | None = None,
    xlabel: str = "hyperparameter",
    ylabel: str = "risk",
    axis: "Axes | None" = None,
) -> "Axes":
    """Risk of a calibration estimation function over its hyperparameter, with error bars.

    Of several runs it is their mean, and the bars are one standard deviation (with n − 1 in the
    denominator) to both sides, which is the variation between runs, not the standard error of the
    mean. For the latter give `errors`; those of cross-validation are drawn by

        risk_curve(result.grid, result.risk, errors=result.standard_error,
                   marked=result.hyperparameter).

    The bars are those of each risk, which the hyperparameters have in common for the most part:
    differences of risks vary much less. The axis is logarithmic where all hyperparameters are
    positive and the largest is at least 50 times the smallest. The curve and the marked place have
    labels for a legend; a new figure has one.

    Args:
        hyperparameters: the grid, [k].
        risks: at the hyperparameters, [k], or of several runs, [runs, k].
        errors: half the lengths of the bars, [k].
        marked: a hyperparameter that a vertical line is at: the true one, or the one selected.
        xlabel: what the hyperparameter is.
        ylabel: what the risk is.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(runs · k).

    References: G24 Fig. 1.

    >>> import jax.numpy as jnp
    >>> runs = jnp.array([[0.25, 0.125, 0.5], [0.75, 0.125, 0.5]])
    >>> axis = risk_curve(jnp.array([0.01, 0.1, 1.0]), runs, marked=0.1)
    >>> print(axis.lines[0].get_ydata(), axis.get_xscale())
    [0.5   0.125 0.5  ] log
    """
    x = shown_values("hyperparameters", hyperparameters).astype(np.float64)
    _checks.shape("hyperparameters", x, (None,), "[k]")
    _checks.leading_size("hyperparameters", x)
    mean, half = _mean_and_half(risks, errors, x.size)
    if marked is not None:
        marked = float(_shown_scalar("marked", marked))
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.2))
    order = np.argsort(x)  # grids may be joined from two
    style = {"color": BLUE, "linewidth": 1.5, "marker": "o", "markersize": 3.5, "label": "risk"}
    axis.plot(x[order], mean[order], **style)
    if half is not None:
        style = {"fmt": "none", "ecolor": BLUE, "elinewidth": 0.9, "capsize": 2.5}
        axis.errorbar(x[order], mean[order], half[order], **style)
    if marked is not None:
        axis.axvline(marked, color=RED, linewidth=1, linestyle="--", label=f"{xlabel} {marked:.3g}")
    is_geometric = x.min() > 0 and x.max() >= _GEOMETRIC * x.min()
    axis.set(xscale="log" if is_geometric else "linear", xlabel=xlabel, ylabel=ylabel)
    return finished(axis, is_new)


def estimate_comparison(
    models: Sequence[str],
    estimates: Mapping[str, Any],
    *,
    errors: Mapping[str, Any] | None = None,
    ylabel: str = "calibration error",
    axis: "Axes | None" = None,
) -> "Axes":
    """Estimates by several estimators side by side, for several models, with error bars.

    A group of points for each model, with a point for each estimator. Whether two estimates of
    one model differ cannot be read from their bars, since they come from the same samples.

    Points have labels for a legend; a new figure has one.

    Args:
        models: names of the g models.
        estimates: for each name of an estimator its estimates, [g]; at most nine estimators.
        errors: for the names of some or all estimators half the lengths of the bars, [g].
        ylabel: what the estimates are.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too many estimators.

    Cost: O(g) for each estimator.

    References: G24 Fig. 2, 3 and 4.

    >>> import jax.numpy as jnp
    >>> estimates = {"bins": jnp.array([0.05, 0.03]), "kkr": jnp.array([0.04, 0.03])}
    >>> errors = {"bins": jnp.array([0.01, 0.02])}
    >>> axis = estimate_comparison(["DenseNet", "ResNet"], estimates, errors=errors)
    >>> print([text.get_text() for text in axis.get_xticklabels()], len(axis.containers))
    ['DenseNet', 'ResNet'] 2
    """
    if isinstance(models, str) or not isinstance(models, Sequence):
        raise TypeError(f"models: expected a list of names, got {_checks.described(models)}")
    _checks.size_in_range("len(models)", len(models), 1)
    estimates = _by_estimator("estimates", estimates, len(models))
    _checks.size_in_range("len(estimates)", len(estimates), 1, len(CURVE_COLORS))
    errors = _by_estimator("errors", {} if errors is None else errors, len(models))
    for name, half in errors.items():
        _checked_half(f"errors[{name!r}]", half)
        if name not in estimates:
            raise ValueError(f"errors: expected names of {list(estimates)}, got {name!r}")
    is_new = axis is None
    axis = axes_to_draw_on(axis, (1.6 + 1.1 * len(models), 3.4))
    step = 0.8 / len(estimates)
    for i, (name, values) in enumerate(estimates.items()):
        x = np.arange(len(models)) + step * (i - (len(estimates) - 1) / 2)
        style = {"color": CURVE_COLORS[i], "elinewidth": 0.9, "capsize": 2.5, "label": name}
        axis.errorbar(x, values, errors.get(name), fmt=CURVE_MARKERS[i], markersize=4, **style)
    axis.set_xticks(np.arange(len(models)), list(map(str, models)))
    axis.set(ylabel=ylabel, xlim=(-0.5, len(models) - 0.5))
    return finished(axis, is_new)


def _mean_and_half(
    risks: Any, errors: ArrayLike, size: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """The curve, and half the lengths of the bars, if there are any."""
    risks = shown_values("risks", risks).astype(np.float64)
    if risks.ndim == 1:
        risks = risks[None]
    _checks.shape("risks", risks, (None, size), f"({size},) or [runs, {size}]")
    _checks.leading_size("risks", risks)
    if errors is not None:
        errors = shown_values("errors", errors).astype(np.float64)
        _checks.shape("errors", errors, (size,), f"({size},), as the hyperparameters")
        return risks.mean(0), _checked_half("errors", errors)
    return risks.mean(0), risks.std(0, ddof=1) if len(risks) > 1 else None


def _checked_half(name: str, values: np.ndarray) -> np.ndarray:
    _checks.refuse_where(values < 0, name, "values >= 0", values)
    return values


def _shown_scalar(name: str, value: Any) -> np.ndarray:
    _checks.real(name, value)
    _checks.shape(name, value, (), "() (a scalar)")
    return shown_values(name, np.asarray(value))


def _by_estimator(name: str, values: Any, size: int) -> dict[str, np.ndarray]:
    """An array [size] for each name of an estimator."""
    if not isinstance(values, Mapping):
        expected = "a dict of names and arrays"
        raise TypeError(f"{name}: expected {expected}, got {_checks.described(values)}")
    shown = {}
    for key, array in values.items():
        one = shown_values(f"{name}[{key!r}]", array).astype(np.float64)
        _checks.shape(f"{name}[{key!r}]", one, (size,), f"({size},), one for each model")
        shown[str(key)] = one
    return shown
