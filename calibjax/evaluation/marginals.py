"""Predicted and observed distributions of all targets together, and their figure."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_BANDS = 199  # redraws for the band


@dataclasses.dataclass(frozen=True)
class Marginals:
    """Shares of the targets in cells.

    Attributes:
        cells: edges of the cells, [C + 1], or names of classes, [C].
        observed: shares of the targets, [C].
        predicted: means of the predicted probabilities, [C].
        low, high: ends of a band that contains all observed shares of a calibrated model with a
            probability of 95 %, [C].
        marked: ends of a range in which too many or too few targets were observed; or None.
    """

    cells: np.ndarray | tuple[str, ...]
    observed: np.ndarray
    predicted: np.ndarray
    low: np.ndarray
    high: np.ndarray
    marked: tuple[float, float] | None = None


def with_band(
    counts: Sequence[np.ndarray],
    predicted: np.ndarray,
    num_samples: int,
    cells: np.ndarray | tuple[str, ...],
) -> Marginals:
    """The record, with a band of the largest standardised error of the redraws.

    Args:
        counts: of the targets, and of redrawn ones, [1 + B, C].
        predicted: mean predicted probabilities, [C].
        num_samples: n.
        cells: see `Marginals`.
    """
    shares = np.asarray(counts, float) / num_samples
    errors = np.abs(shares[1:] - predicted)
    deviations = np.sqrt(np.mean(errors**2, 0))
    largest = np.max(errors / np.where(deviations > 0, deviations, 1), 1)
    reach = np.quantile(largest, 0.95, method="higher") * deviations
    low, high = np.clip([predicted - reach, predicted + reach], 0, 1)
    return Marginals(cells, shares[0], predicted, low, high)


def draw_marginals(shown: Marginals, *, ax: "Axes | None" = None) -> "Axes":
    """Bars of what was observed, a line for what was predicted, and the band.

    Args:
        shown: what is drawn.
        ax: matplotlib Axes to draw on; by default that of a new figure.

    Returns:
        The Axes.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    names = list(shown.cells) if isinstance(shown.cells, tuple) else None
    edges = np.arange(len(shown.cells) + 1) - 0.5 if names else np.asarray(shown.cells, float)
    with figures.figure(ax, (5.4, 3.6), ncols=4) as ax:
        ax.stairs(shown.observed, edges, fill=True, color=figures.BARS, label="observed")
        style = {"color": figures.BLUE, "linewidth": 1.0, "linestyle": "--"}
        ax.stairs(shown.low, edges, label="if calibrated (95 %)", **style)
        ax.stairs(shown.high, edges, **style)
        ax.stairs(shown.predicted, edges, color=figures.BLACK, linewidth=1.8, label="predicted")
        if shown.marked is not None:
            low, high = np.clip(shown.marked, edges[0], edges[-1])
            style = {"color": figures.RED, "alpha": 0.12, "linewidth": 0}
            ax.axvspan(low, high, label="worst place", **style)
        if names is not None:
            is_long = max(map(len, names)) * len(names) > 40
            ax.set_xticks(np.arange(len(names)), names, rotation=60 if is_long else 0)
        ax.set(xlabel="targets" if names is None else "class", ylabel="share", ylim=(0, None))
    return ax
