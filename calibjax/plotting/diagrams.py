"""Diagrams of reliability, PIT values, coverage, scores and wealth, with bands."""

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.gate import checked
from calibjax.estimators import curves as with_bands
from calibjax.estimators.curves import IsotonicCurve, ReliabilityCurve
from calibjax.estimators.pit import CoverageCurve, PITHistogram
from calibjax.hypothesis_tests.components import Component
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.hypothesis_tests.sequential import EProcessResult
from calibjax.plotting import figures
from calibjax.scores.decomposition import MurphyCurve, ScoreDecomposition

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNIT_SQUARE: dict[str, Any] = {"xlim": (-0.02, 1.02), "ylim": (-0.02, 1.02)}


@checked
def pit_histogram(histogram: PITHistogram, *, ax: "Axes | None" = None) -> "Axes":
    """Histogram of PIT values: flat if the model is calibrated.

    Bars outside the band of all bins are red and hatched. High at both ends means predictions that
    are too narrow, high in the middle too wide ones, a slope biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        histogram: result of `estimators.pit_counts`, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    shown = figures.shown_record("histogram", histogram, "counts")
    edges, is_outside = shown.edges, shown.is_outside
    width, middle = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    inside = ~is_outside, figures.BARS, None, "observed"
    outside = is_outside, figures.RED, "///", "outside the band"
    with figures.figure(ax, (4.8, 3.4), ncols=2) as ax:
        for chosen, color, hatch, label in figures.parts(inside, outside):
            style: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": "white"}
            ax.bar(middle[chosen], shown.counts[chosen], width[chosen], label=label, **style)
        label = f"{100 * shown.confidence_level:.4g} % band: all bins"
        style = {"fill": True, "color": figures.BAND, "alpha": 0.5, "linewidth": 0, "label": label}
        ax.stairs(shown.simultaneous_upper, edges, baseline=shown.simultaneous_lower, **style)
        style = {"color": figures.BLACK, "linewidth": 1, "linestyle": "--", "label": "uniform"}
        ax.plot([0, 1], np.full(2, shown.counts.sum() / shown.counts.size), **style)
        ax.set(xlabel="PIT value", ylabel="targets", xlim=(0, 1), ylim=(0, None))
    return ax


@checked(curve=figures.of_quantiles)
def pit_ecdf(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Empirical distribution function of PIT values, minus that of uniform ones.

    The diagonal is subtracted to make the band visible for many targets. Points outside the band
    are red diamonds. Above zero on the left and below it on the right means predictions that are
    too narrow, the opposite predictions that are too wide, one sign everywhere biased ones.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: result of `estimators.coverage_curve` with `kind="quantile"`, of one data set and
            outside of `jit`.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    return _draw_coverage(ax, curve, labels, is_difference=True)


@checked
def coverage_curve(curve: CoverageCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Share of targets in the predicted central intervals, over the probability of the intervals.

    For curves of quantiles: share of targets up to the predicted quantiles, over their level.
    Intervals are too narrow
    (overconfident) below the diagonal, too wide above it. Points outside the band of all levels
    are red diamonds.

    All artists have labels for a legend; a new figure has one.

    Args:
        curve: result of `estimators.coverage_curve`, of one data set and outside of `jit`.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    if curve.kind == "quantile":
        labels = "level of the predicted quantile", "share of targets up to the quantile"
    return _draw_coverage(ax, curve, labels, is_difference=False)


def _draw_coverage(
    ax: "Axes | None", curve: CoverageCurve, labels: tuple[str, str], *, is_difference: bool
) -> "Axes":
    """Band, line and points of the coverage around the diagonal, or of its difference from it."""
    shown = figures.shown_record("curve", curve, "levels")
    x, baseline = shown.levels, shown.levels if is_difference else 0
    ends = shown.simultaneous_lower - baseline, shown.simultaneous_upper - baseline
    size = (4.8, 3.4) if is_difference else (4.4, 4.8)
    with figures.figure(ax, size, ncols=2) as ax:
        label = f"{100 * shown.confidence_level:.4g} % band: all levels"
        figures.draw_band(ax, x, *ends, label, figures.LIGHT_BAND)
        y = shown.coverage - baseline
        ax.plot(x, y, color=figures.BLACK, linewidth=1, zorder=2)
        figures.draw_points(ax, x, y, shown.is_outside, 4, "outside the band")
        figures.draw_diagonal(ax, ends=((0, 1), (0, 0 if is_difference else 1)))
        ax.set(xlim=(0, 1), xlabel=labels[0], ylabel=labels[1])
        if not is_difference:
            ax.set(ylim=(0, 1), box_aspect=1)
    return ax


@checked
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
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    shown = figures.shown_record("curve", curve, "counts")
    shown = jax.tree.map(lambda x: x[shown.counts > 0], shown)
    width = min(8.0, 160 / max(1, shown.counts.size))
    x, size = shown.confidence, min(6.0, 2 + width / 2)
    with figures.figure(ax, (4.6, 5.3), ncols=2) as ax:
        figures.draw_diagonal(ax)
        for lower, upper, label, color in _bands(shown, "bin"):
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
    shown = figures.shown_record("curve", curve, "confidence")
    x, is_of_labels = shown.confidence, shown.functional == "probability"
    with figures.figure(ax, (4.6, 4.8), ncols=2) as ax:
        figures.draw_diagonal(ax, ends=2 * [(0, 1) if is_of_labels else (min(x), max(x))])
        for lower, upper, label, color in _bands(shown, "point"):
            ax.fill_between(x, lower, upper, color=color, linewidth=0, label=label)
        ax.plot(x, shown.frequency, color=figures.BLACK, linewidth=1, zorder=2)
        outside = "outside the band of all points"
        figures.draw_points(ax, x, shown.frequency, shown.is_outside, 4, outside)
        ylabel = "observed frequency" if is_of_labels else f"{shown.functional} of the targets"
        ax.set(xlabel=f"predicted {shown.functional}", ylabel=ylabel, box_aspect=1)
        ax.set(**_UNIT_SQUARE if is_of_labels else {})
    return ax


def _bands(curve: Any, part: str) -> list[tuple[Any, Any, str, str]]:
    """Ends, label and colour of the simultaneous and of the pointwise band."""
    label = f"{100 * curve.confidence_level:.4g} % band"
    ends = curve.simultaneous_lower, curve.simultaneous_upper
    each = curve.pointwise_lower, curve.pointwise_upper, f"{label}: each {part}", figures.BAND
    return [(*ends, f"{label}: all {part}s", figures.LIGHT_BAND), each]


def _draw_counts(ax: "Axes", curve: ReliabilityCurve, width: float) -> None:
    """Numbers of samples, in Axes of their own below the diagram."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    # In inches from the lower edge, for which layouts can leave room, whatever the diagram's size.
    # Matplotlib's stubs ask for an affine transform, but any will do.
    origin = ScaledTranslation(0, 0, ax.transAxes)  # pyright: ignore[reportArgumentType]
    inches = ax.figure.dpi_scale_trans + origin
    transform = blended_transform_factory(ax.transAxes, inches)
    panel = ax.inset_axes((0, -0.75, 1, 0.55), transform=transform, sharex=ax)
    style: dict[str, Any] = {"color": figures.BLUE, "linewidth": width, "label": "samples"}
    panel.vlines(curve.confidence, 0, curve.counts, **style)
    panel.set(ylim=(0, None), xlabel=ax.get_xlabel(), ylabel="samples")
    panel.spines[["top", "right"]].set_visible(False)
    panel.locator_params(axis="y", nbins=2, integer=True)
    ax.set_xlabel("")
    ax.tick_params(labelbottom=False)


@checked
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
        xlabel: name of the statistic.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    if result.null_samples is None or np.ndim(result.pvalue):
        got = "none" if result.null_samples is None else f"shape {np.shape(result.pvalue)}"
        raise ValueError(f"result: expected draws of one statistic, got {got}")
    with figures.figure(ax, (4.8, 3.2)) as ax:
        draws = np.asarray(result.null_samples, np.float64)
        figures.draw_histogram(ax, draws, bins, "under calibration")
        label = f"observed, p = {float(result.pvalue):.3g}"
        ax.axvline(float(result.statistic), color=figures.RED, linewidth=1.8, label=label)
        ax.set(xlabel=xlabel, ylabel="draws")
    return ax


def _sorted(name: str, values: Any) -> np.ndarray:
    """p-values in increasing order, [R]."""
    values = checks.unit_interval(name, checks.as_arrays(name, values))
    checks.shape(name, values, (None,), "[R], one from each data set")
    return np.sort(values)


@checked(pvalues=figures.by_name(_sorted), band=figures.of_quantiles)
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
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    with figures.figure(ax, (4.4, 4.8), ncols=2) as ax:
        for look, (name, values) in zip(figures.CURVE_LOOKS, pvalues.items(), strict=False):
            rates = np.arange(1, values.size + 1) / values.size
            style = {"linewidth": 1.5, "label": name, "drawstyle": "steps-post", **look}
            ax.plot(np.r_[0, values, 1], np.r_[0, rates, 1], **style)
        figures.draw_diagonal(ax, "rate = level")
        if band is not None:
            ends = band.levels, band.simultaneous_lower, band.simultaneous_upper
            label = f"{100 * band.confidence_level:.4g} % band of uniform p-values"
            figures.draw_band(ax, *ends, label, figures.LIGHT_BAND)
        ax.set(xlim=(0, 1), ylim=(0, 1.01), box_aspect=1)
        ax.set(xlabel="level of the test", ylabel="share of data sets that are rejected")
    return ax


def _murphy_curve(name: str, curve: Any) -> MurphyCurve:
    if not isinstance(curve, MurphyCurve):
        raise TypeError(f"{name}: expected a MurphyCurve, got {checks.described(curve)}")
    return figures.shown_record(name, curve, "thresholds")


@checked(curves=figures.by_name(_murphy_curve))
def murphy_diagram(
    curves: Mapping[str, MurphyCurve], *, xlabel: str = "threshold", ax: "Axes | None" = None
) -> "Axes":
    """Elementary scores of several models over the threshold.

    A model whose line is nowhere above another one is better for every consistent score; where
    lines cross, it depends on the score.

    Lines have labels for a legend; a new figure has one.

    Args:
        curves: results of `scores.murphy_curve` by name of the model; at most nine.
        xlabel: the predicted quantity, with its unit.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

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
    levels = {curve.level for curve in curves.values()}
    if len(levels) > 1:
        raise ValueError(f"curves: expected scores of one quantile or of means, got {levels}")
    with figures.figure(ax, (5.0, 3.4)) as ax:
        for look, (name, curve) in zip(figures.CURVE_LOOKS, curves.items(), strict=False):
            ax.plot(curve.thresholds, curve.score, label=name, **look)
        ax.set(xlabel=xlabel, ylabel="mean elementary score", ylim=(0, None))
    return ax


_PARTS = ("score", "miscalibration", "discrimination", "uncertainty")


@checked
def score_decomposition(
    decomposition: ScoreDecomposition | CalibrationTestResult,
    *,
    confidence_level: float = 0.9,
    ylabel: str = "mean score",
    ax: "Axes | None" = None,
) -> "Axes":
    """Bars of a score and its parts: score = miscalibration − discrimination + uncertainty.

    With draws under calibration, intervals next to the bars contain each part of a calibrated model
    with at least the probability `confidence_level` (each on its own): order statistics of the
    redraws, as the pointwise band of `estimators.reliability_curve`. A calibrated model has some
    miscalibration by chance; compare it with its interval.

    All artists have labels for a legend; a new figure has one.

    Args:
        decomposition: result of `scores.brier_decomposition` or `crps_decomposition`, or the
            result of `hypothesis_tests.exact_test` with one of them as the statistic, which has the
            draws.
        confidence_level: of the intervals, in (0, 1).
        ylabel: name of the score, with its unit.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or there are too few draws for the level.

    Cost: O(B log B) for B draws.

    References: Dimitriadis, Gneiting and Jordan (2021), Stable reliability diagrams for
    probabilistic classifiers.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, plotting, scores
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.1, 0.9, 50))
    >>> targets = distributions.sample_targets(jax.random.key(0), predictions)
    >>> test = hypothesis_tests.exact_test(
    ...     jax.random.key(1), scores.brier_decomposition, predictions, targets, num_draws=99
    ... )
    >>> ax = plotting.score_decomposition(test, ylabel="Brier score")
    >>> print([label.get_text() for label in ax.get_xticklabels()])
    ['score', 'miscalibration', 'discrimination', 'uncertainty']
    """
    draws = None
    if isinstance(decomposition, CalibrationTestResult):
        draws, decomposition = decomposition.null_samples, decomposition.statistic
    values, places = _in_one_array(decomposition), np.arange(4)
    with figures.figure(ax, (5.0, 3.4)) as ax:
        bars = ax.bar(places, values, 0.5, color=figures.BAND, label="observed")
        ax.bar_label(bars, fmt="%.3g", padding=2)
        if draws is not None:
            samples, level = _in_one_array(draws).T, float(confidence_level)
            rank, _ = with_bands.ranks_of_band(level, len(samples))
            lower, upper = with_bands.pointwise_band(jnp.asarray(samples), rank)
            label = f"{100 * level:.4g} % of the redraws under calibration"
            style: dict[str, Any] = {"ecolor": figures.BLACK, "elinewidth": 2, "capsize": 4}
            style |= {"fmt": "none", "label": label}
            ax.errorbar(places + 0.35, (lower + upper) / 2, (upper - lower) / 2, **style)
        ax.axhline(0, color=figures.BLACK, linewidth=0.8)
        ax.set_xticks(places, list(_PARTS))
        ax.set(xlabel="score = miscalibration - discrimination + uncertainty", ylabel=ylabel)
        ax.margins(y=0.12)
    return ax


def _in_one_array(parts: Any) -> np.ndarray:
    """The parts, [4, ...]."""
    return np.stack([np.asarray(getattr(parts, key), np.float64) for key in _PARTS])


@checked
def e_process_wealth(
    result: EProcessResult,
    *,
    significance_level: float = 0.05,
    xlabel: str = "forecasts",
    ax: "Axes | None" = None,
) -> "Axes":
    """Wealth of all bets together, and of each, after each forecast, on a logarithmic scale.

    Above the horizontal line, at 1 / significance_level, calibration is rejected; under calibration
    the black curve is ever above it with at most this probability. All artists have labels for a
    legend; a new figure has one.

    Args:
        result: result of `hypothesis_tests.e_process`.
        significance_level: in (0, 1).
        xlabel: the quantity on the horizontal axis.
        ax: matplotlib Axes to draw on; by default the Axes of a new figure, `.figure` of
            the result. It is not shown by pyplot, and need not be closed.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: O(n) for n forecasts.

    References: see `hypothesis_tests.e_process`.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, plotting
    >>> predictions = distributions.Normal(jnp.zeros(50), jnp.ones(50))
    >>> targets = 2 * jax.random.normal(jax.random.key(0), (50,))
    >>> ax = plotting.e_process_wealth(hypothesis_tests.e_process(predictions, targets))
    >>> print(ax.get_ylabel())
    wealth
    """
    total, level = np.asarray(result.log_wealth), float(significance_level)
    bets = {name: np.asarray(logs) for name, logs in result.log_wealths.items()}
    unit, steps = math.log(10), np.arange(1, len(total) + 1)
    with figures.figure(ax, (5.0, 3.6), ncols=2) as ax:
        from matplotlib.ticker import MaxNLocator

        for look, (name, logs) in zip(itertools.cycle(figures.CURVE_LOOKS), bets.items()):
            ax.plot(steps, logs / unit, label=name, linewidth=1, **look)
        ax.plot(steps, total / unit, color=figures.BLACK, lw=2, label="all bets")
        threshold = -math.log(level) / unit
        label = f"rejection from {1 / level:.3g} on (level {level:g})"
        ax.axhline(threshold, color=figures.RED, lw=2, label=label)
        lowest = min(-1.5, total.min() / unit - 0.5)  # bets that lost all are of no interest
        highest = max(threshold, *(x.max() / unit for x in (total, *bets.values()))) + 0.5
        ax.set(xlabel=xlabel, ylabel="wealth", ylim=(lowest, highest))
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.yaxis.set_major_formatter(lambda x, _: f"1e{x:g}")
    return ax
