"""Reliability diagrams: observed frequencies of a label over its predicted probabilities."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from calibjax import _checks
from calibjax.estimators.reliability import ReliabilityCurve
from calibjax.plotting.figures import (
    BAND,
    BLACK,
    BLUE,
    GRAY,
    LIGHT_BAND,
    RED,
    axes_to_draw_on,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability_diagram(
    curve: ReliabilityCurve, *, show_counts: bool = True, axis: "Axes | None" = None
) -> "Axes":
    """Reliability diagram: observed frequencies over predicted probabilities.

    A point for each bin, at (confidence, frequency); a red diamond where it is outside the
    simultaneous band. Behind it are the bands of the bin, the pointwise one dark, the
    simultaneous one light, and the diagonal, around which the frequencies of a calibrated model
    scatter. Below is the number of samples in each bin.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.reliability_curve` returned, of one data set and outside of `jit`.
        show_counts: whether to show the counts, in inset Axes (`.child_axes[0]` of the result)
            below the diagram.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of bins).

    References: Bröcker and Smith (2007).

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators, plotting
    >>> predictions = distributions.Bernoulli(jnp.linspace(0, 1, 200))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> curve = estimators.reliability_curve(
    ...     jax.random.key(1), predictions, targets, binning=estimators.UniformBins(10)
    ... )
    >>> axis = plotting.reliability_diagram(curve)
    >>> print(axis.get_ylabel())
    observed frequency
    """
    shown = _shown(curve)
    show_counts = _checks.truth_value("show_counts", show_counts)
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.6, 5.3 if show_counts else 4.8))
    width = min(8.0, 160 / max(1, shown.counts.size))
    axis.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle="--", zorder=1, label="calibrated")
    _draw_bands(axis, shown, width)
    _draw_frequencies(axis, shown, min(6.0, 2 + width / 2))
    # Free space of a square is above it, so that layouts see how far the counts reach down.
    axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), box_aspect=1, anchor="S")
    axis.set(xlabel="predicted probability", ylabel="observed frequency")
    if show_counts:
        _draw_counts(axis, shown, width)
    return finished(axis, is_new, ncols=2)


def _shown(curve: Any) -> ReliabilityCurve:
    """The bins of a curve that hold a sample, with NumPy arrays."""
    if not isinstance(curve, ReliabilityCurve):
        got = _checks.described(curve)
        raise TypeError(f"curve: expected what estimators.reliability_curve returns, got {got}")
    names = [field.name for field in dataclasses.fields(curve) if field.name != "level"]
    values = {name: shown_values(f"curve.{name}", getattr(curve, name)) for name in names}
    for name, value in values.items():
        expected = (None,) if name == "counts" else values["counts"].shape
        _checks.shape(f"curve.{name}", value, expected, "[K], the bins of one data set")
    is_full = values["counts"] > 0
    return dataclasses.replace(curve, **{k: v[is_full] for k, v in values.items()})


def _draw_bands(axis: "Axes", curve: ReliabilityCurve, width: float) -> None:
    """Bars from the lower to the upper ends."""
    for name, lower, upper, color in (
        ("all bins", curve.simultaneous_lower, curve.simultaneous_upper, LIGHT_BAND),
        ("each bin", curve.pointwise_lower, curve.pointwise_upper, BAND),
    ):
        label = f"{100 * curve.level:.4g} % band: {name}"
        style = {"color": color, "linewidth": width, "capstyle": "butt", "zorder": 2}
        axis.vlines(curve.confidence, lower, upper, label=label, **style)


def _draw_frequencies(axis: "Axes", curve: ReliabilityCurve, size: float) -> None:
    """Points; red diamonds outside the simultaneous band."""
    x, y, is_outside = curve.confidence, curve.frequency, np.asarray(curve.is_outside)
    style = {"linestyle": "none", "markersize": size, "clip_on": False, "zorder": 3}
    style |= {"markeredgecolor": "white", "markeredgewidth": 0.6}
    for label, chosen, color, marker in (
        ("observed", ~is_outside, BLACK, "o"),
        ("outside the band of all bins", is_outside, RED, "D"),
    ):
        if np.any(chosen):
            axis.plot(x[chosen], y[chosen], color=color, marker=marker, label=label, **style)


def _draw_counts(axis: "Axes", curve: ReliabilityCurve, width: float) -> None:
    """Numbers of samples, in Axes of their own below the diagram."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    # In inches from the lower edge, for which layouts can leave room, whatever the diagram's size.
    # Matplotlib's stubs ask for an affine transform, but any will do.
    origin = ScaledTranslation(0, 0, axis.transAxes)  # pyright: ignore[reportArgumentType]
    inches = axis.figure.dpi_scale_trans + origin
    transform = blended_transform_factory(axis.transAxes, inches)
    panel = axis.inset_axes((0, -0.75, 1, 0.55), transform=transform, sharex=axis)
    panel.vlines(curve.confidence, 0, curve.counts, color=BLUE, linewidth=width, label="samples")
    panel.set(ylim=(0, None), xlabel=axis.get_xlabel(), ylabel="samples")
    panel.spines[["top", "right"]].set_visible(False)
    panel.locator_params(axis="y", nbins=2, integer=True)
    axis.set_xlabel("")
    axis.tick_params(labelbottom=False)
