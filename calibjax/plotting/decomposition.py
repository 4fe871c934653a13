"""Decomposed scores, beside what calibrated predictions have."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax.estimators.bands import checked_ranks, pointwise_band
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.plotting import figures
from calibjax.scores.decomposition import ScoreDecomposition

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = ("score", "miscalibration", "discrimination", "uncertainty")


def score_decomposition(
    decomposition: ScoreDecomposition | CalibrationTestResult,
    *,
    confidence_level: float = 0.9,
    ylabel: str = "mean score",
    ax: "Axes | None" = None,
) -> "Axes":
    """Bars of a score and its parts: score = miscalibration − discrimination + uncertainty.

    With draws under calibration, intervals beside the bars contain each part of a calibrated model
    with at least the probability `confidence_level` (each on its own): order statistics of the
    redraws, as the pointwise band of `estimators.reliability_curve`. A calibrated model has some
    miscalibration by chance; compare it with its interval.

    All artists have labels for a legend; a new figure has one.

    Args:
        decomposition: what `scores.brier_decomposition` or `crps_decomposition` returned, or the
            result of `hypothesis_tests.exact_test` with one of them as the statistic, which has the
            draws.
        confidence_level: of the intervals, in (0, 1).
        ylabel: what the score is, with its unit.
        ax: matplotlib Axes to draw on; by default that of a new figure, `.figure` of the
            result, which pyplot does not know of: nothing is shown, and nothing has to be closed.

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
    if not isinstance(decomposition, ScoreDecomposition):
        raise TypeError(
            "decomposition: expected what scores.brier_decomposition returns, or a test result "
            f"with it as the statistic, got {checks.described(decomposition)}"
        )
    values = _shown("decomposition", decomposition, (), "(), of one data set")
    band = None if draws is None else _band(draws, confidence_level)
    places = np.arange(4)
    with figures.figure(ax, (5.0, 3.4)) as ax:
        colors = [figures.BAND, figures.BARS, figures.BARS, figures.BARS]
        ax.bar(places, values, 0.6, color=colors, label="observed")
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": "small"}
        for place, value in zip(places, values, strict=True):
            ax.annotate(f"{value:.3g}", (place, value), (-4, 3), **style)
        if band is not None:
            (lower, upper), middle = band, (band[0] + band[1]) / 2
            style = {"fmt": "none", "ecolor": figures.BLACK, "elinewidth": 1.5, "capsize": 5}
            style["label"] = (
                f"{100 * float(confidence_level):.4g} % of the redraws under calibration"
            )
            ax.errorbar(places + 0.15, middle, (upper - lower) / 2, **style)
        ax.axhline(0, color=figures.BLACK, linewidth=0.8)
        ax.set_xticks(places, list(_PARTS))
        ax.set(xlabel="score = miscalibration - discrimination + uncertainty", ylabel=ylabel)
        ax.margins(y=0.12)
    return ax


def _shown(name: str, parts: Any, expected: tuple[Any, ...], described: str) -> np.ndarray:
    """The parts in one array, [4, ...]."""
    values = {x.name: getattr(parts, x.name) for x in dataclasses.fields(ScoreDecomposition)}
    for key, value in values.items():
        checks.real(f"{name}.{key}", value)
        checks.shape(f"{name}.{key}", value, expected, described)
        values[key] = figures.shown_values(f"{name}.{key}", value).astype(np.float64)
    return np.stack([values[key] for key in _PARTS])


def _band(draws: object, confidence_level: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of each part, [4] each."""
    if not isinstance(draws, ScoreDecomposition):
        raise TypeError(
            "decomposition.null_samples: expected draws of the statistic, got "
            f"{checks.described(draws)}"
        )
    size = checks.leading_size("decomposition.null_samples", draws)
    values = _shown("decomposition.null_samples", draws, (size,), "[B], the draws")
    _, _, (rank, _) = checked_ranks(confidence_level, size)
    lower, upper = pointwise_band(jnp.asarray(values.T), rank)
    return np.asarray(lower), np.asarray(upper)
