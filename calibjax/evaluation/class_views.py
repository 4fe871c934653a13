"""Where to look for errors of classes: by their probability, and by the most probable class."""

from collections.abc import Sequence

import numpy as np

from calibjax.evaluation.data import Data, shown_classes
from calibjax.evaluation.marginals import NUM_BANDS, Marginals, with_band
from calibjax.evaluation.places import NUM_CELLS, View, cells_of, unions
from calibjax.evaluation.views import (
    Cells,
    Search,
    between,
    by_levels,
    ends_of_spans,
    inside,
    midpoints,
)


def of_classes(data: Data) -> Search:
    """Probabilities of the top label and of each class, and classes by the most probable one."""
    probs = data.known(data.predictions.class_probs).astype(float)
    probs = probs / probs.sum(1, keepdims=True)
    labels, n = data.known(data.targets), data.size
    own = "predictions.class_probs"
    top, shown = probs.argmax(1), list(shown_classes(probs))
    redrawn = by_levels(probs.cumsum(1)[:, :-1])
    views = [
        _of_probability(
            data, probs[:, c], lambda y, c=c: (y == c).astype(int), data.class_called(c), own, c
        )
        for c in shown
    ]
    if probs.shape[1] > 2:
        right = "the most probable class"
        views.append(
            _of_probability(data, probs.max(1), lambda y: (y == top).astype(int), right, own, None)
        )
        views.append(_confusions(data, probs, top, shown))

    every = [0, 1] if probs.shape[1] == 2 else shown

    def marginals(random: np.random.Generator) -> Marginals:
        names = tuple(data.class_called(c).removeprefix("class ") for c in every)
        drawn = (redrawn(random.uniform(size=n)) for _ in range(NUM_BANDS))
        number = probs.shape[1]
        counts = [np.bincount(y, data.shares, number)[every] for y in (labels, *drawn)]
        return with_band(counts, data.average(probs)[every], n, names)

    return Search(tuple(views), lambda random: redrawn(random.uniform(size=n)), marginals=marginals)


def _of_probability(
    data: Data, probs: np.ndarray, happened: Cells, name: str, own: str, c: int | None
) -> View:
    """One event, in the samples whose probability of it is between two numbers."""
    edges = midpoints(probs, np.arange(1, NUM_CELLS) / NUM_CELLS)
    number = len(edges) + 1
    values = f"jnp.max({own}, 1)" if c is None else f"{own}[:, {c}]"
    observed = f"targets == jnp.argmax({own}, 1)" if c is None else f"targets == {c}"
    pairs, regions = ends_of_spans(edges), unions(number)
    return View(
        cells=happened(data.known(data.targets)),
        probs=np.stack([1 - probs, probs], 1),
        redrawn=happened,
        bins=cells_of(probs, edges),
        regions=np.concatenate([regions, np.ones((1, number))]),
        events=np.array([[0.0, 1.0]]),
        region_words=(*(f"where its probability is {between(*pair)}" for pair in pairs), ""),
        event_words=(name,),
        region_calls=(*(inside(values, *pair) for pair in pairs), ""),
        event_calls=((observed, values),),
        weights=data.shares,
    )


def _confusions(data: Data, probs: np.ndarray, top: np.ndarray, shown: Sequence[int]) -> View:
    """Each class where another one, or itself, is the most probable."""
    identity, own = np.eye(probs.shape[1]), "predictions.class_probs"
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
        region_calls=tuple(f"jnp.argmax({own}, 1) == {c}" for c in shown),
        event_calls=tuple((f"targets == {c}", f"{own}[:, {c}]") for c in shown),
        weights=data.shares,
    )
