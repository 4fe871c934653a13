"""Reliability diagrams: observed frequencies of a label over its predicted probabilities."""

from typing import TYPE_CHECKING

import jax

from calibjax import _checks
from calibjax.estimators.reliability import ReliabilityCurve
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability_diagram(
    curve: ReliabilityCurve, *, show_counts: bool = True, ax: "Axes | None" = None
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
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = plotting.reliability_diagram(curve)
    >>> print(ax.get_ylabel())
    observed frequency
    """
    described = "[K], the bins of one data set"
    record = "curve", curve, ReliabilityCurve
    shown = figures.shown_record(*record, "reliability_curve", "counts", described)
    shown = jax.tree.map(lambda x: x[shown.counts > 0], shown)
    show_counts = _checks.truth_value("show_counts", show_counts)
    width = min(8.0, 160 / max(1, shown.counts.size))
    x, size = shown.confidence, min(6.0, 2 + width / 2)
    with figures.figure(ax, (4.6, 5.3 if show_counts else 4.8), ncols=2) as ax:
        figures.draw_diagonal(ax)
        for name, lower, upper, color in (
            ("all bins", shown.simultaneous_lower, shown.simultaneous_upper, figures.LIGHT_BAND),
            ("each bin", shown.pointwise_lower, shown.pointwise_upper, figures.BAND),
        ):
            label = f"{100 * shown.level:.4g} % band: {name}"
            style = {"color": color, "linewidth": width, "capstyle": "butt", "zorder": 2}
            ax.vlines(x, lower, upper, label=label, **style)
        outside = "outside the band of all bins"
        figures.draw_points(ax, x, shown.frequency, shown.is_outside, size, outside)
        # Free space of a square is above it, so that layouts see how far the counts reach down.
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), box_aspect=1, anchor="S")
        ax.set(xlabel="predicted probability", ylabel="observed frequency")
        if show_counts:
            _draw_counts(ax, shown, width)
    return ax


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
