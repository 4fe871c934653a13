"""Regions in which predictions are wrong: events that occur more or less often than predicted."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from calibjax.distributions import Ensemble, Quantiles
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare
from calibjax.distributions.ensembles import MonteCarlo
from calibjax.evaluation.data import LEVEL, Data, Part, shown_classes
from calibjax.evaluation.kernel_tests import Choice
from calibjax.evaluation.record import Entry, Section, number
from calibjax.evaluation.sentences import PlaceError, percent

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
) -> tuple[list[Place], int]:
    """The worst places of all views, with p-values that are adjusted for all of their places.

    The statistic is the largest |N - E N| / sd N over the places, of the numbers N of samples in
    them. It is compared with those of redrawn targets, which makes the p-values exact (the largest
    of each redraw, Westfall and Young 1993).

    Args:
        views: at least one.
        draw: draws targets from the predictions, in the form that `View.redrawn` takes.
        seed: of NumPy.
        num_draws: B, the number of redraws.

    Returns:
        The worst place of each view, the worst one first, and the number of places.
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
    worst = [_worst(*one, null) for one in searched if one[-1].any()]

    def rank(x: Place) -> tuple[float, float]:
        return x.pvalue, -abs(x.observed - x.predicted) / max(x.chance, _SMALLEST)

    return sorted(worst, key=rank), sum(int(one[-1].sum()) for one in searched)


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


Cells = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Search:
    """Views of one data set.

    Attributes:
        views: where to look.
        draw: draws what `View.redrawn` takes.
    """

    views: tuple[View, ...]
    draw: Callable[[np.random.Generator], np.ndarray]


def by_levels(levels: np.ndarray) -> Cells:
    """The cells into which uniform numbers fall, between levels that each sample has, [n, C - 1].

    Costs the logarithm of the number of cells for each sample.
    """
    n, count = levels.shape
    rows = np.arange(n)
    joined = (np.clip(levels, 0, 1) + 2 * rows[:, None]).ravel()  # ascending over all samples

    def cells(uniform: np.ndarray) -> np.ndarray:
        return np.searchsorted(joined, uniform + 2 * rows, side="left") - count * rows

    return cells


def midpoints(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Numbers between values, up to which there are about these shares of them."""
    return np.unique(np.quantile(values, shares, method="midpoint"))


def between(low: float, high: float) -> str:
    """A range in words, one end of which may be infinite."""
    if math.isinf(low):
        return f"at most {number(high)}"
    return (
        f"above {number(low)}" if math.isinf(high) else f"between {number(low)} and {number(high)}"
    )


def inside(values: str, low: float, high: float) -> str:
    """Expression of which values are in (low, high]."""
    ends = [f"({values} > {low!r})"] * math.isfinite(low)
    ends += [f"({values} <= {high!r})"] * math.isfinite(high)
    return " & ".join(ends)


def ends_of_spans(edges: np.ndarray) -> list[tuple[float, float]]:
    """Both ends of all unions of neighbouring cells between these inner edges."""
    ends = [-math.inf, *map(float, edges), math.inf]
    return [(ends[start], ends[stop]) for start, stop in spans(len(ends) - 1)]


def of_classes(data: Data) -> Search:
    """Probabilities of the top label and of each class, and classes by the most probable one."""
    probs = data.known(data.predictions.class_probs).astype(float)
    probs = probs / probs.sum(1, keepdims=True)
    n = data.size
    call = "predictions.class_probs"
    top, shown = probs.argmax(1), list(shown_classes(probs))
    redrawn = by_levels(probs.cumsum(1)[:, :-1])
    views = [
        _of_probability(
            data, probs[:, c], lambda y, c=c: (y == c).astype(int), data.class_called(c), call, c
        )
        for c in shown
    ]
    if probs.shape[1] > 2:
        right = "the most probable class"
        views.append(
            _of_probability(data, probs.max(1), lambda y: (y == top).astype(int), right, call, None)
        )
        views.append(_confusions(data, probs, top, shown))

    return Search(tuple(views), lambda random: redrawn(random.uniform(size=n)))


def _of_probability(
    data: Data, probs: np.ndarray, happened: Cells, name: str, own: str, c: int | None
) -> View:
    """One event, in the samples whose probability of it is between two numbers."""
    edges = midpoints(probs, np.arange(1, NUM_CELLS) / NUM_CELLS)
    size = len(edges) + 1
    values = f"jnp.max({own}, 1)" if c is None else f"{own}[:, {c}]"
    observed = f"targets == jnp.argmax({own}, 1)" if c is None else f"targets == {c}"
    pairs, regions = ends_of_spans(edges), unions(size)
    return View(
        cells=happened(data.known(data.targets)),
        probs=np.stack([1 - probs, probs], 1),
        redrawn=happened,
        bins=cells_of(probs, edges),
        regions=np.concatenate([regions, np.ones((1, size))]),
        events=np.array([[0.0, 1.0]]),
        region_words=(*(f"where its probability is {between(*pair)}" for pair in pairs), ""),
        event_words=(name,),
        region_calls=(*(inside(values, *pair) for pair in pairs), ""),
        event_calls=((observed, values),),
        weights=data.shares,
    )


def _confusions(data: Data, probs: np.ndarray, top: np.ndarray, shown: Sequence[int]) -> View:
    """Each class where another one, or itself, is the most probable."""
    identity, call = np.eye(probs.shape[1]), "predictions.class_probs"
    names = [data.class_called(c) for c in shown]
    return View(
        cells=data.known(data.targets),
        probs=probs,
        redrawn=lambda y: y,
        bins=top,
        regions=identity[shown],
        events=identity[shown],
        region_words=tuple(f"where {name} is the most probable one" for name in names),
        event_words=tuple(names),
        region_calls=tuple(f"jnp.argmax({call}, 1) == {c}" for c in shown),
        event_calls=tuple((f"targets == {c}", f"{call}[:, {c}]") for c in shown),
        weights=data.shares,
    )


_NUM_TARGETS = 16  # cells of the targets, into each of which about as many are predicted
_LEAST_DRAWS = 2000  # from all predictions together, from which edges are chosen
_THIRDS = np.array([1 / 3, 2 / 3])
_RANKS = np.arange(1, NUM_CELLS) / NUM_CELLS


@dataclasses.dataclass(frozen=True)
class _Ranks:
    """Ranks of the targets within their predictions.

    Attributes:
        data: what is evaluated, with PIT values.
        edges: inner edges of their cells.
        redrawn: cells of what was drawn; None for those of uniform numbers.
    """

    data: Data
    edges: np.ndarray
    redrawn: Cells | None = None


def of_levels(data: Data, inner: Any) -> Search:
    """Targets between numbers, and PIT values by mean and deviation, of distribution functions.

    Args:
        data: with PIT values.
        inner: the predictions with a method `cdf`.
    """
    n, targets = data.size, data.known(data.targets).astype(float)
    cuts = _edges(_drawn(data, inner))
    below, mean, deviation = data.known(_moments(inner, jnp.asarray(cuts)))
    below = np.asarray(below, float)
    shown = "predictions" if inner is data.predictions else "predictions.distribution"

    def called(low: float, high: float) -> tuple[str, str]:
        return inside("targets", low, high), f"jax.vmap(lambda p: {_mass(low, high)})({shown})"

    is_whole = data.task == "counts"
    views = [_of_targets(data, targets, cuts, below, by_levels(below), called, is_whole)]
    ranks = _Ranks(data, _RANKS)
    for values, name, call in (
        (mean, "predicted mean", "p.mean()"),
        (deviation, "predicted standard deviation", "jnp.sqrt(p.variance())"),
    ):
        if values is not None:
            call = f"jax.vmap(lambda p: {call})({shown})"
            views += _of_ranks(ranks, values, name, call, with_all=name == "predicted mean")
    return Search(tuple(views), lambda random: random.uniform(size=n))


def of_quantiles(data: Data, predictions: Quantiles) -> Search:
    """PIT values between the levels, by the middle quantile and by the distance of the ends."""
    levels = np.asarray(predictions.levels, float)
    ranks = _Ranks(data, levels if levels.ndim == 1 else _RANKS)
    values = data.known(predictions.values)
    finite = values[np.isfinite(values)]
    values = np.clip(values, finite.min(initial=0), finite.max(initial=0))
    middle, call = values.shape[1] // 2, "predictions.values"
    expression = f"{call}[:, {middle}]"
    views = _of_ranks(ranks, values[:, middle], "middle quantile", expression, with_all=True)
    if values.shape[1] > 1:
        widths, expression = values[:, -1] - values[:, 0], f"({call}[:, -1] - {call}[:, 0])"
        views += _of_ranks(
            ranks, widths, "width of the widest interval", expression, with_all=False
        )
    return Search(tuple(views), lambda random: random.uniform(size=data.size))


def of_members(data: Data, values: np.ndarray, call: str) -> Search:
    """Targets between numbers among the members of ensembles, of each coordinate, and ranks.

    Which of the members and the target is the target is redrawn.

    Args:
        data: what is evaluated.
        values: members, [n, m] or [n, m, d].
        call: an expression of the ensembles.
    """
    pool = np.concatenate([data.known(data.targets)[:, None], values], 1)
    (n, m), is_whole = values.shape[:2], np.issubdtype(pool.dtype, np.integer)
    is_vector = pool.ndim == 3
    views = []
    for d, own in enumerate(np.moveaxis(pool, 2, 0) if is_vector else pool[None]):
        place, name = (f"[..., {d}]", f" in coordinate {d}") if is_vector else ("", "")
        members = f"{call}.values{place}"

        def called(low: float, high: float, ends: Any = (place, members)) -> tuple[str, str]:
            return inside(f"targets{ends[0]}", low, high), f"({inside(ends[1], low, high)}).mean(1)"

        cuts = _edges(own)
        below, redrawn = _shares_below(own, cuts)
        view = _of_targets(data, own[:, 0], cuts, below, redrawn, called, is_whole, name)
        views.append(dataclasses.replace(view, factor=(m + 1) / m))
    if not is_vector and data.pit is not None:
        views += _ranks_of_members(data, pool, call)
    return Search(tuple(views), lambda random: random.integers(m + 1, size=n))


def _shares_below(pool: np.ndarray, cuts: np.ndarray) -> tuple[np.ndarray, Cells]:
    """Shares of each pool up to the numbers, [n, C - 1], and the cells of chosen members."""
    rows, table = np.arange(len(pool)), cells_of(pool, cuts)
    shares = np.stack([(table <= c).mean(1) for c in range(len(cuts))], 1)
    return shares, lambda chosen: table[rows, chosen]


def _ranks_of_members(data: Data, pool: np.ndarray, call: str) -> list[View]:
    """Ranks of the targets in their pools, by the mean and the deviation of the pools."""
    size, rows = pool.shape[1], np.arange(len(pool))
    count = min(NUM_CELLS, size)
    edges = np.round(np.arange(1, count) * size / count) / size
    order = pool.argsort(1).argsort(1)
    ranks = _Ranks(data, edges, lambda chosen: cells_of((order[rows, chosen] + 0.5) / size, edges))
    joined, views = f"jnp.concatenate([targets[:, None], {call}.values], 1)", []
    for method, name in (("mean", "mean"), ("std", "standard deviation")):
        values, expression = getattr(pool.astype(float), method)(1), f"{joined}.{method}(1)"
        name = f"{name} of the members and the target"
        views += _of_ranks(ranks, values, name, expression, with_all=method == "mean")
    return views


def _drawn(data: Data, predictions: Distribution) -> np.ndarray:
    """Draws from all predictions."""
    count = -(-_LEAST_DRAWS // data.size)
    draws = distributions.monte_carlo(data.at(11), predictions, count).draws
    return data.known(draws.values).astype(float)


def _edges(draws: np.ndarray) -> np.ndarray:
    """Inner edges of the cells of targets."""
    values = np.asarray(draws, float).ravel()
    levels = np.arange(1, _NUM_TARGETS) / _NUM_TARGETS
    return np.unique(np.quantile(values, levels, method="inverted_cdf"))


@jax.jit
def _moments(predictions: Distribution, cuts: jax.Array) -> tuple[jax.Array, Any, Any]:
    """Distribution functions, [n, C], means and standard deviations, None if there are none."""

    def one(p: Any) -> tuple[jax.Array, Any, Any]:
        mean = p.mean() if hasattr(p, "mean") else None
        deviation = jnp.sqrt(p.variance()) if hasattr(p, "variance") else None
        return jax.vmap(p.cdf)(cuts), mean, deviation

    return jax.vmap(one)(predictions)


def _of_targets(
    data: Data,
    targets: np.ndarray,
    cuts: np.ndarray,
    below: np.ndarray,
    redrawn: Cells,
    called: Callable[[float, float], tuple[str, str]],
    is_whole: bool,
    name: str = "",
) -> View:
    """Targets in all unions of neighbouring cells."""
    n, pairs = len(targets), ends_of_spans(cuts)
    levels = np.concatenate([np.zeros((n, 1)), below, np.ones((n, 1))], 1)
    return View(
        cells=cells_of(targets, cuts),
        probs=np.clip(np.diff(levels, axis=1), 0, 1),
        redrawn=redrawn,
        bins=np.zeros(n, int),
        regions=np.ones((1, 1)),
        events=unions(len(cuts) + 1),
        region_words=("",),
        event_words=tuple(f"targets{name} {_around(*pair, is_whole)}" for pair in pairs),
        region_calls=("",),
        event_calls=tuple(called(*pair) for pair in pairs),
        weights=data.shares,
    )


def _around(low: float, high: float, is_whole: bool) -> str:
    """A range of targets, those above the lower end up to the upper one."""
    if math.isinf(low) or math.isinf(high):
        return between(low, high)
    if is_whole:
        return f"from {low + 1:.0f} to {high:.0f}" if high - low > 1 else f"of {high:.0f}"
    return f"around {number((low + high) / 2)} ({between(low, high)})"


def _of_ranks(ranks: _Ranks, values: Any, name: str, call: str, *, with_all: bool) -> list[View]:
    """Ranks of targets within the predictions, in thirds of the predictions by a value of each.

    Args:
        ranks: of the targets.
        values: by which predictions are divided, [n].
        name: of these values.
        call: an expression of them.
        with_all: whether all predictions together are a region, too.

    Returns:
        The view; none if there is nothing that divides the predictions.
    """
    values = np.asarray(values, float)
    if not np.isfinite(values).all():  # there are distributions without a variance
        return []
    edges = midpoints(values, _THIRDS)
    edges = edges[edges < values.max()]
    regions, pairs = unions(len(edges) + 1), ends_of_spans(edges)
    words = (f"where the {name} is {between(*pair)}" for pair in pairs)
    events = ends_of_spans(ranks.edges)
    return [
        View(
            cells=cells_of(ranks.data.known(ranks.data.pit).astype(float), ranks.edges),
            probs=np.diff(np.concatenate([[0], ranks.edges, [1]]))[None],
            redrawn=ranks.redrawn or (lambda u: cells_of(u, ranks.edges)),
            bins=cells_of(values, edges),
            regions=np.concatenate([regions, np.ones((int(with_all), len(edges) + 1))]),
            events=unions(len(ranks.edges) + 1),
            region_words=(*words, *[""] * with_all),
            event_words=tuple(f"targets {_quantiles(*pair)}" for pair in events),
            region_calls=(*(inside(call, *pair) for pair in pairs), *[""] * with_all),
            event_calls=tuple(_calls_of_ranks(*pair) for pair in events),
            weights=ranks.data.shares,
        )
    ]


def _quantiles(low: float, high: float) -> str:
    """A range of ranks in words."""
    if math.isinf(low):
        return f"up to the predicted {percent(high)} quantile"
    if math.isinf(high):
        return f"above the predicted {percent(low)} quantile"
    return f"between the predicted {percent(low)} and {percent(high)} quantiles"


def _calls_of_ranks(low: float, high: float) -> tuple[str, str]:
    share = min(high, 1.0) - max(low, 0.0)
    pit = "result.arrays['pit']"
    return inside(pit, low, high), f"jnp.full_like({pit}, {share!r})"


def _mass(low: float, high: float) -> str:
    """Expression of the predicted probability of targets in (low, high]."""
    if math.isinf(low):
        return f"p.cdf({high!r})"
    return f"1 - p.cdf({low!r})" if math.isinf(high) else f"p.cdf({high!r}) - p.cdf({low!r})"


NUM_REDRAWS = 999
_SHOWN = 3  # places that are named
_NUM_DRAWS = 20  # from each prediction that has no distribution function, or is of vectors
_REMARK = (
    "Of {number} places (events in regions of the predictions), those whose frequencies differ "
    "most from the predicted ones, in standard errors. They were searched for because a test "
    "rejects and no sentence would have named an error. The p-values are exact and adjusted for "
    "all places that were looked at."
)


def where_wrong(data: Data, chosen: Choice | None) -> Part:
    """The places with the largest errors."""
    search = _search(data, chosen)
    seed = np.asarray(jax.random.key_data(data.at(13))).ravel()
    worst, number = find_places(search.views, search.draw, seed, NUM_REDRAWS)
    if not worst:
        return Part()
    shown = [place for place in worst if place.pvalue <= LEVEL][:_SHOWN] or worst[:1]
    entries = tuple(entry for place in shown for entry in _entries(data, place))
    section = Section("Where it is wrong", entries, _REMARK.format(number=number))
    findings = {"places": tuple(_error(place) for place in shown)}
    return Part((section,), findings)


def _search(data: Data, chosen: Choice | None) -> Search:
    """Where to look: in classes, by distribution functions, or among members of ensembles."""
    if data.is_of_classes:
        return of_classes(data)
    inner = bare(data.predictions, MonteCarlo)
    if isinstance(inner, Ensemble):
        return of_members(data, data.known(inner.values), "predictions")
    if isinstance(inner, Quantiles):
        return of_quantiles(data, inner)
    if data.pit is not None:
        return of_levels(data, inner)
    if chosen is not None and isinstance(drawn := chosen.predictions.value, Ensemble):
        return of_members(data, data.known(drawn.values), chosen.predictions.text)
    draws = distributions.monte_carlo(data.at(12), inner, _NUM_DRAWS).draws
    call = f"distributions.monte_carlo(jax.random.fold_in(key, 12), predictions, {_NUM_DRAWS})"
    return of_members(data, data.known(draws.values), f"{call}.draws")


def _error(place: Place) -> PlaceError:
    """What a sentence says of a place."""
    return PlaceError(
        event=place.view.event_words[place.event],
        region=place.view.region_words[place.region],
        number=place.number,
        predicted=place.observed - place.view.factor * (place.observed - place.predicted),
        observed=place.observed,
        pvalue=place.pvalue,
    )


def _entries(data: Data, place: Place) -> tuple[Entry, Entry, Entry]:
    """Both frequencies, and their difference with its p-value."""
    error = _error(place)
    observed, predicted = place.view.event_calls[place.event]
    inside = place.view.region_calls[place.region]
    rows = f"[{inside}]" if inside else ""
    function = "jnp.average" if data.has_weights else "jnp.mean"
    more = f", weights=weights{rows}" if data.has_weights else ""
    calls = [f"{function}(({call}){rows}{more})" for call in (observed, predicted)]
    name = error.event + (f", {error.region}" if error.region else "")
    chance = place.view.factor * place.chance
    return (
        Entry(f"observed: {name}", error.observed, function=calls[0]),
        Entry(f"predicted: {name}", error.predicted, function=calls[1]),
        Entry(
            f"observed - predicted: {name}",
            error.observed - error.predicted,
            by_chance=(-chance, chance),
            pvalue=place.exact_pvalue,
            function=f"{calls[0]} - {calls[1]}",
        ),
    )
