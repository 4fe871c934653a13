"""Where to look for errors of numbers and vectors: targets, and their ranks by the prediction."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions
from calibjax.distributions import Quantiles
from calibjax.distributions.base import Distribution
from calibjax.evaluation.data import Data
from calibjax.evaluation.places import NUM_CELLS, View, cells_of, unions
from calibjax.evaluation.shown import number
from calibjax.evaluation.views import (
    Cells,
    Search,
    between,
    by_levels,
    ends_of_spans,
    inside,
    midpoints,
)
from calibjax.evaluation.wording import percent

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
    seen = "predictions" if inner is data.predictions else "predictions.distribution"

    def called(low: float, high: float) -> tuple[str, str]:
        return inside("targets", low, high), f"jax.vmap(lambda p: {_mass(low, high)})({seen})"

    is_whole = data.task == "counts"
    views = [_of_targets(data, targets, cuts, below, by_levels(below), called, is_whole)]
    ranks = _Ranks(data, _RANKS)
    for values, name, call in (
        (mean, "predicted mean", "p.mean()"),
        (deviation, "predicted standard deviation", "jnp.sqrt(p.variance())"),
    ):
        if values is not None:
            call = f"jax.vmap(lambda p: {call})({seen})"
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
    own = f"{call}[:, {middle}]"
    views = _of_ranks(ranks, values[:, middle], "middle quantile", own, with_all=True)
    if values.shape[1] > 1:
        widths, own = values[:, -1] - values[:, 0], f"({call}[:, -1] - {call}[:, 0])"
        views += _of_ranks(ranks, widths, "width of the widest interval", own, with_all=False)
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

    def draw(random: np.random.Generator) -> np.ndarray:
        return random.integers(m + 1, size=n)

    if not is_vector and data.pit is not None:
        views += _ranks_of_members(data, pool, call)
    return Search(tuple(views), draw)


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
        values, own = getattr(pool.astype(float), method)(1), f"{joined}.{method}(1)"
        name = f"{name} of the members and the target"
        views += _of_ranks(ranks, values, name, own, with_all=method == "mean")
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
    if not len(edges) and not with_all:
        return []
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
