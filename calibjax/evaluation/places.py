"""Places where predictions are wrong: events that occur more or less often than predicted."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import LEVEL, Data, Finding, Part, scatter_of, shown_classes
from calibjax.evaluation.kernel_tests import Choice
from calibjax.evaluation.record import Entry, Section, number
from calibjax.evaluation.words import MAP_OF_QUANTILES, percent, percents

NUM_CELLS = 10  # into which ranks and probabilities are cut
_NUM_TARGETS = 16  # cells of the targets, into each of which about as many are predicted
_LEAST_DRAWS = 2000  # from all predictions together, from which edges are chosen
_NUM_DRAWS = 20  # from each prediction that has no distribution function, or is of vectors
_LEAST_VARIANCE = 5.0  # of the number of samples in a place; below, a single sample decides
_SMALLEST = 1e-12
_SHOWN = 3  # places that are named
NUM_REDRAWS = 999
Cells = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Cuts:
    """Neighbouring cells of a number, and what ranges of them are called.

    Attributes:
        edges: inner edges of the cells (e_{c-1}, e_c], [C - 1].
        values: an expression of the number.
        called: the words for a range (low, high].
        ranges: first and last but one of neighbouring cells.
    """

    edges: np.ndarray
    values: str
    called: Callable[[float, float], str]
    ranges: tuple[tuple[int, int], ...]

    @staticmethod
    def all_ranges(edges: np.ndarray) -> tuple[tuple[int, int], ...]:
        """All but that of all cells."""
        pairs = itertools.combinations(range(len(edges) + 2), 2)
        return tuple((a, b) for a, b in pairs if b - a <= len(edges))

    @functools.cached_property
    def unions(self) -> np.ndarray:
        """The ranges as truth values, [R, C]."""
        cells = np.arange(len(self.edges) + 1)
        rows = [(a <= cells) & (cells < b) for a, b in self.ranges]
        return np.array(rows, float).reshape(-1, len(cells))

    def with_all(self) -> "Cuts":
        """With all cells as one more range."""
        return dataclasses.replace(self, ranges=(*self.ranges, (0, len(self.edges) + 1)))

    def ends(self, place: int) -> tuple[float, float]:
        """Both ends of a range, which may be infinite."""
        ends = [-math.inf, *map(float, self.edges), math.inf]
        first, last = self.ranges[place]
        return ends[first], ends[last]

    def call(self, place: int) -> str:
        """An expression of which samples are in a range, empty for all of them."""
        low, high = self.ends(place)
        ends = [f"({self.values} > {low!r})"] * math.isfinite(low)
        ends += [f"({self.values} <= {high!r})"] * math.isfinite(high)
        return " & ".join(ends)

    def cells(self, values: np.ndarray) -> np.ndarray:
        """The cells of values."""
        return np.searchsorted(self.edges, values, side="left")


@dataclasses.dataclass(frozen=True)
class View:
    """One-dimensional events in one-dimensional regions of the predictions.

    Attributes:
        events, regions: how cells of the targets, and of the predictions, are joined.
        cells: the cell of each target, integers, [n].
        probs: predicted probabilities of the cells, [n, C], or [1, C] if all are alike.
        redrawn: the cells of redrawn targets, a function of what was drawn.
        bins: the cell of each prediction, not chosen with the targets, integers, [n].
        factor: of the differences from what was predicted. One, but for numbers among the members
            of ensembles (m + 1) / m, since targets are compared with pools that contain them.
    """

    events: Cuts
    regions: Cuts
    cells: np.ndarray
    probs: np.ndarray
    redrawn: Cells
    bins: np.ndarray
    factor: float = 1.0

    def totals(self, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weight of the samples in each place, [R, J]."""
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


def find_places(
    data: Data, views: list[View], draw: Callable[[np.random.Generator], Any], num_draws: int
) -> tuple[list[tuple[Entry, int]], int]:
    """The worst place of each view with its number of samples, and the number of places.

    The statistic is the largest |N - E N| / sd N over all places, of the numbers N of samples in
    them. It is compared with those of redrawn targets, which makes the p-values exact (the largest
    of each redraw, Westfall and Young 1993). The worst place comes first.

    Args:
        data: what weights and seeds are taken from.
        views: at least one.
        draw: draws targets from the predictions, in the form that `View.redrawn` takes.
        num_draws: B, the number of redraws.
    """
    random = np.random.default_rng(np.asarray(jax.random.key_data(data.at(13))).ravel())
    moments = [view.moments(data.shares) for view in views]
    seen = [variances >= _LEAST_VARIANCE for _, variances in moments]
    null = np.zeros(num_draws)
    for b in range(num_draws):
        drawn = draw(random)
        for view, moment, where in zip(views, moments, seen, strict=True):
            sizes = _standardised(view.totals(view.redrawn(drawn), data.shares), *moment)
            null[b] = np.max(sizes, where=where, initial=null[b])
    searched = zip(views, moments, seen, strict=True)
    worst = [_worst(data, view, *m, where, null) for view, m, where in searched if where.any()]
    worst.sort(key=lambda found: (found[1].pvalue, -found[0]))
    return [(entry, number) for _, entry, number in worst], sum(int(x.sum()) for x in seen)


def _standardised(totals: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    return np.abs(totals - means) / np.sqrt(np.maximum(variances, _SMALLEST))


def _worst(
    data: Data,
    view: View,
    means: np.ndarray,
    variances: np.ndarray,
    seen: np.ndarray,
    null: np.ndarray,
) -> tuple[float, Entry, int]:
    """The largest difference of a view: its size, observed and predicted share, and samples."""
    weights, totals = data.shares, view.totals(view.cells, data.shares)
    sizes = np.where(seen, _standardised(totals, means, variances), -1)
    region, event = place = tuple(map(int, np.unravel_index(sizes.argmax(), sizes.shape)))
    inside = view.regions.unions[region][view.bins] > 0
    happened = view.events.unions[event][view.cells[inside]]
    chances = np.broadcast_to(view.probs @ view.events.unions[event], len(view.cells))[inside]
    total, difference = float(weights[inside].sum()), float(totals[place] - means[place])
    scatter, _ = scatter_of(happened - chances, weights[inside])
    by_scatter = abs(difference) / total / scatter if scatter > 0 else np.inf
    critical = np.sort(null)[::-1][max(0, int(0.05 * (len(null) + 1)) - 1)]
    size = min(sizes[place], by_scatter) * (1 - 1e-9)  # redraws may equal it up to rounding
    chance = view.factor * float(critical * np.sqrt(variances[place])) / total
    predicted = (float(totals[place]) - view.factor * difference) / total
    where, rows = view.regions.called(*view.regions.ends(region)), view.regions.call(region)
    entry = Entry(
        view.events.called(*view.events.ends(event)) + f", where {where}" * bool(rows),
        float(totals[place]) / total,
        expected=predicted,
        by_chance=(max(0.0, predicted - chance), min(1.0, predicted + chance)),
        pvalue=float((1 + np.sum(null >= size)) / (1 + len(null))),
        call=data.mean_of(f"({view.events.call(event)})", rows=f"[{rows}]" * bool(rows)),
    )
    return float(sizes[place]), entry, int((weights[inside] > 0).sum())


def where_wrong(data: Data, chosen: Choice | None) -> Part:
    """The places with the largest errors."""
    worst, count = find_places(data, *_search(data, chosen), NUM_REDRAWS)
    if not worst:
        return Part()
    shown = [x for x in worst if (x[0].pvalue or 0) <= LEVEL][:_SHOWN] or worst[:1]
    findings = []
    for entry, number_inside in shown:
        more = "more" if (entry.difference or 0) > 0 else "less"
        name, _, region = entry.name.partition(", where ")
        verb = "occur" if name.startswith("targets") else "occurs"
        observed, predicted = percents(entry.value, entry.expected or 0.0)
        where = f" where {region}" if region else ""
        word = f"{name} {verb} {more} often than predicted{where}"
        text = f"{observed} observed, {predicted} predicted in {number_inside} samples"
        advice = MAP_OF_QUANTILES if data.task == "regression" else None
        findings.append(Finding(entry.name, word, text, advice=advice))
    remark = f"Of {count} places (events in regions of the predictions), those whose frequencies "
    remark += "differ most from the predicted ones, in standard errors. They were searched for "
    remark += "because a test rejects and no sentence would have named an error."
    entries = tuple(entry for entry, _ in shown)
    return Part((Section("Where it is wrong", entries, remark),), tuple(findings))


def _search(data: Data, chosen: Choice | None) -> tuple[list[View], Any]:
    """Where to look, and what is redrawn."""
    predictions, n = bare(data.predictions, MonteCarlo), data.size
    if data.is_of_classes:
        probs = data.known(predictions.class_probs).astype(float)
        probs = probs / probs.sum(1, keepdims=True)
        redrawn = _by_levels(probs.cumsum(1)[:, :-1])
        return [*_of_classes(data, probs)], lambda random: redrawn(random.uniform(size=n))
    if isinstance(predictions, Ensemble):
        return _of_members(data, predictions.values, "predictions")
    if data.pit is None:
        if chosen is not None and isinstance(drawn := chosen.predictions.value, Ensemble):
            return _of_members(data, drawn.values, chosen.predictions.text)
        draws = distributions.monte_carlo(data.at(12), predictions, _NUM_DRAWS).draws
        call = f"distributions.monte_carlo(jax.random.fold_in(key, 12), predictions, {_NUM_DRAWS})"
        return _of_members(data, draws.values, f"{call}.draws")
    edges = np.arange(1, NUM_CELLS) / NUM_CELLS
    if isinstance(predictions, Quantiles):
        values, call = data.known(predictions.values), "predictions.values"
        finite = values[np.isfinite(values)]
        values = np.clip(values, finite.min(initial=0), finite.max(initial=0))
        middle = values.shape[1] // 2
        regions = [(values[:, middle], "the middle quantile", f"{call}[:, {middle}]")]
        if middle:
            width = values[:, -1] - values[:, 0], "the width of the widest interval"
            regions.append((*width, f"({call}[:, -1] - {call}[:, 0])"))
        levels = np.asarray(predictions.levels, float)
        edges = levels if levels.ndim == 1 else edges
        views = [*_of_ranks(data, edges, regions)]
    else:
        views = [*_of_numbers(data, predictions, edges)]
    return views, lambda random: random.uniform(size=n)


def _of_classes(data: Data, probs: np.ndarray) -> Iterator[View]:
    """Each class, and the top label, where its probability is between two numbers."""
    labels, call = data.known(data.targets), "predictions.class_probs"
    m, shown, shares = probs.shape[1], shown_classes(probs), np.arange(1, NUM_CELLS) / NUM_CELLS
    numbers, single = np.arange(m - 1), tuple((c, c + 1) for c in shown)
    top, largest = probs.argmax(1), probs.max(1)

    def called(low: float, high: float) -> str:
        return data.class_called(m - 1 if math.isinf(high) else int(high))

    for c in shown:
        regions = _regions(probs[:, c], "its probability", f"{call}[:, {c}]", shares)
        events = Cuts(numbers, "targets", called, ((c, c + 1),))
        bins = regions.cells(probs[:, c])
        yield View(events, regions.with_all(), labels, probs, lambda y: y, bins)
    if m > 2:
        regions = _regions(largest, "its probability", f"jnp.max({call}, 1)", shares)
        is_right = f"(targets == jnp.argmax({call}, 1))"
        events = Cuts(np.zeros(1), is_right, lambda *_: "the most probable class", ((1, 2),))
        right, chances = (labels == top).astype(int), np.stack([1 - largest, largest], 1)
        redrawn, bins = lambda y: (y == top).astype(int), regions.cells(largest)
        yield View(events, regions.with_all(), right, chances, redrawn, bins)
        # Each class where another one, or itself, is the most probable.
        words = lambda low, high: f"{called(low, high)} is the most probable one"  # noqa: E731
        regions = Cuts(numbers, f"jnp.argmax({call}, 1)", words, single)
        events = Cuts(numbers, "targets", called, single)
        yield View(events, regions, labels, probs, lambda y: y, top)


def _regions(values: np.ndarray, name: str, call: str, shares: np.ndarray) -> Cuts:
    """Cells of the predictions by a value of each, into which about these shares of them fall."""
    ordered, n = np.sort(values), len(values)
    first = np.clip(np.round(shares * n).astype(int), 1, n - 1)
    edges = np.unique((ordered[first - 1] + ordered[first]) / 2)  # between values, not at one
    edges = edges[edges < values.max()]
    called = lambda low, high: f"{name} is {_between(low, high)}"  # noqa: E731
    return Cuts(edges, call, called, Cuts.all_ranges(edges))


def _of_numbers(data: Data, predictions: Any, edges: np.ndarray) -> Iterator[View]:
    """Targets between numbers, and PIT values by mean and deviation, of distribution functions."""
    targets = data.known(data.targets).astype(float)
    draws = distributions.monte_carlo(data.at(11), predictions, -(-_LEAST_DRAWS // data.size)).draws
    cuts = _edges(data.known(draws.values))
    below, mean, deviation = data.known(_moments(predictions, jnp.asarray(cuts)))
    below = np.asarray(below, float)
    yield _of_targets(data, targets, cuts, below, _by_levels(below), "targets")
    shown = "predictions" if predictions is data.predictions else "predictions.distribution"
    regions = []
    for values, name, call in (
        (mean, "the predicted mean", "p.mean()"),
        (deviation, "the predicted standard deviation", "jnp.sqrt(p.variance())"),
    ):
        if values is not None:
            regions.append((values, name, f"jax.vmap(lambda p: {call})({shown})"))
    yield from _of_ranks(data, edges, regions)


def _of_members(data: Data, values: Any, call: str) -> tuple[list[View], Any]:
    """Targets between numbers among the members of ensembles, of each coordinate, and ranks.

    Which of the members and the target is the target is redrawn.
    """
    values = data.known(values)
    pool = np.concatenate([data.known(data.targets)[:, None], values], 1)
    (n, m), is_vector, views = values.shape[:2], pool.ndim == 3, []
    rows, size = np.arange(n), values.shape[1] + 1
    for d, own in enumerate(np.moveaxis(pool, 2, 0) if is_vector else pool[None]):
        cuts = _edges(own)
        table = np.searchsorted(cuts, own, side="left")
        below = np.stack([(table <= c).mean(1) for c in range(len(cuts))], 1)

        def redrawn(chosen: np.ndarray, table: np.ndarray = table) -> np.ndarray:
            return table[rows, chosen]

        place, name = (f"[:, {d}]", f" in coordinate {d}") if is_vector else ("", "")
        view = _of_targets(data, own[:, 0], cuts, below, redrawn, f"targets{place}", name)
        views.append(dataclasses.replace(view, factor=(m + 1) / m))
    if not is_vector and data.pit is not None:
        count = min(NUM_CELLS, size)
        edges = np.round(np.arange(1, count) * size / count) / size
        order = pool.argsort(1).argsort(1)
        joined = f"jnp.concatenate([targets[:, None], {call}.values], 1)"
        words = "of the members and the target"
        regions = [
            (pool.astype(float).mean(1), f"the mean {words}", f"{joined}.mean(1)"),
            (pool.astype(float).std(1), f"the standard deviation {words}", f"{joined}.std(1)"),
        ]

        def ranks(chosen: np.ndarray) -> np.ndarray:
            return np.searchsorted(edges, (order[rows, chosen] + 0.5) / size, side="left")

        views += _of_ranks(data, edges, regions, ranks)
    return views, lambda random: random.integers(size, size=n)


def _of_targets(
    data: Data,
    targets: np.ndarray,
    cuts: np.ndarray,
    below: np.ndarray,
    redrawn: Cells,
    call: str,
    name: str = "",
) -> View:
    """Targets in all ranges of neighbouring cells."""
    is_whole = np.issubdtype(np.asarray(data.targets).dtype, np.integer)
    n = len(targets)
    levels = np.concatenate([np.zeros((n, 1)), below, np.ones((n, 1))], 1)
    called = lambda low, high: f"targets{name} {_around(low, high, is_whole)}"  # noqa: E731
    events = Cuts(cuts, call, called, Cuts.all_ranges(cuts))
    everywhere = Cuts(np.zeros(0), "", called, ((0, 1),))
    probs = np.clip(np.diff(levels, axis=1), 0, 1)
    return View(events, everywhere, events.cells(targets), probs, redrawn, np.zeros(n, int))


def _of_ranks(
    data: Data, edges: np.ndarray, regions: list[tuple[Any, str, str]], redrawn: Cells | None = None
) -> Iterator[View]:
    """Ranks of targets within the predictions, in thirds of the predictions by values of each."""
    called = lambda low, high: f"targets {_quantiles(low, high)}"  # noqa: E731
    events = Cuts(edges, "result.arrays['pit']", called, Cuts.all_ranges(edges))
    cells = events.cells(data.known(data.pit).astype(float))
    probs = np.diff(np.concatenate([[0], edges, [1]]))[None]
    for place, (values, name, call) in enumerate(regions):
        values = np.asarray(values, float)
        if np.isfinite(values).all():  # there are distributions without a variance
            thirds = _regions(values, name, call, np.array([1 / 3, 2 / 3]))
            bins = thirds.cells(values)
            thirds = thirds if place else thirds.with_all()
            yield View(events, thirds, cells, probs, redrawn or events.cells, bins)


def _by_levels(levels: np.ndarray) -> Cells:
    """The cells of uniform numbers between levels that each sample has, [n, C - 1]."""
    n, count = levels.shape
    rows = np.arange(n)
    joined = (np.clip(levels, 0, 1) + 2 * rows[:, None]).ravel()  # ascending over all samples
    return lambda uniform: np.searchsorted(joined, uniform + 2 * rows) - count * rows


def _edges(draws: np.ndarray) -> np.ndarray:
    """Inner edges of the cells of targets."""
    levels = np.arange(1, _NUM_TARGETS) / _NUM_TARGETS
    return np.unique(np.quantile(np.asarray(draws, float), levels, method="inverted_cdf"))


@jax.jit
def _moments(predictions: Distribution, cuts: jax.Array) -> tuple[jax.Array, Any, Any]:
    """Distribution functions, [n, C], means and standard deviations, None if there are none."""

    def one(p: Any) -> tuple[jax.Array, Any, Any]:
        mean = p.mean() if hasattr(p, "mean") else None
        deviation = jnp.sqrt(p.variance()) if hasattr(p, "variance") else None
        return jax.vmap(p.cdf)(cuts), mean, deviation

    return jax.vmap(one)(predictions)


def _between(low: float, high: float) -> str:
    """A range in words, one end of which may be infinite."""
    if math.isinf(low):
        return f"at most {number(high)}"
    return f"above {number(low)}" + ("" if math.isinf(high) else f" and at most {number(high)}")


def _around(low: float, high: float, is_whole: bool) -> str:
    """A range of targets, those above the lower end up to the upper one."""
    if math.isinf(low) or math.isinf(high):
        return _between(low, high)
    if is_whole:
        return f"from {low + 1:.0f} to {high:.0f}" if high - low > 1 else f"of {high:.0f}"
    return f"between {number(low)} and {number(high)}"


def _quantiles(low: float, high: float) -> str:
    """A range of ranks in words."""
    if math.isinf(low):
        return f"up to the predicted {percent(high)} quantile"
    if math.isinf(high):
        return f"above the predicted {percent(low)} quantile"
    return f"between the predicted {percent(low)} and {percent(high)} quantiles"
