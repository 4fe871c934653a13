"""PIT histograms and coverage curves, with bands for all bins or levels at once."""

from typing import TYPE_CHECKING, Any

import numpy as np

from calibjax.estimators.uniformity import CoverageCurve, PITHistogram
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pit_histogram(histogram: PITHistogram, *, ax: "Axes | None" = None) -> "Axes":
    """Histogram of PIT values: flat if the model is calibrated.

    Bars outside the band of all bins are red and hatched. High at both ends means predictions that
    are too narrow, high in the middle too wide ones, a slope biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        histogram: what `estimators.pit_histogram` returned, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the histogram is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of bins).

    References: Gneiting, Balabdaoui and Raftery (2007), §3.1; see `estimators.pit_histogram`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import estimators, plotting
    >>> pit = jax.random.uniform(jax.random.key(0), (200,))
    >>> histogram = estimators.pit_histogram(jax.random.key(1), pit, num_bins=4)
    >>> ax = plotting.pit_histogram(histogram)
    >>> print(ax.get_xlabel(), "|", ax.get_ylabel())
    PIT value | targets
    """
    described = "[K], the bins of one data set"
    record = "histogram", histogram, PITHistogram
    shown = figures.shown_record(*record, "pit_histogram", "counts", described)
    edges, is_outside = shown.edges, np.asarray(shown.is_outside)
    width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    with figures.figure(ax, (4.8, 3.4), ncols=2) as ax:
        for label, chosen, color, hatch in (
            ("observed", ~is_outside, figures.BARS, None),
            ("outside the band", is_outside, figures.RED, "///"),
        ):
            if np.any(chosen):
                style: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": "white"}
                ax.bar(middle[chosen], shown.counts[chosen], width[chosen], label=label, **style)
        label = f"{100 * shown.level:.4g} % band: all bins"
        style = {"fill": True, "color": figures.BAND, "alpha": 0.5, "linewidth": 0, "label": label}
        ax.stairs(shown.simultaneous_upper, edges, baseline=shown.simultaneous_lower, **style)
        style = {"color": figures.BLACK, "linewidth": 1, "linestyle": "--", "label": "uniform"}
        ax.plot([0, 1], np.full(2, shown.counts.sum() / shown.counts.size), **style)
        ax.set(xlabel="PIT value", ylabel="targets", xlim=(0, 1), ylim=(0, None))
    return ax


def pit_ecdf(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Empirical distribution function of PIT values, minus that of uniform ones.

    It shows the same as `quantile_calibration_curve`, with the diagonal subtracted, so that the
    band can be seen where there are many targets. Points outside the band are red diamonds. Above
    zero on the left and below it on the right means predictions that are too narrow, the opposite
    too wide ones, and one sign everywhere biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.quantile_coverage` returned, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind, such as a curve of intervals.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of levels).

    References: Säilynoja, Bürkner and Vehtari (2022), Graphical test for discrete uniformity.

    >>> import jax
    >>> from calibjax import estimators, plotting
    >>> pit = jax.random.uniform(jax.random.key(0), (200,))
    >>> curve = estimators.quantile_coverage(jax.random.key(1), pit)
    >>> print(plotting.pit_ecdf(curve).get_ylabel())
    share of PIT values - PIT value
    """
    labels = "PIT value", "share of PIT values - PIT value"
    return _draw_coverage(ax, curve, "quantiles", labels, is_difference=True)


def quantile_calibration_curve(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Share of targets up to the predicted quantiles, over their level.

    On the diagonal the quantiles are right on average. Points outside the band of all levels are
    red diamonds. Errors that cancel over the samples are not seen: calibrated quantiles do not mean
    a calibrated model (W21 Fig. 1).

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.quantile_coverage` returned, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind, such as a curve of intervals.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of levels).

    References: W21 Fig. 5.

    >>> import jax
    >>> from calibjax import estimators, plotting
    >>> pit = jax.random.uniform(jax.random.key(0), (200,))
    >>> curve = estimators.quantile_coverage(jax.random.key(1), pit)
    >>> print(plotting.quantile_calibration_curve(curve).get_xlabel())
    level of the predicted quantile
    """
    labels = "level of the predicted quantile", "share of targets up to the quantile"
    return _draw_coverage(ax, curve, "quantiles", labels)


def interval_coverage_curve(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Share of targets in the predicted central intervals, over the probability of the intervals.

    Below the diagonal intervals are too narrow (overconfident), above it too wide. Points outside
    the band of all levels are red diamonds.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.interval_coverage` returned, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind, such as a curve of quantiles.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of levels).

    References: Gneiting, Balabdaoui and Raftery (2007), Probabilistic forecasts, calibration and
    sharpness, §3.1.

    >>> import jax
    >>> from calibjax import estimators, plotting
    >>> pit = jax.random.uniform(jax.random.key(0), (200,))
    >>> curve = estimators.interval_coverage(jax.random.key(1), pit)
    >>> print(plotting.interval_coverage_curve(curve).get_xlabel())
    probability of the predicted interval
    """
    labels = "probability of the predicted interval", "share of targets in the interval"
    return _draw_coverage(ax, curve, "intervals", labels)


def _draw_coverage(
    ax: "Axes | None",
    curve: Any,
    sets: str,
    labels: tuple[str, str],
    *,
    is_difference: bool = False,
) -> "Axes":
    """Band, line and points of the coverage around the diagonal, or of its difference from it."""
    described = "[L], the levels of one data set"
    function = {"quantiles": "quantile_coverage", "intervals": "interval_coverage"}[sets]
    shown = figures.shown_record("curve", curve, CoverageCurve, function, "levels", described)
    if shown.sets != sets:
        expected = f"what estimators.{function} returns"
        raise TypeError(f"curve: expected {expected}, got a curve of {shown.sets}")
    x = np.asarray(shown.levels)
    baseline = x if is_difference else 0
    lower, upper = shown.simultaneous_lower - baseline, shown.simultaneous_upper - baseline
    size = (4.8, 3.4) if is_difference else (4.4, 4.8)
    with figures.figure(ax, size, ncols=2) as ax:
        label = f"{100 * shown.level:.4g} % band: all levels"
        style = {"color": figures.LIGHT_BAND, "linewidth": 0, "zorder": 0}
        ax.fill_between(x, lower, upper, label=label, **style)
        y = shown.coverage - baseline
        ax.plot(x, y, color=figures.BLACK, linewidth=1, zorder=2)
        figures.draw_points(ax, x, y, shown.is_outside, 4, "outside the band")
        figures.draw_diagonal(ax, is_difference=is_difference)
        ax.set(xlim=(0, 1), xlabel=labels[0], ylabel=labels[1])
        if not is_difference:
            ax.set(ylim=(0, 1), box_aspect=1)
    return ax
