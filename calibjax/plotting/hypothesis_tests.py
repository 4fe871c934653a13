"""Null distributions and p-values of hypothesis tests."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calibjax import _checks
from calibjax.estimators.uniformity import CoverageCurve
from calibjax.hypothesis_tests._redraw.components import Component
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting.figures import (
    BLUE,
    CURVE_COLORS,
    CURVE_STYLES,
    GRAY,
    LIGHT_BAND,
    RED,
    axes_to_draw_on,
    bin_edges,
    finished,
    shown_values,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def null_distribution(
    result: CalibrationTestResult | Component,
    *,
    bins: int = 50,
    xlabel: str = "test statistic",
    axis: "Axes | None" = None,
) -> "Axes":
    """Histogram of a test statistic under calibration, with the observed value.

    The p-value in the legend is the share of the draws, and of the observed value itself, that is
    at least as large as the observed value; of the two-sided component "spread" of
    `exact_skce_test` it is that of both tails.

    All artists have labels for a legend; a new figure has one.

    Args:
        result: of a simulated test with one statistic, or one of its components, such as
            `result.components.spread`.
        bins: number of bars, of equal width.
        xlabel: what the statistic is.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if the test draws no samples or has several statistics, values are not finite,
            or `bins` is below 1.

    Cost: O(number of draws).

    References: none; see `hypothesis_tests.exact_test`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, plotting
    >>> test = hypothesis_tests.exact_test(
    ...     jax.random.key(0),
    ...     lambda predictions, targets: jnp.abs(jnp.mean(targets - predictions.probs)),
    ...     distributions.Bernoulli(jnp.full(100, 0.5)),
    ...     jnp.ones(100, int),
    ... )
    >>> axis = plotting.null_distribution(test, xlabel="absolute mean error")
    >>> print(axis.lines[0].get_label())
    observed, p = 0.000999
    """
    if not isinstance(result, CalibrationTestResult | Component):
        raise TypeError(
            "result: expected a CalibrationTestResult of hypothesis_tests, or one of its "
            f"components, got {_checks.described(result)}"
        )
    if result.null_samples is None:
        raise ValueError("result.null_samples: expected draws, got None (not a simulated test)")
    statistic, pvalue, draws = (_one_statistic(result, x) for x in ("statistic", "pvalue", "draws"))
    bins = _checks.size_in_range("bins", bins, 1, 2**24)
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.8, 3.2))
    heights, edges = np.histogram(draws, bin_edges(draws, bins))
    axis.stairs(heights, edges, fill=True, color=BLUE, alpha=0.55, label="under calibration")
    label = f"observed, p = {float(pvalue):.3g}"
    axis.axvline(float(statistic), color=RED, linewidth=1.8, label=label)
    axis.set(xlabel=xlabel, ylabel="draws")
    return finished(axis, is_new)


def pvalue_ecdf(
    pvalues: Mapping[str, Any],
    *,
    band: CoverageCurve | None = None,
    axis: "Axes | None" = None,
) -> "Axes":
    """Rejection rate of tests over their level: the empirical distribution of p-values.

        rate(α) = #{r: p_r ≤ α} / R.

    On calibrated data sets it is the type I error of the test, and has to be at most α (the dashed
    diagonal); on others it is its power. The diagonal, and the band, are for the former.

    All artists have labels for a legend; a new figure has one.

    Args:
        pvalues: for each name of a test its p-values on R data sets, [R]; at most nine tests.
        band: what R uniform p-values give at all levels at once, as
            `estimators.quantile_coverage(key, pvalues)` returns it for any R p-values.
        axis: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too many tests.

    Cost: O(R log R) for each test.

    References: W19 Fig. 2 (test errors over the level).

    >>> import jax.numpy as jnp
    >>> axis = pvalue_ecdf({"exact": jnp.array([0.75, 0.25]), "CME": jnp.array([0.5, 0.125])})
    >>> print(axis.lines[0].get_xydata().tolist())
    [[0.0, 0.0], [0.25, 0.5], [0.75, 1.0], [1.0, 1.0]]
    """
    if not isinstance(pvalues, Mapping):
        expected = "a dict of names and arrays"
        raise TypeError(f"pvalues: expected {expected}, got {_checks.described(pvalues)}")
    _checks.size_in_range("len(pvalues)", len(pvalues), 1, len(CURVE_COLORS))
    shown = {str(name): _sorted(f"pvalues[{name!r}]", x) for name, x in pvalues.items()}
    if band is not None and (not isinstance(band, CoverageCurve) or band.sets != "quantiles"):
        got = _checks.described(band)
        raise TypeError(f"band: expected what estimators.quantile_coverage returns, got {got}")
    is_new = axis is None
    axis = axes_to_draw_on(axis, (4.4, 4.8))
    for i, (name, values) in enumerate(shown.items()):
        rates = np.arange(1, values.size + 1) / values.size
        style = {"color": CURVE_COLORS[i], "linestyle": CURVE_STYLES[i], "linewidth": 1.5}
        ends = np.r_[0, values, 1], np.r_[0, rates, 1]
        axis.plot(*ends, drawstyle="steps-post", label=name, **style)
    axis.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle="--", label="rate = level")
    if band is not None:
        fields = "levels", "simultaneous_lower", "simultaneous_upper"
        x, lower, upper = (shown_values(f"band.{name}", getattr(band, name)) for name in fields)
        label = f"{100 * band.level:.4g} % band of uniform p-values"
        axis.fill_between(x, lower, upper, color=LIGHT_BAND, linewidth=0, zorder=0, label=label)
    axis.set(xlim=(0, 1), ylim=(0, 1.01), box_aspect=1)
    axis.set(xlabel="level of the test", ylabel="share of data sets that are rejected")
    return finished(axis, is_new, ncols=2)


def _one_statistic(result: CalibrationTestResult | Component, kind: str) -> np.ndarray:
    """Statistic, p-value or draws of a test with one statistic."""
    name = "null_samples" if kind == "draws" else kind
    value = getattr(result, name)
    if not hasattr(value, "shape"):
        raise ValueError(
            f"result.{name}: expected one statistic, got {_checks.described(value)}; take one of "
            "them with dataclasses.replace"
        )
    expected, described = ((None,), "[B]") if kind == "draws" else ((), "()")
    described += ", of one statistic (take one of several with dataclasses.replace)"
    _checks.shape(f"result.{name}", value, expected, described)
    values = shown_values(f"result.{name}", value).astype(np.float64)
    if kind == "draws":
        _checks.leading_size(f"result.{name}", values)
    return values


def _sorted(name: str, values: Any) -> np.ndarray:
    """p-values in increasing order, [R]."""
    values = shown_values(name, values).astype(np.float64)
    _checks.shape(name, values, (None,), "[R], one from each data set")
    _checks.leading_size(name, values)
    _checks.unit_interval(name, values)
    return np.sort(values)
