"""Curves of several methods: calibration errors over bandwidths, rewards over cost ratios."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calibjax import _checks
from calibjax.plotting.figures import (
    CURVE_COLORS,
    CURVE_STYLES,
    GRAY,
    axes_to_draw_on,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bandwidth_curves(
    length_scales: Any,
    curves: Mapping[str, Any],
    *,
    ylabel: str = "maximum local calibration error",
    axis: "Axes | None" = None,
) -> "Axes":
    """Local calibration errors of several methods over the length scale of the kernel.

    A line for each method, on a logarithmic axis of length scales. Of several runs it is their
    mean, in a band of one standard deviation (with n − 1 in the denominator) to both sides, which
    is the variation between runs, not the standard error of the mean.

    Lines have labels for a legend; a new figure has one.

    Args:
        length_scales: γ > 0, [G].
        curves: for each name of a method `estimators.mlce` or `mean_lce` at the length scales,
            [G], or of several runs, [runs, G]; at most nine methods.
        ylabel: what the curves are.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too many methods.

    Cost: O(runs · G) for each method.

    References: L21 Fig. 1, 3 and 5-19.

    >>> import jax.numpy as jnp
    >>> errors = {"original": jnp.array([0.9, 0.3]), "LoRe": jnp.array([[0.9, 0.1], [0.8, 0.1]])}
    >>> axis = bandwidth_curves(jnp.array([0.01, 1.0]), errors)
    >>> print([line.get_label() for line in axis.lines], axis.get_xscale())
    ['original', 'LoRe'] log
    """
    x = shown_values("length_scales", length_scales)
    _checks.shape("length_scales", x, (None,), "[G]")
    _checks.leading_size("length_scales", x)
    _checks.positive("length_scales", x)
    return _draw(x, curves, axis, xlabel="length scale of the kernel", ylabel=ylabel)


def reward_curves(
    ratios: Any,
    curves: Mapping[str, Any],
    *,
    ylabel: str = "improvement of the reward, per sample",
    axis: "Axes | None" = None,
) -> "Axes":
    """Improvements of the reward of decisions over the cost ratio of errors.

    A line for each method, on a logarithmic axis of w/u, the cost of an error relative to that of
    "unsure"; the dashed line at zero is the original model. Of several runs it is their mean, in a
    band of one standard deviation to both sides, as in `bandwidth_curves`.

    Lines have labels for a legend; a new figure has one.

    Args:
        ratios: w/u ≥ 1, [r].
        curves: for each name of a method `scores.reward_improvement` at the ratios, [r], or of
            several runs, [runs, r]; at most nine methods.
        ylabel: what the curves are.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too many methods.

    Cost: O(runs · r) for each method.

    References: L21 §5.4, Fig. 4.

    >>> import jax.numpy as jnp
    >>> axis = reward_curves(jnp.array([1.0, 10.0]), {"LoRe": jnp.array([0.0, 0.2])})
    >>> print([line.get_label() for line in axis.lines])
    ['LoRe', 'original']
    """
    x = shown_values("ratios", ratios)
    _checks.shape("ratios", x, (None,), "[r]")
    _checks.leading_size("ratios", x)
    _checks.refuse_where(x < 1, "ratios", "values of at least 1", x)
    xlabel = "cost of an error / cost of “unsure”, w/u"
    return _draw(x, curves, axis, xlabel=xlabel, ylabel=ylabel, baseline="original")


def _draw(
    x: np.ndarray,
    curves: Any,
    axis: "Axes | None",
    *,
    xlabel: str,
    ylabel: str,
    baseline: str | None = None,
) -> "Axes":
    """Lines and bands, and a line at zero for the baseline."""
    curves = _shown_curves(curves, x.size)
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.6))
    looks = zip(CURVE_COLORS, CURVE_STYLES, strict=True)
    for (color, line), (name, runs) in zip(looks, curves.items(), strict=False):
        mean = runs.mean(0)
        axis.plot(x, mean, color=color, linestyle=line, linewidth=1.5, label=name)
        if len(runs) > 1:
            half = runs.std(0, ddof=1)
            axis.fill_between(x, mean - half, mean + half, color=color, alpha=0.18, linewidth=0)
    if baseline is not None:
        axis.axhline(0, color=GRAY, linewidth=1, linestyle="--", label=baseline)
    axis.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
    return finished(axis, is_new)


def _shown_curves(curves: Any, num_points: int) -> dict[str, np.ndarray]:
    """Curves of the runs of each method, [runs, number of points]."""
    if not isinstance(curves, Mapping):
        raise TypeError(
            f"curves: expected a dict of names and arrays, got {_checks.described(curves)}"
        )
    _checks.size_in_range("len(curves)", len(curves), 1, len(CURVE_COLORS))
    shown = {}
    for key, values in curves.items():
        name = f"curves[{key!r}]"
        values = shown_values(name, values).astype(np.float64)
        if values.ndim == 1:
            values = values[None]
        described = f"({num_points},) or [runs, {num_points}]"
        _checks.shape(name, values, (None, num_points), described)
        _checks.leading_size(name, values)
        shown[str(key)] = values
    return shown
