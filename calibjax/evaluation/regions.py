"""Regions where predictions are wrong: events that occur more or less often than predicted."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation import record
from calibjax.evaluation.data import LEVEL, Data, scatter_of
from calibjax.evaluation.record import Entry, Finding, Part, Section, number, percents
from calibjax.evaluation.sections import moments

NUM_CELLS = 10  # into which ranks and probabilities are cut
_NUM_TARGETS = 16  # cells of the targets, into each of which about as many are predicted
_LEAST_DRAWS = 2000  # from all predictions together, from which edges are chosen
_LEAST_VARIANCE = 5.0  # of the number of samples in a region; below, a single sample decides
_SHOWN = 3  # regions that are named
NUM_REDRAWS = 999
Cells = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Cuts:
    """Neighbouring cells of a number, and what ranges of them are called.

    Attributes:
        edges: inner edges of the cells (e_{c-1}, e_c], [C - 1].
        values: an expression of the number.
        called: the words for a range (low, high].
        ranges: first and last but one of neighbouring cells; by default all.
    """

    edges: np.ndarray
    values: str
    called: Callable[[float, float], str]
    ranges: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        pairs = [*itertools.combinations(range(len(self.edges) + 2), 2)]
        object.__setattr__(self, "ranges", self.ranges or pairs)

    @functools.cached_property
    def unions(self) -> np.ndarray:
        """The ranges as truth values, [R, C]."""
        cells = np.arange(len(self.edges) + 1)
        rows = [(a <= cells) & (cells < b) for a, b in self.ranges]
        return np.array(rows, float).reshape(-1, len(cells))

    def ends(self, index: int) -> tuple[float, float]:
        """Both ends of a range, which may be infinite."""
        ends = [-math.inf, *map(float, self.edges), math.inf]
        first, last = self.ranges[index]
        return ends[first], ends[last]

    def call(self, index: int) -> str:
        """An expression of which samples are in a range, empty for all of them."""
        low, high = self.ends(index)
        ends = [f"({self.values} > {low!r})"] * math.isfinite(low)
        ends += [f"({self.values} <= {high!r})"] * math.isfinite(high)
        return " & ".join(ends)

    def cells(self, values: np.ndarray) -> np.ndarray:
        """The cells of values."""
        return np.searchsorted(self.edges, values, side="left")


class View(NamedTuple):
    """One-dimensional events in one-dimensional regions of the predictions.

    Attributes:
        events, regions: how cells of the targets, and of the predictions, are joined.
        cells: the cell of each target, integers, [n].
        probs: predicted probabilities of the cells, [n, C], or [1, C] if all are alike.
        redrawn: the cells of redrawn targets, a function of what was drawn.
        bins: the cell of each prediction, not chosen with the targets, integers, [n].
    """

    events: Cuts
    regions: Cuts
    cells: np.ndarray
    probs: np.ndarray
    redrawn: Cells
    bins: np.ndarray

    def totals(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weight of the samples of each event in each region, [R, J]."""
        shape = len(self.regions.edges) + 1, len(self.events.edges) + 1
        counts = np.bincount(self.bins * shape[1] + cells, weights, minlength=shape[0] * shape[1])
        return self.regions.unions @ counts.reshape(shape) @ self.events.unions.T

    def moments(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the totals of a calibrated model, [R, J] each."""
        chances = np.clip(self.probs @ self.events.unions.T, 0, 1)
        chances = np.broadcast_to(chances, (len(self.cells), chances.shape[1]))
        own = np.arange(len(self.regions.edges) + 1)[:, None] == self.bins  # [G, n]
        unions = self.regions.unions @ own
        means = unions @ (weights[:, None] * chances)
        return means, unions @ (weights[:, None] ** 2 * chances * (1 - chances))


def find_regions(
    data: Data, views: list[View], draw: Callable[[np.random.Generator], Any], num_draws: int
) -> list[tuple[Entry, int]]:
    """The largest error of each view with its number of samples.

    The statistic is the largest |N - E N| / sd N over all events and regions, with the number N of
    samples. It is compared with those of redrawn targets, which makes the p-values exact (the
    largest of each redraw, Westfall and Young 1993). The largest error comes first.

    Args:
        data: what weights and seeds are taken from.
        views: where to look; without one there is no row.
        draw: draws targets from the predictions, in the form that `View.redrawn` takes.
        num_draws: B, the number of redraws.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(data.at(13))).ravel())
    pairs, null, rows = [(x, x.moments(data.shares)) for x in views], np.zeros(num_draws), []

    def sizes(view: View, cells: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Any:
        spread = np.sqrt(np.maximum(variances, 1e-12))
        values = np.abs(view.totals(cells, data.shares) - means) / spread
        return np.where(variances >= _LEAST_VARIANCE, values, -1)

    for b in range(num_draws):
        drawn = draw(random)
        redrawn = (sizes(x, x.redrawn(drawn), *both) for x, both in pairs)
        null[b] = max((x.max(initial=0) for x in redrawn), default=0)
    for view, both in pairs:
        observed = sizes(view, view.cells, *both)
        if observed.max(initial=-1) >= 0:
            at = tuple(map(int, np.unravel_index(observed.argmax(), observed.shape)))
            rows.append((*_entry(data, view, at, observed[at], both[1][at], null), observed[at]))
    rows.sort(key=lambda x: (x[0].pvalue, -x[2]))
    return [x[:2] for x in rows]


def _entry(
    data: Data, view: View, at: tuple[int, ...], size: float, variance: float, null: np.ndarray
) -> tuple[Entry, int]:
    """The row of an event in a region, and the number of its samples."""
    region, event = at
    inside = view.regions.unions[region][view.bins] > 0
    weights, happened = data.shares[inside], view.events.unions[event][view.cells[inside]]
    chances = np.broadcast_to(view.probs @ view.events.unions[event], len(view.cells))[inside]
    value, predicted = (float(np.average(x, weights=weights)) for x in (happened, chances))
    scatter, _ = scatter_of(happened - chances, weights)
    by_scatter = abs(value - predicted) / scatter if scatter > 0 else np.inf
    critical = np.sort(null)[::-1][max(0, int(0.05 * (len(null) + 1)) - 1)]
    size = min(size, by_scatter) * (1 - 1e-9)  # redraws may equal it up to rounding
    chance = float(critical * np.sqrt(variance) / weights.sum())
    where, rows = view.regions.called(*view.regions.ends(region)), view.regions.call(region)
    entry = Entry(
        view.events.called(*view.events.ends(event)) + f", where {where}" * bool(rows),
        value,
        expected=predicted,
        by_chance=(max(0.0, predicted - chance), min(1.0, predicted + chance)),
        pvalue=float((1 + np.sum(null >= size)) / (1 + len(null))),
        call=data.mean_of(f"({view.events.call(event)})", rows=f"[{rows}]" * bool(rows)),
    )
    return entry, int((weights > 0).sum())


def where_wrong(data: Data) -> Part:
    """The regions with the largest errors."""
    worst = find_regions(data, *search(data), NUM_REDRAWS)
    shown = [x for x in worst if (x[0].pvalue or 0) <= LEVEL][:_SHOWN] or worst[:1]
    if not shown:
        return Part()
    findings = []
    for entry, inside in shown:
        more = "more" if (entry.difference or 0) > 0 else "less"
        name, _, region = entry.name.partition(", where ")
        verb = "occur" if name.startswith("targets") else "occurs"
        observed, predicted = percents(entry.value, entry.expected or 0.0)
        word = f"{name} {verb} {more} often than predicted" + f" where {region}" * bool(region)
        text = f"{observed} observed, {predicted} predicted in {inside} samples"
        advice = record.MAP_OF_QUANTILES if data.task == "regression" else None
        findings.append(Finding(entry.name, word, text, advice=advice))
    remark = "Events whose frequencies differ most from the predicted ones, in standard errors. "
    remark += "They were searched for because a test rejects and no sentence would have named an "
    remark += "error."
    entries = tuple(entry for entry, _ in shown)
    return Part((Section("Where it is wrong", entries, remark),), tuple(findings))


def search(data: Data) -> tuple[list[View], Callable[[np.random.Generator], Any]]:
    """Where to look, and what is redrawn: labels, or uniform numbers."""
    predictions, uniform = bare(data.predictions, MonteCarlo), lambda x: x.uniform(size=data.size)
    if data.is_of_classes:
        probs = data.known(predictions.class_probs).astype(float)
        probs = probs / probs.sum(1, keepdims=True)
        redrawn = _by_levels(probs.cumsum(1)[:, :-1])
        return [*_of_classes(data, probs)], lambda random: redrawn(uniform(random))
    if data.pit is None:
        return [], uniform
    if isinstance(predictions, Quantiles):
        return [_of_ranks(data, data.levels)], uniform
    if isinstance(predictions, Ensemble):
        count = min(NUM_CELLS, predictions.values.shape[1] + 1)
        return [_of_ranks(data, np.arange(1, count) / count)], uniform
    ranks = _of_ranks(data, np.arange(1, NUM_CELLS) / NUM_CELLS)
    means = moments(predictions)[0] if hasattr(predictions, "mean") else np.array([[np.nan]])
    means = data.known(means)[:, 0]
    if np.isfinite(means).all():
        shown = "predictions" if predictions is data.predictions else "predictions.distribution"
        call = f"jax.vmap(lambda p: p.mean())({shown})"
        thirds = _regions(means, "the predicted mean", call, np.array([1 / 3, 2 / 3]))
        ranks = ranks._replace(regions=thirds, bins=thirds.cells(means))
    return [_of_targets(data, predictions), ranks], uniform


def _of_classes(data: Data, probs: np.ndarray) -> Iterator[View]:
    """Each class, and the top label, where its probability is between two numbers."""
    labels, call, top = data.known(data.targets), "predictions.class_probs", probs.argmax(1)

    def view(name: str, label: Any, label_call: str, chances: np.ndarray, chance_call: str) -> View:
        shares, is_label = np.arange(1, NUM_CELLS) / NUM_CELLS, lambda y: (y == label).astype(int)
        regions = _regions(chances, "its probability", chance_call, shares)
        events = Cuts(np.zeros(1), f"(targets == {label_call})", lambda *_: name, [(1, 2)])
        both, bins = np.stack([1 - chances, chances], 1), regions.cells(chances)
        return View(events, regions, is_label(labels), both, is_label, bins)

    for c in data.shown_classes:
        yield view(data.class_called(c), c, f"{c}", probs[:, c], f"{call}[:, {c}]")
    if probs.shape[1] > 2:
        names = f"jnp.argmax({call}, 1)", probs.max(1), f"jnp.max({call}, 1)"
        yield view("the most probable class", top, *names)


def _regions(values: np.ndarray, name: str, call: str, shares: np.ndarray) -> Cuts:
    """Cells of the predictions by a value of each, into which about these shares of them fall."""
    ordered, n = np.sort(values), len(values)
    first = np.clip(np.round(shares * n).astype(int), 1, n - 1)
    edges = np.unique((ordered[first - 1] + ordered[first]) / 2)  # between values, not at one
    is_varied = ordered[-1] - ordered[0] > 1e-5 * np.abs(values).max()  # by more than rounding
    edges = edges[is_varied & (edges < ordered[-1])]
    return Cuts(edges, call, lambda low, high: f"{name} is {_between(low, high)}")


def _of_targets(data: Data, predictions: Any) -> View:
    """Targets in all ranges of neighbouring cells, by distribution functions."""
    targets, n = data.known(data.targets).astype(float), data.size
    draws = distributions.monte_carlo(data.at(11), predictions, -(-_LEAST_DRAWS // n)).draws
    levels = np.arange(1, _NUM_TARGETS) / _NUM_TARGETS
    cuts = np.asarray(data.known(draws.values), float)
    cuts = np.unique(np.quantile(cuts, levels, method="inverted_cdf"))
    cuts = cuts + 0.5 * (data.task == "counts")  # which are between two cuts, and never at one
    below = data.known(_below(predictions, jnp.asarray(cuts))).astype(float)
    words = _counts if data.task == "counts" else _between
    called = lambda low, high: f"targets {words(low, high)}"  # noqa: E731
    events, everywhere = Cuts(cuts, "targets", called), Cuts(np.zeros(0), "", called)
    levels = np.concatenate([np.zeros((n, 1)), below, np.ones((n, 1))], 1)
    probs, redrawn = np.clip(np.diff(levels, axis=1), 0, 1), _by_levels(below)
    return View(events, everywhere, events.cells(targets), probs, redrawn, np.zeros(n, int))


# Distribution functions at cuts, [n, C].
_below = jax.jit(lambda predictions, cuts: jax.vmap(lambda p: jax.vmap(p.cdf)(cuts))(predictions))


def _of_ranks(data: Data, edges: np.ndarray) -> View:
    """Ranks of targets within the predictions."""
    called = lambda low, high: f"targets {_between(low, high, _quantile)}"  # noqa: E731
    events = Cuts(edges, "result.arrays['pit']", called)
    cells = events.cells(data.known(data.pit).astype(float))
    probs = np.diff(np.concatenate([[0], edges, [1]]))[None]
    everywhere = Cuts(np.zeros(0), "", called)
    return View(events, everywhere, cells, probs, events.cells, np.zeros(data.size, int))


def _by_levels(levels: np.ndarray) -> Cells:
    """The cells of uniform numbers between levels that each sample has, [n, C - 1]."""
    n, count = levels.shape
    rows = np.arange(n)
    joined = (np.clip(levels, 0, 1) + 2 * rows[:, None]).ravel()  # ascending over all samples
    return lambda uniform: np.searchsorted(joined, uniform + 2 * rows) - count * rows


def _between(low: float, high: float, shown: Callable[[float], str] = number) -> str:
    """A range in words, one end of which may be infinite."""
    if math.isinf(low):
        return f"at most {shown(high)}"
    return f"above {shown(low)}" if math.isinf(high) else f"between {shown(low)} and {shown(high)}"


def _quantile(level: float) -> str:
    """What a quantile is called."""
    return f"the predicted {100 * level:.4g} % quantile"


def _counts(low: float, high: float) -> str:
    """A range of whole numbers in words; both ends are between two of them, or infinite."""
    if math.isinf(low) or math.isinf(high):
        return f"at most {high - 0.5:.0f}" if math.isinf(low) else f"at least {low + 0.5:.0f}"
    return f"from {low + 0.5:.0f} to {high - 0.5:.0f}" if high - low > 1 else f"of {high - 0.5:.0f}"
