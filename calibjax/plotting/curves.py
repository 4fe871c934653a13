"""Errors, rewards and risks over what they depend on, and estimates side by side."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GEOMETRIC = 50  # largest / smallest hyperparameter from which on the axis is logarithmic


def bandwidth_curves(
    length_scales: ArrayLike,
    curves: Mapping[str, Any],
    *,
    ylabel: str = "maximum local calibration error",
    ax: "Axes | None" = None,
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
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = bandwidth_curves(jnp.array([0.01, 1.0]), errors)
    >>> print([line.get_label() for line in ax.lines], ax.get_xscale())
    ['original', 'LoRe'] log
    """
    x = figures.shown_vector("length_scales", length_scales, "[G]")
    checks.positive("length_scales", x)
    return _draw(x, curves, ax, xlabel="length scale of the kernel", ylabel=ylabel)


def reward_curves(
    ratios: ArrayLike,
    curves: Mapping[str, Any],
    *,
    ylabel: str = "improvement of the reward, per sample",
    ax: "Axes | None" = None,
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
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = reward_curves(jnp.array([1.0, 10.0]), {"LoRe": jnp.array([0.0, 0.2])})
    >>> print([line.get_label() for line in ax.lines])
    ['LoRe', 'original']
    """
    x = figures.shown_vector("ratios", ratios, "[r]")
    checks.refuse_where(x < 1, "ratios", "values of at least 1", x)
    xlabel = "cost of an error / cost of “unsure”, w/u"
    return _draw(x, curves, ax, xlabel=xlabel, ylabel=ylabel, baseline="original")


def risk_curve(
    hyperparameters: ArrayLike,
    risks: ArrayLike,
    *,
    errors: ArrayLike | None = None,
    marked: float | None = None,
    xlabel: str = "hyperparameter",
    ylabel: str = "risk",
    ax: "Axes | None" = None,
) -> "Axes":
    """Risk of a calibration estimation function over its hyperparameter, with error bars.

    Of several runs it is their mean, and the bars are one standard deviation (with n − 1 in the
    denominator) to both sides, which is the variation between runs, not the standard error of the
    mean. For the latter give `errors`; those of cross-validation are drawn by

        risk_curve(result.grid, result.risk, errors=result.standard_error,
                   marked=result.hyperparameter).

    The bars are those of each risk, which the hyperparameters have in common for the most part:
    differences of risks vary much less. The ax is logarithmic where all hyperparameters are
    positive and the largest is at least 50 times the smallest. The curve and the marked place have
    labels for a legend; a new figure has one.

    Args:
        hyperparameters: the grid, [k].
        risks: at the hyperparameters, [k], or of several runs, [runs, k].
        errors: half the lengths of the bars, [k].
        marked: a hyperparameter that a vertical line is at: the true one, or the one selected.
        xlabel: what the hyperparameter is.
        ylabel: what the risk is.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(runs · k).

    References: G24 Fig. 1.

    >>> import jax.numpy as jnp
    >>> runs = jnp.array([[0.25, 0.125, 0.5], [0.75, 0.125, 0.5]])
    >>> ax = risk_curve(jnp.array([0.01, 0.1, 1.0]), runs, marked=0.1)
    >>> print(ax.lines[0].get_ydata(), ax.get_xscale())
    [0.5   0.125 0.5  ] log
    """
    x = figures.shown_vector("hyperparameters", hyperparameters, "[k]")
    mean, half = _mean_and_spread(_runs("risks", risks, x.size))
    if errors is not None:
        half = _lengths("errors", errors, x.size, ", as the hyperparameters")
    marked = None if marked is None else figures.shown_scalar("marked", marked)
    with figures.figure(ax, (4.8, 3.2)) as ax:
        order = np.argsort(x)  # grids may be joined from two
        style = {"linewidth": 1.5, "marker": "o", "markersize": 3.5, "label": "risk"}
        ax.plot(x[order], mean[order], color=figures.BLUE, **style)
        if half is not None:
            style = {"fmt": "none", "ecolor": figures.BLUE, "elinewidth": 0.9, "capsize": 2.5}
            ax.errorbar(x[order], mean[order], half[order], **style)
        if marked is not None:
            style = {"linewidth": 1, "linestyle": "--", "label": f"{xlabel} {marked:.3g}"}
            ax.axvline(marked, color=figures.RED, **style)
        is_geometric = x.min() > 0 and x.max() >= _GEOMETRIC * x.min()
        ax.set(xscale="log" if is_geometric else "linear", xlabel=xlabel, ylabel=ylabel)
    return ax


def estimate_comparison(
    models: Sequence[str],
    estimates: Mapping[str, Any],
    *,
    errors: Mapping[str, Any] | None = None,
    ylabel: str = "calibration error",
    ax: "Axes | None" = None,
) -> "Axes":
    """Estimates by several estimators side by side, for several models, with error bars.

    A group of points for each model, with a point for each estimator. Whether two estimates of
    one model differ cannot be read from their bars, since they come from the same samples.

    Points have labels for a legend; a new figure has one.

    Args:
        models: names of the g models.
        estimates: for each name of an estimator its estimates, [g]; at most nine estimators.
        errors: for the names of some or all estimators half the lengths of the bars, [g].
        ylabel: what the estimates are.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too many estimators.

    Cost: O(g) for each estimator.

    References: G24 Fig. 2, 3 and 4.

    >>> import jax.numpy as jnp
    >>> estimates = {"bins": jnp.array([0.05, 0.03]), "kkr": jnp.array([0.04, 0.03])}
    >>> errors = {"bins": jnp.array([0.01, 0.02])}
    >>> ax = estimate_comparison(["DenseNet", "ResNet"], estimates, errors=errors)
    >>> print([text.get_text() for text in ax.get_xticklabels()], len(ax.containers))
    ['DenseNet', 'ResNet'] 2
    """
    if isinstance(models, str) or not isinstance(models, Sequence):
        raise TypeError(f"models: expected a list of names, got {checks.described(models)}")
    checks.size_in_range("len(models)", len(models), 1)
    size, described = len(models), ", one for each model"

    def shown(name: str, values: ArrayLike) -> np.ndarray:
        return figures.shown_vector(name, values, described, size=size)

    def lengths(name: str, values: ArrayLike) -> np.ndarray:
        return _lengths(name, values, size, described)

    estimates = figures.shown_by_name("estimates", estimates, shown)
    errors = figures.shown_by_name("errors", {} if errors is None else errors, lengths, 0)
    if unknown := [name for name in errors if name not in estimates]:
        raise ValueError(f"errors: expected names of {list(estimates)}, got {unknown[0]!r}")
    with figures.figure(ax, (1.6 + 1.1 * size, 3.4)) as ax:
        step = 0.8 / len(estimates)
        looks = zip(figures.CURVE_COLORS, figures.CURVE_MARKERS, strict=True)
        for i, ((name, values), (color, marker)) in enumerate(
            zip(estimates.items(), looks, strict=False)
        ):
            x = np.arange(size) + step * (i - (len(estimates) - 1) / 2)
            style = {"color": color, "elinewidth": 0.9, "capsize": 2.5, "label": name}
            ax.errorbar(x, values, errors.get(name), fmt=marker, markersize=4, **style)
        ax.set_xticks(np.arange(size), list(map(str, models)))
        ax.set(ylabel=ylabel, xlim=(-0.5, size - 0.5))
    return ax


def _draw(
    x: np.ndarray,
    curves: Mapping[str, Any],
    ax: "Axes | None",
    *,
    xlabel: str,
    ylabel: str,
    baseline: str | None = None,
) -> "Axes":
    """Lines and bands, and a line at zero for the baseline."""
    curves = figures.shown_by_name("curves", curves, lambda name, y: _runs(name, y, x.size))
    with figures.figure(ax, (4.8, 3.6)) as ax:
        for (color, line), (name, runs) in zip(figures.CURVE_LOOKS, curves.items(), strict=False):
            mean, half = _mean_and_spread(runs)
            ax.plot(x, mean, color=color, linestyle=line, linewidth=1.5, label=name)
            if half is not None:
                ax.fill_between(x, mean - half, mean + half, color=color, alpha=0.18, linewidth=0)
        if baseline is not None:
            ax.axhline(0, color=figures.GRAY, linewidth=1, linestyle="--", label=baseline)
        ax.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
    return ax


def _runs(name: str, values: ArrayLike, size: int) -> np.ndarray:
    """The curves of one run or several, [runs, size]."""
    values = figures.shown_values(name, values).astype(np.float64)
    values = values[None] if values.ndim == 1 else values
    checks.shape(name, values, (None, size), f"({size},) or [runs, {size}]")
    checks.leading_size(name, values)
    return values


def _mean_and_spread(runs: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean of the runs, and their standard deviation if there are several."""
    return runs.mean(0), runs.std(0, ddof=1) if len(runs) > 1 else None


def _lengths(name: str, values: ArrayLike, size: int, described: str) -> np.ndarray:
    """Half the lengths of error bars."""
    values = figures.shown_vector(name, values, described, size=size)
    checks.refuse_where(values < 0, name, "values >= 0", values)
    return values
