"""Reliability diagrams, PIT histograms and coverage curves, with bands for calibrated models."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from calibjax.estimators.isotonic import IsotonicCurve
from calibjax.estimators.reliability import ReliabilityCurve
from calibjax.estimators.uniformity import CoverageCurve, PITHistogram
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNIT_SQUARE: dict[str, Any] = {"xlim": (-0.02, 1.02), "ylim": (-0.02, 1.02)}


def pit_histogram(histogram: PITHistogram, *, ax: "Axes | None" = None) -> "Axes":
    """Histogram of PIT values: flat if the model is calibrated.

    Bars outside the band of all bins are red and hatched. High at both ends means predictions that
    are too narrow, high in the middle too wide ones, a slope biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        histogram: result of `estimators.pit_counts`, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the histogram is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of bins).

    References: Gneiting, Balabdaoui and Raftery (2007), §3.1; see `estimators.pit_counts`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import estimators, plotting
    >>> pit = jax.random.uniform(jax.random.key(0), (200,))
    >>> histogram = estimators.pit_counts(jax.random.key(1), pit, num_bins=4)
    >>> ax = plotting.pit_histogram(histogram)
    >>> print(ax.get_xlabel(), "|", ax.get_ylabel())
    PIT value | targets
    """
    described = "[K], the bins of one data set"
    record = "histogram", histogram, PITHistogram
    shown = figures.shown_record(*record, "pit_counts", "counts", described)
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
        label = f"{100 * shown.confidence_level:.4g} % band: all bins"
        style = {"fill": True, "color": figures.BAND, "alpha": 0.5, "linewidth": 0, "label": label}
        ax.stairs(shown.simultaneous_upper, edges, baseline=shown.simultaneous_lower, **style)
        style = {"color": figures.BLACK, "linewidth": 1, "linestyle": "--", "label": "uniform"}
        ax.plot([0, 1], np.full(2, shown.counts.sum() / shown.counts.size), **style)
        ax.set(xlabel="PIT value", ylabel="targets", xlim=(0, 1), ylim=(0, None))
    return ax


def pit_ecdf(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Empirical distribution function of PIT values, minus that of uniform ones.

    The diagonal is subtracted to make the band visible for many targets. Points outside the band
    are red diamonds. Above zero on the left and below it on the right means predictions that are
    too narrow, the opposite predictions that are too wide, one sign everywhere biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: result of `estimators.coverage_curve` with `kind="quantile"`, of one data set and
            outside of `jit`.
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
    >>> curve = estimators.coverage_curve(jax.random.key(1), pit, kind="quantile")
    >>> print(plotting.pit_ecdf(curve).get_ylabel())
    share of PIT values - PIT value
    """
    labels = "PIT value", "share of PIT values - PIT value"
    if isinstance(curve, CoverageCurve) and curve.kind != "quantile":
        got = f"a curve of kind {curve.kind!r}"
        raise TypeError(f'curve: expected a coverage_curve of kind "quantile", got {got}')
    return _draw_coverage(ax, curve, labels, is_difference=True)


def coverage_curve(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Share of targets in the predicted central intervals, over the probability of the intervals.

    Or share of targets up to the predicted quantiles, over their level. Intervals are too narrow
    (overconfident) below the diagonal, too wide above it. Points outside the band of all levels
    are red diamonds.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: result of `estimators.coverage_curve`, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of levels).

    References: Gneiting, Balabdaoui and Raftery (2007), Probabilistic forecasts, calibration and
    sharpness, §3.1.

    >>> import jax
    >>> from calibjax import estimators, plotting
    >>> pit = jax.random.uniform(jax.random.key(0), (200,))
    >>> curve = estimators.coverage_curve(jax.random.key(1), pit)
    >>> print(plotting.coverage_curve(curve).get_xlabel())
    probability of the predicted interval
    """
    labels = "probability of the predicted interval", "share of targets in the interval"
    if getattr(curve, "kind", None) == "quantile":
        labels = "level of the predicted quantile", "share of targets up to the quantile"
    return _draw_coverage(ax, curve, labels, is_difference=False)


def _draw_coverage(
    ax: "Axes | None", curve: CoverageCurve, labels: tuple[str, str], *, is_difference: bool
) -> "Axes":
    """Band, line and points of the coverage around the diagonal, or of its difference from it."""
    record = "curve", curve, CoverageCurve
    described = "[L], the levels of one data set"
    shown = figures.shown_record(*record, "coverage_curve", "levels", described)
    x = np.asarray(shown.levels)
    baseline = x if is_difference else 0
    lower, upper = shown.simultaneous_lower - baseline, shown.simultaneous_upper - baseline
    size = (4.8, 3.4) if is_difference else (4.4, 4.8)
    with figures.figure(ax, size, ncols=2) as ax:
        label = f"{100 * shown.confidence_level:.4g} % band: all levels"
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


def reliability_diagram(
    curve: ReliabilityCurve | IsotonicCurve, *, ax: "Axes | None" = None
) -> "Axes":
    """Reliability diagram: observed frequencies over predicted probabilities.

    Frequencies outside the simultaneous band are red diamonds. Below the diagonal the label is
    rarer than predicted, above it more frequent. The pointwise band is dark, the simultaneous one
    light.

    - `estimators.reliability_curve`: a point for each bin, at (confidence, frequency), with the
      bands of the bin. Below, in inset Axes (`.child_axes[0]` of the result), is the number of
      samples in each bin.
    - `estimators.isotonic_curve`: a line without bins, of frequencies of a label, or of means of
      numbers over the predicted means.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: result of `estimators.reliability_curve` or `estimators.isotonic_curve`, of one data
            set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of points).

    References: Bröcker and Smith (2007); Dimitriadis, Gneiting and Jordan (2021), Fig. 2, and
    Gneiting and Resin (2023), Fig. 4, without bins.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators, plotting
    >>> predictions = distributions.Bernoulli(jnp.linspace(0, 1, 200))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> curve = estimators.reliability_curve(
    ...     jax.random.key(1), predictions, targets, binning=estimators.UniformBins(10)
    ... )
    >>> ax = plotting.reliability_diagram(curve)
    >>> print(ax.get_ylabel())
    observed frequency
    """
    if isinstance(curve, IsotonicCurve):
        return _draw_isotonic(curve, ax)
    described = "[K], the bins of one data set"
    record = "curve", curve, ReliabilityCurve
    shown = figures.shown_record(*record, "reliability_curve", "counts", described)
    shown = jax.tree.map(lambda x: x[shown.counts > 0], shown)
    width = min(8.0, 160 / max(1, shown.counts.size))
    x, size = shown.confidence, min(6.0, 2 + width / 2)
    with figures.figure(ax, (4.6, 5.3), ncols=2) as ax:
        figures.draw_diagonal(ax)
        for label, lower, upper, color in _bands(shown, "bin"):
            style = {"color": color, "linewidth": width, "capstyle": "butt", "zorder": 2}
            ax.vlines(x, lower, upper, label=label, **style)
        outside = "outside the band of all bins"
        figures.draw_points(ax, x, shown.frequency, shown.is_outside, size, outside)
        # Free space of a square is above it, so that layouts see how far the counts reach down.
        ax.set(**_UNIT_SQUARE, box_aspect=1, anchor="S")
        ax.set(xlabel="predicted probability", ylabel="observed frequency")
        _draw_counts(ax, shown, width)
    return ax


def _draw_isotonic(curve: IsotonicCurve, ax: "Axes | None") -> "Axes":
    """Line, points and bands of an isotonic regression."""
    described = "[K], the points of one data set"
    record = "curve", curve, IsotonicCurve
    shown = figures.shown_record(*record, "isotonic_curve", "confidence", described)
    x, is_of_labels = shown.confidence, shown.functional == "probability"
    with figures.figure(ax, (4.6, 4.8), ncols=2) as ax:
        figures.draw_diagonal(ax, ends=[0, 1] if is_of_labels else [min(x), max(x)])
        for label, lower, upper, color in _bands(shown, "point"):
            ax.fill_between(x, lower, upper, color=color, linewidth=0, label=label)
        ax.plot(x, shown.frequency, color=figures.BLACK, linewidth=1, zorder=2)
        outside = "outside the band of all points"
        figures.draw_points(ax, x, shown.frequency, shown.is_outside, 4, outside)
        ylabel = "observed frequency" if is_of_labels else f"{shown.functional} of the targets"
        ax.set(xlabel=f"predicted {shown.functional}", ylabel=ylabel, box_aspect=1)
        ax.set(**_UNIT_SQUARE if is_of_labels else {})
    return ax


def _bands(curve: Any, part: str) -> list[tuple[str, Any, Any, str]]:
    """Label, ends and colour of the simultaneous and of the pointwise band."""
    label = f"{100 * curve.confidence_level:.4g} % band"
    both = curve.simultaneous_lower, curve.simultaneous_upper, figures.LIGHT_BAND
    each = curve.pointwise_lower, curve.pointwise_upper, figures.BAND
    return [(f"{label}: all {part}s", *both), (f"{label}: each {part}", *each)]


def _draw_counts(ax: "Axes", curve: ReliabilityCurve, width: float) -> None:
    """Numbers of samples, in Axes of their own below the diagram."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    # In inches from the lower edge, for which layouts can leave room, whatever the diagram's size.
    # Matplotlib's stubs ask for an affine transform, but any will do.
    origin = ScaledTranslation(0, 0, ax.transAxes)  # pyright: ignore[reportArgumentType]
    inches = ax.figure.dpi_scale_trans + origin
    transform = blended_transform_factory(ax.transAxes, inches)
    panel = ax.inset_axes((0, -0.75, 1, 0.55), transform=transform, sharex=ax)
    panel.vlines(
        curve.confidence, 0, curve.counts, color=figures.BLUE, linewidth=width, label="samples"
    )
    panel.set(ylim=(0, None), xlabel=ax.get_xlabel(), ylabel="samples")
    panel.spines[["top", "right"]].set_visible(False)
    panel.locator_params(axis="y", nbins=2, integer=True)
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False)
