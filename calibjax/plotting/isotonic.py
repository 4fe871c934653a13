"""Reliability and scores without bins: isotonic curves and Murphy diagrams."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from calibjax.estimators.isotonic import IsotonicCurve
from calibjax.plotting import figures
from calibjax.scores import MurphyCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def isotonic_diagram(curve: IsotonicCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Frequencies of a label over its probability, by isotonic regression, with consistency bands.

    Or means or quantiles of numbers over the predicted ones. Points outside the band of all points
    are red diamonds. Below the diagonal the label is rarer than predicted, or numbers smaller;
    above it more frequent, or larger. There are no bins that could be chosen so that it looks well.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: what `estimators.isotonic_curve` returned, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the curve is one of several data sets (under `vmap`), or is not finite.

    Cost: O(number of points).

    References: Dimitriadis, Gneiting and Jordan (2021), Fig. 2; Gneiting and Resin (2023), Fig. 4.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, estimators, plotting
    >>> predictions = distributions.Bernoulli(jnp.linspace(0, 1, 200))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> curve = estimators.isotonic_curve(jax.random.key(1), predictions, targets, num_draws=99)
    >>> print(plotting.isotonic_diagram(curve).get_ylabel())
    observed frequency
    """
    described = "[K], the points of one data set"
    record = "curve", curve, IsotonicCurve
    shown = figures.shown_record(*record, "isotonic_curve", "confidence", described)
    with figures.figure(ax, (4.6, 4.8), ncols=2) as ax:
        is_of_labels = shown.functional == "probability"
        ends = [0, 1] if is_of_labels else [min(shown.confidence), max(shown.confidence)]
        figures.draw_diagonal(ax, ends=ends)
        for name, lower, upper, color in (
            ("all points", shown.simultaneous_lower, shown.simultaneous_upper, figures.LIGHT_BAND),
            ("each point", shown.pointwise_lower, shown.pointwise_upper, figures.BAND),
        ):
            label = f"{100 * shown.level:.4g} % band: {name}"
            ax.fill_between(shown.confidence, lower, upper, color=color, linewidth=0, label=label)
        ax.plot(shown.confidence, shown.frequency, color=figures.BLACK, linewidth=1, zorder=2)
        outside = "outside the band of all points"
        figures.draw_points(ax, shown.confidence, shown.frequency, shown.is_outside, 4, outside)
        ax.set(xlabel=f"predicted {shown.functional}", box_aspect=1)
        if is_of_labels:
            ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), ylabel="observed frequency")
        else:
            ax.set(ylabel=f"{shown.functional} of the targets")
    return ax


def murphy_diagram(
    curves: Mapping[str, MurphyCurve],
    *,
    xlabel: str = "threshold",
    ax: "Axes | None" = None,
) -> "Axes":
    """Elementary scores of several models over the threshold.

    A model whose line is nowhere above another one is better for every consistent score; where
    lines cross, it depends on the score.

    Lines have labels for a legend; a new figure has one.

    Args:
        curves: for each name of a model what `scores.murphy_curve` returned; at most nine.
        xlabel: what is predicted, with its unit.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too many models.

    Cost: O(number of thresholds) for each model.

    References: Ehm, Gneiting, Jordan and Krüger (2016), Fig. 2.

    >>> import jax.numpy as jnp
    >>> from calibjax import distributions, plotting, scores
    >>> targets = jnp.array([0, 1, 1])
    >>> models = {"sharp": jnp.array([0.1, 0.9, 0.9]), "constant": jnp.full(3, 0.6)}
    >>> curves = {
    ...     name: scores.murphy_curve(distributions.Bernoulli(probs), targets)
    ...     for name, probs in models.items()
    ... }
    >>> print([line.get_label() for line in plotting.murphy_diagram(curves).lines])
    ['sharp', 'constant']
    """

    def shown(name: str, curve: MurphyCurve) -> MurphyCurve:
        described = "[k], the thresholds of one data set"
        return figures.shown_record(
            name, curve, MurphyCurve, "scores.murphy_curve", "thresholds", described
        )

    known = figures.shown_by_name("curves", curves, shown)
    levels = {curve.level for curve in known.values()}
    if len(levels) > 1:
        raise ValueError(
            f"curves: expected scores of one quantile or of means, got levels {levels}"
        )
    with figures.figure(ax, (5.0, 3.4)) as ax:
        for (name, curve), (color, style) in zip(known.items(), figures.CURVE_LOOKS, strict=False):
            ax.plot(curve.thresholds, curve.score, color=color, linestyle=style, label=name)
        ax.set(xlabel=xlabel, ylabel="mean elementary score", ylim=(0, None))
    return ax
