"""Where predictions are wrong: events that occur more or less often than predicted.

The witness of the evaluation: of many events, those whose frequencies differ most from what was
predicted, in standard errors, with the exact probability that a calibrated model shows any such
difference at all. The functions that it looks at are those of events, and not those of a kernel as
in `estimators.witness`, so that a sentence can tell what was tested: two frequencies.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NUM_CELLS = 10  # into which targets, ranks and probabilities are cut
_LEAST_VARIANCE = 5.0  # of the number of samples in a place; below, a single sample decides
_SMALLEST = 1e-12


@dataclasses.dataclass(frozen=True)
class View:
    """Events in regions of the predictions; a place is one event in one region.

    Attributes:
        cells: the cell of each target, integers, [n].
        probs: predicted probabilities of the cells, [n, C], or [1, C] if all are alike.
        redrawn: the cells of redrawn targets, a function of what was drawn.
        bins: of the predictions, not chosen with the targets, integers, [n].
        regions: unions of bins, truth values [R, G].
        events: unions of cells, truth values [J, C].
        region_words: what each region is called, [R]; empty for that of all samples.
        event_words: what each event is called, [J].
        region_calls: an expression of which samples are in each region, truth values [n]; [R].
        event_calls: expressions for the samples in which each event occurred, and for its predicted
            probabilities, [J].
        weights: of the samples, whose mean is one, [n].
        factor: of the differences from what was predicted. One, but for numbers among the members
            of ensembles (m + 1) / m, since targets are compared with pools that contain them.
    """

    cells: np.ndarray
    probs: np.ndarray
    redrawn: Callable[[np.ndarray], np.ndarray]
    bins: np.ndarray
    regions: np.ndarray
    events: np.ndarray
    region_words: tuple[str, ...]
    event_words: tuple[str, ...]
    region_calls: tuple[str, ...]
    event_calls: tuple[tuple[str, str], ...]
    weights: np.ndarray
    factor: float = 1.0

    def totals(self, cells: np.ndarray) -> np.ndarray:
        """Weight of the samples in each place, their number if all count equally, [R, J]."""
        shape = self.regions.shape[1], self.events.shape[1]
        places = self.bins * shape[1] + cells
        counts = np.bincount(places, self.weights, minlength=shape[0] * shape[1])
        return self.regions @ counts.reshape(shape) @ self.events.T

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the totals of a calibrated model, [R, J] each."""
        chances = np.clip(self.probs @ self.events.T, 0, 1)  # [n, J]
        chances = np.broadcast_to(chances, (len(self.cells), chances.shape[1]))
        num_bins = self.regions.shape[1]
        both = []
        weights = self.weights[:, None]
        for values in (weights * chances, weights**2 * chances * (1 - chances)):
            sums = np.zeros((num_bins, values.shape[1]))
            np.add.at(sums, self.bins, values)
            both.append(self.regions @ sums)
        return both[0], both[1]


@dataclasses.dataclass(frozen=True)
class Place:
    """An event that occurs more or less often than predicted.

    Attributes:
        view: where it was found.
        region, event: its indices there.
        number: of the samples in the region that count.
        observed: share of these in which the event occurred.
        predicted: mean of its predicted probabilities.
        chance: the difference is at most this, in size, for a calibrated model: for all places at
            once, with a probability of at least 95 %.
        exact_pvalue: of the difference, adjusted for all places that were looked at.
        pvalue: the larger one of that and of the one with the observed scatter.
    """

    view: View
    region: int
    event: int
    number: int
    observed: float
    predicted: float
    chance: float
    exact_pvalue: float
    pvalue: float


@dataclasses.dataclass(frozen=True)
class Places:
    """What was found in all views.

    Attributes:
        worst: the worst place of each view, the worst one first.
        number: of places that were looked at.
    """

    worst: tuple[Place, ...]
    number: int


def spans(number: int) -> list[tuple[int, int]]:
    """First and last but one of neighbouring cells, for all their unions but that of all cells."""
    pairs = itertools.combinations(range(number + 1), 2)
    return [(start, stop) for start, stop in pairs if stop - start < number]


def unions(number: int) -> np.ndarray:
    """The `spans` as truth values, [J, number]."""
    cells = np.arange(number)
    rows = [(start <= cells) & (cells < stop) for start, stop in spans(number)]
    return np.array(rows, float).reshape(-1, number)


def cells_of(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Cells (e_{c-1}, e_c] of values between inner edges, 0, ..., len(edges)."""
    return np.searchsorted(edges, values, side="left")


def find_places(
    views: Sequence[View], draw: Callable[[np.random.Generator], Any], seed: Any, num_draws: int
) -> Places:
    """The worst places of all views, with p-values that are adjusted for all of their places.

    The statistic is the largest |N - E N| / sd N over the places, of the numbers N of samples in
    them. It is compared with those of redrawn targets, which makes the p-values exact (the largest
    of each redraw, Westfall and Young 1993).

    Args:
        views: at least one.
        draw: draws targets from the predictions, in the form that `View.redrawn` takes.
        seed: of NumPy.
        num_draws: B, the number of redraws.
    """
    random = np.random.default_rng(seed)
    searched: list[tuple[View, np.ndarray, np.ndarray, np.ndarray]] = []
    for view in views:
        means, variances = view.moments()
        searched.append((view, means, variances, variances >= _LEAST_VARIANCE))
    null = np.zeros(num_draws)
    for b in range(num_draws):
        drawn = draw(random)
        for view, means, variances, seen in searched:
            sizes = _standardised(view.totals(view.redrawn(drawn)), means, variances)
            null[b] = np.max(sizes, where=seen, initial=null[b])
    found = [_worst(*one, null) for one in searched if one[-1].any()]

    def rank(x: Place) -> tuple[float, float]:
        return x.pvalue, -abs(x.observed - x.predicted) / max(x.chance, _SMALLEST)

    return Places(tuple(sorted(found, key=rank)), sum(int(one[-1].sum()) for one in searched))


def _standardised(totals: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    return np.abs(totals - means) / np.sqrt(np.maximum(variances, _SMALLEST))


def _worst(
    view: View, means: np.ndarray, variances: np.ndarray, seen: np.ndarray, null: np.ndarray
) -> Place:
    """The place with the largest difference of a view, and its p-values among the redraws."""
    totals = view.totals(view.cells)
    sizes = np.where(seen, _standardised(totals, means, variances), -1)
    region, event = np.unravel_index(int(sizes.argmax()), sizes.shape)
    place = region, event
    inside = view.regions[region][view.bins] > 0
    number = int((view.weights[inside] > 0).sum())
    happened = view.events[event][view.cells[inside]]
    chances = np.broadcast_to(view.probs @ view.events[event], len(view.cells))[inside]
    residuals, weights = happened - chances, view.weights[inside]
    total = float(weights.sum())
    mean, squares = np.average(residuals, weights=weights), float(np.sum(weights**2)) / total**2
    scatter = math.sqrt(np.sum((weights * (residuals - mean)) ** 2) / (1 - squares))
    difference = float(totals[place] - means[place])
    observed = abs(difference) / scatter if scatter > 0 else np.inf
    critical = np.sort(null)[::-1][max(0, int(0.05 * (len(null) + 1)) - 1)]
    return Place(
        view,
        int(region),
        int(event),
        number,
        float(totals[place]) / total,
        float(means[place]) / total,
        float(critical * np.sqrt(variances[place])) / total,
        _pvalue(sizes[place], null),
        _pvalue(min(sizes[place], observed), null),
    )


def _pvalue(size: float, null: np.ndarray) -> float:
    """(1 + number of redraws that are at least as large up to rounding) / (1 + B)."""
    return float((1 + np.sum(null >= size * (1 - 1e-9))) / (1 + len(null)))
