"""Murphy diagrams."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from calibjax.plotting import figures
from calibjax.scores.murphy import MurphyCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    shown_curves = figures.shown_by_name("curves", curves, shown)
    levels = {curve.level for curve in shown_curves.values()}
    if len(levels) > 1:
        raise ValueError(
            f"curves: expected scores of one quantile or of means, got levels {levels}"
        )
    with figures.figure(ax, (5.0, 3.4)) as ax:
        looks = zip(shown_curves.items(), figures.CURVE_LOOKS, strict=False)
        for (name, curve), (color, style) in looks:
            ax.plot(curve.thresholds, curve.score, color=color, linestyle=style, label=name)
        ax.set(xlabel=xlabel, ylabel="mean elementary score", ylim=(0, None))
    return ax
