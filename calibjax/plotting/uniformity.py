"""PIT histograms and coverage curves, with bands for all bins or levels at once."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from calibjax import _checks
from calibjax.estimators.uniformity import CoverageCurve, PITHistogram
from calibjax.plotting.figures import (
    BAND,
    BARS,
    BLACK,
    GRAY,
    LIGHT_BAND,
    RED,
    axes_to_draw_on,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pit_histogram(histogram: PITHistogram, *, axis: "Axes | None" = None) -> "Axes":
    """Histogram of PIT values: flat if the model is calibrated.

    Bars outside the band of all bins are red and hatched. High at both ends means predictions that
    are too narrow, high in the middle too wide ones, a slope biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        histogram: what `estimators.pit_histogram` returned, of one data set and outside of `jit`.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> axis = plotting.pit_histogram(histogram)
    >>> print(axis.get_xlabel(), "|", axis.get_ylabel())
    PIT value | targets
    """
    shown = _shown("histogram", histogram, PITHistogram, "counts", "[K], the bins of one data set")
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.4))
    edges, is_outside = shown.edges, np.asarray(shown.is_outside)
    width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    for label, chosen, color, hatch in (
        ("observed", ~is_outside, BARS, None),
        ("outside the band", is_outside, RED, "///"),
    ):
        if np.any(chosen):
            style: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": "white"}
            axis.bar(middle[chosen], shown.counts[chosen], width[chosen], label=label, **style)
    lower, upper = shown.simultaneous_lower, shown.simultaneous_upper
    label = f"{100 * shown.level:.4g} % band: all bins"
    style = {"fill": True, "color": BAND, "alpha": 0.5, "linewidth": 0}
    axis.stairs(upper, edges, baseline=lower, label=label, **style)
    style = {"color": BLACK, "linewidth": 1, "linestyle": "--", "label": "uniform"}
    axis.plot([0, 1], np.full(2, shown.counts.sum() / shown.counts.size), **style)
    axis.set(xlabel="PIT value", ylabel="targets", xlim=(0, 1), ylim=(0, None))
    return finished(axis, is_new, ncols=2)


def pit_ecdf(curve: CoverageCurve, *, axis: "Axes | None" = None) -> "Axes":
    """Empirical distribution function of PIT values, minus that of uniform ones.

    It shows the same as `quantile_calibration_curve`, with the diagonal subtracted, so that the
    band can be seen where there are many targets. Points outside the band are red diamonds. Above
    zero on the left and below it on the right means predictions that are too narrow, the opposite
    too wide ones, and one sign everywhere biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.quantile_coverage` returned, of one data set and outside of `jit`.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    shown = _shown_curve(curve, "quantiles")
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.4))
    _draw_curve(axis, shown, baseline=np.asarray(shown.levels))
    axis.axhline(0, color=GRAY, linewidth=1, linestyle="--", zorder=1, label="calibrated")
    axis.set(xlabel="PIT value", ylabel="share of PIT values - PIT value", xlim=(0, 1))
    return finished(axis, is_new, ncols=2)


def quantile_calibration_curve(curve: CoverageCurve, *, axis: "Axes | None" = None) -> "Axes":
    """Share of targets up to the predicted quantiles, over their level.

    On the diagonal the quantiles are right on average. Points outside the band of all levels are
    red diamonds. Errors that cancel over the samples are not seen: calibrated quantiles do not mean
    a calibrated model (W21 Fig. 1).

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.quantile_coverage` returned, of one data set and outside of `jit`.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    shown = _shown_curve(curve, "quantiles")
    labels = "level of the predicted quantile", "share of targets up to the quantile"
    return _draw_square(axis, shown, labels)


def interval_coverage_curve(curve: CoverageCurve, *, axis: "Axes | None" = None) -> "Axes":
    """Share of targets in the predicted central intervals, over the probability of the intervals.

    Below the diagonal intervals are too narrow (overconfident), above it too wide. Points outside
    the band of all levels are red diamonds.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.interval_coverage` returned, of one data set and outside of `jit`.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    shown = _shown_curve(curve, "intervals")
    labels = "probability of the predicted interval", "share of targets in the interval"
    return _draw_square(axis, shown, labels)


def _shown(name: str, record: Any, kind: type, size: str, described: str) -> Any:
    """The record with NumPy arrays, after a check of their shapes."""
    if not isinstance(record, kind):
        function = {PITHistogram: "pit_histogram", CoverageCurve: "quantile_coverage"}[kind]
        got = _checks.described(record)
        raise TypeError(f"{name}: expected what estimators.{function} returns, got {got}")
    names = [x.name for x in dataclasses.fields(record) if not x.metadata.get("static")]
    values = {x: shown_values(f"{name}.{x}", getattr(record, x)) for x in names}
    for key, value in values.items():
        expected = (None,) if key == size else values[size].shape
        if key == "edges":
            expected = (values[size].size + 1,)
        _checks.shape(f"{name}.{key}", value, expected, described)
    return dataclasses.replace(record, **values)


def _shown_curve(curve: Any, sets: str) -> CoverageCurve:
    """A curve of this kind with NumPy arrays."""
    shown = _shown("curve", curve, CoverageCurve, "levels", "[L], the levels of one data set")
    if shown.sets != sets:
        function = {"quantiles": "quantile_coverage", "intervals": "interval_coverage"}
        raise TypeError(
            f"curve: expected what estimators.{function[sets]} returns, got a curve of {shown.sets}"
        )
    return shown


def _draw_square(axis: "Axes | None", curve: CoverageCurve, labels: tuple[str, str]) -> "Axes":
    """A curve around the diagonal."""
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.4, 4.8))
    _draw_curve(axis, curve, baseline=np.zeros(curve.levels.size))
    style = {"color": GRAY, "linewidth": 1, "linestyle": "--", "zorder": 1}
    axis.plot([0, 1], [0, 1], label="calibrated", **style)
    axis.set(xlim=(0, 1), ylim=(0, 1), box_aspect=1, xlabel=labels[0], ylabel=labels[1])
    return finished(axis, is_new, ncols=2)


def _draw_curve(axis: "Axes", curve: CoverageCurve, baseline: np.ndarray) -> None:
    """The coverage minus the baseline: band, line, and points, red diamonds outside of the band."""
    x = curve.levels
    lower, upper = curve.simultaneous_lower - baseline, curve.simultaneous_upper - baseline
    label = f"{100 * curve.level:.4g} % band: all levels"
    style = {"color": LIGHT_BAND, "linewidth": 0, "zorder": 0}
    axis.fill_between(x, lower, upper, label=label, **style)
    y, is_outside = curve.coverage - baseline, np.asarray(curve.is_outside)
    axis.plot(x, y, color=BLACK, linewidth=1, zorder=2)
    style = {"linestyle": "none", "clip_on": False, "zorder": 3}
    style |= {"markeredgecolor": "white", "markeredgewidth": 0.5}
    for name, chosen, color, marker, size in (
        ("observed", ~is_outside, BLACK, "o", 4),
        ("outside the band", is_outside, RED, "D", 5),
    ):
        if np.any(chosen):
            look = {"color": color, "marker": marker, "markersize": size, "label": name}
            axis.plot(x[chosen], y[chosen], **look, **style)
