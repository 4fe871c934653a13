"""Histograms of calibration error estimates, and of how sharp predictions are."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax.plotting.figures import (
    BLACK,
    BLUE,
    RED,
    axes_to_draw_on,
    bin_edges,
    finished,
    shown_values,
    shown_weights,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUNDING = 1e-12  # of sums of weights


def estimate_histogram(
    estimates: Any, *, true_value: Any = None, axis: "Axes | None" = None, bins: int = 50
) -> "Axes":
    """Histogram of estimates from many data sets, their mean (solid) and the truth (dashed).

    The mean is (1/B) Σ_b estimate_b: its distance from the true value is the bias of the
    estimator, up to the Monte Carlo error of B data sets.

    Both axes are labelled. All artists have labels for a legend; a new figure has one.

    Args:
        estimates: calibration errors estimated from B data sets, [B].
        true_value: the calibration error itself, a scalar, if it is known.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.
        bins: number of bars, of equal width between the smallest and the largest estimate.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if there are no estimates, one is not finite, or `bins` is below 1.

    Cost: O(B).

    References: W19 Fig. 1.

    >>> import jax.numpy as jnp
    >>> axis = estimate_histogram(jnp.array([0.1, 0.2, 0.2, 0.3]), true_value=0.0, bins=3)
    >>> print(axis.patches[0].get_data().values)
    [1 2 1]
    """
    values = shown_values("estimates", estimates).astype(np.float64)
    _checks.shape("estimates", values, (None,), "[B], one estimate from each data set")
    _checks.leading_size("estimates", values)
    if true_value is not None:
        _checks.real("true_value", true_value)
        _checks.shape("true_value", true_value, (), "() (a scalar)")
        true_value = float(shown_values("true_value", np.asarray(true_value)))
    bins = _checks.size_in_range("bins", bins, 1, 2**24)
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.2))
    heights, edges = np.histogram(values, bin_edges(values, bins))
    axis.stairs(heights, edges, fill=True, color=BLUE, alpha=0.55, label="estimates")  # one path
    axis.axvline(values.mean(), color=BLACK, linewidth=1.5, label="mean")
    if true_value is not None:
        axis.axvline(true_value, color=RED, linewidth=1.5, linestyle="--", label="true value")
    axis.set(xlabel="calibration error estimate", ylabel="data sets")
    return finished(axis, is_new)


def sharpness_histogram(
    values: Any,
    *,
    weights: ArrayLike | None = None,
    xlabel: str = "width of the central 90 % interval",
    bins: int = 30,
    axis: "Axes | None" = None,
) -> "Axes":
    """Histogram of how sharp the predictions are, with the median (solid).

    Sharpness says nothing about calibration: draw it beside what does.

    All artists have labels for a legend; a new figure has one.

    Args:
        values: `scores.interval_widths`, or confidences of classes, which `estimators.top_label`
            returns, an array or a batch of `Bernoulli`s, [n].
        weights: w ≥ 0 of the predictions, [n]; bars are sums of them, and the median is weighted.
        xlabel: what the values are, with their unit.
        bins: number of bars, of equal width between the smallest and the largest value.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if there are no values, one is negative or not finite, or `bins` is below 1.

    Cost: O(n).

    References: Gneiting, Balabdaoui and Raftery (2007), Probabilistic forecasts, calibration and
    sharpness, §3.3.

    >>> import jax.numpy as jnp
    >>> axis = sharpness_histogram(jnp.array([1.0, 1.5, 1.5, 3.0]), bins=2, xlabel="width in °C")
    >>> print(axis.patches[0].get_data().values, axis.lines[0].get_label())
    [3 1] median 1.5
    """
    values = getattr(values, "probs", values)
    values = shown_values("values", values).astype(np.float64)
    _checks.shape("values", values, (None,), "[n]")
    _checks.leading_size("values", values)
    _checks.refuse_where(values < 0, "values", "values >= 0", values)
    bins = _checks.size_in_range("bins", bins, 1, 2**24)
    used = None
    if weights is not None:
        used = shown_weights(weights, values.size)
        values, used = values[used > 0], used[used > 0]
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.2))
    heights, edges = np.histogram(values, bin_edges(values, bins), weights=used)
    axis.stairs(heights, edges, fill=True, color=BLUE, alpha=0.55, label="predictions")
    median = _median(values, used)
    axis.axvline(median, color=BLACK, linewidth=1.5, label=f"median {median:.3g}")
    axis.set(xlabel=xlabel, ylabel="predictions")
    return finished(axis, is_new)


def _median(values: np.ndarray, weights: np.ndarray | None) -> float:
    """Median; halfway between two values if half of the weights are up to the lower one."""
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(mass, [0.5 - _ROUNDING, 0.5 + _ROUNDING])
    return float(values[order[places]].mean())
