"""Distributions of test statistics and of p-values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.estimators.uniformity import CoverageCurve
from calibjax.hypothesis_tests._redraw.components import Component
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def null_distribution(
    result: CalibrationTestResult | Component,
    *,
    bins: int = 50,
    xlabel: str = "test statistic",
    ax: "Axes | None" = None,
) -> "Axes":
    """Histogram of a test statistic under calibration, with the observed value.

    The p-value in the legend is the share of the draws, and of the observed value itself, that is
    at least as large as the observed value; of the two-sided component "dispersion" of
    `exact_skce_test` it is that of both tails.

    All artists have labels for a legend; a new figure has one.

    Args:
        result: of a simulated test with one statistic, or one of its components, such as
            `result.components.dispersion`.
        bins: number of bars, of equal width.
        xlabel: what the statistic is.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = plotting.null_distribution(test, xlabel="absolute mean error")
    >>> print(ax.lines[0].get_label())
    observed, p = 0.001
    """
    if not isinstance(result, CalibrationTestResult | Component):
        raise TypeError(
            "result: expected a CalibrationTestResult of hypothesis_tests, or one of its "
            f"components, got {checks.described(result)}"
        )
    if result.null_samples is None:
        raise ValueError("result.null_samples: expected draws, got None (not a simulated test)")
    statistic, pvalue, draws = (_one_statistic(result, x) for x in ("statistic", "pvalue", "draws"))
    with figures.figure(ax, (4.8, 3.2)) as ax:
        figures.draw_histogram(ax, draws, bins, "under calibration")
        label = f"observed, p = {float(pvalue):.3g}"
        ax.axvline(float(statistic), color=figures.RED, linewidth=1.8, label=label)
        ax.set(xlabel=xlabel, ylabel="draws")
    return ax


def pvalue_ecdf(
    pvalues: Mapping[str, Any], *, band: CoverageCurve | None = None, ax: "Axes | None" = None
) -> "Axes":
    """Rejection rate of tests over their level: the empirical distribution of p-values.

        rate(α) = #{r: p_r ≤ α} / R.

    On calibrated data sets it is the type I error of the test, and has to be at most α (the dashed
    diagonal); on others it is its power. The diagonal, and the band, are for the former.

    All artists have labels for a legend; a new figure has one.

    Args:
        pvalues: for each name of a test its p-values on R data sets, [R]; at most nine tests.
        band: of R uniform p-values at all levels at once, the result of
            `estimators.coverage_curve(key, pvalues, kind="quantile")` for any R p-values.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
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
    >>> ax = pvalue_ecdf({"exact": jnp.array([0.75, 0.25]), "CME": jnp.array([0.5, 0.125])})
    >>> print(ax.lines[0].get_xydata().tolist())
    [[0.0, 0.0], [0.25, 0.5], [0.75, 1.0], [1.0, 1.0]]
    """
    shown = figures.shown_by_name("pvalues", pvalues, _sorted)
    if band is not None and (not isinstance(band, CoverageCurve) or band.kind != "quantile"):
        expected = 'a coverage_curve of kind "quantile"'
        raise TypeError(f"band: expected {expected}, got {checks.described(band)}")
    with figures.figure(ax, (4.4, 4.8), ncols=2) as ax:
        for (color, line), (name, values) in zip(figures.CURVE_LOOKS, shown.items(), strict=False):
            rates = np.arange(1, values.size + 1) / values.size
            ends = np.r_[0, values, 1], np.r_[0, rates, 1]
            style = {"color": color, "linestyle": line, "linewidth": 1.5, "label": name}
            ax.plot(*ends, drawstyle="steps-post", **style)
        figures.draw_diagonal(ax, "rate = level")
        if band is not None:
            fields = "levels", "simultaneous_lower", "simultaneous_upper"
            x, *ends = (figures.shown_values(f"band.{x}", getattr(band, x)) for x in fields)
            label = f"{100 * band.confidence_level:.4g} % band of uniform p-values"
            style = {"color": figures.LIGHT_BAND, "linewidth": 0, "zorder": 0, "label": label}
            ax.fill_between(x, ends[0], ends[1], **style)
        ax.set(xlim=(0, 1), ylim=(0, 1.01), box_aspect=1)
        ax.set(xlabel="level of the test", ylabel="share of data sets that are rejected")
    return ax


def _one_statistic(result: CalibrationTestResult | Component, kind: str) -> np.ndarray:
    """Statistic, p-value or draws of a test with one statistic."""
    name = "null_samples" if kind == "draws" else kind
    value = getattr(result, name)
    if not hasattr(value, "shape"):
        raise ValueError(
            f"result.{name}: expected one statistic, got {checks.described(value)}; take one of "
            "them with dataclasses.replace"
        )
    expected, described = ((None,), "[B]") if kind == "draws" else ((), "()")
    described += ", of one statistic (take one of several with dataclasses.replace)"
    checks.shape(f"result.{name}", value, expected, described)
    values = figures.shown_values(f"result.{name}", value).astype(np.float64)
    if kind == "draws":
        checks.leading_size(f"result.{name}", values)
    return values


def _sorted(name: str, values: ArrayLike) -> np.ndarray:
    """p-values in increasing order, [R]."""
    values = figures.shown_vector(name, values, "[R], one from each data set")
    checks.unit_interval(name, values)
    return np.sort(values)
