"""Histograms of calibration error estimates, and of how sharp predictions are."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax import _checks
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROUNDING = 1e-12  # of sums of weights


def estimate_histogram(
    estimates: Any, *, true_value: Any = None, ax: "Axes | None" = None, bins: int = 50
) -> "Axes":
    """Histogram of estimates from many data sets, their mean (solid) and the truth (dashed).

    The mean is (1/B) Σ_b estimate_b: its distance from the true value is the bias of the
    estimator, up to the Monte Carlo error of B data sets.

    Both axes are labelled. All artists have labels for a legend; a new figure has one.

    Args:
        estimates: calibration errors estimated from B data sets, [B].
        true_value: the calibration error itself, a scalar, if it is known.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = estimate_histogram(jnp.array([0.1, 0.2, 0.2, 0.3]), true_value=0.0, bins=3)
    >>> print(ax.patches[0].get_data().values)
    [1 2 1]
    """
    values = figures.shown_vector("estimates", estimates, "[B], one estimate from each data set")
    if true_value is not None:
        true_value = figures.shown_scalar("true_value", true_value)
    with figures.figure(ax, (4.8, 3.2)) as ax:
        figures.draw_histogram(ax, values, bins, "estimates")
        ax.axvline(values.mean(), color=figures.BLACK, linewidth=1.5, label="mean")
        if true_value is not None:
            style = {"linewidth": 1.5, "linestyle": "--", "label": "true value"}
            ax.axvline(true_value, color=figures.RED, **style)
        ax.set(xlabel="calibration error estimate", ylabel="data sets")
    return ax


def sharpness_histogram(
    values: Any,
    *,
    weights: ArrayLike | None = None,
    xlabel: str = "width of the central 90 % interval",
    bins: int = 30,
    ax: "Axes | None" = None,
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
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = sharpness_histogram(jnp.array([1.0, 1.5, 1.5, 3.0]), bins=2, xlabel="width in °C")
    >>> print(ax.patches[0].get_data().values, ax.lines[0].get_label())
    [3 1] median 1.5
    """
    values = getattr(values, "probs", values)
    values = figures.shown_vector("values", values)
    _checks.refuse_where(values < 0, "values", "values >= 0", values)
    used = None
    if weights is not None:
        used = figures.shown_weights(weights, values.size)
        values, used = values[used > 0], used[used > 0]
    with figures.figure(ax, (4.8, 3.2)) as ax:
        figures.draw_histogram(ax, values, bins, "predictions", used)
        median = _median(values, used)
        ax.axvline(median, color=figures.BLACK, linewidth=1.5, label=f"median {median:.3g}")
        ax.set(xlabel=xlabel, ylabel="predictions")
    return ax


def _median(values: np.ndarray, weights: np.ndarray | None) -> float:
    """Median; halfway between two values if half of the weights are up to the lower one."""
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) / weights.sum()
    places = np.searchsorted(mass, [0.5 - _ROUNDING, 0.5 + _ROUNDING])
    return float(values[order[places]].mean())
